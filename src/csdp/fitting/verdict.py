"""What the checks of a fit mean, in words, and what to do next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from csdp.arrays import Floats
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.fitting.methods import JOINT_STATES
from csdp.fitting.sample import Chain
from csdp.fitting.scores import members_of

if TYPE_CHECKING:
    from csdp.fitting.quality import FitCheck

#: Standard errors by which a gain must differ from zero before it is called one.
SURE = 3.0
#: Sum of influences on others above which a sequence is called a hub.
HUB = 1.0


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
    failures = _explain_failures(chain, checks)
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


def _explain_failures(chain: Chain, checks: FitChecks) -> list[str]:
    """One sentence for each test of the chain that failed, with what to do."""
    order, homogeneity, together = checks.order, checks.homogeneity, checks.together
    sentences = []
    if not order.passed:
        sentences.append(
            f"The present alone does not tell the future: the state before it says more ({_place(order)}). A "
            f"first-order chain is not enough: use a longer step, finer states, {_environment_advice(chain)}."
        )
    if not homogeneity.passed:
        sentences.append(
            f"The second half moves differently from the first ({_place(homogeneity)}). Fit on a shorter, recent "
            f"stretch, {_environment_advice(chain)}."
        )
    if together is not None and not together.passed:
        sentences.append(
            f"Sequences move together within a step ({_chance(together.p)}; {' and '.join(together.where)}), which "
            f"{_together_advice(chain)}, and compare the leakage."
        )
    return sentences


def _environment_advice(chain: Chain) -> str:
    if isinstance(chain, EnvironmentChain) and chain.kind == "hidden":
        return "or with more environments (environments=)"
    return "or with environment='hidden' if such times come and go"


def _together_advice(chain: Chain) -> str:
    if isinstance(chain, EnvironmentChain):
        more = "more environments (environments=)" if chain.kind == "hidden" else "environment='hidden'"
        return f"these environments do not explain: use {more}"
    joint = "or method='joint'"
    if chain.size > JOINT_STATES:
        joint = f"or method='joint' for fewer sequences or states (at most {JOINT_STATES:,} joint states)"
    return (
        "a coupled chain cannot express: use environment='hidden', environment='clock' or a public series if one "
        f"drives them, {joint}"
    )


def _explain_emission(check: FitCheck, finer: tuple[int, bool] | None) -> str:
    told = (
        f"The reading inside a state tells more of the states before and after it ({_place(check)}), so certificates "
        "for these states do not hold where readings are published: "
    )
    if finer is None:
        return told + "use a longer step, or rely on the plain and group level alone."
    use = f"states={finer[0]} (Discretiser.fit(readings, states={finer[0]}) and fit(..., kernel='ordinal'))"
    if finer[1]:
        return told + f"use finer states; {use} would do."
    return told + f"even {use} are too few by this test; use a longer step as well, or the plain and group level alone."


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
