"""Expectation-maximisation for chains whose law depends on an environment, known, hidden, or both.

Not seen are whom each sequence followed at a step, and, where it is hidden, the environment e_t of the step. Both
are summed out together (Baum et al. 1970): weights `Pr(e_t | all steps)` come from a forward and a backward pass, the
transitions of environment e are then counted with those weights. Every member gets `prior` pseudo-transitions of the
common chain, so that an environment hardly ever seen moves as all do. The objective, log-likelihood plus the share of
the prior, never falls. Beside a hidden environment the class c_t of a clock may be known: member c * G + g is then that
of class c and environment g of G.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.fitting.pairs import Graph
from csdp.fitting.sample import Progress, Sample, normalise_rows

#: Makes transition rows of expected transitions (edges, m, m, E), given the rows so far.
Kernel = Callable[[Floats, Floats], Floats]
#: Pseudo-switches in each cell of the switching matrix, and of the first environment.
SWITCHES = 0.5
#: Steps over which snapshots are averaged before they are grouped, one start after the other: environments may last.
WINDOWS = (1, 4, 16)
#: Transitions of several sequences below which one thread is quicker.
_THREADED = 100_000


@dataclass(frozen=True)
class EnvironmentEffort:
    """Starts of a hidden fit, iterations tried from each, all iterations, and the gain per transition that stops.

    The likelihood of a hidden environment has plateaus, on which a step gains little for a long time, so `tolerance` is
    small there; with a known environment it is concave, and `known_tolerance` does.
    """

    starts: int = 6
    trial: int = 15
    iterations: int = 2000
    tolerance: float = 1e-8
    known_tolerance: float = 1e-6
    seed: int = 0


@dataclass(frozen=True, eq=False)
class EnvironmentFit:
    """Members of an environment chain; `expected[k, a, b, e]` are the transitions laid to edge k in environment e.

    `weights` are those of environments; where classes of a clock are known beside them, of the members of the class.
    """

    graph: Graph
    shares: Floats  # (edges, E)
    moves: Floats  # (edges, m, m, E)
    expected: Floats
    weights: Floats  # (steps, E)
    switches: Floats | None  # (E, E) expected; None where the environment is known
    switching: Floats | None  # in the order of the readings
    start: Floats
    path: tuple[float, ...]
    converged: bool
    log_likelihood: float
    classes: Indices | None = None  # (steps,)

    @property
    def environments(self) -> int:
        """Number of environments."""
        return int(self.shares.shape[1])


def free_rows(expected: Floats, before: Floats) -> Floats:
    """Rows that the expected transitions speak for, each cell a number of its own; as before where there are none."""
    sums = expected.sum(axis=2, keepdims=True)
    return np.where(sums > 0, expected / np.where(sums > 0, sums, 1.0), before)


def share_rows(expected: Floats, graph: Graph) -> Floats:
    """Coupling of each edge (edges, E): its share of the transitions of its target."""
    mass, degrees = expected.sum(axis=(1, 2)), np.diff(graph.indptr)
    whole = np.repeat(np.add.reduceat(mass, graph.indptr[:-1], axis=0), degrees, axis=0)
    equal = np.repeat(1.0 / degrees, degrees)[:, None]
    return np.where(whole > 0, mass / np.where(whole > 0, whole, 1.0), equal)


def in_blocks(work: Callable[[int, int], None], sequences: int, transitions: int) -> None:
    """Do the work for ranges of sequences, on all cores where there is enough of it."""
    cores = min(os.cpu_count() or 1, sequences) if transitions > _THREADED else 1
    edges = np.linspace(0, sequences, cores + 1).astype(int).tolist()
    if cores == 1:
        work(0, sequences)
        return
    with ThreadPoolExecutor(max_workers=cores) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


def step_scores(readings: Sample, graph: Graph, mix: Floats) -> Floats:
    """Log-probability (steps, E) of every step under every environment; missing readings count nothing."""
    from csdp.fitting import environment_loops as loops

    parts: list[Floats] = []

    def work(first: int, last: int) -> None:
        part = np.zeros((readings.transitions, mix.shape[3]))
        loops.score_steps(readings.states, graph.indptr, graph.sources, mix, first, last, part)
        parts.append(part)

    in_blocks(work, readings.sequences, readings.transitions * graph.sources.size)
    return np.asarray(np.sum(parts, axis=0))


def assign_transitions(readings: Sample, graph: Graph, mix: Floats, weights: Floats) -> Floats:
    """The transitions laid to every edge and environment, (edges, m, m, E)."""
    from csdp.fitting import environment_loops as loops

    expected = np.zeros(mix.shape)

    def work(first: int, last: int) -> None:
        loops.assign_steps(readings.states, graph.indptr, graph.sources, mix, weights, first, last, expected)

    in_blocks(work, readings.sequences, readings.transitions * graph.sources.size)
    return expected


def filter_scores(scores: Floats, start: Floats, switching: Floats) -> tuple[Floats, Floats]:
    """`Pr(e_t | steps up to t)` (steps, E), and the log-probability of each step given those before."""
    from csdp.fitting import environment_loops as loops

    forward, gains = np.empty(scores.shape), np.empty(scores.shape[0])
    loops.filter_steps(scores, start, switching, forward, gains)
    return forward, gains


def climb(
    readings: Sample,
    fit: EnvironmentFit,
    prior: Floats,
    kernel: Kernel,
    *,
    iterations: int,
    tolerance: float,
) -> EnvironmentFit:
    """EM from the weights of a fit, which are fixed where its environment is known (`switches` None)."""
    shares, moves, expected = fit.shares, fit.moves, fit.expected
    weights, switches, start, switching = fit.weights, fit.switches, fit.start, fit.switching
    path: list[float] = list(fit.path)
    converged, likelihood = False, fit.log_likelihood
    for _ in range(iterations):
        laid = spread_classes(weights, fit.classes, shares.shape[1])
        expected = assign_transitions(readings, fit.graph, shares[:, None, None] * moves, laid) + prior
        shares, moves = share_rows(expected, fit.graph), kernel(expected, moves)
        mix = shares[:, None, None] * moves
        scores = pick_classes(step_scores(readings, fit.graph, mix), fit.classes, weights.shape[1])
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
        fit.classes,
    )


def pick_classes(scores: Floats, classes: Indices | None, count: int) -> Floats:
    """Columns (steps, count) of the environments of each step's class; all of them where no class is known."""
    if classes is None:
        return scores
    return np.asarray(scores.reshape(scores.shape[0], -1, count)[np.arange(scores.shape[0]), classes])


def spread_classes(weights: Floats, classes: Indices | None, members: int) -> Floats:
    """Weights (steps, members) of all members, 0 for those of other classes: the way back from `pick_classes`."""
    if classes is None:
        return weights
    spread = np.zeros((weights.shape[0], members // weights.shape[1], weights.shape[1]))
    spread[np.arange(weights.shape[0]), classes] = weights
    return spread.reshape(weights.shape[0], members)


def share_of_prior(prior: Floats, mix: Floats) -> float:
    """`sum prior ln mix`, cells without pseudo-transitions left out."""
    whole = np.broadcast_to(prior, mix.shape)
    return float((whole * np.log(np.where(whole > 0, mix, 1.0))).sum())


def smooth_scores(scores: Floats, forward: Floats, switching: Floats) -> tuple[Floats, Floats]:
    """`Pr(e_t | all steps)` (steps, E), and the expected number of switches (E, E)."""
    from csdp.fitting import environment_loops as loops

    weights, switches = np.empty(scores.shape), np.zeros(switching.shape)
    loops.smooth_steps(scores, forward, switching, weights, switches)
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


def reweigh(readings: Sample, fit: EnvironmentFit) -> EnvironmentFit:
    """The same members with the weights of other readings, to climb from: that of a hidden environment."""
    assert fit.switching is not None
    scores = step_scores(readings, fit.graph, fit.shares[:, None, None] * fit.moves)
    scores = pick_classes(scores, fit.classes, fit.switching.shape[0])
    forward, _ = filter_scores(scores, fit.start, fit.switching)
    weights, switches = smooth_scores(scores, forward, fit.switching)
    return replace(fit, weights=weights, switches=switches, path=())


def divide_classes(fit: EnvironmentFit, classes: Indices, count: int) -> EnvironmentFit:
    """The members of hidden environments for each of `count` classes of a clock, alike at first, to climb from."""
    shares, moves, expected = (np.tile(each, count) for each in (fit.shares, fit.moves, fit.expected))
    return replace(fit, shares=shares, moves=moves, expected=expected, classes=classes, path=(), converged=False)


def fit_hidden(
    readings: Sample,
    graph: Graph,
    count: int,
    *,
    common: Floats,
    prior: Floats,
    kernel: Kernel,
    effort: EnvironmentEffort,
    progress: Progress,
) -> EnvironmentFit:
    """Members and switching of hidden environments: a few iterations from each start, then the best to its end."""
    random = np.random.default_rng([effort.seed, count])
    features = step_features(readings)
    tried = []
    for n in range(effort.starts):
        averaged = average_steps(features, WINDOWS[n % len(WINDOWS)])
        weights = label_weights(cluster(averaged, count, random), count, 0.9)
        first = begin(graph, weights, common=common, hidden=True)
        tried.append(climb(readings, first, prior, kernel, iterations=effort.trial, tolerance=effort.tolerance))
        progress(f"starts of {count} environments", n + 1, effort.starts)
    best = max(tried, key=lambda fit: fit.path[-1])
    if best.converged:
        return best
    rest = max(effort.iterations - effort.trial, 1)
    return climb(readings, best, prior, kernel, iterations=rest, tolerance=effort.tolerance)


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
