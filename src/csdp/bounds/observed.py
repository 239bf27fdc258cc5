"""What public readings show of a leakage, without any model: the check of a certificate at its own age.

The lag-k frequencies of a sequence are its law k ticks ago given its present state. One release of a query that adds up
contributions reveals at least what they say about its own contribution, at an output far from all answers. If even the
lower confidence limit of that is above the certificate, the model is wrong.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats

#: Outputs whose signs are all tried; beyond, one output at a time against the rest.
_SIGNED = 6
#: Effective ticks that a present state needs before its frequencies count.
LEAST_TICKS = 20.0


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
