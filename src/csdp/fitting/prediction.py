"""What a chain predicts for readings, step by step, and how much more than another chain.

If the environment is known (a clock) the law of a step is that of its member. If it is hidden, `Pr(e_t | all before)`
is filtered from the readings, and what the sequences of a tick do reveals e_t for those that come after them in the
same tick: law j is given the past and the sequences before j. The product over j is then the law of the whole snapshot,
and residuals have mean zero given everything before them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.model import Direction
from csdp.errors import InputError
from csdp.fitting.graph import Graph, join_graphs
from csdp.fitting.sample import Chain, Sample, snapshot_numbers
from csdp.numbers import Bools, Floats, Indices

#: Added to every count of the laws that a chain is compared with.
_PSEUDO_COUNT = 0.5
#: Stands for the logarithm of a step that no environment allows.
_IMPOSSIBLE = -1e6
#: Transitions of several sequences below which one thread is quicker.
_THREADED = 100_000


class _Laws(ABC):
    """Laws of next states under a chain for every step of the readings."""

    def __init__(self, chain: Chain, readings: Sample) -> None:
        self.sample = readings.in_direction(chain.direction)  #: in the order in which the chain reads them

    @abstractmethod
    def law(self, target: int) -> tuple[Floats, Bools]:
        """Law of the next state of a target (steps, m), and at which steps present and next are known."""

    def scores(self, target: int) -> tuple[Floats, Bools]:
        """Log-probability of the next state of a target at every step (0 if unknown), and when it is known."""
        (law, known), following = self.law(target), self.sample.states[1:, target]
        chance = law[np.arange(following.size), np.maximum(following, 0)]
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, chance, 1.0)), 0.0), known

    def residuals(self, target: int) -> tuple[Floats, Floats]:
        """Residuals and their variances (steps, m - 1), each with mean zero given the past and uncorrelated.

        One for each question "state a, given that it is a or above?": `1(y >= a) (1(y = a) - h_a)` has variance
        `Pr(y >= a) h_a (1 - h_a)` under the law. Zero if a reading is missing.
        """
        (law, known), following = self.law(target), self.sample.states[1:, target]
        above = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
        hazard = law[:, :-1] / np.maximum(above[:, :-1], 1e-300)
        states = np.arange(law.shape[1] - 1)
        left = (following[:, None] >= states) * ((following[:, None] == states) - hazard)
        variance = above[:, :-1] * hazard * (1.0 - hazard)
        keep = known[:, None]
        return np.where(keep, left, 0.0), np.where(keep, np.maximum(variance, 0.0), 0.0)


class Prediction(_Laws):
    """Laws of next states under a chain without environments."""

    def __init__(self, chain: CoupledChain | JointChain, readings: Sample) -> None:
        super().__init__(chain, readings)
        self.chain, self._present = chain, self.sample.states[:-1]

    @cached_property
    def _joint(self) -> tuple[Floats, Bools]:
        """Rows of the kernel (steps, N) of a joint chain, and which presents are complete."""
        assert isinstance(self.chain, JointChain)
        complete = np.asarray((self._present >= 0).all(axis=1))
        return self.chain.kernel()[snapshot_numbers(self._present, self.chain.states)], complete

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | present)` (steps, m), and at which steps present and next are known."""
        m, following = self.chain.states, self.sample.states[1:, target]
        if isinstance(self.chain, JointChain):
            rows, complete = self._joint
            axes = tuple(i + 1 for i in range(self.chain.sequences) if i != target)
            law = rows.reshape((-1,) + (m,) * self.chain.sequences).sum(axis=axes)
            return law, complete & (following >= 0)
        starts = self.chain.edge_starts
        table, which = self.chain.transition_table
        law = np.zeros((following.size, m))
        known = following >= 0
        for e in range(int(starts[target]), int(starts[target + 1])):
            column = self._present[:, self.chain.edge_sources[e]]
            known &= column >= 0
            law += self.chain.edge_weights[e] * table[which[e]][np.maximum(column, 0)]
        return law, known

    def joint_scores(self) -> Floats:
        """Log-probability of the whole next snapshot under a joint chain at every step (0 if unknown)."""
        rows, complete = self._joint
        following = self.sample.states[1:]
        code = snapshot_numbers(following, self.chain.states)
        known = complete & (following >= 0).all(axis=1)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, rows[np.arange(code.size), code], 1.0)), 0.0)


def own_law(readings: Sample, target: int) -> Floats:
    """Transitions (m, m) of a sequence that follows itself only, counted and smoothed."""
    column = readings.states[:, target]
    both = (column[:-1] >= 0) & (column[1:] >= 0)
    cells = column[:-1][both].astype(np.intp) * readings.m + column[1:][both]
    counts = np.bincount(cells, minlength=readings.m**2).reshape(readings.m, readings.m) + _PSEUDO_COUNT
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


# ---- environments ----------------------------------------------------------------------------------------------------


def known_environments(chain: EnvironmentChain, ticks: npt.NDArray[Any]) -> Indices | None:
    """The environment (T,) of every tick by the clock; None if it is hidden."""
    if chain.cycle is None:
        return None
    return np.asarray(np.asarray(chain.cycle, dtype=np.intp)[np.asarray(ticks) % len(chain.cycle)])


def add_environments(chain: Chain, sample: Sample, ticks: npt.NDArray[Any]) -> Sample:
    """The readings with the environment of every tick, if the chain knows it."""
    if isinstance(chain, EnvironmentChain):
        return replace(sample, environments=known_environments(chain, ticks))
    return sample


def predict(chain: Chain, readings: Sample) -> Prediction | EnvironmentPrediction:
    """What a chain predicts for the readings."""
    return (
        EnvironmentPrediction(chain, readings) if isinstance(chain, EnvironmentChain) else Prediction(chain, readings)
    )


class EnvironmentPrediction(_Laws):
    """Laws of next states under a chain with environments; ask for targets in their order, which is quick."""

    def __init__(self, chain: EnvironmentChain, readings: Sample) -> None:
        super().__init__(chain, readings)
        self.chain = chain
        self._members = [Prediction(member, self.sample) for member in chain.environments]
        self._cursor, self._scores_so_far = 0, self._before.copy()

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | past, next states of the targets before)` (steps, m), and when it is known."""
        laws = [member.law(target) for member in self._members]
        weights = self._weights(target)
        law = sum(weights[:, e, None] * laws[e][0] for e in range(len(laws)))
        return np.asarray(law), np.logical_and.reduce([known for _, known in laws])

    def _weights(self, target: int) -> Floats:
        """`Pr(e_t | past, next states of the targets before)` (steps, E)."""
        if target < self._cursor:
            self._cursor, self._scores_so_far = 0, self._before.copy()
        while self._cursor < target:
            self._scores_so_far += np.column_stack([member.scores(self._cursor)[0] for member in self._members])
            self._cursor += 1
        return shares_of_logs(self._scores_so_far)

    @cached_property
    def _before(self) -> Floats:
        """ln Pr(e_t | past) (steps, E)."""
        path, members = self.sample.environments, len(self._members)
        if self.chain.switching is None:
            assert path is not None
            # In time the step between two ticks is under the environment of the later one.
            shares = np.eye(members)[path[1:] if self.sample.direction == "forward" else path[:-1]]
        else:
            start, switching = np.asarray(self.chain.environment_law), np.ascontiguousarray(self.chain.own_switching)
            graph = join_graphs(self.chain.environments)
            scores = step_scores(self.sample, graph, mix_members(self.chain.environments, graph))
            after = filter_scores(np.maximum(scores, _IMPOSSIBLE), start, switching)[0]
            shares = np.vstack([start, after[:-1] @ switching])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(shares))


def shares_of_logs(logs: Floats) -> Floats:
    """Probabilities from logarithms, along the last axis; equal ones if all are impossible."""
    top = logs.max(axis=-1, keepdims=True)
    raised = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    whole = raised.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(whole > 0, raised / np.where(whole > 0, whole, 1.0), 1.0 / logs.shape[-1]))


# ---- scores ----------------------------------------------------------------------------------------------------------


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
    chain: CoupledChain | EnvironmentChain,
    readings: Sample,
    *,
    labels: Indices | None = None,
    graph: Graph | None = None,
) -> Floats:
    """Log-probability of every step of the readings, in the order of the chain's direction.

    Under a hidden environment: given the steps before, its own law at the first. `labels` are the environments of the
    ticks by a clock. A sequence counts at steps where it and all its sources in `graph` were read.
    """
    sample = readings.in_direction(chain.direction)
    members = members_of(chain)
    among = join_graphs(members) if graph is None else graph
    scores = step_scores(sample, among, mix_members(members, among))
    if not isinstance(chain, EnvironmentChain):
        return scores[:, 0]
    if chain.switching is not None:
        return filter_scores(scores, np.asarray(chain.environment_law), np.ascontiguousarray(chain.own_switching))[1]
    if labels is None:
        raise InputError("labels: none given; a chain by a clock needs the environment of every tick")
    return np.asarray(scores[np.arange(scores.shape[0]), order_labels(labels, chain.direction)])


def held_out_gain(
    chain: CoupledChain | EnvironmentChain,
    independent: CoupledChain,
    readings: Sample,
    labels: Indices | None = None,
) -> tuple[float, float]:
    """Nats per tick that a chain gains over independent ones on readings, and the standard error.

    Both are counted at the same steps of the same sequences, those at which whatever either chain looks at was read.
    """
    graph = join_graphs([*members_of(chain), independent])
    gains = chain_scores(chain, readings, labels=labels, graph=graph)
    gains = gains - chain_scores(independent, readings, graph=graph)
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
