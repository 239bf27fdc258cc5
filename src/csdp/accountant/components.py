"""Builds the components of a model under some plans, each with its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csdp.accountant.component import SCALAR_STATES, Cost, JointComponent
from csdp.accountant.environment import EnvironmentComponent
from csdp.accountant.protocol import AccountedComponent, PhaseLevels
from csdp.accountant.table_costs import single_costs, table_cost
from csdp.accountant.vector import InfluenceComponent, SliceComponent
from csdp.aging import ProtectedPairs
from csdp.arrays import Floats
from csdp.bounds.component import Component
from csdp.bounds.influence import costs_by_age, has_influence
from csdp.bounds.leakage import Setting
from csdp.bounds.lineage import has_lineage
from csdp.chain import Model
from csdp.chain.steps import METRIC_STATES
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.queries import all_snapshots

#: Joint states times phases of a clock up to which a metric state, with its programmes at each phase, is followed where
#: there is a state of each sequence by itself.
METRIC_PHASES = 96


def build_components(model: Model, plans: Sequence[Plan], kind: str) -> list[AccountedComponent]:
    """The distinct components with their costs; components that are alike are counted once."""
    secret: dict[str, Any] = {"adversary": plans[0].adversary, "protect": plans[0].protect}
    settings = [Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, **secret) for plan in plans]
    labels = np.column_stack([plan.query.labels(plan.ages) for plan in plans])
    labels = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    labels = ProtectedPairs.of(model.value_table, plans[0].protect).labels(labels)
    accounted: list[AccountedComponent] = []
    for members, copies in model.distinct_components(labels):
        alike = None if copies == 1 else labels.tobytes()
        components = [Component(setting, members) for setting in settings]
        submodel = components[0].model
        # Components that are alike are no longer so once one of them is read late.
        stale_limit = plans[0].stale_limit if copies == 1 and len(plans) == 1 else 0
        vector = _build_vector(components, plans, kind, stale_limit=stale_limit)
        component_of = JointComponent if submodel.has_one_kernel else EnvironmentComponent
        accounted.append(
            vector
            or component_of(
                submodel,
                ages=[plan.ages[i] for plan in plans for i in members],
                costs=[_cost(*each) for each in zip(components, plans, strict=True)],
                adversary=plans[0].adversary,
                kind=kind,
                protected=components[0].protected,
            )
        )
        accounted[-1].levels = _phase_levels(plans[0])
        accounted[-1].alike = alike
    return accounted


def _phase_levels(plan: Plan) -> PhaseLevels | None:
    """The noise levels by phase as shares of the plan's; None where they do not go by a clock."""
    if plan.phase_levels is None:
        return None
    shares = np.nextafter(np.divide(plan.phase_levels, plan.epsilon_c), np.inf)
    return PhaseLevels(np.where(np.asarray(plan.phase_levels) > 0, np.minimum(shares, 1.0), 0.0))


def _build_vector(
    components: Sequence[Component], plans: Sequence[Plan], kind: str, *, stale_limit: int
) -> InfluenceComponent | SliceComponent | None:
    """A component followed sequence by sequence, for kind "vector" or where a state for all pairs does not fit."""
    model = components[0].model
    fits = model.initial is None and components[0].setting.adversary == "informed"
    memory = any(plan.query.memory for plan in plans)
    past, ahead = has_influence(model), has_lineage(model) and not memory
    large = model.size * len(model.step_chains) > METRIC_STATES or model.size * model.phases > METRIC_PHASES
    backward = past and (large or memory or not model.has_law or _is_bit(model))
    forward = ahead and model.size > SCALAR_STATES
    if kind == "vector" and not (fits and (past or ahead)):
        raise InputError(
            "state='vector' needs a CoupledChain (backward, where readings have a memory) without an initial law, "
            "and the informed adversary"
        )
    if not fits or not (kind == "vector" or (kind == "auto" and (backward or forward))):
        return None
    members = components[0].members
    costs: dict[int, Floats] = {}
    for component, plan in zip(components, plans, strict=True):
        setting = component.setting
        ages = [setting.ages[i] for i in members]
        least = np.inf if plan.mechanism is None else single_costs(plan, members)
        for age, largest in costs_by_age(setting.query, members, ages=ages, epsilon_c=setting.epsilon_c).items():
            cost = np.minimum(largest, least)
            costs[age] = costs[age] + cost if age in costs else cost
    vector = InfluenceComponent if past else SliceComponent
    alpha = sum(component.alpha for component in components)
    protected = components[0].protected
    return vector(model, members, costs, alpha=alpha, stale_limit=stale_limit, protected=protected)


def _is_bit(model: Model) -> bool:
    """One sequence of two states, under environments: there `influence` is as sharp as a metric state, and cheaper."""
    return model.size == 2 and not model.has_one_kernel


def _cost(component: Component, plan: Plan) -> Cost:
    """The cost of one plan in one component; of a table, by its own probabilities."""
    cost = _noise_cost(component)
    return cost if plan.mechanism is None else table_cost(cost, plan, component.members)


def _noise_cost(component: Component) -> Cost:
    """The cost of noise in one component: whole, and per age where the query is a sum."""
    setting = component.setting
    query = setting.query
    s, m = len(component.members), setting.model.states
    ages = [setting.ages[i] for i in component.members]
    whole = Cost(component.alpha, {}, 0.0)
    if component.model.size > 1024 or query.memory:
        return whole
    rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
    if isinstance(query, FoldComputation) and query.fold == "sum":
        chosen = query.contributions(component.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        old = np.asarray(ages)
        return Cost(component.alpha, {age: (chosen[:, old == age].sum(axis=1),) for age in set(ages)}, rate)
    if len(set(ages)) > 1:
        return whole
    return Cost(component.alpha, {ages[0]: tuple(component.answers())}, rate)
