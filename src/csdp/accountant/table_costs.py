"""What one release that is drawn from a table costs a component: distances of the table instead of those of noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from csdp.accountant.component import Cost
from csdp.arrays import Floats, Indices
from csdp.computation import FoldComputation
from csdp.noise.table import MechanismTable
from csdp.plan import Plan
from csdp.queries import all_snapshots

_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_NEUTRAL = {"sum": 0.0, "max": -np.inf, "min": np.inf}


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
