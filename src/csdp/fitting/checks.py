"""csdp.fit_quality, csdp.check_model and check_readings: does a chain explain the readings, and what does it leave out?

If the environment is known (a clock) the law of a step is that of its member. If it is hidden, `Pr(e_t | all before)`
is filtered from the readings, and what the sequences of a tick do reveals e_t for those that come after them in the
same tick: law j is given the past and the sequences before j. The product over j is then the law of the whole snapshot,
and residuals have mean zero given everything before them.

If the chain is right, a residual r with variance v stays uncorrelated with anything known before. So `sum h r` has
mean zero and variance `sum h^2 v` for every h that looks only back: the square of their quotient is about chi-square
(martingale central limit theorem). Cells with variance below 5 are left out, as in the usual rule for such tests. If
the chain was fitted on the same readings the tests are conservative.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, EnvironmentChain, Evidence, JointChain, Model
from csdp.chain.evidence import count_lags
from csdp.errors import CsdpError, InputError, PrivacyLeakWarning
from csdp.fitting.em import JOINT_STATES
from csdp.fitting.environment import HELD_OUT, batch_error, filter_scores, mix_members, step_scores
from csdp.fitting.fit import refit
from csdp.fitting.sample import (
    Chain,
    Progress,
    Sample,
    check_chain,
    ignore_progress,
    join_graphs,
    match_chain,
    read_sample,
    snapshot_numbers,
)
from csdp.numbers import Bools, Floats, Indices
from csdp.panel import Panel

#: False-alarm rate of each test of a model, over all sequences.
LEVEL: Final = 0.001
#: Ticks below which the tests have too little power.
FEWEST_TICKS: Final = 100
#: Variance that a cell needs for the normal approximation.
LEAST_VARIANCE = 5.0
#: Columns of residuals (sequences, by present and by next state) that are compared with each other.
TOGETHER_COLUMNS = 2000
#: Residuals that are kept for it at most.
_TOGETHER_CELLS = 10_000_000
#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0
#: Added to every count of the laws that a chain is compared with.
_PSEUDO_COUNT = 0.5
#: What most failures call for.
_HIDDEN = "environment='hidden' (with more environments if it has some)"
#: Stands for the logarithm of a step that no environment allows.
_IMPOSSIBLE = -1e6
#: Count that a cell needs for the normal approximation.
LEAST_COUNT = 5.0
#: Ticks between a reading and what it may reveal.
LAGS = (1, 2)
#: Sequences whose readings are checked; of more, as many spread evenly.
CHECKED = 2000


# ---- what a chain predicts -------------------------------------------------------------------------------------------


class _Laws(ABC):
    """Laws of next states under a chain for every step of the readings."""

    def __init__(self, chain: Chain, readings: Sample) -> None:
        self.sample = readings.in_direction(chain.direction)  #: in the order in which the chain reads them
        self.states = chain.states

    @abstractmethod
    def law(self, target: int) -> tuple[Floats, Bools]:
        """Law of the next state of a target (steps, m), and at which steps present and next are known."""

    def scores(self, target: int) -> tuple[Floats, Bools]:
        """Log-probability of the next state of a target at every step (0 if unknown), and when it is known."""
        (law, known), following = self.law(target), self.sample.states[1:, target]
        chance = law[np.arange(following.size), np.maximum(following, 0)]
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, chance, 1.0)), 0.0), known

    def residuals(self, target: int) -> tuple[Floats, Floats]:
        """Residuals and their variances (steps, m - 1), each with mean zero given the past and uncorrelated.

        One for each question "state a, given that it is a or above?": `1(y >= a) (1(y = a) - h_a)` has variance
        `Pr(y >= a) h_a (1 - h_a)` under the law. Zero if a reading is missing.
        """
        (law, known), following = self.law(target), self.sample.states[1:, target]
        above = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
        hazard = law[:, :-1] / np.maximum(above[:, :-1], 1e-300)
        states = np.arange(law.shape[1] - 1)
        left = (following[:, None] >= states) * ((following[:, None] == states) - hazard)
        variance = above[:, :-1] * hazard * (1.0 - hazard)
        keep = known[:, None]
        return np.where(keep, left, 0.0), np.where(keep, np.maximum(variance, 0.0), 0.0)


class Prediction(_Laws):
    """Laws of next states under a chain without environments."""

    def __init__(self, chain: CoupledChain | JointChain, readings: Sample) -> None:
        super().__init__(chain, readings)
        self.chain, self._present = chain, self.sample.states[:-1]

    @cached_property
    def _joint(self) -> tuple[Floats, Bools]:
        """Rows of the kernel (steps, N) of a joint chain, and which presents are complete."""
        assert isinstance(self.chain, JointChain)
        complete = np.asarray((self._present >= 0).all(axis=1))
        return self.chain.kernel()[snapshot_numbers(self._present, self.chain.states)], complete

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | present)` (steps, m), and at which steps present and next are known."""
        m, following = self.chain.states, self.sample.states[1:, target]
        if isinstance(self.chain, JointChain):
            rows, complete = self._joint
            axes = tuple(i + 1 for i in range(self.chain.sequences) if i != target)
            law = rows.reshape((-1,) + (m,) * self.chain.sequences).sum(axis=axes)
            return law, complete & (following >= 0)
        starts = self.chain.edge_starts
        table, which = self.chain.transition_table
        law = np.zeros((following.size, m))
        known = following >= 0
        for e in range(int(starts[target]), int(starts[target + 1])):
            column = self._present[:, self.chain.edge_sources[e]]
            known &= column >= 0
            law += self.chain.edge_weights[e] * table[which[e]][np.maximum(column, 0)]
        return law, known

    def joint_scores(self) -> Floats:
        """Log-probability of the whole next snapshot under a joint chain at every step (0 if unknown)."""
        rows, complete = self._joint
        following = self.sample.states[1:]
        code = snapshot_numbers(following, self.chain.states)
        known = complete & (following >= 0).all(axis=1)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, rows[np.arange(code.size), code], 1.0)), 0.0)


def own_law(readings: Sample, target: int) -> Floats:
    """Transitions (m, m) of a sequence that follows itself only, counted and smoothed."""
    column = readings.states[:, target]
    both = (column[:-1] >= 0) & (column[1:] >= 0)
    cells = column[:-1][both].astype(np.intp) * readings.m + column[1:][both]
    counts = np.bincount(cells, minlength=readings.m**2).reshape(readings.m, readings.m) + _PSEUDO_COUNT
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


# ---- environments ----------------------------------------------------------------------------------------------------


def known_environments(chain: Model, ticks: npt.NDArray[Any]) -> Indices | None:
    """The environment (T,) of every tick by the clock; None if there is none, or if it is hidden."""
    if not isinstance(chain, EnvironmentChain) or chain.cycle is None:
        return None
    return np.asarray(np.asarray(chain.cycle, dtype=np.intp)[np.asarray(ticks) % len(chain.cycle)])


def add_environments(chain: Chain, sample: Sample, ticks: npt.NDArray[Any]) -> Sample:
    """The readings with the environment of every tick, if the chain knows it."""
    return replace(sample, environments=known_environments(chain, ticks))


def predict(chain: Chain, readings: Sample) -> Prediction | EnvironmentPrediction:
    """What a chain predicts for the readings."""
    return (
        EnvironmentPrediction(chain, readings) if isinstance(chain, EnvironmentChain) else Prediction(chain, readings)
    )


class EnvironmentPrediction(_Laws):
    """Laws of next states under a chain with environments; ask for targets in their order, which is quick."""

    def __init__(self, chain: EnvironmentChain, readings: Sample) -> None:
        super().__init__(chain, readings)
        self.chain = chain
        self._members = [Prediction(member, self.sample) for member in chain.environments]
        self._cursor, self._scores_so_far = 0, self._before.copy()

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | past, next states of the targets before)` (steps, m), and when it is known."""
        laws = [member.law(target) for member in self._members]
        weights = self._weights(target)
        law = sum(weights[:, e, None] * laws[e][0] for e in range(len(laws)))
        return np.asarray(law), np.logical_and.reduce([known for _, known in laws])

    def _weights(self, target: int) -> Floats:
        """`Pr(e_t | past, next states of the targets before)` (steps, E)."""
        if target < self._cursor:
            self._cursor, self._scores_so_far = 0, self._before.copy()
        while self._cursor < target:
            self._scores_so_far += np.column_stack([member.scores(self._cursor)[0] for member in self._members])
            self._cursor += 1
        return shares_of_logs(self._scores_so_far)

    @cached_property
    def _before(self) -> Floats:
        """ln Pr(e_t | past) (steps, E)."""
        path, members = self.sample.environments, len(self._members)
        if self.chain.switching is None:
            assert path is not None
            # In time the step between two ticks is under the environment of the later one.
            shares = np.eye(members)[path[1:] if self.sample.direction == "forward" else path[:-1]]
        else:
            start, switching = np.asarray(self.chain.environment_law), np.ascontiguousarray(self.chain.own_switching)
            graph = join_graphs(self.chain.environments)
            scores = step_scores(self.sample, graph, mix_members(self.chain.environments, graph))
            after = filter_scores(np.maximum(scores, _IMPOSSIBLE), start, switching)[0]
            shares = np.vstack([start, after[:-1] @ switching])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(shares))


def shares_of_logs(logs: Floats) -> Floats:
    """Probabilities from logarithms, along the last axis; equal ones if all are impossible."""
    top = logs.max(axis=-1, keepdims=True)
    raised = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    whole = raised.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(whole > 0, raised / np.where(whole > 0, whole, 1.0), 1.0 / logs.shape[-1]))


# ---- tests on residuals ----------------------------------------------------------------------------------------------


def chi_square_tail(statistic: Any, freedom: Any) -> Floats:
    """Chance that chi-square with `freedom` degrees of freedom is larger than `statistic`; 1 if `freedom` is 0."""
    from scipy.special import gammaincc

    some = np.asarray(freedom) > 0
    return np.where(some, gammaincc(np.where(some, freedom, 1) / 2.0, np.asarray(statistic) / 2.0), 1.0)


@dataclass(frozen=True)
class FitCheck:
    """One test of the chain: `p` is the chance of such data if the chain is right, corrected for the number of
    tests; `passed` if p is at least 0.001; `where` names the sequences that stand out most.
    """

    p: float
    where: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the test does not reject the chain."""
        return self.p >= LEVEL


@dataclass(frozen=True)
class FitChecks:
    """The tests of a fit; None if one does not apply."""

    order: FitCheck
    homogeneity: FitCheck
    together: FitCheck | None


def _chi_square(sums: Floats, variances: Floats) -> tuple[float, int]:
    kept = variances >= LEAST_VARIANCE
    return float((np.square(sums[kept]) / variances[kept]).sum()), int(kept.sum())


def order_p(prediction: _Laws, target: int, left: Floats, variance: Floats) -> float:
    """Does the state before the present one say more than the chain has it?"""
    before = prediction.sample.states[:-2, target]
    m = prediction.states
    back = (before[:, None] == np.arange(m)).astype(np.float64)
    return float(chi_square_tail(*_chi_square(back.T @ left[1:], back.T @ variance[1:])))


def homogeneity_p(prediction: _Laws, target: int, left: Floats, variance: Floats) -> float:
    """Does a sequence move in the second half as in the first, from each of its states?"""
    present = prediction.sample.states[:-1, target]
    back = (present[:, None] == np.arange(prediction.states)).astype(np.float64)
    half = present.size // 2
    s1, v1 = back[:half].T @ left[:half], back[:half].T @ variance[:half]
    s2, v2 = back[half:].T @ left[half:], back[half:].T @ variance[half:]
    kept = (v1 >= LEAST_VARIANCE) & (v2 >= LEAST_VARIANCE)
    whole = np.where(kept, v1 + v2, 1.0)
    # What the fit has already set to zero is the sum of both halves; the difference is what is left.
    difference = s2 - v2 / whole * (s1 + s2)
    statistic = (np.square(difference) * whole / np.where(kept, v1 * v2, 1.0))[kept].sum()
    return float(chi_square_tail(statistic, kept.sum()))


def together_ps(left: Floats, variance: Floats, present: npt.NDArray[Any], *, in_turn: bool = False) -> Floats:
    """Chance (k, k), for every pair of sequences, of residuals that agree so well if they move apart.

    left, variance (steps, k, m - 1), present (steps, k). Two questions, the sharper answer counts twice: do the
    residuals agree overall, and do they agree from each pair of present states (a shock that makes both change moves
    them up or down, depending on where they are)? With `in_turn` a residual is given those of the sequences before it
    in the same step, and the variance of their product depends on them.
    """
    m = left.shape[2] + 1
    at = (present[:, :, None] == np.arange(m)).astype(np.float64)
    finer, finer_variance = (
        (at[:, :, :, None] * part[:, :, None, :]).reshape(*part.shape[:2], -1) for part in (left, variance)
    )
    sharper = np.minimum(_pairwise(left, variance, in_turn), _pairwise(finer, finer_variance, in_turn))
    return np.minimum(1.0, 2.0 * sharper)


def _pairwise(left: Floats, variance: Floats, in_turn: bool) -> Floats:
    n, k, cells = left.shape
    sums = (left.reshape(n, -1).T @ left.reshape(n, -1)).reshape(k, cells, k, cells)
    first = np.square(left) if in_turn else variance
    spread = (first.reshape(n, -1).T @ variance.reshape(n, -1)).reshape(k, cells, k, cells)
    kept = spread >= LEAST_VARIANCE
    each = np.where(kept, np.square(sums) / np.where(kept, spread, 1.0), 0.0)
    ps = np.triu(chi_square_tail(each.sum(axis=(1, 3)), kept.sum(axis=(1, 3))), 1)
    return np.asarray(ps + ps.T + np.eye(k))


def compared_sequences(sequences: int, states: int, steps: int) -> Indices:
    """The sequences that are compared with each other: all, or as many as fit, evenly spaced."""
    columns = min(TOGETHER_COLUMNS, _TOGETHER_CELLS // steps)
    most = max(2, columns // (states * (states - 1)))
    return np.arange(sequences) if sequences <= most else np.linspace(0, sequences - 1, most).astype(np.intp)


def worst_check(ps: Floats, names: tuple[str, ...]) -> FitCheck:
    """Bonferroni: the smallest chance times the number of tests."""
    first = np.argsort(ps)[:3]
    where = tuple(names[i] for i in first if ps[i] * ps.size < LEVEL) or (names[int(first[0])],)
    return FitCheck(min(1.0, float(ps.min()) * ps.size), where)


# ---- quality of a fit ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitQuality:
    """How well a chain explains readings.

    `chain`, `independent`: log-likelihood per transition on held-out readings of the chain, and of one chain for each
    sequence. `gain` is that of the chain over independent chains, per tick and all sequences together, `gain_error` its
    standard error. `together` is None for a joint chain, which can express any movement together.
    """

    held_out_ticks: int
    refitted: bool
    chain: float
    independent: float
    gain: float
    gain_error: float
    order: FitCheck
    homogeneity: FitCheck
    together: FitCheck | None
    explains: bool
    verdict: str

    def __repr__(self) -> str:
        held = f"on {self.held_out_ticks:,} held-out ticks"
        return f"FitQuality({'explains' if self.explains else 'does not explain'} the data, {held})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return asdict(self)


def fit_quality(
    chain: Chain,
    data: Any,
    *,
    public: bool = False,
    progress: Progress | None = None,
) -> FitQuality:
    """Does the chain explain the data? Scores on held-out readings, and tests of what it assumes.

    Scores: the last 30 % of the data are set aside, the chain is fitted again in the same way on the rest, and that
    fit is scored; a chain given by hand, or fitted with epsilon, is scored as it is. Independent chains are
    fitted on the same rest.

    Tests, on all of the data: does the state before the present one help to predict the next (order), does the second
    half follow the same law as the first (homogeneity), do sequences move together within a step, which a coupled chain
    cannot express (together)? For a chain with environments the tests are made given the clock, or given what the past
    says about the hidden environment.

    Args:
        chain: the chain.
        data: state numbers or a panel.
        public: declare that the data are public; otherwise it warns, because the answer reveals something about them.
        progress: called with what is done, how much, and the total.

    >>> from csdp import CoupledChain, fit
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    >>> states = chain.simulate(4000, seed=1)
    >>> quality = fit_quality(fit(states, public=True), states, public=True)
    >>> quality.explains, quality.chain > quality.independent
    (True, True)
    """
    if not public:
        warnings.warn(
            "the quality of a fit reveals something about the readings; keep it to yourself, or declare them public "
            "(public=True)",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    check_chain(chain)
    sample = match_chain(chain, read_sample(data, states=chain.states))
    ticks = np.asarray(data.ticks) if isinstance(data, Panel) else np.arange(sample.states.shape[0])
    sample = add_environments(chain, sample, ticks)
    report = progress or ignore_progress
    scored, past, future, refitted = _split(chain, sample, report)
    mean, alone, gain, error = _scores(scored, past, future, report)
    checks = run_checks(chain, sample, report)
    explains, verdict = describe(chain, gain, error, checks)
    return FitQuality(
        future.transitions,
        refitted,
        mean,
        alone,
        gain,
        error,
        checks.order,
        checks.homogeneity,
        checks.together,
        explains,
        verdict,
    )


def _split(chain: Chain, readings: Sample, report: Progress) -> tuple[Chain, Sample, Sample, bool]:
    """The chain that is scored, the readings before and after the split, and whether the chain was fitted again."""
    ticks = readings.states.shape[0]
    cut = round(ticks * (1 - HELD_OUT))
    if min(cut, ticks - cut) < 20:
        raise InputError(f"data: {ticks} ticks given; too few to hold {HELD_OUT:.0%} out (20 on either side)")
    past, future = readings.between(0, cut), readings.between(cut - 1, ticks).in_direction(chain.direction)
    again = refit(chain, past, report)
    return chain if again is None else again, past.in_direction(chain.direction), future, again is not None


def _scores(chain: Chain, past: Sample, future: Sample, report: Progress) -> tuple[float, float, float, float]:
    """Held-out scores per transition of the chain and of independent ones; the gain per tick and its standard error."""
    prediction = predict(chain, future)
    gains = np.zeros(future.transitions)
    number, total, alone_total = 0, 0.0, 0.0
    for j in range(chain.sequences):
        score, known = prediction.scores(j)
        present, following = future.states[:-1, j], future.states[1:, j]
        known = known & (present >= 0)
        alone = np.log(own_law(past, j))[np.maximum(present, 0), np.maximum(following, 0)]
        gains += np.where(known, -alone if isinstance(chain, JointChain) else score - alone, 0.0)
        number += int(known.sum())
        total += float(score[known].sum())
        alone_total += float(alone[known].sum())
        report("scoring", j + 1, chain.sequences)
    if isinstance(prediction, Prediction) and isinstance(chain, JointChain):
        gains += prediction.joint_scores()
    if not number:
        raise InputError("data: no held-out transition was read at both ends; fill the gaps")
    return total / number, alone_total / number, float(gains.mean()), batch_error(gains)


def run_checks(chain: Chain, readings: Sample, report: Progress) -> FitChecks:
    """The checks of a chain on readings."""
    prediction = predict(chain, readings)
    s, names = chain.sequences, chain.names
    some = compared_sequences(s, chain.states, readings.transitions)
    place = {int(j): i for i, j in enumerate(some)}
    left = np.zeros((readings.transitions, some.size, chain.states - 1), dtype=np.float64)
    spread = np.zeros_like(left)
    older, halves = np.ones(s), np.ones(s)
    for j in range(s):
        residual, variance = prediction.residuals(j)
        older[j] = order_p(prediction, j, residual, variance)
        halves[j] = homogeneity_p(prediction, j, residual, variance)
        if j in place:
            left[:, place[j]], spread[:, place[j]] = residual, variance
        report("testing", j + 1, s)
    order = worst_check(older, names)
    homogeneity = worst_check(halves, names)
    together = None
    if not isinstance(chain, JointChain) and s > 1:
        hidden = isinstance(chain, EnvironmentChain) and chain.kind == "hidden"
        pairwise = together_ps(left, spread, prediction.sample.states[:-1, some], in_turn=hidden)
        pairs = some.size * (some.size - 1) // 2
        i, k = np.unravel_index(int(pairwise.argmin()), pairwise.shape)
        where = (names[some[i]], names[some[k]])
        together = FitCheck(min(1.0, float(pairwise.min()) * pairs), where)
    return FitChecks(order, homogeneity, together)


# ---- verdict of a model ----------------------------------------------------------------------------------------------


def check_model(chain: Chain, past: Any) -> Chain:
    """Test a model on a public past; returns the same model, carrying the verdict.

    Publishing under a model that its past rejects is refused unless it is overridden, and every output shows the
    verdict. `csdp.fit` tests the models that it fits to public readings; use this for a declared model, or for one that
    an earlier version fitted.

    Args:
        chain: the model; its family, if it has one, stays with it.
        past: public readings: a panel, or state numbers. Never use private ones: the verdict reveals them.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> check_model(chain, chain.simulate(2000, seed=1)).verdict.status
    'accepted'
    >>> check_model(chain, np.arange(2000)[:, None] // 3 % 2).verdict.status
    'rejected'
    """
    check_chain(chain)
    ticks = np.asarray(past.ticks) if isinstance(past, Panel) else None
    sample = match_chain(chain, read_sample(past, states=chain.states))
    evidence = find_evidence(chain, sample, ticks)
    point = chain.carrying(fitted=chain.fitted, fit_cost=chain.fit_cost, evidence=evidence)
    family: Any = chain.family
    around = None if family is None else family.with_point(point)
    return chain.carrying(fitted=chain.fitted, fit_cost=chain.fit_cost, evidence=evidence, family=around)


def find_evidence(chain: Chain, sample: Sample, ticks: npt.NDArray[Any] | None = None) -> Evidence:
    """What public readings show of a model.

    Args:
        chain: the model.
        sample: the readings, in natural order.
        ticks: their ticks; default 0, 1, 2, ...
    """
    length = sample.states.shape[0]
    if length < FEWEST_TICKS:
        return Evidence("untested", f"{length} ticks are too few to test a model; {FEWEST_TICKS} are needed")
    ticks = np.arange(length) if ticks is None else ticks
    try:
        known = add_environments(chain, sample, ticks)
        checks = run_checks(chain, known, ignore_progress)
    except CsdpError as error:
        return Evidence("untested", str(error))
    failures = [found for found, _ in list_failures(checks)]
    sequences, counts = count_lags(sample.states, chain.states)
    return Evidence("rejected" if failures else "accepted", "; ".join(failures), sequences, counts)


# ---- in words --------------------------------------------------------------------------------------------------------


def describe(chain: Chain, gain: float, error: float, checks: FitChecks) -> tuple[bool, str]:
    """Whether the chain explains the data, and the same in words with what to do next."""
    explains = math.isfinite(gain) and gain >= -SURE * error
    sentences = [_compare(chain, gain, error)]
    failures = [f"{found[0].upper()}{found[1:]}. {advice}." for found, advice in list_failures(checks)]
    if explains and not failures:
        sentences.append("No test rejects it.")
    return explains and not failures, " ".join([*sentences, *failures])


def _compare(chain: Chain, gain: float, error: float) -> str:
    figures = f"({gain:.4f} nats per tick, standard error {error:.4f})"
    if chain.sequences == 1 and isinstance(chain, CoupledChain | JointChain):
        return "There is one sequence, so there is nothing that a coupling could explain."
    if not math.isfinite(gain):
        return "The chain does NOT explain these data: it calls impossible what they show. Fit with smoothing."
    if gain > SURE * error:
        return f"The chain explains these data better than independent chains {figures}."
    if gain < -SURE * error:
        return f"The chain does NOT explain these data: independent chains do better {figures}."
    return f"The chain explains these data no better than independent chains {figures}."


def list_failures(checks: FitChecks) -> list[tuple[str, str]]:
    """What each test that failed found, and what to do."""
    order, homogeneity, together = checks.order, checks.homogeneity, checks.together
    failures = []
    if not order.passed:
        failures.append(
            (
                f"the present alone does not predict the future, the state before it adds to it ({_place(order)})",
                f"A first-order chain is not enough: use a longer step, finer states, or {_HIDDEN}",
            )
        )
    if not homogeneity.passed:
        failures.append(
            (
                f"the second half moves differently from the first ({_place(homogeneity)})",
                f"Fit on a shorter, recent stretch, or with {_HIDDEN}",
            )
        )
    if together is not None and not together.passed:
        failures.append(
            (
                f"sequences move together within a step ({_chance(together.p)}; {' and '.join(together.where)})",
                f"The chain cannot express this: use {_HIDDEN}, environment='clock' if one drives them, or "
                f"method='joint' (up to {JOINT_STATES:,} joint states), and compare the leakage",
            )
        )
    return failures


def _place(check: FitCheck) -> str:
    return f"{_chance(check.p)}; {', '.join(check.where)}"


def _chance(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.1e}"


# ---- do readings reveal more than their states? ----------------------------------------------------------------------
#
# If means of readings are published, a certificate of the present state assumes that a reading is made of its state
# and of something independent of all states. Then, given the states, readings may change places with those of the same
# state. So the rank of a reading among those of its state
#
# - is unrelated to the state before and after it (Kruskal and Wallis 1952, by state of the neighbouring tick), and
# - if readings are independent given the states, unrelated to the rank of the neighbouring tick (Wald and Wolfowitz
#   1943, with the tail of Bernstein's inequality).
#
# Neither uses the chain, so a wrong chain raises no alarm here, and none is raised by sequences that move together. If
# the environment of every tick is public (a clock), places are changed within the same environment only.


def inside_scores(readings: Floats, states: npt.NDArray[Any]) -> Floats:
    """Rank of each reading among those of its state, with mean 0 and variance 1; 0 if missing or if all are equal.

    >>> inside_scores(np.array([5.0, 1.0, 9.0, 7.0]), np.array([1, 0, 1, 0])).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """
    scores = np.zeros(readings.size)
    known = np.flatnonzero((states >= 0) & ~np.isnan(readings))
    if not known.size:
        return scores
    value, state = readings[known], states[known].astype(np.intp)
    order = np.lexsort((value, state))
    value, state = value[order], state[order]
    new = np.concatenate([[True], (np.diff(value) != 0) | (np.diff(state) != 0)])
    run = np.cumsum(new) - 1
    ends = np.cumsum(np.bincount(run))
    middle = (ends - (np.bincount(run) - 1) / 2.0)[run]  # equal readings share the mean of their ranks
    size = np.bincount(state)
    rank = middle - (np.cumsum(size) - size)[state] - (size[state] + 1) / 2.0
    spread = np.sqrt(np.bincount(state, rank**2) / np.maximum(size, 1))
    scores[known[order]] = np.where(spread[state] > 0, rank / np.where(spread > 0, spread, 1.0)[state], 0.0)
    return scores


def state_p(scores: Floats, groups: npt.NDArray[Any], states: npt.NDArray[Any], m: int) -> float:
    """Chance of such ranks if the reading reveals nothing more about the states around it, corrected for the lags.

    `groups` are the states, each split by environment if that is public.
    """
    ps = [_kruskal_p(scores, groups, states, lag, m) for lag in (*LAGS, *(-lag for lag in LAGS))]
    return min(1.0, len(ps) * min(ps))


def _kruskal_p(scores: Floats, groups: npt.NDArray[Any], states: npt.NDArray[Any], lag: int, m: int) -> float:
    """Do ranks inside a group differ by the state `lag` ticks later (earlier, below 0)?"""
    now, then = (slice(None, -lag), slice(lag, None)) if lag > 0 else (slice(-lag, None), slice(None, lag))
    rows = (groups[now] >= 0) & (states[then] >= 0)
    score, at, to = scores[now][rows], groups[now][rows].astype(np.intp), states[then][rows].astype(np.intp)
    kinds = int(at.max(initial=0)) + 1
    cell = at * m + to
    counts: Floats = np.bincount(cell, minlength=kinds * m).reshape(kinds, m).astype(np.float64)
    sums = np.asarray(np.bincount(cell, score, kinds * m), dtype=np.float64).reshape(kinds, m)
    size, total = counts.sum(axis=1), sums.sum(axis=1)
    squares = np.bincount(at, score**2, kinds) - total**2 / np.maximum(size, 1)
    largest = np.zeros(kinds)
    np.maximum.at(largest, at, score**2)
    # Evenly spread ranks reach a square of 3; if many readings are equal, the few others need larger groups.
    _pool_small(counts, sums, LEAST_COUNT * np.maximum(1.0, (largest / 3.0) ** 2))
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=1) - total**2 / np.maximum(size, 1)
    varies = squares > 1e-9 * size  # more than the rounding of equal ranks
    statistic = np.where(varies, (size - 1) * between / np.where(varies, squares, 1.0), 0.0).sum()
    freedom = np.where(varies, (counts > 0).sum(axis=1) - 1, 0).sum()
    return float(chi_square_tail(statistic, freedom))


def _pool_small(counts: Floats, sums: Floats, least: Floats) -> None:
    """Add groups too small for the normal approximation to the largest group of their row, in place."""
    rows = np.arange(counts.shape[0])
    largest = counts.argmax(axis=1)
    small = counts < least[:, None]
    small[rows, largest] = False
    for table in (counts, sums):
        table[rows, largest] += np.where(small, table, 0.0).sum(axis=1)
        table[small] = 0.0


def reading_p(scores: Floats, states: npt.NDArray[Any]) -> float:
    """Chance of such ranks if, given the states, readings at different ticks are independent; for all lags."""
    ps = [_serial_p(scores, states, lag) for lag in LAGS]
    return min(1.0, len(ps) * min(ps))


def _serial_p(scores: Floats, states: npt.NDArray[Any], lag: int) -> float:
    first, second = scores[:-lag], scores[lag:]
    pairs = (first != 0) & (second != 0)
    same = pairs & (states[:-lag] == states[lag:])
    size = np.bincount(np.maximum(states, 0), scores != 0)
    # Two ranks of one state cannot be the same, which makes them differ a little.
    due = -(np.bincount(np.maximum(states[:-lag], 0), same, size.size) / np.maximum(size - 1, 1)).sum()
    off = abs(float((first * second)[pairs].sum()) - due)
    variance, most = float(pairs.sum()), float(np.square(scores).max(initial=0.0))
    if off <= 0 or variance < LEAST_COUNT:
        return 1.0
    return float(min(1.0, 2.0 * np.exp(-(off**2) / (2.0 * (variance + most * off / 3.0)))))


def emission_ps(readings: Floats, states: npt.NDArray[Any], m: int, environments: Indices | None = None) -> Floats:
    """For each sequence (s, 2): chances of `state_p` and `reading_p`; `environments` (T,) if they are public."""
    ps = np.ones((states.shape[1], 2))
    for j in range(states.shape[1]):
        own = states[:, j].astype(np.intp)
        groups = own if environments is None else np.where(own >= 0, environments * m + own, -1)
        scores = inside_scores(readings[:, j], groups)
        ps[j] = state_p(scores, groups, own, m), reading_p(scores, groups)
    return ps


@dataclass(frozen=True)
class ReadingsCheck:
    """Whether the public past of the readings allows to publish readings under a certificate of their states.

    `states_p`, `readings_p`: chance of such readings if, given its state, a reading reveals no more of the states
    (readings) around it, corrected for the number of sequences.
    """

    states_p: float
    readings_p: float

    @property
    def verdict(self) -> Literal["passed", "states", "failed"]:
        """What certificates may say: of the present state and reading, of the state only, or nothing."""
        if self.states_p < LEVEL:
            return "failed"
        return "passed" if self.readings_p >= LEVEL else "states"


def check_readings(
    panel: Panel,
    *,
    states: int | None = None,
    environments: Indices | None = None,
) -> ReadingsCheck:
    """Do public readings reveal more than their states? If they do, a certificate of the states can be too low.

    Args:
        panel: states with the readings behind them (`Panel.readings`), as `read_panel` and `Discretiser.apply` give.
        states: number of states; that of the panel by default.
        environments: the environment of every tick, if it is public: readings are then compared within it.

    >>> import csdp
    >>> signal = np.sin(np.arange(400.0) / 20)[:, None]
    >>> check_readings(csdp.Discretiser.declared(["a"], states=2, bounds=(-1, 1)).apply(signal)).verdict
    'failed'
    """
    if panel.readings is None:
        raise InputError("panel: it holds states only; read it from readings (read_panel, Discretiser.apply)")
    m = panel.state_count if states is None else states
    count = len(panel.names)
    some = np.unique(np.linspace(0, count - 1, min(count, CHECKED)).round().astype(np.intp))
    readings, own = panel.readings[:, some], panel.states[:, some]
    ps = emission_ps(readings, own, m, environments)
    lowest = np.minimum(1.0, ps.min(axis=0) * some.size)
    return ReadingsCheck(float(lowest[0]), float(lowest[1]))
