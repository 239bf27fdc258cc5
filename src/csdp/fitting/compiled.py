"""The loops of fitting that numba compiles; import it in functions, since numba takes a moment to load."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_jit = njit(cache=True, nogil=True)


@_jit
def _ones(word: Any) -> Any:
    """Number of ones in a 64-bit word (Warren, Hacker's Delight, 5-1); LLVM turns it into one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@_jit
def _ones_of_both(left: Any, right: Any) -> Any:
    """Number of ticks at which both of two planes have a bit."""
    total = np.uint64(0)
    for w in range(left.size):
        total += _ones(left[w] & right[w])
    return total


@_jit
def pair_counts(present: Any, following: Any, targets: Any, sources: Any, out: Any) -> None:
    """out[e, a, b] = ticks at which source e is in a and target e next in b; planes (sequence, state, words)."""
    states = present.shape[1]
    for e in range(targets.size):
        for a in range(states):
            left = present[sources[e], a]
            for b in range(states):
                out[e, a, b] = _ones_of_both(left, following[targets[e], b])


@_jit
def information(present: Any, following: Any, targets: Any, logs: Any, out: Any) -> None:
    """out[i, k] = lag-1 mutual information of source k and target i in nats; logs[n] = n ln n."""
    sequences, states = present.shape[:2]
    counts = np.empty((states, states), np.int64)
    for i in range(targets.size):
        for k in range(sequences):
            for a in range(states):
                left = present[k, a]
                for b in range(states):
                    counts[a, b] = _ones_of_both(left, following[targets[i], b])
            whole, value = 0, 0.0
            for a in range(states):
                row, column = 0, 0
                for b in range(states):
                    row += counts[a, b]
                    column += counts[b, a]
                    value += logs[counts[a, b]]
                value -= logs[row] + logs[column]
                whole += row
            out[i, k] = (value + logs[whole]) / whole if whole else 0.0


@_jit
def _expect(rows: Any, following: Any, weights: Any, pseudo: float, share: Any, moves: Any, expected: Any) -> float:
    """Fill `expected` with the transitions assigned to each source; return the objective."""
    n, d = rows.shape
    m = moves.shape[1]
    mix = np.empty((d, m, m))
    part = np.empty(d)
    objective = 0.0
    for k in range(d):
        for a in range(m):
            for b in range(m):
                mix[k, a, b] = share[k] * moves[k, a, b]
                expected[k, a, b] = pseudo
                objective += pseudo * np.log(mix[k, a, b])
    for t in range(n):
        b = following[t]
        total = 0.0
        for k in range(d):
            part[k] = mix[k, rows[t, k], b]
            total += part[k]
        objective += weights[t] * np.log(total)
        scale = weights[t] / total
        for k in range(d):
            expected[k, rows[t, k], b] += part[k] * scale
    return objective


@_jit
def _maximise(expected: Any, share: Any, moves: Any) -> None:
    """The shares and moves that the expected transitions give; a row without any stays as it is."""
    d, m = moves.shape[0], moves.shape[1]
    mass = expected.sum()
    for k in range(d):
        mine = 0.0
        for a in range(m):
            row = 0.0
            for b in range(m):
                row += expected[k, a, b]
            mine += row
            if row > 0.0:
                for b in range(m):
                    moves[k, a, b] = expected[k, a, b] / row
        share[k] = mine / mass


@_jit
def _leap(first: Any, second: Any, third: Any, length: float, out: Any) -> bool:
    """Extrapolate three points of EM into `out`; False if that would leave the positive numbers."""
    for i in range(first.size):
        step = second[i] - first[i]
        bend = third[i] - second[i] - step
        out[i] = first[i] + 2.0 * length * step + length * length * bend
        if out[i] <= 0.0 and (third[i] > 0.0 or out[i] < 0.0):
            return False
    return True


@_jit
def _stride(first: Any, second: Any, third: Any) -> float:
    """How far to extrapolate: the ratio of the step to its change; 1 is the point that EM itself has reached."""
    step, bend = 0.0, 0.0
    for i in range(first.size):
        step += (second[i] - first[i]) ** 2
        bend += (third[i] - 2.0 * second[i] + first[i]) ** 2
    return min(max(1.0, np.sqrt(step / bend)), 1e4) if bend > 0.0 else 1.0


@_jit
def _scale(share: Any, moves: Any) -> None:
    """Make sums 1 again: a long leap multiplies what rounding has left of them."""
    d, m = moves.shape[0], moves.shape[1]
    whole = share.sum()
    for k in range(d):
        share[k] /= whole
        for a in range(m):
            row = moves[k, a].sum()
            for b in range(m):
                moves[k, a, b] /= row


@_jit
def expectation_maximisation(
    rows: Any,
    following: Any,
    weights: Any,
    pseudo: float,
    point: Any,
    expected: Any,
    limit: int,
    gain: float,
) -> Any:
    """EM for one target; the source that was followed at each transition is hidden.

    rows (n, d): present states of those it may follow; following (n,): its next state; weights (n,): how often.
    point (d + d m m,): shares and moves, the start, which becomes the estimate; expected (d, m, m): the transitions
    that it assigns to each matrix, smoothing included. Every cell of every matrix gets `pseudo` transitions. Every two
    steps are followed by a leap along their curve (Varadhan and Roland 2008), which is taken back if the objective does
    not rise. Stops when a step gains less than `gain`.
    Returns (objective after each accepted iteration, whether it stopped by itself).
    """
    d, m = expected.shape[0], expected.shape[1]
    share, moves = point[:d], point[d:].reshape(d, m, m)
    first, second, third, trial = point.copy(), point.copy(), point.copy(), point.copy()
    path = np.empty(limit + 1)
    kept, phase, leapt = 0, 0, False
    for iteration in range(limit + 1):
        objective = _expect(rows, following, weights, pseudo, share, moves, expected)
        if leapt and not objective >= path[kept - 1]:
            point[:] = second if iteration == limit else third
            leapt, phase = False, 0
            continue
        path[kept] = objective
        kept += 1
        if not leapt and kept > 1 and objective - path[kept - 2] <= gain:
            return path[:kept], True
        if iteration == limit:
            break
        leapt = False
        if phase == 0:
            first[:] = point
            phase = 1
            _maximise(expected, share, moves)
            continue
        second[:] = point
        phase = 0
        _maximise(expected, share, moves)
        third[:] = point
        length = _stride(first, second, third)
        while length > 1.01 and not leapt:
            leapt = _leap(first, second, third, length, trial)
            length = 0.5 * (length + 1.0)
        if leapt:
            point[:] = trial
            _scale(share, moves)
    return path[:kept], False


# ---- environments; `mix[k, a, b, e]`: coupling of edge k under environment e times its transition from a to b


@_jit
def _chances(states: Any, step: int, target: int, indptr: Any, sources: Any, mix: Any, chances: Any) -> bool:
    """Fill `chances` with the probability of a target's move under each environment; False if one is missing."""
    b = states[step + 1, target]
    if b < 0:
        return False
    chances[:] = 0.0
    for k in range(indptr[target], indptr[target + 1]):
        a = states[step, sources[k]]
        if a < 0:
            return False
        for e in range(chances.size):
            chances[e] += mix[k, a, b, e]
    return True


@_jit
def score_steps(states: Any, indptr: Any, sources: Any, mix: Any, first: int, last: int, out: Any) -> None:
    """Add to out[t, e] the log-probability of step t of the targets from `first` to `last` under environment e."""
    count = mix.shape[3]
    chances, product = np.empty(count), np.empty(count)
    for t in range(out.shape[0]):
        product[:] = 1.0
        for j in range(first, last):
            k, b = indptr[j], states[t + 1, j]
            if indptr[j + 1] - k == 1:  # one edge: its own numbers, without a sum
                a = states[t, sources[k]]
                if a < 0 or b < 0:
                    continue
                for e in range(count):
                    chances[e] = mix[k, a, b, e]
            elif not _chances(states, t, j, indptr, sources, mix, chances):
                continue
            for e in range(count):
                product[e] *= chances[e]
                if product[e] < 1e-200:  # a logarithm now and then, not for every sequence
                    out[t, e] += np.log(product[e])
                    product[e] = 1.0
        for e in range(count):
            out[t, e] += np.log(product[e])


@_jit
def assign_steps(
    states: Any, indptr: Any, sources: Any, mix: Any, weights: Any, first: int, last: int, expected: Any
) -> None:
    """Add to expected[k, a, b, e] the transitions of each edge and environment; weights (steps, environments)."""
    count = mix.shape[3]
    chances = np.empty(count)
    for t in range(weights.shape[0]):
        for j in range(first, last):
            k, b = indptr[j], states[t + 1, j]
            if indptr[j + 1] - k == 1:  # one edge: it gets all transitions of its target
                a = states[t, sources[k]]
                if a >= 0 and b >= 0:
                    for e in range(count):
                        if mix[k, a, b, e] > 0.0:
                            expected[k, a, b, e] += weights[t, e]
                continue
            if not _chances(states, t, j, indptr, sources, mix, chances):
                continue
            for k in range(indptr[j], indptr[j + 1]):
                a = states[t, sources[k]]
                for e in range(count):
                    if chances[e] > 0.0:
                        expected[k, a, b, e] += weights[t, e] * mix[k, a, b, e] / chances[e]


@_jit
def filter_steps(scores: Any, start: Any, switching: Any, forward: Any, gains: Any) -> None:
    """forward[t] = Pr(environment | steps up to t); gains[t] = ln Pr(step t | steps before)."""
    steps, count = scores.shape
    before = start.copy()
    for t in range(steps):
        top = scores[t].max()
        total = 0.0
        for e in range(count):
            forward[t, e] = before[e] * np.exp(scores[t, e] - top)
            total += forward[t, e]
        for e in range(count):
            forward[t, e] /= total
        gains[t] = top + np.log(total)
        for f in range(count):
            before[f] = 0.0
            for e in range(count):
                before[f] += forward[t, e] * switching[e, f]


@_jit
def smooth_steps(scores: Any, forward: Any, switching: Any, posterior: Any, switches: Any) -> None:
    """posterior[t] = Pr(environment | all steps); switches[e, f] = expected number of switches from e to f."""
    steps, count = scores.shape
    later, weighted = np.ones(count), np.empty(count)
    posterior[steps - 1] = forward[steps - 1]
    for t in range(steps - 2, -1, -1):
        top = scores[t + 1].max()
        for f in range(count):
            weighted[f] = later[f] * np.exp(scores[t + 1, f] - top)
        total = 0.0
        for e in range(count):
            later[e] = 0.0
            for f in range(count):
                later[e] += switching[e, f] * weighted[f]
            total += forward[t, e] * later[e]
        for e in range(count):
            posterior[t, e] = forward[t, e] * later[e] / total
            for f in range(count):
                switches[e, f] += forward[t, e] * switching[e, f] * weighted[f] / total
        later /= later.max()
