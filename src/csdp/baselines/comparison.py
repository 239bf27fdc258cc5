"""One table of all methods at equal secret, adversary and age: leakage of the present, lifetime leakage, error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from csdp import baselines
from csdp.accountant import Accountant
from csdp.aging import Progress
from csdp.baselines.fourier import Fourier
from csdp.baselines.laplace import AgeDP, LaplaceBaseline
from csdp.baselines.protocol import Baseline, Mechanism, Quantity, check_inputs, check_positive, check_whole
from csdp.bounds.result import as_text
from csdp.chain import Model
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.planning import EVENT_LIMIT, find_plan
from csdp.planning.curves import SMALLEST_LEVEL, Curves, largest_level, least_level
from csdp.queries import Query

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Comparison", "Row", "compare"]
#: Paths up to which the window of the Fourier baseline may grow, so that its leakage is exact.
_WINDOW_PATHS = 4096


Verdict = Literal["ours", "same release", "equal", "worse", "BETTER", "misses target", "not comparable"]

#: Relative difference below which two methods count as equal.
TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method: its own guarantee, its exact leakage, and its error."""

    method: str
    name: str
    label: str  #: the kind of its guarantee
    guarantee: str
    age: int | None = None
    nominal: float | None = None  #: epsilon of its own guarantee; None where it has none or could not be run
    scale: float | None = None
    leakage: Quantity  #: of the present, one release, informed adversary
    lifetime: Quantity  #: of a record, all releases
    mse_raw: float | None = None
    mse: float | None = None  #: of the best linear estimate
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """All methods at one budget (errors are compared) or one error target (leakages are compared)."""

    rows: tuple[Row, ...]
    target: Literal["budget", "max_mse"]
    value: float
    query: str
    length: int
    no_data: float
    chain_digest: str

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name}: no such row; one of {', '.join(row.name for row in self.rows)}")

    @property
    def better(self) -> tuple[Row, ...]:
        """Rows that do better than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Rows with less error than our plan whose leakage of the present is not known."""
        mine = self["ours"].mse
        return tuple(
            row
            for row in self.rows
            if row.leakage.value is None and row.mse is not None and mine is not None and row.mse < mine
        )

    @property
    def headline(self) -> str:
        """The result for our plan, in one or two sentences."""
        what = "error" if self.target == "budget" else "leakage"
        if self.better:
            first = f"Our plan is NOT the best here: less {what} by {', '.join(row.method for row in self.better)}."
        else:
            first = f"No method that can be compared has less {what} than our plan."
        if not self.unknown:
            return first
        names = ", ".join(f"{row.method} ({_describe_bound(row.leakage)})" for row in self.unknown)
        return f"{first} Less error, but what it leaks is not known: {names}."

    @property
    def lifetime_headline(self) -> str:
        """Methods with a lower lifetime leakage than our plan, which does not protect old records."""
        mine = self["ours"].lifetime.value
        lower = [
            row.method
            for row in self.rows[1:]
            if row.name != "no-data"
            and mine is not None
            and row.lifetime.value is not None
            and row.verdict in {"equal", "worse", "BETTER"}
            and row.lifetime.value < mine * (1 - TIE)
        ]
        if not lower:
            return "No method that can be compared has a lower lifetime leakage of a record."
        return f"Over the lifetime of a record our plan tells more than: {', '.join(lower)}."

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain data."""
        return [asdict(row) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        return {
            "target": self.target,
            "value": self.value,
            "query": self.query,
            "length": self.length,
            "no_data": self.no_data,
            "chain_digest": self.chain_digest,
            "headline": self.headline,
            "lifetime_headline": self.lifetime_headline,
            "rows": self.records(),
        }

    def __rich__(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        goal = "leakage of the present at most" if self.target == "budget" else "error (linear estimate) at most"
        title = (
            f"{self.query}: every method at {goal} {self.value:g}; informed adversary, one release; lifetime over "
            f"{self.length} releases; publish nothing: error {self.no_data:.4g}"
        )
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method and kind of guarantee")
        table.add_column("age", justify="right")
        for name in ("own\nepsilon", "leakage\n(exact)", "lifetime", "error\nraw", "error\nlinear"):
            table.add_column(name, justify="right")
        table.add_column("against\nours")
        short = {"same release": "same", "not comparable": "-", "misses target": "misses"}
        for row in self.rows:
            table.add_row(
                f"{row.method}\n  {row.label}",
                "-" if row.age is None else str(row.age),
                _format_number(row.nominal),
                _format_quantity(row.leakage),
                _format_quantity(row.lifetime),
                _format_number(row.mse_raw),
                _format_number(row.mse),
                short.get(row.verdict, row.verdict),
                style={"ours": "bold", "BETTER": "bold red", "not comparable": "dim"}.get(row.verdict),
            )
        return table


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _format_quantity(quantity: Quantity) -> str:
    if quantity.value is not None:
        return f"{quantity.value:.4g}"
    return "not\ncomputed" if quantity.at_most is None else f"at most\n{as_text(quantity.at_most, 4)}"


def _describe_bound(quantity: Quantity) -> str:
    return "no bound either" if quantity.at_most is None else f"at most {as_text(quantity.at_most, 4)}"


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
        progress: called with (text, done, total).

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = compare(chain, Mean(), budget=0.2, max_age=5, length=20)
    >>> table.headline
    'No method that can be compared has less error than our plan.'
    """
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
    return task.run(progress)


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

    def run(self, progress: Progress | None) -> Comparison:
        ours, age = self._own_row()
        rows = [ours]
        methods = self._baselines(age)
        for done, baseline in enumerate(methods):
            if progress is not None:
                progress("comparing", done, len(methods))
            rows.append(self._row(baseline, ours, age))
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
            bound="exact",
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
        if isinstance(baseline, Fourier):
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
        [age] * task.chain.sequences,
        estimate="linear",
        releases=1,
        bound="exact",
        adversary="informed",
    )
    if task.target == "budget":
        level = largest_level(lambda e: curves.leakage(e).epsilon, task.value, task.event_limit)
    else:
        level = least_level(lambda e: curves.error(e).safe, task.value, task.event_limit)
    if level is None:
        what = "leakage" if task.target == "budget" else "error"
        raise InputError(f"at age {age} no noise level up to {task.event_limit:g} reaches {what} {task.value:g}")
    return level


def least_epsilon(
    error: Callable[[float], float], target: float, limit: float, *, tolerance: float = 0.02
) -> float | None:
    """Return the smallest epsilon with error <= target, within a factor 1.02: simulated errors are no more precise."""
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
