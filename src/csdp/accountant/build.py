"""Builds the components of a plan's models, each with what the noise of a release costs it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from csdp.accountant.component import Component
from csdp.accountant.influence import InfluenceComponent
from csdp.accountant.joint import SCALAR_STATES, Cost, JointComponent, Known
from csdp.accountant.slice import SliceComponent, SmallerComponent
from csdp.bounds.influence import costs_by_age, has_influence
from csdp.bounds.leakage import Component as Part
from csdp.bounds.leakage import Setting
from csdp.bounds.slice import has_slice
from csdp.bounds.units import tie
from csdp.chain import Model
from csdp.chain.steps import METRIC_STATES
from csdp.numbers import Floats
from csdp.plan import Plan
from csdp.query_table import FoldTable, all_snapshots

#: Joint states times phases of a clock up to which a metric state, with its programmes at each phase, is followed if
#: each sequence can be followed by itself instead.
METRIC_PHASES = 96
#: Joint states up to which costs are listed by snapshot.
_LISTED = 1024

#: Which states are kept: the sharpest that fit, or a certain one if it fits.
Rule = Literal["auto", "metric", "scalar", "vector"]
#: The distinct components of the models, each with the digest of its model.
Built = tuple[tuple[str, Component], ...]


def build_components(plan: Plan, rule: Rule = "auto", known: Known | None = None) -> Built:
    """The distinct components of a plan's models; components that are alike are counted once.

    Args:
        plan: the plan.
        rule: "metric", "scalar" or "vector" for these states alone, wherever they fit; by default the sharpest, and the
            smaller of two if neither always is.
        known: what was computed for other plans of the same models, if there are any.
    """
    return tuple(
        (model.digest, component)
        for model in plan.chain.members
        for component in _components_of(model.given_path(), plan, rule, known)
    )


def _components_of(model: Model, plan: Plan, rule: Rule, known: Known | None) -> list[Component]:
    setting = Setting.make(
        model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary="informed", units=plan.units
    )
    labels = plan.query.labels(plan.ages)
    built: list[Component] = []
    if plan.units:
        parts = [(members, 1) for members in tie(model.components(), plan.units)]
    else:
        parts = model.distinct_components(labels)
    for members, copies in parts:
        part = Part(setting, members)
        alike = None if copies == 1 else labels.tobytes()
        # Components that are alike are no longer so once one of them is read late.
        stale_limit = plan.stale_limit if copies == 1 else 0
        component: Component
        if _is_by_sequence(part.model, rule):
            component = _by_sequence(part, stale_limit)
        else:
            component = JointComponent(
                part.model,
                members,
                ages=_ages(part),
                cost=_noise_cost(part),
                blocks=part.blocks,
                rule="auto" if rule == "vector" else rule,
                known=known,
            )
            if rule == "auto" and component.kind == "scalar" and _is_forward(part.model):
                slices = _by_sequence(part, stale_limit)
                assert isinstance(slices, SliceComponent)
                slices.alike = alike
                component = SmallerComponent(component, slices)
        component.alike = alike
        built.append(component)
    return built


def _is_forward(model: Model) -> bool:
    return has_slice(model) and not has_influence(model)


def _is_by_sequence(model: Model, rule: Rule) -> bool:
    """Whether a component is followed sequence by sequence alone."""
    backward, forward = has_influence(model), has_slice(model)
    if rule != "auto":
        return rule == "vector" and (backward or forward)
    large = model.size * len(model.step_chains) > METRIC_STATES or model.size * model.phases > METRIC_PHASES
    # One sequence of two states, under environments: influence is as sharp as a metric state there, and cheaper.
    is_bit = model.size == 2 and not model.has_one_kernel
    return (backward and (large or not model.has_law or is_bit)) or (forward and model.size > SCALAR_STATES)


def _by_sequence(part: Part, stale_limit: int) -> InfluenceComponent | SliceComponent:
    """A component followed sequence by sequence."""
    setting, model = part.setting, part.model
    costs = costs_by_age(setting.query, part.members, ages=_ages(part), epsilon_c=setting.epsilon_c)
    kind = InfluenceComponent if has_influence(model) else SliceComponent
    return kind(model, part.members, costs, alpha=part.alpha, blocks=part.blocks, stale_limit=stale_limit)


def _ages(part: Part) -> list[int]:
    return [part.setting.ages[i] for i in part.members]


def _noise_cost(part: Part) -> Cost:
    """The cost of noise in one component: whole, and per age if the query is a sum."""
    setting = part.setting
    query = setting.query
    ages = _ages(part)
    whole = Cost(part.alpha, {}, 0.0)
    if part.model.size > _LISTED:
        return whole
    s, m = len(part.members), setting.model.states
    rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
    if isinstance(query, FoldTable) and query.fold == "sum":
        chosen = query.contributions(part.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        old = np.asarray(ages)
        answers: dict[int, tuple[Floats, ...]] = {age: (chosen[:, old == age].sum(axis=1),) for age in set(ages)}
        return Cost(part.alpha, answers, rate, chosen, old)
    age, *others = set(ages)
    return whole if others else Cost(part.alpha, {age: tuple(part.answers())}, rate)
