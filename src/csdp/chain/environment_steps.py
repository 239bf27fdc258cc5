"""Steps and draws under environments: rounds of a clock, and snapshots with a hidden environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain.coupled import CoupledChain
from csdp.chain.model import States
from csdp.chain.steps import Step


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
