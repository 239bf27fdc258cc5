"""Where states begin and what they carry: the rules behind a discretiser, vectorised over sequences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.lattice import on_lattice

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def sort_columns(readings: Floats) -> tuple[Floats, Ints]:
    """Each column sorted, missing readings last, and how many it has."""
    return np.sort(readings, axis=0), np.count_nonzero(~np.isnan(readings), axis=0)


def quantile_edges(ranked: Floats, counts: Ints, states: int) -> Floats:
    """Edges (s, m-1) at the quantiles k/m (linear between readings, as numpy's), moved where a state would be empty.

    Where a column has fewer distinct numbers than states, each number has its state and the edges left over are
    infinite: those states are never taken.
    """
    at = (np.arange(1, states) / states)[:, None] * (counts - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, counts - 1)
    below, above = np.take_along_axis(ranked, low, axis=0), np.take_along_axis(ranked, high, axis=0)
    edges = (below + (above - below) * (at - low)).T
    held = np.stack([(ranked < edges[:, k]).sum(axis=0) for k in range(states - 1)])  # NaN is below nothing
    empty = np.diff(np.vstack([np.zeros_like(counts), held, counts]), axis=0) == 0
    for i in np.flatnonzero(empty.any(axis=0)):
        edges[i] = _distinct_edges(ranked[: counts[i], i], states)
    return edges


def _distinct_edges(column: Floats, states: int) -> Floats:
    """Edges at distinct numbers, each as near as can be to its quantile."""
    distinct, first = np.unique(column, return_index=True)
    out = np.full(states - 1, np.inf)
    if distinct.size <= states:
        out[: distinct.size - 1] = distinct[1:]
        return out
    at = 0
    for k in range(1, states):
        room = np.arange(at + 1, distinct.size - (states - 1 - k))  # leaves a number for every later state
        at = int(room[np.argmin(np.abs(first[room] - column.size * k / states))])
        out[k - 1] = distinct[at]
    return out


def uniform_edges(low: Floats, high: Floats, states: int) -> Floats:
    """Edges (s, m-1) that cut [low, high] into equal parts; where low = high, all readings share state 0."""
    parts = np.arange(1, states) / states
    edges = low[:, None] + (high - low)[:, None] * parts
    edges[low == high] = np.inf
    return edges


def state_numbers(readings: Floats, edges: Floats) -> npt.NDArray[np.int16]:
    """How many edges (s, m-1) each reading (T, s) or (s,) has reached; -1 where missing.

    One comparison per edge, over all sequences at once: no search per sequence, so a snapshot of 10^5 costs no loop.
    """
    out = np.zeros(readings.shape, dtype=np.int16)
    for k in range(edges.shape[1]):
        out += readings >= edges[:, k]
    out[np.isnan(readings)] = -1
    return out


def midpoints(edges: Floats, low: Floats | None, high: Floats | None) -> Floats:
    """A value (s, m) for each state from edges and bounds alone: the middle of its part of the range.

    Without bounds the outer states are as wide as their neighbours. States that are never taken carry the last value.
    """
    s, cuts = edges.shape
    used = np.isfinite(edges).sum(axis=1)
    if low is None or high is None:
        if (used < 2).any():
            raise InputError(
                "values: one edge does not show how wide the outer states are; give bounds=(low, high) or values="
            )
        rows = np.arange(s)
        low = 2 * edges[:, 0] - edges[:, 1]
        high = 2 * edges[rows, used - 1] - edges[rows, used - 2]
    ends = np.column_stack([low, edges, np.full(s, np.inf)])
    ends = np.minimum(np.maximum(ends, low[:, None]), high[:, None])  # an infinite edge ends at the upper bound
    values = (ends[:, 1:] + ends[:, :-1]) / 2
    last = np.take_along_axis(values, used[:, None], axis=1)
    return np.where(np.arange(cuts + 1) > used[:, None], last, values)


def medians(ranked: Floats, counts: Ints, edges: Floats, otherwise: Floats) -> Floats:
    """The median reading of each state (s, m); where a state has none, the value `otherwise`."""
    cuts = [(ranked < edges[:, k]).sum(axis=0) for k in range(edges.shape[1])]  # NaN is below nothing
    starts = np.stack([np.zeros_like(counts), *cuts], axis=1)
    ends = np.stack([*cuts, counts], axis=1)
    top = max(ranked.shape[0] - 1, 0)
    lower, upper = np.minimum((starts + ends - 1) // 2, top), np.minimum((starts + ends) // 2, top)
    middle = (np.take_along_axis(ranked.T, lower, axis=1) + np.take_along_axis(ranked.T, upper, axis=1)) / 2
    return np.where(ends > starts, middle, otherwise)


def lattice_values(values: Floats) -> Floats:
    """Values as multiples of one power of two, as a chain makes them; refused where that would make two states one."""
    rounded = on_lattice(values) + 0.0  # turns -0.0 into 0.0, as in a chain
    lost = (np.diff(values, axis=1) != 0) & (np.diff(rounded, axis=1) == 0)
    if lost.any():
        row = int(np.argmax(lost.any(axis=1)))
        raise InputError(
            f"values: those of sequence {row + 1} lie too close together beside the largest of all (closer than 2^-20 "
            "of it); bring the sequences to one scale, such as shares of a capacity"
        )
    return rounded
