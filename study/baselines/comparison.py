"""One table of the methods that add Laplace noise to an answer, at one exact leakage of the present."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from csdp.accountant import Accountant
from csdp.chain import Model
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.plan import Plan
from csdp.planning import EVENT_LIMIT, find_plan
from csdp.planning.calibrate import Curves, largest_level
from csdp.query_table import Query
from study import baselines
from study.baselines.laplace import LaplaceBaseline
from study.baselines.protocol import Quantity, check_inputs

Verdict = Literal["ours", "same release", "equal", "worse", "BETTER", "not comparable"]

#: Relative difference below which two methods count as equal.
TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method: its own guarantee, its exact leakage, and its error."""

    method: str
    name: str
    guarantee: str
    age: int | None = None
    nominal: float | None = None  #: epsilon of its own guarantee; None if it has none or could not be run
    scale: float | None = None
    leakage: Quantity  #: of the present, one release, informed adversary
    every_moment: Quantity  #: of a record, all releases
    mse_raw: float | None = None
    mse: float | None = None  #: of the best linear estimate
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """All methods at one budget; errors are compared."""

    rows: tuple[Row, ...]
    budget: float
    no_data: float

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def better(self) -> tuple[Row, ...]:
        """Rows that do better than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def headline(self) -> str:
        """The result for our plan, in a sentence."""
        if self.better:
            return f"Our plan is NOT the best here: less error by {', '.join(row.method for row in self.better)}."
        return "No method that can be compared has less error than our plan."


def compare(
    chain: Model,
    query: Query | str,
    *,
    budget: float,
    max_age: int = 50,
    length: int = 100,
    event_limit: float = EVENT_LIMIT,
) -> Comparison:
    """Compare our plan with every method that adds noise to an answer, at equal secret, adversary ("informed") and age.

    Every method adds just enough noise that its exact CSDP leakage of the present is within the budget. For a fitted
    chain the point estimate is used. Streams that publish at every tick are compared by `compare_continual`.

    Args:
        chain: the model.
        query: the query.
        budget: target of the leakage of the present.
        max_age: largest age of our plan.
        length: number of releases for the lifetime leakage.
        event_limit: largest noise level of any method.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> compare(chain, Mean(), budget=0.2, max_age=5, length=20).headline
    'No method that can be compared has less error than our plan.'
    """
    chain, table = chain.without_family(), check_inputs(chain, query)
    best = find_plan(chain, table, budget=budget, max_age=max_age, estimate="linear", event_limit=event_limit)
    plan, age = best.plan, best.plan.ages[0]
    ours = Row(
        method=f"our plan (FRAN, age {age})",
        name="ours",
        guarantee="CSDP: the present, under the model, against an adversary who knows all other presents",
        age=age,
        nominal=best.leakage.epsilon,
        scale=plan.sensitivity / plan.epsilon_c,
        leakage=Quantity(best.leakage.epsilon, "exact"),
        every_moment=_every_moment(plan, length),
        mse_raw=mse(chain, table, ages=age, epsilon_c=plan.epsilon_c).safe,
        mse=best.error.safe,
        verdict="ours",
        note=best.note,
    )

    @cache
    def scale_at(age: int) -> float:
        """The least noise at one age that keeps the budget: all Laplace releases of that age share it."""
        curves = Curves(chain, table, (age,) * chain.sequences, estimate="linear", releases=1)
        level = largest_level(lambda e: curves.leakage(e).epsilon, budget, event_limit)
        if level is None:
            raise InputError(f"at age {age} no noise level up to {event_limit:g} reaches leakage {budget:g}")
        return table.sensitivity(1, chain.value_table) / level

    rows = [ours]
    for baseline in _methods(age, length):
        is_old = bool(baseline.age) and not isinstance(baseline, baselines.AgeDP)
        row = Row(
            method=baseline.title.split(" (")[0] + (f", age {baseline.age}" if baseline.age else ""),
            name=f"{baseline.name}@{baseline.age}" if is_old else baseline.name,
            guarantee=baseline.guarantee,
            age=baseline.age,
            leakage=Quantity(None, "not computed"),
            every_moment=Quantity(None, "not computed"),
            verdict="not comparable",
        )
        try:
            release = baseline.calibrate(chain, table, scale=scale_at(baseline.age))
        except CsdpError as error:
            rows.append(replace(row, note=str(error)))
            continue
        row = replace(
            row,
            nominal=release.epsilon,
            scale=release.scale,
            leakage=release.leakage(),
            every_moment=_every_moment(release.plan, length),
            mse_raw=release.error("raw").safe,
            mse=release.error().safe,
        )
        rows.append(replace(row, verdict="same release" if baseline.age == age else _verdict(row, ours)))
    no_data = best.error.no_data
    nothing = Quantity(0.0, "no data is read")
    silent = Row(
        method="publish nothing",
        name="no-data",
        guarantee="the long-run expectation is published and no data is read, so nothing leaks",
        nominal=0.0,
        leakage=nothing,
        every_moment=nothing,
        mse_raw=no_data,
        mse=no_data,
        verdict="equal",
    )
    rows.append(replace(silent, verdict=_verdict(silent, ours)))
    return Comparison(tuple(rows), budget, no_data)


def _methods(age: int, length: int) -> list[LaplaceBaseline]:
    """Every method as published; those that can use aged data also at the age of our plan."""
    methods: list[LaplaceBaseline] = [
        baselines.LaplaceDP(),
        baselines.GroupDP(),
        baselines.AgeDP(age=age),
        baselines.DependentDP(),
        baselines.ExactDependentDP(),
        baselines.CorrelatedDP(),
        baselines.BayesianDP(),
        baselines.InferentialPrivacy(),
        baselines.Wasserstein(),
        baselines.MarkovQuilt(length=length),
        baselines.ApproximateMarkovQuilt(length=length),
        baselines.TemporalBudgets(length=length),
    ]
    aged = (baselines.LaplaceDP, baselines.ExactDependentDP, baselines.BayesianDP, baselines.Wasserstein)
    return methods + ([kind(age=age) for kind in aged] if age else [])


def _every_moment(plan: Plan, length: int) -> Quantity:
    """Temporal privacy leakage of a record over this many releases, an upper bound."""
    try:
        return Quantity(Accountant(plan).every_moment(length), f"temporal privacy leakage over {length} releases")
    except CsdpError as error:
        return Quantity(None, f"not computed: {error}")


def _verdict(row: Row, ours: Row) -> Verdict:
    """Compare errors, if the leakage of the row is known."""
    if row.leakage.value is None or row.mse is None or ours.mse is None:
        return "not comparable"
    if abs(row.mse - ours.mse) <= TIE * max(row.mse, ours.mse):
        return "equal"
    return "BETTER" if row.mse < ours.mse else "worse"
