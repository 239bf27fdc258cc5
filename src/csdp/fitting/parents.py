"""Laws that growing tries: every sequence follows some parents among newer values, in environments if there are some.

Readings are taken the newest first. A sequence's state has a law for every combination of the states of its parents
(sequence, lag) and every environment of the step; nothing is shared or smoothed beyond half a count in each cell, and,
with environments, a few transitions of the law common to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from csdp.numbers import Floats, Indices

#: By sequence, whom it follows: (sequence, lag), its own last state first.
Parents = tuple[tuple[tuple[int, int], ...], ...]
#: Counts added to each cell, transitions of the common law added to each environment, and switches to each cell.
_PSEUDO_COUNT, _COMMON, _SWITCHES = 0.5, 5.0, 0.5
#: Gain in log-likelihood of a transition that stops a fit.
_TOLERANCE = 1e-6
#: Steps that a simulation lets pass before it counts.
_BURN_IN = 100


_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Newest:
    """Readings, the newest first: states (n, s), -1 if missing, and the environment of the step to each, if known."""

    states: npt.NDArray[np.int16]
    m: int
    path: Indices | None = None

    def of(self, chosen: Indices) -> Newest:
        """Some sequences."""
        return self if chosen.size == self.states.shape[1] else replace(self, states=self.states[:, chosen])

    def part(self, start: int, stop: int) -> Newest:
        """Some ticks."""
        path = None if self.path is None else self.path[start:stop]
        return replace(self, states=self.states[start:stop], path=path)


def lagged(table: npt.NDArray[_Kind], lag: int, fill: float) -> npt.NDArray[_Kind]:
    """Rows as they were `lag` ticks newer."""
    out = np.full_like(table, fill)
    out[lag:] = table[: table.shape[0] - lag]
    return out


def contexts(states: npt.NDArray[np.int16], parents: Parents, m: int) -> Indices:
    """The number (n, s) of the combination of its parents' states that each state follows; -1 if one is missing."""
    codes = np.zeros(states.shape, dtype=np.int64)
    known = np.ones(states.shape, dtype=bool)
    for place in range(max(map(len, parents))):
        rows = [j for j, own in enumerate(parents) if len(own) > place]
        for lag in {parents[j][place][1] for j in rows}:
            some = [j for j in rows if parents[j][place][1] == lag]
            seen = lagged(states, lag, -1)[:, [parents[j][place][0] for j in some]]
            codes[:, some] += np.maximum(seen, 0) * m**place
            known[:, some] &= seen >= 0
    return np.where(known, codes, -1)


@dataclass(frozen=True, eq=False)
class Law:
    """Rows (E, s, contexts, m), and of hidden environments their law at the first step and their switching."""

    parents: Parents
    rows: Floats
    start: Floats
    switching: Floats | None = None

    @property
    def environments(self) -> int:
        """Their number."""
        return int(self.rows.shape[0])

    def with_parents(self, parents: Parents) -> Law:
        """The same law written with more parents, which follow those of each sequence."""
        m, size = self.rows.shape[3], self.rows.shape[3] ** max(map(len, parents))
        rows = np.empty((*self.rows.shape[:2], size, m))
        for j, own in enumerate(self.parents):
            rows[:, j] = self.rows[:, j, np.arange(size) % m ** len(own)]
        return replace(self, parents=parents, rows=rows)

    def spread(self, chosen: Indices, sequences: int) -> Law:
        """The law of all sequences, of which it is that of some; the others follow what every one of these follows."""
        if chosen.size == sequences:
            return self
        depth = min(sum(i == j for i, _ in own) for j, own in enumerate(self.parents))
        parents = [tuple((j, lag) for lag in range(1, depth + 1)) for j in range(sequences)]
        for n, j in enumerate(chosen.tolist()):
            parents[j] = tuple((int(chosen[i]), lag) for i, lag in self.parents[n])
        size, m = self.rows.shape[2:]
        rows = np.full((self.environments, sequences, size, m), 1.0 / m)
        rows[:, chosen] = self.rows
        return replace(self, parents=tuple(parents), rows=rows)

    def following(self, parents: Parents) -> Law:
        """A law whose sequences follow these parents; its rows mean nothing yet."""
        size = self.rows.shape[3] ** max(map(len, parents))
        return replace(self, parents=parents, rows=np.ones((*self.rows.shape[:2], size, self.rows.shape[3])))

    def simulate(self, like: Newest, count: int, random: np.random.Generator) -> npt.NDArray[np.int16]:
        """Readings (count, n, s) of this law, missing where those of `like` are."""
        m, s, total = like.m, like.states.shape[1], like.states.shape[0] + _BURN_IN
        path = self._draw_path(like, count, total, random)
        depth = max(lag for own in self.parents for _, lag in own)
        seen = random.integers(m, size=(depth + 1, count, s)).astype(np.int16)
        inside = [j for j, own in enumerate(self.parents) if any(lag == 0 for _, lag in own)]
        groups = [np.setdiff1d(np.arange(s), inside), *(np.array([j]) for j in inside)]
        plans = [(rows, self._lookup(rows)) for rows in groups if rows.size]
        rising = self.rows.cumsum(axis=3)[..., :-1]
        out = np.empty((count, total, s), dtype=np.int16)
        for tick in range(total):
            seen[1:] = seen[:-1].copy()
            chance = random.random((count, s))
            for rows, steps in plans:
                codes = np.zeros((count, rows.size), dtype=np.int64)
                for place, (lags, sources, used) in enumerate(steps):
                    codes += np.where(used, seen[lags, :, sources].T, 0) * m**place
                above = rising[path[:, tick, None], rows, codes]
                seen[0][:, rows] = (chance[:, rows, None] > above).sum(axis=2)
            out[:, tick] = seen[0]
        return np.where(like.states < 0, -1, out[:, _BURN_IN:]).astype(np.int16)

    def _lookup(self, rows: Indices) -> list[tuple[Indices, Indices, npt.NDArray[np.bool_]]]:
        """By place among the parents: lags, sources, and which of the sequences have one."""
        steps = []
        for place in range(max(len(self.parents[j]) for j in rows)):
            own = [self.parents[j][place] if len(self.parents[j]) > place else (-1, 1) for j in rows]
            sources, lags = np.array(own).T
            steps.append((lags, np.maximum(sources, 0), sources >= 0))
        return steps

    def _draw_path(self, like: Newest, count: int, total: int, random: np.random.Generator) -> Indices:
        if like.path is not None:
            return np.tile(np.resize(like.path, total)[np.arange(-_BURN_IN, total - _BURN_IN)], (count, 1))
        path = np.zeros((count, total), dtype=np.intp)
        if self.switching is None:
            return path
        at = np.full(count, int(self.start.argmax()))
        rising = self.switching.cumsum(axis=1)[:, :-1]
        for tick in range(total):
            at = (random.random(count)[:, None] > rising[at]).sum(axis=1)
            path[:, tick] = at
        return path


@dataclass(frozen=True, eq=False)
class Reading:
    """Readings beside a law: what it says of each of them given everything newer."""

    law: Law
    data: Newest

    @cached_property
    def codes(self) -> Indices:
        """Contexts (n, s), -1 where a parent or the reading itself is missing."""
        return np.where(self.data.states >= 0, contexts(self.data.states, self.law.parents, self.data.m), -1)

    def under(self, law: Law) -> Reading:
        """The same readings beside another law with the same parents."""
        other = Reading(law, self.data)
        other.__dict__.update(codes=self.codes, known=self.known, cells=self.cells)
        return other

    @cached_property
    def cells(self) -> Indices:
        """The place of every transition that is known in a table of counts, in the order of ticks."""
        _, s, size, m = self.law.rows.shape
        return np.asarray((((np.arange(s) * size + self.codes) * m) + self.data.states)[self.known])

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether the reading and its parents are there."""
        return np.asarray(self.codes >= 0)

    @cached_property
    def by_environment(self) -> Floats:
        """Laws (n, s, m) of every reading in every environment, (E, n, s, m)."""
        s = self.data.states.shape[1]
        return self.law.rows[:, np.arange(s), np.maximum(self.codes, 0)]

    @cached_property
    def log_chances(self) -> Floats:
        """(n, s, E) of what was read; 0 if it is not known."""
        logs = np.log(self.law.rows.reshape(self.law.environments, -1)).T
        out = np.zeros((*self.known.shape, self.law.environments))
        out[self.known] = logs[self.cells]
        return out

    @cached_property
    def filtered(self) -> tuple[Floats, float]:
        """Pr(environment | this and everything newer) (n, E), and the log-likelihood."""
        scores = np.ascontiguousarray(self.log_chances.sum(axis=1))
        n, count = scores.shape
        if self.data.path is not None:
            return np.eye(count)[self.data.path], float(scores[np.arange(n), self.data.path].sum())
        if self.law.switching is None:
            return np.ones((n, 1)), float(scores.sum())
        from csdp.fitting.environment import filter_scores

        forward, gains = filter_scores(scores, self.law.start, np.ascontiguousarray(self.law.switching))
        return forward, float(gains.sum())

    def smoothed(self) -> tuple[Floats, Floats | None]:
        """Pr(environment | all readings) (n, E), and the expected switches."""
        forward, _ = self.filtered
        if self.law.switching is None:
            return forward, None
        from csdp.fitting.environment import smooth_scores

        return smooth_scores(np.ascontiguousarray(self.log_chances.sum(axis=1)), forward, self.law.switching)

    @cached_property
    def shares(self) -> Floats:
        """Pr(environment | everything newer, and the sequences before it in its tick) (n, s, E)."""
        forward, _ = self.filtered
        if self.law.switching is None:
            return np.repeat(forward[:, None], self.data.states.shape[1], axis=1)
        before = np.vstack([self.law.start, forward[:-1] @ self.law.switching])
        logs = np.cumsum(self.log_chances, axis=1) - self.log_chances + np.log(before)[:, None]
        raised = np.exp(logs - logs.max(axis=2, keepdims=True))
        return np.asarray(raised / raised.sum(axis=2, keepdims=True))

    @cached_property
    def predicted(self) -> Floats:
        """Laws (n, s, m) of every reading given everything newer and the sequences before it in its tick."""
        return np.asarray(np.einsum("nse,ensm->nsm", self.shares, self.by_environment))

    def counts(self, weights: Floats) -> Floats:
        """Transitions (E, s, contexts, m), each reading counted by the weights (n, E) of the environments."""
        _, s, size, m = self.law.rows.shape
        often = np.repeat(weights, self.known.sum(axis=1), axis=0)
        each = [np.bincount(self.cells, often[:, e], minlength=s * size * m) for e in range(weights.shape[1])]
        return np.asarray(each, dtype=np.float64).reshape(-1, s, size, m)


def fit_law(law: Law, data: Newest, iterations: int) -> Law:
    """The likeliest law with these parents, by expectation-maximisation from a law."""
    last, transitions = -np.inf, max(1, int((data.states >= 0).sum()))
    reading = Reading(law, data)
    for _ in range(iterations if law.switching is not None else 1):
        reading = reading.under(law)
        weights, switches = reading.smoothed()
        counts = reading.counts(weights) + _PSEUDO_COUNT
        if law.environments > 1:
            common = counts.sum(axis=0)
            counts = counts + _COMMON * common / common.sum(axis=(1, 2), keepdims=True)
        law = replace(law, rows=counts / counts.sum(axis=3, keepdims=True))
        if switches is not None:
            switches = switches + _SWITCHES
            start = weights[0] + _SWITCHES
            law = replace(law, start=start / start.sum(), switching=switches / switches.sum(axis=1, keepdims=True))
        likelihood = reading.filtered[1]
        if likelihood - last <= _TOLERANCE * transitions:
            break
        last = likelihood
    return law


def first_law(s: int, m: int, environments: int = 1) -> Law:
    """A law that every sequence follows its own last state, all states alike probable."""
    own: Parents = tuple(((j, 1),) for j in range(s))
    return Law(own, np.full((environments, s, m, m), 1.0 / m), np.full(environments, 1.0 / environments))
