"""Fits of environment chains: by a clock or hidden, compared on readings that were set aside.

Members of a known environment are shrunk towards the chain common to all of them: each gets `shrinkage` transitions of
the common chain beside its own, a number chosen on the readings set aside. Members of a hidden environment get
`HIDDEN_SHRINKAGE` of them.

The sequence that each one followed at a step is not seen, nor is a hidden environment e_t. Both are summed out
together (Baum et al. 1970): weights `Pr(e_t | all steps)` come from a forward and a backward pass, the
transitions of environment e are then counted with those weights. Every member gets `prior` pseudo-transitions of the
common chain, so that a rare environment moves as all do. The objective, log-likelihood plus the share of
the prior, never falls.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csdp import check
from csdp.chain import CoupledChain, EnvironmentChain, FitRecord
from csdp.chain.model import Direction
from csdp.chain.stationary import reverse_kernel
from csdp.errors import InputError
from csdp.fitting.em import (
    Effort,
    PointEstimate,
    fit_all,
    fit_em,
    make_chain,
)
from csdp.fitting.sample import (
    GROWING,
    Graph,
    Progress,
    Sample,
    choose_graph,
    count_parameters,
    join_graphs,
    normalise_rows,
)
from csdp.numbers import Floats, Indices
from csdp.panel import Panel

#: Most classes that the times of day of a panel are put into if no cycle is given.
DAY_CLASSES = 8
#: Share of the readings that is set aside if the data chooses.
HELD_OUT = 0.3
#: Fewest ticks on either side of the split.
FEWEST = 20
#: Numbers of hidden environments that are tried.
COUNTS = (2, 3, 4, 5, 6, 7, 8)
#: Weights of the common chain, in transitions, that are tried for a known environment.
SHRINKAGES = (2.0, 10.0, 50.0, 250.0, 1000.0)
#: Weight of the common chain in every hidden environment, in transitions.
HIDDEN_SHRINKAGE = 5.0
#: Pseudo-switches in each cell of the switching matrix, and of the first environment.
SWITCHES = 0.5
#: Steps over which snapshots are averaged before they are grouped, one start after the other: environments may last.
WINDOWS = (1, 4, 16)
#: Starts of a hidden fit, and iterations that are tried from each.
STARTS, TRIAL = 6, 15
#: Gain per transition that stops a fit by a clock, whose likelihood is concave; that of a hidden environment has
#: plateaus, on which a step gains little for a long time.
KNOWN_TOLERANCE = 1e-6
#: Transitions of several sequences below which one thread is quicker.
_THREADED = 100_000


# ---- the clock -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Clock:
    """The environment of every tick, `labels` (T,), numbers below `count`, by the `cycle` of a clock."""

    labels: Indices
    count: int
    cycle: tuple[int, ...]


def read_clock(cycle: int | Sequence[int] | None, data: Any, ticks: int) -> Clock:
    """Environments by the clock: `cycle` phases, or the environment of each phase, or a panel's times of day."""
    numbers = np.asarray(data.ticks if isinstance(data, Panel) else np.arange(ticks), dtype=np.int64)
    phases = _day_classes(data, numbers) if cycle is None else _read_cycle(cycle)
    count = max(phases) + 1
    if set(phases) != set(range(count)):
        raise InputError(f"environments: {sorted(set(phases))} given; number them 0, 1, ... without a gap")
    if len(phases) > ticks:
        raise InputError(
            f"environments: {len(phases)} phases given for {ticks} ticks; a phase that is never met has no fit"
        )
    return Clock(np.asarray(phases, dtype=np.intp)[numbers % len(phases)], count, cycle=phases)


def _read_cycle(cycle: int | Sequence[int]) -> tuple[int, ...]:
    hint = "The number of phases of the clock, or the environment of each phase"
    phases = np.asarray(cycle)
    if phases.ndim == 0:
        return tuple(range(check.whole("environments", cycle, least=2, hint=hint)))
    if phases.ndim != 1 or phases.size < 2 or not np.issubdtype(phases.dtype, np.integer) or phases.min() < 0:
        raise InputError(f"environments: {cycle!r} given; whole numbers are allowed. {hint}")
    return tuple(phases.tolist())


def has_clock(data: Any) -> bool:
    """Whether data carries timestamps at several times of day."""
    if not isinstance(data, Panel) or data.times.dtype.kind != "M":
        return False
    return np.unique(_times_of_day(data)).size > 1


def _times_of_day(panel: Panel) -> Indices:
    """Seconds since midnight of every tick."""
    seconds = panel.times.astype("datetime64[s]").astype(np.int64) % 86_400
    return np.asarray(seconds, dtype=np.intp)


def _day_classes(data: Any, numbers: Any) -> tuple[int, ...]:
    """The cycle of a panel's day: its times of day in order, in at most `DAY_CLASSES` classes of equal length."""
    if not has_clock(data):
        raise InputError(
            "environments: none given, and the data has no timestamps at several times of day; give environments=, the "
            "number of ticks after which the clock repeats"
        )
    times, place = np.unique(_times_of_day(data), return_inverse=True)
    rank = np.full(times.size, -1)
    rank[numbers % times.size] = place
    if (rank[numbers % times.size] != place).any() or (rank < 0).any():
        raise InputError(
            f"environments: none given, and the {times.size} times of day of the panel do not follow each other in a "
            "fixed order of ticks; give environments=, the environment of each phase of the clock"
        )
    classes = min(times.size, DAY_CLASSES)
    return tuple((rank * classes // times.size).tolist())


# ---- comparison ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ChainCandidate:
    """One kind of chain that might be fitted: by a clock, with `count` hidden environments, or with neither."""

    name: str
    neighbours: Any
    clock: Clock | None = None
    count: int = 0
    shrinkage: float = HIDDEN_SHRINKAGE


@dataclass(frozen=True)
class Gain:
    """Nats per tick that a candidate gains over independent chains on readings that were set aside."""

    candidate: ChainCandidate
    gain: float
    error: float


def fit_environments(
    readings: Sample,
    direction: Direction,
    *,
    clock: Clock | None,
    count: int | None,
    neighbours: Any,
    effort: Effort,
    progress: Progress,
) -> PointEstimate:
    """By the clock, with the best shrinkage; else hidden, `count` of them or the best number, on readings set aside.

    The gain of the best is the largest of those tried: with few candidates and many ticks that flatters it little.
    """
    members = 0 if neighbours is None else neighbours
    if clock is not None:
        compared = Comparison(readings, direction, effort, progress)
        gains = [compared.best_shrinkage(ChainCandidate("clock", members, clock))]
    elif count is not None:
        compared = Comparison(readings, direction, effort, progress)
        gains = compared.growing_counts(ChainCandidate("hidden", members), (count,))
    else:
        # Their number is a choice of the model too: it is made where the class grows, never where it is judged.
        growing = readings.between(0, round(readings.states.shape[0] * GROWING))
        compared = Comparison(growing, direction, effort, progress)
        gains = compared.growing_counts(ChainCandidate("hidden", members), COUNTS)
    chosen = max(gains, key=lambda each: each.gain).candidate
    estimate = fit_candidate(chosen, readings.in_direction(direction), effort=effort, progress=progress)
    tried = tuple((f"{each.candidate.name}, {direction}", each.gain, each.error) for each in gains)
    return replace(estimate, record=replace(estimate.record, gains=tried))


class Comparison:
    """Candidates fitted before a cut and scored after it, in one direction, against independent chains."""

    def __init__(self, readings: Sample, direction: Direction, effort: Effort, progress: Progress) -> None:
        ticks = readings.states.shape[0]
        cut = round(ticks * (1 - HELD_OUT))
        if min(cut, ticks - cut) < FEWEST:
            raise InputError(
                f"environment: {ticks} ticks are too few to set {HELD_OUT:.0%} aside; at least {FEWEST} on either side "
                "are needed to compare chains. Fit on more ticks, or without environment="
            )
        self._cut, self._past = cut, readings.between(0, cut).in_direction(direction)
        self._future = readings.between(cut - 1, ticks)
        self._effort, self._progress = effort, progress
        self._independent: Any = self._fit(ChainCandidate("independent", 0))

    def _fit(self, candidate: ChainCandidate) -> Any:
        return fit_candidate(candidate, self._past, effort=self._effort, progress=self._progress).chain

    def gain(self, candidate: ChainCandidate) -> Gain:
        """The gain of a candidate after a fit on the readings before the cut."""
        clock, labels = candidate.clock, None
        if clock is not None:
            labels = clock.labels[self._cut - 1 :]
            clock = replace(clock, labels=clock.labels[: self._cut])
        chain = self._fit(replace(candidate, clock=clock))
        return Gain(candidate, *held_out_gain(chain, self._independent, self._future, labels))

    def best_shrinkage(self, candidate: ChainCandidate) -> Gain:
        """The gain with the best shrinkage of those tried."""
        return max((self.gain(replace(candidate, shrinkage=each)) for each in SHRINKAGES), key=lambda each: each.gain)

    def growing_counts(self, candidate: ChainCandidate, counts: Sequence[int]) -> list[Gain]:
        """Gains with more and more hidden environments, until one more gains nothing."""
        gains: list[Gain] = []
        for count in counts:
            gains.append(self.gain(replace(candidate, name=f"{candidate.name} {count}", count=count)))
            if len(gains) > 1 and gains[-1].gain <= gains[-2].gain:
                break
        return gains


def fit_candidate(candidate: ChainCandidate, readings: Sample, *, effort: Effort, progress: Progress) -> PointEstimate:
    """Fit one candidate on readings, in their direction."""
    clock = candidate.clock
    if clock is None and not candidate.count:
        return fit_em(readings, candidate.neighbours, effort=effort, progress=progress)
    graph, screened = choose_graph(readings, candidate.neighbours, progress)
    whole = fit_all(readings, graph, effort=effort, progress=progress)
    # Expected transitions (edges, m, m) of the chain that knows no environment, its smoothing included.
    common = np.concatenate([target.expected for target in whole.targets])
    prior = _shrink(common[..., None], candidate.shrinkage, graph.indptr)

    def make(fitted: EnvironmentFit) -> EnvironmentChain:
        members = [
            make_chain(readings, graph, fitted.shares[:, e], fitted.moves[..., e]) for e in range(fitted.environments)
        ]
        return _make_environments(members, fitted.switching, clock, readings.direction)

    if clock is None:
        fitted = fit_hidden(
            readings,
            graph,
            candidate.count,
            common=common,
            prior=prior,
            effort=effort,
            progress=progress,
        )
    else:
        weights = label_weights(order_labels(clock.labels, readings.direction), clock.count)
        fitted = climb(
            readings,
            begin(graph, weights, common=common, hidden=False),
            prior,
            iterations=effort.iterations,
            tolerance=max(effort.tolerance, KNOWN_TOLERANCE),
        )
    point = make(fitted)
    regimes = candidate.count
    record = FitRecord(
        "em",
        observations=count_complete(readings, graph),
        parameters=fitted.environments * count_parameters(graph, readings.m) + regimes * max(regimes - 1, 0),
        neighbours=graph.degree,
        log_likelihood=fitted.log_likelihood,
        iterations=len(fitted.path),
        converged=fitted.converged,
        screened=screened,
        shrinkage=candidate.shrinkage,
    )
    return PointEstimate(point, record)


def _shrink(counts: Floats, weight: float, indptr: Indices) -> Floats:
    """Pseudo-transitions of every environment: `weight` of those counted (edges, m, m, ...), for each target."""
    whole = np.add.reduceat(counts.sum(axis=(1, 2)), indptr[:-1], axis=0)
    return np.asarray(weight * counts / np.repeat(whole, np.diff(indptr), axis=0)[:, None, None])


def _make_environments(
    members: list[CoupledChain], switching: Floats | None, clock: Clock | None, direction: Direction
) -> EnvironmentChain:
    """The chain of a fit; the switching of a backward one is turned to lead forward in time."""
    if switching is None:
        assert clock is not None
        return EnvironmentChain(members, cycle=clock.cycle)
    chain = EnvironmentChain(members, switching=switching)
    if direction == "forward":
        return chain
    return EnvironmentChain(members, switching=reverse_kernel(switching, chain.environment_law))


# ---- scores of steps -------------------------------------------------------------------------------------------------


def in_blocks(work: Callable[[int, int], None], sequences: int, transitions: int) -> None:
    """Do the work for ranges of sequences, on all cores if there is enough of it."""
    cores = min(os.cpu_count() or 1, sequences) if transitions > _THREADED else 1
    edges = np.linspace(0, sequences, cores + 1).astype(int).tolist()
    if cores == 1:
        work(0, sequences)
        return
    with ThreadPoolExecutor(max_workers=cores) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


def step_scores(readings: Sample, graph: Graph, mix: Floats) -> Floats:
    """Log-probability (steps, E) of every step under every environment; missing readings count nothing."""
    from csdp.fitting import compiled

    parts: list[Floats] = []

    def work(first: int, last: int) -> None:
        part = np.zeros((readings.transitions, mix.shape[3]))
        compiled.score_steps(readings.states, graph.indptr, graph.sources, mix, first, last, part)
        parts.append(part)

    in_blocks(work, readings.sequences, readings.transitions * graph.sources.size)
    return np.asarray(np.sum(parts, axis=0))


def filter_scores(scores: Floats, start: Floats, switching: Floats) -> tuple[Floats, Floats]:
    """`Pr(e_t | steps up to t)` (steps, E), and the log-probability of each step given those before."""
    from csdp.fitting import compiled

    forward, gains = np.empty(scores.shape), np.empty(scores.shape[0])
    compiled.filter_steps(scores, start, switching, forward, gains)
    return forward, gains


def members_of(chain: CoupledChain | EnvironmentChain) -> tuple[CoupledChain, ...]:
    """The coupled chains that a chain is made of."""
    return chain.environments if isinstance(chain, EnvironmentChain) else (chain,)


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
    """Environment of every step, in the order in which a chain of that direction reads them; labels by tick."""
    steps = labels[1:]
    return steps if direction == "forward" else steps[::-1]


def chain_scores(
    chain: CoupledChain | EnvironmentChain, readings: Sample, graph: Graph, labels: Indices | None
) -> Floats:
    """Log-probability of every step of the readings, in the order of the chain's direction.

    Under a hidden environment: given the steps before, its own law at the first. `labels` are the environments of the
    ticks by a clock. A sequence counts at steps where it and all its sources in `graph` were read.
    """
    sample = readings.in_direction(chain.direction)
    scores = step_scores(sample, graph, mix_members(members_of(chain), graph))
    if not isinstance(chain, EnvironmentChain):
        return scores[:, 0]
    if chain.switching is not None:
        return filter_scores(scores, np.asarray(chain.environment_law), np.ascontiguousarray(chain.own_switching))[1]
    assert labels is not None
    return np.asarray(scores[np.arange(scores.shape[0]), order_labels(labels, chain.direction)])


def held_out_gain(
    chain: CoupledChain | EnvironmentChain,
    independent: CoupledChain,
    readings: Sample,
    labels: Indices | None,
) -> tuple[float, float]:
    """Nats per tick that a chain gains over independent ones on readings, and the standard error.

    Both are counted at the same steps of the same sequences, those at which whatever either chain looks at was read.
    """
    graph = join_graphs([*members_of(chain), independent])
    gains = chain_scores(chain, readings, graph, labels) - chain_scores(independent, readings, graph, None)
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


# ---- expectation-maximisation ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EnvironmentFit:
    """Members of an environment chain; `expected[k, a, b, e]` are the transitions of edge k in environment e."""

    graph: Graph
    shares: Floats  # (edges, E)
    moves: Floats  # (edges, m, m, E)
    expected: Floats
    weights: Floats  # (steps, E)
    switches: Floats | None  # (E, E) expected; None if the environment is known
    switching: Floats | None  # in the order of the readings
    start: Floats
    path: tuple[float, ...]
    converged: bool
    log_likelihood: float

    @property
    def environments(self) -> int:
        """Number of environments."""
        return int(self.shares.shape[1])


def free_rows(expected: Floats, before: Floats) -> Floats:
    """Rows of the expected transitions, normalised; as before if there are none."""
    sums = expected.sum(axis=2, keepdims=True)
    return np.where(sums > 0, expected / np.where(sums > 0, sums, 1.0), before)


def share_rows(expected: Floats, graph: Graph) -> Floats:
    """Coupling of each edge (edges, E): its share of the transitions of its target."""
    mass, degrees = expected.sum(axis=(1, 2)), np.diff(graph.indptr)
    whole = np.repeat(np.add.reduceat(mass, graph.indptr[:-1], axis=0), degrees, axis=0)
    equal = np.repeat(1.0 / degrees, degrees)[:, None]
    return np.where(whole > 0, mass / np.where(whole > 0, whole, 1.0), equal)


def assign_transitions(readings: Sample, graph: Graph, mix: Floats, weights: Floats) -> Floats:
    """The transitions assigned to every edge and environment, (edges, m, m, E)."""
    from csdp.fitting import compiled

    expected = np.zeros(mix.shape)

    def work(first: int, last: int) -> None:
        compiled.assign_steps(readings.states, graph.indptr, graph.sources, mix, weights, first, last, expected)

    in_blocks(work, readings.sequences, readings.transitions * graph.sources.size)
    return expected


def climb(
    readings: Sample,
    fit: EnvironmentFit,
    prior: Floats,
    *,
    iterations: int,
    tolerance: float,
) -> EnvironmentFit:
    """EM from the weights of a fit, which are fixed if its environment is known (`switches` None)."""
    shares, moves, expected = fit.shares, fit.moves, fit.expected
    weights, switches, start, switching = fit.weights, fit.switches, fit.start, fit.switching
    path: list[float] = list(fit.path)
    converged, likelihood = False, fit.log_likelihood
    for _ in range(iterations):
        expected = assign_transitions(readings, fit.graph, shares[:, None, None] * moves, weights) + prior
        shares, moves = share_rows(expected, fit.graph), free_rows(expected, moves)
        mix = shares[:, None, None] * moves
        scores = step_scores(readings, fit.graph, mix)
        objective = share_of_prior(prior, mix)
        if switches is None:
            likelihood = float((weights * scores).sum(where=weights > 0))
        else:
            switching, start = normalise_rows(switches, SWITCHES), normalise_rows(weights[:1], SWITCHES)[0]
            forward, gains = filter_scores(scores, start, switching)
            weights, switches = smooth_scores(scores, forward, switching)
            likelihood = float(gains.sum())
            objective += SWITCHES * float(np.log(switching).sum() + np.log(start).sum())
        path.append(likelihood + objective)
        if len(path) > 1 and path[-1] - path[-2] <= tolerance * readings.transitions * readings.sequences:
            converged = True
            break
    return EnvironmentFit(
        fit.graph,
        shares,
        moves,
        expected,
        weights,
        switches,
        switching,
        start,
        tuple(path),
        converged,
        likelihood,
    )


def share_of_prior(prior: Floats, mix: Floats) -> float:
    """`sum prior ln mix`, cells without pseudo-transitions left out."""
    whole = np.broadcast_to(prior, mix.shape)
    return float((whole * np.log(np.where(whole > 0, mix, 1.0))).sum())


def smooth_scores(scores: Floats, forward: Floats, switching: Floats) -> tuple[Floats, Floats]:
    """`Pr(e_t | all steps)` (steps, E), and the expected number of switches (E, E)."""
    from csdp.fitting import compiled

    weights, switches = np.empty(scores.shape), np.zeros(switching.shape)
    compiled.smooth_steps(scores, forward, switching, weights, switches)
    return weights, switches


def begin(graph: Graph, weights: Floats, *, common: Floats, hidden: bool) -> EnvironmentFit:
    """A fit that every environment begins as the common chain; `common` are its expected transitions (edges, m, m)."""
    expected = np.repeat(common[..., None], weights.shape[1], axis=3)
    count = weights.shape[1]
    return EnvironmentFit(
        graph,
        share_rows(expected, graph),
        free_rows(expected, np.full(expected.shape, 1.0 / expected.shape[1])),
        expected,
        weights,
        # Switches between the environments of successive steps, as if these were independent.
        np.asarray(weights[:-1].T @ weights[1:]) if hidden else None,
        np.full((count, count), 1.0 / count) if hidden else None,
        np.full(count, 1.0 / count),
        (),
        False,
        -np.inf,
    )


def label_weights(labels: Indices, count: int, certainty: float = 1.0) -> Floats:
    """Weights (steps, E) that give each step to its label with some certainty, and the rest to all alike."""
    weights = np.full((labels.size, count), (1.0 - certainty) / count)
    weights[np.arange(labels.size), labels] += certainty
    return weights


def fit_hidden(
    readings: Sample,
    graph: Graph,
    count: int,
    *,
    common: Floats,
    prior: Floats,
    effort: Effort,
    progress: Progress,
) -> EnvironmentFit:
    """Members and switching of hidden environments: a few iterations from each start, then the best to its end."""
    random = np.random.default_rng([0, count])
    features = step_features(readings)
    tried = []
    for n in range(STARTS):
        averaged = average_steps(features, WINDOWS[n % len(WINDOWS)])
        weights = label_weights(cluster(averaged, count, random), count, 0.9)
        first = begin(graph, weights, common=common, hidden=True)
        tried.append(climb(readings, first, prior, iterations=TRIAL, tolerance=effort.tolerance))
        progress(f"starts of {count} environments", n + 1, STARTS)
    best = max(tried, key=lambda fit: fit.path[-1])
    if best.converged:
        return best
    rest = max(effort.iterations - TRIAL, 1)
    return climb(readings, best, prior, iterations=rest, tolerance=effort.tolerance)


def step_features(readings: Sample) -> Floats:
    """What steps are grouped by at the start: the snapshot they lead to and how far each sequence moved, scaled."""
    table: Any = np.where(readings.states < 0, np.nan, readings.states).astype(np.float64)
    moved = np.abs(np.diff(table, axis=0))
    both = np.hstack([table[1:], moved])
    known = ~np.isnan(both)
    number = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, both, 0.0) - np.where(known, np.where(known, both, 0.0).sum(axis=0) / number, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / number)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))


def average_steps(features: Floats, window: int) -> Floats:
    """Means of every row and its neighbours, `window` rows in all; fewer at the ends."""
    width = min(window, features.shape[0])
    sums = np.cumsum(np.vstack([np.zeros((1, features.shape[1])), features]), axis=0)
    first = np.clip(np.arange(features.shape[0]) - (width - 1) // 2, 0, None)
    last = np.clip(np.arange(features.shape[0]) + width // 2 + 1, None, features.shape[0])
    return np.asarray((sums[last] - sums[first]) / (last - first)[:, None])


def cluster(features: Floats, count: int, random: np.random.Generator) -> Indices:
    """Group rows by k-means, from centres far apart (Arthur and Vassilvitskii 2007)."""
    lengths = np.einsum("ij,ij->i", features, features)
    centres = features[random.integers(features.shape[0], size=1)]
    nearest = _distances(features, lengths, centres)[:, 0]
    while centres.shape[0] < count:
        chance = nearest / nearest.sum() if nearest.sum() > 0 else None
        centres = np.vstack([centres, features[random.choice(features.shape[0], p=chance)]])
        nearest = np.minimum(nearest, _distances(features, lengths, centres[-1:])[:, 0])
    for _ in range(10):
        labels = _distances(features, lengths, centres).argmin(axis=1)
        size = np.bincount(labels, minlength=count)
        sums = np.stack([features[labels == e].sum(axis=0) for e in range(count)])
        centres = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
    return np.asarray(labels, dtype=np.intp)


def _distances(features: Floats, lengths: Floats, centres: Floats) -> Floats:
    """Squared distances (rows, centres), never negative; `lengths`: the squared lengths of the rows."""
    squares = lengths[:, None] - 2.0 * (features @ centres.T) + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))
