"""Builds the components of a model under some plans, each with what a release costs it, by its noise or its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from csdp.accountant.component import SCALAR_STATES, Cost, JointComponent
from csdp.accountant.environment import EnvironmentComponent
from csdp.accountant.plain import PlainComponent, is_plain
from csdp.accountant.protocol import AccountedComponent
from csdp.accountant.smaller import SmallerComponent
from csdp.accountant.vector import InfluenceComponent, SliceComponent
from csdp.arrays import Floats, Indices
from csdp.bounds.adversary import ProtectedPairs
from csdp.bounds.component import Component
from csdp.bounds.influence import costs_by_age, has_influence
from csdp.bounds.leakage import Setting
from csdp.bounds.lineage import has_lineage
from csdp.chain import Model
from csdp.chain.steps import METRIC_STATES
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.noise.table import MechanismTable
from csdp.plan import Plan
from csdp.queries import all_snapshots

#: Joint states times phases of a clock up to which a metric state, with its programmes at each phase, is followed where
#: there is a state of each sequence by itself.
METRIC_PHASES = 96
_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_NEUTRAL = {"sum": 0.0, "max": -np.inf, "min": np.inf}


def build_components(model: Model, plans: Sequence[Plan], kind: str) -> list[AccountedComponent]:
    """The distinct components with their costs; components that are alike are counted once."""
    if is_plain(plans):
        return [PlainComponent(model, plans)]
    secret: dict[str, Any] = {"adversary": plans[0].adversary, "protect": plans[0].protect}
    settings = [Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, **secret) for plan in plans]
    labels = np.column_stack([plan.query.labels(plan.ages) for plan in plans])
    labels = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    if plans[0].protect is not None:
        labels = ProtectedPairs.of(model.value_table, plans[0].protect).labels(labels)
    accounted: list[AccountedComponent] = []
    for members, copies in model.distinct_components(labels):
        alike = None if copies == 1 else labels.tobytes()
        components = [Component(setting, members) for setting in settings]
        submodel = components[0].model
        # Components that are alike are no longer so once one of them is read late.
        stale_limit = plans[0].stale_limit if copies == 1 and len(plans) == 1 else 0
        protected = ProtectedPairs.of(model.value_table[list(members)], plans[0].protect)
        build_vector = partial(_build_vector, components, plans, stale_limit=stale_limit, protected=protected)
        component_of = JointComponent if submodel.has_one_kernel else EnvironmentComponent
        followed = build_vector(kind) or component_of(
            submodel,
            ages=[plan.ages[i] for plan in plans for i in members],
            costs=[
                noise if plan.mechanism is None else table_cost(noise, plan, members)
                for noise, plan in zip(map(_noise_cost, components), plans, strict=True)
            ],
            adversary=plans[0].adversary,
            kind=kind,
            protected=protected,
        )
        followed.alike = alike
        slices = build_vector("slice") if kind == "auto" and followed.kind == "scalar" else None
        if isinstance(followed, JointComponent) and isinstance(slices, SliceComponent):
            slices.alike = alike
            accounted.append(SmallerComponent(followed, slices))
        else:
            accounted.append(followed)
    return accounted


def _build_vector(
    components: Sequence[Component], plans: Sequence[Plan], kind: str, *, stale_limit: int, protected: ProtectedPairs
) -> InfluenceComponent | SliceComponent | None:
    """A component followed sequence by sequence; None if `kind` asks for another state, or it cannot be followed."""
    model = components[0].model
    fits = model.initial is None and components[0].setting.adversary == "informed"
    past, ahead = has_influence(model), has_lineage(model)
    large = model.size * len(model.step_chains) > METRIC_STATES or model.size * model.phases > METRIC_PHASES
    backward = past and (large or not model.has_law or _is_bit(model))
    forward = ahead and model.size > SCALAR_STATES
    if kind == "vector" and not (fits and (past or ahead)):
        raise InputError("state='vector' needs a CoupledChain without an initial law, and the informed adversary")
    wanted = {"vector": True, "auto": backward or forward, "slice": ahead and not past}
    if not fits or not wanted.get(kind, False):
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
    return vector(model, members, costs, alpha=alpha, stale_limit=stale_limit, protected=protected)


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
    if isinstance(query, FoldComputation) and query.fold == "sum":
        chosen = query.contributions(component.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        old = np.asarray(ages)
        return Cost(component.alpha, {age: (chosen[:, old == age].sum(axis=1),) for age in set(ages)}, rate)
    if len(set(ages)) > 1:
        return whole
    return Cost(component.alpha, {ages[0]: tuple(component.answers())}, rate)


# ---- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableCost(Cost):
    """The cost of a table: `max_o ln M[f(z),o] / M[f(z'),o]`, the largest over what else the answer is made of.

    `folded[a]` are the folds of the parts that are read at age a, `between[a]` the distances of their distinct values.
    """

    folded: dict[int, Floats]
    between: dict[int, Floats]

    def distances(self, age: int, seen: Indices) -> Floats:
        """Between snapshots that can occur."""
        _, place = np.unique(self.folded[age], return_inverse=True)
        chosen = place.ravel()[seen]
        return np.asarray(self.between[age][np.ix_(chosen, chosen)])


def table_cost(cost: Cost, plan: Plan, members: Sequence[int]) -> Cost:
    """The cost of a plan's table in a component, given the cost that the noise of its record epsilon would have.

    Whatever else the answer is made of is fixed while one slice changes, so the largest over it is on the safe side.

    Args:
        cost: by the record epsilon, which bounds the table's own; it says which ages can be told apart.
        plan: the plan, with a table.
        members: the sequences of the component.
    """
    table, query = plan.mechanism, plan.query
    assert table is not None
    assert isinstance(query, FoldComputation)
    everyone, digits = range(plan.model.sequences), all_snapshots(len(members), plan.model.states)
    others = [i for i in everyone if i not in set(members)]
    whole = _distances(table, query, fold_values(query, members), fold_values(query, others))
    folded, between = {}, {}
    for age in cost.answers:
        read = [place for place, i in enumerate(members) if plan.ages[i] == age]
        own = query.own[np.asarray(members)[read], digits[:, read], 0]
        folded[age] = np.asarray(_COMBINE[query.fold].reduce(own, axis=1))
        rest = [*others, *(i for i in members if plan.ages[i] != age)]
        between[age] = _distances(table, query, np.unique(folded[age]), fold_values(query, rest))
    return TableCost(min(cost.alpha, float(whole.max())), cost.answers, cost.rate, folded, between)


def single_costs(plan: Plan, members: Sequence[int]) -> Floats:
    """What the table tells of one reading of each member, (members, m, m), whatever the others are."""
    table, query = plan.mechanism, plan.query
    assert table is not None
    assert isinstance(query, FoldComputation)
    costs = np.zeros((len(members), plan.model.states, plan.model.states))
    known: dict[bytes, Floats] = {}
    for place, member in enumerate(members):
        own = query.own[member, :, 0]
        rest = fold_values(query, [i for i in range(plan.model.sequences) if i != member])
        key = own.tobytes() + rest.tobytes()
        if key not in known:
            values, states = np.unique(own, return_inverse=True)
            known[key] = _distances(table, query, values, rest)[np.ix_(states.ravel(), states.ravel())]
        costs[place] = known[key]
    return costs


def fold_values(query: FoldComputation, members: Sequence[int]) -> Floats:
    """All values that the parts of some sequences can fold to, in rising order; the neutral one of none."""
    values = np.array([_NEUTRAL[query.fold]])
    for member in members:
        values = np.unique(_COMBINE[query.fold](values[:, None], query.own[member, :, 0][None, :]))
    return values


def _distances(table: MechanismTable, query: FoldComputation, values: Floats, rest: Floats) -> Floats:
    """The largest distance over the rest, between two values that the rest is folded with."""
    answers, combine = np.array(table.answers), _COMBINE[query.fold]
    far = np.zeros((values.size, values.size))
    for other in rest:
        rows = np.searchsorted(answers, combine(values, other))
        np.maximum(far, table.distances[np.ix_(rows, rows)], out=far)
    return far
