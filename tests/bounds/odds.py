"""Processes whose parents move the log odds of a value within limits, and the graph that a fit would make of them.

The law of every value is one given all newer values. Levels are anything, at every tick another one; so are the newest
values, which nobody sees. Joint laws are multiplied out, so that windows and the law forwards are those of the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

import csdp
from csdp.fitting.class_limits import ClassLimits, make_forward, make_windows, swing_of
from oracle import Array, Law, conditional_law

#: By sequence, its parents (sequence, lag).
Parents = tuple[tuple[tuple[int, int], ...], ...]
#: Joint states beyond which a process is too large.
LARGEST = 2**14


def largest_odds(table: Array, place: int) -> float:
    """The most by which a parent moves the log odds of two states, whatever the other parents are; by definition."""
    logs = np.log(np.moveaxis(table, place, 0))
    change = logs[None] - logs[:, None]  # from one state of the parent to another: others, states
    return float((change.max(axis=-1) - change.min(axis=-1)).max())


@dataclass(frozen=True, eq=False)
class Process:
    """Laws at slices from `-before` to `ahead`, and limits of the log odds by which parents move a value."""

    m: int
    parents: Parents
    odds: Array  #: (s, places)
    before: int
    ahead: int
    tables: dict[tuple[int, int], Array]  #: by sequence and slice, of the levels that it has there
    joint: Array  #: (m,) * slices * sequences, those of a slice together
    swing: Array  #: (s, m), by how much hidden levels move the log odds of a state against the rest

    @property
    def s(self) -> int:
        return len(self.parents)

    @property
    def own(self) -> bool:
        return all(i == j for j, own in enumerate(self.parents) for i, _ in own)

    @property
    def memory(self) -> int:
        return max(lag for own in self.parents for _, lag in own)

    def limits(self) -> ClassLimits:
        return ClassLimits(self.parents, self.odds, self.odds, self.swing, 1.0)

    def graph(self) -> csdp.InfluenceGraph:
        """What a fit makes of these limits."""
        limits = self.limits()
        point = csdp.CoupledChain(np.eye(self.s), np.full((self.m, self.m), 1 / self.m), values=np.arange(self.m))
        return csdp.InfluenceGraph.of_odds(
            point,
            make_windows(limits, self.m),
            forward=make_forward(limits, self.m),
            swing=swing_of(limits),
            confidence=0.99,
        )

    def law(self) -> Law:
        return conditional_law(self.joint, self.s, -self.before, self.before + self.ahead)


def random_process(random: np.random.Generator, *, slow: bool | None = None) -> Process:
    """One to three sequences of two to four states that follow themselves for up to three ticks, or each other."""
    s, m = [(1, 2), (1, 2), (1, 3), (1, 4), (2, 2), (2, 2), (2, 3), (3, 2)][random.integers(8)]
    parents = _own(random, s) if s == 1 or random.random() < 0.5 else _coupled(random, s)
    memory = max(lag for own in parents for _, lag in own)
    slices = int(np.log(LARGEST) / np.log(m) / s) - (memory - 1)
    slices = min(slices, 8)
    ahead = int(random.integers(0, slices // 2 + 1))
    before = slices - 1 - ahead
    slow = bool(random.random() < 0.25) if slow is None else slow
    size, kind = float(random.choice([0.2, 1.0, 3.0, 8.0])), random.choice(["added", "changing", "tied"])
    effects = {
        (j, place): size * random.exponential() * random.normal(size=(m, m))
        for j, own in enumerate(parents)
        for place in range(len(own))
    }
    odds = np.zeros((s, max(map(len, parents))))
    joints, tables = [], {}
    for _ in range(2 if slow else 1):
        scale = float(random.choice([0.0, 1.0, 4.0]))
        for j, n in product(range(s), range(-before, ahead)):
            tables[j, n] = _table(random, m, parents[j], [effects[j, p] for p in range(len(parents[j]))], kind, scale)
            for place in range(len(parents[j])):
                odds[j, place] = max(odds[j, place], largest_odds(tables[j, n], place))
        joints.append(_joint(random, s, m, parents, tables, before, ahead))
    share = random.uniform(0.2, 0.8)
    joint = share * joints[0] + (1 - share) * joints[-1]
    swing = np.zeros((s, m))
    if slow:
        swing = np.maximum.reduce([_swing(each, joint, s, m) for each in joints])
    return Process(m, parents, odds, before, ahead, tables, joint, swing)


def _own(random: np.random.Generator, s: int) -> Parents:
    return tuple(tuple((j, lag) for lag in range(1, 1 + int(random.integers(1, 4 if s < 3 else 3)))) for j in range(s))


def _coupled(random: np.random.Generator, s: int) -> Parents:
    """One step of memory, at the same tick too."""
    found = []
    for j in range(s):
        others = [(i, 1) for i in range(s) if i != j] + [(i, 0) for i in range(j)]
        taken = sorted(random.permutation(len(others))[: int(random.integers(0, 3))])
        found.append(((j, 1), *(others[n] for n in taken)))
    return tuple(found)


def _table(random, m, parents, effects, kind, scale) -> Array:
    logs = np.zeros((m,) * (len(parents) + 1)) + scale * random.normal(size=m)
    for place, effect in enumerate(effects):
        share = random.uniform(-1, 1) if kind == "changing" else 1.0
        logs = logs + share * effect.reshape((m,) + (1,) * (len(parents) - 1 - place) + (m,))
    if kind == "tied":  # what one parent adds depends on the others
        logs = logs + max(map(np.ptp, effects)) * random.uniform(-1, 1) * random.random(logs.shape)
    table = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def _joint(random, s, m, parents, tables, before, ahead) -> Array:
    """The joint law of all slices up to `ahead`; newer ones, as many as anybody remembers, are summed out."""
    memory = max(lag for own in parents for _, lag in own)
    newest = ahead + memory - 1
    own = all(i == j for j, each in enumerate(parents) for i, _ in each)
    axis = {(j, n): (n + before) * s + j for j in range(s) for n in range(-before, newest + 1)}
    joint, at = np.ones(()), []
    for group in [[j] for j in range(s)] if own else [list(range(s))]:
        nodes = [(j, n) for n in range(ahead, newest + 1) for j in group]
        law = random.dirichlet(np.full(m ** len(nodes), random.choice([0.05, 0.3, 2.0]))) + 1e-5
        places = [axis[node] for node in nodes]
        joint = np.einsum(joint, at, (law / law.sum()).reshape((m,) * len(nodes)), places, [*at, *places])
        at = [*at, *places]
    for n in range(ahead - 1, -before - 1, -1):
        for j in range(s):
            ends = [axis[i, n + lag] for i, lag in parents[j]]
            joint = np.einsum(joint, at, tables[j, n], [*ends, axis[j, n]], [*at, axis[j, n]])
            at = [*at, axis[j, n]]
        keep = [place for place in at if place < (n + memory + before) * s or place < (ahead + 1 + before) * s]
        joint, at = np.einsum(joint, at, keep), keep
    keep = sorted(place for place in at if place < (ahead + 1 + before) * s)
    return np.asarray(np.einsum(joint, at, keep))


def _swing(level: Array, whole: Array, s: int, m: int) -> Array:
    """How far a level moves the log odds of each state of each sequence at any slice, the others there known."""
    out = np.zeros((s, m))
    slices = level.ndim // s
    for n, j in product(range(slices), range(s)):
        place = [n * s + i for i in range(s)]
        odds = []
        for joint in (level, whole):
            law = np.moveaxis(np.einsum(joint, list(range(joint.ndim)), place), j, -1)
            odds.append(np.log(law) - np.log(law @ (1.0 - np.eye(m))))
        out[j] = np.maximum(out[j], np.abs(odds[0] - odds[1]).reshape(-1, m).max(axis=0))
    return out


# ---- windows and the law forwards, by enumeration --------------------------------------------------------------------


def true_windows(process: Process, j: int, distance: int) -> dict[int, float]:
    """By lag, the limit of a sequence's law at a distance from any root, given only what lies between."""
    return _true_odds(process, j, range(-process.before + distance, process.ahead + 1), -distance, distance)


def true_forward(process: Process, j: int, memory: int) -> dict[int, float]:
    """By lag, the limit of a sequence's law given so many older values."""
    return _true_odds(process, j, range(-process.before + memory, process.ahead + 1), 0, memory)


def _true_odds(process: Process, j: int, roots: range, child: int, length: int) -> dict[int, float]:
    """The most by which values from `length` slices before a root up to it move the log odds of one of them."""
    s, found = process.s, dict.fromkeys(range(1, length + 1), 0.0)
    for root in roots:
        nodes = [n for n in range(root - length, root + 1) if n != root + child]
        places = [(n + process.before) * s + j for n in [*nodes, root + child]]
        table = np.einsum(process.joint, list(range(process.joint.ndim)), places)
        for place, n in enumerate(nodes):
            lag = abs(n - root - child)
            found[lag] = max(found[lag], largest_odds(table, place))
    return found
