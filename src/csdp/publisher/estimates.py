"""Estimates at the gate: from what the ledger has published, so that a restart gives the same ones.

Everything here is post-processing of published numbers. It costs no privacy, and a tick that is charged already is
never lost for want of an estimate.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

from csdp.chain import Model
from csdp.errors import CsdpError, CsdpWarning, InputError, LedgerError
from csdp.estimate import (
    Estimated,
    Estimator,
    HistoryEstimator,
    LearnedEstimator,
    LinearEstimator,
    Observation,
    learn_estimator,
    linear_estimator,
    model_estimator,
)
from csdp.estimate.history import has_history
from csdp.estimate.result import LEVEL, About, check_about
from csdp.fran import Output
from csdp.ledger import Ledger, Published
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher.sources import published_bounds, true_answers

#: Outputs up to which a release carries an estimate.
ESTIMATED_OUTPUTS = 256
_DAY = 86_400
#: Estimators that hand what they are given to nobody.
_BUILT_IN = (HistoryEstimator, LearnedEstimator, LinearEstimator)


def plan_estimator(plan: Plan, *, about: About = "now", level: float = LEVEL) -> Estimator | None:
    """The estimator that a publisher uses where none is given: from the last releases, by the moments of the model.

    From the newest release alone if ages differ; None if the moments are unknown or the outputs too many. Of readings
    the model has only the values of their states: estimates then have no standard error and no band
    (`learn_from_past` gives them both).

    Args:
        plan: what is published.
        about: "now" to estimate the present answer, "then" that of the time of the readings.
        level: share of the truths that the band is to hold.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]]), Mean(), ages=1, epsilon_c=2.0)
    >>> estimator = plan_estimator(plan)
    >>> estimator.kind, estimator.expected(plan.noise_variance).in_words
    ('history', 'removes 35.4 % of the squared error of guessing the usual value')
    """
    check_about(about)
    return _estimator_by_model(plan, plan.model, about, level)


@lru_cache(maxsize=16)
def _estimator_by_model(plan: Plan, model: Model, about: About, level: float) -> Estimator | None:
    """By a model that is part of the key: plans whose families differ in the order of their members are equal."""
    if len(plan.query.outputs) > ESTIMATED_OUTPUTS:
        return None
    options: dict[str, Any] = {"about": about, "level": level, "bounds": published_bounds(plan)}
    made: HistoryEstimator | LinearEstimator
    try:
        if has_history(model, plan.ages):
            made = model_estimator(model, plan.query, age=plan.max_age, **options)
        else:
            made = linear_estimator(model, plan.query, ages=plan.ages, **options)
    except CsdpError:
        return None
    return replace(made, plan_digest=plan.digest)


def learn_from_past(
    plan: Plan, past: Panel, *, period: int | None = None, about: About = "now", level: float = LEVEL
) -> LearnedEstimator:
    """Learn the estimator of a plan on a public past, and check it on the end of that past.

    Args:
        plan: what is published; of one common age.
        past: public readings, on the grid of ticks that is published on.
        period: ticks after which what is usual repeats; by default a day where the past has timestamps, else the
            period of the model's clock, if it has one.
        about: "now" to estimate the present answer, "then" that of the time of the readings.
        level: share of the truths that a band is to hold.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.95, 0.05], [0.05, 0.95]])
    >>> plan = Plan(chain, Mean(), ages=0, epsilon_c=2.0)
    >>> learned = learn_from_past(plan, Panel.from_states(chain.simulate(600, seed=1)))
    >>> learned.kind, learned.usefulness > 0.4
    ('history', True)
    """
    if len(set(plan.ages)) > 1:
        raise InputError("estimate: the plan has several ages; an estimate is learned for one common age")
    learned = learn_estimator(
        true_answers(plan, past),
        age=plan.max_age,
        noise=plan.noise_variance,
        period=_default_period(plan, past) if period is None else period,
        start=int(past.ticks[0]) if len(past) else 0,
        about=about,
        level=level,
        bounds=published_bounds(plan),
    )
    return replace(learned, plan_digest=plan.digest)


def check_estimator(plan: Plan, estimator: Estimator | None) -> None:
    """Refuse an estimator that does not fit a plan, or was made for another one or for none.

    A custom estimator without a `plan_digest` may be used for any plan; those of csdp always belong to one.
    """
    if estimator is None:
        return
    if not isinstance(estimator, Estimator):
        raise InputError(
            f"estimator: {type(estimator).__name__} given; an estimator as csdp.learn_from_past makes it, or an object "
            "with the methods of csdp.estimate.Estimator"
        )
    estimator.check(plan.ages, len(plan.query.outputs))
    check_about(estimator.about)
    own = getattr(estimator, "plan_digest", None)
    if own != plan.digest and (own is not None or isinstance(estimator, _BUILT_IN)):
        made = "no plan" if own is None else f"the plan {str(own)[:12]}"
        raise InputError(
            f"estimator: made for {made}, but the plan {plan.digest[:12]} is published, so that its bands and errors "
            "would be those of other numbers. Make it for this plan with csdp.learn_from_past(plan, past) (--past) or "
            "csdp.plan_estimator(plan), or leave it out"
        )


def _default_period(plan: Plan, past: Panel) -> int | None:
    """Ticks of a day, or of the model's clock, where the past has several of them."""
    clock = plan.model.phases
    return _ticks_of_a_day(past) or (clock if clock > 1 and 8 * clock <= len(past) else None)


def _ticks_of_a_day(panel: Panel) -> int | None:
    """Ticks of a day, where the past has timestamps and at least eight days of them."""
    if panel.times.dtype.kind != "M" or not panel.step or _DAY % panel.step:
        return None
    period = _DAY // panel.step
    return period if period > 1 and 8 * period <= len(panel) else None


class ReleaseEstimates:
    """Adds estimates to the outputs of one dataset.

    Args:
        plan: what is published.
        dataset: its name in the ledger.
        ledger: where the releases before are.
        estimator: the estimator; None for that of the plan.
    """

    def __init__(self, plan: Plan, *, dataset: str, ledger: Ledger, estimator: Estimator | None) -> None:
        self._plan, self._dataset, self._ledger, self._given = plan, dataset, ledger, estimator

    @cached_property
    def estimator(self) -> Estimator | None:
        """The estimator that is used; None where there is none."""
        return plan_estimator(self._plan) if self._given is None else self._given

    def add(
        self,
        outputs: Sequence[tuple[int, Output]],
        published: Sequence[Published] = (),
    ) -> list[Output]:
        """The outputs of ticks, in order, with estimates from themselves and from what was published before.

        `published`: of the same batch, recorded earlier.
        """
        estimator = self.estimator
        if estimator is None or not outputs:
            return [output for _, output in outputs]
        before = self._recorded_before(outputs[0][0], estimator.memory - 1)
        seen = {one.tick: one for earlier in (before, published) for one in self._observations(earlier)}
        finished = []
        for tick, output in outputs:
            seen[tick] = self._observe(tick, output)
            last = [seen[at] for at in sorted(seen) if at <= tick][-estimator.memory :]
            finished.append(_with_estimate(estimator, last, output))
        return finished

    def _recorded_before(self, tick: int, limit: int) -> list[Published]:
        """The last releases before a tick; none where the ledger cannot be read at the moment."""
        try:
            return self._ledger.outputs(self._dataset, query=self._plan.query.name, before=tick, limit=limit)
        except LedgerError:
            return []

    def _observe(self, tick: int, output: Output) -> Observation:
        noise = self._plan.at_tick(tick).noise_variance if output.noise is None else output.noise
        return Observation(tick, output.values, self._plan.max_age, noise, output.stale)

    def _observations(self, published: Iterable[Published]) -> Iterable[Observation]:
        """Recorded releases of the same numbers; those of an earlier plan have the age and the noise of that plan."""
        for one in published:
            output = one.output
            noise = output.get("noise")
            if one.plan_digest not in self._plans or len(output["values"]) != len(self._plan.query.outputs):
                continue
            if noise is None:  # recorded before its noise was
                if one.plan_digest != self._plan.digest:
                    continue
                noise = self._plan.at_tick(one.tick).noise_variance
            age = output["ages"] if isinstance(output["ages"], int) else max(output["ages"])
            yield Observation(one.tick, tuple(output["values"]), age, noise, output["stale"])

    @cached_property
    def _plans(self) -> set[str]:
        """The digests of the plans of this dataset whose query computes the same."""
        same = self._plan.query.fingerprint
        history = self._ledger.history(self._dataset)
        return {self._plan.digest} | {
            terms.plan_digest for terms in history if json.loads(terms.plan_json).get("computation") == same
        }


def _with_estimate(estimator: Estimator, last: Sequence[Observation], output: Output) -> Output:
    """An output with its estimate; without one, and with a warning, where the estimator fails."""
    try:
        estimated = estimator.of(tuple(last))  # what is handed to somebody's code cannot be changed by it
        _check_estimated(estimated, len(output.values), banded=estimator.level is not None)
        rows = (estimated.estimate, estimated.standard_error, estimated.low, estimated.high)
        estimate, standard_error, low, high = (tuple(map(float, row)) for row in rows)
        level = None if estimator.level is None else float(estimator.level)
        no_data = None if estimated.no_data is None else float(estimated.no_data)
        about = estimator.about
        check_about(about)
    except Exception as error:  # whoever wrote it: the tick is charged, and its values are published without
        name = type(error).__name__
        warnings.warn(f"no estimate of tick {last[-1].tick}: the estimator failed ({name})", CsdpWarning, stacklevel=2)
        return output
    return replace(
        output,
        estimate=estimate,
        standard_error=standard_error,
        low=low,
        high=high,
        level=level,
        about=about,
        no_data=no_data,
    )


def _check_estimated(estimated: Estimated, outputs: int, *, banded: bool) -> None:
    """Refuse an estimate that is not one finite number for each output, inside its band if it has one."""
    band = (estimated.standard_error, estimated.low, estimated.high)
    rows = (estimated.estimate, *band) if banded else (estimated.estimate,)
    if any(len(row) != outputs or not all(map(math.isfinite, row)) for row in rows):
        raise InputError(f"estimator: not one finite number for each of {outputs} outputs")
    if not banded:
        if any(band) or estimated.no_data is not None:
            raise InputError("estimator: a band or an error without a level")
        return
    if not all(a <= b <= c for a, b, c in zip(estimated.low, estimated.estimate, estimated.high, strict=True)):
        raise InputError("estimator: an estimate outside of its band")
    if estimated.no_data is None or not math.isfinite(estimated.no_data):
        raise InputError("estimator: the squared error of guessing the usual value is not finite")
