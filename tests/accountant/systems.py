"""Small random systems for the laws of the accountant: plain numbers, the library's plan, and the oracle's outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import csdp
from csdp.accountant import Accountant, State
from csdp.accountant.account import newest
from csdp.accountant.build import build_components
from csdp.plan import Plan
from csdp.query_table import Query
from oracle import joint_kernel, query_values, recurrent_states, sensitivity

from oracle import Told, history_leakage  # isort: skip

Array = NDArray[np.float64]
QUERIES = ("mean", "max", "count", "identity", "sum", "min", "histogram")


def follow(plan: Plan, rule: str = "auto") -> Accountant:
    """The accountant of a plan with a certain rule for its states wherever that fits."""
    return Accountant(plan) if rule == "auto" else Accountant(plan, build_components(plan, rule))  # type: ignore[arg-type]


def by_states(accountant: Accountant, state: State, passed: int = 0) -> float:
    """The leakage of the present by the states alone, without the exact one of a first release."""
    return max(at.component.leakage(at.state, at.depth)[0] for at in newest(accountant.components, state, passed))


@dataclass(frozen=True)
class Asked:
    """A query in plain numbers."""

    name: str
    s: int
    m: int
    state: int = 0

    @property
    def query(self) -> Query:
        return csdp.query.parse_query(f"count:{self.state}" if self.name == "count" else self.name)

    @property
    def fvals(self) -> tuple[tuple[float, ...], ...]:
        return tuple(query_values(self.name, self.s, self.m, list(range(self.m)), state=self.state))

    def told(self, tick: int, ages: tuple[int, ...], epsilon_c: float) -> Told:
        return Told(tick, ages, self.fvals, epsilon_c / sensitivity(self.fvals, self.s, self.m, 1))


@dataclass(frozen=True)
class System:
    coupling: Array
    transitions: Array
    s: int
    m: int
    ages: tuple[int, ...]
    asked: Asked
    epsilon_c: float

    @property
    def kernel(self) -> Array:
        return joint_kernel(self.coupling, self.transitions)

    @property
    def chain(self) -> csdp.CoupledChain:
        return csdp.CoupledChain(self.coupling, self.transitions)

    def plan(self, **changed: object) -> Plan:
        ages, epsilon_c = changed.pop("ages", self.ages), changed.pop("epsilon_c", self.epsilon_c)
        asked = changed.pop("asked", self.asked)
        return Plan(self.chain, asked.query, ages, epsilon_c, **changed)  # type: ignore

    def told(self, tick: int, ages: tuple[int, ...] | None = None) -> Told:
        return self.asked.told(tick, ages or self.ages, self.epsilon_c)

    def truth(self, outputs: list[Told], moment: int) -> float:
        return history_leakage(self.kernel, self.s, self.m, outputs, moment)


def row(rng: np.random.Generator, kind: str, m: int) -> Array:
    if kind == "deterministic":
        return np.eye(m)[rng.integers(m)]
    weights = {
        "smooth": rng.integers(1, 11, m).astype(float),
        "skewed": 10.0 ** -rng.integers(0, 4, m).astype(float),
        "zeros": rng.integers(0, 3, m) + np.eye(m)[rng.integers(m)],
    }[kind]
    return np.asarray(weights / weights.sum())


def transitions_of(rng: np.random.Generator, kind: str, m: int) -> Array:
    if kind == "periodic":
        return np.roll(np.eye(m), 1, axis=1)
    if kind == "reducible":
        return np.vstack([np.eye(m)[0], *(row(rng, "smooth", m) for _ in range(m - 1))])
    return np.array([row(rng, kind, m) for _ in range(m)])


KINDS = ("smooth", "skewed", "zeros", "deterministic", "periodic", "reducible")


@st.composite
def systems(
    draw: st.DrawFn,
    *,
    sizes: tuple[tuple[int, int], ...] = ((1, 2), (1, 3), (2, 2), (2, 2), (2, 3)),
    queries: tuple[str, ...] = QUERIES,
    kinds: tuple[str, ...] = KINDS,
    oldest: int = 3,
    common: bool | None = None,
) -> System:
    """A chain with one stationary law, a query, ages and a noise level."""
    s, m = draw(st.sampled_from(sizes))
    kind, other = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    coupled = draw(st.sampled_from(("dense", "equal", "follow", "chain")))
    if common is None:
        common = draw(st.booleans())
    top = min(oldest, 2) if m**s > 8 else oldest
    age = st.integers(0, top)
    ages = (draw(age),) * s if common else tuple(draw(age) for _ in range(s))
    asked = Asked(draw(st.sampled_from(queries)), s, m, draw(st.integers(0, m - 1)))
    epsilon_c = draw(st.sampled_from((0.1, 0.5, 1.0, 2.0, 4.0)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first = transitions_of(rng, kind, m)
    transitions = (
        first
        if draw(st.booleans())
        else np.array([[first if j == k else transitions_of(rng, other, m) for k in range(s)] for j in range(s)])
    )
    if s == 1:
        coupling, transitions = np.eye(1), first
    elif coupled == "dense":
        coupling = rng.integers(1, 10, (s, s)) / 1.0
        coupling /= coupling.sum(axis=1, keepdims=True)
    elif coupled == "equal":
        own = draw(st.sampled_from((0.5, 0.75, 0.9)))
        coupling = np.where(np.eye(s) > 0, own, (1 - own) / (s - 1))
    elif coupled == "follow":
        coupling = np.eye(s)[[0] * s] * 0.5 + np.eye(s) * 0.5
    else:
        coupling = np.eye(s)[[0, *range(s - 1)]]
    if not one_law(joint_kernel(coupling, transitions)):
        transitions = 0.9 * transitions + 0.1 / m
    return System(coupling, transitions, s, m, ages, asked, epsilon_c)


def one_law(kernel: Array) -> bool:
    try:
        recurrent_states(kernel)
    except ValueError:
        return False
    return True
