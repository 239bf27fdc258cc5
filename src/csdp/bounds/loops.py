"""The loops of `influence` and of the metric programme that numba compiles; import it late, since it loads slowly.

Influence: edges come sorted by source, so that every source sums its own terms: `starts[i]` to `starts[i + 1]` lead
from the present of sequence i to the previous states of `targets`.

Own lag blocks: `csdp.bounds.blocks` says what they are.

Metric: the dual programme of a pair of laws is `min theta` subject to `theta q(w) + outflow(w) - gained inflow(w) >=
target(w)`, flows >= 0. It has few rows and columns of two entries, so a simplex method with a dense inverse of the
basis is quick. Column w n + v of n snapshots is the flow from w to v, w n + w the surplus of row w, n n is theta; the
row of theta in the inverse is the likelihood g of the primal programme. No certificate rests on the search: `_rebuild`
turns any flows into a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_jit = njit(cache=True, nogil=True, error_model="numpy")  # a gain over 0 is infinite, and no error
_quick = njit(cache=True, nogil=True, error_model="numpy", fastmath=True)  # only for a search that decides what to try

#: Pivots for every row after which a search is given up: from no flow, and from the flows of the pair before.
_LONG, _SHORT = 50, 6
#: Entries of a pivot below this are taken for rounding.
_PIVOT = 1e-11
#: How near a bound must come to what a likelihood reaches; otherwise the search starts again.
_CLOSE = 1e-7
#: Share of the likeliest snapshot's probability below which a snapshot is so rare that rounding counts.
_RARE = 1e-3
#: What stands for "no limit" among ratios.
_NEVER = 1e300


# ---- influence -------------------------------------------------------------------------------------------------------


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
    """Several steps of all sequences, at each of them the worst of some chains; stops at a fixed point.

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
def step_limits(starts: Any, targets: Any, gains: Any, bases: Any, most: Any, levels: Any, unit: Any, out: Any) -> None:
    """out[i, a, b], the largest over all sets of states of each target, from limits of single states.

    `gains[e, a, b, c]`: how much a change a -> b of the source raises the probability of c, at most; `bases[e, a, c]`:
    how probable c is, at least; `most[e]`: how much any set gains; `levels[k, S]` = 1 / (e^b - 1) with b the largest
    log ratio into the set S.
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
                        delta = max(min(rise, rest, most[e]), 0.0) + 16.0 * unit
                        best = np.inf if below <= 0.0 else max(best, delta / below)
                    out[i, a, b] += np.log1p(best)


@_jit
def step_odds(starts: Any, targets: Any, odds: Any, tangents: Any, factor: Any, state: Any, out: Any) -> None:
    """out[i, a, b] = sum over edges of 4 artanh(tanh(odds / 4) tanh(max b_k / 4)), for all a and b apart.

    The terms of a source are added as tangents, tanh(x + y) = (tanh x + tanh y) / (1 + tanh x tanh y), with a logarithm
    where their sum comes near 1 only. `tangents` are tanh(odds / 4); next to 1, if odds and range are both large, a
    term is computed from these themselves.
    """
    s, m = state.shape[0], state.shape[1]
    ranges, their = np.empty(s), np.empty(s)
    for k in range(s):
        most = 0.0
        for a in range(m):
            for b in range(m):
                if state[k, a, b] > most or np.isnan(state[k, a, b]):
                    most = state[k, a, b]
        ranges[k], their[k] = most, np.tanh(most / 4.0)
    for i in range(s):
        total, above, below = 0.0, 0.0, 1.0  # the tangent is above / below
        for e in range(starts[i], starts[i + 1]):
            k = targets[e]
            if odds[e] > 4.0 and ranges[k] > 4.0:
                total += _far_odds(odds[e], ranges[k])
                continue
            term = tangents[e] * their[k]
            above, below = above + term * below, below + term * above
            if above > 0.5 * below:
                total += 4.0 * np.arctanh(above / below)
                above, below = 0.0, 1.0
        total = (total + 4.0 * np.arctanh(above / below)) * factor
        for a in range(m):
            for b in range(m):
                out[i, a, b] = 0.0 if a == b else total


@_jit
def _far_odds(one: Any, other: Any) -> Any:
    """4 artanh(tanh(one / 4) tanh(other / 4)) of large numbers."""
    least, most = min(one, other), max(one, other)
    if np.isinf(most):
        return least
    return least + 2.0 * (np.log1p(np.exp(-(least + most) / 2.0)) - np.log1p(np.exp(-(most - least) / 2.0)))


# ---- own lag blocks --------------------------------------------------------------------------------------------------

#: Log ratios above the first count as infinite, and infinite ones as the second; results above the third are infinite.
#: No probability is below e^-745, so nothing between them is lost.
_LARGE, _ENDLESS, _INFINITE = 2_000.0, 10_000.0, 5_000.0


@_jit
def _log_sum(one: Any, other: Any) -> Any:
    """The log of a sum, from the logs of its terms."""
    high = max(one, other)
    return high if high == -np.inf else high + np.log1p(np.exp(min(one, other) - high))


@_jit
def _own_change(block: Any, s: Any, t: Any, laws: Any, slack: Any) -> Any:
    """The largest log ratio of sum_w P(w|t) G(t,w) to sum_w P(w|s) G(s,w), rounded up."""
    half = block.shape[0] // 2
    into = np.empty((2, 2))  # from (s, i) to (t, w)
    for i in range(2):
        for w in range(2):
            into[i, w] = block[s + i * half, t + w * half]
    best = 0.0
    for n in range(2):  # the ratio rises with r below both points where the least changes, and falls above both
        r = min(max(into[0, n] - into[1, n], -block[s + half, s]), block[s, s + half])
        first, second = min(into[0, 0], into[1, 0] + r), min(into[0, 1], into[1, 1] + r)
        for v in range(laws.shape[0]):
            up, down = _log_sum(laws[v, 2] + first, laws[v, 3] + second), _log_sum(laws[v, 0], laws[v, 1] + r)
            if up > -np.inf:
                size = 4.0 + abs(up) + abs(down) + abs(r) + abs(first) + abs(second)
                best = max(best, up - down + 2.0 * slack + 4e-16 * size)
    return np.inf if best > _INFINITE else best


@_jit
def _moved_by(rises: Any, bases: Any, level: Any, slack: Any) -> Any:
    """The change of a likelihood whose inverse ranges are `level`, if one value's law gains `rises` on `bases`."""
    best = 0.0
    for c in range(2):
        if rises[c] > 0.0 and level[c] < np.inf:
            best = max(best, rises[c] / (level[c] + bases[c] * (1.0 - slack)))
    return np.log1p(best) * (1.0 + slack)


@_jit
def integrate_blocks(
    blocks: Any, out: Any, starts: Any, parents: Any, inside: Any, rises: Any, bases: Any, corners: Any, slack: Any
) -> None:
    """Integrate out the last bit of all blocks (s, 2N, 2N), the last sequence first; both it and `out` change.

    `out` (s, N, N) is zero at first. The groups of child j are `starts[j]` to `starts[j + 1]`.
    """
    s, half = out.shape[:2]
    level = np.empty(2)
    blocks[:] = np.where(blocks > _LARGE, _ENDLESS, blocks)
    for j in range(s - 1, -1, -1):
        for c in range(2):
            lift = 0.0  # from the other value into c, whatever the newer values
            for z in range(half):
                lift = max(lift, blocks[j, z + (1 - c) * half, z + c * half])
            level[c] = (1.0 - slack) / np.expm1(lift) if lift > 0.0 else np.inf
        for a in range(half):
            for b in range(half):
                if a != b:
                    out[j, a, b] += _own_change(blocks[j], a, b, corners[j, a, b], slack)
        for g in range(starts[j], starts[j + 1]):
            i = parents[g]
            for a in range(2 if inside[g] else half):
                for b in range(2 if inside[g] else half):
                    passed = _moved_by(rises[g, a, b], bases[g, a], level, slack)
                    if inside[g]:  # the parent's value in this tick, not integrated out yet
                        into = blocks[i, a * half : (a + 1) * half, b * half : (b + 1) * half]
                        into[:] = np.minimum(into + passed, _ENDLESS)
                    else:
                        out[i, a, b] += passed


# ---- the metric programme --------------------------------------------------------------------------------------------


@_jit
def close_metric(metric: Any) -> None:
    """Replace distances by shortest paths, rounded up; in place."""
    n = metric.shape[0]
    for k in range(n):
        for i in range(n):
            first = metric[i, k]
            for j in range(n):
                way = (first + metric[k, j]) * (1.0 + 4e-16)
                metric[i, j] = min(metric[i, j], way)


@_jit
def _begin(q: Any, target: Any, basis: Any, inverse: Any, x: Any) -> int:
    """Start without any flow: theta is what the neediest row asks for. Return theta's place in the basis."""
    n, at = q.size, 0
    for w in range(n):
        if target[w] * q[at] > target[at] * q[w]:
            at = w
    theta = target[at] / q[at]
    for w in range(n):
        for v in range(n):
            inverse[w, v] = 0.0
        inverse[w, at] = q[w] / q[at]
        inverse[w, w] = -1.0
        basis[w], x[w] = w * n + w, theta * q[w] - target[w]
    inverse[at, at] = 1.0 / q[at]
    basis[at], x[at] = n * n, theta
    return at


@_quick
def _price(g: Any, shares: Any, best: Any) -> None:
    """best[w]: by how much g breaks the worst of its limits, as g(w) / gain(w, v) - g(v); `shares` are 1 / gain."""
    for w in range(g.size):
        most, own = -1.0, g[w]
        for v in range(g.size):
            broken = own * shares[w, v] - g[v]
            most = broken if broken > most else most
        best[w] = most


@_quick
def _limit(row: Any, g: Any, gains: Any, w: Any, v: Any) -> float:
    """How far the flow from w to v may enter before its own limit on g breaks."""
    slope = gains[w, v] * row[v] - row[w]
    room = gains[w, v] * g[v] - g[w]
    room = room if room > 0.0 else 0.0
    return room / slope if slope > 1e-10 else _NEVER


@_quick
def _limit_all(row: Any, g: Any, gains: Any, best: Any) -> None:
    """best[w]: the least limit of a flow from w."""
    for w in range(g.size):
        least = _NEVER
        for v in range(g.size):
            limit = _limit(row, g, gains, w, v)
            least = limit if limit < least else least
        best[w] = least


@_jit
def _fill_column(gains: Any, inverse: Any, w: int, v: int, column: Any) -> None:
    """A column in terms of the basis."""
    for i in range(column.size):
        column[i] = -inverse[i, w] if w == v else inverse[i, w] - gains[w, v] * inverse[i, v]


@_jit
def _exchange(inverse: Any, x: Any, column: Any, r: int, row: Any) -> None:
    """Bring a column into the basis, for the one at place r."""
    n, step = x.size, x[r] / column[r]
    for j in range(n):
        row[j] = inverse[r, j] / column[r]
    for i in range(n):
        factor = column[i]
        x[i] -= factor * step
        for j in range(n):
            inverse[i, j] -= factor * row[j]
    x[r] = step
    for j in range(n):
        inverse[r, j] = row[j]


@_jit
def _lower(gains: Any, shares: Any, basis: Any, inverse: Any, x: Any, theta: int, tolerance: float) -> None:
    """Primal simplex: lower theta while some flow does."""
    n = x.size
    best, column, row, g = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for _ in range(_LONG * n):
        for w in range(n):
            g[w] = inverse[theta, w]
        _price(g, shares, best)
        enter, size, is_surplus = -1, 0.0, False
        for w in range(n):
            if best[w] > size and best[w] > tolerance * g[w]:
                enter, size, is_surplus = w, best[w], False
            if -g[w] > size + 1e-12:
                enter, size, is_surplus = w, -g[w], True
        if enter < 0:
            return
        to = enter
        if not is_surplus:
            most = 0.0
            for v in range(n):
                broken = g[enter] * shares[enter, v] - g[v]
                if v != enter and broken > most:
                    to, most = v, broken
        _fill_column(gains, inverse, enter, to, column)
        leave, step = -1, np.inf
        for i in range(n):
            if i != theta and column[i] > _PIVOT and max(x[i], 0.0) < step * column[i]:
                leave, step = i, max(x[i], 0.0) / column[i]
        if leave < 0:
            return
        _exchange(inverse, x, column, leave, row)
        basis[leave] = enter * n + to


@_jit
def _mend(gains: Any, basis: Any, inverse: Any, x: Any, theta: int) -> None:
    """Dual simplex: from the best flows for another target, raise theta until no flow is negative."""
    n = x.size
    best, column, row, g, given = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for _ in range(_SHORT * n):
        leave, least = -1, -_PIVOT
        for i in range(n):
            if i != theta and x[i] < least:
                leave, least = i, x[i]
        if leave < 0:
            return
        for w in range(n):
            g[w], given[w] = inverse[theta, w], inverse[leave, w]
        _limit_all(given, g, gains, best)
        enter, is_surplus, least = -1, False, 0.1 * _NEVER
        for w in range(n):
            if best[w] < least:
                enter, is_surplus, least = w, False, best[w]
            if given[w] > 1e-10 and max(g[w], 0.0) < least * given[w]:
                enter, is_surplus, least = w, True, max(g[w], 0.0) / given[w]
        if enter < 0:
            return
        to = enter
        if not is_surplus:
            least = _NEVER
            for v in range(n):
                limit = _limit(given, g, gains, enter, v)
                if v != enter and limit < least:
                    to, least = v, limit
        _fill_column(gains, inverse, enter, to, column)
        _exchange(inverse, x, column, leave, row)
        basis[leave] = enter * n + to


@_jit
def _solve_basis(basis: Any, gains: Any, q: Any, inverse: Any, target: Any, x: Any) -> None:
    """The flows of a basis, corrected twice by what they miss of the target."""
    n = x.size
    left = np.empty(n)
    for i in range(n):
        left[i], x[i] = target[i], 0.0
    for _ in range(3):
        for i in range(n):
            correction = 0.0
            for j in range(n):
                correction += inverse[i, j] * left[j]
            x[i] += correction
        for i in range(n):
            left[i] = target[i]
        for j in range(n):
            w, v = basis[j] // n, basis[j] % n
            if basis[j] == n * n:
                for i in range(n):
                    left[i] -= q[i] * x[j]
            elif w == v:
                left[w] += x[j]
            else:
                left[w] -= x[j]
                left[v] += gains[w, v] * x[j]


@_jit
def _rebuild(gains: Any, q: Any, target: Any, error: Any, basis: Any, x: Any) -> float:
    """The bound that the flows prove, whatever they are: the largest `(target - outflow + gained inflow) / q`."""
    n = q.size
    outflow, inflow = np.zeros(n), np.zeros(n)
    for j in range(n):
        w, v = basis[j] // n, basis[j] % n
        if basis[j] < n * n and w != v and x[j] > 0.0:
            outflow[w] += x[j]
            inflow[v] += gains[w, v] * x[j]
    rounding = max(1e-14, 4e-16 * n)
    over, likeliest, plain, level = np.empty(n), 0.0, 0.0, 0.0
    for w in range(n):
        moved = rounding * (abs(target[w]) + outflow[w] + inflow[w])
        over[w] = target[w] - outflow[w] + inflow[w] + moved + error[w]
        likeliest = max(likeliest, q[w])
    rare = _RARE * likeliest
    for w in range(n):
        if not over[w] < np.inf:  # limits beyond all floats, or no number: nothing is proved
            return np.inf
        if over[w] > 0.0:
            plain = max(plain, over[w] / q[w])
            level = max(level, over[w] / q[w] if q[w] >= rare else 0.0)
    mended = level
    for w in range(n):
        excess = over[w] - level * q[w]
        if q[w] < rare and excess > 0.0:  # one more flow, to the snapshot that raises the bound least
            to = -1
            for v in range(n):
                if q[v] >= rare and (to < 0 or gains[w, v] * q[to] < gains[w, to] * q[v]):
                    to = v
            over[to] += excess * gains[w, to] * (1.0 + 1e-13) + rounding * abs(over[to])
            mended = max(mended, over[to] / q[to])
    return min(plain, mended)


@_jit
def _reach(gains: Any, q: Any, target: Any, g: Any) -> float:
    """What a likelihood below g reaches that keeps all limits: no bound lies below."""
    over, under = 0.0, 0.0
    for w in range(q.size):
        least = g[w]
        for v in range(q.size):
            least = min(least, gains[w, v] * g[v])
        over += target[w] * least
        under += q[w] * least
    return over / under


@_jit
def solve_pairs(limits: Any, gains: Any, seconds: Any, gaps: Any, error: Any, size: float, out: Any) -> None:
    """out[k]: a bound of `sum gap g / sum q g` over all g within the limits, for every row of laws q and gaps.

    `limits` are e^b; `gains` are a little larger, so that no two ways are equally good, and finite; `size` is the
    largest finite b.
    """
    n = seconds.shape[1]
    inverse, x, basis = np.empty((n, n)), np.empty(n), np.empty(n, np.int64)
    shares = 1.0 / gains
    tolerance = max(1e-11 * min(size, 1.0), 4e-16)
    tilt = np.empty(n)
    for w in range(n):
        shares[w, w] = 0.0
        tilt[w] = 1e-9 * (0.6180339887498949 * (w + 1) % 1.0)  # degenerate rows would let a search go in circles
    theta, last = -1, np.full(n, -1.0)
    for k in range(seconds.shape[0]):
        scale = np.abs(gaps[k]).max()
        q = np.maximum(seconds[k], 1e-12)
        if not np.array_equal(q, last):
            theta, last = -1, q
        if scale == 0.0:
            out[k] = _rebuild(limits, seconds[k], gaps[k], error, basis, np.zeros(n))
            continue
        # The difference of the laws, scaled to 1, is what is solved for: tiny leakages keep their digits.
        target = gaps[k] / scale
        tilted = target + tilt * q
        out[k] = np.inf
        for attempt in range(2):
            if theta < 0 or attempt > 0:
                theta = _begin(q, tilted, basis, inverse, x)
            else:
                _solve_basis(basis, gains, q, inverse, tilted, x)
                _mend(gains, basis, inverse, x, theta)
            _lower(gains, shares, basis, inverse, x, theta, tolerance)
            _solve_basis(basis, gains, q, inverse, target, x)
            value = _rebuild(limits, seconds[k], target, error / scale, basis, x)
            out[k] = min(out[k], value * scale)
            if value <= _reach(limits, q, target, inverse[theta]) * (1.0 + _CLOSE) + 0.1 * _CLOSE * size:
                break
        else:
            theta = -1
