"""The recursion on a graph with own lag blocks: sharper than `csdp.bounds.graph` for sequences that remember.

For two states and short memory. Where `GraphRule` bounds a change of one value and adds up what its children pass on,
this rule keeps a bound for every change of a sequence's own values in all L unfinished slices at once:

    B_k(z, z') >= ln F(z', rest) / F(z, rest),    z, z' of 2^L,

with F the likelihood of everything published, older slices integrated out, without the costs of unfinished slices. They
are added coordinate by coordinate when a slice is finished: that covers releases that read several slices too, because
every step below bounds the joint change of a value in the laws and in what is read.

Integrating the value w of sequence j at the oldest unfinished slice:
- for another sequence, a joint change of its newer values moves the law of w. The likelihood is a function of w of log
  range B_j of w alone, so ln(1 + delta E / (1 + base E)) is added, as in the plain rule, once for the joint change;
- for j itself, from newer own values s to t, the largest ratio of sum_w P(w|t) G(t,w) to sum_w P(w|s) G(s,w) over the
  laws and all G within B_j. With r = G(s,1) / G(s,0), G(t,w) is at most the least over i of e^(B(si, tw)) G(s,i). The
  ratio rises with r up to the first point where one of these least values changes its i, falls from the second on, and
  is monotone between: its maximum is at one of the two, or at the end of r next to it, and at a corner of the laws.

It is never above the plain rule: by induction B_k(z, z') is at most the sum of the plain bounds over the values that
change, since the plain rule goes through the same joint changes one value at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from csdp.bounds.graph import SlicesRule
from csdp.chain.graph import Limits, Mixture, Odds, Window
from csdp.numbers import UNIT, Floats, Indices

#: Longest memory for which blocks are kept.
BLOCK_MEMORY = 4
#: Pairs of a child and a parent, times pairs of own values, up to which blocks are kept.
BLOCK_WORK = 60_000


def has_blocks(worlds: Sequence[Sequence[Window]]) -> bool:
    """Whether blocks are kept for a graph: two states, memory 2 to 4, not too many edges, and no limits of odds."""
    window, memory = worlds[0][-1], len(worlds[0])
    if isinstance(window, Odds) or window.states != 2 or not 2 <= memory <= BLOCK_MEMORY:
        return False
    edges = sum(each.edge_targets.size for windows in worlds for each in windows)
    return (edges + window.sequences * len(worlds)) << 2 * memory <= BLOCK_WORK


@dataclass(frozen=True)
class _Laws:
    """How own values of a parent change the law of a child, for one window.

    Group g is a child and a parent (child `children[g]`, sorted): `rises[g, z, z', c]` of the probability of c, at
    most, and `bases[g, z, c]`, at least, for the parent's newer values z; for a parent inside the tick (`inside`),
    z is its one value there. `corners[j, s, t, v]`: logs of Pr(0|s), Pr(1|s), Pr(0|t), Pr(1|t) of sequence j given its
    own newer values, at the corners of what the other parents allow.
    """

    starts: Indices
    parents: Indices
    inside: Indices
    rises: Floats
    bases: Floats
    corners: Floats
    slack: float


class BlockRule(SlicesRule):
    """The recursion of a graph of two states by own lag blocks.

    A state is (n, 2, 2): costs of L slices, the newest first, then for every sequence the pairs {z, z'} of the values
    in them, the first bit for the newest slice: B(z, z') and B(z', z) beside the diagonal.

    Args:
        worlds: by environment, the windows from the present on; at every tick the worst environment counts.

    >>> from csdp.chain import InfluenceGraph
    >>> matrix = [[0.7, 0.3], [0.3, 0.7]]
    >>> near = [(0, 0, 1, 1.0, matrix)]
    >>> far = [(0, 0, 1, 0.8, matrix), (0, 0, 2, 0.2, matrix)]
    >>> rule = BlockRule(InfluenceGraph(1, (0, 1), [near, far]).worlds)
    >>> released = 0.5 * (1 - np.eye(2))[None]
    >>> state = rule.start()
    >>> for _ in range(3):
    ...     state = rule.add(rule.advance(state), released)
    >>> round(float(rule.present(state).max()), 6)
    0.793757
    """

    def __init__(self, worlds: Sequence[Sequence[Window]]) -> None:
        super().__init__(worlds)
        self._pairs = np.triu_indices(1 << self.memory, 1)

    @cached_property
    def _laws(self) -> list[list[_Laws]]:
        """By window, of every environment."""
        return [[_laws_of(windows[n], n + 1) for windows in self._worlds] for n in range(self.memory)]

    def start(self) -> Floats:
        """The state before any release."""
        return np.zeros((self.shape[0] * (self.memory + self._pairs[0].size), 2, 2))

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        """Costs of the newest slices (L, s, 2, 2), and blocks (s, 2^L, 2^L)."""
        s, size = self.shape[0], 1 << self.memory
        queue = state[: self.memory * s].reshape(self.memory, s, 2, 2)
        packed = state[self.memory * s :].reshape(s, -1, 2, 2)
        blocks, (one, other) = np.zeros((s, size, size)), self._pairs
        blocks[:, one, other] = packed[:, :, 0, 1]
        blocks[:, other, one] = packed[:, :, 1, 0]
        return queue, blocks

    def add_everywhere(self, state: Floats, level: float) -> Floats:
        """Add what is revealed of whatever is read, at the newest slice or before: to any change of own values."""
        state = state.copy()
        state[self.memory * self.shape[0] :] += level * (1.0 - np.eye(2))
        return state

    def _step(self, state: Floats) -> Floats:
        queue, blocks = self._split(state)
        doubled = np.repeat(np.repeat(blocks, 2, axis=1), 2, axis=2)  # the new slice changes nothing so far
        blocks, (one, other) = self._finish(doubled, queue[-1], self.memory), self._pairs
        out = np.zeros_like(state)
        s = self.shape[0]
        out[s : self.memory * s] = state[: (self.memory - 1) * s]
        packed = out[self.memory * s :].reshape(s, -1, 2, 2)
        packed[:, :, 0, 1] = blocks[:, one, other]
        packed[:, :, 1, 0] = blocks[:, other, one]
        return out

    def present(self, state: Floats) -> Floats:
        """What the history reveals of the values at the newest slice, (s, 2, 2)."""
        queue, blocks = self._split(state)
        for distance in range(self.memory - 1, 0, -1):
            blocks = self._finish(blocks, queue[distance], distance)
        return np.asarray(queue[0] + blocks)

    def _finish(self, blocks: Floats, costs: Floats, distance: int) -> Floats:
        """The blocks (s, 2^d, 2^d) once the slice at distance d, their last bit, is integrated out."""
        from csdp.bounds import loops

        half = 1 << distance
        value = np.arange(2 * half) // half
        full = blocks + costs[:, value[:, None], value]
        worst = np.zeros((len(blocks), half, half))
        for laws in self._laws[distance - 1] if full.any() else ():
            out = np.zeros((len(blocks), half, half))
            loops.integrate_blocks(full.copy(), out, *vars(laws).values())
            np.maximum(worst, out, out=worst)
        return worst


def _laws_of(window: Window, distance: int) -> _Laws:
    """The laws of the values at a distance from the present, whose newest parents are at bit 0."""
    s = window.sequences
    children = window.edge_targets
    parents = window.edge_sources
    lags = window.edge_lags
    # One group for all lags of another tick, and one for lag 0.
    number = (children * s + parents) * 2 + (lags == 0)
    groups, group = np.unique(number, return_inverse=True)
    ends = groups // 2 // s, groups // 2 % s
    inside = groups % 2
    own = ends[0] == ends[1]
    bits = (np.arange(1 << distance)[:, None] >> np.arange(distance)) & 1
    values = [np.arange(1 << distance) & 1, *bits.T[::-1]]  # at lag 0 and at lags 1, 2, ... of the parent's values
    make = _of_mixture if isinstance(window, Mixture) else _of_limits
    rises, bases, corners = make(window, group, ends[0], own, values)  # type: ignore[arg-type] # each takes its own kind of window
    with np.errstate(divide="ignore"):
        logs = np.log(np.clip(corners, 0.0, None))
    degree = int(np.bincount(children, minlength=1).max(initial=1))
    slack = 8.0 * UNIT * (degree + int(np.bincount(parents, minlength=1).max(initial=1)) + distance + 16)
    other = ~own
    starts = np.searchsorted(ends[0][other], np.arange(s + 1))
    return _Laws(starts, ends[1][other], inside[other], rises[other], bases[other], logs, slack)


def _of_mixture(
    window: Mixture, group: Indices, child: Indices, own: Any, values: list[Indices]
) -> tuple[Floats, Floats, Floats]:
    """Rises, bases and corners of laws that follow one parent each: other parents move both laws of a pair alike."""
    table, which = window.transition_table
    parts = window.edge_weights[:, None, None] * table[which]  # (edges, state of the parent, c)
    s = window.sequences
    groups = len(child)
    size = values[0].size
    shares = np.zeros((groups, size, 2))
    moved = np.zeros((groups, size, size, 2))
    least = np.zeros((groups, 2))
    for lag, value in enumerate(values):
        edges = window.edge_lags == lag
        each = parts[edges][:, value]
        np.add.at(shares, group[edges], each)
        np.add.at(moved, group[edges], np.abs(each[:, None] - each[:, :, None]))
    np.add.at(least, group, parts.min(axis=1))
    others = (child[:, None] == child) & ~np.eye(groups, dtype=bool)
    bases = shares + (others @ least)[:, None]
    laws = np.zeros((s, size, 2))
    ends = np.zeros((s, 2, 2))
    laws[child[own]] = shares[own]
    foreign = window.edge_targets != window.edge_sources
    rarer = parts[:, :, 1].argmin(axis=1)
    for end, state in enumerate((rarer, 1 - rarer)):
        chosen = parts[np.arange(len(parts)), state]
        np.add.at(ends[:, end], window.edge_targets[foreign], chosen[foreign])
    each = laws[:, :, None] + ends[:, None]  # (s, z, end, c)
    corners = np.empty((s, size, size, 2, 4))
    corners[..., :2] = each[:, :, None]
    corners[..., 2:] = each[:, None]
    return shares[:, None] - shares[:, :, None] + 16.0 * UNIT * moved, bases, corners


def _of_limits(
    window: Limits, group: Indices, child: Indices, own: Any, values: list[Indices]
) -> tuple[Floats, Floats, Floats]:
    """The same within limits: own values that change one after the other add up their gains."""
    s = window.sequences
    groups = len(child)
    size = values[0].size
    flipped = window.gains.swapaxes(1, 2)[..., ::-1]  # what the other state loses, this one gains
    gains = np.minimum(np.minimum(window.gains, flipped), window.most[:, None, None, None]).clip(0.0)
    gains[:, [0, 1], [0, 1]] = 0.0
    rises = np.zeros((groups, size, size, 2))
    bases = np.zeros((groups, size, 2))
    for lag, value in enumerate(values):
        edges = window.edge_lags == lag
        np.add.at(rises, group[edges], gains[edges][:, value[:, None], value])
        np.maximum.at(bases, group[edges], window.bases[edges][:, value])
    base = np.zeros((s, size, 2))
    rise = np.zeros((s, size, size, 2))
    base[child[own]] = bases[own]
    rise[child[own]] = rises[own]
    low = base[..., 1]
    high = 1.0 - base[..., 0]
    found = []  # corners of what Pr(1|s), Pr(1|t) may be: one of them at its end, the other as far as it goes
    for p in (low[:, :, None], high[:, :, None]):
        found += [(p, np.maximum(low[:, None], p - rise[..., 0])), (p, np.minimum(high[:, None], p + rise[..., 1]))]
    for q in (low[:, None], high[:, None]):
        found += [
            (np.maximum(low[:, :, None], q - rise[..., 1]), q),
            (np.minimum(high[:, :, None], q + rise[..., 0]), q),
        ]
    corners = np.empty((s, size, size, len(found), 4))
    for v, pair in enumerate(found):
        p, q = (each + np.zeros((s, size, size)) for each in pair)
        slips = np.maximum.reduce([low[:, :, None] - p, p - high[:, :, None], low[:, None] - q, q - high[:, None]])
        # Rounding: 1 - p, where p is no exact 0 or 1, is lowered for the one and raised for the other.
        for place, each, margin in ((0, p, -4.0 * UNIT), (2, q, 4.0 * UNIT)):
            room = np.where((each > 0) & (each < 1), margin, 0.0)
            corners[:, :, :, v, place], corners[:, :, :, v, place + 1] = 1.0 - each + room, each + room
        corners[:, :, :, v, 2:][slips > 1e-9] = 0.0  # no corner
    return rises + 16.0 * UNIT * (rises > 0), bases * (1.0 - 16.0 * UNIT), corners
