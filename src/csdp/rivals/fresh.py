"""Rivals that add Laplace noise of a calibrated scale to the answer of one snapshot, fresh or of one age.

They differ in how the scale follows from their epsilon: each gives `nominal(scale)`, the epsilon that its own theory
states for noise of that scale; calibration inverts it. What such a release leaks about the present is then exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.accountant import Accountant
from csdp.aging import Adversary
from csdp.chain import CoupledChain, Model
from csdp.errors import CsdpError, InputError, TooLargeError
from csdp.leakage import Setting
from csdp.leakage.bounds import loose
from csdp.noise import Randomness, two_sided_geometric
from csdp.plan import Plan
from csdp.queries import Query
from csdp.rivals.protocol import Errors, Floats, Quantity, Trace, checked, one_target, positive, snapshots, whole
from csdp.utility import Error, mse
from csdp.utility.second_order import pair_laws

#: Joint states up to which a law of whole snapshots is made.
LAW_STATES = 4096


@dataclass(frozen=True, eq=False)
class FreshRelease:
    """A calibrated rival: `f(snapshot of that age) + Laplace(scale)`, one scale for every tick, or one each."""

    rival: str
    guarantee: str
    chain: Model
    query: Query
    age: int
    epsilon: float
    scales: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _plans(self) -> dict[float, Plan]:
        """The same release as a plan of ours, for every scale: where its noise and its leakage come from."""
        width = self.query.sensitivity(1, self.chain.value_table)
        return {scale: Plan(self.chain, self.query, self.age, width / scale) for scale in set(self.scales)}

    @property
    def epsilon_c(self) -> float:
        """The noise level of ours that adds the same noise, where it adds least."""
        return self._plans[min(self.scales)].epsilon_c

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on snapshots (T, s): one output for every tick with a snapshot of that age before it."""
        given = snapshots(states, self.chain)
        ticks = given.shape[0] - self.age
        if ticks < 1:
            raise InputError(f"states: {given.shape[0]} snapshots given; more than {self.age}, the age, are needed")
        if len(self.scales) not in {1, ticks}:
            raise InputError(f"states: {ticks} outputs asked for; this mechanism has budgets for {len(self.scales)}")
        scales = np.broadcast_to(np.array(self.scales), ticks)
        first = self._plans[self.scales[0]]
        exact = fran.lattice_answer(first, given[:ticks]) / first.divisor
        noise = np.empty_like(exact)
        for scale, plan in self._plans.items():
            rows = np.flatnonzero(scales == scale)
            plan.check_noise()
            steps = two_sided_geometric(plan.scale, (rows.size, exact.shape[1]), randomness)
            noise[rows] = steps * (plan.step / plan.divisor)
        wide = np.broadcast_to(scales[:, None], exact.shape)
        return Trace(exact + noise, exact + noise, exact, wide)

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (ticks, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Exact leakage of the present of one release; of several scales, of the one with the least noise."""
        try:
            found = settled(self.chain, self.query, self.age, adversary).at(self.epsilon_c).answer("exact")
        except TooLargeError as error:
            return Quantity(None, f"not computed: {error}")
        return Quantity(found.epsilon, f"exact, one release at age {self.age}, {adversary} adversary")

    def lifetime(self, releases: int) -> Quantity:
        """Temporal privacy leakage of a record over this many releases, an upper bound."""
        from csdp.rivals.temporal import temporal_leakage

        releases = whole("releases", releases)
        if len(self.scales) > 1:
            costs = group_sensitivity(self.chain, self.query) / np.array(self.scales)
            return Quantity(float(temporal_leakage(self.chain, costs).tpl.max()), "temporal privacy leakage")
        try:
            value = Accountant(self._plans[self.scales[0]]).lifetime(releases)
        except CsdpError as error:
            return Quantity(None, f"not computed: {error}")
        return Quantity(value, f"temporal privacy leakage over {releases} releases")

    def errors(self) -> Errors:
        """Mean squared error, the mean over ticks."""
        raw = linear = 0.0
        found: Error | None = None
        for scale, count in Counter(self.scales).items():
            level, share = self._plans[scale].epsilon_c, count / len(self.scales)
            found = mse(self.chain, self.query, ages=self.age, epsilon_c=level)
            raw += share * found.safe
            linear += share * mse(self.chain, self.query, ages=self.age, epsilon_c=level, estimate="linear").safe
        assert found is not None
        return Errors(raw, linear, found.no_data, found.how)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {
            "rival": self.rival,
            "guarantee": self.guarantee,
            "epsilon": self.epsilon,
            "scales": list(self.scales),
            "age": self.age,
            "query": self.query.name,
            "chain_digest": self.chain.digest,
            "details": dict(self.details),
        }


@dataclass(frozen=True)
class Fresh:
    """Shared by these rivals: the age of what they read, and calibration by inverting `nominal`."""

    age: int = 0

    name: ClassVar[str]
    label: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str]
    inferential: ClassVar[bool]

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The epsilon that this rival's own theory states for noise of that scale."""
        raise NotImplementedError

    def describe(self, chain: Model, query: Query, scale: float) -> dict[str, Any]:
        """What else the calibration found, as plain data."""
        return {}

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> FreshRelease:
        """The least noise with this rival's guarantee at `epsilon`, or the guarantee that noise of `scale` gives."""
        one_target(epsilon, scale)
        whole("age", self.age, 0)
        query = checked(chain, query)
        if scale is not None:
            return self.at_scale(chain, query, positive("scale", scale))
        target = positive("epsilon", epsilon)
        start = query.sensitivity(1, chain.value_table) / target
        found = least_scale(lambda b: self.nominal(chain, query, b), target, start)
        return self.made(chain, query, target, (found,))

    def at_scale(self, chain: Model, query: Query, scale: float) -> FreshRelease:
        """The guarantee that noise of one scale gives."""
        return self.made(chain, query, self.nominal(chain, query, scale), (scale,))

    def made(self, chain: Model, query: Query, epsilon: float, scales: tuple[float, ...]) -> FreshRelease:
        """The calibrated record."""
        details = self.describe(chain, query, min(scales))
        return FreshRelease(self.name, self.guarantee, chain, query, self.age, epsilon, scales, details)


def least_scale(nominal: Callable[[float], float], target: float, start: float) -> float:
    """The least scale with nominal(scale) <= target; nominal falls as the scale grows."""
    guess = start * nominal(start) / target
    if guess > 0 and math.isfinite(guess) and 0 <= target - nominal(guess) <= 1e-13 * target:
        return guess
    low = high = start
    for _ in range(60):
        if nominal(high) <= target:
            break
        low, high = high, high * 4
    else:
        raise InputError(f"epsilon: {target:g} given; no noise of this rival reaches it under this chain")
    for _ in range(60):
        if nominal(low) > target:
            break
        low, high = low / 4, low
    else:
        raise InputError(
            f"epsilon: {target:g} given; under this chain and age this rival allows it without any noise. "
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


def settled(chain: Model, query: Query, age: int, adversary: Adversary) -> Setting:
    """The question of leakage with its aged laws made once; `.at(epsilon_c)` asks it at other noise."""
    return _settled(chain, query, age, adversary)  # type: ignore[arg-type] # `checked` refuses what does not hash


@lru_cache(maxsize=32)
def _settled(chain: Model, query: Query, age: int, adversary: Adversary) -> Setting:
    setting = Setting.make(chain, query, ages=age, epsilon_c=1.0, adversary=adversary)
    setting.answer("exact")
    return setting


def group_sensitivity(chain: Model, query: Query) -> float:
    """The largest change of the answer when all records of one component change."""
    table = chain.value_table
    return max(query.sensitivity(len(part), table, members=part) for part in chain.components())


@dataclass(frozen=True)
class LaplaceDP(Fresh):
    """Plain differential privacy: scale Delta_f / epsilon, one record at a time, correlations ignored."""

    name: ClassVar[str] = "laplace"
    label: ClassVar[str] = "DP of one record"
    title: ClassVar[str] = "Laplace (Dwork et al. 2006)"
    guarantee: ClassVar[str] = "epsilon-DP of one record; nothing is said about what correlations give away"
    inferential: ClassVar[bool] = False

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """Delta_f / scale."""
        return query.sensitivity(1, chain.value_table) / scale


@dataclass(frozen=True)
class GroupDP(Fresh):
    """Group differential privacy: all records that the model ties together count as one."""

    name: ClassVar[str] = "group"
    label: ClassVar[str] = "DP of all tied records"
    title: ClassVar[str] = "Laplace for groups"
    guarantee: ClassVar[str] = "epsilon-DP of all records of one tick that are tied together, however they are tied"
    inferential: ClassVar[bool] = True

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """s_k / scale, k the largest component."""
        return group_sensitivity(chain, query) / scale


@dataclass(frozen=True)
class AgeDP(Fresh):
    """Age-dependent DP (Zhang et al. 2023): epsilon-DP noise on aged data, users taken as independent."""

    age: int = 1

    name: ClassVar[str] = "adp"
    label: ClassVar[str] = "age-dependent DP, users independent"
    title: ClassVar[str] = "Age-dependent DP (Zhang et al. 2023)"
    guarantee: ClassVar[str] = (
        "a user's present is protected up to epsilon IF users are independent: ln(1 + Delta(t)(e^eps_c - 1))"
    )
    inferential: ClassVar[bool] = False

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """ln(1 + Delta (e^(Delta_f / scale) - 1)), Delta the largest total variation of a user's own aged state."""
        return loose(own_variation(chain, self.age), query.sensitivity(1, chain.value_table) / scale)

    def describe(self, chain: Model, query: Query, scale: float) -> dict[str, Any]:
        """Delta(t)."""
        return {"total_variation": own_variation(chain, self.age)}


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


def own_pairs(chain: Model, age: int) -> Floats:
    """Pr(present state is a, state `age` steps ago was c) of every sequence, (s, m, m)."""
    s, m = chain.sequences, chain.states
    if isinstance(chain, CoupledChain) and s * m <= LAW_STATES:
        with suppress(CsdpError):  # pair laws of a chain that hardly mixes may not settle; the joint law is solved for
            pairs, q = pair_laws(chain), chain.q_matrix()
            for _ in range(age):
                pairs = np.asarray(q @ pairs)
            cube = pairs.reshape(s, m, s, m)
            return np.asarray(cube[np.arange(s), :, np.arange(s), :])
    law = present_law(chain)
    power = np.linalg.matrix_power(chain.kernel(), age)
    shape = (m,) * s
    digits = np.array(np.unravel_index(np.arange(chain.size), shape))
    out = np.zeros((s, m, m))
    joint = law[:, None] * power  # [old, new]
    for i in range(s):
        for c in range(m):
            for a in range(m):
                out[i, a, c] = joint[np.ix_(digits[i] == c, digits[i] == a)].sum()
    return out


def present_law(chain: Model) -> Floats:
    """The stationary law of the snapshot, (m**s,), for small chains."""
    if chain.size > LAW_STATES:
        raise TooLargeError(
            f"{chain.states}**{chain.sequences} joint states; at most {LAW_STATES:,} for this rival",
            needed=float(min(chain.size, 10**300)),
            limit=LAW_STATES,
        )
    return chain.stationary()
