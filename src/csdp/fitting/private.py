"""Private fits: chains from noised lag-1 pair counts alone.

Sensitivity of the counts, at event level: one reading of sequence i at one tick is the next state of the transitions
into that tick and the present state of those out of it. In the table of a pair (target, source) a transition lies in
one cell, so a changed end moves one count from a cell to another: l1 distance 2. Into the tick, i is the target of as
many pairs as it may follow (`in(i)`); out of it, the source of as many as may follow it (`out(i)`); the pair (i, i) is
in both. Together `2 (in(i) + out(i))`, at most 4 s if all pairs are counted. A smaller graph helps only if it is known
beforehand: one chosen from the data has looked at all pairs, so all of them are noised and paid for.

Pair counts do not determine who was followed, so the likelihood is out of reach. What they determine, under the model
and in its stationary regime, is the kernel. It is additive:
`Pr(next_j = b | x) = pi_j[b] + sum_k E_jk[x_k, b]` with `sum_a pi_k[a] E_jk[a, b] = 0`, and the lag-1 covariances are
the lag-0 covariances S times E. S in turn follows from E, because next states are independent given the present:
`S_jl = E_j' S E_l` for j != l.
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction
from typing import Any

import numpy as np

from csdp.chain import FitRecord
from csdp.errors import InputError
from csdp.fitting.em import PointEstimate, make_chain, simulate_sample
from csdp.fitting.sample import (
    Chain,
    Graph,
    Sample,
    complete_graph,
    count_parameters,
    mutual_information,
    normalise_rows,
    pair_counts,
    read_neighbours,
    strongest_sources,
)
from csdp.noise import Randomness, two_sided_geometric, variance
from csdp.numbers import Floats, Ints

#: Sequences times states up to which the moments are solved for.
MOMENTS_SIZE = 3000
#: Share of the smallest probability that effects may not use up, so that none becomes zero.
_LEFT = 0.02


def fit_private(readings: Sample, neighbours: Any, epsilon: float) -> PointEstimate:
    """A coupled chain with the moments of noised pair counts; nothing else of the readings is looked at."""
    wanted = read_neighbours(neighbours, readings.sequences)
    graph, counts, moved = noisy_pair_counts(readings, wanted, epsilon)
    scale = noise_scale(moved, epsilon)
    noise = variance(scale)
    ticks = pair_ticks(readings, graph)

    def solve(table: Floats) -> Chain:
        return make_chain(readings, graph, *solve_moments(table, ticks, graph, noise=noise))

    point = solve(counts)

    def draw(random: np.random.Generator) -> Chain:
        table = pair_counts(simulate_sample(point, readings, random), graph).astype(np.float64)
        return solve(table + simulated_noise(table.shape, scale, random))

    # The identity says that what is made of these noised counts costs no more.
    cost = {"epsilon": epsilon, "level": "event", "sensitivity": moved, "noised": "lag-1 pair counts"}
    record = FitRecord(
        "moments",
        observations=int(ticks[graph.targets == graph.sources].sum()),
        parameters=count_parameters(graph, readings.m),
        neighbours=graph.degree,
        screened=not isinstance(wanted, Graph),
        epsilon=epsilon,
        warnings=_describe_noise(float(np.sqrt(noise) * readings.m**2 / ticks.mean())),
    )
    return PointEstimate(point, record, draw, cost=cost | {"fit": secrets.token_hex(16)})


def _describe_noise(share: float) -> tuple[str, ...]:
    """Warnings for the record, from the sizes and the noise, not from the readings.

    Args:
        share: deviation of the noise against the average count.
    """
    notes = ["the likelihood needs the readings themselves; 'moments' was used, from noised pair counts"]
    if share > 0.2:
        notes.append(
            f"the noise has {share:.0%} of the size of an average count: the chain is mostly noise; fit on more ticks, "
            "fewer sequences or states, pairs known beforehand, or a larger epsilon"
        )
    return tuple(notes)


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


def simulated_noise(shape: tuple[int, ...], scale: Fraction, random: np.random.Generator) -> Floats:
    """Noise of the same law for a simulated repetition; it protects nothing."""
    q = math.exp(-1.0 / float(scale))
    return (random.geometric(1.0 - q, shape) - random.geometric(1.0 - q, shape)).astype(np.float64)


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


def pair_marginals(counts: Floats, graph: Graph) -> Floats:
    """Marginal laws (s, m) from pair counts: each sequence as the target of its own edge and as its source."""
    own = np.flatnonzero(graph.targets == graph.sources)
    table = np.maximum(counts[own].sum(axis=1) + counts[own].sum(axis=2), 0.0)
    return normalise_rows(table, 0.5)


def solve_moments(counts: Floats, ticks: Floats, graph: Graph, *, noise: float) -> tuple[Floats, Floats]:
    """Coupling and transitions whose pairwise moments are those counted.

    counts (edges, m, m), noised; ticks (edges,): readings behind each table, known without the noise;
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
    """Weights and matrices with `w_k P_k[a, b] = E_k[a, b] + d_k[b]`, all positive: effects shrink if they must."""
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
