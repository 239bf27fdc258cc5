"""Laws that growing tries: log odds that add up from the environment, the clock and the parents of a value.

Readings are taken the newest first. The log odds of a sequence's states, given everything newer, are a level in each
environment, plus a level at each phase of the clock, plus what the states of its parents (sequence, lag) add. So what a
parent adds, which is all that a certificate rests on, is the same whatever the level is. Environments are hidden and
Markov; their number may be 1.
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
#: Precision of the normal prior of the common level, of levels in environments and phases, and of what parents add.
_COMMON, _LEVEL, _PHASE, EFFECT_PRIOR = 0.02, 0.5, 1.0, 0.25
#: That of levels if there is one environment, or no clock: none but the common one.
_NONE = 100.0
#: Switches added to each cell.
_SWITCHES = 0.5
#: Gain in log-likelihood of a reading that stops a fit, and largest step in log odds.
_TOLERANCE, _STEP = 1e-5, 2.0
#: Steps that a simulation lets pass before it counts.
_BURN_IN = 100

_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Newest:
    """Readings, the newest first: states (n, s), -1 if missing, and the phase of the clock at each tick."""

    states: npt.NDArray[np.int16]
    m: int
    phase: Indices
    phases: int

    def of(self, chosen: Indices) -> Newest:
        """Some sequences."""
        return replace(self, states=np.ascontiguousarray(self.states[:, chosen]))

    def part(self, start: int, stop: int) -> Newest:
        """Some ticks."""
        return replace(self, states=self.states[start:stop], phase=self.phase[start:stop])

    def showing(self, states: npt.NDArray[np.int16]) -> Newest:
        """Other readings of the same ticks."""
        return replace(self, states=states)


def lagged(table: npt.NDArray[_Kind], lag: int, fill: float) -> npt.NDArray[_Kind]:
    """Rows as they were `lag` ticks newer."""
    out = np.full_like(table, fill)
    out[lag:] = table[: table.shape[0] - lag]
    return out


def contexts(data: Newest, parents: Parents) -> Indices:
    """The number (n, s) of the phase and of the combination of parents' states that each state follows.

    -1 if the state or that of a parent is missing.
    """
    states = data.states
    codes = np.repeat(data.phase[:, None].astype(np.int64), states.shape[1], axis=1)
    known = states >= 0
    for place in range(max(map(len, parents))):
        rows = [j for j, own in enumerate(parents) if len(own) > place]
        for lag in {parents[j][place][1] for j in rows}:
            some = [j for j in rows if parents[j][place][1] == lag]
            seen = lagged(states, lag, -1)[:, [parents[j][place][0] for j in some]]
            codes[:, some] += np.maximum(seen, 0) * (data.phases * data.m**place)
            known[:, some] &= seen >= 0
    return np.where(known, codes, -1)


@dataclass(frozen=True, eq=False)
class Law:
    """Coefficients (s, q, m) of log odds against state 0, and the hidden environments: law in the long run, switching.

    The q coefficients are: the common level, levels in environments, levels in phases, and for every parent those of
    its states but the first.
    """

    parents: Parents
    m: int
    phases: int
    coefficients: Floats
    start: Floats
    switching: Floats

    @property
    def environments(self) -> int:
        """Their number."""
        return int(self.start.size)

    @property
    def places(self) -> int:
        """The largest number of parents."""
        return max(map(len, self.parents))

    @cached_property
    def _design(self) -> Floats:
        """(environments contexts, q): the coefficients that make up the log odds of each cell."""
        size = self.phases * self.m**self.places
        cell = np.arange(self.environments * size)
        code = cell % size
        columns = [
            np.ones((cell.size, 1)),
            np.eye(self.environments)[cell // size],
            np.eye(self.phases)[code % self.phases],
        ]
        for place in range(self.places):
            columns.append(np.eye(self.m)[code // (self.phases * self.m**place) % self.m][:, 1:])
        return np.hstack(columns)

    @cached_property
    def _precision(self) -> Floats:
        parts = [
            (1, _COMMON),
            (self.environments, _LEVEL if self.environments > 1 else _NONE),
            (self.phases, _PHASE if self.phases > 1 else _NONE),
            (self.places * (self.m - 1), EFFECT_PRIOR),
        ]
        return np.concatenate([np.full(count, value) for count, value in parts])

    @cached_property
    def rows(self) -> Floats:
        """The law of a state in every environment and context, (E, s, contexts, m)."""
        laws = _softmax(np.einsum("kq,sqc->skc", self._design, self.coefficients))
        return np.ascontiguousarray(laws.reshape(len(self.parents), self.environments, -1, self.m).swapaxes(0, 1))

    @property
    def first_effect(self) -> int:
        """The first coefficient of parents."""
        return 1 + self.environments + self.phases

    @property
    def effects(self) -> Floats:
        """What parents add to log odds: (s, places, m, m), by the parent's state and the state."""
        s = len(self.parents)
        out = np.zeros((s, self.places, self.m, self.m))
        out[:, :, 1:] = self.coefficients[:, self.first_effect :].reshape(s, self.places, self.m - 1, self.m)
        return out

    def with_parents(self, parents: Parents) -> Law:
        """The same law written with more parents, which follow those of each sequence."""
        more = (max(map(len, parents)) - self.places) * (self.m - 1)
        return replace(self, parents=parents, coefficients=np.pad(self.coefficients, ((0, 0), (0, more), (0, 0))))

    # ---- fits ------------------------------------------------------------------------------------------------------

    def climb(self, counts: Floats, steps: int) -> tuple[Law, Floats]:
        """The likeliest coefficients for counts (E, s, contexts, m) by Newton's method, and their information."""
        m, s, q = self.m, len(self.parents), self._design.shape[1]
        seen = counts.swapaxes(0, 1).reshape(s, -1, m)
        total = seen.sum(axis=2)
        squares = (self._design[:, :, None] * self._design[:, None, :]).reshape(-1, q * q)
        found = self.coefficients.copy()
        information = np.zeros((s, m - 1, q, m - 1, q))
        for _ in range(steps):
            law = _softmax(np.einsum("kq,sqc->skc", self._design, found))
            slope = np.einsum("kq,skc->sqc", self._design, seen - total[:, :, None] * law)[..., 1:]
            slope -= self._precision[:, None] * found[..., 1:]
            for a in range(1, m):
                for b in range(1, m):
                    weight = total * law[..., a] * (float(a == b) - law[..., b])
                    information[:, a - 1, :, b - 1] = (weight @ squares).reshape(s, q, q)
                information[:, a - 1, :, a - 1] += np.diag(self._precision)
            whole = information.reshape(s, (m - 1) * q, (m - 1) * q)
            step = np.linalg.solve(whole, slope.swapaxes(1, 2).reshape(s, -1, 1)).reshape(s, m - 1, q).swapaxes(1, 2)
            found[..., 1:] += np.clip(step, -_STEP, _STEP)
            if np.abs(step).max() < 1e-4:
                break
        return replace(self, coefficients=found), information

    # ---- simulation ------------------------------------------------------------------------------------------------

    def simulate(self, like: Newest, count: int, random: np.random.Generator) -> npt.NDArray[np.int16]:
        """Readings (count, n, s) of this law, missing where those of `like` are."""
        m, s = like.m, like.states.shape[1]
        total = like.states.shape[0] + _BURN_IN
        path = self._draw_path(count, total, random) * s
        phase = np.concatenate([np.resize(like.phase, _BURN_IN), like.phase])
        depth = max(lag for own in self.parents for _, lag in own)
        seen = np.empty((depth + total, s, count), dtype=np.int16)
        seen[:depth] = random.integers(m, size=(depth, s, count))
        size = self.rows.shape[2]
        rising = [np.ascontiguousarray(each.ravel()) for each in self.rows.cumsum(axis=3).T[:-1].swapaxes(1, 3)]
        plans = [(rows, self._look_up(rows)) for rows in self._in_order()]
        for tick in range(total):
            now = seen[depth + tick]
            chance = random.random((s, count))
            for rows, places in plans:
                cell = (path[tick] + rows[:, None]) * size + phase[tick]
                for sources, lags, scale in places:
                    cell += seen[depth + tick - lags, sources] * scale
                now[rows] = sum(chance[rows] > each[cell] for each in rising)
        states = np.ascontiguousarray(seen[depth + _BURN_IN :].transpose(2, 0, 1))
        states[:, like.states < 0] = -1
        return states

    def _in_order(self) -> list[Indices]:
        """Sequences in groups of which each follows only those before it within a tick."""
        rank = np.zeros(len(self.parents), dtype=np.intp)
        for j, own in enumerate(self.parents):
            rank[j] = max((1 + rank[i] for i, lag in own if lag == 0), default=0)
        return [np.flatnonzero(rank == number) for number in range(int(rank.max()) + 1)]

    def _look_up(self, rows: Indices) -> list[tuple[Indices, Indices, Indices]]:
        """By place among the parents: sources, lags, and what a state adds to the number of a context."""
        places = []
        for place in range(max(len(self.parents[j]) for j in rows)):
            scale = self.phases * self.m**place
            some = [self.parents[j][place : place + 1] for j in rows]
            each = [(*own[0], scale) if own else (0, 1, 0) for own in some]
            sources, lags, scales = np.array(each, dtype=np.intp).T
            places.append((sources, lags, scales[:, None]))
        return places

    def _draw_path(self, count: int, total: int, random: np.random.Generator) -> Indices:
        """The environment of every tick of each series, (total, count)."""
        path = np.zeros((total, count), dtype=np.intp)
        if self.environments == 1:
            return path
        at = (random.random(count)[:, None] > self.start.cumsum()[:-1]).sum(axis=1)
        rising = self.switching.cumsum(axis=1)[:, :-1]
        for tick in range(total):
            at = (random.random(count)[:, None] > rising[at]).sum(axis=1)
            path[tick] = at
        return path


def _softmax(odds: Floats) -> Floats:
    raised = np.exp(odds - odds.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Reading:
    """Readings beside a law: what it says of each of them given everything newer."""

    law: Law
    data: Newest

    @cached_property
    def codes(self) -> Indices:
        """Contexts (n, s), -1 where a parent or the reading itself is missing."""
        return contexts(self.data, self.law.parents)

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether the reading and its parents are there."""
        return np.asarray(self.codes >= 0)

    @cached_property
    def cells(self) -> Indices:
        """The place of every transition that is known in a table of counts, in the order of ticks."""
        _, s, size, m = self.law.rows.shape
        return np.asarray((((np.arange(s) * size + self.codes) * m) + self.data.states)[self.known])

    def under(self, law: Law) -> Reading:
        """The same readings beside another law with the same parents."""
        other = Reading(law, self.data)
        other.__dict__.update(codes=self.codes, known=self.known, cells=self.cells)
        return other

    @cached_property
    def by_environment(self) -> Floats:
        """Laws of every reading in every environment, (E, n, s, m)."""
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
        if self.law.environments == 1:
            return np.ones_like(scores), float(scores.sum())
        from csdp.fitting.environment import filter_scores

        forward, gains = filter_scores(scores, self.law.start, self.law.switching)
        return forward, float(gains.sum())

    def smoothed(self) -> tuple[Floats, Floats | None]:
        """Pr(environment | all readings) (n, E), and the expected switches."""
        forward, _ = self.filtered
        if self.law.environments == 1:
            return forward, None
        from csdp.fitting.environment import smooth_scores

        return smooth_scores(np.ascontiguousarray(self.log_chances.sum(axis=1)), forward, self.law.switching)

    @cached_property
    def shares(self) -> Floats:
        """Pr(environment | everything newer, and the sequences before it in its tick) (n, s, E)."""
        forward, _ = self.filtered
        if self.law.environments == 1:
            return np.ones((*self.known.shape, 1))
        before = np.vstack([self.law.start, forward[:-1] @ self.law.switching])
        logs = np.cumsum(self.log_chances, axis=1) - self.log_chances + np.log(before)[:, None]
        return _softmax(logs)

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


def fit_law(law: Law, data: Newest, iterations: int) -> tuple[Law, Floats]:
    """The likeliest law with these parents, by expectation-maximisation from a law; information of coefficients."""
    last, transitions = -np.inf, max(1, int((data.states >= 0).sum()))
    reading = Reading(law, data)
    if law.environments == 1:
        return law.climb(reading.counts(np.ones((data.states.shape[0], 1))), 50)
    for _ in range(iterations):
        reading = reading.under(law)
        weights, switches = reading.smoothed()
        law, information = law.climb(reading.counts(weights), 3)
        assert switches is not None
        law = _with_switching(law, switches)
        likelihood = reading.filtered[1]
        if likelihood - last <= _TOLERANCE * transitions:
            break
        last = likelihood
    return law, information


def _with_switching(law: Law, switches: Floats) -> Law:
    """Environments that switch as often as this, from their law in the long run."""
    switching = np.ascontiguousarray((switches + _SWITCHES) / (switches + _SWITCHES).sum(axis=1, keepdims=True))
    start = np.linalg.matrix_power(switching, 4096)[0]
    return replace(law, switching=switching, start=np.ascontiguousarray(start / start.sum()))


def first_law(data: Newest, parents: Parents, environments: int = 1) -> Law:
    """A law with these parents that says nothing yet: all states alike probable."""
    places = max(map(len, parents))
    q = 1 + environments + data.phases + places * (data.m - 1)
    each = np.full(environments, 1.0 / environments)
    coefficients = np.zeros((len(parents), q, data.m))
    return Law(parents, data.m, data.phases, coefficients, each, np.tile(each, (environments, 1)))


def own_parents(sequences: int) -> Parents:
    """Every sequence follows its own last state."""
    return tuple(((j, 1),) for j in range(sequences))


def hidden_law(data: Newest, parents: Parents, environments: int, starts: int, random: np.random.Generator) -> Law:
    """The likeliest law with hidden environments, from several starts: ticks that look alike share an environment."""
    from csdp.fitting.environment import cluster

    known = data.states >= 0
    means = np.where(known, data.states, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    apart = np.where(known, data.states - means, 0.0)
    best, most = None, -np.inf
    for number in range(starts):
        width = (1, 3)[number % 2]
        sums = np.vstack([np.zeros(apart.shape[1]), np.cumsum(apart, axis=0)])
        ends = np.minimum(np.arange(apart.shape[0]) + width, apart.shape[0])
        labels = cluster(sums[ends] - sums[: apart.shape[0]], environments, random)
        weights = 0.9 * np.eye(environments)[labels] + 0.1 / environments
        law = first_law(data, parents, environments)
        law, _ = law.climb(Reading(law, data).counts(weights), 10)
        law, _ = fit_law(_with_switching(law, weights[:-1].T @ weights[1:]), data, 20)
        likelihood = Reading(law, data).filtered[1]
        if likelihood > most:
            best, most = law, likelihood
    assert best is not None
    return best
