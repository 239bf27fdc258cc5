"""Baselines that add Laplace noise of a calibrated scale to the answer of one snapshot, fresh or of one age.

They differ in how the scale follows from their epsilon: each gives `nominal(scale)`, the epsilon that its own theory
states for noise of that scale; calibration inverts it. What such a release leaks about the present is then exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.accountant import Accountant
from csdp.aging import Adversary
from csdp.baselines.protocol import (
    Errors,
    Floats,
    Quantity,
    Trace,
    checked,
    one_target,
    positive,
    recorded,
    snapshots,
    whole,
)
from csdp.baselines.temporal import group_sensitivity, temporal_leakage
from csdp.bounds.leakage import Setting
from csdp.chain import Model
from csdp.computation import Computation, verify_query
from csdp.errors import CsdpError, InputError, TooLargeError
from csdp.estimate import mse
from csdp.noise import Randomness, two_sided_geometric
from csdp.plan import Plan
from csdp.queries import Query


@dataclass(frozen=True, eq=False)
class FreshRelease:
    """A calibrated baseline: `f(snapshot of that age) + Laplace(scale)`, one scale for every tick, or one each."""

    baseline: str
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
        plain = {s: mse(self.chain, self.query, ages=self.age, epsilon_c=p.epsilon_c) for s, p in self._plans.items()}
        raw = linear = 0.0
        for scale, count in Counter(self.scales).items():
            level, share = self._plans[scale].epsilon_c, count / len(self.scales)
            raw += share * plain[scale].safe
            linear += share * mse(self.chain, self.query, ages=self.age, epsilon_c=level, estimate="linear").safe
        any_scale = plain[self.scales[0]]
        return Errors(raw, linear, any_scale.no_data, any_scale.how)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {**recorded(self, {"age": self.age}), "details": dict(self.details)}


@dataclass(frozen=True)
class Fresh(ABC):
    """Shared by these baselines: the age of what they read, and calibration by inverting `nominal`, which each has."""

    age: int = 0

    name: ClassVar[str]
    label: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str]
    inferential: ClassVar[bool]

    @abstractmethod
    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The epsilon that this baseline's own theory states for noise of that scale; it falls as the scale grows."""

    def describe(self, chain: Model, query: Query, scale: float) -> dict[str, Any]:
        """What else the calibration found, as plain data."""
        return {}

    def scales(self, chain: Model, query: Query, epsilon: float) -> tuple[float, ...]:
        """The least noise with this baseline's guarantee at `epsilon`: one scale, or one for every tick."""
        start = query.sensitivity(1, chain.value_table) / epsilon
        return (least_scale(lambda b: self.nominal(chain, query, b), epsilon, start),)

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> FreshRelease:
        """The least noise with this baseline's guarantee at `epsilon`, or the guarantee that noise of `scale` gives."""
        one_target(epsilon, scale)
        whole("age", self.age, 0)
        query = checked(chain, query)
        if scale is None:
            stated = positive("epsilon", epsilon)
            scales = self.scales(chain, query, stated)
        else:
            scales = (positive("scale", scale),)
            stated = self.nominal(chain, query, scales[0])
        details = self.describe(chain, query, min(scales))
        return FreshRelease(self.name, self.guarantee, chain, query, self.age, stated, scales, details)


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


def settled(chain: Model, query: Query, age: int, adversary: Adversary) -> Setting:
    """The question of leakage with its aged laws made once; `.at(epsilon_c)` asks it at other noise."""
    return _settled(chain, verify_query(query, chain), age, adversary)


@lru_cache(maxsize=32)
def _settled(chain: Model, query: Computation, age: int, adversary: Adversary) -> Setting:
    setting = Setting.make(chain, query, ages=age, epsilon_c=1.0, adversary=adversary)
    setting.answer("exact")
    return setting
