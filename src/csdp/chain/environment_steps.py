"""Steps and draws under environments: rounds of a clock, and snapshots with a hidden environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain.coupled import CoupledChain
from csdp.chain.model import States
from csdp.chain.steps import Step
from csdp.errors import InputError


class ComposedStep:
    """Several steps one after the other, as one: a round of the clock."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self.depth = sum(step.depth for step in steps)
        self.operations = sum(step.operations for step in steps)

    def push(self, h: Floats) -> Floats:
        """Take every column of h through all steps, the first one first."""
        for step in self._steps:
            h = step.push(h)
        return h

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after all steps, from each snapshot."""
        for step in self._steps[::-1]:
            g = step.pull(g)
        return g


class SwitchedStep:
    """One step of the joint law of (environment, snapshot), environment first.

    With `environment_first` the environment moves before the snapshot, which follows the new one (forward chains);
    otherwise the snapshot moves under the present environment, and then the environment moves (backward chains, whose
    step leads from the present into the past).
    """

    def __init__(self, switching: Floats, steps: Sequence[Step], *, environment_first: bool) -> None:
        self._switching = switching
        self._steps = tuple(steps)
        self._environment_first = environment_first
        self.depth = max(step.depth for step in steps) + len(steps) + 1
        self.operations = sum(step.operations for step in steps)

    def push(self, h: Floats) -> Floats:
        """Take every column of h (E N, F) one step on."""
        if self._environment_first:
            return self._each(self._mix(h, self._switching.T), push=True)
        return self._mix(self._each(h, push=True), self._switching.T)

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each joint state."""
        if self._environment_first:
            return self._mix(self._each(g, push=False), self._switching)
        return self._each(self._mix(g, self._switching), push=False)

    def _mix(self, h: Floats, weights: Floats) -> Floats:
        count = len(self._steps)
        return np.asarray((weights @ h.reshape(count, -1)).reshape(h.shape))

    def _each(self, h: Floats, *, push: bool) -> Floats:
        parts = np.split(h, len(self._steps))
        moved = [(step.push if push else step.pull)(part) for step, part in zip(self._steps, parts, strict=True)]
        return np.concatenate(moved)


def iterate_marginals(members: Sequence[CoupledChain]) -> Floats:
    """Law of every sequence at every phase of a clock (H, s, m), by running it until the laws repeat."""
    first, h = members[0], len(members)
    law = np.full((first.sequences, first.states), 1.0 / first.states)
    laws = np.empty((h, *law.shape))
    # (phase reached, member of the step), once round the clock in the members' own direction
    ahead = [(n % h, members[n % h]) for n in range(1, h + 1)]
    back = [((n - 1) % h, members[n]) for n in range(h - 1, -1, -1)]
    for _ in range(10_000):
        before = laws.copy()
        for phase, member in ahead if first.direction == "forward" else back:
            laws[phase] = law = member.evolve(law, 1)
        if np.abs(laws - before).max() < 1e-15:
            return laws
    raise InputError("marginals: the sequences forget too slowly for their periodic law to be found")


def unroll_clock(members: Sequence[CoupledChain]) -> CoupledChain:
    """One chain of a copy of all sequences for each phase: at every tick block h holds the copy whose phase is h.

    A step leads from each block to the next phase's (from the block of a phase back to that before it, for backward
    members), under the member of the step. So what holds for coupled chains holds for each copy, phase by phase.
    """
    from scipy.sparse import csr_array

    h, s, first = len(members), members[0].sequences, members[0]
    rows, columns, weights, tables = [], [], [], []
    for phase, member in enumerate(members):
        later, earlier = phase * s, (phase - 1) % h * s
        forward = member.direction == "forward"
        rows.append(member.edge_targets + (later if forward else earlier))
        columns.append(member.edge_sources + (earlier if forward else later))
        weights.append(member.edge_weights)
        table, which = member.transition_table
        tables.append(table[which])
    row, column = np.concatenate(rows), np.concatenate(columns)
    coupling = csr_array((np.concatenate(weights), (row, column)), shape=(h * s, h * s))
    order = np.lexsort((column, row))
    chain = CoupledChain(coupling, np.concatenate(tables)[order], direction=first.direction)
    return chain.with_values_of(first, [0]) if first.values.ndim == 1 else chain


def draw_environments(switching: Floats, law: Floats, count: int, random: np.random.Generator) -> Indices:
    """A path of a hidden environment, from its long-run law."""
    cumulative = np.cumsum(switching, axis=1)[:, :-1]
    path = np.empty(count, dtype=np.intp)
    before = np.cumsum(law)[:-1]
    for n, uniform in enumerate(random.random(count)):
        path[n] = int((uniform >= before).sum())
        before = cumulative[path[n]]
    return path


def draw_snapshots(environments: Sequence[CoupledChain], path: Indices, random: np.random.Generator) -> States:
    """Snapshots along a path of environments, from one drawn evenly, in the direction of the chains."""
    first = environments[0]
    kind: Any = np.int8 if first.states <= 127 else np.int16
    out = np.empty((path.size, first.sequences), dtype=kind)
    ahead = first.direction == "forward"
    snapshot: Any = random.integers(first.states, size=first.sequences).astype(kind)
    for n in range(path.size) if ahead else range(path.size - 1, -1, -1):
        # Forward: the step into n is under path[n]; backward: the step back from n + 1 is under path[n + 1].
        environment = path[n] if ahead else path[min(n + 1, path.size - 1)]
        snapshot = environments[environment].advance(snapshot, random.random(first.sequences))
        out[n] = snapshot
    return out
