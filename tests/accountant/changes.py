"""Random changes of plan on small chains, the certificate after each step, and brute force over all histories."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import csdp
from csdp.plan import Plan
from csdp.query import PerGroup
from csdp.query_table import Groups
from oracle import joint_kernel, snapshots

from oracle import Told, history_leakage  # isort: skip
from accountant.systems import follow

Array = NDArray[np.float64]
#: Rows of a table of likelihoods times its columns; beyond, a case is drawn anew.
_LARGEST = 4_000_000


@dataclass(frozen=True)
class Stage:
    """One plan in plain numbers: the groups, the ages, the noise, the state that is kept, the ticks of its releases."""

    groups: Groups
    ages: tuple[int, ...]
    epsilon_c: float
    state: str
    ticks: tuple[int, ...]
    from_tick: int


@dataclass(frozen=True)
class Case:
    """A chain, and plans that follow one another on it."""

    coupling: Array
    transitions: Array
    stages: tuple[Stage, ...]
    moment: int

    @property
    def sequences(self) -> int:
        return len(self.coupling)

    def certificate(self) -> float:
        """What the library says of the present at the last moment."""
        chain = csdp.CoupledChain(self.coupling, self.transitions)
        accountant, state, cost = None, None, 0.0
        for stage in self.stages:
            query = PerGroup(csdp.Sum(), stage.groups)
            plan = Plan(chain, query, stage.ages, stage.epsilon_c)
            following = follow(plan, stage.state)
            if accountant is None or state is None:
                state = following.start(stage.from_tick - 1)
            elif cost > 0:
                state = following.take_over(accountant, state, tick=stage.from_tick - 1, cost=cost)
            else:
                state = following.start(stage.from_tick - 1)
            accountant = following
            for tick in stage.ticks:
                state = accountant.release(state, tick)
                cost += accountant.history_cost()
        assert accountant is not None
        assert state is not None
        return accountant.leakage(state, self.moment).epsilon

    def outputs(self) -> list[Told]:
        """The same releases for the oracle: one sum per group, epsilon_c each, as one record moves one sum by one."""
        releases = []
        for stage in self.stages:
            answers = [tuple(float(sum(x[i] for i in group)) for group in stage.groups) for x in self._snapshots()]
            releases += [Told(tick, stage.ages, tuple(answers), stage.epsilon_c) for tick in stage.ticks]
        return releases

    def _snapshots(self) -> list[tuple[int, ...]]:
        return snapshots(self.sequences, 2)

    def cells(self) -> float:
        """How large the oracle's table becomes."""
        outputs = self.outputs()
        rows = np.prod([float(np.prod([len(g) + 1 for g in s.groups])) ** len(s.ticks) for s in self.stages])
        return float(rows) * 2.0 ** (self.sequences * min(len(outputs) + 1, self.slices()))

    def slices(self) -> int:
        """How many slices the oracle's paths have."""
        oldest = min(t - max(s.ages) for s in self.stages for t in s.ticks)
        return self.moment - oldest + 1

    def truth(self) -> float:
        kernel = joint_kernel(self.coupling, self.transitions)
        return history_leakage(kernel, self.sequences, 2, self.outputs(), self.moment)


def partitions(s: int) -> list[Groups]:
    """All ways to put sequences into groups."""
    labellings = {tuple(labels) for labels in product(range(s), repeat=s)}
    out: set[Groups] = set()
    for labels in labellings:
        groups = tuple(tuple(i for i in range(s) if labels[i] == n) for n in sorted(set(labels)))
        out.add(tuple(sorted(groups)))
    return sorted(out)


def draw_case(rng: np.random.Generator) -> Case:
    """A connected chain and two or three plans."""
    while True:
        s = int(rng.choice([2, 2, 2, 3]))
        across = 10 ** rng.uniform(-2, -0.3)
        others = rng.dirichlet(np.ones(s), size=s) * across
        coupling = others + np.diag(1 - others.sum(axis=1))
        low = rng.choice([0.02, 0.2, 0.5])
        moves = rng.uniform(low, 1 - low, size=(s, s, 2)) if low < 0.5 else rng.uniform(0.3, 0.7, size=(s, s, 2))
        transitions = np.stack([moves, 1 - moves], axis=-1)
        stages, tick = [], 0
        for number in range(int(rng.integers(2, 4))):
            state = str(rng.choice(["vector", "scalar", "auto"]))
            ages = tuple(int(a) for a in rng.integers(0, 3, size=s))
            if rng.random() < 0.6:
                ages = (ages[0],) * s
            ways = partitions(s)
            groups = tuple((i,) for i in range(s)) if rng.random() < 0.4 else ways[int(rng.integers(len(ways)))]
            from_tick = tick + 1 + int(rng.integers(2)) * (number > 0)
            ticks = []
            tick = from_tick - 1
            for _ in range(int(rng.integers(0, 2) if number else rng.integers(1, 3))):
                tick += 1 + int(rng.random() < 0.2)
                ticks.append(tick)
            level = float(10 ** rng.uniform(-0.5, 0.6))
            stages.append(Stage(groups, ages, level, state, tuple(ticks), from_tick))
        case = Case(coupling, transitions, tuple(stages), tick + int(rng.integers(2)))
        if case.slices() * s <= 19 and case.cells() <= _LARGEST:
            return case


def sweep(seed: int, cases: int) -> tuple[list[tuple[Case, float, float]], Any]:
    """The cases whose certificate lies below the truth, and the smallest ratio of the two."""
    rng = np.random.default_rng(seed)
    below, least = [], np.inf
    for _ in range(cases):
        case = draw_case(rng)
        certificate, truth = case.certificate(), case.truth()
        if certificate < truth * (1 - 1e-9) - 1e-12:
            below.append((case, certificate, truth))
        if truth > 1e-9:
            least = min(least, certificate / truth)
    return below, least
