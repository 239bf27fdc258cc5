"""The ways to fit, each as a point estimate that can be repeated for an ensemble."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, JointChain
from csdp.errors import InputError
from csdp.fitting import methods, pairs
from csdp.fitting.em import Effort, complete_transitions, count_transitions, fit_all
from csdp.fitting.pairs import Graph, pair_counts, read_neighbours, screen_neighbours
from csdp.fitting.sample import Progress, Sample

Floats = npt.NDArray[np.float64]
Chain = CoupledChain | JointChain
Draw = Callable[[np.random.Generator], Chain]


@dataclass(frozen=True, eq=False)
class PointEstimate:
    """A point estimate, and how to draw others like it."""

    chain: Chain
    draws: dict[str, Draw]
    method: str
    observations: int
    parameters: int
    neighbours: int
    log_likelihood: float | None = None
    path: tuple[float, ...] = ()
    iterations: int = 0
    converged: bool = True
    screen_neighbours: bool = False
    cost: dict[str, Any] | None = None
    noise_share: float = 0.0  # deviation of the noise against the average count


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


def choose_graph(readings: Sample, neighbours: Any, progress: Progress) -> tuple[Graph, bool]:
    """Whom each may follow: as given, or screened by lag-1 mutual information; and whether it was screened."""
    asked = read_neighbours(neighbours, readings.sequences)
    return (asked, False) if isinstance(asked, Graph) else (screen_neighbours(readings, asked, progress), True)


def parameters(graph: Graph, m: int) -> int:
    """Free numbers of the kernel: of each target the law of its next state, and an effect of every source."""
    degrees = np.diff(graph.indptr)
    return int((degrees * (m - 1) ** 2 + (m - 1)).sum())


def fit_em(
    readings: Sample, neighbours: Any, *, smoothing: float, effort: Effort, progress: Progress, fixed: bool
) -> PointEstimate:
    """Joint EM; with `fixed` (method counts) the counted transitions stay."""
    graph, chosen = choose_graph(readings, neighbours, progress)
    found = fit_all(readings, graph, smoothing=smoothing, effort=effort, progress=progress, fixed=fixed)
    quick = Effort(1, effort.iterations, effort.tolerance * 10, effort.seed)

    def again(random: np.random.Generator) -> Chain:
        often = ensemble.draw_blocks(readings.transitions, random)
        refitted = fit_all(
            readings,
            graph,
            smoothing=smoothing,
            effort=quick,
            progress=_ignore_progress,
            fixed=fixed,
            often=often,
            start=None if fixed else found.targets,
        )
        return make_chain(readings, graph, refitted.shares, refitted.moves)

    def drawn(random: np.random.Generator) -> Chain:
        return make_chain(readings, graph, *ensemble.draw_posterior(found, random))

    return PointEstimate(
        make_chain(readings, graph, found.shares, found.moves),
        {"bootstrap": again} if fixed else {"bootstrap": again, "posterior": drawn},
        "counts" if fixed else "em",
        observations=sum(target.observations for target in found.targets),
        parameters=parameters(graph, readings.m),
        neighbours=graph.degree,
        log_likelihood=sum(target.log_likelihood for target in found.targets),
        path=found.path,
        iterations=max(target.path.size for target in found.targets) - 1,
        converged=all(target.converged for target in found.targets),
        screened=chosen,
    )


def fit_pairs(
    readings: Sample,
    neighbours: Any,
    *,
    method: str,
    smoothing: float,
    epsilon: float | None,
    progress: Progress,
) -> PointEstimate:
    """Ching, Fung and Ng, or moments, from pair counts; with epsilon from noised ones and nothing else."""
    moved, scale, noise = 0, None, 0.0
    if epsilon is None:
        graph, chosen = choose_graph(readings, neighbours, progress)
        counts = pair_counts(readings, graph).astype(np.float64)
    else:
        asked = read_neighbours(neighbours, readings.sequences)
        graph, counts, moved = private.noisy_pair_counts(readings, asked, epsilon)
        chosen = not isinstance(asked, Graph)
        scale = private.noise_scale(moved, epsilon)
        noise = private.noise_variance(scale)
    ticks = pairs.pair_ticks(readings, graph)
    laws = pairs.frequencies(readings) if epsilon is None else pairs.pair_marginals(counts, graph)

    def solve(table: Floats, law: Floats, tell: Progress) -> CoupledChain:
        if method == "ching":
            weights, moves = pairs.ching(table, law, graph, smoothing=smoothing, progress=tell)
        else:
            weights, moves = pairs.moments(table, ticks, graph, noise=noise)
        return make_chain(readings, graph, weights, moves)

    point = solve(counts, laws, progress)

    def again(random: np.random.Generator) -> Chain:
        often = ensemble.draw_blocks(readings.transitions, random)
        table = np.concatenate(
            [
                count_transitions(*complete_transitions(readings, graph.of(j), j, often), readings.m)
                for j in range(readings.sequences)
            ]
        )
        # The blocks keep only complete transitions; their numbers are scaled to those behind the point estimate.
        table *= ticks[:, None, None] / np.maximum(table.sum(axis=(1, 2), keepdims=True), 1.0)
        return solve(table, laws, _ignore_progress)

    def simulated(random: np.random.Generator) -> Chain:
        table = pair_counts(_repetition(point, readings, random), graph).astype(np.float64)
        assert scale is not None
        table += private.simulated_noise(table.shape, scale, random)
        return solve(table, pairs.pair_marginals(table, graph), _ignore_progress)

    return PointEstimate(
        point,
        {"bootstrap": again} if epsilon is None else {"parametric": simulated},
        method,
        observations=int(ticks[graph.targets == graph.sources].sum()),
        parameters=parameters(graph, readings.m),
        neighbours=graph.degree,
        screened=chosen,
        cost=_cost(epsilon, moved, "lag-1 pair counts"),
        noise_share=float(np.sqrt(noise) * readings.m**2 / ticks.mean()),
    )


def fit_joint(
    readings: Sample, *, smoothing: float, epsilon: float | None, effort: Effort, progress: Progress
) -> PointEstimate:
    """Counted joint transitions, smoothed towards a coupled chain (private: towards independent chains)."""
    size = joint.check_size(readings)
    s, m = readings.sequences, readings.m
    counts = joint.joint_counts(readings)
    scale = None if epsilon is None else private.noise_scale(private.JOINT_SENSITIVITY, epsilon)
    if scale is None:
        below = fit_em(readings, "all", smoothing=max(smoothing, 0.5), effort=effort, progress=progress, fixed=False)
        prior = below.chain.kernel()
    else:
        counts = private.add_count_noise(counts.astype(np.int64), scale)
        prior = joint.independent_kernel(counts, s, m, smoothing)

    def made(kernel: Floats) -> JointChain:
        return JointChain(kernel, states=m, sequences=s, values=_values(readings), names=readings.names)

    point = made(joint.smoothed_kernel(counts, prior, smoothing))

    def again(random: np.random.Generator) -> Chain:
        often = ensemble.draw_blocks(readings.transitions, random)
        return made(joint.smoothed_kernel(joint.joint_counts(readings, often), prior, smoothing))

    def drawn(random: np.random.Generator) -> Chain:
        return made(ensemble.draw_dirichlet(np.maximum(counts, 0.0) + smoothing * size * prior, random))

    def simulated(random: np.random.Generator) -> Chain:
        assert scale is not None
        table = joint.joint_counts(_repetition(point, readings, random))
        table += private.simulated_noise(table.shape, scale, random)
        return made(joint.smoothed_kernel(table, joint.independent_kernel(table, s, m, smoothing), smoothing))

    return PointEstimate(
        point,
        {"bootstrap": again, "posterior": drawn} if scale is None else {"parametric": simulated},
        "joint",
        observations=int(joint.joint_moves(readings)[1].sum()),
        parameters=size * (size - 1),
        neighbours=s - 1,
        log_likelihood=_joint_likelihood(counts, point) if scale is None else None,
        cost=_cost(epsilon, private.JOINT_SENSITIVITY, "counts of joint transitions"),
        noise_share=0.0 if scale is None else private.noise_variance(scale) ** 0.5 * size**2 / readings.transitions,
    )


def _repetition(point: Chain, readings: Sample, random: np.random.Generator) -> Sample:
    """Readings of a simulation, missing where the real ones are; nothing else of those is looked at."""
    states = point.simulate(readings.transitions + 1, seed=int(random.integers(2**31))).astype(np.int16)
    drawn = replace(readings, states=states, direction="forward").in_direction(readings.direction)
    drawn.states[readings.states < 0] = -1
    return drawn


def _joint_likelihood(counts: Floats, chain: JointChain) -> float:
    seen = counts > 0
    return float((counts[seen] * np.log(chain.kernel()[seen])).sum())


def _cost(epsilon: float | None, moved: int, what: str) -> dict[str, Any] | None:
    if epsilon is None:
        return None
    # The identity: what is made of these noised counts costs no more, another draw of them costs again.
    identity = secrets.token_hex(16)
    return {"epsilon": epsilon, "level": "event", "sensitivity": moved, "noised": what, "fit": identity}


def _ignore_progress(what: str, done: int, total: int) -> None:
    """Repetitions tell their progress as a whole."""


def ensemble_draw(found: PointEstimate, kind: str) -> Draw:
    """How to draw a member of the ensemble; the private way where raw readings must not be seen again."""
    if "parametric" in found.draws:
        return found.draws["parametric"]
    if kind not in found.draws:
        raise InputError(f"ensemble_method: {kind!r} is not offered for {found.method!r}; use {', '.join(found.draws)}")
    return found.draws[kind]
