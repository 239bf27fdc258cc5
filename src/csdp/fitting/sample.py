"""The readings that a chain is fitted on, checked, and the graph of the sequences that may follow each other.

Pairs are counted by bit planes. A plane is one bit per tick: is this sequence in this state? A count is then the number
of ones in the conjunction of two planes, 64 ticks at a time. Missing readings have no bit in any plane, so a pair skips
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.model import Direction
from csdp.errors import InputError
from csdp.numbers import Floats, Indices, Ints, fill_masked
from csdp.panel import Panel
from csdp.panel.panel import match_names, number_names

#: Called with what is done, how far, and out of how much.
Progress = Callable[[str, int, int], None]
States = npt.NDArray[np.int16]
Chain = CoupledChain | JointChain | EnvironmentChain
Neighbours = int | Literal["all"] | None | npt.NDArray[Any]

#: Largest number of states of a fit.
MAX_STATES = 1024
#: Sequences up to which all may follow all by default; beyond, each may follow this many beside itself.
FEW = 8
#: Couplings that "all" may ask for.
MAX_PAIRS = 4_000_000
_DISCRETISE = "Discretise first and pass the Panel"


#: Share of the past that a model is grown on; it is judged on what comes later.
GROWING = 0.65


@dataclass(frozen=True, eq=False)
class Sample:
    """States (T, s), -1 if missing, of sequences with `m` states each; newest first for a backward chain.

    `environments` (T,) are the environments under which the step that leads to each tick happens, if known.
    """

    states: States
    m: int
    names: tuple[str, ...] | None
    values: Floats | None
    direction: Direction = "forward"
    environments: Indices | None = None

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return int(self.states.shape[1])

    @property
    def transitions(self) -> int:
        """Number of steps from one tick to the next."""
        return int(self.states.shape[0]) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the sequences, x1, x2, ... if none are given."""
        return self.names or number_names(self.sequences)

    @cached_property
    def has_gaps(self) -> bool:
        """Whether readings are missing."""
        return bool((self.states < 0).any())

    def arrange(self, names: tuple[str, ...]) -> Sample:
        """The same readings with the sequences in the order of a chain's names."""
        hint = "Give the same sequences, or make the chain with the names of the data"
        place = match_names(self.labels, names, what="data", hint=hint)
        if place is None:
            return self
        return replace(
            self,
            states=np.ascontiguousarray(self.states[:, place]),
            names=names,
            values=None if self.values is None else self.values[place],
        )

    def of(self, chosen: Indices) -> Sample:
        """The readings of some sequences."""
        values = self.values if self.values is None or self.values.ndim == 1 else self.values[chosen]
        names = tuple(self.labels[j] for j in chosen)
        return replace(self, states=np.ascontiguousarray(self.states[:, chosen]), names=names, values=values)

    def between(self, start: int, stop: int) -> Sample:
        """The readings of some ticks."""
        path = None if self.environments is None else self.environments[start:stop]
        return replace(self, states=self.states[start:stop], environments=path)

    def in_direction(self, direction: Direction) -> Sample:
        """The same readings in the order in which a chain of that direction reads them."""
        if direction == self.direction:
            return self
        path = None if self.environments is None else self.environments[::-1]
        return replace(self, states=np.ascontiguousarray(self.states[::-1]), direction=direction, environments=path)


def snapshot_numbers(states: npt.NDArray[Any], m: int) -> Indices:
    """The number of every snapshot (n, s), the first sequence the most significant digit; void if one is missing.

    >>> snapshot_numbers(np.array([[0, 1], [2, 0]]), 3).tolist()
    [1, 6]
    """
    numbers = np.zeros(states.shape[0], dtype=np.intp)
    for column in states.T:
        numbers = numbers * m + np.maximum(column, 0)
    return numbers


def ignore_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""


def check_chain(chain: Any) -> None:
    """Refuse anything but a chain that fits make."""
    if not isinstance(chain, CoupledChain | JointChain | EnvironmentChain):
        raise InputError(f"chain: {type(chain).__name__} given; CoupledChain, JointChain or EnvironmentChain expected")


def check_source(data: Any, *, public: bool, epsilon: float | None) -> None:
    """Refuse a panel whose edges and values were learned from private readings, if the fit is to be public or paid.

    The chain publishes its values, and every state depends on the edges: no noise on the counts covers them.
    """
    if not isinstance(data, Panel) or data.source != "private" or (epsilon is None and not public):
        return
    given = "public: declared" if epsilon is None else f"epsilon: {epsilon:g} given"
    raise InputError(
        f"{given} for a panel whose edges and values of states come from private readings; the chain would publish "
        "them uncharged. Declare edges, bounds or categories, or learn the discretiser from public readings "
        "(public=True)"
    )


def read_sample(data: Any, *, states: int | None, private: bool = False) -> Sample:
    """Sample from a Panel or a (T, s) array of whole numbers.

    With `private` the number of states must be declared: the largest state seen would already reveal something.
    """
    names: tuple[str, ...] | None = None
    values: Floats | None = None
    if isinstance(data, Panel):
        table, names, values = data.states, data.names, data.values
    elif isinstance(data, np.ndarray | list | tuple):
        table = _read_array(data)
    else:
        raise InputError(
            f"data: {type(data).__name__} given; a Panel or a (ticks, sequences) array of whole numbers expected. "
            "csdp.read_panel reads files and data frames"
        )
    ticks, sequences = table.shape
    if sequences < 1:
        raise InputError("data: no sequences given; at least one column is needed")
    if ticks < 2:
        raise InputError(f"data: {ticks} tick{'s' * (ticks != 1)} given; a transition needs at least 2")
    if (table < -1).any():
        raise InputError("data: states below -1; states count from 0, and -1 marks a missing reading")
    m = _state_count(table, states, values, private)
    return Sample(np.ascontiguousarray(table, dtype=np.int16), m, names, values)


def _state_count(table: npt.NDArray[Any], states: int | None, values: Floats | None, private: bool) -> int:
    if states is not None:
        states = check.whole("states", states, least=2, most=MAX_STATES)
    declared = None if values is None else int(values.shape[-1])
    if declared is not None and states is not None and declared != states:
        raise InputError(f"states: {states} given, but the panel declares {declared} values for each sequence")
    m = states if states is not None else declared
    if m is None and private:
        raise InputError("states: with epsilon the number of states must be given; reading it from the data is a leak")
    largest = int(table.max())
    if largest < 0:
        raise InputError("data: every reading is missing (-1); there is nothing to fit")
    if m is None:
        m = max(largest + 1, 2)
    elif largest >= m:
        raise InputError(f"data: states beyond the declared {m} (0 to {m - 1}); declare more, or discretise again")
    if m > MAX_STATES:
        raise InputError(f"data: {m} states; at most {MAX_STATES:,}. {_DISCRETISE}")
    return m


def _read_array(data: Any) -> npt.NDArray[Any]:
    try:
        table = np.asarray(fill_masked(np.ma.asarray(data), -1))
    except ValueError:
        raise InputError("data: rows of different lengths; a (ticks, sequences) table expected") from None
    if table.dtype == np.bool_:
        table = table.astype(np.int16)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise InputError(
            f"data: {table.dtype} of shape {table.shape} given; whole numbers (ticks, sequences) expected. "
            f"{_DISCRETISE}"
        )
    return table


def normalise_rows(count: Floats, pseudo: float) -> Floats:
    """Rows of probabilities from counts with pseudo-counts; a row with nothing at all is uniform."""
    raised = count + pseudo
    sums = raised.sum(axis=-1, keepdims=True)
    return np.where(sums > 0, raised / np.where(sums > 0, sums, 1.0), 1.0 / count.shape[-1])


def match_chain(chain: Chain, readings: Sample) -> Sample:
    """The readings in the order of the chain's sequences; they must be those, and of its states."""
    if readings.m > chain.states:
        raise InputError(f"data: {readings.m} states given; the chain has {chain.states}")
    return readings.arrange(chain.names)


# ---- who may follow whom ---------------------------------------------------------------------------------------------


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
