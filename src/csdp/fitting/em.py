"""Joint maximum likelihood of coupling and transitions by expectation-maximisation.

Given the present snapshot the targets move independently, so each is a problem of its own: with
`G_k = coupling[j][k] transitions[j][k]` the log-likelihood `sum_t ln sum_k G_k[x_k(t), x_j(t+1)]` is concave in G, and
so is the smoothing's share `pseudo * sum ln G`. There is one maximum, which EM climbs from any positive start without
ever stepping down (Dempster, Laird and Rubin 1977).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.errors import InputError
from csdp.fitting.pairs import Graph
from csdp.fitting.sample import Progress, Sample, normalise_rows


@dataclass(frozen=True)
class Effort:
    """The effort of EM: starts, iterations, and the gain per transition below which it stops."""

    restarts: int
    iterations: int
    tolerance: float
    seed: int


@dataclass(frozen=True, eq=False)
class TargetFit:
    """The fit of one target; `expected` are the transitions assigned to each source, smoothing included."""

    share: Floats
    moves: Floats
    expected: Floats
    path: Floats
    converged: bool
    observations: int
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class EMFit:
    """Coupling and transitions of all targets, edges in the order of the graph."""

    graph: Graph
    targets: tuple[TargetFit, ...]

    @property
    def shares(self) -> Floats:
        """Coupling of each edge."""
        return np.concatenate([target.share for target in self.targets])

    @property
    def moves(self) -> Floats:
        """Transitions (edges, m, m)."""
        return np.concatenate([target.moves for target in self.targets])

    @property
    def path(self) -> tuple[float, ...]:
        """Objective after each iteration, summed over targets; one that has stopped keeps its last value."""
        longest = max(target.path.size for target in self.targets)
        total = np.zeros(longest)
        for target in self.targets:
            total += np.concatenate([target.path, np.full(longest - target.path.size, target.path[-1])])
        return tuple(total.tolist())


def complete_transitions(
    readings: Sample, sources: Indices, target: int, often: Floats | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Floats]:
    """The complete transitions of a target: presents of its sources (n, d), next states (n,), how often (n,).

    A transition with a missing end, or with a missing source, is left out. Few distinct ones are put together.
    """
    states = readings.states
    rows, following = states[:-1][:, sources], states[1:, target]
    weights = np.ones(following.size) if often is None else often
    if readings.has_gaps or often is not None:
        kept = (following >= 0) & (rows >= 0).all(axis=1) & (weights > 0)
        rows, following, weights = rows[kept], following[kept], weights[kept]
    m, d = readings.m, sources.size
    if m ** (d + 1) <= 16 * following.size:
        code = following.astype(np.intp)
        for k in range(d):
            code = code * m + rows[:, k]
        counts = np.bincount(code, weights=weights).astype(np.float64)
        seen = np.flatnonzero(counts)
        digits = np.array(np.unravel_index(seen, (m,) * (d + 1)))
        return np.ascontiguousarray(digits[1:].T), np.ascontiguousarray(digits[0]), counts[seen]
    return np.ascontiguousarray(rows), np.ascontiguousarray(following), np.ascontiguousarray(weights)


def count_transitions(rows: npt.NDArray[Any], following: npt.NDArray[Any], weights: Floats, m: int) -> Floats:
    """Lag-1 counts (d, m, m) of one target's transitions."""
    d = rows.shape[1]
    code = (np.arange(d) * m + rows) * m + following[:, None]
    counts = np.bincount(code.ravel(), np.repeat(weights, d), minlength=d * m * m)
    return np.asarray(counts.reshape(d, m, m), dtype=np.float64)


def fit_target(
    readings: Sample,
    graph: Graph,
    target: int,
    *,
    smoothing: float,
    effort: Effort,
    fixed: bool = False,
    often: Floats | None = None,
    start: TargetFit | None = None,
) -> TargetFit:
    """EM for one target; with `fixed` the counted transitions stay and only the coupling is fitted."""
    from csdp.fitting import compiled

    sources, m = graph.of(target), readings.m
    rows, following, weights = complete_transitions(readings, sources, target, often)
    whole, d = float(weights.sum()), sources.size
    if not whole:
        raise InputError(
            f"{readings.labels[target]!r} has no transition at which it and those it may follow were all read; "
            "fill the gaps, or lower neighbours"
        )
    pseudo = smoothing / d
    if start is not None:
        starts = iter([_pack(start.share, start.moves)])
    else:
        own = int(np.flatnonzero(sources == target)[0]) if target in sources else 0
        counts = count_transitions(rows, following, weights, m)
        random = np.random.default_rng([effort.seed, target])
        starts = _starts(counts, own, effort.restarts, smoothing=smoothing, fixed=fixed, random=random)
    best: TargetFit | None = None
    for point in starts:
        expected = np.empty((d, m, m))
        path, converged = compiled.expectation_maximisation(
            rows, following, weights, pseudo, point, expected, fixed, effort.iterations, effort.tolerance * whole
        )
        share, moves = point[:d], point[d:].reshape(d, m, m)
        mix = share[:, None, None] * (np.ones_like(moves) if fixed else moves)
        likelihood = float(path[-1]) - (pseudo * float(np.log(mix).sum()) if pseudo else 0.0)
        candidate = TargetFit(share, moves, expected, path.copy(), bool(converged), round(whole), likelihood)
        if best is None or candidate.path[-1] > best.path[-1]:
            best = candidate
    assert best is not None
    return best


def _starts(
    counts: Floats, own: int, restarts: int, *, smoothing: float, fixed: bool, random: np.random.Generator
) -> Iterator[Floats]:
    """Points to climb from: half its own and counted transitions first, then random ones."""
    d, m = counts.shape[:2]
    share = np.full(d, 1.0 if d == 1 else 0.5 / (d - 1))
    share[own] = 1.0 if d == 1 else 0.5
    yield _pack(share, normalise_rows(counts, smoothing if fixed else max(smoothing / d, 0.01)))
    for _ in range(restarts - 1):
        share = random.dirichlet(np.ones(d))
        yield _pack(share, normalise_rows(counts, smoothing) if fixed else random.dirichlet(np.ones(m), (d, m)))


def _pack(share: Floats, moves: Floats) -> Floats:
    """Shares and moves in one row, as EM takes them; a copy, since EM changes it."""
    return np.concatenate([share, moves.ravel()])


def each_target(
    work: Callable[[int], TargetFit], targets: int, *, what: str, progress: Progress
) -> tuple[TargetFit, ...]:
    """Do the work for every target on all cores; an interrupt stops after those under way."""
    block = 32
    fits: list[TargetFit] = []
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for start in range(0, targets, block):
            fits += pool.map(work, range(start, min(start + block, targets)))
            progress(what, len(fits), targets)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return tuple(fits)


def fit_all(
    readings: Sample,
    graph: Graph,
    *,
    smoothing: float,
    effort: Effort,
    progress: Progress,
    fixed: bool = False,
    often: Floats | None = None,
    start: Sequence[TargetFit] | None = None,
) -> EMFit:
    """EM for every target."""

    def work(target: int) -> TargetFit:
        return fit_target(
            readings,
            graph,
            target,
            smoothing=smoothing,
            effort=effort,
            fixed=fixed,
            often=often,
            start=None if start is None else start[target],
        )

    return EMFit(graph, each_target(work, readings.sequences, what="fitting", progress=progress))
