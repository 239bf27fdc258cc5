"""One table of all methods at equal secret, adversary and age: leakage of the present, lifetime leakage, error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from csdp import baselines
from csdp.accountant import Accountant
from csdp.aging import Progress
from csdp.baselines.fourier import Fourier
from csdp.baselines.fresh import Fresh
from csdp.baselines.plain import AgeDP
from csdp.baselines.protocol import Baseline, Mechanism, Quantity, checked, positive, whole
from csdp.baselines.table import TIE, Comparison, Row, Verdict
from csdp.chain import Model
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.planning import EVENT_LIMIT, find_plan
from csdp.planning.curves import SMALLEST_LEVEL, Curves, largest_level, least_level
from csdp.queries import Query

__all__ = ["Comparison", "Row", "compare"]
#: Paths up to which the Fourier baseline's window is chosen, so that its leakage is exact.
_WINDOW_PATHS = 4096


def compare(
    chain: Model,
    query: Query,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    max_age: int = 50,
    length: int = 100,
    event_limit: float = EVENT_LIMIT,
    progress: Progress | None = None,
) -> Comparison:
    """Our plan beside every baseline, at equal secret, adversary ("informed") and age.

    With `budget` every method adds just enough noise that its exact CSDP leakage of the present is within it, and
    errors are compared; with `max_mse` every method meets the error of the linear estimate, and leakages are compared.
    Nobody's noise level passes `event_limit`. Methods whose leakage is not known run at their own epsilon = budget, and
    say so. `length`: releases behind the lifetime leakage. Of a fitted chain the point estimate is compared.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = compare(chain, Mean(), budget=0.2, max_age=5, length=20)
    >>> table.headline
    'No method that can be compared has less error than our plan.'
    """
    if (max_mse is None) == (budget is None):
        which = "neither" if budget is None else "both"
        raise InputError(f"compare: {which} of max_mse and budget given; give exactly one target")
    asked = checked(chain, query)
    question = _Question(
        chain=chain.without_family(),
        query=asked,
        target="budget" if budget is not None else "max_mse",
        value=positive("max_mse", max_mse) if budget is None else positive("budget", budget),
        max_age=whole("max_age", max_age, 0),
        length=whole("length", length),
        event_limit=positive("event_limit", event_limit),
    )
    return question.answer(progress)


@dataclass(frozen=True)
class _Question:
    chain: Model
    query: Query
    target: Literal["budget", "max_mse"]
    value: float
    max_age: int
    length: int
    event_limit: float

    def answer(self, progress: Progress | None) -> Comparison:
        ours, age = self._ours()
        rows = [ours]
        asked = self._baselines(age)
        for done, baseline in enumerate(asked):
            if progress is not None:
                progress("comparing", done, len(asked))
            rows.append(self._row(baseline, ours, age))
        no_data = mse(self.chain, self.query, ages=0, epsilon_c=1.0).no_data
        rows.append(self._judged(_nothing(no_data), ours))
        digest = self.chain.digest
        return Comparison(tuple(rows), self.target, self.value, self.query.name, self.length, no_data, digest)

    def _ours(self) -> tuple[Row, int]:
        """Our plan: common age, exact certificate, error of the linear estimate."""
        target: dict[str, Any] = {self.target: self.value}
        found = find_plan(
            self.chain,
            self.query,
            max_age=self.max_age,
            estimate="linear",
            bound="exact",
            event_limit=self.event_limit,
            **target,
        )
        age = found.ages[0]
        try:
            lifetime = Quantity(Accountant(found).lifetime(self.length), f"over {self.length} releases")
        except CsdpError as error:
            lifetime = Quantity(None, f"not computed: {error}")
        raw = mse(self.chain, self.query, ages=age, epsilon_c=found.epsilon_c)
        row = Row(
            method=f"our plan (FRAN, age {age})",
            name="ours",
            label="CSDP of the present",
            guarantee="CSDP: the present, under the model, against an adversary who knows all other presents",
            age=age,
            nominal=found.leakage.epsilon,
            scale=found.sensitivity / found.epsilon_c,
            leakage=Quantity(found.leakage.epsilon, "exact"),
            lifetime=lifetime,
            mse_raw=raw.safe,
            mse=found.error.safe,
            verdict="ours",
            note=found.note,
        )
        return row, age

    def _baselines(self, age: int) -> list[Baseline]:
        """Every baseline as its authors run it; those that may read aged data also at the age of our plan."""
        w = min(10, self.length)
        chosen: dict[str, Baseline] = {
            "adp": AgeDP(age=age),
            "markov-quilt": baselines.MarkovQuilt(length=self.length),
            "markov-quilt-approx": baselines.ApproximateMarkovQuilt(length=self.length),
            "temporal-budgets": baselines.TemporalBudgets(length=self.length, allocation="uniform"),
            "fourier": self._fourier(),
            "w-event-bd": baselines.WindowDistribution(window=w),
            "w-event-ba": baselines.WindowAbsorption(window=w),
        }
        found = [chosen.get(name) or baselines.get(name) for name in baselines.names()]
        if age:
            found += [baselines.LaplaceDP(age=age), baselines.ExactDependentDP(age=age)]
            found += [baselines.BayesianDP(age=age), baselines.Wasserstein(age=age)]
        return found

    def _fourier(self) -> Baseline:
        size = self.chain.size
        longest = max((w for w in range(1, 5) if float(size) ** w <= _WINDOW_PATHS), default=4)
        long = min(longest, self.length)
        return Fourier(window=long, coefficients=min(2, long))

    def _row(self, baseline: Baseline, ours: Row, age: int) -> Row:
        own = getattr(baseline, "age", None)
        name = baseline.name if own in {None, 0} or isinstance(baseline, AgeDP) else f"{baseline.name}@{own}"
        method = baseline.title.split(" (")[0]
        if own not in {None, 0}:
            method += f", age {own}"
        if isinstance(baseline, Fourier):
            method += f", window {baseline.window}"
        try:
            mechanism, note = self._calibrated(baseline)
        except CsdpError as error:
            return self._left_out(baseline, method, name, own, str(error))
        errors = mechanism.errors()
        same = own == age and isinstance(baseline, Fresh)
        if same and age:
            note = "at this age and leakage it is the same release as ours; only its own statement differs"
        row = Row(
            method=method,
            name=name,
            label=baseline.label,
            guarantee=baseline.guarantee,
            age=own,
            nominal=mechanism.epsilon,
            scale=min(mechanism.scales),
            leakage=mechanism.leakage(),
            lifetime=mechanism.lifetime(self.length),
            mse_raw=errors.raw,
            mse=errors.linear,
            verdict="same release" if same else "equal",
            note=note,
        )
        return self._judged(row, ours)

    def _left_out(self, baseline: Baseline, method: str, name: str, own: int | None, why: str) -> Row:
        none = Quantity(None, f"not computed: {why}")
        return Row(
            method,
            name,
            baseline.label,
            baseline.guarantee,
            own,
            None,
            None,
            none,
            none,
            None,
            None,
            "not comparable",
            why,
        )

    def _judged(self, row: Row, ours: Row) -> Row:
        """Compare what is left free by the target, among rows that are known to meet it."""
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

    def _calibrated(self, baseline: Baseline) -> tuple[Mechanism, str]:
        """The baseline with just enough noise for the target, and what had to be done instead."""
        if isinstance(baseline, Fresh):
            level = _level(self, baseline.age)
            width = self.query.sensitivity(1, self.chain.value_table)
            return baseline.calibrate(self.chain, self.query, scale=width / level), ""
        return self._stream(baseline)

    def _stream(self, baseline: Baseline) -> tuple[Mechanism, str]:
        def made(epsilon: float) -> Mechanism:
            return baseline.calibrate(self.chain, self.query, epsilon=epsilon)

        if self.target == "max_mse":
            level = least_epsilon(lambda e: made(e).errors().linear, self.value, self.event_limit)
            if level is None:
                raise InputError(f"error {self.value:g} is out of reach with its epsilon up to {self.event_limit:g}")
            return made(level), ""
        if made(self.value).leakage().value is None:
            level = min(self.value, self.event_limit)
            return made(level), "leakage not computed, so it runs at its own epsilon = budget"

        def leak(epsilon: float) -> float:
            value = made(epsilon).leakage().value
            return float("inf") if value is None else value

        level = largest_level(leak, self.value, self.event_limit)
        if level is None:
            raise InputError(f"budget {self.value:g} is out of reach even with its epsilon at {SMALLEST_LEVEL:g}")
        return made(level), ""


@lru_cache(maxsize=64)
def _level(question: _Question, age: int) -> float:
    """The noise level at one age that meets the target: all Laplace releases of that age share it."""
    curves = Curves(
        question.chain,
        question.query,
        [age] * question.chain.sequences,
        estimate="linear",
        releases=1,
        bound="exact",
        adversary="informed",
    )
    if question.target == "budget":
        level = largest_level(lambda e: curves.leakage(e).epsilon, question.value, question.event_limit)
    else:
        level = least_level(lambda e: curves.error(e).safe, question.value, question.event_limit)
    if level is None:
        what = "leakage" if question.target == "budget" else "error"
        raise InputError(
            f"at age {age} no noise level up to {question.event_limit:g} reaches {what} {question.value:g}"
        )
    return level


def least_epsilon(
    error: Callable[[float], float], target: float, limit: float, *, tolerance: float = 0.02
) -> float | None:
    """The smallest epsilon with error <= target, to a fiftieth: simulated errors deserve no more digits."""
    if error(limit) > target:
        return None
    low, high = 1e-3, limit
    if error(low) <= target:
        return low
    while high > low * (1 + tolerance):
        middle = (low * high) ** 0.5
        if error(middle) <= target:
            high = middle
        else:
            low = middle
    return high


def _nothing(no_data: float) -> Row:
    """Publish the long-run expectation and read no data at all."""
    zero = Quantity(0.0, "no data is read")
    return Row(
        method="publish nothing",
        name="no-data",
        label="perfect: nothing is read",
        guarantee="the long-run expectation is published and no data is read, so nothing is told",
        age=None,
        nominal=0.0,
        scale=None,
        leakage=zero,
        lifetime=zero,
        mse_raw=no_data,
        mse=no_data,
        verdict="equal",
    )
