"""Limits of the class that a fit certifies: rows, the influences that follow from them, and slow levels.

Every number is a log odds with a standard error. Sequences that are alike share it: their values scatter about a common
one by a spread, of which an upper limit is taken (Q-profile: Viechtbauer 2007), and a limit of each is what its own
readings leave possible together with that scatter. A sequence that stands out from the normal law of the others keeps
its own limits. All limits of a class hold together with its confidence.

The rows are those of values given newer ones. Near the present fewer newer ones exist: a row is then a mixture of those
for all values of the missing ones, and lies between them. The law forwards given everything older follows by Bayes'
rule: `Pr(x_t = c | older) ~ pi(c) Pr(older | x_t = c)`, with pi the law of x_t given the newer environments alone,
which is bounded over all paths. So limits hold for every path of the environments.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from csdp.chain.graph import Limits
from csdp.fitting.parents import Law, Newest, Parents, Reading, lagged
from csdp.fitting.residuals import block_edges
from csdp.numbers import Floats, Indices, freeze

#: Confidence with which all limits of a class hold together.
CONFIDENCE = 0.99
#: Most ticks of the blocks whose levels are compared with the whole.
LEVEL_BLOCK = 150
#: Series that are simulated to learn how levels of blocks scatter by chance.
_SIMULATED = 24
#: Log odds beyond which no limit is taken, and rounds in which the law given the environments is narrowed.
_LARGEST, _ROUNDS = 30.0, 60


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    from scipy.special import expit

    return np.asarray(expit(x))


def logit(p: Floats) -> Floats:
    """ln p / (1 - p), between the largest log odds."""
    p = np.clip(p, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -_LARGEST, _LARGEST))


def shared_limits(
    values: Floats, errors: Floats, chance: float, independent: float = 1.0
) -> tuple[Floats, Floats, float]:
    """Limits below and above of every value (k, columns), and the limit of the spread of the rows about a common one.

    Args:
        values: estimates, one row for each sequence.
        errors: their standard errors; infinite for what was never seen.
        chance: that any of these limits fails.
        independent: share of the values that are independent of each other.

    >>> values = np.random.default_rng(0).normal(0.0, 0.1, (50, 1))
    >>> low, high, spread = shared_limits(values, np.full((50, 1), 0.1), 0.01)
    >>> bool((low < 0).all() and (high > 0).all()), round(spread, 3)
    (True, 0.078)
    """
    from scipy.special import chdtri, ndtri

    z = float(-ndtri(chance / (4.0 * values.size)))
    weight = np.where(np.isfinite(errors), 1.0 / np.square(np.maximum(errors, 1e-6)), 0.0)
    kept = weight > 0
    outside = np.zeros_like(kept)
    spread = np.inf
    for _ in range(10):
        inside = kept & ~outside
        freedom = independent * float(np.maximum(inside.sum(axis=0) - 1, 0).sum())
        if freedom < 1:
            return *_own_limits(values, errors, z), np.inf
        least = float(chdtri(freedom, 1.0 - chance / 4.0)) / independent
        spread = _largest_spread(values, np.where(inside, weight, 0.0), least)
        if not np.isfinite(spread):
            return *_own_limits(values, errors, z), spread
        within = np.where(inside, 1.0 / (1.0 / np.maximum(weight, 1e-12) + spread**2), 0.0)
        mean = (within * values).sum(axis=0) / np.maximum(within.sum(axis=0), 1e-12)
        mean_error = 1.0 / np.maximum(within.sum(axis=0), 1e-12)
        far = np.abs(values - mean) > z * np.sqrt(np.where(kept, 1.0 / np.maximum(weight, 1e-12), 0.0) + spread**2)
        if ((far & kept) == outside).all():
            break
        outside = far & kept
    pull = 1.0 / max(spread**2, 1e-12)
    middle = (weight * np.where(kept, values, 0.0) + pull * mean) / (weight + pull)
    error = np.sqrt(1.0 / (weight + pull) + np.square(pull / (weight + pull)) * mean_error)
    low, high = middle - z * error, middle + z * error
    own_low, own_high = _own_limits(values, errors, z)
    return np.where(outside, own_low, low), np.where(outside, own_high, high), float(spread)


def _own_limits(values: Floats, errors: Floats, z: float) -> tuple[Floats, Floats]:
    wide = np.where(np.isfinite(errors), z * errors, np.inf)
    values = np.where(np.isfinite(errors), values, 0.0)
    return np.clip(values - wide, -_LARGEST, _LARGEST), np.clip(values + wide, -_LARGEST, _LARGEST)


def _largest_spread(values: Floats, weight: Floats, least: float) -> float:
    """The spread at which the scatter of the values would be as small as `least` by chance."""
    kept = weight > 0

    def scatter(spread: float) -> float:
        within = np.where(kept, 1.0 / (1.0 / np.maximum(weight, 1e-12) + spread**2), 0.0)
        mean = (within * values).sum(axis=0) / np.maximum(within.sum(axis=0), 1e-12)
        return float((within * np.square(values - mean)).sum())

    if scatter(0.0) <= least:
        return 0.0
    low, high = 0.0, 1.0
    while scatter(high) > least:
        low, high = high, 2.0 * high
        if high > _LARGEST:
            return float("inf")
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if scatter(middle) > least else (low, middle)
    return high


# ---- slow levels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Levels:
    """(s, m): how far the log odds of each state may lie from the whole, in a block: of its law given everything newer
    (`inside`), and of the state itself given the environment (`swing`).
    """

    inside: Floats
    swing: Floats


def limit_levels(law: Law, data: Newest, chance: float, random: np.random.Generator, block: int) -> Levels:
    """Upper limits of the deviations of levels by blocks, the chance by which the readings scatter removed."""
    reading = Reading(law, data)
    edges = block_edges(data.states.shape[0], min(LEVEL_BLOCK, 2 * block, data.states.shape[0] // 3))
    simulated = [Reading(law, Newest(each, data.m, data.path)) for each in law.simulate(data, _SIMULATED, random)]
    s, m = data.states.shape[1], data.m
    inside, swing = np.zeros((s, m)), np.zeros((s, m))
    shown = range(1, 2) if m == 2 else range(m)
    chance = chance / (2.0 * len(shown))
    for c in shown:
        low, high, _ = shared_limits(*_inside_levels(reading, c, edges), chance)
        inside[:, c] = np.maximum(-low, high).max(axis=1)
        values = _state_levels(reading, c, edges)
        noise = np.square(np.array([_state_levels(each, c, edges) for each in simulated]))
        seen = np.isfinite(noise)
        error = np.sqrt(np.where(seen, noise, 0.0).sum(axis=(0, 2)) / np.maximum(seen.sum(axis=(0, 2)), 1))
        errors = np.where(np.isfinite(values) & (error > 0)[:, None], error[:, None], np.inf)
        low, high, _ = shared_limits(np.nan_to_num(values), errors, chance)
        swing[:, c] = np.maximum(-low, high).max(axis=1)
    if m == 2:
        inside, swing = (np.repeat(each[:, 1:], 2, axis=1) for each in (inside, swing))
    return Levels(inside, swing)


def _inside_levels(reading: Reading, c: int, edges: Indices) -> tuple[Floats, Floats]:
    """By sequence and block, the change of log odds given everything newer, and its standard error."""
    chance = reading.predicted[:, :, c]
    left = np.where(reading.known, (reading.data.states == c) - chance, 0.0)
    spread = np.where(reading.known, chance * (1.0 - chance), 0.0)
    sums, whole = (np.add.reduceat(each, edges, axis=0).T for each in (left, spread))
    step = sums / np.maximum(whole, 1e-9) * whole / (whole + 0.5)
    return np.clip(step, -3.0, 3.0), np.where(whole > 1.0, 1.0 / np.sqrt(np.maximum(whole, 1e-9)), np.inf)


def _state_levels(reading: Reading, c: int, edges: Indices) -> Floats:
    """By sequence and block, the change of log odds of a state given the environments; not a number if unseen."""
    weights, _ = reading.smoothed()
    known = reading.data.states >= 0
    shown = (reading.data.states == c) & known
    usual = (weights.T @ shown + 0.5) / (weights.T @ known + 1.0)  # (E, s)
    due = np.where(known, weights @ usual, 0.0)
    length = np.diff(np.append(edges, due.shape[0]))
    got = np.add.reduceat(shown.astype(np.float64), edges, axis=0)
    here = np.add.reduceat(known.astype(np.float64), edges, axis=0)
    got = (got + 0.5 * due.sum(axis=0) / np.maximum(known.sum(axis=0), 1)) * here / (here + 0.5)
    odds = logit(np.where(known, due, 0.5))
    level = np.zeros_like(got)
    for _ in range(4):
        chance = np.where(known, sigmoid(odds + np.repeat(level, length, axis=0)), 0.0)
        slope = np.add.reduceat(chance * (1.0 - chance) * known, edges, axis=0)
        level = np.clip(level + (got - np.add.reduceat(chance, edges, axis=0)) / np.maximum(slope, 0.1), -6.0, 6.0)
    return np.where(here >= 10, level, np.nan).T


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """Limits of the log odds of every state in every row, (E, s, contexts, m), and of their changes."""

    parents: Parents
    low: Floats
    high: Floats
    #: by sequence and place of a parent, (E, contexts, m, m): the largest rise if that parent goes to another state
    steps: dict[tuple[int, int], Floats]


def limit_rows(law: Law, data: Newest, chance: float) -> Rows:
    """Limits of all rows of a law that was fitted to readings.

    A sequence with a longer memory is compared with all sequences that follow themselves alone, as if they had it too.
    """
    m, s = data.m, data.states.shape[1]
    weights, _ = Reading(law, data).smoothed()
    shapes = [tuple((int(i != j), lag) for i, lag in own) for j, own in enumerate(law.parents)]
    low, high = np.full(law.rows.shape, -_LARGEST), np.full(law.rows.shape, _LARGEST)
    steps: dict[tuple[int, int], Floats] = {}
    kinds = sorted(set(shapes))
    chance = chance / (2.0 * len(kinds))
    for shape in kinds:
        alone = not any(other for other, _ in shape)
        alike = [j for j in range(s) if shapes[j] == shape or (alone and not any(other for other, _ in shapes[j]))]
        parents = list(law.parents)
        if alone:
            for j in alike:
                parents[j] = tuple((j, lag) for _, lag in shape)
        values, errors = _estimate(Reading(law.following(tuple(parents)), data), weights)
        values, errors = (each[:, alike, : m ** len(shape)] for each in (values, errors))
        bottom, top = _by_sequence((values, errors), chance, m, 1.0)
        rises = [_rises(values, errors, place, m, chance / len(shape)) for place in range(len(shape))]
        for n, j in enumerate(alike):
            if shapes[j] == shape:
                low[:, j, : m ** len(shape)], high[:, j, : m ** len(shape)] = bottom[:, n], top[:, n]
                steps.update({(j, place): most[:, n] for place, most in enumerate(rises)})
    return Rows(law.parents, low, high, steps)


def _estimate(reading: Reading, weights: Floats) -> tuple[Floats, Floats]:
    """Log odds of all rows (E, s, contexts, m), and their standard errors."""
    counts, unsure = reading.counts(weights), reading.counts(weights * (1.0 - weights))
    total = counts.sum(axis=3, keepdims=True)
    values = np.log((counts + 0.5) / (total - counts + 0.5))
    share = (counts + 0.5) / (total + 1.0)
    # What is not known of a hidden environment is not known of its rows (Louis 1982).
    missing = unsure * np.square(1.0 - share) + (unsure.sum(axis=3, keepdims=True) - unsure) * np.square(share)
    complete = total * share * (1.0 - share)
    information = np.maximum(complete - missing, 0.2 * complete)
    return values, np.where(total > 0.5, 1.0 / np.sqrt(np.maximum(information, 1e-9)), np.inf)


def widen_rows(rows: Rows, law: Law, data: Newest, chance: float) -> Rows:
    """Limits that hold in every block, if influences change from one to the next: by as much as those of blocks do."""
    reading, m, s = Reading(law, data), data.m, data.states.shape[1]
    edges = block_edges(data.states.shape[0], min(LEVEL_BLOCK, data.states.shape[0] // 3))
    depth = max(map(len, rows.parents))
    shown = range(1, 2) if m == 2 else range(m)
    turn = np.zeros((s, depth))
    for place, c in itertools.product(range(depth), shown):
        some = [j for j, own in enumerate(rows.parents) if len(own) > place]
        ends = [rows.parents[j][place] for j in some]
        newer = np.column_stack([lagged(data.states[:, i], lag, -1) for i, lag in ends])
        chances = reading.predicted[:, some, c]
        known = reading.known[:, some]
        spread = np.where(known, chances * (1.0 - chances), 0.0)
        left = np.where(known, (data.states[:, some] == c) - chances, 0.0)
        shape = (newer == c).astype(np.float64)
        whole = np.maximum(np.add.reduceat(spread, edges, axis=0), 1e-9)
        length = np.diff(np.append(edges, shape.shape[0]))
        shape -= np.repeat(np.add.reduceat(spread * shape, edges, axis=0) / whole, length, axis=0)
        information = np.add.reduceat(spread * shape**2, edges, axis=0).T
        change = np.add.reduceat(left * shape, edges, axis=0).T / (information + 0.5)
        errors = np.where(information > 1.0, 1.0 / np.sqrt(np.maximum(information, 1e-9)), np.inf)
        low, high, _ = shared_limits(np.clip(change, -3.0, 3.0), errors, chance / depth / len(shown))
        turn[some, place] = np.maximum(turn[some, place], np.maximum(-low, high).max(axis=1))
    apart = turn.sum(axis=1)[None, :, None, None]
    rises = 1.0 - np.eye(m)
    steps = {}
    for (j, place), most in rows.steps.items():
        state = np.arange(most.shape[1]) // m**place % m
        steps[j, place] = most + turn[j, place] * rises[state][None, :, :, None]
    return replace(rows, low=rows.low - apart, high=rows.high + apart, steps=steps)


def _by_sequence(part: tuple[Floats, Floats], chance: float, m: int, independent: float) -> tuple[Floats, Floats]:
    """`shared_limits` of values and errors (E, k, ..., m), by sequence; of two states the second decides."""
    shown = [each[..., 1:] if m == 2 else each for each in part]
    flat = [np.moveaxis(each, 1, 0).reshape(each.shape[1], -1) for each in shown]
    low, high, _ = shared_limits(flat[0], flat[1], chance, 1.0 if m == 2 else independent * (m - 1) / m)
    shape = np.moveaxis(shown[0], 1, 0).shape
    low, high = (np.moveaxis(each.reshape(shape), 0, 1) for each in (low, high))
    if m == 2:
        low, high = np.concatenate([-high, low], axis=-1), np.concatenate([-low, high], axis=-1)
    return low, high


def _rises(values: Floats, errors: Floats, place: int, m: int, chance: float) -> Floats:
    """How much one parent's going to another state raises log odds at most: (E, k, contexts, m to, m)."""
    count, k, size, _ = values.shape
    at = np.arange(size)
    state = at // m**place % m
    moved = at[:, None] + (np.arange(m) - state[:, None]) * m**place  # (contexts, to)
    up = np.argwhere(np.arange(m) > state[:, None])
    start, stop = up[:, 0], moved[up[:, 0], up[:, 1]]
    change = values[:, :, stop] - values[:, :, start]
    error = np.sqrt(np.square(errors[:, :, stop]) + np.square(errors[:, :, start]))
    low, high = _by_sequence((change, error), chance, m, 2.0 / m)
    most = np.zeros((count, k, size, m, m))
    for n, (z, b) in enumerate(up):
        most[:, :, z, b] = high[:, :, n]
        most[:, :, moved[z, b], state[z]] = -low[:, :, n]
    return most


# ---- influences ------------------------------------------------------------------------------------------------------


def largest_rise(low: Floats, high: Floats, change: Floats) -> Floats:
    """The largest sigmoid(a + change) - sigmoid(a) for a between two limits."""
    at = np.clip(-0.5 * change, low, high)
    return np.maximum(sigmoid(at + change) - sigmoid(at), 0.0)


@dataclass(frozen=True, eq=False)
class _Edge:
    target: int
    source: int
    lag: int
    gains: Floats  # (m, m, m)
    bases: Floats  # (m, m)


def make_windows(rows: Rows, levels: Levels, m: int) -> list[list[Limits]]:
    """By environment, the limits for every distance from the present."""
    count, s = rows.low.shape[:2]
    memory = max(lag for own in rows.parents for _, lag in own)
    return [
        [
            _window([edge for j in range(s) for edge in _edges_near(rows, levels, e, j, distance, m)], s, m)
            for distance in range(1, memory + 1)
        ]
        for e in range(count)
    ]


def _edges_near(rows: Rows, levels: Levels, e: int, j: int, distance: int, m: int) -> list[_Edge]:
    """The edges of one sequence, parents beyond a distance left out: their values are taken at their worst."""
    own = rows.parents[j]
    size = m ** len(own)
    seen = [place for place, (_, lag) in enumerate(own) if lag <= distance]
    shape = (m,) * len(own)
    order = [len(own) - 1 - place for place in range(len(own))]  # axis of each parent: the last varies fastest
    unseen = tuple(order[place] for place in range(len(own)) if place not in seen)
    low = rows.low[e, j, :size].reshape(*shape, m)
    high = rows.high[e, j, :size].reshape(*shape, m)
    least, most = (low.min(axis=unseen), high.max(axis=unseen)) if unseen else (low, high)
    kept = [place for place in range(len(own)) if place in seen]
    axis = {place: len(kept) - 1 - n for n, place in enumerate(kept)}
    drift = levels.inside[j]
    edges = []
    for place in kept:
        below = np.moveaxis(least, axis[place], 0).reshape(m, -1, m)  # (state, others, c)
        above = np.moveaxis(most, axis[place], 0).reshape(m, -1, m)
        change = above[None] - below[:, None]  # (a, b, others, c)
        gains = largest_rise(below[:, None] - drift, below[:, None] + drift, change)
        if not unseen:
            rise = rows.steps[j, place][e].reshape(*shape, m, m)
            rise = np.moveaxis(rise, axis[place], 0).reshape(m, -1, m, m)  # (a, others, b, c)
            sharper = largest_rise(below[:, :, None] - drift, above[:, :, None] + drift, rise)
            gains = np.minimum(gains, np.moveaxis(sharper, 2, 1))
        gains = gains.max(axis=2)
        gains[np.arange(m), np.arange(m)] = 0.0
        bases = sigmoid(below - drift).min(axis=1)
        edges.append(_Edge(j, *own[place], gains, bases))
    return edges


def _window(edges: list[_Edge], s: int, m: int) -> Limits:
    ends = np.array([(edge.target, edge.source, edge.lag) for edge in edges], dtype=np.intp)
    return Limits(
        sequences=s,
        states=m,
        edge_targets=freeze(ends[:, 0].copy()),
        edge_sources=freeze(ends[:, 1].copy()),
        edge_lags=freeze(ends[:, 2].copy()),
        gains=freeze(np.minimum(np.array([edge.gains for edge in edges]), 1.0)),
        bases=freeze(np.maximum(np.array([edge.bases for edge in edges]), 0.0)),
        most=freeze(np.full(len(edges), np.inf)),
    )


def make_forward(rows: Rows, levels: Levels, m: int) -> list[Limits] | None:
    """By environment, the limits of the law given everything older; None if sequences follow each other."""
    count, s = rows.low.shape[:2]
    if any(i != j for j, own in enumerate(rows.parents) for i, _ in own):
        return None
    edges: list[list[_Edge]] = [[] for _ in range(count)]
    for j in range(s):
        for e, some in enumerate(_edges_forward(rows, levels, j, m)):
            edges[e] += some
    return [_window(some, s, m) for some in edges]


def _edges_forward(rows: Rows, levels: Levels, j: int, m: int) -> list[list[_Edge]]:
    """The edges of one sequence, by environment."""
    own, count = len(rows.parents[j]), rows.low.shape[0]
    drift, size = levels.inside[j], m**own
    low = np.log(sigmoid(rows.low[:, j, :size] - drift))  # logarithms of probabilities, (E, contexts, m)
    high = np.log(sigmoid(rows.high[:, j, :size] + drift))
    bottom, top = _law_given_path(np.exp(low), np.exp(high), m)
    # ln Pr(older | x_t = c), less that of older states that do not depend on c: by environment, context and c.
    depth = np.array(list(itertools.product(range(m), repeat=own)))[:, ::-1]  # older states, the newest of them first
    reach = np.zeros((2, count, size, m))
    for n, older in enumerate(depth):
        for c in range(m):
            for lag in range(own):  # the law of the state lag + 1 older, given those newer than it from x_t on
                newer = [*older[:lag][::-1], c]
                fits = np.ones(size, dtype=bool)
                for place, state in enumerate(newer):
                    fits &= np.arange(size) // m**place % m == state
                one = low[:, fits, older[lag]].min(axis=1), high[:, fits, older[lag]].max(axis=1)
                if lag:  # under the environment of an older step, which may be any
                    one = np.full(count, one[0].min()), np.full(count, one[1].max())
                reach[0, :, n, c] += one[0]
                reach[1, :, n, c] += one[1]
    laws: list[list[_Edge]] = []
    for e in range(count):
        gains = np.zeros((size, size, m))
        bases = np.zeros((size, m))
        for c in range(m):
            rest = [x for x in range(m) if x != c]
            shift_low = reach[0, e, :, c] - np.max([reach[1, e, :, x] for x in rest], axis=0)
            shift_high = reach[1, e, :, c] - np.min([reach[0, e, :, x] for x in rest], axis=0)
            start, stop = logit(bottom[c : c + 1])[0], logit(top[c : c + 1])[0]
            bases[:, c] = sigmoid(start + shift_low)
            change = shift_high[None] - shift_low[:, None]
            if own == 1 and m == 2:  # a ratio of odds, the same in both directions of time
                for u in range(2):
                    change[1 - u, u] = min(change[1 - u, u], rows.steps[j, 0][e, 1 - c, c, u])
            gains[:, :, c] = largest_rise(start + shift_low[:, None], stop + shift_high[:, None], change)
        laws.append([_forward_edge(j, place, depth, gains, bases) for place in range(own)])
    return laws


def _forward_edge(j: int, place: int, depth: Indices, gains: Floats, bases: Floats) -> _Edge:
    """What one older state of a sequence changes at most, whatever the others are."""
    m = gains.shape[2]
    state, others = depth[:, place], np.delete(depth, place, axis=1)
    same = (others[:, None] == others[None]).all(axis=2)
    most, least = np.zeros((m, m, m)), np.zeros((m, m))
    for a, b in itertools.product(range(m), repeat=2):
        least[a] = bases[state == a].min(axis=0)
        if a != b:
            most[a, b] = gains[same & (state[:, None] == a) & (state[None] == b)].max(axis=0)
    return _Edge(j, j, place + 1, most, least)


def _law_given_path(low: Floats, high: Floats, m: int) -> tuple[Floats, Floats]:
    """Limits (m,) of the law of a value given newer environments alone, whatever they are."""
    count, size, _ = low.shape
    newest = np.arange(size) % m
    least = np.array([[low[e, newest == a].min(axis=0) for a in range(m)] for e in range(count)])  # (E, newer, c)
    most = np.array([[high[e, newest == a].max(axis=0) for a in range(m)] for e in range(count)])
    bottom, top = least.min(axis=(0, 1)), most.max(axis=(0, 1))
    for _ in range(_ROUNDS):
        narrow = [_mix(most[e, :, c], bottom, top) for e in range(count) for c in range(m)]
        wide = [-_mix(-least[e, :, c], bottom, top) for e in range(count) for c in range(m)]
        top = np.minimum(top, np.array(narrow).reshape(count, m).max(axis=0))
        bottom = np.maximum(bottom, np.array(wide).reshape(count, m).min(axis=0))
    return bottom, top


def _mix(values: Floats, bottom: Floats, top: Floats) -> float:
    """The largest mean of values under a law between limits."""
    law, left = bottom.copy(), 1.0 - float(bottom.sum())
    for a in np.argsort(-values):
        more = min(max(left, 0.0), float(top[a] - bottom[a]))
        law[a] += more
        left -= more
    return float(law @ values)
