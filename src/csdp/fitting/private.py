"""Counts of private readings, noised before anything is made of them.

Sensitivity, at event level: one reading of sequence i at one tick is the next state of the transitions into that tick
and the present state of those out of it. In the table of a pair (target, source) a transition lies in one cell, so a
changed end moves one count from a cell to another: l1 distance 2. Into the tick, i is the target of as many pairs as it
may follow (`in(i)`); out of it, the source of as many as may follow it (`out(i)`); the pair (i, i) is in both. Together
`2 (in(i) + out(i))`, at most 4 s where all pairs are counted. A smaller graph helps only where it is known beforehand:
one that is chosen from the data has looked at all pairs, and all of them are then noised and paid for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.fitting.pairs import Graph, complete_graph, mutual_information, pair_counts, strongest_sources
from csdp.fitting.sample import Sample
from csdp.noise import Randomness, two_sided_geometric, variance

Floats = npt.NDArray[np.float64]

#: Sensitivity of the counts of joint transitions: a reading is an end of two, each moves from one cell to another.
JOINT_SENSITIVITY = 4


def pair_sensitivity(graph: Graph) -> int:
    """l1 sensitivity of the pair counts of a graph to one reading: `2 max_i (in(i) + out(i))`.

    >>> pair_sensitivity(complete_graph(5))
    20
    """
    incoming = np.diff(graph.indptr)
    outgoing = np.bincount(graph.sources, minlength=incoming.size)
    return 2 * int((incoming + outgoing).max())


def noise_scale(moved: int, epsilon: float) -> Fraction:
    """Scale of the noise for counts of which one reading moves so many."""
    return Fraction(moved) / Fraction(epsilon)


def check_epsilon(epsilon: Any) -> float | None:
    """An epsilon above 0, or None."""
    if epsilon is None:
        return None
    number = isinstance(epsilon, int | float | np.integer | np.floating) and not isinstance(epsilon, bool)
    if not number or not math.isfinite(epsilon) or epsilon <= 0:
        raise InputError(f"epsilon: {epsilon!r} given; a finite number above 0, or None for public data")
    return float(epsilon)


def add_count_noise(counts: npt.NDArray[np.int64], scale: Fraction) -> Floats:
    """Counts with exact two-sided geometric noise from secure randomness: epsilon-DP for the scale's epsilon."""
    return (counts + two_sided_geometric(scale, counts.shape, Randomness.secure())).astype(np.float64)


def noisy_pair_counts(readings: Sample, wanted: int | Graph, epsilon: float) -> tuple[Graph, Floats, int]:
    """The graph, its noised pair counts, and the sensitivity that was paid for.

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
    """Noise of the same law for a simulated repetition; it protects nothing and need not."""
    q = math.exp(-1.0 / float(scale))
    return (random.geometric(1.0 - q, shape) - random.geometric(1.0 - q, shape)).astype(np.float64)


def noise_variance(scale: Fraction) -> float:
    """Variance of one noised count."""
    return variance(scale)
