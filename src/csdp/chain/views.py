"""Views of a model from one tick: the law of an older snapshot and the steps that lead from it to the present.

The law of aged readings asks a model for nothing else. A plain model is its own view: all its steps are alike. Under
environments the steps differ from tick to tick (`ClockView`, `PathView`), or the snapshot moves together with its
hidden environment (`JointView`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

from csdp.chain.environment import EnvironmentChain
from csdp.chain.model import Model
from csdp.chain.steps import ReversedStep, Step
from csdp.errors import InputError
from csdp.numbers import Floats


class View(Hashable, Protocol):
    """What the law of aged readings asks of a model, seen from the present tick; ages count back from there."""

    @property
    def sequences(self) -> int:
        """Number of sequences."""

    @property
    def states(self) -> int:
        """States of each."""

    @property
    def size(self) -> int:
        """Number of snapshots, m**s."""

    @property
    def copies(self) -> int:
        """Entries of a law for each snapshot: 1, or one for each hidden environment (which comes first)."""

    @property
    def is_stationary(self) -> bool:
        """Whether every step is the model's one step, and the law stays the same."""

    @property
    def step_depth(self) -> int:
        """The largest `depth` of the steps: how much rounding each adds."""

    def refuse_large(self) -> None:
        """TooLargeError if a law has too many entries to be made."""

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The law of the snapshot of this age, and its relative error."""

    def step_to(self, age: int) -> Step:
        """The step forward in time that leads to this age."""


def long_run_views(model: Model) -> list[View]:
    """Views whose average is the long run: the model, each phase of its clock, or its joint law if hidden."""
    if not isinstance(model, EnvironmentChain):
        return [model]
    if model.kind == "given":
        raise InputError(
            "an environment that is given has no law, so there is no long run: ask the chain with its clock or hidden "
            "environment"
        )
    return [JointView(model)] if model.kind == "hidden" else [ClockView(model, h) for h in range(model.period)]


class _EnvironmentView:
    """What the views of an environment chain share."""

    is_stationary = False
    copies = 1

    def __init__(self, chain: EnvironmentChain) -> None:
        self.chain = chain
        self.sequences, self.states, self.size = chain.sequences, chain.states, chain.size

    @property
    def step_depth(self) -> int:
        """The largest depth of the steps."""
        return max(chain.own_step.depth for chain in self.chain.environments) + 3

    def refuse_large(self) -> None:
        """TooLargeError if a law has too many entries to be made."""
        self.chain.refuse_large()


class ClockView(_EnvironmentView):
    """A chain under a clock, seen from a tick of one phase."""

    def __init__(self, chain: EnvironmentChain, phase: int) -> None:
        super().__init__(chain)
        chain.at_phase(phase)
        self.phase = phase
        self._steps: dict[int, Step] = {}

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The periodic law of that phase."""
        laws, error = self.chain.periodic_with_error
        return laws[(self.phase - age) % len(laws)], error

    def step_to(self, age: int) -> Step:
        """The step that leads to a tick of that phase."""
        phase = (self.phase - age) % self.chain.period
        if phase not in self._steps:
            step = self.chain.at_phase(phase).own_step
            if self.chain.direction == "backward":
                laws = self.chain.periodic_with_error[0]
                step = ReversedStep(step, laws[phase], laws[phase - 1])
            self._steps[phase] = step
        return self._steps[phase]


class PathView(_EnvironmentView):
    """A chain whose environments are given, the present first: `path[a]` is the environment of the tick of age a.

    The law of the oldest snapshot (of the present one, for backward members) is evenly spread, which assumes
    nothing if any law may hold, or of backward members if the adversary knows the present.
    """

    def __init__(self, chain: EnvironmentChain, path: Sequence[int]) -> None:
        super().__init__(chain)
        self.refuse_large()  # before a law is made
        self._path = tuple(path)
        given = np.full(self.size, 1.0 / self.size)
        steps = [chain.environments[e].own_step for e in path]
        if chain.direction == "forward":
            self._start, self._steps = given, steps
            return
        laws = [given]
        for step in steps:
            pushed = step.push(laws[-1][:, None])[:, 0]
            laws.append(pushed / pushed.sum())
        self._start = laws[-1]
        self._steps = [ReversedStep(step, laws[age], laws[age + 1]) for age, step in enumerate(steps)]

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The law at the beginning of the path; `age` is its length."""
        return self._start, (len(self._path) + 1) * (self.step_depth + 2) * float(np.finfo(np.float64).eps) + 1e-13

    def step_to(self, age: int) -> Step:
        """The step that leads to the tick of that age."""
        return self._steps[age]


class JointView(_EnvironmentView):
    """A chain with a hidden environment: laws are of (environment, snapshot), environment first."""

    def __init__(self, chain: EnvironmentChain) -> None:
        super().__init__(chain)
        self.copies = len(chain.environments)

    @property
    def step_depth(self) -> int:
        """The depth of the joint step."""
        return self.chain.joint_step.depth

    def refuse_large(self) -> None:
        """TooLargeError if the joint law has too many entries to be made."""
        self.chain.refuse_large_joint()

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The long-run law, whatever the age."""
        return self.chain.joint_law_with_error

    def step_to(self, age: int) -> Step:
        """The joint step."""
        return self.chain.joint_step
