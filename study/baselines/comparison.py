"""One table of all methods at equal secret, adversary and age: leakage of the present, lifetime leakage, error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, overload

from csdp.accountant import Accountant
from csdp.chain import Model
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.plan import Plan
from csdp.planning import EVENT_LIMIT, find_plan
from csdp.planning.calibrate import SMALLEST_LEVEL, Curves, largest_level, least_level
from csdp.query_table import Query
from study import baselines
from study.baselines.comparison_table import TIE, Comparison, ContinualComparison, ContinualRow, Row, Verdict
from study.baselines.continual import compare_continual
from study.baselines.laplace import AgeDP, LaplaceBaseline
from study.baselines.protocol import Baseline, Mechanism, Quantity, check_inputs, check_positive, check_whole
from study.baselines.strategies import StrategyBaseline
from study.baselines.windows import Fourier

__all__ = ["Comparison", "ContinualComparison", "ContinualRow", "Row", "compare"]
#: Paths up to which the window of the Fourier baseline may grow, so that its leakage is exact.
_WINDOW_PATHS = 4096


@overload
def compare(
    chain: Model,
    query: Query | str,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    max_age: int = 50,
    length: int = 100,
    event_limit: float = EVENT_LIMIT,
    releases: Literal[1] = 1,
) -> Comparison: ...


@overload
def compare(
    chain: Model,
    query: Query | str,
    *,
    budget: float,
    max_age: int = 50,
    event_limit: float = EVENT_LIMIT,
    releases: Literal["continual"],
) -> ContinualComparison: ...


def compare(
    chain: Model,
    query: Query | str,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    max_age: int = 50,
    length: int = 100,
    event_limit: float = EVENT_LIMIT,
    releases: Literal[1, "continual"] = 1,
) -> Comparison | ContinualComparison:
    """Compare our plan with every baseline, at equal secret, adversary ("informed") and age.

    With `budget` every method adds just enough noise that its exact CSDP leakage of the present is within it, and
    errors are compared; with `max_mse` every method meets the error of the linear estimate, and leakages are compared.
    Methods whose leakage is not known run at their own epsilon = budget, with a note. For a fitted chain the point
    estimate is used.

    Args:
        chain: the model.
        query: the query.
        max_mse: target of the mean squared error of the linear estimate.
        budget: target of the leakage of the present; exactly one of the two targets is given.
        max_age: largest age of our plan.
        length: number of releases for the lifetime leakage.
        event_limit: largest noise level of any method.
        releases: 1, or "continual" for a release at every tick without end (`compare_continual`); it needs a budget.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = compare(chain, Mean(), budget=0.2, max_age=5, length=20)
    >>> table.headline.partition(".")[0]
    'No method that can be compared has less error than our plan'
    """
    if releases not in {1, "continual"}:
        raise InputError(f"releases: {releases!r} given; 1 or 'continual'")
    if releases == "continual":
        if budget is None or max_mse is not None:
            raise InputError("compare: releases='continual' compares errors at one budget; give budget, not max_mse")
        return compare_continual(chain, query, budget=budget, max_age=max_age, event_limit=event_limit)
    if (max_mse is None) == (budget is None):
        which = "neither" if budget is None else "both"
        raise InputError(f"compare: {which} of max_mse and budget given; give exactly one target")
    computation = check_inputs(chain, query)
    task = _ComparisonTask(
        chain=chain.without_family(),
        query=computation,
        target="budget" if budget is not None else "max_mse",
        value=check_positive("max_mse", max_mse) if budget is None else check_positive("budget", budget),
        max_age=check_whole("max_age", max_age, 0),
        length=check_whole("length", length),
        event_limit=check_positive("event_limit", event_limit),
    )
    return task.run()


@dataclass(frozen=True)
class _ComparisonTask:
    """The validated arguments of a comparison."""

    chain: Model
    query: Query
    target: Literal["budget", "max_mse"]
    value: float
    max_age: int
    length: int
    event_limit: float

    def run(self) -> Comparison:
        ours, age = self._own_row()
        rows = [ours]
        rows += [self._row(baseline, ours, age) for baseline in self._baselines(age)]
        no_data = mse(self.chain, self.query, ages=0, epsilon_c=1.0).no_data
        rows.append(self._with_verdict(_no_data_row(no_data), ours))
        digest = self.chain.digest
        return Comparison(tuple(rows), self.target, self.value, self.query.name, self.length, no_data, digest)

    def _own_row(self) -> tuple[Row, int]:
        """Our plan: common age, exact certificate, error of the linear estimate."""
        target: dict[str, Any] = {self.target: self.value}
        best = find_plan(
            self.chain,
            self.query,
            max_age=self.max_age,
            estimate="linear",
            event_limit=self.event_limit,
            **target,
        )
        plan = best.plan
        age = plan.ages[0]
        try:
            lifetime = Quantity(Accountant(plan).lifetime(self.length), f"over {self.length} releases")
        except CsdpError as error:
            lifetime = Quantity(None, f"not computed: {error}")
        raw = mse(self.chain, self.query, ages=age, epsilon_c=plan.epsilon_c)
        row = Row(
            method=f"our plan (FRAN, age {age})",
            name="ours",
            label="CSDP of the present",
            guarantee="CSDP: the present, under the model, against an adversary who knows all other presents",
            age=age,
            nominal=best.leakage.epsilon,
            scale=plan.sensitivity / plan.epsilon_c,
            leakage=Quantity(best.leakage.epsilon, "exact"),
            lifetime=lifetime,
            mse_raw=raw.safe,
            mse=best.error.safe,
            mse_posterior=_posterior_error(self.chain, self.query, plan),
            verdict="ours",
            note=best.note,
        )
        return row, age

    def _baselines(self, age: int) -> list[Baseline]:
        """Every baseline as published; those that can use aged data also at the age of our plan."""
        w = min(10, self.length)
        longest = max((n for n in range(1, 5) if float(self.chain.size) ** n <= _WINDOW_PATHS), default=4)
        window = min(longest, self.length)
        configured: dict[str, Baseline] = {
            "adp": AgeDP(age=age),
            "markov-quilt": baselines.MarkovQuilt(length=self.length),
            "markov-quilt-approx": baselines.ApproximateMarkovQuilt(length=self.length),
            "temporal-budgets": baselines.TemporalBudgets(length=self.length, allocation="uniform"),
            "fourier": Fourier(window=window, coefficients=min(2, window)),
            "wavelet": baselines.HaarWavelet(window=2 ** (window.bit_length() - 1)),
            # Their leakage is enumerated over many more outputs; releases without end show what they are for.
            "tree": baselines.BinaryTree(window=min(2, window)),
            "toeplitz": baselines.ToeplitzNoise(window=min(2, window)),
            "expiring": baselines.GradualExpiration(window=min(2, window)),
            "w-event-bd": baselines.WindowDistribution(window=w),
            "w-event-ba": baselines.WindowAbsorption(window=w),
        }
        methods = [configured.get(name) or baselines.get(name) for name in baselines.names()]
        if age:
            methods += [baselines.LaplaceDP(age=age), baselines.ExactDependentDP(age=age)]
            methods += [baselines.BayesianDP(age=age), baselines.Wasserstein(age=age)]
        return methods

    def _row(self, baseline: Baseline, ours: Row, age: int) -> Row:
        own = getattr(baseline, "age", None)
        name = baseline.name if own in {None, 0} or isinstance(baseline, AgeDP) else f"{baseline.name}@{own}"
        method = baseline.title.split(" (")[0]
        if own not in {None, 0}:
            method += f", age {own}"
        if isinstance(baseline, Fourier | StrategyBaseline):
            method += f", window {baseline.window}"
        about: dict[str, Any] = {
            "method": method,
            "name": name,
            "label": baseline.label,
            "guarantee": baseline.guarantee,
            "age": own,
        }
        try:
            mechanism, note = self._calibrate(baseline)
        except CsdpError as error:
            unknown = Quantity(None, f"not computed: {error}")
            return Row(**about, leakage=unknown, lifetime=unknown, verdict="not comparable", note=str(error))
        errors = mechanism.errors()
        same = own == age and isinstance(baseline, LaplaceBaseline)
        if same and age:
            note = "at this age and leakage it is the same release as ours; only its own guarantee differs"
        row = Row(
            **about,
            nominal=mechanism.epsilon,
            scale=min(mechanism.scales),
            leakage=mechanism.leakage(),
            lifetime=mechanism.lifetime(self.length),
            mse_raw=errors.raw,
            mse=errors.linear,
            mse_posterior=errors.posterior,
            verdict="same release" if same else "equal",
            note=note,
        )
        return self._with_verdict(row, ours)

    def _with_verdict(self, row: Row, ours: Row) -> Row:
        """Add the verdict: compare the quantity that is not the target, if the row is known to meet the target."""
        if row.verdict == "same release":
            return row
        mine, theirs = (ours.mse, row.mse) if self.target == "budget" else (ours.leakage.value, row.leakage.value)
        verdict: Verdict = "not comparable"
        if row.leakage.value is not None and row.mse is not None and mine is not None and theirs is not None:
            if self.target == "max_mse" and row.mse > self.value * (1 + 1e-9):
                verdict = "misses target"
            elif abs(theirs - mine) <= TIE * max(abs(mine), abs(theirs)):
                verdict = "equal"
            else:
                verdict = "BETTER" if theirs < mine else "worse"
        return replace(row, verdict=verdict)

    def _calibrate(self, baseline: Baseline) -> tuple[Mechanism, str]:
        """The baseline with just enough noise for the target, and a note where that is not possible."""
        if isinstance(baseline, LaplaceBaseline):
            scale = self.query.sensitivity(1, self.chain.value_table) / _level(self, baseline.age)
            return baseline.calibrate(self.chain, self.query, scale=scale), ""

        def mechanism(epsilon: float) -> Mechanism:
            return baseline.calibrate(self.chain, self.query, epsilon=epsilon)

        if self.target == "max_mse":
            level = least_epsilon(lambda e: mechanism(e).errors().linear, self.value, self.event_limit)
            if level is None:
                raise InputError(f"error {self.value:g} is out of reach with its epsilon up to {self.event_limit:g}")
            return mechanism(level), ""
        if mechanism(self.value).leakage().value is None:
            level = min(self.value, self.event_limit)
            return mechanism(level), "leakage not computed, so it runs at its own epsilon = budget"

        def leak(epsilon: float) -> float:
            value = mechanism(epsilon).leakage().value
            return float("inf") if value is None else value

        level = largest_level(leak, self.value, self.event_limit)
        if level is None:
            raise InputError(f"budget {self.value:g} is out of reach even with its epsilon at {SMALLEST_LEVEL:g}")
        return mechanism(level), ""


@lru_cache(maxsize=64)
def _level(task: _ComparisonTask, age: int) -> float:
    """The noise level at one age that meets the target, cached: all Laplace releases of that age share it."""
    curves = Curves(
        task.chain,
        task.query,
        (age,) * task.chain.sequences,
        estimate="linear",
        releases=1,
    )
    if task.target == "budget":
        level = largest_level(lambda e: curves.leakage(e).epsilon, task.value, task.event_limit)
    else:
        level = least_level(lambda e: curves.error(e).safe, task.value, task.event_limit)
    if level is None:
        what = "leakage" if task.target == "budget" else "error"
        raise InputError(f"at age {age} no noise level up to {task.event_limit:g} reaches {what} {task.value:g}")
    return level


def least_epsilon(error: Callable[[float], float], target: float, limit: float) -> float | None:
    """Return the smallest epsilon with error <= target, within a factor 1.02: simulated errors are no more precise."""
    if error(limit) > target:
        return None
    low, high = 1e-3, limit
    if error(low) <= target:
        return low
    while high > low * 1.02:
        middle = (low * high) ** 0.5
        if error(middle) <= target:
            high = middle
        else:
            low = middle
    return high


def _no_data_row(no_data: float) -> Row:
    """The row of publishing the long-run expectation without reading data."""
    zero = Quantity(0.0, "no data is read")
    return Row(
        method="publish nothing",
        name="no-data",
        label="perfect: nothing is read",
        guarantee="the long-run expectation is published and no data is read, so nothing leaks",
        nominal=0.0,
        leakage=zero,
        lifetime=zero,
        mse_raw=no_data,
        mse=no_data,
        verdict="equal",
    )


def _posterior_error(chain: Model, query: Query, plan: Plan) -> float | None:
    """The error of the posterior mean from one release of our plan, as for every other method."""
    sensitivity = query.sensitivity(1, chain.value_table)
    same = baselines.LaplaceDP(age=plan.ages[0]).calibrate(chain, query, scale=sensitivity / plan.epsilon_c)
    return same.errors().posterior
