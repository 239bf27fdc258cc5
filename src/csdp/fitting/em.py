"""Joint maximum likelihood of coupling and transitions by expectation-maximisation.

Given the present snapshot the targets move independently, so each is a problem of its own: with
`G_k = coupling[j][k] transitions[j][k]` the log-likelihood `sum_t ln sum_k G_k[x_k(t), x_j(t+1)]` is concave in G, and
so is the smoothing's share `pseudo * sum ln G`. There is one maximum, which EM climbs from any positive start without
ever stepping down (Dempster, Laird and Rubin 1977).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, FitRecord, JointChain
from csdp.errors import InputError, TooLargeError
from csdp.fitting.sample import (
    Chain,
    Graph,
    Progress,
    Sample,
    choose_graph,
    count_parameters,
    normalise_rows,
    snapshot_numbers,
)
from csdp.numbers import Floats, Indices

#: Pseudo-counts in each cell of a transition matrix, shared by those a target may follow.
SMOOTHING = 0.5
#: Joint states up to which transitions are counted.
JOINT_STATES = 1024


@dataclass(frozen=True)
class Effort:
    """The effort of EM: iterations, and the gain per transition below which it stops."""

    iterations: int = 2000
    tolerance: float = 1e-8


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


def complete_transitions(
    readings: Sample, sources: Indices, target: int, often: Floats | None = None
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
    effort: Effort,
    often: Floats | None = None,
    start: TargetFit | None = None,
) -> TargetFit:
    """EM for one target, from counted transitions or from an earlier fit; `often`: the weight of every step."""
    from csdp.fitting import compiled

    sources, m = graph.of(target), readings.m
    rows, following, weights = complete_transitions(readings, sources, target, often)
    whole, d = float(weights.sum()), sources.size
    if not whole:
        raise InputError(
            f"{readings.labels[target]!r} has no transition at which it and those it may follow were all read; "
            "fill the gaps, or lower neighbours"
        )
    pseudo = SMOOTHING / d
    if start is not None:
        point = _pack(start.share, start.moves)
    else:
        own = int(np.flatnonzero(sources == target)[0]) if target in sources else 0
        point = _first_point(count_transitions(rows, following, weights, m), own)
    expected = np.empty((d, m, m))
    path, converged = compiled.expectation_maximisation(
        rows, following, weights, pseudo, point, expected, effort.iterations, effort.tolerance * whole
    )
    share = point[:d]
    moves = point[d:].reshape(d, m, m)
    likelihood = float(path[-1]) - pseudo * float(np.log(share[:, None, None] * moves).sum())
    return TargetFit(share, moves, expected, path.copy(), bool(converged), round(whole), likelihood)


def _first_point(counts: Floats, own: int) -> Floats:
    """The point to climb from: half its own, and counted transitions. The objective is concave, so any will do."""
    d = counts.shape[0]
    share = np.full(d, 1.0 if d == 1 else 0.5 / (d - 1))
    share[own] = 1.0 if d == 1 else 0.5
    return _pack(share, normalise_rows(counts, max(SMOOTHING / d, 0.01)))


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
    effort: Effort,
    progress: Progress,
    often: Floats | None = None,
    start: Sequence[TargetFit] | None = None,
) -> EMFit:
    """EM for every target."""

    def work(target: int) -> TargetFit:
        begin = None if start is None else start[target]
        return fit_target(readings, graph, target, effort=effort, often=often, start=begin)

    return EMFit(graph, each_target(work, readings.sequences, what="fitting", progress=progress))


# ---- chains ----------------------------------------------------------------------------------------------------------


#: Draws a chain that the readings leave possible beside the point estimate.
Draw = Callable[[np.random.Generator], Chain]


@dataclass(frozen=True, eq=False)
class PointEstimate:
    """A fitted chain, and the record of its fit as far as the estimator knows it.

    `draw` repeats a private fit on simulated readings, whose counts are noised again.
    """

    chain: Chain
    record: FitRecord
    draw: Draw | None = None
    cost: dict[str, Any] | None = None


def make_chain(readings: Sample, graph: Graph, shares: Floats, moves: Floats) -> CoupledChain:
    """A chain from weights and matrices of the edges; edges of weight 0 are dropped."""
    from scipy.sparse import csr_array

    kept = shares > 0
    s = readings.sequences
    matrix = csr_array((shares[kept], (graph.targets[kept], graph.sources[kept])), shape=(s, s))
    return CoupledChain(
        matrix, moves[kept], values=_values(readings), names=readings.names, direction=readings.direction
    )


def _values(readings: Sample) -> Any:
    if readings.values is None:
        return None
    table = np.asarray(readings.values, dtype=np.float64)
    return table[0] if table.ndim == 2 and (table == table[0]).all() else table


def fit_em(readings: Sample, neighbours: Any, *, effort: Effort, progress: Progress) -> PointEstimate:
    """A coupled chain by EM."""
    graph, chosen = choose_graph(readings, neighbours, progress)
    fitted = fit_all(readings, graph, effort=effort, progress=progress)
    record = FitRecord(
        "em",
        observations=sum(target.observations for target in fitted.targets),
        parameters=count_parameters(graph, readings.m),
        neighbours=graph.degree,
        log_likelihood=sum(target.log_likelihood for target in fitted.targets),
        iterations=max(target.path.size for target in fitted.targets) - 1,
        converged=all(target.converged for target in fitted.targets),
        screened=chosen,
    )
    return PointEstimate(make_chain(readings, graph, fitted.shares, fitted.moves), record)


def fit_joint(readings: Sample, *, effort: Effort, progress: Progress) -> PointEstimate:
    """Counted joint transitions, smoothed towards a coupled chain."""
    size = check_size(readings)
    counts = joint_counts(readings)
    prior = fit_em(readings, "all", effort=effort, progress=progress).chain.kernel()
    chain = joint_chain(readings, smoothed_kernel(counts, prior))
    seen = counts > 0
    record = FitRecord(
        "joint",
        observations=int(counts.sum()),
        parameters=size * (size - 1),
        neighbours=readings.sequences - 1,
        log_likelihood=float((counts[seen] * np.log(chain.kernel()[seen])).sum()),
    )
    return PointEstimate(chain, record)


def joint_chain(readings: Sample, kernel: Floats) -> JointChain:
    """A joint chain of the sequences of the readings."""
    return JointChain(
        kernel, states=readings.m, sequences=readings.sequences, values=_values(readings), names=readings.names
    )


def check_size(readings: Sample) -> int:
    """The number of joint states, if there are not too many."""
    size = readings.m**readings.sequences
    if size > JOINT_STATES:
        raise TooLargeError(
            f"joint: {readings.m}**{readings.sequences} joint states; at most {JOINT_STATES:,} are counted. "
            "Fit fewer sequences or states, or method='em'",
            needed=float(min(size, 10**300)),
            limit=JOINT_STATES,
        )
    return int(size)


def joint_counts(readings: Sample) -> Floats:
    """How often each snapshot was followed by each, (N, N)."""
    size = check_size(readings)
    code = snapshot_numbers(readings.states, readings.m)
    seen = np.asarray((readings.states >= 0).all(axis=1))
    cells, complete = code[:-1] * size + code[1:], seen[:-1] & seen[1:]
    if not complete.any():
        raise InputError("joint: no step at which every sequence was read at both ends; fill the gaps")
    counts: Any = np.bincount(cells[complete], minlength=size * size)
    return np.asarray(counts.reshape(size, size), dtype=np.float64)


def smoothed_kernel(counts: Floats, prior: Floats) -> Floats:
    """Rows `(counts + N SMOOTHING prior) / (their sum)`: rare snapshots move as the prior says."""
    raised = np.maximum(counts, 0.0) + SMOOTHING * counts.shape[0] * prior
    return normalise_rows(raised, 0.0)


def simulate_sample(point: Chain, readings: Sample, random: np.random.Generator) -> Sample:
    """Readings of a simulation, missing wherever the real ones are; nothing else of those is used."""
    states = point.simulate(readings.transitions + 1, seed=int(random.integers(2**31))).astype(np.int16)
    drawn = replace(readings, states=states, direction="forward").in_direction(readings.direction)
    drawn.states[readings.states < 0] = -1
    return drawn
