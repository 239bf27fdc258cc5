"""The noise level that just meets a target at fixed ages: error falls and leakage grows with epsilon_c.

What is returned was evaluated as it is and is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Plain epsilon-DP that one record may be exposed to where nothing else is said: old records must not be published
#: almost without noise only because freshness alone certifies the present.
EVENT_LIMIT = 10.0
#: Least noise level that is tried.
SMALLEST_LEVEL = 1e-6
#: How far below a budget the leakage may stay: of one release, which is quickly computed, and of many, each of whose
#: evaluations follows a history to its limit.
EXACT, CLOSE = 1e-11, 1e-3
#: A slope (percent of leakage for a percent of level) that is as good as flat.
_FLAT = 0.05
#: How far to go down where nothing fits so far and nothing tells where it would.
_FALL = 30.0
#: Evaluations after which every third halves what is left: where leakage jumps, lines keep missing.
_PATIENCE, _EVALUATIONS = 6, 100


def least_level(error: Callable[[float], float], target: float, limit: float) -> float | None:
    """The smallest epsilon_c with error <= target; None where even the largest allowed one misses it."""
    if error(limit) > target:
        return None
    if error(SMALLEST_LEVEL) <= target:
        return SMALLEST_LEVEL
    from scipy.optimize import brentq

    # The noise variance, 1 / epsilon_c^2, is what the error is nearly linear in.
    root = brentq(lambda v: error(v**-0.5) - target, limit**-2, SMALLEST_LEVEL**-2, rtol=1e-14)
    level, back = float(root**-0.5), 1e-13
    while error(level) > target:  # to the safe side
        level, back = min(limit, level * (1 + back)), back * 4
    return level


def largest_level(
    leakage: Callable[[float], float],
    budget: float,
    limit: float,
    *,
    start: float | None = None,
    tolerance: float = EXACT,
) -> float | None:
    """The largest epsilon_c with leakage <= budget, to a share `tolerance` of the budget; None where even the least
    level passes it.

    Secant steps on logarithms, in which leakage is nearly a straight line, from `start` (the limit), between a level
    that fits and one that does not.

    >>> from math import expm1
    >>> level = largest_level(expm1, 1.0, 10.0)
    >>> expm1(level) <= 1.0, round(level, 9)
    (True, 0.693147181)
    """
    level, fits, passes = limit if start is None else min(start, limit), 0.0, math.inf
    known: list[tuple[float, float]] = []
    for n in range(_EVALUATIONS):
        told = leakage(level)
        if told > budget:
            passes = level
        elif level >= limit or told >= (1 - tolerance) * budget:
            return level
        else:
            fits = level
        if passes <= max(SMALLEST_LEVEL, fits * (1 + tolerance / 10)):
            break
        if 0 < told < math.inf:
            known.append((level, told))
        found = None if n > _PATIENCE and n % 3 == 0 else _secant(known, budget * (1 - tolerance / 2))
        if found is None or not fits < found < passes:
            found = math.sqrt(fits * passes) if fits and passes < math.inf else passes / _FALL
        level = min(limit, max(SMALLEST_LEVEL, found))
    return fits or None


def _secant(known: list[tuple[float, float]], aim: float) -> float | None:
    """Where the line through the two points that are nearest to the aim meets it; None where that says nothing."""
    nearest = sorted(known, key=lambda point: abs(math.log(point[1] / aim)))[:2]
    if not nearest:
        return None
    level, told = nearest[0]
    slope = 1.0 if len(nearest) == 1 else math.log(told / nearest[1][1]) / math.log(level / nearest[1][0])
    return None if slope < _FLAT else level * math.exp(math.log(aim / told) / slope)
