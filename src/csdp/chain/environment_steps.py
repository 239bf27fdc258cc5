"""What an environment chain is made of: checked members, rounds of a clock, joint steps, and draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain import checks
from csdp.chain.coupled import CoupledChain
from csdp.chain.model import States
from csdp.chain.stationary import stationary_law
from csdp.chain.steps import MAX_STATES, KernelStep, Step, joint_states
from csdp.errors import InputError, TooLargeError


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


def walk_clock(members: Sequence[CoupledChain]) -> list[tuple[int, CoupledChain]]:
    """From phase 0 once round the clock in the members' own direction: (phase reached, member of the step)."""
    count = len(members)
    if members[0].direction == "forward":
        return [(n % count, members[n % count]) for n in range(1, count + 1)]
    return [((n - 1) % count, members[n % count]) for n in range(count, 0, -1)]


def find_periodic_laws(members: Sequence[CoupledChain], *, positive: bool) -> tuple[Floats, float]:
    """Periodic stationary law (H, m**s) of a clock's members, one for each phase, and its relative error."""
    walk, size = walk_clock(members), members[0].size
    law, error = stationary_law(
        ComposedStep([chain.own_step for _, chain in walk]),
        start=np.full(size, 1.0 / size),
        positive=positive,
        kernel=lambda: reduce(np.matmul, [chain._own_kernel() for _, chain in walk]),
    )
    laws = np.empty((len(members), size))
    for phase, chain in walk:
        pushed = chain.own_step.push(law[:, None])[:, 0]
        laws[phase] = law = pushed / pushed.sum()
        error += (chain.own_step.depth + 2) * np.finfo(np.float64).eps
    return laws, error


def find_environment_law(switching: Floats) -> Floats:
    """Long-run law of a hidden environment."""
    return stationary_law(
        KernelStep(switching),
        start=np.full(switching.shape[0], 1.0 / switching.shape[0]),
        positive=bool((switching > 0).all()),
        kernel=lambda: switching,
    )[0]


def refuse_large_joint(environments: int, sequences: int, states: int) -> None:
    """TooLargeError where the law of (environment, snapshot) has too many entries to be made."""
    size = environments * joint_states(sequences, states)
    if size > MAX_STATES:
        raise TooLargeError(
            f"{environments} environments times {states}**{sequences} snapshots; at most {MAX_STATES:,} joint states "
            "are made. Ask for environment='path', which needs no joint law",
            needed=size,
            limit=MAX_STATES,
        )


def make_joint_kernel(switching: Floats, kernels: Floats, *, environment_first: bool) -> Floats:
    """Kernel (E N, E N) on (environment, snapshot) of kernels (E, N, N), as `SwitchedStep` moves them."""
    whole = np.einsum("ef,fxy->exfy" if environment_first else "ef,exy->exfy", switching, kernels)
    return np.asarray(whole.reshape(whole.shape[0] * whole.shape[1], -1))


def iterate_marginals(members: Sequence[CoupledChain]) -> Floats:
    """Law of every sequence at every phase of a clock (H, s, m), by running it until the laws repeat."""
    first, walk = members[0], walk_clock(members)
    law = np.full((first.sequences, first.states), 1.0 / first.states)
    laws = np.empty((len(members), *law.shape))
    for _ in range(10_000):
        before = laws.copy()
        for phase, member in walk:
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


def check_members(members: Iterable[CoupledChain]) -> tuple[CoupledChain, ...]:
    """At least one coupled chain, alike in everything but the law."""
    chains = tuple(members)
    if not chains:
        raise InputError("EnvironmentChain: no members given; give a CoupledChain for each environment")
    for chain in chains:
        if not isinstance(chain, CoupledChain):
            raise InputError(f"EnvironmentChain: {type(chain).__name__} given; members are CoupledChain")
        if chain.family is not None or chain.fit_cost is not None:
            raise InputError(
                "EnvironmentChain: a fitted member that carries a family or a cost given; make the environment chain "
                "of plain chains and let the whole carry them"
            )
    checks.check_alike("EnvironmentChain", chains)
    return tuple(chain.carrying() for chain in chains)


def check_path(environments: Sequence[int], count: int) -> Indices:
    """The environment of every tick, numbers below `count`."""
    path = np.asarray(environments, dtype=np.intp)
    if path.ndim != 1 or not path.size or path.min() < 0 or path.max() >= count:
        raise InputError(f"environments: one number from 0 to {count - 1} for each tick expected, at least one")
    return path
