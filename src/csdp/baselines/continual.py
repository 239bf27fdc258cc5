"""All methods with a release at every tick without end, at one certified leakage of the present.

Formal guarantee behind the common certificate: if changing the snapshot of one tick from z to z', all others fixed,
changes the log-probability of everything published by at most `epsilon |f(z) - f(z')| / Delta_f`, then all of it tells
no more about the present than noise of level epsilon on every fresh answer does, by the accountant. Given the present,
the probability is a mean over pasts of a function with that property, so the accountant's induction over ticks applies
(docs/baselines.md). Trees, correlated noise, transforms and PeGaSus with event-level epsilon have it.

Errors are those of the best linear estimate from everything published in this window of ticks and the two before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from scipy.linalg import toeplitz

from csdp import baselines
from csdp.aging import Progress
from csdp.arrays import Floats, Indices
from csdp.baselines.comparison_table import TIE, format_number, format_quantity
from csdp.baselines.protocol import Baseline, Mechanism, Quantity, check_inputs, check_positive, check_whole
from csdp.baselines.strategies import StrategyBaseline, StrategyRelease
from csdp.baselines.streams import WARM_UP, AnswerStream, StreamRelease, simulated_path
from csdp.chain import Model
from csdp.computation import Computation, verify_query
from csdp.errors import CsdpError, InfeasibleError, InputError
from csdp.estimate import moments
from csdp.estimate.error import noise_variance
from csdp.planning import EVENT_LIMIT
from csdp.planning.curves import Curves, largest_level
from csdp.queries import Query

if TYPE_CHECKING:
    from rich.table import Table

#: Ticks after which running totals begin anew, and over which trees and transforms extend.
WINDOW: Final = 16
#: Windows before the present one that an estimate looks back on.
_BEFORE: Final = 2
#: Ages that are tried for our plan.
_AGES: Final = (0, 1, 2, 4, 8)
#: Outputs that the estimate from a simulated stream looks back on.
_MEMORY: Final = 8
#: Relative difference below which a simulated error counts as equal.
_SIMULATED_TIE: Final = 0.01
#: Bandwidths of correlated noise that are tried, beside the whole window.
_BANDS: Final = (2, 4)

ContinualVerdict = Literal["ours", "same release", "equal", "worse", "BETTER", "not comparable"]


@dataclass(frozen=True, kw_only=True)
class ContinualRow:
    """One method: its own epsilon, what it certifiably tells of the present for ever, and its errors."""

    method: str
    name: str
    guarantee: str
    age: int = 0
    nominal: float | None = None  #: epsilon of its own guarantee; of our plan epsilon_c
    leakage: Quantity  #: of the present, all releases, for ever
    mse: float | None = None  #: of the answer of a tick
    total_mse: float | None = None  #: of the running total, the mean over the ticks of a window
    verdict: ContinualVerdict = "not comparable"  #: on answers
    total_verdict: ContinualVerdict = "not comparable"  #: on running totals
    note: str = ""


@dataclass(frozen=True)
class ContinualComparison:
    """All methods at one certified leakage of the present, for ever."""

    rows: tuple[ContinualRow, ...]
    budget: float
    query: str
    window: int
    no_data: float
    total_no_data: float
    chain_digest: str

    def __getitem__(self, name: str) -> ContinualRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name}: no such row; one of {', '.join(row.name for row in self.rows)}")

    @property
    def better(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of the answer of a tick than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def better_totals(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of running totals than our plan."""
        return tuple(row for row in self.rows if row.total_verdict == "BETTER")

    @property
    def headline(self) -> str:
        """The result for our plan, in two sentences."""
        words = []
        for what, rows in (("answers of a tick", self.better), ("running totals", self.better_totals)):
            if rows:
                words.append(f"On {what} our plan is NOT the best: less error by {', '.join(r.method for r in rows)}.")
            else:
                words.append(f"On {what} no method that can be compared has less error than our plan.")
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        content = {
            name: getattr(self, name)
            for name in ("budget", "query", "window", "no_data", "total_no_data", "chain_digest", "headline")
        }
        return {"releases": "continual", **content, "rows": [asdict(row) for row in self.rows]}

    def __rich__(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        title = (
            f"{self.query}: a release at every tick without end, certified leakage of the present at most "
            f"{self.budget:g}; best linear estimates from the history; publish nothing: error {self.no_data:.4g}, "
            f"running total over up to {self.window} ticks {self.total_no_data:.4g}"
        )
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method")
        for name in ("age", "own\nepsilon", "certified", "error", "share", "total:\nerror", "share"):
            table.add_column(name, justify="right")
        table.add_column("against ours\n(answer, total)")
        for row in self.rows:
            table.add_row(
                row.method,
                str(row.age),
                format_number(row.nominal),
                format_quantity(row.leakage),
                format_number(row.mse),
                format_share(row.mse, self.no_data),
                format_number(row.total_mse),
                format_share(row.total_mse, self.total_no_data),
                f"{row.verdict}, {row.total_verdict}" if row.verdict != "ours" else "ours",
                style={"ours": "bold", "BETTER": "bold red"}.get(row.verdict),
            )
        return table


def format_share(value: float | None, whole: float) -> str:
    """An error as a share of that of publishing nothing."""
    return "-" if value is None else f"{value / whole:.1%}"


def compare_continual(
    chain: Model,
    query: Query,
    *,
    budget: float,
    max_age: int = 50,
    window: int = WINDOW,
    event_limit: float = EVENT_LIMIT,
    progress: Progress | None = None,
) -> ContinualComparison:
    """Compare our plan with event-level methods, a release at every tick for ever, at one certified leakage.

    Every method gets the largest epsilon at which what all its outputs tell about the present is certified to stay
    within the budget: by the accountant where changing one tick costs in proportion to the change of the answer, else
    by its proven bound. Errors are of the best linear estimate from what was published, of the answer of a tick and of
    the running total since the window began, as means over the ticks of a window.

    Args:
        chain: the model; of a fitted chain the point estimate is used.
        query: the query, with one output.
        budget: the certified leakage of the present, for ever.
        max_age: largest age of our plan.
        window: ticks of trees, transforms and running totals; a power of two.
        event_limit: largest noise level of any method.
        progress: called with (text, done, total).

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = compare_continual(chain, Mean(), budget=0.5, max_age=1, window=8)
    >>> table["tree"].verdict, table["no-data"].verdict
    ('worse', 'worse')
    """
    # Under an environment the certificate is given the environment, and covariances are those over all of it.
    computation = check_inputs(chain, query) if chain.has_one_kernel else verify_query(query, chain, on_lattice=True)
    if len(computation.outputs) != 1:
        raise InputError(f"compare: {computation.name} has {len(computation.outputs)} outputs; one for 'continual'")
    task = _ContinualTask(
        chain.without_family(),
        computation,
        check_positive("budget", budget),
        check_whole("max_age", max_age, 0),
        check_whole("window", window),
        check_positive("event_limit", event_limit),
    )
    return task.run(progress)


def history_errors(covariance: Floats, strategy: Floats, ready: Indices, noise: float) -> tuple[float, float]:
    """Error of the best linear estimate of an answer and of the running total, means over the ticks of a window.

    Args:
        covariance: of an answer with that h ticks later, h = 0, 1, ... for all lags within the windows looked at.
        strategy: coefficients (k, T) of a window of answers that are published, each with noise of its own.
        ready: the tick of the window at which each is published; beyond its end where it is published later.
        noise: variance of the noise of a coefficient.
    """
    ticks, windows = strategy.shape[1], _BEFORE + 1
    between = toeplitz(covariance[: ticks * windows])
    whole = np.kron(np.eye(windows), strategy)
    published = np.concatenate([ready + ticks * n for n in range(windows)])
    spread = whole @ between @ whole.T + noise * np.eye(len(whole))
    errors = np.zeros(2)
    first = ticks * _BEFORE
    for tick in range(first, first + ticks):
        known = published <= tick
        wanted = np.zeros((2, ticks * windows))
        wanted[0, tick] = wanted[1, first : tick + 1] = 1.0
        across = wanted @ between @ whole[known].T
        told = np.linalg.solve(spread[np.ix_(known, known)], across.T)
        errors += np.einsum("ij,jk,ik->i", wanted, between, wanted) - np.einsum("ik,ki->i", across, told)
    answer, total = np.maximum(errors / ticks, 0.0)
    return float(answer), float(total)


@dataclass(frozen=True)
class _ContinualTask:
    """The validated arguments of a comparison."""

    chain: Model
    query: Computation
    budget: float
    max_age: int
    window: int
    event_limit: float

    @cached_property
    def _covariance(self) -> Floats:
        lags = range(self.window * (_BEFORE + 1))
        sequences = self.chain.sequences
        return np.array([moments(self.chain, self.query, ages=[h] * sequences).cross[0, 0] for h in lags])

    def _errors(self, strategy: Floats, ready: Indices, noise: float) -> tuple[float, float]:
        return history_errors(self._covariance, strategy, ready, noise)

    def run(self, progress: Progress | None) -> ContinualComparison:
        no_data, total = self._errors(np.zeros((1, self.window)), np.zeros(1, dtype=np.intp), 1.0)
        ours, levels = self._own_rows()
        rows = [ours]
        # As published, on fresh answers; sums of answers also at the age of our plan.
        methods = [(baseline, 0) for baseline in self._baselines()]
        methods += [
            (baseline, ours.age) for baseline, _ in methods if ours.age and isinstance(baseline, StrategyBaseline)
        ]
        for done, (baseline, age) in enumerate(methods):
            if progress is not None:
                progress("comparing", done, len(methods))
            rows.append(self._row(baseline, age, levels.get(age)))
        nothing = Quantity(0.0, "no data is read")
        words = "the long-run expectation is published and no data is read, so nothing leaks"
        about: dict[str, Any] = {"method": "publish nothing", "name": "no-data", "guarantee": words}
        rows.append(ContinualRow(**about, leakage=nothing, mse=no_data, total_mse=total))
        judged = (ours, *(_with_verdicts(row, ours) for row in rows[1:]))
        return ContinualComparison(judged, self.budget, self.query.name, self.window, no_data, total, self.chain.digest)

    def _own_rows(self) -> tuple[ContinualRow, dict[int, float]]:
        """Our plan at the best of some ages, and the noise level that every age allows, if any does."""
        found: list[ContinualRow] = []
        levels: dict[int, float] = {}
        for age in (age for age in _AGES if age <= self.max_age):
            curves = self._certificate(age)
            level = curves.largest_level(self.budget, self.event_limit)
            if level is None:
                continue
            levels[age] = level
            every = np.arange(self.window)
            answer, total = self._errors(
                np.eye(self.window), every + age, noise_variance(self.chain, self.query, level)
            )
            certified = curves.leakage(level)
            found.append(
                ContinualRow(
                    method=f"our plan (FRAN, age {age})",
                    name="ours",
                    guarantee="CSDP: the present, under the model, against an adversary who knows all other presents",
                    age=age,
                    nominal=level,
                    leakage=Quantity(certified.epsilon, f"certified for ever ({certified.bound})"),
                    mse=answer,
                    total_mse=total,
                    verdict="ours",
                    total_verdict="ours",
                )
            )
        if not found:
            raise InfeasibleError(
                f"budget {self.budget:g} cannot be met for ever at ages up to {self.max_age}; raise one of them",
                nearest=float("nan"),
                no_data=float("nan"),
            )
        return min(found, key=lambda row: row.mse or 0.0), levels

    def _baselines(self) -> list[Baseline]:
        w = self.window
        banded = [baselines.ToeplitzNoise(window=w, bands=bands) for bands in _BANDS if bands < w]
        return [
            baselines.LaplaceDP(),
            baselines.BinaryTree(window=w),
            baselines.ToeplitzNoise(window=w),
            *banded,
            baselines.HaarWavelet(window=w),
            baselines.Fourier(window=w, coefficients=max(1, w // 4)),
            baselines.Pegasus(),
            baselines.WindowDistribution(window=w),
            baselines.WindowAbsorption(window=w),
        ]

    def _row(self, baseline: Baseline, age: int, level: float | None) -> ContinualRow:
        bands = getattr(baseline, "bands", None)
        about: dict[str, Any] = {
            "method": baseline.title.split(" (")[0]
            + (f", {bands} bands" if bands else "")
            + (f", age {age}" if age else ""),
            "name": baseline.name + (f"-{bands}" if bands else "") + (f"@{age}" if age else ""),
            "guarantee": baseline.guarantee,
            "age": age,
        }
        try:
            return self._calibrated_row(baseline, age, level, about)
        except CsdpError as error:
            return ContinualRow(**about, leakage=Quantity(None, f"not computed: {error}"), note=str(error))

    def _calibrated_row(self, baseline: Baseline, age: int, level: float | None, about: dict[str, Any]) -> ContinualRow:
        by_window = isinstance(baseline, baselines.WindowDistribution | baselines.WindowAbsorption)
        level = self._window_level(baseline) if by_window else level
        if level is None:
            raise InputError(f"no epsilon of its own keeps budget {self.budget:g} for ever")
        if by_window:
            most = baseline.calibrate(self.chain, self.query, epsilon=level).leakage().at_most
            leakage = Quantity(None, "proven bound of epsilon-DP in every window", most)
        else:
            leakage = Quantity(
                None, "the accountant, as for noise on every answer", self._certificate(age).leakage(level).epsilon
            )
        errors: tuple[float, float | None]
        mechanism: Mechanism | None = None
        if isinstance(baseline, StrategyBaseline):
            mechanism = baseline.calibrate_stream(AnswerStream(self.chain, self.query), epsilon=level)
        elif not isinstance(baseline, baselines.LaplaceDP):
            mechanism = baseline.calibrate(self.chain, self.query, epsilon=level)
        if isinstance(mechanism, StrategyRelease):
            errors = self._errors(mechanism.strategy, mechanism.ready + age, mechanism.noise_variance)
        elif isinstance(mechanism, StreamRelease):
            errors, about = (self._simulated_error(mechanism), None), {**about, "note": "error simulated"}
        else:
            noise = noise_variance(self.chain, self.query, level)
            errors = self._errors(np.eye(self.window), np.arange(self.window), noise)
        nominal = level if mechanism is None else mechanism.epsilon
        return ContinualRow(**about, nominal=nominal, leakage=leakage, mse=errors[0], total_mse=errors[1])

    def _certificate(self, age: int) -> Curves:
        """Certified leakages of noise on the answers of an age, for ever; computed once for each level."""
        if age not in self._certificates:
            self._certificates[age] = Curves(
                self.chain,
                self.query,
                [age] * self.chain.sequences,
                estimate="linear",
                releases="continual",
                bound="auto",
                adversary="informed",
            )
        return self._certificates[age]

    @cached_property
    def _certificates(self) -> dict[int, Curves]:
        return {}

    def _window_level(self, baseline: Baseline) -> float | None:
        """The largest epsilon of w-event privacy whose proven bound keeps the budget."""

        def told(epsilon: float) -> float:
            most = baseline.calibrate(self.chain, self.query, epsilon=epsilon).leakage().at_most
            return float("inf") if most is None else most

        return largest_level(told, self.budget, self.event_limit, tolerance=1e-3)

    def _simulated_error(self, mechanism: StreamRelease) -> float:
        """Of the best linear function of the last outputs, fitted on one half of a simulated path for the other."""
        states = simulated_path(self.chain)
        truth = AnswerStream(self.chain, self.query).answers(states)[:, 0]
        out = mechanism.simulate(states)[:, 0]
        last = [out[WARM_UP - n : out.size - n] for n in range(_MEMORY)]
        design = np.column_stack([np.ones(truth.size - WARM_UP), *last])
        wanted = truth[WARM_UP:]
        half = wanted.size // 2
        left = []
        for fitted, held in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            weights = np.linalg.lstsq(design[fitted], wanted[fitted], rcond=None)[0]
            left.append(wanted[held] - design[held] @ weights)
        # The variance on the path differs a little from the true one: the unexplained share is what is taken from it.
        share = float((np.concatenate(left) ** 2).mean() / wanted.var()) if wanted.var() > 0 else 1.0
        return min(1.0, share) * float(self._covariance[0])


def _with_verdicts(row: ContinualRow, ours: ContinualRow) -> ContinualRow:
    """Add the verdicts; a row whose leakage is not certified cannot be compared."""
    known = row.leakage.value is not None or row.leakage.at_most is not None
    same = row.name == "laplace" and ours.age == 0
    pairs: Sequence[tuple[float | None, float | None]] = ((row.mse, ours.mse), (row.total_mse, ours.total_mse))
    verdicts: list[ContinualVerdict] = []
    for theirs, mine in pairs:
        if not known or theirs is None or mine is None:
            verdicts.append("not comparable")
        elif same:
            verdicts.append("same release")
        elif abs(theirs - mine) <= (_SIMULATED_TIE if row.note else TIE) * max(theirs, mine):
            verdicts.append("equal")
        else:
            verdicts.append("BETTER" if theirs < mine else "worse")
    return ContinualRow(**{**vars(row), "verdict": verdicts[0], "total_verdict": verdicts[1]})
