"""Builds the components of a model under some plans, each with its cost, or cut into the groups of a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from csdp.accountant.component import METRIC_STATES, SCALAR_STATES, AccountedComponent, Cost, JointComponent
from csdp.accountant.environment import EnvironmentComponent
from csdp.accountant.segmented import SegmentComponent
from csdp.accountant.vector import InfluenceComponent, SliceComponent
from csdp.arrays import Floats
from csdp.bounds.component import Component
from csdp.bounds.influence import costs_by_age
from csdp.bounds.leakage import Setting
from csdp.chain import CoupledChain, Model, is_forward
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.queries import all_snapshots
from csdp.segments import cuts


def build_components(model: Model, plans: Sequence[Plan], kind: str) -> list[AccountedComponent]:
    """The distinct components with their costs; components that are alike are counted once."""
    grouped = plans[0].query.groups is not None and is_forward(model) and model.initial is None
    if kind == "segmented" and not grouped:
        raise InputError("state='segmented' needs a query per group (csdp.segment) of a CoupledChain")
    settings = [
        Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary=plan.adversary)
        for plan in plans
    ]
    labels = np.column_stack([plan.query.labels(plan.ages) for plan in plans])
    labels = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    accounted: list[AccountedComponent] = []
    for members, copies in model.distinct_components(labels):
        alike = None if copies == 1 else labels.tobytes()
        components = [Component(setting, members) for setting in settings]
        submodel = components[0].model
        cut = grouped and (kind == "segmented" or (kind == "auto" and submodel.size > SCALAR_STATES))
        vector = _build_vector(components, kind)
        if vector is not None and not cut:
            vector.alike = alike
            accounted.append(vector)
            continue
        component_of = JointComponent if submodel.has_one_kernel else EnvironmentComponent
        joint = component_of(
            submodel,
            ages=[plan.ages[i] for plan in plans for i in members],
            costs=[_cost(component) for component in components],
            adversary=plans[0].adversary,
            kind="scalar" if kind == "segmented" else kind,
        )
        if cut and len(plans) == 1:
            for segment in _build_segments(joint, plans[0], members):
                segment.alike = alike
                accounted.append(segment)
        else:
            accounted.append(joint)
    return accounted


def _build_vector(components: Sequence[Component], kind: str) -> InfluenceComponent | SliceComponent | None:
    """A component followed sequence by sequence, for kind "vector" or where a state for all pairs does not fit."""
    model = components[0].model
    fits = model.initial is None and components[0].setting.adversary == "informed"
    is_past = model.direction == "backward"
    backward = is_past and model.step_chains and model.size * len(model.step_chains) > METRIC_STATES
    forward = not is_past and model.step_chains and model.size > SCALAR_STATES
    if kind == "vector" and not (fits and model.step_chains):
        raise InputError("state='vector' needs a CoupledChain without an initial law, and the informed adversary")
    if not fits or not (kind == "vector" or (kind == "auto" and (backward or forward))):
        return None
    members = components[0].members
    costs: dict[int, Floats] = {}
    for component in components:
        setting = component.setting
        ages = [setting.ages[i] for i in members]
        for age, cost in costs_by_age(setting.query, members, ages=ages, epsilon_c=setting.epsilon_c).items():
            costs[age] = costs[age] + cost if age in costs else cost
    vector = InfluenceComponent if is_past else SliceComponent
    return vector(model, members, costs, alpha=sum(component.alpha for component in components))


def _build_segments(joint: JointComponent, plan: Plan, members: Sequence[int]) -> list[SegmentComponent]:
    """The groups of one component; a group that is too large for a state is bounded as the component is."""
    assert plan.query.groups is not None
    assert isinstance(joint.model, CoupledChain)
    place = {member: i for i, member in enumerate(members)}
    groups = tuple(
        tuple(place[i] for i in group if i in place) for group in plan.query.groups if any(i in place for i in group)
    )
    segments = []
    for cut in cuts(joint.model, groups):
        inside = [members[i] for i in cut.members]
        moved = plan.query.undivided_sensitivity(len(inside), inside) / plan.query.denominator
        alpha = moved / plan.sensitivity * plan.epsilon_c * (1 + 1e-14)
        ages = [plan.ages[i] for i in inside]
        segments.append(SegmentComponent(cut, joint, members=inside, ages=ages, alpha=alpha, adversary=plan.adversary))
    return segments


def _cost(component: Component) -> Cost:
    """The cost of one plan in one component: whole, and per age where the query is a sum."""
    setting = component.setting
    query = setting.query
    s, m = len(component.members), setting.model.states
    ages = [setting.ages[i] for i in component.members]
    whole = Cost(component.alpha, {}, 0.0)
    if component.model.size > 1024:
        return whole
    rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
    if isinstance(query, FoldComputation):
        chosen = query.contributions(component.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        if query.fold == "sum":
            old = np.asarray(ages)
            return Cost(component.alpha, {age: (chosen[:, old == age].sum(axis=1),) for age in set(ages)}, rate)
    if len(set(ages)) > 1:
        return whole
    if not isinstance(query, FoldComputation):
        return Cost(component.alpha, {ages[0]: tuple(component.custom_answers())}, rate)
    folded = chosen.max(axis=1) if query.fold == "max" else chosen.min(axis=1)
    return Cost(component.alpha, {ages[0]: tuple(component.variants(folded))}, rate)
