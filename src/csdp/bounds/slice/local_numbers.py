"""How strongly one sequence's next state depends on another's present: the local numbers behind `slice`.

With p_j(u | w) = Pr(next_j = u | snapshot w), linear in the one-hot snapshot, so that its extremes lie at the ends:
`osc` how far w_k alone moves p_j(u | .), `theta` the range over w_k of ln p_j(u|w)/p_j(v|w), `tau` the largest
|ln p_j(u | w_k = c)/p_j(u | w_k = c')|, and `kappa` the largest mixed second difference of ln p_j(u | w) in w_k, w_l.
Every number is rounded up (lower ends of intervals down).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from csdp.arrays import UNIT, Floats, Indices
from csdp.chain import CoupledChain

#: Positive influences below this count as this, so that no product of them underflows unseen.
_LEAST_INFLUENCE = 1e-50
#: Entries of one block of work: what stays in the cache.
BLOCK = 2**14
#: Parents of one sequence beyond which pairs of them are bounded together.
_MANY_PARENTS = 64
#: Pairs of common parents up to which they are sorted and summed.
SORTED_PAIRS = 1_000_000


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
        if chain.states == 2:  # both move alike; next to 1 only the other one tells a tiny change
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
        first, second, kappa = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
        for edges, excess in self.pairs():
            parents = sources[edges]
            first.append(np.broadcast_to(parents[:, :, None], excess.shape)[excess > 0])
            second.append(np.broadcast_to(parents[:, None, :], excess.shape)[excess > 0])
            kappa.append(np.log1p(excess[excess > 0]) * self.outward)
        where = (np.concatenate(first), np.concatenate(second))
        return coo_array((np.concatenate(kappa), where), shape=(s, s)).tocsr()

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
        moving = self.osc[edges].max(axis=1) > 0  # (n, m): a state that no parent moves tells nothing
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
    if moved.ndim == 1 and moved.size > BLOCK:
        for start in range(0, moved.size, BLOCK):
            here = slice(start, start + BLOCK)
            best[here] = logit_distance(low[here], moved[here])
        return best
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
