"""The ways to fit, each as a point estimate that can be repeated for an ensemble of plausible chains.

Ensembles, with seeds that make them repeatable (and carry no claim of privacy):

bootstrap   the fit is repeated on moving blocks of transitions drawn with replacement (Künsch 1989)
posterior   rows and weights are drawn from their Dirichlet laws, given the transitions that EM assigned to each source
parametric  the fit is repeated on simulated readings: hidden environments, and private fits, whose counts are noised
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csdp.arrays import Bools, Floats, Indices
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.environment_steps import draw_environments
from csdp.errors import InputError, TooLargeError
from csdp.fitting import pairs
from csdp.fitting.em import Effort, EMFit, complete_transitions, count_transitions, fit_all
from csdp.fitting.pairs import Graph, pair_counts, read_neighbours, screen_neighbours
from csdp.fitting.sample import Progress, Sample, normalise_rows, snapshot_numbers
from csdp.noise import variance

Chain = CoupledChain | EnvironmentChain | JointChain
Draw = Callable[[np.random.Generator], Chain]

#: Joint states up to which transitions are counted.
JOINT_STATES = 1024


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
    screened: bool = False
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
    wanted = read_neighbours(neighbours, readings.sequences)
    return (wanted, False) if isinstance(wanted, Graph) else (screen_neighbours(readings, wanted, progress), True)


def parameters(graph: Graph, m: int) -> int:
    """Free numbers of the kernel: of each target the law of its next state, and an effect of every source."""
    degrees = np.diff(graph.indptr)
    return int((degrees * (m - 1) ** 2 + (m - 1)).sum())


def fit_em(
    readings: Sample, neighbours: Any, *, smoothing: float, effort: Effort, progress: Progress, fixed: bool
) -> PointEstimate:
    """Joint EM; with `fixed` (method counts) the counted transitions stay."""
    graph, chosen = choose_graph(readings, neighbours, progress)
    fitted = fit_all(readings, graph, smoothing=smoothing, effort=effort, progress=progress, fixed=fixed)
    quick = Effort(1, effort.iterations, effort.tolerance * 10, effort.seed)

    def refit(random: np.random.Generator) -> Chain:
        often = draw_blocks(readings.transitions, random)
        refitted = fit_all(
            readings,
            graph,
            smoothing=smoothing,
            effort=quick,
            progress=_ignore_progress,
            fixed=fixed,
            often=often,
            start=None if fixed else fitted.targets,
        )
        return make_chain(readings, graph, refitted.shares, refitted.moves)

    def draw(random: np.random.Generator) -> Chain:
        return make_chain(readings, graph, *draw_posterior(fitted, random))

    return PointEstimate(
        make_chain(readings, graph, fitted.shares, fitted.moves),
        {"bootstrap": refit} if fixed else {"bootstrap": refit, "posterior": draw},
        "counts" if fixed else "em",
        observations=sum(target.observations for target in fitted.targets),
        parameters=parameters(graph, readings.m),
        neighbours=graph.degree,
        log_likelihood=sum(target.log_likelihood for target in fitted.targets),
        path=fitted.path,
        iterations=max(target.path.size for target in fitted.targets) - 1,
        converged=all(target.converged for target in fitted.targets),
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
        wanted = read_neighbours(neighbours, readings.sequences)
        graph, counts, moved = pairs.noisy_pair_counts(readings, wanted, epsilon)
        chosen = not isinstance(wanted, Graph)
        scale = pairs.noise_scale(moved, epsilon)
        noise = variance(scale)
    ticks = pairs.pair_ticks(readings, graph)
    laws = pairs.frequencies(readings) if epsilon is None else pairs.pair_marginals(counts, graph)

    def solve(table: Floats, law: Floats, report: Progress) -> CoupledChain:
        if method == "ching":
            weights, moves = pairs.fit_ching(table, law, graph, smoothing=smoothing, progress=report)
        else:
            weights, moves = pairs.fit_moments(table, ticks, graph, noise=noise)
        return make_chain(readings, graph, weights, moves)

    point = solve(counts, laws, progress)

    def refit(random: np.random.Generator) -> Chain:
        often = draw_blocks(readings.transitions, random)
        table = np.concatenate(
            [
                count_transitions(*complete_transitions(readings, graph.of(j), j, often), readings.m)
                for j in range(readings.sequences)
            ]
        )
        # The blocks keep only complete transitions; their numbers are scaled to those behind the point estimate.
        table *= ticks[:, None, None] / np.maximum(table.sum(axis=(1, 2), keepdims=True), 1.0)
        return solve(table, laws, _ignore_progress)

    def simulate(random: np.random.Generator) -> Chain:
        table = pair_counts(simulate_sample(point, readings, random), graph).astype(np.float64)
        assert scale is not None
        table += pairs.simulated_noise(table.shape, scale, random)
        return solve(table, pairs.pair_marginals(table, graph), _ignore_progress)

    return PointEstimate(
        point,
        {"bootstrap": refit} if epsilon is None else {"parametric": simulate},
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
    size = check_size(readings)
    s, m = readings.sequences, readings.m
    counts = joint_counts(readings)
    scale = None if epsilon is None else pairs.noise_scale(pairs.JOINT_SENSITIVITY, epsilon)
    if scale is None:
        below = fit_em(readings, "all", smoothing=max(smoothing, 0.5), effort=effort, progress=progress, fixed=False)
        prior = below.chain.kernel()
    else:
        counts = pairs.add_count_noise(counts.astype(np.int64), scale)
        prior = independent_kernel(counts, s, m, smoothing)

    def make(kernel: Floats) -> JointChain:
        return JointChain(kernel, states=m, sequences=s, values=_values(readings), names=readings.names)

    point = make(smoothed_kernel(counts, prior, smoothing))

    def refit(random: np.random.Generator) -> Chain:
        often = draw_blocks(readings.transitions, random)
        return make(smoothed_kernel(joint_counts(readings, often), prior, smoothing))

    def draw(random: np.random.Generator) -> Chain:
        return make(draw_dirichlet(np.maximum(counts, 0.0) + smoothing * size * prior, random))

    def simulate(random: np.random.Generator) -> Chain:
        assert scale is not None
        table = joint_counts(simulate_sample(point, readings, random))
        table += pairs.simulated_noise(table.shape, scale, random)
        return make(smoothed_kernel(table, independent_kernel(table, s, m, smoothing), smoothing))

    return PointEstimate(
        point,
        {"bootstrap": refit, "posterior": draw} if scale is None else {"parametric": simulate},
        "joint",
        observations=int(joint_moves(readings)[1].sum()),
        parameters=size * (size - 1),
        neighbours=s - 1,
        log_likelihood=_joint_likelihood(counts, point) if scale is None else None,
        cost=_cost(epsilon, pairs.JOINT_SENSITIVITY, "counts of joint transitions"),
        noise_share=0.0 if scale is None else variance(scale) ** 0.5 * size**2 / readings.transitions,
    )


def simulate_sample(
    point: Chain, readings: Sample, random: np.random.Generator, classes: Indices | None = None
) -> Sample:
    """Readings of a simulation, missing where the real ones are; nothing else of those is looked at.

    `classes` are those of the ticks, in their order in time, by the clock of a chain with hidden environments as well.
    """
    seed = int(random.integers(2**31))
    if classes is None:
        states = point.simulate(readings.transitions + 1, seed=seed).astype(np.int16)
    else:
        assert isinstance(point, EnvironmentChain)
        assert point.switching is not None
        hidden = draw_environments(point.switching, point.environment_law, classes.size, random)
        path = (classes * point.regimes + hidden).tolist()
        states = point.simulate_given(path, seed=seed).astype(np.int16)
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
    """For repetitions, whose progress is shown as a whole."""


def ensemble_draw(estimate: PointEstimate, kind: str) -> Draw:
    """How to draw a member of the ensemble; from noised counts alone where the fit was private."""
    if "parametric" in estimate.draws:
        return estimate.draws["parametric"]
    if kind not in estimate.draws:
        offered = ", ".join(estimate.draws)
        raise InputError(f"ensemble_method: {kind!r} is not offered for {estimate.method!r}; use {offered}")
    return estimate.draws[kind]


def check_size(readings: Sample) -> int:
    """The number of joint states, where there are not too many."""
    size = readings.m**readings.sequences
    if size > JOINT_STATES:
        raise TooLargeError(
            f"joint: {readings.m}**{readings.sequences} joint states; at most {JOINT_STATES:,} are counted. "
            "Fit fewer sequences or states, or method='em'",
            needed=float(min(size, 10**300)),
            limit=JOINT_STATES,
        )
    return int(size)


def joint_moves(readings: Sample) -> tuple[Indices, Bools]:
    """Cell number (present * N + next) of every step, and which steps have no missing reading."""
    size = check_size(readings)
    code = snapshot_numbers(readings.states, readings.m)
    seen = np.asarray((readings.states >= 0).all(axis=1))
    return code[:-1] * size + code[1:], seen[:-1] & seen[1:]


def joint_counts(readings: Sample, often: Floats | None = None) -> Floats:
    """How often each snapshot was followed by each, (N, N)."""
    size = check_size(readings)
    cells, complete = joint_moves(readings)
    if not complete.any():
        raise InputError("joint: no step at which every sequence was read at both ends; fill the gaps")
    weights = None if often is None else often[complete]
    counts: Any = np.bincount(cells[complete], weights, minlength=size * size)
    return np.asarray(counts.reshape(size, size), dtype=np.float64)


def smoothed_kernel(counts: Floats, prior: Floats, smoothing: float) -> Floats:
    """Rows `(counts + N smoothing prior) / (their sum)`: snapshots hardly ever seen move as the prior says."""
    raised = np.maximum(counts, 0.0) + smoothing * counts.shape[0] * prior
    return normalise_rows(raised, 0.0)


def independent_kernel(counts: Floats, sequences: int, states: int, smoothing: float) -> Floats:
    """The kernel of independent chains with the same own transitions: the prior where only joint counts are known."""
    kernel: Floats = np.ones((1, 1))
    table = counts.reshape((states,) * (2 * sequences))
    for i in range(sequences):
        away = tuple(axis for axis in range(2 * sequences) if axis not in {i, sequences + i})
        own = normalise_rows(np.maximum(table.sum(axis=away), 0.0), max(smoothing, 1e-9))
        kernel = np.asarray(np.kron(kernel, own))
    return kernel


def draw_blocks(steps: int, random: np.random.Generator) -> Floats:
    """How often each transition is drawn: blocks of about 2 n^(1/3) steps, n transitions in all."""
    length = min(steps, max(1, math.ceil(2 * steps ** (1 / 3))))
    starts = random.integers(0, steps - length + 1, -(-steps // length))
    drawn = (starts[:, None] + np.arange(length)).ravel()[:steps]
    return np.bincount(drawn, minlength=steps).astype(np.float64)


def draw_posterior(estimate: EMFit, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights and transitions drawn from their Dirichlet laws, given who was followed as EM has it."""
    shares, moves = [], []
    for target in estimate.targets:
        expected = np.maximum(target.expected, 1e-9)
        moves.append(draw_dirichlet(expected, random))
        shares.append(draw_dirichlet(expected.sum(axis=(1, 2)), random))
    return np.concatenate(shares), np.concatenate(moves)


def draw_dirichlet(counts: Floats, random: np.random.Generator) -> Floats:
    """Rows of probabilities drawn from their Dirichlet laws, given counts with smoothing; none of them zero."""
    rows = np.maximum(random.standard_gamma(np.maximum(counts, 1e-9)), 1e-300)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))
