"""The one calibrator: the noise level that meets a target, for any certificate or error that is monotone in it.

Secant steps on logarithms, in which leakage and error are nearly straight lines, between a level that fits and one that
does not, with bisection if the curve jumps. The level that is returned was evaluated as it is and is on the safe side.
The idea is that of `calibrate_dp_mechanism` of dp_accounting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

#: Default of the plain epsilon-DP that one record may be exposed to: old records must not be published almost without
#: noise only because their age alone certifies the present.
EVENT_LIMIT: Final = 10.0
#: Smallest epsilon_c that is tried.
SMALLEST_LEVEL: Final = 1e-6
#: Share of the target by which a result may stay below it: for one release, which is quickly computed; for many, whose
#: evaluation follows a history to its limit; and for an error.
EXACT, CLOSE, ERROR_TOLERANCE = 1e-11, 1e-3, 1e-12
#: A slope (percent of the value for a percent of the level) that is as good as flat.
_FLAT = 0.05
#: Factor by which to go down while no level has kept the target.
_FALL = 30.0
#: Evaluations after which every third one bisects (secants keep missing a jump), and evaluations at most.
_PATIENCE, _EVALUATIONS = 6, 100


def largest_level(
    certificate: Callable[[float], float],
    budget: float,
    limit: float,
    *,
    start: float | None = None,
    least: float = SMALLEST_LEVEL,
    tolerance: float = EXACT,
) -> float | None:
    """The largest level up to `limit` whose certificate keeps the budget; None if even the least level passes it.

    Formal guarantee: the certificate was evaluated at the level that is returned, and was at most the budget.

    Args:
        certificate: grows with the level; may be infinite.
        budget: what it may reach.
        limit: the largest level.
        start: a level near the result, if one is known; by default the limit.
        least: the smallest level that is tried.
        tolerance: the share of the budget by which the certificate may stay below it.

    >>> level = largest_level(math.expm1, 1.0, 10.0)
    >>> math.expm1(level) <= 1.0, round(level, 9)
    (True, 0.693147181)
    """
    level = limit if start is None else min(max(start, least), limit)
    fits = 0.0
    passes = math.inf
    known: list[tuple[float, float]] = []
    for n in range(_EVALUATIONS):
        value = certificate(level)
        if not value <= budget:
            passes = level
        elif level >= limit or value >= (1 - tolerance) * budget:
            return level
        else:
            fits = level
        if passes <= max(least, fits * (1 + tolerance / 10)):
            break
        if 0 < value < math.inf:
            known.append((level, value))
        trial = None if n > _PATIENCE and n % 3 == 0 else _secant(known, budget * (1 - tolerance / 2))
        if trial is None or not fits < trial < passes:
            trial = math.sqrt(fits * passes) if fits and passes < math.inf else passes / _FALL
        level = min(limit, max(least, trial))
    return fits or None


def least_level(error: Callable[[float], float], target: float, limit: float) -> float | None:
    """The smallest epsilon_c up to `limit` whose error meets the target; None if even the limit misses it.

    >>> round(least_level(lambda level: 0.1 + level**-2, 0.35, 10.0), 9)
    2.0
    """

    def level(noise: float) -> float:
        return min(limit, max(SMALLEST_LEVEL, 1.0 / noise))

    noise = largest_level(
        lambda noise: error(level(noise)),
        target,
        1.0 / SMALLEST_LEVEL,
        start=1.0 / limit,
        least=1.0 / limit,
        tolerance=ERROR_TOLERANCE,
    )
    return None if noise is None else level(noise)


def _secant(known: list[tuple[float, float]], aim: float) -> float | None:
    """The level at which the line through the two points nearest to the aim meets it; None if the line is flat."""
    nearest = sorted(known, key=lambda point: abs(math.log(point[1] / aim)))[:2]
    if not nearest:
        return None
    level, value = nearest[0]
    slope = 1.0 if len(nearest) == 1 else math.log(value / nearest[1][1]) / math.log(level / nearest[1][0])
    return None if slope < _FLAT else level * math.exp(math.log(aim / value) / slope)
