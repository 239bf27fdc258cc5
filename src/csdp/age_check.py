"""The check of a certificate at the plan's own ages, against k-step transitions of a public past.

The lag-k frequencies of a sequence are its law k ticks ago given its present state. One release of a query that adds up
contributions reveals at least what they say about its own contribution, at an output far from all answers. If even the
lower confidence limit of that is above the certificate, the model is wrong.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.bounds.result import as_text
from csdp.chain import EnvironmentChain, Evidence, Model, Verdict
from csdp.chain.evidence import Counts, count_lag
from csdp.numbers import Floats, freeze
from csdp.query_table import FoldTable

#: Chance that a right model is rejected, over all sequences and ages of a plan.
LEVEL: Final = 0.001
#: Ticks that are simulated of a model to learn what it expects of its own k-step transitions, and readings at most.
_SIMULATED, _MOST_READINGS = 20_000, 20_000_000

#: Outputs whose signs are all tried; beyond, one output at a time against the rest.
_SIGNED = 6
#: Effective ticks that a present state needs before its frequencies count.
LEAST_TICKS = 20.0


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
    return freeze(count_lag(_simulated(model, ticks), model.states, age))


@lru_cache(maxsize=4)
def _simulated(model: Model, ticks: int) -> npt.NDArray[Any]:
    """One simulation for all ages, mostly of the same length."""
    return freeze(model.simulate(ticks, seed=0))


def observed_leakage(
    counts: npt.NDArray[Any], contributions: Floats, exponent: float, *, lag: int, level: float | None
) -> Floats:
    """Lower confidence limits (n,) of what one release reveals about the present state of each of n sequences.

    Args:
        counts: (n, m, m): ticks in state a with state c `lag` ticks before.
        contributions: (n, m, d): what each state adds to the answer.
        exponent: epsilon_c / Delta_f, for the same unit as the contributions.
        lag: pairs that overlap are dependent, so that `lag` of them count as one.
        level: chance that any of the limits of one call is above the truth; None gives the estimates themselves.

    >>> counts = np.array([[[9500, 500], [500, 9500]]])
    >>> observed_leakage(counts, np.array([[[0.0], [1.0]]]), 1.0, lag=1, level=0.001).round(3).tolist()
    [0.867]
    """
    counts = np.asarray(counts, dtype=np.float64) / lag
    n, m = counts.shape[:2]
    totals = counts.sum(axis=2)
    known = totals >= LEAST_TICKS
    directions = _directions(contributions.shape[2])
    # Each limit is of one threshold set of one row in one direction, from below or from above.
    single = None if level is None else level / (2 * n * m * (m - 1) * len(directions))
    best = np.zeros(n)
    for signs in directions:
        heights = exponent * (contributions @ signs)
        order = np.argsort(-heights, axis=1, kind="stable")
        ranked = np.take_along_axis(heights, order, axis=1)
        hits = np.cumsum(np.take_along_axis(counts, order[:, None, :], axis=2), axis=2)[:, :, :-1]
        low, high = _clopper_pearson(hits, totals[:, :, None], single)
        # E g = g of the lowest state + a sum over threshold sets of (rise of g) x (chance of the set).
        scale = ranked[:, :1]
        weight = np.exp(ranked - scale)
        rises = (weight[:, :-1] - weight[:, 1:])[:, None, :]
        least = weight[:, -1:] + (rises * low).sum(axis=2)
        most = weight[:, -1:] + (rises * high).sum(axis=2)
        least = np.where(known, least, 0.0).max(axis=1)
        most = np.where(known, most, np.inf).min(axis=1)
        with np.errstate(divide="ignore"):
            best = np.maximum(best, np.where(np.isfinite(most), np.log(least) - np.log(most), 0.0))
    return best


def _directions(outputs: int) -> list[Floats]:
    """Signs of the outputs: every combination of few, or each output against the rest."""
    if outputs <= _SIGNED:
        return [np.array(signs) for signs in itertools.product((-1.0, 1.0), repeat=outputs)]
    eye = 2.0 * np.eye(outputs) - 1.0
    return [*eye, *(-eye)]


def _clopper_pearson(hits: Floats, total: Floats, tail: float | None) -> tuple[Floats, Floats]:
    """Lower and upper confidence limits of a chance, each wrong with probability `tail`; twice the share without."""
    from scipy.special import betaincinv

    if tail is None:
        share = hits / np.maximum(total, 1e-12)
        return share, share
    missed = np.maximum(total - hits, 0.0)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-12), missed + 1.0, tail), 0.0)
    high = np.where(missed > 0, betaincinv(hits + 1.0, np.maximum(missed, 1e-12), 1.0 - tail), 1.0)
    return low, high
