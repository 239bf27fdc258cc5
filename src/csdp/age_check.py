"""The check of a certificate at the plan's own ages, against k-step transitions of a public past."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from csdp.arrays import Floats, freeze
from csdp.bounds.observed import observed_leakage
from csdp.bounds.result import as_text
from csdp.chain import EnvironmentChain, Evidence, Model, Verdict
from csdp.chain.evidence import Counts, count_lag
from csdp.query_table import FoldTable

#: Chance that a right model is rejected, over all sequences and ages of a plan.
LEVEL: Final = 0.001
#: Ticks that are simulated of a model to learn what it expects of its own k-step transitions, and readings at most.
_SIMULATED, _MOST_READINGS = 20_000, 20_000_000


def compare_with_past(
    evidence: Evidence,
    model: Model,
    query: FoldTable,
    *,
    ages: tuple[int, ...],
    epsilon_c: float,
    certified: float,
) -> Verdict:
    """Compare the lag-k transitions of a public past with what is certified for one release, k its ages.

    Every sequence counts, with a lower confidence limit of what the data show; all limits hold together but for a
    chance of 0.001. A sequence alone may show more than the certificate, which is given the others and the environment:
    what they explain is allowed, as much as the model expects of its own transitions.

    Args:
        evidence: what the public past showed, by lag.
        model: the model.
        query: adds up contributions of states.
        ages: one for each sequence.
        epsilon_c: noise level.
        certified: leakage of the present by one release, as certified.
    """
    lagged = [(row, i) for row, i in enumerate(evidence.sequences) if ages[i] > 0]
    oldest = max(ages)
    if oldest > evidence.lags:
        reason = f"its public past was counted to lag {evidence.lags}, and the plan has age {oldest}"
        return Verdict("untested", f"{reason}; use a longer past or a smaller age")
    exponent = epsilon_c / query.undivided_sensitivity(1)
    distinct = sorted({ages[i] for _, i in lagged})
    for age in distinct:
        rows = [row for row, i in lagged if ages[i] == age]
        members = [evidence.sequences[row] for row in rows]
        parts = np.asarray(query.own[members])
        counts = evidence.counts[age - 1, rows]
        shown = observed_leakage(counts, parts, exponent, lag=age, level=LEVEL / len(distinct))
        allowed = np.maximum(certified, _expected(model, members, parts, exponent, age))
        worst = int(np.argmax(shown - allowed))
        if shown[worst] > allowed[worst]:
            beyond = int((shown > allowed).sum())
            reason = (
                f"at age {age} the public past of {model.names[members[worst]]} reveals at least "
                f"{as_text(float(shown[worst]))} by one release, above the certified {as_text(certified)} "
                f"({beyond} of {len(members)} sequences)"
            )
            return Verdict("rejected", reason)
    return evidence.verdict


def _expected(model: Model, members: list[int], parts: Floats, exponent: float, age: int) -> Floats:
    """What the model expects of its own transitions; of independent sequences nothing beyond the certificate."""
    if not isinstance(model, EnvironmentChain) and all(len(group) == 1 for group in model.components()):
        return np.zeros(len(members))
    return observed_leakage(_simulated_counts(model, age)[members], parts, exponent, lag=age, level=None)


@lru_cache(maxsize=64)
def _simulated_counts(model: Model, age: int) -> Counts:
    """The transitions of a simulation over one lag; kept, because a search asks for many noise levels."""
    ticks = max(20 * age, min(_SIMULATED, _MOST_READINGS // model.sequences))
    return freeze(count_lag(model.simulate(ticks, seed=0), model.states, age))
