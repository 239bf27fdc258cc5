"""csdp.fit_quality: does a chain explain the readings, and what does it leave unexplained?

The tests are built on residuals that have mean zero given the whole past. If the chain is right, a residual r with
variance v stays uncorrelated with anything known before. So `sum h r` has mean zero and variance `sum h^2 v` for every
h that looks only back: the square of their quotient is about chi-square (martingale central limit theorem). Cells with
variance below 5 are left out, as in the usual rule for such tests. Where the chain was fitted on the same readings the
tests are conservative.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.chain import CoupledChain, JointChain
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.fit import fit, show_progress
from csdp.fitting.methods import JOINT_STATES
from csdp.fitting.sample import Prediction, Progress, Sample, check_chain, match_chain, own_law, read_sample, still_law
from csdp.fitting.scores import batch_error

if TYPE_CHECKING:
    from rich.console import Group

#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0
#: Variance that a cell needs for the normal approximation.
LEAST_VARIANCE = 5.0
#: Columns of residuals (sequences, by present and by next state) that are compared with each other.
TOGETHER_COLUMNS = 2000


@dataclass(frozen=True)
class FitCheck:
    """One test of the chain: `p` is the chance of such data if the chain is right, corrected for the number of
    tests; `passed` where p is at least `level`; `where` names the sequences that stand out most.
    """

    question: str
    p: float
    level: float
    where: tuple[str, ...] = ()
    tests: int = 0

    @property
    def passed(self) -> bool:
        """Whether the test does not reject the chain."""
        return self.p >= self.level


@dataclass(frozen=True)
class SequenceQuality:
    """One sequence: log-likelihoods per transition on held-out readings, and chances of its tests (uncorrected)."""

    name: str
    transitions: int
    chain: float
    independent: float
    stationary: float
    order_p: float
    homogeneity_p: float
    together_p: float


@dataclass(frozen=True)
class FitQuality:
    """How well a chain explains readings.

    `chain`, `independent`, `stationary`: log-likelihood per transition on held-out readings of the chain, of one chain
    for each sequence, and of the law that ignores the past. `gain` is that of the chain over independent chains, per
    tick and all sequences together, `gain_error` its standard error. `order`, `homogeneity` and `together` are tests
    at a stated level; `together` is None for a joint chain, which can express any movement together.
    """

    held_out_ticks: int
    refitted: bool
    chain: float
    independent: float
    stationary: float
    gain: float
    gain_error: float
    order: FitCheck
    homogeneity: FitCheck
    together: FitCheck | None
    table: tuple[SequenceQuality, ...]
    explains: bool
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return asdict(self)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        table = Table("sequence", "coupled", "independent", "no past")
        for row in self.table[:30]:
            table.add_row(row.name, f"{row.chain:.4f}", f"{row.independent:.4f}", f"{row.stationary:.4f}")
        return Group(table, self.verdict)


def fit_quality(
    chain: CoupledChain | JointChain,
    data: Any,
    *,
    train: Any = None,
    held_out: float = 0.3,
    level: float = 0.001,
    public: bool = False,
    progress: Progress | bool | None = None,
) -> FitQuality:
    """Does the chain explain the data? Scores on held-out readings, and tests of what it assumes.

    With `train` (what the chain was fitted on) it is scored on `data`. Without, the last `held_out` part of the data is
    set aside, the chain is fitted again in the same way on the rest, and that fit is scored: a chain given by hand, or
    fitted with epsilon, is scored as it is. Independent chains and frequencies are fitted on the same rest.

    Tests, on all of the data, each with false-alarm rate `level` over all sequences: does the state before the
    present one say more (order), does the second half move as the first (homogeneity), do sequences move together
    within a step, which a coupled chain cannot express (together)?

    The answer reveals something about the data: it warns unless they are declared public.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    >>> states = chain.simulate(4000, seed=1)
    >>> quality = fit_quality(fit(states, public=True, ensemble=0), states, public=True)
    >>> quality.explains, quality.chain > quality.independent > quality.stationary
    (True, True)
    """
    if not public:
        warnings.warn(
            "the quality of a fit tells about the readings; keep it to yourself, or declare them public (public=True)",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    if not 0.05 <= held_out <= 0.9:
        raise InputError(f"held_out: {held_out!r} given; a share between 0.05 and 0.9")
    if not 0 < level < 1:
        raise InputError(f"level: {level!r} given; a chance between 0 and 1")
    check_chain(chain)
    readings = match_chain(chain, read_sample(data, states=chain.states))
    with show_progress(progress) as report:
        scored, past, future, refitted = _split(chain, readings, train, held_out, report)
        rows, gain, error = _scores(scored, past, future, report)
        checks, ps = _run_checks(chain, readings, level, report)
    # A chain that was fitted again has no names of its own.
    table = tuple(SequenceQuality(name, *row[1:], *p) for name, row, p in zip(chain.names, rows, ps, strict=True))
    weights = np.array([row.transitions for row in table], dtype=np.float64)
    mean, alone, still = (
        float(np.average(kind, weights=weights))
        for kind in ([r.chain for r in table], [r.independent for r in table], [r.stationary for r in table])
    )
    explains, verdict = _verdict(chain, mean <= still, gain, error, checks)
    order, homogeneity, together = checks
    return FitQuality(
        future.transitions,
        refitted,
        mean,
        alone,
        still,
        gain,
        error,
        order,
        homogeneity,
        together,
        table,
        explains,
        verdict,
    )


def _split(
    chain: CoupledChain | JointChain, readings: Sample, train: Any, held_out: float, report: Progress
) -> tuple[CoupledChain | JointChain, Sample, Sample, bool]:
    """The chain that is scored, the readings before and after the split, and whether the chain was fitted again."""
    if train is not None:
        past = match_chain(chain, read_sample(train, states=chain.states))
        return chain, past.in_direction(chain.direction), readings.in_direction(chain.direction), False
    ticks = readings.states.shape[0]
    cut = round(ticks * (1 - held_out))
    if min(cut, ticks - cut) < 20:
        raise InputError(f"data: {ticks} ticks given; too few to hold {held_out:.0%} out (20 on either side)")
    past, future = readings.between(0, cut), readings.between(cut - 1, ticks).in_direction(chain.direction)
    record = chain.fitted
    if record is None or record.epsilon is not None:
        return chain, past.in_direction(chain.direction), future, False
    known: Any = record.neighbours
    if not record.screened and isinstance(chain, CoupledChain):
        known = np.column_stack([chain.edge_targets, chain.edge_sources])
    method: Any = record.method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the chain itself was fitted
        again = fit(
            past.states,
            method=method,
            states=chain.states,
            neighbours=known,
            smoothing=record.smoothing,
            public=True,
            ensemble=0,
            direction=chain.direction,
            progress=report,
        )
    return again, past.in_direction(chain.direction), future, True


def _scores(
    chain: CoupledChain | JointChain, past: Sample, future: Sample, report: Progress
) -> tuple[list[tuple[str, int, float, float, float]], float, float]:
    """Held-out scores of every sequence, and the gain over independent chains per tick with its standard error."""
    prediction = Prediction(chain, future)
    gains = np.zeros(future.transitions)
    rows = []
    for j, name in enumerate(chain.names):
        score, known = prediction.scores(j)
        present, following = future.states[:-1, j], future.states[1:, j]
        known = known & (present >= 0)
        at, to = np.maximum(present, 0), np.maximum(following, 0)
        alone = np.log(own_law(past, j))[at, to]
        still = np.log(still_law(past, j))[to]
        if not isinstance(chain, JointChain):
            gains += np.where(known, score - alone, 0.0)
        else:
            gains -= np.where(known, alone, 0.0)
        n = max(int(known.sum()), 1)
        mean, lone, none = (float(part[known].sum()) / n for part in (score, alone, still))
        rows.append((name, int(known.sum()), mean, lone, none))
        report("scoring", j + 1, chain.sequences)
    if isinstance(chain, JointChain):
        gains += prediction.joint_scores()
    if not any(row[1] for row in rows):
        raise InputError("data: no held-out transition was read at both ends; fill the gaps")
    return rows, float(gains.mean()), batch_error(gains)


def _run_checks(
    chain: CoupledChain | JointChain, readings: Sample, level: float, report: Progress
) -> tuple[tuple[FitCheck, FitCheck, FitCheck | None], list[tuple[float, float, float]]]:
    readings = readings.in_direction(chain.direction)
    prediction = Prediction(chain, readings)
    s, names = chain.sequences, chain.names
    some = compared_sequences(s, chain.states)
    place = {int(j): i for i, j in enumerate(some)}
    left = np.zeros((readings.transitions, some.size, chain.states - 1), dtype=np.float64)
    spread = np.zeros_like(left)
    older, halves, close = np.ones(s), np.ones(s), np.ones(s)
    for j in range(s):
        residual, variance = prediction.residuals(j)
        older[j] = order_p(prediction, j, residual, variance)
        halves[j] = homogeneity_p(prediction, j, residual, variance)
        if j in place:
            left[:, place[j]], spread[:, place[j]] = residual, variance
        report("testing", j + 1, s)
    order = _worst_check("does the state before the present one say more?", older, names, level)
    homogeneity = _worst_check("does the second half move as the first?", halves, names, level)
    together = None
    if not isinstance(chain, JointChain) and s > 1:
        ps = together_ps(left, spread, readings.states[:-1, some])
        close[some] = ps.min(axis=1)
        pairs = some.size * (some.size - 1) // 2
        i, k = np.unravel_index(int(ps.argmin()), ps.shape)
        where = (names[some[i]], names[some[k]])
        question = "do sequences move together within a step?"
        together = FitCheck(question, min(1.0, float(ps.min()) * pairs), level, where, pairs)
    return (order, homogeneity, together), list(zip(older.tolist(), halves.tolist(), close.tolist(), strict=True))


def _worst_check(question: str, ps: Floats, names: tuple[str, ...], level: float) -> FitCheck:
    """Bonferroni: the smallest chance times the number of tests."""
    first = np.argsort(ps)[:3]
    where = tuple(names[i] for i in first if ps[i] * ps.size < level) or (names[int(first[0])],)
    return FitCheck(question, min(1.0, float(ps.min()) * ps.size), level, where, ps.size)


def _verdict(
    chain: CoupledChain | JointChain, useless: bool, gain: float, error: float, checks: tuple[Any, ...]
) -> tuple[bool, str]:
    """Whether the chain explains the data, and the same in words."""
    kind = "joint chain" if isinstance(chain, JointChain) else "coupled chain"
    figures = f"({gain:.4f} nats per tick, standard error {error:.4f})"
    explains = math.isfinite(gain) and gain >= -SURE * error and not useless
    if chain.sequences == 1:
        sentences = ["There is one sequence, so there is nothing that a coupling could explain."]
    elif not math.isfinite(gain):
        sentences = [f"The {kind} does NOT explain these data: it calls impossible what they show. Fit with smoothing."]
    elif gain > SURE * error:
        sentences = [f"The {kind} explains these data better than independent chains {figures}."]
    elif gain < -SURE * error:
        sentences = [f"The {kind} does NOT explain these data: independent chains do better {figures}."]
    else:
        sentences = [f"The {kind} explains these data no better than independent chains {figures}."]
    if useless:
        sentences.append("Knowing the present does not help: the law that knows no past does as well.")
    failures = _failures(chain, checks)
    if explains and not failures:
        sentences.append("No test speaks against it.")
    return explains and not failures, " ".join([*sentences, *failures])


def _failures(chain: CoupledChain | JointChain, checks: tuple[Any, ...]) -> list[str]:
    """One sentence for each test that failed, with what to do."""
    order, homogeneity, together = checks
    sentences = []
    if not order.passed:
        sentences.append(
            f"The present alone does not tell the future: the state before it says more ({_chance(order.p)}; "
            f"{', '.join(order.where)}). A first-order chain is not enough: use a longer step, or finer states."
        )
    if not homogeneity.passed:
        sentences.append(
            f"The second half moves differently from the first ({_chance(homogeneity.p)}; "
            f"{', '.join(homogeneity.where)}). Fit on a shorter, recent stretch, or apart for each regime."
        )
    if together is not None and not together.passed:
        advice = "use method='joint'"
        if chain.size > JOINT_STATES:
            advice = f"method='joint' can, for fewer sequences or states (at most {JOINT_STATES:,} joint states)"
        sentences.append(
            f"Sequences move together within a step ({_chance(together.p)}; {' and '.join(together.where)}), which a "
            f"coupled chain cannot express: {advice}, and compare the leakage."
        )
    return sentences


def _chance(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.1e}"


def chi_square_tail(statistic: Any, freedom: Any) -> Floats:
    """Chance that chi-square with so many degrees of freedom is larger; 1 where there are none."""
    from scipy.special import gammaincc

    some = np.asarray(freedom) > 0
    return np.where(some, gammaincc(np.where(some, freedom, 1) / 2.0, np.asarray(statistic) / 2.0), 1.0)


def _chi_square(sums: Floats, variances: Floats) -> tuple[float, int]:
    kept = variances >= LEAST_VARIANCE
    return float((np.square(sums[kept]) / variances[kept]).sum()), int(kept.sum())


def order_p(prediction: Prediction, target: int, left: Floats, variance: Floats) -> float:
    """Does the state before the present one say more than the chain has it?"""
    before = prediction.sample.states[:-2, target]
    m = prediction.chain.states
    back = (before[:, None] == np.arange(m)).astype(np.float64)
    return float(chi_square_tail(*_chi_square(back.T @ left[1:], back.T @ variance[1:])))


def homogeneity_p(prediction: Prediction, target: int, left: Floats, variance: Floats) -> float:
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


def together_ps(left: Floats, variance: Floats, present: npt.NDArray[Any]) -> Floats:
    """Chance (k, k), for every pair of sequences, of residuals that agree so well if they move apart.

    left, variance (steps, k, m - 1), present (steps, k). Two questions, the sharper answer counts twice: do the
    residuals agree overall, and do they agree from each pair of present states (a shock that makes both change moves
    them up or down, depending on where they are)?
    """
    m = left.shape[2] + 1
    at = (present[:, :, None] == np.arange(m)).astype(np.float64)
    finer = [(at[:, :, :, None] * part[:, :, None, :]).reshape(*part.shape[:2], -1) for part in (left, variance)]
    return np.minimum(1.0, 2.0 * np.minimum(_pairwise(left, variance), _pairwise(*finer)))


def _pairwise(left: Floats, variance: Floats) -> Floats:
    n, k, cells = left.shape
    sums = (left.reshape(n, -1).T @ left.reshape(n, -1)).reshape(k, cells, k, cells)
    spread = (variance.reshape(n, -1).T @ variance.reshape(n, -1)).reshape(k, cells, k, cells)
    kept = spread >= LEAST_VARIANCE
    each = np.where(kept, np.square(sums) / np.where(kept, spread, 1.0), 0.0)
    ps = chi_square_tail(each.sum(axis=(1, 3)), kept.sum(axis=(1, 3)))
    ps[np.arange(k), np.arange(k)] = 1.0
    return ps


def compared_sequences(sequences: int, states: int) -> Indices:
    """The sequences that are compared with each other: all, or as many as fit, evenly spaced."""
    most = max(2, TOGETHER_COLUMNS // (states * (states - 1)))
    return np.arange(sequences) if sequences <= most else np.linspace(0, sequences - 1, most).astype(np.intp)
