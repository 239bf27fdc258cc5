"""The best mechanism for one release: a table of probabilities, found by a linear programme.

Outputs o are estimates on a grid, and `M[v,o]` the probability of publishing o where the answer is v. Least is
`sum_v,o M[v,o] E[(f(x_t) - o)^2; f(z) = v]`, subject to `sum_v (B[x,v] - e^epsilon_s B[x',v]) M[v,o] <= 0` for presents
x, x' that must not be told apart, and `M[v,o] <= e^{event |v-v'| / Delta} M[v',o]`. The solver only proposes: the table
is made of whole numbers afterwards, and what is certified is computed from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from csdp.accountant import Accountant
from csdp.aging import check_ages
from csdp.arrays import Floats
from csdp.bounds.adversary import Adversary, ProtectedPairs, check_protect, known_subsets, marginal
from csdp.bounds.result import round_up
from csdp.bounds.table import check_covered, law_of_answer, possible_answers
from csdp.chain import Family, Model, certified_model
from csdp.computation import FoldComputation, verify_query
from csdp.errors import CsdpError, InfeasibleError, InputError, TooLargeError
from csdp.estimate.error import mse
from csdp.estimate.result import About, Error, check_about
from csdp.estimate.table import AnswerMoments, table_estimator
from csdp.noise.table import MechanismTable
from csdp.plan import Plan
from csdp.queries import Query

if TYPE_CHECKING:
    from csdp.planning.found import FoundPlan

MechanismChoice = Literal["noise", "optimal", "auto"]

#: Estimates that the first programme chooses from; the second chooses among those near the ones that it chose.
_GRID: Final = 24
_FEWEST: Final = 8
#: Share by which both limits are lowered for the solver, whose solutions pass its constraints by a tolerance.
_MARGIN: Final = 2e-6
#: Share of a column that is spread evenly over all answers: it makes every weight positive and every constraint slack.
_EVEN: Final = 1e-6
#: Probability below which an output joins its neighbour.
_RARE: Final = 1e-6
#: Entries of the programme's matrix up to which it is solved, and above which an interior point is quicker.
_LARGEST: Final = 1_000_000
_INTERIOR: Final = 20_000
#: What a plan says that a publisher with its budget would refuse.
RISES_LATER: Final = (
    "aging raises this leakage before it falls, so a publisher with this budget refuses it: plan for less"
)
#: Share of the error of noise with its posterior mean by which a table must be better to be offered.
WORTHWHILE: Final = 0.02


def optimal_table(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    budget: float,
    event_limit: float,
    adversary: Adversary = "informed",
    protect: float | None = None,
    about: About = "now",
) -> MechanismTable:
    """The table with the least error of one release whose leakage is at most `budget`, as far as the solver finds it.

    No guarantee is taken from the solver: a `Plan` with this table certifies what the table tells.

    Args:
        chain: the model, or a Family of models, all of which the budget holds for; the error is that of the first.
        query: what is published, with one output.
        ages: how old the published readings are, one age for all sequences or one each.
        budget: the leakage of the present by one release.
        event_limit: the most that a record may be told apart by (`MechanismTable.record_epsilon`).
        adversary, protect: as for `csdp.leakage`.
        about: whether the present answer is wanted ("now") or that of the time of the readings ("then").
    """
    certified = certified_model(chain)
    check_about(about, "posterior")
    for name, value in (("budget", budget), ("event_limit", event_limit)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InputError(f"{name}: {value!r} given; a positive number expected")
    model = certified.members[0].point
    covered = check_covered(certified, verify_query(query, model, on_lattice=True))
    if not covered.undivided_sensitivity(1) > 0:
        raise InputError(f"query: {covered.name} never changes with one record, so there is nothing to publish")
    checked = check_ages(ages, model.sequences)
    answers = possible_answers(model, covered)
    known = AnswerMoments.of(model, covered, ages=checked, then=about == "then")
    far = check_protect(protect, model.value_table)
    pairs = [_present_pairs(one, covered, checked, adversary, far) for one in certified.members]
    first, second = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    limit = budget * (1.0 - _MARGIN)
    apart = np.diff(answers) * (event_limit * (1.0 - _MARGIN) / covered.undivided_sensitivity(1))
    rows = np.vstack([first - math.exp(limit) * second, _neighbour_rows(apart)])
    probabilities, means = _solve(rows, known)
    return MechanismTable.from_probabilities(answers.tolist(), means.tolist(), probabilities)


def _present_pairs(
    model: Model, query: FoldComputation, ages: Sequence[int], adversary: Adversary, protect: float | None
) -> tuple[Floats, Floats]:
    """The distinct pairs of laws of the answer given two presents that must not be told apart, (pairs, answers)."""
    form, m = law_of_answer(model, query, ages).mass, model.states
    pairs: list[Floats] = []
    protected = ProtectedPairs.of(model.value_table, protect)
    for known in known_subsets(adversary, model.sequences):
        law = marginal(form.law, known, model.sequences, m)
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = marginal(form.measure, known, model.sequences, m) / law[:, None]
        cube = rows.reshape((m,) * len(known) + (-1,))
        for axis, sequence in enumerate(known):
            given, close = np.moveaxis(cube, axis, 0).reshape(m, -1, rows.shape[1]), protected.close[sequence]
            pairs += [np.hstack([given[a], given[b]]) for a in range(m) for b in range(m) if a != b and close[a, b]]
    both = np.concatenate(pairs)
    both = both[np.isfinite(both).all(axis=1)]
    _, distinct = np.unique(np.round(both, 13), axis=0, return_index=True)
    first, second = np.hsplit(both[distinct], 2)
    return first, second


def _neighbour_rows(apart: Floats) -> Floats:
    """`M[v] - e^{apart} M[v']` of answers next to each other, both ways: those further apart follow from these."""
    count = apart.size
    rows, at = np.zeros((2 * count, count + 1)), np.arange(count)
    rows[at, at], rows[at, at + 1] = 1.0, -np.exp(apart)
    rows[count + at, at + 1], rows[count + at, at] = 1.0, -np.exp(apart)
    return rows


def _solve(rows: Floats, known: AnswerMoments) -> tuple[Floats, Floats]:
    """Probabilities (answers, outputs) with `rows @ M <= 0`, and the posterior mean of every output, rising."""
    told = np.divide(known.first, known.law, out=np.full_like(known.law, np.nan), where=known.law > 0)
    low, high = float(np.nanmin(told)), float(np.nanmax(told))
    points = min(_GRID, _LARGEST // rows.size)
    if points < _FEWEST:
        raise TooLargeError(
            f"mechanism: a programme of {rows.size * _FEWEST:,} entries for {known.law.size} answers; at most "
            f"{_LARGEST:,}. Leave mechanism out, or ask for fewer sequences or answers",
            needed=float(rows.size * _FEWEST),
            limit=_LARGEST,
        )
    table = _clean(_solve_on_grid(rows, known, np.linspace(low, high, points)), known)
    means = known.estimates(table)[0]
    if 3 * means.size * rows.size <= _LARGEST:
        # With the means of the first programme its solution stays possible; around them a little is gained.
        step = (high - low) / (4.0 * points)
        finer = np.unique(np.clip([*means, *(means - step), *(means + step)], low, high))
        table = _clean(_solve_on_grid(rows, known, finer), known)
        means = known.estimates(table)[0]
    order = np.argsort(means)
    return _merge_equal(table[:, order], means[order], known)


def _solve_on_grid(rows: Floats, known: AnswerMoments, grid: Floats) -> Floats:
    """The best probabilities (answers, grid) by HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import identity, kron

    answers, points = known.law.size, grid.size
    cost = (known.law[:, None] * grid**2 - 2.0 * known.first[:, None] * grid).ravel()
    # Each constraint holds for every output by itself; the probabilities of each answer sum to 1.
    scaled = rows / np.abs(rows).max(axis=1, keepdims=True)
    solution = linprog(
        cost / max(known.no_data, 1e-300),
        A_ub=kron(scaled, identity(points), format="csr"),
        b_ub=np.zeros(rows.shape[0] * points),
        A_eq=kron(identity(answers), np.ones((1, points)), format="csr"),
        b_eq=np.ones(answers),
        method="highs-ipm" if rows.size * points > _INTERIOR else "highs",
    )
    if solution.x is None:
        raise InfeasibleError(
            f"mechanism: the solver found no table ({solution.message}); leave mechanism out",
            nearest=math.nan,
            no_data=known.no_data,
        )
    return np.asarray(solution.x, dtype=np.float64).reshape(answers, points)


def _clean(table: Floats, known: AnswerMoments) -> Floats:
    """Probabilities with rare outputs joined to their neighbours, and every column mixed with an even one.

    Joining outputs is post-processing, and an even column tells nothing: no constraint is broken by either.
    """
    table = np.maximum(table, 0.0)
    kept: list[Floats] = []
    waiting = np.zeros(len(table))
    for column in table.T:
        waiting = waiting + column
        if waiting.max() > _RARE:
            kept.append(waiting)
            waiting = np.zeros(len(table))
    kept[-1] = kept[-1] + waiting
    joined = np.array(kept).T
    joined = (1.0 - _EVEN) * joined + _EVEN * (known.law @ joined)
    return np.asarray(joined / joined.sum(axis=1, keepdims=True))


def _merge_equal(table: Floats, means: Floats, known: AnswerMoments) -> tuple[Floats, Floats]:
    """Join outputs with the same posterior mean: for an estimate they are one output."""
    near = np.concatenate([[True], np.diff(means) > 1e-9 * max(1e-300, float(np.ptp(means)))])
    joined = np.add.reduceat(table, np.flatnonzero(near), axis=1)
    estimates = known.estimates(joined)[0]
    order = np.argsort(estimates)
    return joined[:, order], estimates[order]


def optimal_plan(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    budget: float,
    event_limit: float,
    adversary: Adversary = "informed",
    protect: float | None = None,
    about: About = "now",
    stale_limit: int = 0,
) -> Plan:
    """The plan whose outputs are drawn from the best table for one release at some ages.

    Formal guarantee: that of its `Plan`; the certificate and the record epsilon are computed from the whole numbers of
    the table, and a table that misses the budget is not returned.

    Args: as for `optimal_table`; `stale_limit` as for `Plan`.

    Reference: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms" (2009), for
    mechanisms as linear programmes.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.6, 0.4], [0.4, 0.6]], [[0.98, 0.02], [0.1, 0.9]])
    >>> plan = optimal_plan(chain, Mean(), ages=1, budget=1.0, event_limit=2.0)
    >>> plan.certified.epsilon <= 1.0, plan.epsilon_c <= 2.0
    (True, True)
    """
    secret: dict[str, Any] = {"adversary": adversary, "protect": protect}
    options: dict[str, Any] = {"ages": ages, "event_limit": event_limit, "about": about, **secret}
    certified = certified_model(chain)
    for margin in (0.0, 1e-5, 1e-3):
        table = optimal_table(certified, query, budget=budget * (1.0 - margin) if margin else budget, **options)
        sensitivity = verify_query(query, certified.members[0].point, on_lattice=True).undivided_sensitivity(1)
        level = round_up(table.record_epsilon(sensitivity))
        if level <= event_limit:
            plan = Plan(certified, query, ages, level, stale_limit=stale_limit, mechanism=table, **secret)
            if plan.certified.epsilon <= budget:
                return plan
    raise InfeasibleError(
        f"mechanism: no table within budget {budget:g} and event_limit {event_limit:g} could be made; leave it out",
        nearest=math.nan,
        no_data=math.nan,
    )


def table_error(plan: Plan, about: About = "now") -> Error:
    """The error of the posterior mean from one output of a plan's table; over a Family the largest."""
    query = plan.query
    if plan.mechanism is None or not isinstance(query, FoldComputation):
        raise InputError("table_error: the plan has no table; use csdp.mse")
    errors = [
        table_estimator(model.point, query, plan.mechanism, ages=plan.ages, about=about).error
        for model in plan.chain.members
    ]
    return max(errors, key=lambda error: error.mse)


def check_choice(choice: MechanismChoice, *, budget: float | None, releases: Any, about: About) -> None:
    """Refuse a mechanism that does not go together with what is planned."""
    if choice not in {"noise", "optimal", "auto"}:
        raise InputError(f"mechanism: {choice!r} given; 'noise', 'optimal' or 'auto'")
    if choice != "noise" and (budget is None or releases != 1 or about != "now"):
        raise InputError(
            f"mechanism={choice!r}: a table is found for one release about the present with a budget; give budget, "
            "releases=1 and about='now', or mechanism='noise'"
        )


def offer_table(found: FoundPlan, *, budget: float | None, event_limit: float, choice: MechanismChoice) -> FoundPlan:
    """The same ages with the best table, where it was asked for, or where it is better by more than `WORTHWHILE`."""
    plan = found.plan
    if choice == "noise" or budget is None:
        return found
    options: dict[str, Any] = {"ages": plan.ages, "budget": budget, "adversary": plan.adversary}
    options |= {"protect": plan.protect}
    try:
        made = optimal_plan(plan.chain, plan.query, event_limit=event_limit, **options)
    except CsdpError as why:
        if choice == "optimal":
            raise
        return replace(found, note=found.note or f"noise is used: {why}")
    error = table_error(made)
    noise = mse(plan.chain, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, estimate="posterior").mse
    gain = 1.0 - error.mse / noise if noise > 0 else 0.0
    words = (
        f"a table has {100 * gain:.3g} % less squared error than noise with its posterior mean, and tells a record "
        f"apart by {made.epsilon_c:.3g} instead of {plan.epsilon_c:.3g}"
    )
    if choice == "auto" and gain <= WORTHWHILE:
        return replace(found, note=found.note or f"noise is used: {words}")
    note = f"{RISES_LATER}; {words}" if Accountant(made).ceiling(1) > budget else words
    return replace(found, plan=made, leakage=made.certified, error=error, note=note)
