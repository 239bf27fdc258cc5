"""Lineage: leakage to an adversary who knows the model only, for any law of the past and any number of sequences.

Every present state descends from one past state: `Pr(x_t^(i) = a | z) = sum_k Q^A[(i, a), (k, z_k)]` is a sum of
functions of one past state each. Its log-odds range over z bounds the leakage of x_t^(i), whatever is published of z.

At A = 1 the same number holds for an adversary who knows everything else about the present, after any number of
releases and at any age >= 1, because given x_{t-1} the sequences are independent.

Two forms: exact (Dinkelbach's fractional programme, few sequences), and intervals (any number of sequences, never
smaller). Both carry differences between pasts, not the laws themselves, so that tiny leakages keep their digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from csdp.aging import Progress
from csdp.arrays import UNIT, Floats, Indices
from csdp.chain import CoupledChain, Model
from csdp.errors import InputError

#: Sequences times states up to which the fractional programme is solved; intervals beyond.
EXACT_SIZE = 256
#: Ranges below this come from differences between pasts, larger ones from the laws themselves.
_TINY_RANGE = 1e-4
#: Powers of 2 by which changes, at most 2**200, are lowered before they are divided by a probability.
_ROOM = 300
_AgeRanges = tuple[Floats, Indices]  # ranges and pairs of one age


@dataclass(frozen=True)
class Lineage:
    """Log-odds range of every sequence's present, and the form that gave it."""

    ranges: Floats  # (s,)
    pairs: Indices  # (s, 2) the two most distinguishable states
    form: str  # "exact" or "interval"
    curve: Floats | None = None  # (age,) the largest over the sequences at ages 1, 2, ..., age, if requested


def has_lineage(model: Model) -> bool:
    """Whether next states are independent given the present, as `lineage` and `slice` need."""
    return model.direction == "forward" and bool(model.step_chains)


def require_forward(name: str, model: Model) -> tuple[CoupledChain, ...]:
    """The forward coupled chains one of which every step follows, or why the bound does not hold for the model."""
    if not has_lineage(model):
        kind = "a backward chain" if model.direction == "backward" else type(model).__name__
        raise InputError(
            f"{name}: needs a CoupledChain with direction='forward', whose next states are independent given the "
            f"present; {kind} given. Use influence for a backward chain; exact or freshness for a joint one"
        )
    return model.step_chains


def lineage(
    model: Model, age: int, *, form: str = "auto", curve: bool = False, progress: Progress | None = None
) -> Lineage:
    """The range over all pasts of the log odds of each sequence's present, `age` steps later.

    Args:
        model: a forward chain, or one under environments that are known: the worst of them, at age 1 unless by a clock.
        age: steps between the past and the present.
        form: "exact", "interval", or "auto": exact for few sequences and states.
        curve: keep the largest value of every age on the way; the interval form does so at hardly any cost.
        progress: called with a stage, what is done and what there is to do.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> float(lineage(chain, 2).ranges.max().round(9))
    0.645546785
    """
    chains = require_forward("lineage", model)
    if len(chains) > 1:
        return _worst(lineage(chain, min(age, 1), form=form, progress=progress) for chain in chains)
    chain = chains[0]
    if age == 0:
        pairs = np.broadcast_to(np.array([0, 1]), (chain.sequences, 2))
        return Lineage(np.full(chain.sequences, math.inf), pairs, "exact", np.zeros(0) if curve else None)
    if form == "auto":
        form = "exact" if chain.sequences * chain.states <= EXACT_SIZE else "interval"
    if form == "exact":
        steps = _exact(chain, age, every=curve)
    else:
        steps = _interval(chain, age, every=curve, progress=progress)
    largest, last = [], (np.zeros(0), np.zeros((0, 2), dtype=np.intp))
    for last in steps:
        largest.append(float(last[0].max()))
    return Lineage(*last, form, np.array(largest) if curve else None)


def _worst(results: Iterable[Lineage]) -> Lineage:
    """The widest range of every sequence; without a curve, as nothing is known of how it falls with age."""
    every = tuple(results)
    ranges = np.array([result.ranges for result in every])
    widest, place = ranges.argmax(axis=0), np.arange(ranges.shape[1])
    pairs = np.array([result.pairs for result in every])[widest, place]
    return Lineage(ranges[widest, place], pairs, max(result.form for result in every))


def _exact(chain: CoupledChain, age: int, *, every: bool) -> Iterator[_AgeRanges]:
    s, m = chain.sequences, chain.states
    local = chain.local
    # whole[i, k, c, a] = Q^A[(i, a), (k, c)], never negative, so every entry is accurate however rare;
    # change[i, k, c, a] = effect on Pr(x_t^(i) = a) of the past state c of k instead of state 0, accurate when tiny.
    whole, change = np.zeros((s, s, m, m)), np.zeros((s, s, m, m))
    whole[np.arange(s), np.arange(s)] = np.eye(m)
    change[np.arange(s), np.arange(s)] = np.eye(m) - np.eye(m)[0]
    law = np.zeros((s, m))
    law[:, 0] = 1.0
    exponent = 0
    for n in range(1, age + 1):
        fresh, fresh_law, fresh_whole = np.zeros_like(change), np.zeros_like(law), np.zeros_like(whole)
        for i in range(s):
            for source, matrix in zip(local.sources[i], local.matrices[i], strict=True):
                fresh[i] += change[source] @ matrix
                fresh_whole[i] += whole[source] @ matrix
                fresh_law[i] += law[source] @ matrix
        law, whole = fresh_law / fresh_law.sum(axis=1, keepdims=True), fresh_whole
        change = fresh - fresh.sum(axis=3, keepdims=True) * law[:, None, None, :]
        if 0 < np.abs(change).max() < 2.0**-400:
            change, exponent = np.ldexp(change, 600), exponent - 600
        if every or n == age:
            rounding = 8.0 * UNIT * (n * (m + int(np.max(np.diff(chain.edge_starts)))) + s)
            widest = [_widest(law[i], change[i], exponent, whole[i], rounding) for i in range(s)]
            ranges = np.array([value for value, *_ in widest]) * (1.0 + rounding)
            yield ranges, np.array([pair for _, *pair in widest])


def _widest(law: Floats, change: Floats, exponent: int, whole: Floats, rounding: float) -> tuple[float, int, int]:
    """Largest range of ln Pr(a|z)/Pr(b|z) over z, for one sequence: law (m,), change and whole (s, m, m)."""
    best = (0.0, 1, 0)
    possible = whole.max(axis=1).sum(axis=0) > 0  # a state that occurs from no past is no secret
    for a, b in itertools.combinations(range(law.size - 1, -1, -1), 2):
        if not (possible[a] and possible[b]):
            continue
        if _excludes(whole, a, b) or _excludes(whole, b, a):
            return math.inf, a, b
        value = max(_log_odds(whole, a, b) + _log_odds(whole, b, a), 0.0) + rounding
        if value < _TINY_RANGE and min(law[a], law[b]) > 0:
            value = _range_of_changes(law, np.ldexp(change, exponent), 0, a, b)
            if exponent and value < 1e-12:
                value = _range_of_changes(law, change, exponent, a, b)
        if value > best[0]:
            best = (value, a, b)
    return best


def _excludes(whole: Floats, a: int, b: int) -> bool:
    """Whether some past leads to b but never to a."""
    without = whole[:, :, a] == 0
    return bool(without.any(axis=1).all() and np.where(without, whole[:, :, b], 0.0).max() > 0)


def _log_odds(whole: Floats, a: int, b: int) -> float:
    """Largest ln Pr(a|z)/Pr(b|z) over the pasts that lead to either (Dinkelbach)."""
    up, down = whole[:, :, a], whole[:, :, b]
    rows = np.arange(whole.shape[0])
    ratio = 0.0
    for _ in range(200):
        pick = np.argmax(up - ratio * down, axis=1)
        over, under = float(up[rows, pick].sum()), float(down[rows, pick].sum())
        if over <= 0 or over / under <= ratio * (1 + 1e-15):
            break
        ratio = over / under
    return math.log(ratio)


def _range_of_changes(law: Floats, change: Floats, exponent: int, a: int, b: int) -> float:
    """The range from differences between pasts, for ranges so small that the laws themselves hide them."""
    high = _extreme(law, change, exponent, a, b)
    low = _extreme(law, change, exponent, b, a)
    gap = high - low
    if exponent:
        gap = np.ldexp(gap, -_ROOM)  # divided by a law next to 0 it would be beyond a float
        return float(np.ldexp(gap[a] / law[a] - gap[b] / law[b], exponent + _ROOM)) * (1.0 + 1e-12)
    bottom = law + low
    return float(np.log1p(gap[a] / bottom[a]) - np.log1p(gap[b] / bottom[b]))


def _extreme(law: Floats, change: Floats, exponent: int, a: int, b: int) -> Floats:
    """Change of the law at the past that makes Pr(a|z)/Pr(b|z) largest (Dinkelbach)."""
    up, down = change[:, :, a], change[:, :, b]
    if exponent:
        # infinitesimal changes: the ratio is linear in them
        pick = np.argmax(up * law[b] - down * law[a], axis=1)
        return np.asarray(change[np.arange(change.shape[0]), pick].sum(axis=0))
    ratio = law[a] / law[b]
    picked = np.zeros_like(law)
    for _ in range(100):
        pick = np.argmax(up - ratio * down, axis=1)
        picked = np.asarray(change[np.arange(change.shape[0]), pick].sum(axis=0))
        over, under = law[a] + picked[a], law[b] + picked[b]
        if over / under <= ratio * (1 + 1e-15):
            return picked
        ratio = over / under
    return picked


def _interval(chain: CoupledChain, age: int, *, every: bool, progress: Progress | None) -> Iterator[_AgeRanges]:
    """Boxes around the law of every sequence that hold whatever the past was; O(age * edges * m^2)."""
    s, m = chain.sequences, chain.states
    centre = np.full((s, m), 1.0 / m)
    above, below = np.full((s, m), 1.0 - 1.0 / m), np.full((s, m), 1.0 / m)
    exponent = 0
    degree = int(np.max(np.diff(chain.edge_starts)))
    outward = 1.0 + 4.0 * UNIT * (degree + 2 * m + 4)
    for n in range(1, age + 1):
        above, below = _box_step(chain, above, below, outward)
        centre = _evolve(chain, centre)
        if 0 < above.max() < 2.0**-400:
            above, below, exponent = np.ldexp(above, 600), np.ldexp(below, 600), exponent - 600
        if progress is not None:
            progress("lineage", n, age)
        if every or n == age:
            ranges, pairs = _box_ranges(centre, above, below, exponent)
            yield ranges * (1.0 + 8.0 * UNIT * n * (degree + m)), pairs


def _evolve(chain: CoupledChain, centre: Floats) -> Floats:
    """The law of every sequence one step later."""
    table = chain.transition_table[0]
    if table.shape[0] > 1:
        centre = chain.evolve(centre, 1)
    else:
        # Column by column: products with a small matrix are slow for a million rows.
        mixed = [sum(centre[:, c] * table[0, c, a] for c in range(chain.states)) for a in range(chain.states)]
        centre = np.column_stack([chain.sparse_coupling @ column for column in mixed])
    total = centre[:, 0].copy()
    for a in range(1, chain.states):
        total += centre[:, a]
    return np.asarray(centre / total[:, None])


def _box_ranges(centre: Floats, above: Floats, below: Floats, exponent: int) -> tuple[Floats, Indices]:
    """The log-odds range of every box, and the two most distinguishable states."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        up, down = above / centre, below / centre
        real_up, real_down = np.ldexp(up, exponent), np.ldexp(down, exponent)
        cost = np.log1p(real_up) - np.log1p(-np.minimum(real_down, 1.0))
        if exponent:
            tiny = np.maximum(real_up, real_down) < 1e-12
            cost = np.where(tiny, np.ldexp(up + down * (1 + 1e-12), exponent), cost)
    cost = np.where(centre + above <= 0, 0.0, cost)  # a state that cannot occur is no secret
    if cost.shape[1] == 2:
        return cost[:, 0] + cost[:, 1], np.where((cost[:, 0] > cost[:, 1])[:, None], [1, 0], [0, 1])
    pairs = np.argsort(cost, axis=1)[:, -2:]
    return np.take_along_axis(cost, pairs, axis=1).sum(axis=1), pairs


def _box_step(chain: CoupledChain, above: Floats, below: Floats, outward: float) -> tuple[Floats, Floats]:
    """Push zero-sum boxes one step: the best and the worst redistribution of mass among the states of a source."""
    table, which = chain.transition_table
    m = chain.states
    up, down = np.zeros_like(above), np.zeros_like(below)
    if table.shape[0] == 1:
        for a in range(m):
            gain = _best_shift(table[0][:, a], above, below)
            loss = _best_shift(-table[0][:, a], above, below)
            up[:, a], down[:, a] = chain.sparse_coupling @ gain, chain.sparse_coupling @ loss
        return up * outward, down * outward
    sources, targets = chain.edge_sources, chain.edge_targets
    for kind in range(table.shape[0]):
        edges = np.flatnonzero(which == kind)
        nodes, place = np.unique(sources[edges], return_inverse=True)
        for a in range(m):
            for out, sign in ((up, 1.0), (down, -1.0)):
                best = _best_shift(sign * table[kind][:, a], above[nodes], below[nodes])
                np.add.at(out[:, a], targets[edges], chain.edge_weights[edges] * best[place])
    return up * outward, down * outward


def _best_shift(worth: Floats, above: Floats, below: Floats) -> Floats:
    """max of sum_c worth_c delta_c over -below <= delta <= above, sum delta = 0, for every sequence (rows)."""
    if worth.size == 2:
        best = int(np.argmax(worth))
        return np.asarray(np.minimum(above[:, best], below[:, 1 - best]) * abs(worth[0] - worth[1]))
    order = np.argsort(-worth)
    floor = worth[order[-1]]
    # Start with everything at -below, hand the freed mass to the most worthy states first.
    left = below.sum(axis=1)
    total = np.zeros(above.shape[0])
    for c in order:
        room = np.minimum(above[:, c] + below[:, c], left)
        total += (worth[c] - floor) * (room - below[:, c])
        left = left - room
    return np.asarray(np.maximum(total, 0.0))
