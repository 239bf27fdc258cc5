"""Intervals around the law of a sequence in its slice, given all others in the slice and any past; used by `slice`.

One step: given the newer slice, the law of each source is tilted by the likelihoods of its children, which moves the
odds of a state against the rest by at most e^T. The law of the target is a mixture over that box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from csdp.arrays import UNIT, Bools, Floats, Indices
from csdp.bounds.slice.local_numbers import BLOCK, LocalNumbers, logit_distance, over_states

#: Tilts beyond this say nothing any more.
_LARGEST_TILT = 300.0


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

    def full_spread(self) -> Floats:
        """The largest log-odds range of any two laws in the box; (s,)."""
        whole = np.maximum(self.high - self.low, self.width) * (1.0 + 8 * UNIT)
        return Boxes(self.low, self.high, whole).spread(whole)

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

    def block(self, start: int) -> MixtureCells:
        """Some of the cells."""
        part = slice(start, start + BLOCK)
        out = MixtureCells(self.source[part], self.kind[part], self.tilt[part], None)
        out.__dict__["growth"] = tuple(values[part] for values in self.growth)
        return out

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
    """T_k: the sum of tau over the children of each edge's source, without the edge's own target where `leave_out`."""
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
    parts = np.empty((cells.source.size, chain.states * 3))
    for start in range(0, cells.source.size, BLOCK):  # small blocks stay in the cache
        here = cells.block(start)
        low, high, width = _tilt(boxes, here)
        for state in range(chain.states):
            mixture = _mixtures(chain.transition_table[0], here.kind, low, high, width, state)
            for place, column in enumerate(mixture):
                parts[start : start + BLOCK, 3 * state + place] = column
    mixed = cells.mix @ parts  # type: ignore[operator] # scipy.sparse
    mixed = mixed.reshape(-1, chain.states, 3)
    lower = np.maximum(mixed[:, :, 0] / local.outward, local.low)
    upper = np.minimum(mixed[:, :, 1] * local.outward, local.high)
    apart = np.maximum(upper - lower, 0.0) * (1.0 + 4 * UNIT) + 2 * UNIT * upper
    return Boxes(lower, upper, np.minimum(mixed[:, :, 2] * local.outward, np.minimum(apart, local.width)))


def _next_of_two(local: LocalNumbers, cells: MixtureCells, boxes: Boxes) -> Boxes:
    """The same for two states, where the lower ends say all: the upper end of one is the rest of the other."""
    parts = np.empty((cells.source.size, 3))
    table = local.chain.transition_table[0]
    for start in range(0, cells.source.size, BLOCK):
        here = cells.block(start)
        low, apart = _tilt_two(boxes, here)
        out = parts[start : start + BLOCK]
        for state in range(2):
            worth = table[:, :, state]
            top = np.argmax(worth, axis=1)
            if len(table) == 1:
                end, most, least = low[:, top[0]], float(worth.max()), float(worth.min())
            else:
                end = np.where(top[here.kind] == 1, low[:, 1], low[:, 0])
                most, least = worth.max(axis=1)[here.kind], worth.min(axis=1)[here.kind]
            out[:, state] = least * (1.0 - end) * (1.0 - 4 * UNIT) + most * end
        out[:, 2] = np.ptp(table, axis=1).max(axis=1)[here.kind] * apart
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
    if cells.tilt.max() > _LARGEST_TILT:
        lower = np.where((cells.tilt > _LARGEST_TILT)[:, None], (low >= 1.0) * 1.0, lower)
    apart = np.minimum(apart, np.maximum(1.0 - lower[:, 0] - lower[:, 1], 0.0) + 4 * UNIT)
    if cells.tilt.min() == 0:
        still = cells.tilt == 0
        lower, apart = np.where(still[:, None], low, lower), np.where(still, width, apart)
    return lower, apart


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


def _pick(
    worth: Floats, chosen: Indices, kind: Indices, low: Floats, room: Floats
) -> tuple[Floats | float, Floats, Floats]:
    """Worth, lower end and room of the state that each cell's matrix puts at one place of the order."""
    if len(worth) == 1:
        c = int(chosen[0])
        return float(worth[0, c]), low[:, c], room[:, c]
    c_of = chosen[kind]
    rows = np.arange(len(low))
    return worth[kind, c_of], low[rows, c_of], room[rows, c_of]
