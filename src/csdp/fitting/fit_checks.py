"""The checks of a fit: tests on residuals, and what they mean in words, with what to do next.

If the chain is right, a residual r with variance v stays uncorrelated with anything known before. So `sum h r` has
mean zero and variance `sum h^2 v` for every h that looks only back: the square of their quotient is about chi-square
(martingale central limit theorem). Cells with variance below 5 are left out, as in the usual rule for such tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.fitting.environment_prediction import EnvironmentPrediction
from csdp.fitting.methods import JOINT_STATES
from csdp.fitting.sample import Chain, Prediction
from csdp.fitting.scores import members_of

#: Variance, or count, that a cell needs for the normal approximation.
LEAST_VARIANCE = LEAST_COUNT = 5.0
#: Columns of residuals (sequences, by present and by next state) that are compared with each other.
TOGETHER_COLUMNS = 2000
#: Residuals that are kept for it at most.
_TOGETHER_CELLS = 10_000_000
AnyPrediction = Prediction | EnvironmentPrediction
#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0
#: Sum of influences on others above which a sequence is called a hub.
HUB = 1.0


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


# ---- tests on residuals ----------------------------------------------------------------------------------------------


def chi_square_tail(statistic: Any, freedom: Any) -> Floats:
    """Chance that chi-square with `freedom` degrees of freedom is larger than `statistic`; 1 if `freedom` is 0."""
    from scipy.special import gammaincc

    some = np.asarray(freedom) > 0
    return np.where(some, gammaincc(np.where(some, freedom, 1) / 2.0, np.asarray(statistic) / 2.0), 1.0)


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


def worst_check(question: str, ps: Floats, names: tuple[str, ...], level: float) -> FitCheck:
    """Bonferroni: the smallest chance times the number of tests."""
    first = np.argsort(ps)[:3]
    where = tuple(names[i] for i in first if ps[i] * ps.size < level) or (names[int(first[0])],)
    return FitCheck(question, min(1.0, float(ps.min()) * ps.size), level, where, ps.size)


# ---- in words --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hub:
    """A sequence that the others seem to follow: `influence` is the sum of its influences on them."""

    name: str
    influence: float


@dataclass(frozen=True)
class FitChecks:
    """The tests of a fit; None where one does not apply."""

    order: FitCheck
    homogeneity: FitCheck
    together: FitCheck | None
    emission_states: FitCheck | None = None
    emission_readings: FitCheck | None = None


def find_hubs(chain: Chain) -> tuple[Hub, ...]:
    """Sequences whose influences on all others sum to more than 1, the largest first; in the worst environment.

    The influence of k on j is the coupling times the largest total variation between rows of the transition matrix:
    what the state of k can change of the law of j.

    >>> star = CoupledChain([[1, 0, 0], [0.8, 0.2, 0], [0.8, 0, 0.2]], [[0.9, 0.1], [0.1, 0.9]])
    >>> [(hub.name, round(hub.influence, 2)) for hub in find_hubs(star)]
    [('x1', 1.28)]
    """
    if isinstance(chain, JointChain):
        return ()
    most = np.max([influences_on_others(member) for member in members_of(chain)], axis=0)
    first = [int(k) for k in np.argsort(-most, kind="stable") if most[k] > HUB]
    return tuple(Hub(chain.names[k], float(most[k])) for k in first)


def influences_on_others(chain: CoupledChain) -> Floats:
    """For each sequence, the sum of its influences on the others (s,)."""
    table, which = chain.transition_table
    apart = np.array([0.5 * np.abs(rows[:, None] - rows[None]).sum(axis=2).max() for rows in table])
    others = chain.edge_sources != chain.edge_targets
    effect = chain.edge_weights[others] * apart[which[others]]
    return np.asarray(np.bincount(chain.edge_sources[others], effect, chain.sequences), dtype=np.float64)


def describe(
    chain: Chain,
    gain: float,
    error: float,
    *,
    useless: bool,
    checks: FitChecks,
    hubs: tuple[Hub, ...],
    finer: tuple[int, bool] | None,
) -> tuple[bool, str]:
    """Whether the chain explains the data, and the same in words with what to do next."""
    explains = math.isfinite(gain) and gain >= -SURE * error and not useless
    sentences = [_compare(chain, gain, error)]
    if useless:
        sentences.append("Knowing the present does not help: the law that knows no past does as well.")
    failures = [f"{found[0].upper()}{found[1:]}. {advice}." for found, advice in list_failures(chain, checks)]
    if checks.emission_states is not None and not checks.emission_states.passed:
        failures.append(_explain_emission(checks.emission_states, finer))
    if explains and not failures:
        sentences.append("No test speaks against it.")
    notes = _explain_readings(checks) + ([_explain_hubs(chain, hubs)] if hubs else [])
    return explains and not failures, " ".join([*sentences, *failures, *notes])


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
        "A coupled chain cannot express this: use environment='hidden', environment='clock' or a public series if one "
        f"drives them, {joint}"
    )


def _explain_emission(check: FitCheck, finer: tuple[int, bool] | None) -> str:
    finding = (
        f"The reading inside a state tells more of the states before and after it ({_place(check)}), so certificates "
        "for these states do not hold where readings are published: "
    )
    if finer is None:
        return finding + "use a longer step, or rely on the plain and group level alone."
    use = f"states={finer[0]} (Discretiser.fit(readings, states={finer[0]}) and fit(..., kernel='ordinal'))"
    if finer[1]:
        return finding + f"use finer states; {use} would do."
    return (
        finding + f"even {use} are too few by this test; use a longer step as well, or the plain and group level alone."
    )


def _explain_readings(checks: FitChecks) -> list[str]:
    states, readings = checks.emission_states, checks.emission_readings
    if states is None or readings is None or readings.passed or not states.passed:
        return []
    return [
        f"Given the states, a reading tells of the readings before and after it ({_place(readings)}): certificates of "
        "the present state stand, but not for the present reading. Use finer states for that."
    ]


def _explain_hubs(chain: Chain, hubs: tuple[Hub, ...]) -> str:
    named = ", ".join(f"{hub.name} ({hub.influence:.2f})" for hub in hubs[:3])
    rest = f" and {len(hubs) - 3} more" if len(hubs) > 3 else ""
    advice = "compare environment='hidden', or a public series that drives them"
    if isinstance(chain, EnvironmentChain):
        advice = "compare more environments, or neighbours=0"
    return (
        f"Others seem to follow {named}{rest}: influences that sum to more than {HUB:g} are usually a common driver in "
        f"disguise; {advice}."
    )


def _place(check: FitCheck) -> str:
    return f"{_chance(check.p)}; {', '.join(check.where)}"


def _chance(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.1e}"
