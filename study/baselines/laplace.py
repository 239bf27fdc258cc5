"""Baselines that add Laplace noise of a calibrated scale to the answer of one snapshot, fresh or of one age.

They differ in how the scale follows from their epsilon: each has `nominal(scale)`, the epsilon of its own theory for
noise of that scale; calibration inverts it. The CSDP leakage of such a release is computed exactly. Here are their base
class, plain, group and age-dependent differential privacy, and temporal budgets.

Below them: laws of snapshots, of pairs of records, and of a record and its past.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np

from csdp import check
from csdp.aging import AgedLaw, index_parts, marginal
from csdp.bounds.exact import output_grid
from csdp.bounds.leakage import Setting
from csdp.bounds.result import round_up
from csdp.chain import CoupledChain, Model
from csdp.errors import CsdpError, InputError, TooLargeError
from csdp.estimate import Error, mse
from csdp.estimate.moments import pair_laws
from csdp.numbers import Floats
from csdp.paper import loose_bound
from csdp.plan import Plan
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query, all_snapshots
from study.baselines.protocol import (
    Adversary,
    Quantity,
    check_inputs,
    known_subsets,
)
from study.baselines.temporal import group_sensitivity, temporal_leakage


@dataclass(frozen=True, eq=False)
class LaplaceRelease:
    """A calibrated baseline: `f(snapshot of that age) + Laplace(scale)`; `epsilon` is that of its own guarantee."""

    chain: Model
    query: Query
    age: int
    epsilon: float
    scale: float

    @cached_property
    def plan(self) -> Plan:
        """The same release as a csdp plan, which gives its leakage and its error."""
        return Plan(self.chain, self.query, self.age, self.query.sensitivity(1, self.chain.value_table) / self.scale)

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Exact leakage of the present of one release."""
        try:
            leakage = exact_leakage(adversary, self.chain, self.query, age=self.age, epsilon_c=self.plan.epsilon_c)
        except TooLargeError as error:
            return Quantity(None, f"not computed: {error}")
        return Quantity(leakage, f"exact, one release at age {self.age}, {adversary} adversary")

    def error(self, estimate: Literal["raw", "linear"] = "linear") -> Error:
        """Mean squared error against the present answer: of the release itself, or of the best linear estimate."""
        return mse(self.chain, self.query, ages=self.age, epsilon_c=self.plan.epsilon_c, estimate=estimate)


@dataclass(frozen=True)
class LaplaceBaseline(ABC):
    """Base of these baselines: the age of the data, and calibration by inverting `nominal`."""

    age: int = 0

    name: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str]

    @abstractmethod
    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """Return the epsilon of this baseline's own theory for noise of that scale; it falls as the scale grows."""

    def calibrate(
        self, chain: Model, query: Query | str, *, epsilon: float | None = None, scale: float | None = None
    ) -> LaplaceRelease:
        """Return the least noise with the guarantee at `epsilon`, or noise of `scale` with the guarantee it gives."""
        table = check_inputs(chain, query)
        if scale is None:
            target = check.number("epsilon", epsilon, above=0)
            start = table.sensitivity(1, chain.value_table) / target
            scale = least_scale(lambda b: self.nominal(chain, table, b), target, start)
            return LaplaceRelease(chain, table, self.age, target, scale)
        return LaplaceRelease(chain, table, self.age, self.nominal(chain, table, scale), scale)


def least_scale(nominal: Callable[[float], float], target: float, start: float) -> float:
    """Return the least scale with nominal(scale) <= target; nominal falls as the scale grows."""
    guess = start * nominal(start) / target
    if guess > 0 and math.isfinite(guess) and 0 <= target - nominal(guess) <= 1e-13 * target:
        return guess
    low = high = start
    for _ in range(60):
        if nominal(high) <= target:
            break
        low, high = high, high * 4
    else:
        raise InputError(f"epsilon: {target:g} given; no noise of this baseline reaches it under this chain")
    for _ in range(60):
        if nominal(low) > target:
            break
        low, high = low / 4, low
    else:
        raise InputError(
            f"epsilon: {target:g} given; under this chain and age this baseline allows it without any noise. "
            "Give a smaller epsilon, or a smaller age"
        )
    for _ in range(200):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if nominal(middle) <= target:
            high = middle
        else:
            low = middle
    return high


def exact_leakage(adversary: Adversary, chain: Model, query: Query, *, age: int, epsilon_c: float) -> float:
    """Return the exact leakage of one release; the laws of what is read are computed once for all noise levels."""
    table = tabulate(query, chain)
    if adversary == "any":
        return _leakage_to_any_subset(chain, table, age, epsilon_c)
    return _cached_setting(chain, table, age, adversary).at(epsilon_c).answer("exact").epsilon


@lru_cache(maxsize=32)
def _cached_setting(chain: Model, query: QueryTable, age: int, adversary: Literal["informed", "uninformed"]) -> Setting:
    setting = Setting.make(chain, query, ages=age, epsilon_c=1.0, adversary=adversary)
    setting.answer("exact")
    return setting


@lru_cache(maxsize=32)
def _cached_law(chain: Model, age: int) -> AgedLaw:
    return AgedLaw(chain, index_parts(chain.sequences, chain.states), ages=[age] * chain.sequences)


def _leakage_to_any_subset(chain: Model, query: QueryTable, age: int, epsilon_c: float) -> float:
    """The largest log ratio over outputs and over all sets of records that the adversary may know."""
    s, m = chain.sequences, chain.states
    mass = _cached_law(chain, age).mass
    answers = query.evaluate(all_snapshots(s, m), chain.value_table).reshape(m**s, -1)
    far = np.abs(output_grid(answers)[:, None, :] - answers[None, :, :]).sum(axis=2)
    likelihood = np.exp(-epsilon_c / query.sensitivity(1, chain.value_table) * far)
    worst = 0.0
    for known in known_subsets("any", s):
        law = marginal(mass.law, known, s, m)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.log(marginal(mass.measure, known, s, m) / law[:, None] @ likelihood.T)
        density[law <= 0] = np.nan
        tensor = density.reshape((m,) * len(known) + (-1,))
        for axis in range(len(known)):
            gaps = np.fmax.reduce(tensor, axis=axis) - np.fmin.reduce(tensor, axis=axis)
            worst = max(worst, float(np.nan_to_num(gaps, nan=0.0).max()))
    return round_up(worst)


@dataclass(frozen=True)
class LaplaceDP(LaplaceBaseline):
    """Plain differential privacy of one record: scale Delta_f / epsilon, correlations ignored."""

    name: ClassVar[str] = "laplace"
    title: ClassVar[str] = "Laplace (Dwork et al. 2006)"
    guarantee: ClassVar[str] = "epsilon-DP of one record; no inferential guarantee"

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """Delta_f / scale."""
        return query.sensitivity(1, chain.value_table) / scale


@dataclass(frozen=True)
class GroupDP(LaplaceBaseline):
    """Group differential privacy: all records of a component count as one."""

    name: ClassVar[str] = "group"
    title: ClassVar[str] = "Laplace for groups"
    guarantee: ClassVar[str] = "epsilon-DP of all records of one tick that are tied together, however they are tied"

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """s_k / scale, k the largest component."""
        return group_sensitivity(chain, query) / scale


@dataclass(frozen=True)
class AgeDP(LaplaceBaseline):
    """Age-dependent DP (Zhang et al. 2023): epsilon-DP noise on aged data, users taken as independent."""

    age: int = 1

    name: ClassVar[str] = "adp"
    title: ClassVar[str] = "Age-dependent DP (Zhang et al. 2023)"
    guarantee: ClassVar[str] = (
        "a user's present is protected up to epsilon IF users are independent: ln(1 + Delta(t)(e^eps_c - 1))"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """ln(1 + Delta (e^(Delta_f / scale) - 1)), Delta the largest total variation of a user's own aged state."""
        return loose_bound(own_variation(chain, self.age), query.sensitivity(1, chain.value_table) / scale)


@dataclass(frozen=True)
class TemporalBudgets(LaplaceBaseline):
    """Equal budgets that keep the temporal privacy leakage of every tick below a bound (Cao et al. 2017)."""

    length: int = 100

    name: ClassVar[str] = "temporal-budgets"
    title: ClassVar[str] = "Temporal budgets (Cao et al. 2017)"
    guarantee: ClassVar[str] = (
        "all releases of the stream together tell at most epsilon about any tick's snapshot, under the model"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The largest TPL over `length` ticks of equal noise."""
        cost = group_sensitivity(chain, query) / scale
        return float(temporal_leakage(chain, np.full(self.length, cost)).tpl.max())


# ---- laws of records -------------------------------------------------------------------------------------------------


#: Joint states up to which a law of whole snapshots is computed.
LAW_STATES = 4096
#: Sequences times states up to which all pairs of records are computed.
PAIR_SIZE = 512


def present_law(chain: Model) -> Floats:
    """Return the stationary law of the snapshot, (m**s,); raise TooLargeError for large chains."""
    if chain.size > LAW_STATES:
        raise TooLargeError(
            f"{chain.states}**{chain.sequences} joint states; at most {LAW_STATES:,} for this baseline",
            needed=float(min(chain.size, 10**300)),
            limit=LAW_STATES,
        )
    return chain.stationary()


@lru_cache(maxsize=16)
def record_pairs(chain: Model) -> Floats:
    """Pr(x_i = a, x_j = b) of the present, (s, m, s, m)."""
    s, m = chain.sequences, chain.states
    if s * m > PAIR_SIZE:
        raise TooLargeError(
            f"{s} sequences of {m} states; pairs of records are computed for sequences times states up to {PAIR_SIZE}",
            needed=float(s * m),
            limit=PAIR_SIZE,
        )
    if isinstance(chain, CoupledChain):
        with suppress(CsdpError):  # pair laws may not converge if the chain hardly mixes; then use the joint law
            return pair_laws(chain).reshape(s, m, s, m)
    joint = present_law(chain).reshape((m,) * s)
    out = np.zeros((s, m, s, m))
    for i, j in itertools.product(range(s), repeat=2):
        away = tuple(k for k in range(s) if k not in {i, j})
        both = joint.sum(axis=away)
        out[i, :, j, :] = np.diag(both) if i == j else both if i < j else both.T
    return out


def own_pairs(chain: Model, age: int) -> Floats:
    """Pr(present state is a, state `age` steps ago was c) of every sequence, (s, m, m)."""
    s, m = chain.sequences, chain.states
    if isinstance(chain, CoupledChain) and s * m <= LAW_STATES:
        with suppress(CsdpError):  # as above
            pairs, q = pair_laws(chain), chain.q_matrix()
            for _ in range(age):
                pairs = np.asarray(q @ pairs)
            if chain.direction == "backward":  # the chain led from the present to the old state
                pairs = pairs.T
            cube = pairs.reshape(s, m, s, m)
            return np.asarray(cube[np.arange(s), :, np.arange(s), :])
    law = present_law(chain)
    power = np.linalg.matrix_power(chain.kernel(), age)
    digits = np.array(np.unravel_index(np.arange(chain.size), (m,) * s))
    out = np.zeros((s, m, m))
    joint = law[:, None] * power  # [old, new]
    for i, c, a in itertools.product(range(s), range(m), range(m)):
        out[i, a, c] = joint[np.ix_(digits[i] == c, digits[i] == a)].sum()
    return out


@lru_cache(maxsize=64)
def own_variation(chain: Model, age: int) -> float:
    """The largest total variation, over sequences, of its own state `age` steps ago given two present states."""
    worst = 0.0
    for joint in own_pairs(chain, age):
        law = joint.sum(axis=1)
        rows = joint[law > 0] / law[law > 0, None]
        for row in rows:
            worst = max(worst, float(np.abs(rows - row).sum(axis=1).max()) / 2)
    return min(1.0, worst)


def safe_log(probabilities: Floats) -> Floats:
    """ln p, with ln 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))
