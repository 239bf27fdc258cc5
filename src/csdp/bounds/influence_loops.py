"""The loops of `influence` that numba compiles; import it where it is used, since numba takes a moment to load.

Edges come sorted by source, so that every source sums its own terms: `starts[i]` to `starts[i + 1]` lead from the
present of sequence i to the previous states of `targets`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

_jit = njit(cache=True, nogil=True, error_model="numpy")  # a gain over 0 is infinite, and no error


@_jit
def _change_of_two_states(i: Any, starts: Any, targets: Any, gains: Any, ups: Any, floors: Any, out: Any) -> None:
    """out[i, a, a'] = sum over edges of ln(1 + gain / floor), for two states.

    `ups[e]`: the previous state that a change 0 -> 1 of the source makes likelier; `floors[k, c]` is
    1 / (e^b_k(1 - c, c) - 1) plus the least probability of c.
    """
    rise, fall = 0.0, 0.0
    for e in range(starts[i], starts[i + 1]):
        k, up = targets[e], ups[e]
        if gains[e] > 0.0:
            rise += np.log1p(gains[e] / floors[k, up])
            fall += np.log1p(gains[e] / floors[k, 1 - up])
    out[i, 0, 1], out[i, 1, 0] = rise, fall


@_jit
def advance_two_states(
    starts: Any, targets: Any, gains: Any, ups: Any, lows: Any, factors: Any, shrink: Any, steps: Any, state: Any
) -> Any:
    """Several steps of all sequences, at each of them the worst of some chains; what no longer moves is at rest.

    Chain n has its row of `starts`, `lows` and `factors`; the edges of all of them lie in one list. `shrink` rounds
    1 / (e^b - 1) down, `factors` round the sums up.
    """
    s = state.shape[0]
    floors, out, after = np.empty((s, 2)), np.zeros((s, 2, 2)), np.zeros((s, 2, 2))
    inverse = np.empty((s, 2))
    for _ in range(steps):
        for k in range(s):
            for c in range(2):
                ratio = state[k, 1 - c, c]
                inverse[k, c] = shrink / np.expm1(ratio) if ratio > 0.0 else np.inf
        after[:] = 0.0
        for n in range(starts.shape[0]):
            floors[:] = inverse + lows[n]
            for i in range(s):
                _change_of_two_states(i, starts[n], targets, gains, ups, floors, out)
                for c in range(2):
                    after[i, c, 1 - c] = max(after[i, c, 1 - c], out[i, c, 1 - c] * factors[n])
        if np.array_equal(after, state):
            break
        state = after.copy()
    return state


@njit(cache=True, nogil=True, error_model="numpy", parallel=True)
def step_two_states_on_all_cores(starts: Any, targets: Any, gains: Any, ups: Any, floors: Any, out: Any) -> None:
    """One step of all sequences, on all cores."""
    for i in prange(starts.size - 1):
        _change_of_two_states(i, starts, targets, gains, ups, floors, out)


@_jit
def step_all_sets(
    starts: Any,
    targets: Any,
    weights: Any,
    which: Any,
    sums: Any,
    never: Any,
    least: Any,
    lows: Any,
    levels: Any,
    slack: Any,
    unit: Any,
    out: Any,
) -> None:
    """out[i, a, a'], the largest over all sets of states of each target; for few states.

    `never[t, a, a', S]`: no state of S is likelier from a' than from a. `lows[k, S]`: the least probability of S over
    all snapshots, `levels[k]` = 1 / (e^(max b_k) - 1).
    """
    states, sets = sums.shape[1], sums.shape[2]
    for i in range(starts.size - 1):
        for e in range(starts[i], starts[i + 1]):
            k, t, weight = targets[e], which[e], weights[e]
            level = levels[k]
            for a in range(states):
                for b in range(states):
                    best = 0.0
                    for chosen in range(1, sets - 1):
                        if a == b or never[t, a, b, chosen]:
                            continue
                        delta = weight * (sums[t, b, chosen] - sums[t, a, chosen] + 16.0 * unit)
                        if delta <= 0.0:
                            continue
                        rest = max(lows[k, chosen] * (1.0 - slack) - weight * least[t, chosen], 0.0)
                        base = rest + weight * sums[t, a, chosen] * (1.0 - 16.0 * unit)
                        below = level + base
                        best = np.inf if below <= 0.0 else max(best, delta / below)
                    out[i, a, b] += np.log1p(best)


@_jit
def step_prefixes(
    starts: Any,
    targets: Any,
    weights: Any,
    which: Any,
    table: Any,
    least: Any,
    lows: Any,
    levels: Any,
    slack: Any,
    unit: Any,
    out: Any,
) -> None:
    """As `step_all_sets` with the sum of single bases, whose best set is a prefix of the states by delta / base."""
    states = table.shape[1]
    deltas, bases = np.empty(states), np.empty(states)
    for i in range(starts.size - 1):
        for e in range(starts[i], starts[i + 1]):
            k, t, weight = targets[e], which[e], weights[e]
            for a in range(states):
                for b in range(states):
                    if a == b:
                        continue
                    count = 0
                    for c in range(states):
                        delta = weight * (table[t, b, c] - table[t, a, c]) * (1.0 + 16.0 * unit)
                        if delta > 0.0:
                            rest = max(lows[k, c] * (1.0 - slack) - weight * least[t, c], 0.0)
                            deltas[count] = delta
                            bases[count] = (rest + weight * table[t, a, c]) * (1.0 - 16.0 * unit)
                            count += 1
                    ratios = np.empty(count)
                    for n in range(count):
                        ratios[n] = -np.inf if bases[n] <= 0.0 else -deltas[n] / bases[n]
                    best, over, under = 0.0, 0.0, levels[k]
                    for n in np.argsort(ratios):
                        over += deltas[n]
                        under += bases[n]
                        best = np.inf if under <= 0.0 else max(best, over / under)
                    out[i, a, b] += np.log1p(best)


@_jit
def step_limits(starts: Any, targets: Any, gains: Any, bases: Any, levels: Any, unit: Any, out: Any) -> None:
    """out[i, a, b], the largest over all sets of states of each target, from limits of single states.

    `gains[e, a, b, c]`: how much a change a -> b of the source raises the probability of c, at most; `bases[e, a, c]`:
    how probable c is, at least; `levels[k, S]` = 1 / (e^b - 1) with b the largest log ratio into the set S.
    """
    states, sets = gains.shape[1], levels.shape[1]
    for i in range(starts.size - 1):
        for e in range(starts[i], starts[i + 1]):
            for a in range(states):
                for b in range(states):
                    best = 0.0
                    for chosen in range(1, sets - 1):
                        if a == b:
                            continue
                        rise, rest, base, rises, falls = 0.0, 0.0, 0.0, False, False
                        for c in range(states):
                            if (chosen >> c) & 1:
                                rise += gains[e, a, b, c]
                                base += bases[e, a, c]
                                rises = rises or gains[e, a, b, c] > 0.0
                            else:
                                rest += gains[e, b, a, c]  # what the other states lose, the set gains
                                falls = falls or gains[e, b, a, c] > 0.0
                        if not (rises and falls):
                            continue
                        below = levels[targets[e], chosen] + base * (1.0 - 16.0 * unit)
                        delta = max(min(rise, rest), 0.0) + 16.0 * unit
                        best = np.inf if below <= 0.0 else max(best, delta / below)
                    out[i, a, b] += np.log1p(best)
