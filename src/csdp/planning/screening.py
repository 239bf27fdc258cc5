"""Which ages are worth the sharp accountant: what its scalar rule allows at every common age, from one pass.

The state of one number does not depend on a common age, and where it comes to rest can be solved for backwards:
`b = cost + L(b)` gives the cost that a state b allows. So the level that keeps a budget, at sixty ages, costs less than
one metric state. The scalar rule is sound, only larger than the metric one: what it finds is a plan already, and the
finalists among the ages are certified again by the sharper rule.
"""

from __future__ import annotations

import math

import numpy as np

from csdp.accountant import Accountant
from csdp.accountant.kernels import fixed_point_above
from csdp.accountant.protocol import AccountedComponent
from csdp.arrays import Floats
from csdp.plan import Plan

#: Log ratios: one beyond which noise no longer matters, one that counts as nothing.
_HIGHEST, _LOWEST = 600.0, 1e-9
#: Relative accuracy of a screened level, and the first factor by which a state is raised or lowered to find it.
_ACCURACY, _FACTOR = 1e-3, 1.5
#: Components that are asked at every age, of each of the two ages at which all are, and ticks between those ages.
_ASKED, _LATER = 2, 4


class ScalarScreen:
    """Levels and leakages of releases at every tick, for ever, by the scalar rule, at any common age.

    Args:
        accountant: of a plan with one common age, with state="scalar".
    """

    def __init__(self, accountant: Accountant) -> None:
        self._components = accountant.components
        self._unit = accountant.plan.epsilon_c
        self._limits: dict[float, list[float]] = {}
        self._near: dict[int, float] = {}  # the last state that kept a budget, by component: a start for the next age
        self._binding: list[int] = []  # the components that allowed least where all were asked

    @classmethod
    def make(cls, plan: Plan) -> ScalarScreen | None:
        """A screen for all common ages, where the accountant's own state is a metric one; None where it is not."""
        kinds = {component.kind for component in Accountant(plan).components}
        if "metric" not in kinds or not kinds <= {"metric", "scalar"}:
            return None
        scalar = Accountant(plan, state="scalar")
        return cls(scalar) if all(component.kind == "scalar" for component in scalar.components) else None

    def level(self, age: int, budget: float, *, limit: float) -> float:
        """About the largest level that keeps a budget at an age; 0 where none does.

        Of many components, such as the models of a family have, all are asked at the first age and some ages later, and
        then those that allowed least.
        """
        asked = self._binding or list(range(len(self._components)))
        levels = {n: self._component_level(n, age, budget) for n in asked}
        if not self._binding:
            later = {n: self._component_level(n, age + _LATER, budget) for n in asked} if len(asked) > _ASKED else {}
            few = {n for allowed in (levels, later) for n in sorted(allowed, key=allowed.__getitem__)[:_ASKED]}
            self._binding = sorted(few)
        return min(limit, *levels.values())

    def _component_level(self, number: int, age: int, budget: float) -> float:
        component = self._components[number]

        def fits(b: float) -> bool:
            return component.leakage(_uniform(component, b), age)[0] <= budget

        if fits(_HIGHEST):
            return math.inf
        low = high = self._near.get(number, budget)
        factor = _FACTOR
        while fits(high):
            low, high, factor = high, high * factor, factor**2
        factor = _FACTOR
        while low >= high or not fits(low):
            low, high, factor = low / factor, low, factor**2
            if low < _LOWEST:
                return 0.0
        while high > low * (1 + _ACCURACY):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fits(middle) else (low, middle)
        self._near[number] = low
        cost = low - float(component.advance(_uniform(component, low), 1).max())
        return max(cost, 0.0) / component.alpha * self._unit * (1 - 1e-4)

    def leakage(self, age: int, level: float) -> float:
        """The leakage at an age and a level."""
        if level not in self._limits:
            self._limits[level] = [self._rest(component, level) for component in self._components]
        return max(
            component.leakage(_uniform(component, b), age)[0] if b < math.inf else component.cap(age)[0]
            for component, b in zip(self._components, self._limits[level], strict=True)
        )

    def _rest(self, component: AccountedComponent, level: float) -> float:
        cost = component.alpha * level / self._unit
        return fixed_point_above(
            lambda b: cost + float(component.advance(_uniform(component, b), 1).max()), cost, ticks=5000
        )


def _uniform(component: AccountedComponent, value: float) -> Floats:
    """A scalar state of one value in every block."""
    return np.full(component.initial_state().shape, value)
