"""Lag-1 pair counts: whom a sequence may follow, the counts, their noise, and chains from counts alone.

Counting goes by bit planes. A plane is one bit per tick: is this sequence in this state? A count is then the number of
ones in the conjunction of two planes, 64 ticks at a time. Missing readings have no bit in any plane, so a pair skips
them.

Sensitivity of the counts, at event level: one reading of sequence i at one tick is the next state of the transitions
into that tick and the present state of those out of it. In the table of a pair (target, source) a transition lies in
one cell, so a changed end moves one count from a cell to another: l1 distance 2. Into the tick, i is the target of as
many pairs as it may follow (`in(i)`); out of it, the source of as many as may follow it (`out(i)`); the pair (i, i) is
in both. Together `2 (in(i) + out(i))`, at most 4 s where all pairs are counted. A smaller graph helps only where it is
known beforehand: one chosen from the data has looked at all pairs, so all of them are noised and paid for.

Chains from pair counts: they do not determine who was followed, so the likelihood is out of reach. What they determine,
under the model and in its stationary regime, is the kernel. It is additive:
`Pr(next_j = b | x) = pi_j[b] + sum_k E_jk[x_k, b]` with `sum_a pi_k[a] E_jk[a, b] = 0`, and the lag-1 covariances are
the lag-0 covariances S times E. S in turn follows from E, because next states are independent given the present:
`S_jl = E_j' S E_l` for j != l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, Ints
from csdp.errors import InputError
from csdp.fitting.sample import Progress, Sample, normalise_rows
from csdp.noise import Randomness, two_sided_geometric

Neighbours = int | Literal["all"] | None | npt.NDArray[Any]

#: Sequences up to which all may follow all by default; beyond, each may follow this many besides itself.
FEW = 8
#: Couplings that "all" may ask for.
MAX_PAIRS = 4_000_000
#: Sensitivity of the counts of joint transitions: a reading is an end of two, each moves from one cell to another.
JOINT_SENSITIVITY = 4
#: Sequences times states up to which the moments are solved for.
MOMENTS_SIZE = 3000
#: Share of the smallest probability that effects may not use up, so that none becomes zero.
_LEFT = 0.02


@dataclass(frozen=True, eq=False)
class Graph:
    """Whom each sequence may follow: sources[indptr[j]:indptr[j + 1]], in order, itself included."""

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
        """Whom a target may follow."""
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
    """A graph from pairs (target, source); everyone may follow itself besides."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError("neighbours: a whole number, 'all', or pairs (target, source) of sequence numbers expected")
    if array.size and (array.min() < 0 or array.max() >= sequences):
        raise InputError(f"neighbours: sequence numbers lie between 0 and {sequences - 1}")
    own = np.arange(sequences)
    both = np.unique(np.concatenate([array, np.column_stack([own, own])]), axis=0)
    indptr = np.searchsorted(both[:, 0], np.arange(sequences + 1))
    return Graph(indptr.astype(np.intp), both[:, 1].astype(np.intp))


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
        progress("choosing whom to follow", start + targets.size, s)
    return Graph(np.concatenate([[0], np.cumsum([c.size for c in chosen])]), np.concatenate(chosen))


def pair_sensitivity(graph: Graph) -> int:
    """l1 sensitivity of the pair counts of a graph to one reading: `2 max_i (in(i) + out(i))`.

    >>> pair_sensitivity(complete_graph(5))
    20
    """
    incoming = np.diff(graph.indptr)
    outgoing = np.bincount(graph.sources, minlength=incoming.size)
    return 2 * int((incoming + outgoing).max())


def noise_scale(moved: int, epsilon: float) -> Fraction:
    """Scale of the noise for counts of which one reading moves `moved`."""
    return Fraction(moved) / Fraction(epsilon)


def add_count_noise(counts: Ints, scale: Fraction) -> Floats:
    """Counts with exact two-sided geometric noise from secure randomness: epsilon-DP for the scale's epsilon."""
    return (counts + two_sided_geometric(scale, counts.shape, Randomness.secure())).astype(np.float64)


def noisy_pair_counts(readings: Sample, wanted: int | Graph, epsilon: float) -> tuple[Graph, Floats, int]:
    """The graph, its noised pair counts, and the sensitivity of what was noised.

    A graph that is known beforehand is counted as it is. Where a number of others is to be chosen, all pairs are
    counted and noised once, and both the choice and the fit see these noised counts only.
    """
    graph = wanted if isinstance(wanted, Graph) else complete_graph(readings.sequences)
    moved = pair_sensitivity(graph)
    counts = add_count_noise(pair_counts(readings, graph), noise_scale(moved, epsilon))
    if isinstance(wanted, Graph):
        return graph, counts, moved
    s = readings.sequences
    chosen = strongest_sources(mutual_information(counts).reshape(s, s), np.arange(s), wanted)
    picked = np.concatenate([j * s + sources for j, sources in enumerate(chosen)])
    smaller = Graph(np.arange(s + 1) * (wanted + 1), np.concatenate(chosen))
    return smaller, counts[picked], moved


def simulated_noise(shape: tuple[int, ...], scale: Fraction, random: np.random.Generator) -> Floats:
    """Noise of the same law for a simulated repetition; it protects nothing."""
    q = math.exp(-1.0 / float(scale))
    return (random.geometric(1.0 - q, shape) - random.geometric(1.0 - q, shape)).astype(np.float64)


def frequencies(readings: Sample) -> Floats:
    """How often each sequence was seen in each state (s, m)."""
    counts = np.array([np.bincount(column[column >= 0], minlength=readings.m) for column in readings.states.T])
    return normalise_rows(counts.astype(np.float64), 0.0)


def pair_marginals(counts: Floats, graph: Graph) -> Floats:
    """Marginal laws (s, m) from pair counts: each sequence as the target of its own edge and as its source."""
    own = np.flatnonzero(graph.targets == graph.sources)
    table = np.maximum(counts[own].sum(axis=1) + counts[own].sum(axis=2), 0.0)
    return normalise_rows(table, 0.5)


def fit_ching(
    counts: Floats, laws: Floats, graph: Graph, *, smoothing: float, progress: Progress
) -> tuple[Floats, Floats]:
    """Coupling and transitions of Ching, Fung and Ng (2002): counted transitions, then a linear programme.

    For each target the weights minimise `max_b |law_j[b] - sum_k w_k (law_k transitions_jk)[b]|`. The stationary law
    satisfies this almost whatever the weights are, so the coupling is hardly determined: kept for comparison.
    """
    from scipy.optimize import linprog

    moves = normalise_rows(np.maximum(counts, 0.0), smoothing)
    shares = np.empty(graph.sources.size)
    s, m = laws.shape
    for j in range(s):
        edges = slice(graph.indptr[j], graph.indptr[j + 1])
        pushed = np.einsum("ka,kab->bk", laws[graph.sources[edges]], moves[edges])
        d = pushed.shape[1]
        slack = -np.ones((m, 1))
        solution = linprog(
            np.concatenate([np.zeros(d), [1.0]]),
            A_ub=np.block([[pushed, slack], [-pushed, slack]]),
            b_ub=np.concatenate([laws[j], -laws[j]]),
            A_eq=np.concatenate([np.ones(d), [0.0]])[None],
            b_eq=[1.0],
            bounds=(0, None),
        )
        weights = np.maximum(solution.x[:d], 0.0)
        shares[edges] = weights / weights.sum()
        progress("fitting", j + 1, s)
    return shares, moves


def fit_moments(counts: Floats, ticks: Floats, graph: Graph, *, noise: float = 0.0) -> tuple[Floats, Floats]:
    """Coupling and transitions whose pairwise moments are those counted.

    counts (edges, m, m), perhaps noised; ticks (edges,): readings behind each table, known without the noise;
    `noise`: variance of one count. Effects that sampling and noise alone would explain are shrunk away (James and
    Stein, positive part).
    """
    s, m = graph.indptr.size - 1, counts.shape[-1]
    if s * m > MOMENTS_SIZE:
        raise InputError(
            f"moments: {s} sequences of {m} states; at most {MOMENTS_SIZE:,} states together. Fit fewer at a time"
        )
    laws = pair_marginals(counts, graph)
    lagged = _lagged_covariances(counts / ticks[:, None, None], laws, graph, ticks, noise)
    blocks = np.zeros((s, m, s, m))  # lag-0 covariances
    own = np.einsum("ja,ab->jab", laws, np.eye(m)) - np.einsum("ja,jb->jab", laws, laws)
    blocks[np.arange(s), :, np.arange(s), :] = own
    effects = np.zeros((graph.sources.size, m, m))
    for _ in range(100):
        before, effects = effects, _solve_effects(lagged, blocks, laws, graph)
        if np.abs(effects - before).max() < 1e-9:
            break
        whole = np.zeros((s, m, s, m))
        whole[graph.targets, :, graph.sources, :] = effects.transpose(0, 2, 1)
        pushed = whole.reshape(s * m, -1)
        blocks = (pushed @ blocks.reshape(s * m, -1) @ pushed.T).reshape(s, m, s, m)
        blocks[np.arange(s), :, np.arange(s), :] = own
    return _mixture(effects, laws, graph)


def _lagged_covariances(pairs: Floats, laws: Floats, graph: Graph, ticks: Floats, noise: float) -> Floats:
    """Lag-1 covariances of each edge, doubly centred, shrunk by what chance would explain."""
    centred = pairs - pairs.mean(axis=1, keepdims=True) - pairs.mean(axis=2, keepdims=True)
    centred += pairs.mean(axis=(1, 2), keepdims=True)
    # Double centring removes a[x_k] + b[x_j]; what the margins alone would leave is removed as well.
    product = laws[graph.sources][:, :, None] * laws[graph.targets][:, None, :]
    expected = product - product.mean(axis=1, keepdims=True) - product.mean(axis=2, keepdims=True)
    expected += product.mean(axis=(1, 2), keepdims=True)
    contrast = centred - expected
    # Back to a covariance: rows and columns that sum to zero hold all of it for the double centring already.
    m = laws.shape[1]
    spread = 1.0 - np.square(laws).sum(axis=1)
    chance = spread[graph.sources] * spread[graph.targets] / ticks + (m - 1) ** 2 * noise / np.square(ticks)
    size = np.square(contrast).sum(axis=(1, 2))
    kept = np.maximum(0.0, 1.0 - chance / np.maximum(size, 1e-300))
    return np.asarray(contrast * kept[:, None, None])


def _solve_effects(lagged: Floats, blocks: Floats, laws: Floats, graph: Graph) -> Floats:
    """Effects (edges, m, m) from `S E = lagged`, target by target."""
    m = laws.shape[1]
    effects = np.empty_like(lagged)
    for j in range(laws.shape[0]):
        sources, edges = graph.of(j), slice(graph.indptr[j], graph.indptr[j + 1])
        system = blocks[sources][:, :, sources].reshape(sources.size * m, -1)
        right = lagged[edges].reshape(-1, m)
        solved = (np.linalg.pinv(system, rcond=1e-6, hermitian=True) @ right).reshape(-1, m, m)
        effects[edges] = solved - np.einsum("ka,kab->kb", laws[sources], solved)[:, None, :]
    return effects


def _mixture(effects: Floats, laws: Floats, graph: Graph) -> tuple[Floats, Floats]:
    """Weights and matrices with `w_k P_k[a, b] = E_k[a, b] + d_k[b]`, all positive: effects shrink where they must."""
    shares, moves = np.empty(graph.sources.size), np.empty_like(effects)
    for j in range(laws.shape[0]):
        edges = slice(graph.indptr[j], graph.indptr[j + 1])
        effect = effects[edges]
        needed = -effect.min(axis=1)  # (d, b): at least 0, as effects are centred
        total = needed.sum(axis=0)
        room = (1.0 - _LEFT) * laws[j]
        scale = np.where(total > room, room / np.maximum(total, 1e-300), 1.0)
        rest = laws[j] - scale * total
        mixed = scale * (effect + needed[:, None, :]) + rest / effect.shape[0]
        rows = mixed.sum(axis=2, keepdims=True)
        shares[edges] = rows.mean(axis=(1, 2)) / rows.mean(axis=(1, 2)).sum()
        moves[edges] = mixed / rows
    return shares, moves


def pair_ticks(readings: Sample, graph: Graph) -> Floats:
    """At how many steps source and next target were both read, for each edge; a function of what is missing only."""
    seen: Any = (readings.states >= 0).astype(np.float64)
    if not readings.has_gaps:
        return np.full(graph.sources.size, float(readings.transitions))
    present, following = seen[:-1], seen[1:]
    out = np.empty(graph.sources.size)
    for e, (j, k) in enumerate(zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)):
        out[e] = present[:, k] @ following[:, j]
    if (out < 1).any():
        e = int(out.argmin())
        names = readings.labels
        raise InputError(
            f"{names[graph.targets[e]]!r} was never read one step after {names[graph.sources[e]]!r}; fill the gaps"
        )
    return out
