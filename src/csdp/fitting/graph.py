"""The graph of sequences that may follow each other, and lag-1 pair counts.

Counting goes by bit planes. A plane is one bit per tick: is this sequence in this state? A count is then the number of
ones in the conjunction of two planes, 64 ticks at a time. Missing readings have no bit in any plane, so a pair skips
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain
from csdp.errors import InputError
from csdp.fitting.sample import Progress, Sample
from csdp.numbers import Floats, Indices, Ints

Neighbours = int | Literal["all"] | None | npt.NDArray[Any]

#: Sequences up to which all may follow all by default; beyond, each may follow this many beside itself.
FEW = 8
#: Couplings that "all" may ask for.
MAX_PAIRS = 4_000_000


@dataclass(frozen=True, eq=False)
class Graph:
    """The sequences that each may follow: sources[indptr[j]:indptr[j + 1]], in order, itself included."""

    indptr: Indices
    sources: Indices

    @property
    def targets(self) -> Indices:
        """The target of each edge."""
        return np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

    @property
    def pairs(self) -> Indices:
        """Target and source of each edge, (edges, 2)."""
        return np.column_stack([self.targets, self.sources])

    @property
    def degree(self) -> int:
        """The largest number of others that a sequence may follow."""
        return int(np.diff(self.indptr).max()) - 1

    def matrix(self) -> Any:
        """The graph as a scipy.sparse array, row: target."""
        from scipy.sparse import csr_array

        size = self.indptr.size - 1
        return csr_array((np.ones(self.sources.size), self.sources, self.indptr), shape=(size, size))

    def of(self, target: int) -> Indices:
        """The sources of a target."""
        return self.sources[self.indptr[target] : self.indptr[target + 1]]


def bit_planes(states: npt.NDArray[Any], m: int) -> npt.NDArray[np.uint64]:
    """Bit planes (s, m, words) of states (n, s)."""
    n, s = states.shape
    out = np.zeros((s, m, -(-n // 64) * 8), dtype=np.uint8)
    by_sequence = np.ascontiguousarray(states.T)
    for a in range(m):
        bits = np.packbits(by_sequence == a, axis=1)
        out[:, a, : bits.shape[1]] = bits
    return out.view(np.uint64)


def pair_counts(readings: Sample, graph: Graph) -> Ints:
    """Ints (edges, m, m): how often the source of an edge was in a and its target next in b."""
    from csdp.fitting import compiled

    out = np.empty((graph.sources.size, readings.m, readings.m), dtype=np.int64)
    present, following = bit_planes(readings.states[:-1], readings.m), bit_planes(readings.states[1:], readings.m)
    compiled.pair_counts(present, following, graph.targets, graph.sources, out)
    return out


def mutual_information(counts: npt.NDArray[Any]) -> Floats:
    """Mutual information (...,) in nats of tables of counts (..., m, m)."""
    table = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)

    def nlogn(x: Floats) -> Floats:
        return x * np.log(np.where(x > 0, x, 1.0))

    whole = table.sum(axis=(-1, -2))
    value = nlogn(table).sum(axis=(-1, -2)) + nlogn(whole)
    value -= nlogn(table.sum(axis=-1)).sum(axis=-1) + nlogn(table.sum(axis=-2)).sum(axis=-1)
    return np.asarray(value / np.maximum(whole, 1.0))


def complete_graph(sequences: int) -> Graph:
    """All may follow all."""
    if sequences**2 > MAX_PAIRS:
        raise InputError(
            f"neighbours: 'all' of {sequences:,} sequences are {sequences**2:,} couplings; at most {MAX_PAIRS:,}. "
            "Give a number: the others that each may follow"
        )
    return Graph(np.arange(sequences + 1) * sequences, np.tile(np.arange(sequences), sequences))


def read_neighbours(neighbours: Any, sequences: int) -> int | Graph:
    """The neighbours argument: a number of others to be chosen from the data, or a graph known beforehand."""
    if neighbours is None:
        return complete_graph(sequences) if sequences <= FEW else FEW
    if isinstance(neighbours, str):
        if neighbours != "all":
            raise InputError(f"neighbours: {neighbours!r} given; a whole number, 'all', or pairs (target, source)")
        return complete_graph(sequences)
    if isinstance(neighbours, int | np.integer) and not isinstance(neighbours, bool):
        if neighbours < 0:
            raise InputError(f"neighbours: {neighbours} given; at least 0 (each follows itself only)")
        if neighbours >= sequences - 1:
            return complete_graph(sequences)
        return int(neighbours) if neighbours else graph_of_pairs(np.empty((0, 2), dtype=np.intp), sequences)
    return graph_of_pairs(neighbours, sequences)


def graph_of_pairs(pairs: Any, sequences: int) -> Graph:
    """A graph from pairs (target, source); each may follow itself as well."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError("neighbours: a whole number, 'all', or pairs (target, source) of sequence numbers expected")
    if array.size and (array.min() < 0 or array.max() >= sequences):
        raise InputError(f"neighbours: sequence numbers lie between 0 and {sequences - 1}")
    given = array.astype(np.intp)
    own = np.arange(sequences) * (sequences + 1)
    edges = np.unique(np.concatenate([given[:, 0] * sequences + given[:, 1], own]))
    return Graph(np.searchsorted(edges, np.arange(sequences + 1) * sequences), edges % sequences)


def strongest_sources(scores: Floats, targets: Indices, others: int) -> list[Indices]:
    """For each target itself and the `others` sources with the largest score, in order; scores (targets, s)."""
    chosen = []
    for row, target in zip(scores, targets, strict=True):
        ranked = -row
        ranked[target] = -np.inf
        best = np.argpartition(ranked, others)[: others + 1]
        chosen.append(np.sort(best).astype(np.intp))
    return chosen


def screen_neighbours(readings: Sample, others: int, progress: Progress) -> Graph:
    """Everyone with the `others` sequences of largest lag-1 mutual information with its next state.

    Memory: the bit planes and one block of scores; never a count for every pair.
    """
    from csdp.fitting import compiled

    s = readings.sequences
    present, following = bit_planes(readings.states[:-1], readings.m), bit_planes(readings.states[1:], readings.m)
    whole = np.arange(readings.transitions + 1, dtype=np.float64)
    logs = whole * np.log(np.maximum(whole, 1.0))
    chosen: list[Indices] = []
    block = max(1, min(s, 4_000_000 // s, 2_000_000_000 // (s * present[0].size * readings.m)))
    for start in range(0, s, block):
        targets = np.arange(start, min(start + block, s))
        scores = np.empty((targets.size, s))
        compiled.information(present, following, targets, logs, scores)
        chosen += strongest_sources(scores, targets, others)
        progress("choosing neighbours", start + targets.size, s)
    return Graph(np.concatenate([[0], np.cumsum([c.size for c in chosen])]), np.concatenate(chosen))


def choose_graph(readings: Sample, neighbours: Any, progress: Progress) -> tuple[Graph, bool]:
    """The graph as given, or screened by lag-1 mutual information; and whether it was screened."""
    wanted = read_neighbours(neighbours, readings.sequences)
    return (wanted, False) if isinstance(wanted, Graph) else (screen_neighbours(readings, wanted, progress), True)


def count_parameters(graph: Graph, m: int) -> int:
    """Free numbers of the kernel: of each target the law of its next state, and an effect of every source."""
    degrees = np.diff(graph.indptr)
    return int((degrees * (m - 1) ** 2 + (m - 1)).sum())


def join_graphs(chains: Sequence[CoupledChain]) -> Graph:
    """The edges of all chains together, and of each sequence to itself."""
    ends = [np.column_stack([chain.edge_targets, chain.edge_sources]) for chain in chains]
    return graph_of_pairs(np.concatenate(ends), chains[0].sequences)
