"""Builds the components of a model under a plan, each with what the noise of a release costs it."""

from __future__ import annotations

from functools import partial

import numpy as np

from csdp.accountant.component import SCALAR_STATES, Cost, JointComponent
from csdp.accountant.environment import EnvironmentComponent
from csdp.accountant.protocol import AccountedComponent
from csdp.accountant.smaller import SmallerComponent
from csdp.accountant.vector import InfluenceComponent, SliceComponent
from csdp.arrays import Floats
from csdp.bounds.component import Component
from csdp.bounds.influence import costs_by_age, has_influence
from csdp.bounds.leakage import Setting
from csdp.bounds.lineage import has_lineage
from csdp.chain import Model
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.query_table import FoldTable, all_snapshots

#: Joint states times phases of a clock up to which a metric state, with its programmes at each phase, is followed where
#: there is a state of each sequence by itself.
METRIC_PHASES = 96


def build_components(model: Model, plan: Plan, kind: str) -> list[AccountedComponent]:
    """The distinct components with their costs; components that are alike are counted once."""
    setting = Setting.make(
        model,
        plan.query,
        ages=plan.ages,
        epsilon_c=plan.epsilon_c,
        adversary=plan.adversary,
    )
    labels = plan.query.labels(plan.ages)
    accounted: list[AccountedComponent] = []
    for members, copies in model.distinct_components(labels):
        alike = None if copies == 1 else labels.tobytes()
        component = Component(setting, members)
        # Components that are alike are no longer so once one of them is read late.
        stale_limit = plan.stale_limit if copies == 1 else 0
        build_vector = partial(_build_vector, component, stale_limit=stale_limit)
        component_of = JointComponent if component.model.has_one_kernel else EnvironmentComponent
        followed = build_vector(kind) or component_of(
            component.model,
            ages=[plan.ages[i] for i in members],
            cost=_noise_cost(component),
            adversary=plan.adversary,
            kind=kind,
        )
        followed.alike = alike
        slices = build_vector("slice") if kind == "auto" and followed.kind == "scalar" else None
        if isinstance(followed, JointComponent) and isinstance(slices, SliceComponent):
            slices.alike = alike
            accounted.append(SmallerComponent(followed, slices))
        else:
            accounted.append(followed)
    return accounted


def _build_vector(component: Component, kind: str, *, stale_limit: int) -> InfluenceComponent | SliceComponent | None:
    """A component followed sequence by sequence; None if `kind` asks for another state, or it cannot be followed."""
    model = component.model
    members = component.members
    setting = component.setting
    fits = setting.adversary == "informed"
    past, ahead = has_influence(model), has_lineage(model)
    large = model.size * len(model.step_chains) > METRIC_STATES or model.size * model.phases > METRIC_PHASES
    backward = past and (large or not model.has_law or _is_bit(model))
    forward = ahead and model.size > SCALAR_STATES
    if kind == "vector" and not (fits and (past or ahead)):
        raise InputError("state='vector' needs a CoupledChain and the informed adversary")
    wanted = {"vector": True, "auto": backward or forward, "slice": ahead and not past}
    if not fits or not wanted.get(kind, False):
        return None
    ages = [setting.ages[i] for i in members]
    costs: dict[int, Floats] = costs_by_age(setting.query, members, ages=ages, epsilon_c=setting.epsilon_c)
    vector = InfluenceComponent if past else SliceComponent
    return vector(model, members, costs, alpha=component.alpha, stale_limit=stale_limit)


def _is_bit(model: Model) -> bool:
    """One sequence of two states, under environments: there `influence` is as sharp as a metric state, and cheaper."""
    return model.size == 2 and not model.has_one_kernel


def _noise_cost(component: Component) -> Cost:
    """The cost of noise in one component: whole, and per age where the query is a sum."""
    setting = component.setting
    query = setting.query
    s, m = len(component.members), setting.model.states
    ages = [setting.ages[i] for i in component.members]
    whole = Cost(component.alpha, {}, 0.0)
    if component.model.size > 1024:
        return whole
    rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
    if isinstance(query, FoldTable) and query.fold == "sum":
        chosen = query.contributions(component.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        old = np.asarray(ages)
        return Cost(component.alpha, {age: (chosen[:, old == age].sum(axis=1),) for age in set(ages)}, rate)
    if len(set(ages)) > 1:
        return whole
    return Cost(component.alpha, {ages[0]: tuple(component.answers())}, rate)
