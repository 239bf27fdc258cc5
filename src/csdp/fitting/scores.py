"""What a coupled or environment chain says of readings, step by step, and how much more than another chain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain import CoupledChain, EnvironmentChain
from csdp.chain.model import Direction
from csdp.errors import InputError
from csdp.fitting.environment_em import filter_scores, pick_classes, step_scores
from csdp.fitting.pairs import Graph
from csdp.fitting.sample import Sample


def members_of(chain: CoupledChain | EnvironmentChain) -> tuple[CoupledChain, ...]:
    """The coupled chains that a chain is made of."""
    return chain.environments if isinstance(chain, EnvironmentChain) else (chain,)


def join_graphs(chains: Sequence[CoupledChain]) -> Graph:
    """Whom each sequence follows in some of the chains, itself included."""
    s = chains[0].sequences
    codes = np.concatenate([np.arange(s) * (s + 1), *(chain.edge_targets * s + chain.edge_sources for chain in chains)])
    distinct = np.unique(codes)
    indptr = np.searchsorted(distinct, np.arange(s + 1) * s)
    return Graph(indptr.astype(np.intp), (distinct % s).astype(np.intp))


def mix_members(chains: Sequence[CoupledChain], graph: Graph) -> Floats:
    """Coupling times transition of every edge of the graph under every chain, (edges, m, m, E)."""
    s, m = chains[0].sequences, chains[0].states
    codes = graph.targets * s + graph.sources
    mix = np.zeros((codes.size, m, m, len(chains)))
    for e, chain in enumerate(chains):
        table, which = chain.transition_table
        place = np.searchsorted(codes, chain.edge_targets * s + chain.edge_sources)
        mix[place, :, :, e] = chain.edge_weights[:, None, None] * table[which]
    return mix


def order_labels(labels: Indices, direction: Direction) -> Indices:
    """Environment of every step, in the order in which a chain of that direction meets them; labels by tick."""
    steps = labels[1:]
    return steps if direction == "forward" else steps[::-1]


def chain_scores(
    chain: CoupledChain | EnvironmentChain,
    readings: Sample,
    *,
    labels: Indices | None = None,
    graph: Graph | None = None,
) -> Floats:
    """Log-probability of every step of the readings, in the order of the chain's direction.

    Under a hidden environment: given the steps before, its own law at the first. `labels` are the environments of the
    ticks where they are known, or their classes by the clock beside a hidden one. A sequence counts at steps where it
    and all its sources in `graph` were read.
    """
    sample = readings.in_direction(chain.direction)
    members = members_of(chain)
    among = join_graphs(members) if graph is None else graph
    scores = step_scores(sample, among, mix_members(members, among))
    if not isinstance(chain, EnvironmentChain):
        return scores[:, 0]
    if labels is None and (chain.switching is None or chain.cycle is not None):
        raise InputError("labels: none given; a chain by a clock or a series needs the environment of every tick")
    steps = None if labels is None else order_labels(labels, chain.direction)
    if chain.switching is None:
        return pick_classes(scores, steps, 1)[:, 0]
    picked = pick_classes(scores, None if chain.cycle is None else steps, chain.regimes)
    return filter_scores(picked, np.asarray(chain.environment_law), np.ascontiguousarray(chain.own_switching))[1]


def held_out_gain(
    chain: CoupledChain | EnvironmentChain,
    independent: CoupledChain,
    readings: Sample,
    labels: Indices | None = None,
) -> tuple[float, float]:
    """Nats per tick that a chain gains over independent ones on readings, and the standard error.

    Both are counted at the same steps of the same sequences, those at which whatever either chain looks at was read.
    """
    graph = join_graphs([*members_of(chain), independent])
    gains = chain_scores(chain, readings, labels=labels, graph=graph)
    gains = gains - chain_scores(independent, readings, graph=graph)
    return float(gains.mean()), batch_error(gains)


def batch_error(series: Floats) -> float:
    """Standard error of a mean of dependent numbers, from the means of about n^(1/2) batches."""
    batches = max(2, math.isqrt(series.size))
    length = series.size // batches
    if length < 1 or not np.isfinite(series).all():
        return math.inf
    means = series[: batches * length].reshape(batches, length).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(batches))


def count_complete(readings: Sample, graph: Graph) -> int:
    """Transitions, over all sequences, at which a sequence and all that it may follow were read."""
    if not readings.has_gaps:
        return readings.transitions * readings.sequences
    read = readings.states >= 0
    return sum(int((read[1:, j] & read[:-1, graph.of(j)].all(axis=1)).sum()) for j in range(readings.sequences))
