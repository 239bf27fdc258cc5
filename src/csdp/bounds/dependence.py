"""How sequences of one slice depend on each other and on the past, and how that moves from slice to slice; for `slice`.

`LocalNumbers`: how strongly one sequence's next state depends on another's present. With p_j(u | w) = Pr(next_j = u |
snapshot w), linear in the one-hot snapshot, so that its extremes lie at the ends: `osc` how far w_k alone moves
p_j(u | .), `theta` the range over w_k of ln p_j(u|w)/p_j(v|w), `tau` the largest
|ln p_j(u | w_k = c)/p_j(u | w_k = c')|, and `kappa` the largest mixed second difference of ln p_j(u | w) in w_k, w_l.

`Boxes`: intervals around laws. Given the newer slice, the law of each source is tilted by the likelihoods of its
children, which moves the odds of a state against the rest by at most e^T; the law of the target is a mixture over that
box. Every number is rounded up (lower ends of intervals down).

`Form`: three ways to carry the dependence within a slice. All rest on Dobrushin's comparison of two laws: let C[k, l]
be at least the total variation by which a change of w_l moves the law of w_k given the rest, and b[k] at least the one
by which the two laws differ there. The vector a = 1 estimates their distance (|E f - E' f| <= sum_k osc_k(f) a_k), and
if a does, so does C a + b. So every iterate from a = 1 holds, whatever C is; if the row sums of C are below 1, the
iterates fall to sum_n C^n b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np

from csdp.chain import CoupledChain
from csdp.numbers import UNIT, Bools, Floats, Indices

#: Positive influences below this count as this, so that no product of them underflows unseen.
_LEAST_INFLUENCE = 1e-50
#: Entries of one block of work: what stays in the cache.
BLOCK = 2**14
#: Parents of one sequence beyond which pairs of them are bounded together.
_MANY_PARENTS = 64
#: Pairs of common parents up to which they are sorted and summed.
SORTED_PAIRS = 1_000_000
#: Tilts beyond this leave no information in a box.
_LARGEST_TILT = 300.0
#: Iterations after which an estimate is taken as it is.
_LONGEST = 200
#: Powers of the dependence that are followed one by one when a history is carried; the rest is bounded together.
_SHIFT_STEPS = 40
#: Positive total variations below this count as this, so that nothing underflows unseen.
_LEAST = 1e-250
#: Dependences kept one by one in the shared form, relative to the largest; the others count by row sums.
_KEPT = 3e-3


# ---- local numbers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalNumbers:
    """The local numbers of a chain; edges in the chain's own order, (target, source) by rows."""

    chain: CoupledChain
    low: Floats  # (s, m) least p_j(u | w), rounded down
    high: Floats  # (s, m) largest p_j(u | w)
    width: Floats  # (s, m) high - low
    osc: Floats  # (edges, m)

    @classmethod
    def of(cls, chain: CoupledChain) -> LocalNumbers:
        """Measure a chain; O(edges m^2)."""
        table, which = chain.transition_table
        weights = chain.edge_weights[:, None]
        outward = 1.0 + 4.0 * UNIT * (int(np.max(np.diff(chain.edge_starts))) + 4)
        moved = np.ptp(table, axis=1)
        if chain.states == 2:  # both move alike; next to 1 only the other one shows a tiny change
            moved = np.repeat(moved.max(axis=1, keepdims=True), 2, axis=1)
        osc = weights * moved[which]
        osc = np.where(osc > 0, np.maximum(osc * outward, _LEAST_INFLUENCE), 0.0)
        starts = chain.edge_starts[:-1]  # no row is empty: its couplings sum to 1
        low = np.add.reduceat(weights * table.min(axis=1)[which], starts, axis=0) / outward
        high = np.minimum(np.add.reduceat(weights * table.max(axis=1)[which], starts, axis=0) * outward, 1.0)
        width = np.add.reduceat(osc, starts, axis=0) * outward
        return cls(chain, low, high, width, osc)

    @cached_property
    def outward(self) -> float:
        """A factor that covers the rounding of sums over the neighbours of a sequence."""
        most = max(int(np.max(np.diff(self.chain.edge_starts))), int(np.bincount(self.chain.edge_sources).max()))
        return 1.0 + 8.0 * UNIT * (most + 2 * self.chain.states + 16)

    @cached_property
    def largest(self) -> Floats:
        """(edges,) osc, the largest over the states."""
        return over_states(self.osc)

    @cached_property
    def tau(self) -> Floats:
        """(edges,) worst |ln p_j(u | w_k = c) / p_j(u | w_k = c')|."""
        base = self.low[self.chain.edge_targets]
        with np.errstate(divide="ignore", invalid="ignore"):
            grown = np.where(self.osc > 0, self.osc / base, 0.0)
        return np.asarray(np.log1p(over_states(grown)) * (1.0 + 16 * UNIT))

    @cached_property
    def theta(self) -> Floats:
        """(edges,) range over w_k of ln p_j(u | w) / p_j(v | w), the worst u and v."""
        chain, targets = self.chain, self.chain.edge_targets
        if chain.states == 2:
            return logit_distance(self.low[targets], self.largest)
        out = np.empty(chain.edges)
        height = max(1, 8 * BLOCK // chain.states**3)
        for start in range(0, chain.edges, height):
            part = slice(start, start + height)
            out[part] = self._theta_of_many_states(part, targets[part])
        return out

    def _theta_of_many_states(self, part: slice, targets: Indices) -> Floats:
        """p(u) and p(v) each at its own end: they need not get there together."""
        table, which = self.chain.transition_table
        weight = self.chain.edge_weights[part, None, None]
        lifted = weight * (table - table.min(axis=1, keepdims=True))[which[part]]  # (n, state of k, u)
        gain = weight[:, None] * np.maximum(table[:, :, None] - table[:, None, :], 0.0)[which[part]]  # (n, c, c', u)
        base = (self.low[targets][:, None, :] + lifted * (1.0 - 4 * UNIT))[:, None, :, :]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(gain > 0, gain / base, 0.0)
        best = np.log1p(ratio.max(axis=3) * (1.0 + 16 * UNIT))
        return np.asarray((best + best.transpose(0, 2, 1)).max(axis=(1, 2)) * (1.0 + 16 * UNIT))

    def pairs(self) -> Iterator[tuple[Indices, Floats]]:
        """Blocks of targets with equally many parents: edges (n, d), and e^kappa - 1 of all pairs of parents (n, d, d).

        kappa_j(k, l) = ln(1 + o_k o_l / (low (low + o_k + o_l))), the worst state u; 0 for k = l.
        """
        for targets, edges in self._with_parents():
            yield edges, self.excess(targets, edges)

    def _with_parents(self) -> Iterator[tuple[Indices, Indices]]:
        """Blocks of targets with equally many parents, two or more, and their edges (n, d); pairs fit the cache."""
        counts = np.diff(self.chain.edge_starts)
        for degree in np.unique(counts[counts > 1]):
            of_degree = np.flatnonzero(counts == degree)
            height = max(1, 4 * BLOCK // int(degree) ** 2)
            for start in range(0, of_degree.size, height):
                targets = of_degree[start : start + height]
                yield targets, self.chain.edge_starts[targets][:, None] + np.arange(degree)

    def excess(self, targets: Indices, edges: Indices) -> Floats:
        """e^kappa - 1 for all pairs of the parents of some targets: (n, d, d)."""
        out = np.zeros((*edges.shape, edges.shape[1]))
        binary = self.chain.states == 2  # both states move alike: the rarer one decides
        for state in range(1 if binary else self.chain.states):
            first = self.largest[edges] if binary else self.osc[edges, state]
            base = (self.low[targets].min(axis=1) if binary else self.low[targets, state])[:, None, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                product = first[:, :, None] * first[:, None, :]
                ratio = product / (base * (base + first[:, :, None] + first[:, None, :]))
            np.maximum(out, np.where(product > 0, ratio, 0.0), out=out)
        out *= 1.0 + 16 * UNIT
        out[:, np.arange(edges.shape[1]), np.arange(edges.shape[1])] = 0.0
        return out

    @property
    def pair_count(self) -> int:
        """How many numbers kappa has."""
        return int((np.diff(self.chain.edge_starts).astype(np.int64) ** 2).sum())

    def kappa_matrix(self) -> Any:
        """kappa(k, l), summed over the common children of k and l: scipy.sparse (s, s)."""
        from scipy.sparse import coo_array

        sources, s = self.chain.edge_sources, self.chain.sequences
        first = [np.zeros(0, dtype=np.intp)]
        second = [np.zeros(0, dtype=np.intp)]
        kappa = [np.zeros(0)]
        for edges, excess in self.pairs():
            parents = sources[edges]
            first.append(np.broadcast_to(parents[:, :, None], excess.shape)[excess > 0])
            second.append(np.broadcast_to(parents[:, None, :], excess.shape)[excess > 0])
            kappa.append(np.log1p(excess[excess > 0]) * self.outward)
        place = (np.concatenate(first), np.concatenate(second))
        return coo_array((np.concatenate(kappa), place), shape=(s, s)).tocsr()

    def kappa_row_sums(self) -> Floats:
        """(s,) at least sum over l of tanh(kappa(k, l) / 4).

        Beyond a million pairs child by child, from tanh(x + y) <= tanh x + tanh y: nothing has to be sorted.
        """
        if self.pair_count <= SORTED_PAIRS:
            together = self.kappa_matrix()
            together.data = np.tanh(together.data / 4.0) * (1.0 + 8 * UNIT)
            return np.asarray(together.sum(axis=1) * self.outward)
        sums = np.zeros(self.chain.edges)
        for targets, edges in self._with_parents():
            if edges.shape[1] > _MANY_PARENTS:
                sums[edges] = self._kappa_sum_of_many(targets, edges)
                continue
            grown = self.excess(targets, edges)
            with np.errstate(invalid="ignore"):
                root = np.sqrt(1.0 + grown) + 1.0
                # tanh(ln(1 + x) / 4) = (sqrt(1 + x) - 1) / (sqrt(1 + x) + 1)
                grown = np.where(np.isinf(grown), 1.0, grown / root / root)
            sums[edges] = grown.sum(axis=2)
        total = np.bincount(self.chain.edge_sources, weights=sums, minlength=self.chain.sequences)
        return np.asarray(total * self.outward)

    def _kappa_sum_of_many(self, targets: Indices, edges: Indices) -> Floats:
        """From tanh(kappa / 4) <= (e^kappa - 1) / 4, o_l left out below, at the worst low; O(d) for d parents."""
        moving = self.osc[edges].max(axis=1) > 0  # (n, m): a state that no parent moves reveals nothing
        base = np.where(moving, self.low[targets], np.inf).min(axis=1)[:, None]
        first = self.largest[edges]
        with np.errstate(divide="ignore", invalid="ignore"):
            total = first.sum(axis=1, keepdims=True)
            rest = np.maximum(total - first, 0.0) + total * (self.outward - 1.0)
            each = first * rest / (4.0 * base * (base + first))
        return np.where(first > 0, each, 0.0) * self.outward


def over_states(values: Floats) -> Floats:
    """The largest along the last axis, column by column: numpy reduces short rows slowly."""
    out = values[..., 0].copy()
    for state in range(1, values.shape[-1]):
        np.maximum(out, values[..., state], out=out)
    return out


def logit_distance(low: Floats, moved: Floats) -> Floats:
    """Two states: the largest logit distance of two laws in [low_1, 1 - low_0], `moved` apart; (..., 2) -> (...).

    The logit is steepest at the ends, so the worst pair starts at one of them.
    """
    best = np.zeros(moved.shape)
    for one, other in ((0, 1), (1, 0)):
        base, rest = low[..., one], low[..., other]
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.log1p(moved / base)
            part = np.minimum(moved / (1.0 - base) * (1.0 + 8 * UNIT), 1.0)
            down = np.minimum(-np.log1p(-part), np.log((1.0 - base) / rest) + 8 * UNIT)
            distance = (up + down) * (1.0 + 16 * UNIT)
        # Nothing moves: no distance. Something moves from a state of probability 0: no bound.
        distance = np.where(moved > 0, np.where((base > 0) & (rest > 0), distance, np.inf), 0.0)
        best = np.maximum(best, distance)
    return best


# ---- intervals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boxes:
    """For every sequence and state: bounds on its probability, and on how far apart two such probabilities lie."""

    low: Floats  # (s, m)
    high: Floats
    width: Floats

    def spread(self, moved: Floats, rows: Indices | slice | int = slice(None)) -> Floats:
        """The largest log-odds range of two laws in the box of `rows` whose states lie `moved` (..., m) apart."""
        low, high, width = self.low[rows], self.high[rows], self.width[rows]
        if low.shape[-1] == 2:
            return logit_distance(low, np.minimum(over_states(moved), over_states(width)))
        return np.asarray(np.sort(_log_growth(low, high, np.minimum(moved, width)), axis=-1)[..., -2:].sum(axis=-1))

    def worst_states(self, moved: Floats) -> Indices:
        """The two most distinguishable states of every sequence; (s, 2)."""
        if self.low.shape[1] == 2:
            return np.broadcast_to(np.array([0, 1], dtype=np.intp), (len(self.low), 2))
        growth = _log_growth(self.low, self.high, np.minimum(moved, self.width))
        return np.argsort(growth, axis=-1, kind="stable")[:, -2:]

    def slopes(self) -> Floats:
        """(s, m): what a change of each state's probability adds to a log-odds range, at most, per unit."""
        with np.errstate(divide="ignore"):
            if self.low.shape[1] == 2:
                steepest = over_states(1.0 / (self.low * (1.0 - self.low))) * (1.0 + 8 * UNIT)
                return np.column_stack([steepest, steepest])
            return np.asarray(np.where(self.high > 0, 1.0 / self.low, 0.0) * (1.0 + 8 * UNIT))


def hull(boxes: Sequence[Boxes]) -> Boxes:
    """Boxes that hold every law of any of them; `width` still is between two laws of one of them."""
    return Boxes(
        np.minimum.reduce([box.low for box in boxes]),
        np.maximum.reduce([box.high for box in boxes]),
        np.maximum.reduce([box.width for box in boxes]),
    )


def _log_growth(low: Floats, high: Floats, moved: Floats) -> Floats:
    """ln((low + moved) / low); none for states that cannot occur or do not move."""
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.log1p(moved / low) * (1.0 + 16 * UNIT)
    return np.where((moved > 0) & (high > 0), growth, 0.0)


@dataclass(frozen=True)
class MixtureCells:
    """Distinct (source, transition matrix, tilt) of the couplings, and the weights that mix them into the targets."""

    source: Indices
    kind: Indices
    tilt: Floats
    mix: object  # scipy.sparse (s, cells)

    @cached_property
    def growth(self) -> tuple[Floats, Floats]:
        """e^T - 1 and e^2T - 1, as columns."""
        bounded = np.minimum(self.tilt, _LARGEST_TILT)[:, None]
        return np.expm1(bounded), np.expm1(2.0 * bounded)

    @classmethod
    def by_edge(cls, local: LocalNumbers) -> MixtureCells:
        """One for every coupling: the target itself is left out of the children that tilt its source."""
        chain = local.chain
        kind = np.zeros(chain.edges, dtype=np.intp) + chain.transition_table[1]
        every = np.arange(chain.edges)
        return cls(chain.edge_sources, kind, _tilts(local, every, leave_out=every >= 0), _mixing(local, every))

    @classmethod
    def by_source(cls, local: LocalNumbers) -> MixtureCells:
        """One for every source and matrix: only a sequence that follows itself is left out of its own children."""
        chain = local.chain
        own = chain.edge_sources == chain.edge_targets
        key = (chain.edge_sources * 2 + own) * len(chain.transition_table[0]) + chain.transition_table[1]
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        tilt = _tilts(local, first, leave_out=own[first])
        return cls(chain.edge_sources[first], chain.transition_table[1][first], tilt, _mixing(local, place.ravel()))


def _mixing(local: LocalNumbers, place: Indices) -> object:
    from scipy.sparse import csr_array

    chain = local.chain
    return csr_array((chain.edge_weights, place, chain.edge_starts), shape=(chain.sequences, int(place.max()) + 1))


def _tilts(local: LocalNumbers, edges: Indices, *, leave_out: Bools) -> Floats:
    """T_k: the sum of tau over the children of each edge's source, without the edge's own target if `leave_out`."""
    chain, tau = local.chain, local.tau
    finite = np.isfinite(tau)
    s = chain.sequences
    total = np.bincount(chain.edge_sources, weights=np.where(finite, tau, 0.0), minlength=s)
    endless = np.bincount(chain.edge_sources, weights=~finite, minlength=s)
    positive = np.bincount(chain.edge_sources, weights=tau > 0, minlength=s)
    source, own = chain.edge_sources[edges], tau[edges]
    out = np.where(leave_out & np.isfinite(own), own, 0.0)
    rest = np.maximum(total[source] - out, 0.0) + total[source] * (local.outward - 1.0)
    rest = np.where(endless[source] - (leave_out & np.isinf(own)) > 0, np.inf, rest)
    return np.where(positive[source] - (leave_out & (own > 0)) > 0, rest, 0.0)


def first_boxes(local: LocalNumbers) -> Boxes:
    """The first slice: sequences are independent given the past, and p_j(. | z) lies in its range."""
    return Boxes(local.low, local.high, local.width)


def next_boxes(local: LocalNumbers, cells: MixtureCells, boxes: Boxes) -> Boxes:
    """The boxes of the next slice, never wider than the range of p_j."""
    chain = local.chain
    if chain.states == 2:
        return _next_of_two(local, cells, boxes)
    low, high, width = _tilt(boxes, cells)
    table, states = chain.transition_table[0], range(chain.states)
    parts = np.column_stack(
        [part for state in states for part in _mixtures(table, cells.kind, low, high, width, state)]
    )
    mixed = cells.mix @ parts  # type: ignore[operator] # scipy.sparse
    mixed = mixed.reshape(-1, chain.states, 3)
    lower = np.maximum(mixed[:, :, 0] / local.outward, local.low)
    upper = np.minimum(mixed[:, :, 1] * local.outward, local.high)
    apart = np.maximum(upper - lower, 0.0) * (1.0 + 4 * UNIT) + 2 * UNIT * upper
    return Boxes(lower, upper, np.minimum(mixed[:, :, 2] * local.outward, np.minimum(apart, local.width)))


def _next_of_two(local: LocalNumbers, cells: MixtureCells, boxes: Boxes) -> Boxes:
    """The same for two states, from the lower ends alone: the upper end of one is the rest of the other."""
    table, (low, apart) = local.chain.transition_table[0], _tilt_two(boxes, cells)
    parts = np.empty((cells.source.size, 3))
    for state in range(2):
        worth = table[:, :, state]
        end = np.where(np.argmax(worth, axis=1)[cells.kind] == 1, low[:, 1], low[:, 0])
        most, least = worth.max(axis=1)[cells.kind], worth.min(axis=1)[cells.kind]
        parts[:, state] = least * (1.0 - end) * (1.0 - 4 * UNIT) + most * end
    parts[:, 2] = np.ptp(table, axis=1).max(axis=1)[cells.kind] * apart
    mixed = cells.mix @ parts  # type: ignore[operator] # scipy.sparse
    lower = np.maximum(mixed[:, :2] / local.outward, local.low)
    upper = np.minimum(1.0 - lower[:, ::-1] + 2 * UNIT, local.high)
    gap = np.maximum(1.0 - lower[:, 0] - lower[:, 1], 0.0) + 4 * UNIT
    width = np.minimum(np.minimum(mixed[:, 2] * local.outward, gap), over_states(local.width))
    return Boxes(lower, upper, np.column_stack([width, width]))


def _tilt_two(boxes: Boxes, cells: MixtureCells) -> tuple[Floats, Floats]:
    """Lower ends (n, 2) and width (n,) with the odds moved by e^T either way."""
    low, width = boxes.low[cells.source], boxes.width[cells.source, 0]
    growth, twice = cells.growth
    lower = low / (1.0 + (1.0 - low) * growth) * (1.0 - 32 * UNIT)
    first, second, moved = low[:, 0], low[:, 1], growth[:, 0]
    apart = width + (1.0 - first) * (1.0 - second) * twice[:, 0]
    apart = apart / ((1.0 + first * moved) * (1.0 + second * moved)) * (1.0 + 64 * UNIT)
    lower = np.where((cells.tilt > _LARGEST_TILT)[:, None], (low >= 1.0) * 1.0, lower)
    apart = np.minimum(apart, np.maximum(1.0 - lower[:, 0] - lower[:, 1], 0.0) + 4 * UNIT)
    still = cells.tilt == 0
    return np.where(still[:, None], low, lower), np.where(still, width, apart)


def _tilt(boxes: Boxes, cells: MixtureCells) -> tuple[Floats, Floats, Floats]:
    """Odds moved by e^T either way."""
    low, high, width = (part[cells.source] for part in (boxes.low, boxes.high, boxes.width))
    tilt = cells.tilt[:, None]
    growth, twice = cells.growth
    lower = low / (1.0 + (1.0 - low) * growth)
    upper = high * (1.0 + growth) / (1.0 + high * growth)
    # (H - L + H (1 - L)(e^2T - 1)) / ((1 + H (e^T - 1)) (1 + (1 - L)(e^T - 1))), its denominator from below
    apart = (width + high * (1.0 - low) * twice) / ((1.0 + low * growth) * (1.0 + (1.0 - high) * growth))
    lower = np.where(tilt > _LARGEST_TILT, (low >= 1.0) * 1.0, lower * (1.0 - 32 * UNIT))
    upper = np.where(tilt > _LARGEST_TILT, (high > 0.0) * 1.0, np.minimum(upper * (1.0 + 32 * UNIT), 1.0))
    apart = np.minimum(apart * (1.0 + 64 * UNIT), (upper - lower) * (1.0 + 4 * UNIT) + 2 * UNIT * upper)
    still = tilt == 0
    return np.where(still, low, lower), np.where(still, high, upper), np.where(still, width, apart)


def _mixtures(
    table: Floats, kind: Indices, low: Floats, high: Floats, width: Floats, state: int
) -> tuple[Floats, Floats, Floats]:
    """Least and largest sum_c P[c, state] q_c over box and simplex, and how far apart two such sums lie; per cell."""
    m = low.shape[1]
    worth = table[:, :, state]
    order = np.argsort(worth, axis=1)
    slack = 8 * m * UNIT
    room = np.maximum(high - low, 0.0)
    free = 1.0 - _row_sums(low)
    least, most = np.zeros(len(low)), np.zeros(len(low))
    left_low, left_high = np.maximum(free - slack, 0.0), np.maximum(free, 0.0) + slack
    for step in range(m):
        price, base, space = _pick(worth, order[:, step], kind, low, room)
        mass = np.minimum(space, left_low)
        least += price * (base + mass)
        left_low = left_low - mass
        price, base, space = _pick(worth, order[:, m - 1 - step], kind, low, room)
        mass = np.minimum(space + slack, left_high)
        most += price * (base + mass)
        left_high = left_high - mass
    total = _row_sums(width)
    shift = np.minimum(total / 2.0, total - over_states(width)) + 4 * m * UNIT * total
    return least, most, np.ptp(worth, axis=1)[kind] * shift * (1.0 + 8 * m * UNIT)


def _row_sums(values: Floats) -> Floats:
    total = values[:, 0].copy()
    for state in range(1, values.shape[1]):
        total += values[:, state]
    return total


def _pick(worth: Floats, chosen: Indices, kind: Indices, low: Floats, room: Floats) -> tuple[Floats, Floats, Floats]:
    """Worth, lower end and room of the state that each cell's matrix puts at one place of the order."""
    c_of = chosen[kind]
    rows = np.arange(len(low))
    return worth[kind, c_of], low[rows, c_of], room[rows, c_of]


# ---- dependence ------------------------------------------------------------------------------------------------------


class Form(Protocol):
    """What is known of the dependence within a slice, and how it moves to the next one."""

    name: str
    cells: MixtureCells

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """(s, m) how far a change of the past moves the laws of the next slice, whose boxes are given."""
        ...

    def shift(self, cause: Floats) -> Floats:
        """(s, m) how far laws of this slice that differ by `cause` (s,) in each sequence move those of the next."""
        ...

    def take_worst(self, others: Sequence[Any]) -> None:
        """Carry the worst of what forms of the same kind, of other chains, know of the dependence in this slice."""
        ...


def distance(ranges: Floats) -> Floats:
    """tanh(G / 4): a log-odds range G moves total variation by at most this."""
    moved = np.minimum(np.tanh(ranges / 4.0) * (1.0 + 8 * UNIT), 1.0)
    return np.where(ranges > 0, np.maximum(moved, _LEAST), 0.0)


class MatrixForm:
    """One matrix C for every target, its own likelihood left out: the sharpest, O(s^3) a slice."""

    name = "matrix"

    def __init__(self, local: LocalNumbers) -> None:
        self.cells = MixtureCells.by_edge(local)
        self._local = local
        chain = local.chain
        s = chain.sequences
        self._evidence = np.zeros((s, s))  # [j, k]: what x_j reveals of w_k
        self._evidence[chain.edge_targets, chain.edge_sources] = distance(local.theta)
        # kappa summed over children: the finite ones, how many are infinite, how many positive
        self._finite, self._endless, self._number = np.zeros((s, s)), np.zeros((s, s)), np.zeros((s, s))
        for target in range(s):
            grid, kappa = self._kappa(target)
            self._finite[grid] += np.where(np.isfinite(kappa), kappa, 0.0)
            self._endless[grid] += np.isinf(kappa)
            self._number[grid] += kappa > 0
        self._gamma = np.zeros((s, s))
        self._reached: tuple[Floats, Floats] | None = None
        self._row_sum = 0.0

    def _kappa(self, target: int) -> tuple[Any, Floats]:
        chain = self._local.chain
        edges = np.arange(chain.edge_starts[target], chain.edge_starts[target + 1])
        excess = self._local.excess(np.array([target]), edges[None])[0]
        parents = chain.edge_sources[edges]
        return np.ix_(parents, parents), np.asarray(np.log1p(excess) * (1.0 + 8 * UNIT))

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        s, shared = self._gamma.shape[0], self._shared()
        causes = np.column_stack([distance(ranges), self._evidence.T])
        estimates = _estimates(shared, causes)
        moved, gamma = np.zeros_like(boxes.low), np.zeros((s, s))
        for target in range(s):
            shifts = _shifts(self._first_reach(target), self._without_target(target, shared), causes, estimates)
            moved[target] = shifts[:, 0]
            gamma[target] = boxes.spread(np.broadcast_to(shifts[:, 1:].T, (s, boxes.low.shape[1])), target)
        np.fill_diagonal(gamma, 0.0)
        self._gamma, self._reached = gamma, None
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        rows, tails = self._reach()
        ceiling = _ceiling(cause, self._row_sum, 1.0)
        moved = (rows @ cause + tails * ceiling) * (1.0 + 4 * UNIT * (cause.size + 8))
        return np.broadcast_to(moved.T, (cause.size, self._local.chain.states))

    def take_worst(self, others: Sequence[MatrixForm]) -> None:
        """As in the protocol."""
        self._gamma, self._reached = np.maximum.reduce([form._gamma for form in others]), None

    def _reach(self) -> tuple[Floats, Floats]:
        """osc D of every target, (m or 1, s, s), cut off when the rest, (m or 1, s), is small; once per slice."""
        if self._reached is None:
            s, shared = self._gamma.shape[0], self._shared()
            self._row_sum = float(shared.sum(axis=1).max()) * (1.0 + 4 * UNIT * s)
            kinds = 1 if self._local.chain.states == 2 else self._local.chain.states
            rows, tails = np.zeros((kinds, s, s)), np.zeros((kinds, s))
            for target in range(s):
                influence, now = self._without_target(target, shared), self._first_reach(target)
                for _ in range(_SHIFT_STEPS):
                    rows[:, target] += now
                    now = now @ influence
                    if float(now.sum()) <= 1e-15 * float(rows[:, target].sum()):
                        break
                tails[:, target] = now.sum(axis=1)
            self._reached = rows * (1.0 + 4 * UNIT * s * 8), tails * (1.0 + 4 * UNIT * s * 8)
        return self._reached

    def _shared(self) -> Floats:
        """C with the likelihoods of all targets."""
        shared = distance(np.where(self._endless > 0, np.inf, self._gamma + self._finite * self._local.outward))
        np.fill_diagonal(shared, 0.0)
        return shared

    def _first_reach(self, target: int) -> Floats:
        """osc of p_target(a | .) in every coordinate: one row for two states (they mirror each other), else m."""
        chain, osc = self._local.chain, self._local.osc
        edges = slice(chain.edge_starts[target], chain.edge_starts[target + 1])
        values = osc[edges].max(axis=1, keepdims=True) if chain.states == 2 else osc[edges]
        out = np.zeros((values.shape[1], chain.sequences))
        out[:, chain.edge_sources[edges]] = values.T
        return out

    def _without_target(self, target: int, shared: Floats) -> Floats:
        """C without the likelihood of the target itself: only pairs of its parents change."""
        grid, kappa = self._kappa(target)
        if kappa.shape[0] == 1:
            return shared
        whole = self._finite[grid]
        rest = np.maximum(whole - np.where(np.isfinite(kappa), kappa, 0.0), 0.0) + whole * (self._local.outward - 1.0)
        rest = np.where(self._number[grid] - (kappa > 0) > 0, rest, 0.0)
        rest = np.where(self._endless[grid] - np.isinf(kappa) > 0, np.inf, rest)
        block = distance(self._gamma[grid] + rest)
        np.fill_diagonal(block, 0.0)
        out = shared.copy()
        out[grid] = np.minimum(block, out[grid])
        return out


def _estimates(influence: Floats, causes: Floats) -> Floats:
    """D b from above for the columns b of causes: iterates of a <- C a + b from an estimate, never above 1."""
    s = influence.shape[0]
    row_sum = float(influence.sum(axis=1).max()) * (1.0 + 4 * UNIT * s)
    grown = 1.0 + 4 * UNIT * (s + 8)
    estimate: Floats = np.tile([_ceiling(column, row_sum, 1.0) for column in causes.T], (s, 1))
    for _ in range(_LONGEST):
        following = np.minimum((influence @ estimate + causes) * grown, estimate)
        settled = bool((estimate - following <= 1e-9 * estimate.max(axis=0)).all())
        estimate = following
        if settled:
            break
    return estimate


def _shifts(reach: Floats, influence: Floats, causes: Floats, estimates: Floats) -> Floats:
    """At least osc D b for the columns b of causes: the least of sum_{n<N} osc C^n b + osc C^N (an estimate)."""
    s = influence.shape[0]
    total, now = np.zeros_like(reach), reach
    best: Floats = reach @ estimates * (1.0 + 4 * UNIT * (s + 8))
    enough = 1e-15 * float(reach.sum())
    for n in range(1, _LONGEST + 1):
        total = total + now
        now = now @ influence
        last = float(now.sum()) <= enough or n == _LONGEST
        if last or n & (n - 1) == 0:
            shift = (total @ causes + now @ estimates) * (1.0 + 4 * UNIT * (s + 8) * (n + 2))
            best = np.minimum(best, shift)
        if last:
            break
    return best


class RowSumForm:
    """Only what all others of a slice together reveal of each sequence: any number of sequences, O(edges) per slice."""

    name = "row-sum"

    def __init__(self, local: LocalNumbers) -> None:
        self.cells = MixtureCells.by_source(local)
        self._local = local
        self._kappa = local.kappa_row_sums()
        self._evidence = _evidence_sums(local)
        self._slack = np.zeros(local.chain.sequences)  # at least sum_l gamma(k, l)

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        moved = self.shift(distance(ranges))
        rows = self._rows()
        evidence = self._evidence + _product(rows, _ceiling(self._evidence, float(rows.max()), np.inf))
        self._slack = _steep_sums(self._local, boxes, evidence)
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        rows = self._rows()
        reach = np.minimum(cause + _product(rows, _ceiling(cause, float(rows.max()), 1.0)), 1.0)
        return _shift_laws(self._local, reach * self._local.outward)

    def take_worst(self, others: Sequence[RowSumForm]) -> None:
        """As in the protocol."""
        self._slack = np.maximum.reduce([form._slack for form in others])

    def _rows(self) -> Floats:
        """Row sums of C."""
        return np.asarray((self._kappa + self._slack / 4.0) * self._local.outward)


class SharedForm:
    """One sparse matrix C for all targets, no likelihood left out; what is too small to keep counts by row sums."""

    name = "shared"

    def __init__(self, local: LocalNumbers) -> None:
        from scipy.sparse import csr_array

        self.cells = MixtureCells.by_source(local)
        self._local = local
        chain = local.chain
        shape = (chain.sequences, chain.sequences)
        self._kappa = local.kappa_matrix()
        evidence = csr_array((distance(local.theta), chain.edge_sources, chain.edge_starts), shape=shape)
        self._evidence = evidence.T.tocsr()  # [k, j]: what x_j reveals of w_k
        self._evidence_sums = _evidence_sums(local)
        self._gamma = csr_array(shape)
        self._slack = np.zeros(chain.sequences)

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        moved = self.shift(distance(ranges))
        influence, rest, worst = self._influence()
        evidence = self._iterate(influence, rest, self._evidence_sums, _ceiling(self._evidence_sums, worst, np.inf))
        self._carry(influence, evidence, boxes)
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        influence, rest, worst = self._influence()
        reach = self._iterate(influence, rest, cause, _ceiling(cause, worst, 1.0))
        return _shift_laws(self._local, np.minimum(reach, 1.0))

    def take_worst(self, others: Sequence[SharedForm]) -> None:
        """As in the protocol."""
        self._slack = np.maximum.reduce([form._slack for form in others])
        self._gamma = reduce(lambda one, other: one.maximum(other), [form._gamma for form in others]).tocsr()

    def _influence(self) -> tuple[Any, Floats, float]:
        """The entries of C that are kept, what row sums count besides, and the largest row sum."""
        influence = (self._gamma + self._kappa).tocsr()
        influence.data = distance(influence.data)
        rest = self._slack / 4.0
        return influence, rest, float((influence.sum(axis=1) + rest).max()) * self._local.outward

    def _iterate(self, influence: Any, rest: Floats, cause: Floats, ceiling: float) -> Floats:
        """D cause from above: iterates of a <- C a + (what row sums count) max a + cause, from an estimate."""
        estimate = np.full(cause.size, ceiling)
        if np.isinf(ceiling) or ceiling == 0:
            return estimate
        grown = 1.0 + 4 * UNIT * (int(np.diff(influence.indptr).max()) + 8)
        for _ in range(_LONGEST):
            following = np.minimum((influence @ estimate + rest * estimate.max() + cause) * grown, estimate)
            settled = bool((estimate - following).max() <= 1e-13 * estimate.max())
            estimate = following
            if settled:
                break
        return estimate

    def _carry(self, influence: Any, evidence: Floats, boxes: Boxes) -> None:
        """gamma of the next slice: large entries one by one, the rest by row sums."""
        from scipy.sparse import csr_array

        local = self._local
        if np.isinf(evidence).any():
            self._gamma = csr_array(self._gamma.shape)
            self._slack = _steep_sums(local, boxes, evidence)
            return
        followed = now = self._evidence
        for _ in range(_LONGEST):
            now = _drop_small(influence @ now, _KEPT * float(self._evidence_sums.max()))
            if not now.nnz:
                break
            followed = followed + now
        missed = np.maximum(evidence - followed.sum(axis=1), 0.0) + evidence * (local.outward - 1.0)
        gamma = _sparse(local, _steepness(local, boxes) if local.chain.states > 2 else local.largest) @ followed
        rows = np.repeat(np.arange(local.chain.sequences), np.diff(gamma.indptr))
        moved = gamma.data * local.outward
        if local.chain.states == 2:
            gamma.data = boxes.spread(np.column_stack([moved, moved]), rows)
        else:
            full = boxes.spread(np.full_like(boxes.low, np.inf))
            gamma.data = np.minimum(moved, full[rows])
        gamma.data[rows == gamma.indices] = 0.0
        finite = gamma.data[np.isfinite(gamma.data)]
        small = gamma.data < _KEPT * float(finite.max(initial=0.0))
        dropped = np.bincount(rows[small], weights=gamma.data[small], minlength=local.chain.sequences)
        gamma.data[small] = 0.0
        gamma.eliminate_zeros()
        self._gamma = gamma
        self._slack = _steep_sums(local, boxes, missed) + dropped * local.outward


def _evidence_sums(local: LocalNumbers) -> Floats:
    """h_k = sum_j tanh(theta_jk / 4)."""
    chain = local.chain
    sums = np.bincount(chain.edge_sources, weights=distance(local.theta), minlength=chain.sequences)
    return np.asarray(sums * local.outward)


def _ceiling(cause: Floats, row_sum: float, otherwise: float) -> float:
    """An upper limit of all entries of D cause."""
    if cause.max() == 0:
        return 0.0
    return min(float(cause.max()) / (1.0 - row_sum) * (1.0 + 8 * UNIT), otherwise) if row_sum < 1 else otherwise


def _product(vector: Floats, number: float) -> Floats:
    """The product with 0 times infinity = 0: what does not depend on others is not moved by them."""
    with np.errstate(invalid="ignore"):
        return np.where((vector > 0) & (number > 0), vector * number, 0.0)


def _steepness(local: LocalNumbers, boxes: Boxes) -> Floats:
    """(edges,) more than two states: what a unit of distance at the source adds to the range of the target, at most."""
    with np.errstate(invalid="ignore"):
        each = np.where(local.osc > 0, local.osc * boxes.slopes()[local.chain.edge_targets], 0.0)
    return np.asarray(np.sort(each, axis=1)[:, -2:].sum(axis=1) * (1.0 + 8 * UNIT))


def _steep_sums(local: LocalNumbers, boxes: Boxes, vector: Floats) -> Floats:
    """(s,) what distances `vector` at the sources add to the log-odds ranges of the targets, at most."""
    if local.chain.states > 2:
        return _apply(local, _steepness(local, boxes), vector)
    moved = _apply(local, local.largest, vector)
    with np.errstate(invalid="ignore"):
        return np.where(moved > 0, moved * boxes.slopes()[:, 0] * (1.0 + 8 * UNIT), 0.0)


def _sparse(local: LocalNumbers, values: Floats) -> Any:
    from scipy.sparse import csr_array

    chain = local.chain
    return csr_array((values, chain.edge_sources, chain.edge_starts), shape=(chain.sequences, chain.sequences))


def _apply(local: LocalNumbers, values: Floats, vector: Floats) -> Floats:
    """(s,) sum over the sources of values times vector, with 0 times infinity = 0."""
    if np.isfinite(vector).all() and np.isfinite(values).all():
        return np.asarray(_sparse(local, values) @ vector * local.outward)
    with np.errstate(invalid="ignore"):
        each = values * vector[local.chain.edge_sources]
    each = np.where((values > 0) & (vector[local.chain.edge_sources] > 0), each, 0.0)
    return np.asarray(np.add.reduceat(each, local.chain.edge_starts[:-1]) * local.outward)


def _shift_laws(local: LocalNumbers, reach: Floats) -> Floats:
    """(s, m) sum_k osc_k(p_i(a | .)) reach_k."""
    if local.chain.states == 2:
        one = _apply(local, local.largest, reach)
        return np.column_stack([one, one])
    return np.column_stack([_apply(local, local.osc[:, a], reach) for a in range(local.chain.states)])


def _drop_small(matrix: Any, least: float) -> Any:
    matrix.data[matrix.data < least] = 0.0
    matrix.eliminate_zeros()
    return matrix
