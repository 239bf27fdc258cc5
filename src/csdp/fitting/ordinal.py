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
from csdp.fitting.environment_em import Kernel, free_rows
from csdp.fitting.pairs import Graph

KernelName = Literal["free", "ordinal"]
#: Numbers of the Hessians that are made at once.
_BATCH = 4_000_000


def read_kernel(kernel: str) -> Kernel:
    """The rule that makes transition rows of expected transitions, by its name."""
    if kernel not in get_args(KernelName):
        raise InputError(f"kernel: {kernel!r} given; use one of {', '.join(get_args(KernelName))}")
    return free_rows if kernel == "free" else _ordinal_kernel


def _ordinal_kernel(expected: Floats, before: Floats | None) -> Floats:
    """Ordinal rows of expected transitions (edges, m, m, E), in batches."""
    edges, m, environments = expected.shape[0], expected.shape[1], expected.shape[3]
    counts = np.moveaxis(expected, 3, 1).reshape(-1, m, m)
    block = max(1, _BATCH // (4 * m * m))
    parts = [ordinal_rows(counts[start : start + block]) for start in range(0, counts.shape[0], block)]
    return np.moveaxis(np.concatenate(parts).reshape(edges, environments, m, m), 1, 3)


def kernel_parameters(graph: Graph, m: int) -> int:
    """Free numbers of a coupled chain with ordinal matrices: those of each edge, and the coupling."""
    edges, targets = graph.sources.size, graph.indptr.size - 1
    return int(edges * 2 * (m - 1) + edges - targets)


def ordinal_rows(counts: Floats, iterations: int = 50) -> Floats:
    """The ordinal transition matrices (n, m, m) of largest likelihood for counts of transitions (n, m, m).

    >>> cuts, places = np.array([-1.0, 1.5]), np.array([0.0, 2.0, 3.0])
    >>> below = 1 / (1 + np.exp(places[:, None] - cuts))
    >>> true = np.diff(below, axis=1, prepend=0.0, append=1.0)
    >>> bool(abs(ordinal_rows(100 * true[None])[0] - true).max() < 1e-9)
    True
    """
    n, m = counts.shape[:2]
    raised = counts + 1e-9 * np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1.0) / m**2
    column = np.cumsum(raised.sum(axis=1), axis=1)[:, :-1] / raised.sum(axis=(1, 2))[:, None]
    point = np.concatenate([np.log(column / (1.0 - column)), np.zeros((n, m - 1))], axis=1)
    score = _log_likelihood(raised, point)
    scale = np.maximum(raised.sum(axis=(1, 2)), 1.0)
    for _ in range(iterations):
        slope, bend = _derivatives(raised, point)
        bend -= 1e-10 * scale[:, None, None] * np.eye(point.shape[1])
        step = np.linalg.solve(-bend, slope[..., None])[..., 0]
        length = np.ones(n)
        for _ in range(30):
            trial = point + length[:, None] * step
            value = _log_likelihood(raised, trial)
            worse = ~(value >= score)
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        better = value >= score
        gain = np.where(better, value - score, 0.0)
        point, score = np.where(better[:, None], trial, point), np.where(better, value, score)
        if (gain <= 1e-12 * scale).all():
            break
    chances = _cell_chances(_distances(point))
    return np.asarray(chances / chances.sum(axis=2, keepdims=True))


def _distances(point: Floats) -> Floats:
    """cut_b - place_a, (n, m, m - 1), from cuts and places next to each other."""
    cuts, places = np.split(point, 2, axis=1)
    places = np.concatenate([np.zeros((point.shape[0], 1)), places], axis=1)
    return np.asarray(cuts[:, None, :] - places[:, :, None])


def _cell_chances(z: Floats) -> Floats:
    """Probabilities between neighbouring cuts, (n, m, m), from the side on which they are small."""
    low = np.concatenate([np.full((*z.shape[:2], 1), -np.inf), z], axis=2)
    high = np.concatenate([z, np.full((*z.shape[:2], 1), np.inf)], axis=2)
    upper = low > 0
    left = np.where(upper, -high, low)
    right = np.where(upper, -low, high)
    return _tail(right) - _tail(left)


def _tail(z: Floats) -> Floats:
    """The logistic function, exact to its last digits for negative arguments."""
    small = np.exp(-np.abs(z))
    return np.where(z < 0, small / (1.0 + small), 1.0 / (1.0 + small))


def _log_likelihood(counts: Floats, point: Floats) -> Floats:
    """Log-likelihood of each matrix; minus infinity where cuts are out of order."""
    chances = _cell_chances(_distances(point))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((chances > 0).all(axis=(1, 2)), (counts * np.log(chances)).sum(axis=(1, 2)), -np.inf)


def _derivatives(counts: Floats, point: Floats) -> tuple[Floats, Floats]:
    """Gradient (n, q) and Hessian (n, q, q) of the log-likelihoods in cuts and places."""
    z = _distances(point)
    chances = _cell_chances(z)
    density = _tail(z) * _tail(-z)
    ratio, square = counts / chances, counts / chances**2
    by_z = density * (ratio[:, :, :-1] - ratio[:, :, 1:])
    slope = np.concatenate([by_z.sum(axis=1), -by_z.sum(axis=2)[:, 1:]], axis=1)
    own = by_z * (1.0 - 2.0 * _tail(z)) - density**2 * (square[:, :, :-1] + square[:, :, 1:])
    beside = density[:, :, :-1] * density[:, :, 1:] * square[:, :, 1:-1]
    return slope, _hessian(own, beside)


def _hessian(own: Floats, beside: Floats) -> Floats:
    """The Hessian from its tridiagonal blocks, one for each present state: diagonals (n, m, m - 1) and next to them."""
    n, m = own.shape[:2]
    cuts = np.zeros((n, m - 1, m - 1))
    at = np.arange(m - 1)
    cuts[:, at, at] = own.sum(axis=1)
    cuts[:, at[:-1], at[1:]] = cuts[:, at[1:], at[:-1]] = beside.sum(axis=1)
    rows = own.copy()  # sums over one row of the block of a present state
    rows[:, :, :-1] += beside
    rows[:, :, 1:] += beside
    across = -np.swapaxes(rows, 1, 2)[:, :, 1:]
    down = rows.sum(axis=2)[:, 1:, None] * np.eye(m - 1)
    return np.concatenate(
        [np.concatenate([cuts, across], axis=2), np.concatenate([np.swapaxes(across, 1, 2), down], axis=2)], axis=1
    )
