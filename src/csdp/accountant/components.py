"""The components of a model under some plans, each with its cost, or cut into the groups that a query names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.accountant.carry import Before
from csdp.accountant.component import METRIC_STATES, SCALAR_STATES, Cost, Kind, Unit
from csdp.accountant.segmented import SegmentUnit
from csdp.accountant.vector import InfluenceUnit, SliceUnit
from csdp.bounds.component import Part
from csdp.bounds.influence import costs_by_age
from csdp.bounds.leakage import Setting
from csdp.chain import CoupledChain, Model, is_backward, is_forward
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.segments import cuts

Floats = npt.NDArray[np.float64]


class AnyUnit(Protocol):
    """What the accountant asks of a component, whole or cut."""

    model: Model
    ages: tuple[int, ...]
    alpha: float
    kind: Kind

    def nothing(self) -> Floats:
        """The state before any release."""

    @property
    def component(self) -> object:
        """The component that the unit is, or that it was cut from."""

    def between(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots that differ in this unit only."""

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan, whose units and states are given."""

    def add(self, state: Floats, age: int, *, stale: bool, behind: bool = False, share: float = 1.0) -> Floats:
        """Add what a release reads at one of its ages."""

    def forward_in_time(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state."""

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage of the present from now on if nothing more is published."""

    def fading(self, state: Floats, steps: int) -> float:
        """What the largest entry of a state tells; never grows with `steps`."""

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases can pass."""

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases tell of one record."""


def units_of(model: Model, plans: Sequence[Plan], kind: str) -> list[AnyUnit]:
    """The distinct components with their costs; components that are alike are counted once."""
    if kind == "segmented" and not _grouped(plans[0], model):
        raise InputError("state='segmented' needs a query per group (csdp.segment) of a CoupledChain")
    settings = [
        Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary=plan.adversary)
        for plan in plans
    ]
    labels = np.unique(np.column_stack([s.labels for s in settings]), axis=0, return_inverse=True)[1].ravel()
    units: list[AnyUnit] = []
    for members, _ in model.distinct_components(labels):
        parts = [Part(setting, members) for setting in settings]
        ages = [plan.ages[i] for plan in plans for i in members]
        costs = [_cost(part) for part in parts]
        cut = kind == "segmented" or (kind == "auto" and parts[0].model.size > SCALAR_STATES)
        vector = _vector_unit(parts, plans, members, kind)
        if vector is not None and not (cut and _grouped(plans[0], model)):
            units.append(vector)
            continue
        whole_kind = "scalar" if kind == "segmented" else kind
        whole = Unit(parts[0].model, ages=ages, costs=costs, adversary=plans[0].adversary, kind=whole_kind)
        if cut and len(plans) == 1 and _grouped(plans[0], model):
            units.extend(_groups(whole, parts[0], plans[0], members))
        else:
            units.append(whole)
    return units


def _vector_unit(
    parts: Sequence[Part], plans: Sequence[Plan], members: Sequence[int], kind: str
) -> InfluenceUnit | SliceUnit | None:
    """A unit that follows every sequence by itself, where that is asked for or a state for all pairs does not fit."""
    model = parts[0].model
    fits = model.initial is None and plans[0].adversary == "informed"
    backward = is_backward(model) and model.size > METRIC_STATES
    forward = is_forward(model) and model.size > SCALAR_STATES
    if kind == "vector" and not (fits and (is_backward(model) or is_forward(model))):
        raise InputError("state='vector' needs a CoupledChain without an initial law, and the informed adversary")
    if not fits or not (kind == "vector" or (kind == "auto" and (backward or forward))):
        return None
    costs: dict[int, Floats] = {}
    for part, plan in zip(parts, plans, strict=True):
        ages = [plan.ages[i] for i in members]
        for age, told in costs_by_age(part.setting.query, members, ages=ages, epsilon_c=plan.epsilon_c).items():
            costs[age] = costs[age] + told if age in costs else told
    unit = InfluenceUnit if is_backward(model) else SliceUnit
    return unit(model, members, costs, alpha=sum(part.alpha for part in parts))


def _grouped(plan: Plan, model: Model) -> bool:
    return plan.query.groups is not None and is_forward(model) and model.initial is None


def _groups(whole: Unit, part: Part, plan: Plan, members: Sequence[int]) -> list[SegmentUnit]:
    """The groups of one component; a group that is too large for a state is bounded as the component is."""
    assert plan.query.groups is not None
    assert isinstance(part.model, CoupledChain)
    place = {member: i for i, member in enumerate(members)}
    groups = tuple(
        tuple(place[i] for i in group if i in place) for group in plan.query.groups if any(i in place for i in group)
    )
    units = []
    table = plan.model.value_table
    for cut in cuts(part.model, groups):
        inside = [members[i] for i in cut.members]
        ages: list[Any] = [plan.ages[i] for i in inside]
        cost = plan.query.sensitivity(len(inside), table, members=inside) / plan.sensitivity * plan.epsilon_c
        alpha = cost * (1 + 1e-14)
        units.append(SegmentUnit(cut, whole, members=inside, ages=ages, alpha=alpha, adversary=plan.adversary))
    return units


def _cost(part: Part) -> Cost:
    """The cost of one plan in one component: whole, and per age where the query is a sum."""
    setting = part.setting
    query, table = setting.query, setting.model.value_table
    s, m = len(part.members), setting.model.states
    ages = [setting.ages[i] for i in part.members]
    if part.model.size > 1024:
        return Cost(part.alpha, {}, 0.0)
    states = np.array(np.unravel_index(np.arange(part.model.size), (m,) * s)).T
    if not isinstance(query, FoldComputation):
        if len(set(ages)) > 1:
            return Cost(part.alpha, {}, 0.0)
        return Cost(part.alpha, {ages[0]: tuple(part.custom_answers())}, setting.epsilon_c / setting.scale)
    parts = query.parts(table, part.members)
    chosen = parts[np.arange(s), states]  # (snapshots, s, d)
    rate = setting.epsilon_c / (setting.scale * query.divisor(table))
    if query.fold == "sum":
        old = np.asarray(ages)
        by_age: dict[int, tuple[Floats, ...]] = {a: (chosen[:, old == a].sum(axis=1),) for a in set(ages)}
        return Cost(part.alpha, by_age, rate)
    if len(set(ages)) > 1:
        return Cost(part.alpha, {}, 0.0)
    folded = chosen.max(axis=1) if query.fold == "max" else chosen.min(axis=1)
    return Cost(part.alpha, {ages[0]: tuple(part.variants(folded))}, rate)
