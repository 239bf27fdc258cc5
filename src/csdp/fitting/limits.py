"""The family of a backward chain: all processes within simultaneous confidence limits of its fit.

They are limits of what a backward chain's influence depends on, exact for any number of readings.
Read in the order of the chain, every block of transitions after the first is predicted by a fit on those before it.
For the true law of one target the likelihood of these predictions, divided by its own, is a martingale with mean 1, so
by Markov's inequality it passes s / alpha with probability at most alpha / s (Wald; Wasserman, Ramdas and Balakrishnan
2020). The laws that are not rejected so are a convex set, since the log-likelihood is concave; every limit is the
largest or the least value of a linear function on it. All limits of all targets hold together with probability
1 - alpha, whatever the number of readings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, InfluenceGraph
from csdp.chain.graph import LIMIT_STATES, influence_limits
from csdp.chain.stationary import connected_parts
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError
from csdp.fitting.em import Effort, complete_transitions, fit_target
from csdp.fitting.sample import Graph, Progress, Sample, choose_graph
from csdp.numbers import Floats, Indices

#: Confidence with which the limits of a fit hold together.
CONFIDENCE = 0.95
#: Share of the readings that is only learned from: with a given graph, and with one chosen on that share.
FIRST, FIRST_OF_SCREENED = 0.15, 1 / 3
#: Factor by which the number of known readings grows from the beginning of a block of predictions to its end.
_GROWTH = 1.3
#: Snapshots of those that a target follows up to which each has a limit of its own.
_FEW_SNAPSHOTS = 64
#: Loss of log-likelihood that is given away so that no law needs a zero.
_GIVEN_AWAY = 0.01
#: Effort of the predictions.
_EFFORT = Effort(500, 1e-6)
#: Iterations: towards the set's border, and of Newton's method for each.
_OUTER, _INNER = 6, 60
#: Newton's decrement below which a maximum counts as reached.
_CLIMBED = 1e-6


def choose_limits(readings: Sample, neighbours: Any, progress: Progress) -> tuple[Graph, bool] | None:
    """The graph on which limits are computed and whether the readings chose it; None if an ensemble is the family.

    Limits are for backward chains of which no state for every pair of snapshots fits, so that only `influence`
    certifies. A graph that is not given is chosen on the first part of the readings, which the limits do not use.
    """
    if readings.direction == "forward" or readings.m > LIMIT_STATES:
        return None
    graph, screened = choose_graph(first_part(readings), neighbours, progress)
    largest = max(map(len, connected_parts(graph.matrix())))
    return (graph, screened) if readings.m**largest > METRIC_STATES else None


def limits_family(
    readings: Sample,
    point: CoupledChain,
    graph: Graph,
    *,
    screened: bool,
    confidence: float = CONFIDENCE,
    progress: Progress,
) -> InfluenceGraph:
    """All processes within the confidence limits of a fit, which are widened to hold its point estimate."""
    gains, bases = confidence_limits(readings, graph, screened=screened, confidence=confidence, progress=progress)
    least, most = influence_limits(point, graph.pairs)
    return InfluenceGraph.within(
        point, graph.pairs, np.maximum(gains, least), np.minimum(bases, most).clip(min=0.0), confidence=confidence
    )


def first_part(readings: Sample) -> Sample:
    """The readings on which a graph is chosen that is not given."""
    return readings.between(0, _first_cut(readings, screened=True) + 1)


def _first_cut(readings: Sample, *, screened: bool) -> int:
    return max(1, round(readings.transitions * (FIRST_OF_SCREENED if screened else FIRST)))


def _blocks(readings: Sample, *, screened: bool) -> Iterator[tuple[Sample, Sample]]:
    """Readings to learn from, and the block after them to predict."""
    known, total = _first_cut(readings, screened=screened), readings.transitions
    while known < total:
        end = min(total, max(known + 1, round(known * _GROWTH)))
        yield readings.between(0, known + 1), readings.between(known, end + 1)
        known = end


def confidence_limits(
    readings: Sample, graph: Graph, *, screened: bool, confidence: float, progress: Progress
) -> tuple[Floats, Floats]:
    """Gains (edges, m, m, m) and bases (edges, m, m) that hold together with a confidence, for chains on a graph.

    They are what `InfluenceGraph` takes. `screened`: the graph was chosen on `first_part` of the readings, not given.
    """
    blocks = list(_blocks(readings, screened=screened))
    rest = readings.between(_first_cut(readings, screened=screened), readings.states.shape[0])
    gains, bases = [], []
    for target in range(readings.sequences):
        score = _prediction_score(blocks, graph, target)
        rows, following, often = complete_transitions(rest, graph.of(target), target)
        cells, place = np.unique(rows, axis=0, return_inverse=True)
        counts = np.zeros((len(cells), readings.m))
        np.add.at(counts, (place.ravel(), following), often)
        allowed = score - math.log(readings.sequences / (1.0 - confidence))
        limits = _Target(cells, counts, allowed, graph.of(target).size)
        gains.append(limits.gains())
        bases.append(limits.bases(gains[-1]))
        progress("limits", target + 1, readings.sequences)
    return np.concatenate(gains), np.concatenate(bases)


def _prediction_score(blocks: list[tuple[Sample, Sample]], graph: Graph, target: int) -> float:
    """Log-likelihood of what came next in each block, predicted from what came before it."""
    sources, score, fitted = graph.of(target), 0.0, None
    for known, block in blocks:
        with suppress(InputError):  # no complete transition yet: predict all states alike
            fitted = fit_target(known, graph, target, effort=_EFFORT, start=fitted)
        rows, following, often = complete_transitions(block, sources, target)
        if fitted is None:
            score -= float(often.sum()) * math.log(block.m)
            continue
        chances = fitted.share * fitted.moves[np.arange(sources.size), rows, following[:, None]]
        score += float(often @ np.log(chances.sum(axis=1)))
    return score


@dataclass(frozen=True, eq=False)
class _Target:
    """The laws of one target that the readings do not reject: log-likelihood at least `allowed`.

    `cells` (n, d) are the distinct snapshots of those it follows, `counts` (n, m) what came next. A law is additive:
    features of a snapshot (1, and for each source one for every state but the first) times effects for every next state
    but the first.
    """

    cells: npt.NDArray[Any]
    counts: Floats
    allowed: float
    degree: int

    @property
    def m(self) -> int:
        return int(self.counts.shape[1])

    def _features(self, rows: npt.NDArray[Any]) -> Floats:
        shown = np.asarray(rows)[:, :, None] == np.arange(1, self.m)
        return np.concatenate([np.ones((len(rows), 1)), shown.reshape(len(rows), -1)], axis=1).astype(np.float64)

    @cached_property
    def _decomposition(self) -> tuple[Floats, Floats, Floats]:
        """The features that were seen: an orthonormal basis of their columns, scales, and one of their rows."""
        left, scale, right = np.linalg.svd(self._features(self.cells), full_matrices=False)
        kept = scale > 1e-9 * scale[0]
        return left[:, kept], scale[kept], right[kept]

    @cached_property
    def _support(self) -> _SupportFunction:
        return _SupportFunction(self._decomposition[0], self.counts, self.allowed)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read, or no law explains the readings: then there are no limits."""
        return not len(self.cells) or self._support.room <= 0

    def gains(self) -> Floats:
        """(d, m, m, m) at most by how much a change a -> b of a source raises the probability of c."""
        d, m = self.degree, self.m
        asked = [(e, a, b, c) for e in range(d) for a in range(m) for b in range(m) for c in range(m) if a != b]
        if m == 2:  # what one state gains the other loses
            asked = [each for each in asked if each[3] == 1]
        rows = np.zeros((2, len(asked), d), dtype=np.intp)
        for n, (e, a, b, _) in enumerate(asked):
            rows[0, n, e], rows[1, n, e] = a, b
        change = self._features(rows[1]) - self._features(rows[0])
        largest = self._largest(change, np.array([c for *_, c in asked]), 0.0)
        out = np.zeros((d, m, m, m))
        for (e, a, b, c), value in zip(asked, largest, strict=True):
            out[e, a, b, c] = min(1.0, value)
            if m == 2:
                out[e, b, a, 0] = out[e, a, b, c]
        return out

    def bases(self, gains: Floats) -> Floats:
        """(d, m, m) at least how probable c is whenever a source is in a.

        Where there are too many snapshots for a limit each: that of one snapshot, less what any source may take away.
        """
        d, m = self.degree, self.m
        out = np.zeros((d, m, m))
        if m**d <= _FEW_SNAPSHOTS:
            rows = np.array(list(itertools.product(range(m), repeat=d)))
            for c in range(m):
                least = self._least(rows, c)
                for e, a in itertools.product(range(d), range(m)):
                    out[e, a, c] = least[rows[:, e] == a].min()
            return out
        for c in range(m):
            lost = gains[:, :, :, c].max(axis=1)  # (d, state kept): by going from there to any other state
            kept = lost.argmin(axis=1)
            rows = np.tile(kept, (d * m, 1))
            rows[np.arange(d * m), np.repeat(np.arange(d), m)] = np.tile(np.arange(m), d)
            least = self._least(rows, c).reshape(d, m)
            taken = np.maximum(lost[np.arange(d), kept], 0.0)
            out[:, :, c] = np.maximum(least - (taken.sum() - taken)[:, None], 0.0)
        return out

    def _least(self, rows: Indices, c: int) -> Floats:
        """The least probability of c given each snapshot; 0 if the readings leave it open."""
        most = self._largest(-self._features(rows), np.full(len(rows), c), -1.0)
        return np.maximum(np.where(np.isfinite(most), -most, 0.0), 0.0)

    def _largest(self, features: Floats, states: Indices, total: float) -> Floats:
        """The largest value of each linear function of the effects; infinite if the readings leave it open.

        The function of state c is `features . effects[c]`; of state 0 it is `total` less those of the others.
        """
        if self.is_empty:
            return np.full(len(features), np.inf)
        _, scale, right = self._decomposition
        open_ = np.abs(features - features @ right.T @ right).max(axis=1) > 1e-7
        back = right / scale[:, None]
        columns = (states[:, None] == np.arange(1, self.m)) - (states == 0)[:, None].astype(np.float64)
        directions = ((features @ back.T)[:, :, None] * columns[:, None, :]).reshape(len(features), -1)
        bound = self._support.largest(directions) + total * (states == 0)
        slack = total / self.m * _GIVEN_AWAY / max(self.counts.sum(), 1.0)
        return np.where(open_, np.inf, bound - slack)


class _SupportFunction:
    """Largest values of linear functions of the effects on the set of laws that are not rejected.

    The set is widened a little so that no probability in it is 0: a law that gives away a share eta to all states
    alike loses at most -n ln(1 - eta), and each of its probabilities is at least eta / m. Any t > 0 gives a bound,
    `h.x <= max over y of (h.y + (L(y) - allowed) / t)` for x in the set; t is the best found.
    """

    def __init__(self, basis: Floats, counts: Floats, allowed: float) -> None:
        m, total = counts.shape[1], max(float(counts.sum()), 1.0)
        self._shift = eta = _GIVEN_AWAY / total
        small = _GIVEN_AWAY / counts.size
        self._weights = (counts + small).T.ravel()  # state by state
        self._allowed = allowed + counts.sum() * math.log1p(-eta) + _GIVEN_AWAY * math.log(eta / m)
        rank = basis.shape[1]
        self._matrix = np.zeros((m, len(basis), rank, m - 1))
        for c in range(1, m):
            self._matrix[c, :, :, c - 1], self._matrix[0, :, :, c - 1] = basis, -basis
        self._matrix = self._matrix.reshape(m * len(basis), -1)
        self._constant = np.repeat(np.eye(m)[0], len(basis))
        even = basis.T @ np.full(len(basis), 1.0 / m)  # the same for every state
        self._best, _ = self._climb(np.zeros((1, self._matrix.shape[1])), np.repeat(even, m - 1)[None])
        self._most = float(self._log_likelihood(self._best)[0])

    @property
    def room(self) -> float:
        """By how much the best law is above what is allowed; the set is empty if it is not."""
        return float(self._most - self._allowed)

    def _log_likelihood(self, points: Floats) -> Floats:
        return np.asarray(np.log(self._constant + points @ self._matrix.T) @ self._weights)

    def largest(self, directions: Floats) -> Floats:
        """An upper bound for each direction (n, effects), little above the largest value."""
        points = np.repeat(self._best, len(directions), axis=0)
        step = self._newton_steps(directions, points)
        far = np.einsum("jp,jp->j", directions, step)
        price = np.sqrt(2.0 * self.room / np.maximum(far, 1e-300))
        bound = np.full(len(directions), np.inf)
        for _ in range(_OUTER):
            points, short = self._climb(price[:, None] * directions, points)
            reached = self._log_likelihood(points)
            value = np.einsum("jp,jp->j", directions, points)
            above = value + (reached - self._allowed + 2.0 * short) / price
            bound = np.minimum(bound, np.where(short < _CLIMBED, above, np.inf))
            price = price * np.clip(np.sqrt(self.room / np.maximum(self._most - reached, 1e-12)), 0.2, 5.0)
        return np.asarray(bound / (1.0 - self._shift))

    def _climb(self, slopes: Floats, points: Floats) -> tuple[Floats, Floats]:
        """Maximise `slope . x + L(x)` from each point by Newton's method; the points, and how much may be missing."""
        decrement = np.full(len(points), np.inf)
        for _ in range(_INNER):
            chance = self._constant + points @ self._matrix.T
            gradient = slopes + (self._weights / chance) @ self._matrix
            step = self._newton_steps(gradient, points)
            decrement = np.einsum("jp,jp->j", gradient, step)
            if decrement.max() < _CLIMBED / 100:
                break
            moved = (step @ self._matrix.T) / chance
            most = np.minimum(1.0, 0.95 / np.maximum(-moved.min(axis=1), 1e-300))
            points = points + self._shorten(most, moved, decrement, slopes, step)[:, None] * step
        return points, decrement

    def _newton_steps(self, gradients: Floats, points: Floats) -> Floats:
        """The curvature of the log-likelihood at each point, inverted, times each gradient."""
        chance = self._constant + points @ self._matrix.T
        curvature = (self._matrix.T[None] * (self._weights / chance**2)[:, None, :]) @ self._matrix
        scale = np.sqrt(np.einsum("jpp->jp", curvature))
        even = curvature / (scale[:, :, None] * scale[:, None, :]) + 1e-13 * np.eye(scale.shape[1])
        return np.asarray(np.linalg.solve(even, (gradients / scale)[:, :, None])[:, :, 0] / scale)

    def _shorten(self, lengths: Floats, moved: Floats, rise: Floats, slopes: Floats, step: Floats) -> Floats:
        """Halve steps until the objective rises by a tenth of what its slope promises."""
        along = np.einsum("jp,jp->j", slopes, step)
        for _ in range(40):
            gain = lengths * along + np.log1p(lengths[:, None] * moved) @ self._weights
            poor = gain < 0.1 * lengths * rise - 1e-12
            if not poor.any():
                break
            lengths = np.where(poor, lengths / 2.0, lengths)
        return lengths
