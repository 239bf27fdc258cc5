"""csdp.fit_quality: does a chain explain the readings, and what does it leave unexplained?"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, JointChain
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.fit import fit, show_progress
from csdp.fitting.methods import JOINT_STATES
from csdp.fitting.quality import FitCheck, compared_sequences, homogeneity_p, order_p, together_ps
from csdp.fitting.sample import Prediction, Progress, Sample, check_chain, match_chain, own_law, read_sample, still_law

if TYPE_CHECKING:
    from rich.console import Group

Floats = npt.NDArray[np.float64]

#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0


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
    for each sequence, and of the law that knows no past. `gain` is that of the chain over independent chains, per
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

        shown = Table("sequence", "coupled", "independent", "no past")
        for row in self.table[:30]:
            shown.add_row(row.name, f"{row.chain:.4f}", f"{row.independent:.4f}", f"{row.stationary:.4f}")
        return Group(shown, self.verdict)


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

    The answer tells about the data: it warns unless they are declared public.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    >>> states = chain.simulate(4000, seed=1)
    >>> found = fit_quality(fit(states, public=True, ensemble=0), states, public=True)
    >>> found.explains, found.chain > found.independent > found.stationary
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
    with show_progress(progress) as tell:
        scored, past, future, refitted = _split(chain, readings, train, held_out, tell)
        rows, gain, error = _scores(scored, past, future, tell)
        checks, ps = _run_checks(chain, readings, level, tell)
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
    chain: CoupledChain | JointChain, readings: Sample, train: Any, held_out: float, tell: Progress
) -> tuple[CoupledChain | JointChain, Sample, Sample, bool]:
    """The chain that is scored, the readings its rivals are fitted on, those it is scored on, and whether it is new."""
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
            progress=tell,
        )
    return again, past.in_direction(chain.direction), future, True


def _scores(
    chain: CoupledChain | JointChain, past: Sample, future: Sample, tell: Progress
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
        tell("scoring", j + 1, chain.sequences)
    if isinstance(chain, JointChain):
        gains += prediction.joint_scores()
    if not any(row[1] for row in rows):
        raise InputError("data: no held-out transition was read at both ends; fill the gaps")
    return rows, float(gains.mean()), _batch_error(gains)


def _batch_error(series: Floats) -> float:
    """Standard error of a mean of dependent numbers, from the means of about n^(1/2) batches."""
    batches = max(2, math.isqrt(series.size))
    length = series.size // batches
    if length < 1 or not np.isfinite(series).all():
        return math.inf
    means = series[: batches * length].reshape(batches, length).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(batches))


def _run_checks(
    chain: CoupledChain | JointChain, readings: Sample, level: float, tell: Progress
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
        tell("testing", j + 1, s)
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
    told = f"({gain:.4f} nats per tick, standard error {error:.4f})"
    explains = math.isfinite(gain) and gain >= -SURE * error and not useless
    if chain.sequences == 1:
        said = ["There is one sequence, so there is nothing that a coupling could explain."]
    elif not math.isfinite(gain):
        said = [f"The {kind} does NOT explain these data: it calls impossible what they show. Fit with smoothing."]
    elif gain > SURE * error:
        said = [f"The {kind} explains these data better than independent chains {told}."]
    elif gain < -SURE * error:
        said = [f"The {kind} does NOT explain these data: independent chains do better {told}."]
    else:
        said = [f"The {kind} explains these data no better than independent chains {told}."]
    if useless:
        said.append("Knowing the present does not help: the law that knows no past does as well.")
    failures = _failures(chain, checks)
    if explains and not failures:
        said.append("No test speaks against it.")
    return explains and not failures, " ".join([*said, *failures])


def _failures(chain: CoupledChain | JointChain, checks: tuple[Any, ...]) -> list[str]:
    """What the tests found, each with what to do."""
    order, homogeneity, together = checks
    said = []
    if not order.passed:
        said.append(
            f"The present alone does not tell the future: the state before it says more ({_chance(order.p)}; "
            f"{', '.join(order.where)}). A first-order chain is not enough: use a longer step, or finer states."
        )
    if not homogeneity.passed:
        said.append(
            f"The second half moves differently from the first ({_chance(homogeneity.p)}; "
            f"{', '.join(homogeneity.where)}). Fit on a shorter, recent stretch, or apart for each regime."
        )
    if together is not None and not together.passed:
        advice = "use method='joint'"
        if chain.size > JOINT_STATES:
            advice = f"method='joint' can, for fewer sequences or states (at most {JOINT_STATES:,} joint states)"
        said.append(
            f"Sequences move together within a step ({_chance(together.p)}; {' and '.join(together.where)}), which a "
            f"coupled chain cannot express: {advice}, and compare the leakage."
        )
    return said


def _chance(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.1e}"
