"""Random small systems for laws: chains of every awkward kind, with queries, ages, adversaries and laws of the past.

Hypothesis draws the structure (sizes, kinds of rows, ages, query, adversary); the numbers come from a seed it draws.
Nothing here computes a leakage; `reference.py` does, without the library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import csdp
from csdp.chain import Model
from csdp.query_table import Query

Array = NDArray[np.float64]

ADVERSARIES = ("informed", "uninformed")
QUERIES = ("mean", "sum", "max", "min", "count", "histogram", "identity", "linear", "custom")
ROW_KINDS = ("smooth", "smooth", "skewed", "deterministic", "deterministic", "zeros", "uniform")
COUPLINGS = ("dense", "dense", "identity", "chain", "follow", "sparse", "blocks", "equal")
SIZES = ((1, 2), (1, 3), (1, 4), (2, 2), (2, 2), (2, 2), (2, 3), (2, 3), (2, 4), (3, 2), (3, 2), (3, 3), (4, 2))
EPSILONS = (1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 40.0)


def law_settings(examples: int) -> settings:
    """The same examples in every run (of the same code: hypothesis also tries constants it finds in the sources).

    `make test-all` tries them all, `make test` the first fifth.
    """
    return settings(
        max_examples=examples if os.environ.get("CSDP_FULL") else (examples + 4) // 5,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class System:
    """A model in plain numbers and one question about it."""

    coupling: Array | None  # None for a joint chain
    transitions: Array | None
    kernel: Array | None  # given for a joint chain only
    s: int
    m: int
    values: Array  # (s, m)
    ages: tuple[int, ...]
    query: str
    weights: tuple[float, ...]
    state: int
    epsilon_c: float
    adversary: str

    @property
    def model(self) -> Model:
        """The library's model."""
        rest: dict[str, Any] = {"values": self.values}
        if self.kernel is not None:
            return csdp.JointChain(self.kernel, states=self.m, sequences=self.s, **rest)
        return csdp.CoupledChain(self.coupling, self.transitions, **rest)

    @property
    def asked(self) -> Query:
        """The library's query."""
        plain = {
            "mean": csdp.Mean(),
            "sum": csdp.Sum(),
            "max": csdp.Max(),
            "min": csdp.Min(),
            "histogram": csdp.Histogram(),
            "identity": csdp.Identity(),
            "count": csdp.Count(self.state),
            "custom": csdp.Custom(custom, name="spread and first"),
        }
        return plain.get(self.query) or csdp.Linear(self.weights)

    def leakage(self, bound: str = "exact", **changed: Any) -> csdp.Leakage:
        """The library's answer."""
        asked = {
            "ages": self.ages,
            "epsilon_c": self.epsilon_c,
            "adversary": self.adversary,
            "bound": bound,
        } | changed
        return csdp.leakage(self.model, self.asked, **asked)


def custom(v: Array) -> list[float]:
    """Two outputs that are neither sums nor extremes of the records; values are eighths, so no rounding."""
    return [float(v.max() - v.min()) + float(v[0]), float(v[0] * v[-1])]


def answers(system: System) -> list[tuple[float, ...]]:
    """f of every snapshot, in plain Python."""
    out: list[tuple[float, ...]] = []
    for z in product(range(system.m), repeat=system.s):
        v = [float(system.values[i, a]) for i, a in enumerate(z)]
        plain: dict[str, tuple[float, ...]] = {
            "mean": (sum(v) / system.s,),
            "sum": (sum(v),),
            "max": (max(v),),
            "min": (min(v),),
            "count": (float(z.count(system.state)),),
            "histogram": tuple(float(z.count(a)) for a in range(system.m)),
            "identity": tuple(v),
            "linear": (sum(w * u for w, u in zip(system.weights, v, strict=True)),),
            "custom": tuple(custom(np.array(v))),
        }
        out.append(plain[system.query])
    return out


def random_row(rng: np.random.Generator, kind: str, m: int) -> Array:
    """One probability row of a kind."""
    if kind == "uniform":
        return np.full(m, 1.0 / m)
    if kind == "deterministic":
        return np.eye(m)[rng.integers(m)]
    if kind == "zeros":
        weights = rng.integers(0, 4, m).astype(float)
        weights[rng.integers(m)] += 1.0
    elif kind == "skewed":
        weights = 10.0 ** -rng.integers(0, 5, m).astype(float)
    else:
        weights = rng.integers(1, 11, m).astype(float)
    return np.asarray(weights / weights.sum())


def random_coupling(rng: np.random.Generator, kind: str, s: int) -> Array:
    """Who follows whom."""
    if kind == "identity" or s == 1:
        return np.eye(s)
    if kind == "equal":
        own = rng.integers(0, 10) / 10
        return np.where(np.eye(s) > 0, own, (1 - own) / (s - 1))
    if kind == "follow":
        return np.eye(s)[rng.integers(0, s, s)]
    weights = rng.integers(1, 11, (s, s)).astype(float)
    if kind == "chain":
        weights *= np.eye(s) + np.eye(s, k=-1)
    elif kind == "sparse":
        weights *= (rng.random((s, s)) < 0.4) | (np.eye(s) > 0)
    elif kind == "blocks":
        half = np.arange(s) < (s + 1) // 2
        weights *= half[:, None] == half[None, :]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def random_transitions(rng: np.random.Generator, kinds: tuple[str, ...], s: int, m: int, *, shared: bool) -> Array:
    """One matrix for all pairs, or one each; every row of a kind drawn from `kinds`."""
    shape = (1, 1) if shared else (s, s)
    out = np.array(
        [
            [[random_row(rng, str(rng.choice(kinds)), m) for _ in range(m)] for _ in range(shape[1])]
            for _ in range(shape[0])
        ]
    )
    return out[0, 0] if shared else out


def _value_table(rng: np.random.Generator, kind: str, s: int, m: int) -> Array:
    if kind == "default":
        return np.broadcast_to(np.arange(m, dtype=float), (s, m)).copy()
    rows = [rng.choice(np.arange(-16, 17), m, replace=False) / 8.0 for _ in range(1 if kind == "shared" else s)]
    return np.broadcast_to(np.array(rows), (s, m)).copy()


@st.composite
def systems(
    draw: st.DrawFn,
    *,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    couplings: tuple[str, ...] = COUPLINGS,
    row_kinds: tuple[str, ...] = ROW_KINDS,
    queries: tuple[str, ...] = QUERIES,
    adversaries: tuple[str, ...] = ADVERSARIES,
    joint: bool | None = None,
    common_age: bool = False,
    ages: tuple[int, int] = (0, 6),
    epsilons: tuple[float, ...] = EPSILONS,
    table: str | None = None,
) -> System:
    """A system whose stationary law is single."""
    s, m = draw(st.sampled_from(sizes))
    is_joint = draw(st.sampled_from((False, False, False, True))) if joint is None else joint
    coupling_kind = draw(st.sampled_from(couplings))
    kinds = tuple(draw(st.sets(st.sampled_from(row_kinds), min_size=1, max_size=2)))
    shared = draw(st.booleans())
    number = st.integers(*ages)
    chosen = (draw(number),) * s if common_age or draw(st.booleans()) else tuple(draw(number) for _ in range(s))
    query = draw(st.sampled_from(queries))
    adversary = draw(st.sampled_from(adversaries))
    epsilon_c = draw(st.sampled_from(epsilons))
    values = table or draw(st.sampled_from(("default", "shared", "own")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coupling = transitions = kernel = None
    if is_joint:
        kernel = np.array([random_row(rng, str(rng.choice(sorted(kinds))), m**s) for _ in range(m**s)])
    else:
        coupling = random_coupling(rng, coupling_kind, s)
        transitions = random_transitions(rng, tuple(sorted(kinds)), s, m, shared=shared)
    system = System(
        coupling=coupling,
        transitions=transitions,
        kernel=kernel,
        s=s,
        m=m,
        values=_value_table(rng, values, s, m),
        ages=chosen,
        query=query,
        weights=tuple((rng.choice([-1, 1], s) * rng.integers(1, 9, s) / 4.0).tolist()),
        state=int(rng.integers(m)),
        epsilon_c=epsilon_c,
        adversary=adversary,
    )
    return with_one_law(system)


def with_one_law(system: System) -> System:
    """The same system, smoothed if it has several stationary laws."""
    from dataclasses import replace

    from laws.reference import Reference

    if Reference(system).has_one_stationary_law:
        return system
    smooth = {
        name: None if rows is None else 0.9 * rows + 0.1 / rows.shape[-1]
        for name, rows in (("transitions", system.transitions), ("kernel", system.kernel))
    }
    return replace(system, **smooth)
