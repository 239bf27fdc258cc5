"""csdp.fit_quality and csdp.check_model: does a chain explain the readings, and what does it leave unexplained?

If the chain is right, a residual r with variance v stays uncorrelated with anything known before. So `sum h r` has
mean zero and variance `sum h^2 v` for every h that looks only back: the square of their quotient is about chi-square
(martingale central limit theorem). Cells with variance below 5 are left out, as in the usual rule for such tests. If
the chain was fitted on the same readings the tests are conservative.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, EnvironmentChain, Evidence, Family, InfluenceFamily, JointChain
from csdp.chain.evidence import count_lags
from csdp.errors import CsdpError, InputError, PrivacyLeakWarning
from csdp.fitting.em import JOINT_STATES
from csdp.fitting.emissions import chi_square_tail
from csdp.fitting.environment import HELD_OUT
from csdp.fitting.fit import refit
from csdp.fitting.prediction import (
    EnvironmentPrediction,
    Prediction,
    add_environments,
    batch_error,
    own_law,
    predict,
)
from csdp.fitting.sample import Chain, Progress, Sample, check_chain, ignore_progress, match_chain, read_sample
from csdp.numbers import Floats, Indices
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
AnyPrediction = Prediction | EnvironmentPrediction
#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0


@dataclass(frozen=True)
class FitCheck:
    """One test of the chain: `p` is the chance of such data if the chain is right, corrected for the number of
    tests; `passed` if p is at least 0.001; `where` names the sequences that stand out most.
    """

    question: str
    p: float
    where: tuple[str, ...] = ()
    tests: int = 0

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


# ---- tests on residuals ----------------------------------------------------------------------------------------------


def _chi_square(sums: Floats, variances: Floats) -> tuple[float, int]:
    kept = variances >= LEAST_VARIANCE
    return float((np.square(sums[kept]) / variances[kept]).sum()), int(kept.sum())


def order_p(prediction: AnyPrediction, target: int, left: Floats, variance: Floats) -> float:
    """Does the state before the present one say more than the chain has it?"""
    before = prediction.sample.states[:-2, target]
    m = prediction.chain.states
    back = (before[:, None] == np.arange(m)).astype(np.float64)
    return float(chi_square_tail(*_chi_square(back.T @ left[1:], back.T @ variance[1:])))


def homogeneity_p(prediction: AnyPrediction, target: int, left: Floats, variance: Floats) -> float:
    """Does a sequence move in the second half as in the first, from each of its states?"""
    present = prediction.sample.states[:-1, target]
    back = (present[:, None] == np.arange(prediction.chain.states)).astype(np.float64)
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


def worst_check(question: str, ps: Floats, names: tuple[str, ...]) -> FitCheck:
    """Bonferroni: the smallest chance times the number of tests."""
    first = np.argsort(ps)[:3]
    where = tuple(names[i] for i in first if ps[i] * ps.size < LEVEL) or (names[int(first[0])],)
    return FitCheck(question, min(1.0, float(ps.min()) * ps.size), where, ps.size)


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
    order = worst_check("does the state before the present one say more?", older, names)
    homogeneity = worst_check("does the second half move as the first?", halves, names)
    together = None
    if not isinstance(chain, JointChain) and s > 1:
        hidden = isinstance(chain, EnvironmentChain) and chain.kind == "hidden"
        pairwise = together_ps(left, spread, prediction.sample.states[:-1, some], in_turn=hidden)
        pairs = some.size * (some.size - 1) // 2
        i, k = np.unravel_index(int(pairwise.argmin()), pairwise.shape)
        where = (names[some[i]], names[some[k]])
        question = "do sequences move together within a step?"
        together = FitCheck(question, min(1.0, float(pairwise.min()) * pairs), where, pairs)
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
    family = chain.family
    if family is None:
        return point
    if isinstance(family, InfluenceFamily):
        assert isinstance(point, CoupledChain)
        around: Family | InfluenceFamily = family.with_point(point)
    else:
        around = family.with_point(point)
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
    failures = [found for found, _ in list_failures(chain, checks)]
    sequences, counts = count_lags(sample.states, chain.states)
    return Evidence("rejected" if failures else "accepted", "; ".join(failures), sequences, counts)


# ---- in words --------------------------------------------------------------------------------------------------------


def describe(chain: Chain, gain: float, error: float, checks: FitChecks) -> tuple[bool, str]:
    """Whether the chain explains the data, and the same in words with what to do next."""
    explains = math.isfinite(gain) and gain >= -SURE * error
    sentences = [_compare(chain, gain, error)]
    failures = [f"{found[0].upper()}{found[1:]}. {advice}." for found, advice in list_failures(chain, checks)]
    if explains and not failures:
        sentences.append("No test rejects it.")
    return explains and not failures, " ".join([*sentences, *failures])


def _kind(chain: Chain) -> str:
    if isinstance(chain, JointChain):
        return "joint chain"
    return "environment chain" if isinstance(chain, EnvironmentChain) else "coupled chain"


def _compare(chain: Chain, gain: float, error: float) -> str:
    kind = _kind(chain)
    figures = f"({gain:.4f} nats per tick, standard error {error:.4f})"
    if chain.sequences == 1 and isinstance(chain, CoupledChain | JointChain):
        return "There is one sequence, so there is nothing that a coupling could explain."
    if not math.isfinite(gain):
        return f"The {kind} does NOT explain these data: it calls impossible what they show. Fit with smoothing."
    if gain > SURE * error:
        return f"The {kind} explains these data better than independent chains {figures}."
    if gain < -SURE * error:
        return f"The {kind} does NOT explain these data: independent chains do better {figures}."
    return f"The {kind} explains these data no better than independent chains {figures}."


def list_failures(chain: Chain, checks: FitChecks) -> list[tuple[str, str]]:
    """What each test of the chain that failed found, and what to do."""
    order, homogeneity, together = checks.order, checks.homogeneity, checks.together
    failures = []
    if not order.passed:
        failures.append(
            (
                f"the present alone does not predict the future, the state before it adds to it ({_place(order)})",
                f"A first-order chain is not enough: use a longer step, finer states, {_environment_advice(chain)}",
            )
        )
    if not homogeneity.passed:
        failures.append(
            (
                f"the second half moves differently from the first ({_place(homogeneity)})",
                f"Fit on a shorter, recent stretch, {_environment_advice(chain)}",
            )
        )
    if together is not None and not together.passed:
        failures.append(
            (
                f"sequences move together within a step ({_chance(together.p)}; {' and '.join(together.where)})",
                f"{_together_advice(chain)}, and compare the leakage",
            )
        )
    return failures


def _environment_advice(chain: Chain) -> str:
    if isinstance(chain, EnvironmentChain) and chain.kind == "hidden":
        return "or with more environments (environments=)"
    return "or with environment='hidden' if such times come and go"


def _together_advice(chain: Chain) -> str:
    if isinstance(chain, EnvironmentChain):
        more = "more environments (environments=)" if chain.kind == "hidden" else "environment='hidden'"
        return f"These environments do not explain it: use {more}"
    joint = "or method='joint'"
    if chain.size > JOINT_STATES:
        joint = f"or method='joint' for fewer sequences or states (at most {JOINT_STATES:,} joint states)"
    return (
        "A coupled chain cannot express this: use environment='hidden', or environment='clock' if one drives them, "
        f"{joint}"
    )


def _place(check: FitCheck) -> str:
    return f"{_chance(check.p)}; {', '.join(check.where)}"


def _chance(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.1e}"
