"""Transition matrices of ordered states from few numbers: `Pr(next <= b | present = a) = logistic(cut_b - place_a)`.

A matrix of m states then has 2 (m - 1) free numbers instead of m (m - 1): the cuts, and the places of the present
states, the first of which is 0. So it is what an autoregression with logistic noise looks like through intervals. The
log-likelihood is concave in cuts and places (McCullagh 1980); Newton's method climbs it for all matrices at once.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from csdp.arrays import Floats
from csdp.errors import InputError
from csdp.fitting.environment_em import Kernel, free_rows, in_blocks
from csdp.fitting.pairs import Graph

KernelName = Literal["free", "ordinal"]
#: Share of the transitions that is spread over all cells.
_HAIR = 1e-9
#: Steps of Newton's method in one iteration of EM.
_STEPS = 3


def read_kernel(kernel: str) -> Kernel:
    """The rule that makes transition rows of expected transitions, by its name."""
    if kernel not in get_args(KernelName):
        raise InputError(f"kernel: {kernel!r} given; use one of {', '.join(get_args(KernelName))}")
    return free_rows if kernel == "free" else _ordinal_kernel


def _ordinal_kernel(expected: Floats, before: Floats) -> Floats:
    """Ordinal rows of expected transitions (edges, m, m, E), a few steps of Newton's method from the rows so far."""
    edges, m, environments = expected.shape[0], expected.shape[1], expected.shape[3]
    counts, rows = (np.moveaxis(table, 3, 1).reshape(-1, m, m) for table in (expected, before))
    fitted = ordinal_rows(counts, start=rows, iterations=_STEPS)
    return np.ascontiguousarray(np.moveaxis(fitted.reshape(edges, environments, m, m), 1, 3))


def kernel_parameters(graph: Graph, m: int) -> int:
    """Free numbers of a coupled chain with ordinal matrices: those of each edge, and the coupling."""
    edges, targets = graph.sources.size, graph.indptr.size - 1
    return int(edges * 2 * (m - 1) + edges - targets)


def ordinal_rows(counts: Floats, *, start: Floats | None = None, iterations: int = 50) -> Floats:
    """The ordinal transition matrices (n, m, m) of largest likelihood for counts of transitions (n, m, m).

    `start` are ordinal matrices to climb from; default: rows that are all alike.

    >>> cuts, places = np.array([-1.0, 1.5]), np.array([0.0, 2.0, 3.0])
    >>> below = 1 / (1 + np.exp(places[:, None] - cuts))
    >>> true = np.diff(below, axis=1, prepend=0.0, append=1.0)
    >>> bool(abs(ordinal_rows(100 * true[None])[0] - true).max() < 1e-9)
    True
    """
    from csdp.fitting import ordinal_loops as loops

    mass = np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1.0)
    # A hair of every transition keeps the best matrix from running away where some were never seen.
    raised = np.ascontiguousarray(counts + _HAIR * mass / counts.shape[1] ** 2)
    alike = np.broadcast_to(raised.sum(axis=1, keepdims=True), raised.shape)
    points = _find_points(alike if start is None else np.maximum(start, 1e-300))
    rows = np.empty(counts.shape)

    def work(first: int, last: int) -> None:
        loops.climb_matrices(raised[first:last], points[first:last], iterations, 1e-12)
        loops.fill_matrices(points[first:last], rows[first:last])

    in_blocks(work, counts.shape[0], counts.size)
    return np.asarray(rows / rows.sum(axis=2, keepdims=True))


def _find_points(rows: Floats) -> Floats:
    """Cuts and places of ordinal matrices (n, m, m) of positive numbers, next to each other."""
    below = np.cumsum(rows, axis=2)[:, :, :-1]
    above = np.cumsum(rows[:, :, ::-1], axis=2)[:, :, -2::-1]
    logit = np.log(below) - np.log(above)
    middle = np.abs(logit).argmin(axis=2)[:, :, None]
    cuts = logit[:, 0]
    places = np.take_along_axis(cuts[:, None, :] - logit, middle, axis=2)[:, 1:, 0]
    return np.concatenate([cuts, places], axis=1)
