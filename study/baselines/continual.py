"""All methods with a release at every tick without end, at one certified leakage of the present.

Formal guarantee behind the common certificate: if changing the snapshot of one tick from z to z', all others
fixed, changes the log-probability of everything published by at most `epsilon |f(z) - f(z')| / Delta_f`, then
all of it reveals no more about the present than noise of level epsilon on every fresh answer does, by the
accountant. Trees, correlated noise, transforms and PeGaSus with event-level epsilon have this property.

Proof: let G(x_1, ..., x_t) be the probability of the outputs, and h_t(x) its mean over pasts given x_t = x.
With phi_x(w) the mean of G over x_1, ..., x_(t-2) given x_(t-1) = w, at x_t = x, and R the backward kernel,
h_t(x) = sum_w R[x, w] phi_x(w) and phi_x <= e^(epsilon |f(x) - f(x')| / Delta_f) phi_x'. For fixed x' the
function phi_x' belongs to a G of t - 1 ticks with the same property, so by induction phi_x'(w) <= e^(b(w,
w')) phi_x'(w') with the accountant's state b of the tick before. One step of the accountant therefore bounds
h_t(x) / h_t(x').

Gradual expiration has losses that grow with age. Every running total S_t of a window is published with the
noise of all dyadic intervals that contain t, that of an interval of 2^l ticks with the rate r_l. Changing the
answer of tick j by 1 moves all totals from j on. Take any path of intervals, end to end (forwards, or
backwards with the sign turned), from the start of tick j to a place after tick t: moving their noise by as
much undoes the change in every output until t and touches none before j. So what was published until t
changes its log-probability by at most the sum of the rates on the path, and the cheapest path counts. The
largest over j is a loss g(d) that grows with the age d = t - j of a record. In the induction a snapshot of
age d then costs g(d) |f(z) - f(z')| / Delta_f: the accountant comes to rest at the last loss, and is followed
through the newest ticks with the losses that they have had so far.

Errors are those of the best linear estimate from everything published in this window of ticks and the two
before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, Literal

import numpy as np
from scipy.linalg import toeplitz

from csdp.chain import Model
from csdp.errors import CsdpError, InfeasibleError, InputError
from csdp.estimate.error import noise_variance
from csdp.estimate.moments import moments
from csdp.numbers import Floats, Indices
from csdp.planning import EVENT_LIMIT
from csdp.planning.calibrate import Curves, largest_level
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query
from study import baselines
from study.baselines.comparison import TIE
from study.baselines.streams import WARM_UP, StreamRelease, WindowBaseline, simulated_path
from study.baselines.windows import StrategyBaseline

Method = baselines.LaplaceDP | StrategyBaseline | WindowBaseline | baselines.Pegasus
#: Ticks after which running totals start again, and over which trees and transforms extend.
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
#: Growth of the noise rates of gradual expiration with the level of an interval that are tried.
_POWERS: Final = (0.0, 1.0, 4.0)


ContinualVerdict = Literal["ours", "same release", "equal", "worse", "BETTER", "not comparable"]


@dataclass(frozen=True, kw_only=True)
class ContinualRow:
    """One method: its own epsilon, the certified leakage of the present for ever, and its errors."""

    method: str
    name: str
    guarantee: str
    age: int = 0
    nominal: float | None = None  #: epsilon of its own guarantee; of our plan epsilon_c
    leakage: float | None = None  #: of the present, all releases, for ever; an upper bound
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
    no_data: float
    total_no_data: float

    def __getitem__(self, name: str) -> ContinualRow:
        return next(row for row in self.rows if row.name == name)

    @property
    def better(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of the answer of a tick than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def better_totals(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of running totals than our plan for them."""
        return tuple(row for row in self.rows if row.total_verdict == "BETTER")


def compare_continual(
    chain: Model,
    query: Query | str,
    *,
    budget: float,
    max_age: int = 50,
    window: int = WINDOW,
    event_limit: float = EVENT_LIMIT,
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

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = compare_continual(chain, Mean(), budget=0.5, max_age=1, window=8)
    >>> table["tree"].verdict, table["no-data"].verdict
    ('worse', 'worse')
    """
    # Under an environment the certificate is given the environment, and covariances are those over all of it.
    table = tabulate(query, chain, on_lattice=True)
    if len(table.outputs) != 1:
        raise InputError(f"compare: {table.name} has {len(table.outputs)} outputs; one for streams")
    return _ContinualTask(chain.without_family(), table, budget, max_age, window, event_limit).run()


def history_errors(covariance: Floats, strategy: Floats, ready: Indices, noise: Floats) -> tuple[float, float]:
    """Error of the best linear estimate of an answer and of the running total, means over the ticks of a window.

    Args:
        covariance: of an answer with that h ticks later, h = 0, 1, ... for all lags within the windows looked at.
        strategy: coefficients (k, T) of a window of answers that are published.
        ready: the tick of the window at which each is published; beyond its end where it is published later.
        noise: covariance (k, k) of the noise of the coefficients.
    """
    ticks, windows = strategy.shape[1], _BEFORE + 1
    between = toeplitz(covariance[: ticks * windows])
    whole = np.kron(np.eye(windows), strategy)
    published = np.concatenate([ready + ticks * n for n in range(windows)])
    spread = whole @ between @ whole.T + np.kron(np.eye(windows), noise)
    errors = np.zeros(2)
    first = ticks * _BEFORE
    for tick in range(first, first + ticks):
        known = published <= tick
        wanted = np.zeros((2, ticks * windows))
        wanted[0, tick] = wanted[1, first : tick + 1] = 1.0
        across = wanted @ between @ whole[known].T
        weights = np.linalg.solve(spread[np.ix_(known, known)], across.T)
        errors += np.einsum("ij,jk,ik->i", wanted, between, wanted) - np.einsum("ik,ki->i", across, weights)
    answer, total = np.maximum(errors / ticks, 0.0)
    return float(answer), float(total)


@dataclass(frozen=True)
class _ContinualTask:
    """The validated arguments of a comparison."""

    chain: Model
    query: QueryTable
    budget: float
    max_age: int
    window: int
    event_limit: float

    @cached_property
    def _covariance(self) -> Floats:
        lags = range(self.window * (_BEFORE + 1))
        sequences = self.chain.sequences
        return np.array([moments(self.chain, self.query, ages=[h] * sequences).cross[0, 0] for h in lags])

    def _errors(self, strategy: Floats, ready: Indices, noise: Floats) -> tuple[float, float]:
        return history_errors(self._covariance, strategy, ready, noise)

    def _plain_errors(self, level: float, age: int = 0) -> tuple[float, float]:
        """With noise of one level on every answer of an age."""
        each = np.eye(self.window)
        return self._errors(each, np.arange(self.window) + age, noise_variance(self.chain, self.query, level) * each)

    def run(self) -> ContinualComparison:
        no_data, total = self._errors(np.zeros((1, self.window)), np.zeros(1, dtype=np.intp), np.eye(1))
        ours, levels = self._own_rows()
        # As published, on fresh answers; sums of answers also at the ages of our plans.
        methods = [(baseline, 0) for baseline in self._baselines()]
        sums = [baseline for baseline, _ in methods if isinstance(baseline, StrategyBaseline)]
        methods += [(baseline, age) for age in sorted({row.age for row in ours} - {0}) for baseline in sums]
        rows = [self._row(baseline, age, levels.get(age)) for baseline, age in methods]
        words = "the long-run expectation is published and no data is read, so nothing leaks"
        about: dict[str, Any] = {"method": "publish nothing", "name": "no-data", "guarantee": words}
        rows.append(ContinualRow(**about, leakage=0.0, mse=no_data, total_mse=total))
        judged = (*ours, *(_with_verdicts(row, ours[0], ours[-1]) for row in rows))
        return ContinualComparison(judged, self.budget, no_data, total)

    def _own_rows(self) -> tuple[list[ContinualRow], dict[int, float]]:
        """Our plan at the best of some ages, where another is better for totals also there, and every age's level."""
        rows: list[ContinualRow] = []
        levels: dict[int, float] = {}
        for age in (age for age in _AGES if age <= self.max_age):
            curves = self._certificate(age)
            level = curves.largest_level(self.budget, self.event_limit)
            if level is None:
                continue
            levels[age] = level
            answer, total = self._plain_errors(level, age)
            certified = curves.leakage(level)
            rows.append(
                ContinualRow(
                    method=f"our plan (FRAN, age {age})",
                    name="ours",
                    guarantee="CSDP: the present, under the model, against an adversary who knows all other presents",
                    age=age,
                    nominal=level,
                    leakage=certified.epsilon,
                    mse=answer,
                    total_mse=total,
                    verdict="ours",
                    total_verdict="ours",
                )
            )
        if not rows:
            raise InfeasibleError(
                f"budget {self.budget:g} cannot be met for ever at ages up to {self.max_age}; raise one of them",
                nearest=float("nan"),
                no_data=float("nan"),
            )
        ours, totals = min(rows, key=lambda row: row.mse or 0.0), min(rows, key=lambda row: row.total_mse or 0.0)
        if totals is ours:
            return [ours], levels
        return [ours, replace(totals, name="ours-totals", method=f"{totals.method}, for totals")], levels

    def _baselines(self) -> list[Method]:
        w = self.window
        banded = [baselines.ToeplitzNoise(window=w, bands=bands) for bands in _BANDS if bands < w]
        expiring = [baselines.GradualExpiration(window=w, power=power) for power in _POWERS]
        return [
            baselines.LaplaceDP(),
            baselines.BinaryTree(window=w),
            baselines.ToeplitzNoise(window=w),
            *banded,
            *expiring,
            baselines.HaarWavelet(window=w),
            baselines.Fourier(window=w, coefficients=max(1, w // 4)),
            baselines.Pegasus(),
            baselines.WindowDistribution(window=w),
            baselines.WindowAbsorption(window=w),
        ]

    def _row(self, baseline: Method, age: int, level: float | None) -> ContinualRow:
        words, mark = _variant(baseline)
        about: dict[str, Any] = {
            "method": baseline.title.split(" (")[0] + words + (f", age {age}" if age else ""),
            "name": baseline.name + mark + (f"@{age}" if age else ""),
            "guarantee": baseline.guarantee,
            "age": age,
        }
        try:
            return self._calibrated_row(baseline, age, level, about)
        except CsdpError as error:
            return ContinualRow(**about, note=str(error))

    def _calibrated_row(self, baseline: Method, age: int, level: float | None, about: dict[str, Any]) -> ContinualRow:
        leakage: float | None
        if isinstance(baseline, WindowBaseline):
            level = self._window_level(baseline)
        if level is None:
            raise InputError(f"no epsilon of its own keeps budget {self.budget:g} for ever")
        if isinstance(baseline, WindowBaseline):
            leakage = self._bound(baseline, level)
        elif isinstance(baseline, baselines.GradualExpiration):
            level, leakage = self._expiring_level(baseline, age, level)
        else:
            leakage = self._certificate(age).leakage(level).epsilon
        if isinstance(baseline, baselines.LaplaceDP):
            error, total = self._plain_errors(level)
            return ContinualRow(**about, nominal=level, leakage=leakage, mse=error, total_mse=total)
        if isinstance(baseline, StrategyBaseline):
            strategy = baseline.calibrate(self.chain, self.query, epsilon=level)
            error, total = self._errors(strategy.strategy, strategy.ready + age, strategy.noise_covariance)
            return ContinualRow(**about, nominal=strategy.epsilon, leakage=leakage, mse=error, total_mse=total)
        error = self._simulated_error(baseline.calibrate(self.chain, self.query, epsilon=level))
        return ContinualRow(**about, nominal=level, leakage=leakage, mse=error, note="error simulated")

    def _certificate(self, age: int) -> Curves:
        """Certified leakages of noise on the answers of an age, for ever; computed once for each level."""
        if age not in self._certificates:
            self._certificates[age] = Curves(
                self.chain,
                self.query,
                (age,) * self.chain.sequences,
                estimate="linear",
                releases="continual",
            )
        return self._certificates[age]

    @cached_property
    def _certificates(self) -> dict[int, Curves]:
        return {}

    def _bound(self, baseline: WindowBaseline, epsilon: float) -> float | None:
        return baseline.calibrate(self.chain, self.query, epsilon=epsilon).leakage().at_most

    def _window_level(self, baseline: WindowBaseline) -> float | None:
        """The largest epsilon of w-event privacy whose proven bound keeps the budget."""

        def leakage(epsilon: float) -> float:
            most = self._bound(baseline, epsilon)
            return float("inf") if most is None else most

        return largest_level(leakage, self.budget, self.event_limit, tolerance=1e-3)

    def _expiring_level(self, baseline: baselines.GradualExpiration, age: int, level: float) -> tuple[float, float]:
        """The largest epsilon in the end that keeps the budget, and what is certified there.

        At least the level that noise on every answer may have: what a record costs while it is young is less.
        """
        certify = cache(lambda e: baseline.calibrate(self.chain, self.query, epsilon=e).certify(age))
        largest = largest_level(certify, self.budget, self.event_limit, start=level, tolerance=1e-3)
        return (
            (level, self._certificate(age).leakage(level).epsilon) if largest is None else (largest, certify(largest))
        )

    def _simulated_error(self, mechanism: StreamRelease) -> float:
        """Of the best linear function of the last outputs, fitted on one half of a simulated path for the other."""
        states = simulated_path(self.chain)
        truth = mechanism.stream.answers(states)[:, 0]
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


def _variant(baseline: Method) -> tuple[str, str]:
    """What tells rows of one method apart, in words and as a mark of its name."""
    if isinstance(baseline, baselines.ToeplitzNoise) and baseline.bands:
        return f", {baseline.bands} bands", f"-{baseline.bands}"
    if isinstance(baseline, baselines.GradualExpiration) and baseline.power:
        return f", power {baseline.power:g}", f"-{baseline.power:g}"
    return "", ""


def _with_verdicts(row: ContinualRow, ours: ContinualRow, totals: ContinualRow) -> ContinualRow:
    """Add the verdicts, against our plan and our plan for totals; what is not certified cannot be compared."""
    known = row.leakage is not None
    pairs = ((row.mse, ours.mse, ours.age), (row.total_mse, totals.total_mse, totals.age))
    verdicts: list[ContinualVerdict] = []
    for theirs, mine, age in pairs:
        if not known or theirs is None or mine is None:
            verdicts.append("not comparable")
        elif row.name == "laplace" and age == 0:
            verdicts.append("same release")
        elif abs(theirs - mine) <= (_SIMULATED_TIE if row.note else TIE) * max(theirs, mine):
            verdicts.append("equal")
        else:
            verdicts.append("BETTER" if theirs < mine else "worse")
    return ContinualRow(**{**vars(row), "verdict": verdicts[0], "total_verdict": verdicts[1]})
