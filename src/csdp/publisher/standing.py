"""What a dataset is published under, and where it stands: what is spent and left of the limits on record.

Answers questions and cannot publish. Tick T is published with readings of tick T - age. That they are old is a fact
about the world, which only the wall clock can enforce; where it does not, this is recorded and said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.accountant import Accountant, State
from csdp.arrays import Ints
from csdp.bounds.result import protected_words, round_up
from csdp.chain import fits_epsilon, join_fits, recorded_fits
from csdp.clock import Clock, Times, WallClock
from csdp.errors import InputError, LedgerTermsError, UncheckedModelError, UnsoundError
from csdp.ledger import DatasetState, Ledger, LedgerSummary, PrivacyLimits, Terms, TickGrid
from csdp.panel.grid import tick_seconds
from csdp.plan import ALGORITHM, Plan, check_supported

#: What the age of what is published rests on, by what the times are; "ticks" where the caller counts them.
AGE_WORDS = {
    "wall": "No tick is published before the wall clock has passed its end, so what is published is at least as old as "
    "certified, if the wall clock is right and no reading is newer than its timestamp.",
    "data": "The age is what the timestamps say: they were not compared with the wall clock.",
    "ticks": "Ages are counted in ticks and not compared with a clock: the program that pushes tick T must make sure "
    "that the readings of tick T - age are at least that old.",
}


def check_plan(plan: Plan, *, model_unchecked: bool) -> None:
    """Refuse a plan whose bound is not proven, whose noise cannot be drawn, or whose model the data do not accept."""
    if not plan.certified.sound:
        raise UnsoundError(f"bound {plan.certified.bound!r} is not proven, so it cannot publish; use bound='auto'")
    if not plan.verdict.reliable and not model_unchecked:
        raise UncheckedModelError(
            f"{plan.verdict.words} The leakage of the present may be larger than certified, so nothing was published. "
            "Use a model that its public past accepts, or publish under the event level alone, which holds under any "
            "model: model_unchecked=True"
        )
    plan.check_noise()


def check_history(ledger: Ledger, dataset: str) -> list[Terms]:
    """The terms of a dataset, oldest first; refused if this version cannot account for one of the plans."""
    history = ledger.history(dataset)
    for terms in history:
        try:
            check_supported(terms.plan_json)
        except InputError as error:
            raise LedgerTermsError(
                f"dataset {dataset!r} was published under plan {terms.plan_digest[:12]}: {error}. This version cannot "
                "account for its releases; use a new dataset name for other data"
            ) from None
    return history


def check_limits(limits: PrivacyLimits) -> PrivacyLimits:
    """Limits as positive numbers, None where there is none."""
    checked: dict[str, float | None] = {}
    for name, value in vars(limits).items():
        checked[name] = None if value is None else float(value)
        if value is not None and not float(value) > 0:
            raise InputError(f"{name}: {value} given; a limit is a positive number (or None for no limit)")
    return PrivacyLimits(**checked)


@runtime_checkable
class TimedReadings(Protocol):
    """Readings that know the times of their ticks, such as a panel or an engine."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, in order: timestamps, or numbers."""

    @property
    def step(self) -> int:
        """Time from one tick to the next, in seconds where times are timestamps."""


@dataclass(frozen=True)
class TickTimes:
    """What the ticks of a publisher are: times of the wall clock, times in the data, or counted by the caller."""

    times: Times | None
    grid: TickGrid
    wall: WallClock

    def __post_init__(self) -> None:
        if self.times not in {None, "wall", "data"}:
            raise InputError(f"times: {self.times!r} given; 'wall', 'data', or None where the caller counts ticks")
        if self.times == "wall" and self.grid.step is None:
            raise InputError("times: 'wall' given without time_step; say how many seconds a tick has")

    @property
    def kind(self) -> str:
        """What the times are, as it is recorded."""
        return self.times or "ticks"

    def newest_ended(self) -> int | None:
        """The last tick whose end the wall clock has passed; None where ticks are not times of it."""
        if self.times != "wall":
            return None
        step, origin = self.grid
        assert step is not None
        return (math.floor(self.wall.now()) - origin) // step - 1

    def check_clock(self, clock: Clock) -> None:
        """Refuse the clock of a stream that counts ticks in another way."""
        if self.grid != (clock.step, clock.origin):
            raise InputError(
                f"clock: step {clock.step} and origin {clock.origin} given, but the publisher has (step, origin) "
                f"{tuple(self.grid)}; give it time_step and time_origin of the clock, so that the ledger records them"
            )
        if self.times != clock.times:
            raise InputError(
                f"clock: times {clock.times!r} given, but the publisher has {self.times!r}; give it times of the "
                "clock, so that the ledger records what the ages rest on"
            )

    def check_plan(self, plan: Plan) -> None:
        """Refuse a chain that was fitted to ticks of another length.

        A chain that is fitted to hours says nothing of minutes: the past would seem to fade sixty times faster.
        """
        if self.times is not None or self.grid.step not in {None, 1}:
            _check_step(plan, self.grid.step, "time_step")

    def check_source(self, source: object, plan: Plan, *, begun: bool) -> None:
        """Refuse timestamps on another grid, and those from the future where `times` does not say what they are.

        A dataset that has `begun` without a step goes on without one.
        """
        if not isinstance(source, TimedReadings) or source.times.dtype.kind != "M" or not source.times.size:
            return
        ticks = getattr(source, "ticks", None)
        if tick_seconds(source.times, source.step, ticks) is not None:
            self._check_grid(source, ticks, plan, begun=begun)
        if self.times is not None:
            return
        ends = source.times[-1:].astype("datetime64[s]").astype(np.int64) + source.step
        if (ends > self.wall.now()).any():
            raise InputError(
                "source: its newest timestamps lie beyond the wall clock; give times='wall' to leave these ticks out, "
                "or times='data' where times are simulated, which is recorded and said in every certificate"
            )

    def _check_grid(self, source: TimedReadings, ticks: Ints | None, plan: Plan, *, begun: bool) -> None:
        _check_step(plan, source.step, "source: step")
        step, origin = self.grid
        if step is None and not begun:
            raise InputError(
                f"source: its ticks are timestamps {source.step} seconds apart, and the publisher has no time_step; "
                "make it with this one, so that the ledger records it and data of another step are refused"
            )
        shifted = source.times[:1].astype("datetime64[s]") - origin
        if step is not None and (source.step != step or tick_seconds(shifted, step, ticks) is None):
            raise InputError(
                f"source: ticks of {source.step} seconds, counted from time 0, given; the publisher has (time_step, "
                f"time_origin) {tuple(self.grid)}. The same times must have the same ticks: read the data with "
                f"step={step}, or give the publisher the step of the data and no origin"
            )


def _check_step(plan: Plan, step: int | None, what: str) -> None:
    """Refuse ticks of another length than those that the plan's chain was fitted to."""
    records = [member.fitted for member in (plan.model, *plan.chain.members)]
    lengths = sorted({record.step for record in records if record is not None and record.step is not None} - {step})
    if lengths and step is not None:
        raise InputError(
            f"{what}: {step} given, but the chain was fitted to ticks of {lengths[0]} seconds; publish ticks of that "
            "length (--step with --resample on the command line), or fit a chain to ticks of this length"
        )


class RecordCosts:
    """Plain epsilon-DP and lifetime leakage of the record that was read most, from the recorded state.

    Args:
        accountant: of the present plan.
        fits: every private fit behind the recorded plans, with its epsilon.
    """

    def __init__(self, accountant: Accountant, *, fits: Mapping[str, float]) -> None:
        self._accountant = accountant
        self.fits = dict(fits)
        self._lifetimes: dict[tuple[int, float, bool], float] = {}

    def fit_epsilon(self, state: DatasetState) -> float:
        """What all private fits have spent on one record.

        Those of plans that came and went while this publisher was open are in the recorded state.
        """
        return fits_epsilon(join_fits(self.fits, state.fits))

    def event(self, state: DatasetState) -> float:
        """Plain epsilon-DP of the record that was read most, under this plan and earlier ones, the fits included."""
        released, fits = self.released_event(state), self.fit_epsilon(state)
        return round_up(released + fits) if fits else released

    def released_event(self, state: DatasetState) -> float:
        """The same, from releases alone."""
        own = self._accountant.event_level(state.stale) if state.releases else 0.0
        if state.earlier is None:
            return own
        return round_up(own + state.earlier.event) if state.earlier.overlap else max(own, state.earlier.event)

    def group(self, state: DatasetState) -> float:
        """Plain DP of all records of all releases, of sequences that the model ties together; each is in the fits."""
        own = self._accountant.group_level(state.releases) if state.releases else 0.0
        releases = state.releases + (state.earlier.releases if state.earlier else 0)
        released = (state.earlier.group if state.earlier else 0.0) + own
        fits = self.fit_epsilon(state)
        if not fits or math.isinf(fits):
            return fits or released
        return round_up(released + releases * self._accountant.largest_component * fits)

    def lifetime(self, state: DatasetState, limit: float | None) -> float:
        """What all releases, under this plan and earlier ones, tell of one record.

        The bound for any number of releases is used where it is within the limit; the count of releases sharpens it
        otherwise.
        """
        earlier = state.earlier
        releases = state.releases + (earlier.releases if earlier else 0)
        if not releases:
            return 0.0
        cost, overlap = (earlier.slice, earlier.overlap) if earlier else (0.0, False)
        key = (state.stale, cost, overlap)
        if key not in self._lifetimes:
            self._lifetimes[key] = self._accountant.lifetime(None, stale=state.stale, earlier=cost, overlap=overlap)
        if limit is not None and self._lifetimes[key] <= limit:
            return self._lifetimes[key]
        counted = self._accountant.lifetime(releases, stale=state.stale, earlier=cost, overlap=overlap)
        return min(self._lifetimes[key], counted)


class Standing:
    """What is spent and left of a dataset, from its ledger alone; a ledger opened with `read_only=True` will do.

    Where the recorded plan or grid is another one by now, the recorded state means nothing here: LedgerTermsError.

    Args:
        ledger: an open ledger.
        dataset: name in the ledger.
        plan: the plan of the dataset; default the recorded one, which cannot be read back where the query is a Python
            function.
        accountant: the plan's accountant, where there is one already.
        grid: the grid of ticks; default the recorded one.
        times: what the times of further releases are ("wall", "data", "ticks"); default those of the recorded releases.

    >>> import tempfile
    >>> from csdp import CoupledChain, Mean, Publisher
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Publisher(plan, dataset="ward-7", ledger=f"{folder}/ledger.db", budget=0.3) as publisher:
    ...         _ = [publisher.push([0], time=tick) for tick in range(2)]
    ...     with Ledger.open(f"{folder}/ledger.db", read_only=True) as ledger:
    ...         standing = Standing(ledger, "ward-7")
    ...         standing.summary()["published"], round(standing.remaining()["budget"], 4)
    (1, 0.1034)
    """

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        *,
        plan: Plan | None = None,
        accountant: Accountant | None = None,
        grid: TickGrid | None = None,
        times: str | None = None,
    ) -> None:
        history = check_history(ledger, dataset)
        self.ledger = ledger
        self.dataset = dataset
        self.plan = Plan.from_json(history[-1].plan_json) if plan is None else plan
        self.accountant = Accountant(self.plan) if accountant is None else accountant
        self.grid = history[-1].grid if grid is None else grid
        self.costs = RecordCosts(self.accountant, fits=recorded_fits(map(attrgetter("plan_json"), history)))
        self._times = times

    def check_terms(self, terms: Terms) -> PrivacyLimits:
        """The limits that bind now: those on record, whoever changed them, and whenever this was opened.

        Another plan or grid makes other releases of the same ticks, so it cannot be adopted: LedgerTermsError. The same
        for recorded limits that this version does not know.
        """
        differences = []
        if terms.plan_digest != self.plan.digest:
            differences.append(f"plan {terms.plan_digest[:12]}, not {self.plan.digest[:12]}")
        if terms.grid != self.grid or terms.further:
            further = f" and {terms.further}" if terms.further else ""
            differences.append(f"(time_step, time_origin) {tuple(terms.grid)}{further}, not {tuple(self.grid)}")
        if differences:
            raise LedgerTermsError(
                f"dataset {self.dataset!r} is published under {' and '.join(differences)}, since its terms were "
                "changed; nothing was charged. Open a new publisher under the recorded terms"
            )
        return check_limits(terms.limits)

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits that bind now."""
        return self.check_terms(self.ledger.dataset(self.dataset).terms).to_dict()

    @property
    def fit_epsilon(self) -> float:
        """Plain epsilon-DP that private fits, of this plan's chain and of earlier ones, have spent on one record."""
        return self.costs.fit_epsilon(self.ledger.summary(self.dataset).state or DatasetState())

    def remaining(self, *, time: int | None = None) -> dict[str, float]:
        """What is left of every limit, at the newest published tick or at a later one."""
        return self._remaining(self.ledger.summary(self.dataset), time)

    def _remaining(self, recorded: LedgerSummary, time: int | None) -> dict[str, float]:
        limits, state = self.check_terms(recorded.terms), recorded.state or DatasetState()
        left = {}
        if limits.budget is not None:
            left["budget"] = limits.budget - self._present(recorded.state, time)
        if limits.event_limit is not None:
            left["event_limit"] = limits.event_limit - self.costs.event(state)
        if limits.lifetime_limit is not None:
            left["lifetime_limit"] = limits.lifetime_limit - self.costs.lifetime(state, limits.lifetime_limit)
        return {name: max(0.0, value) for name, value in left.items()}

    def summary(self, *, time: int | None = None) -> dict[str, Any]:
        """What was published, refused and lost, and the guarantees, at the newest charged tick or a later one."""
        return self._summary(self.ledger.summary(self.dataset), time)

    def status(self, *, since: int | None) -> dict[str, Any]:
        """The summary together with what is `remaining`, at one moment of the ledger.

        Args:
            since: figures at this tick, or at the newest charged one where that is later: ticks are charged while one
                asks.
        """
        recorded = self.ledger.summary(self.dataset)
        charged = None if recorded.state is None else self._restore(recorded.state).tick
        time = since if since is not None and charged is not None and since > charged else None
        return {**self._summary(recorded, time), "remaining": self._remaining(recorded, time)}

    def _summary(self, recorded: LedgerSummary, time: int | None) -> dict[str, Any]:
        limits, state = self.check_terms(recorded.terms), recorded.state or DatasetState()
        return {
            "dataset": self.dataset,
            "model": self.plan.verdict.to_dict(),
            "published": recorded.committed,
            "refused": recorded.refused,
            "lost": recorded.lost,
            "newest_tick": recorded.newest_tick,
            "limits": limits.to_dict(),
            "present": self._present(recorded.state, time),
            "event_level": self.costs.event(state),
            "group_level": self.costs.group(state),
            "lifetime": self.costs.lifetime(state, limits.lifetime_limit),
            "guarantee": self._guarantee(state),
        }

    def guarantee(self) -> dict[str, Any]:
        """The guarantees of the plan in words and numbers."""
        recorded = None if self._times else self.ledger.summary(self.dataset).state
        return self._guarantee(recorded or DatasetState())

    def _guarantee(self, state: DatasetState) -> dict[str, Any]:
        times = (self._times,) if self._times else state.times
        return describe_guarantee(self.plan, self.accountant, self.costs.fits, times)

    def _present(self, state: DatasetState | None, time: int | None) -> float:
        """Leakage of the present at a tick."""
        if state is None:
            return 0.0
        return self.accountant.epsilon(self._restore(state), time)

    def _restore(self, state: DatasetState) -> State:
        """The state of the accountant on record."""
        return self.accountant.restore(state.accountant, cost=state.cost)


def describe_guarantee(
    plan: Plan, accountant: Accountant, fits: Mapping[str, float], times: Iterable[str]
) -> dict[str, Any]:
    """The guarantees of a plan in words and numbers.

    Args:
        plan: what is published.
        accountant: its accountant.
        fits: the private fits that the dataset paid for.
        times: what the times of its ticks are ("wall", "data", "ticks").
    """
    return {
        "model": plan.verdict.to_dict(),
        "one_release": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "adversary": plan.adversary,
        "event_level": round_up(accountant.event_level(plan.stale_limit) + fits_epsilon(fits)),
        "fits": dict(fits),
        "algorithm": ALGORITHM,
        "words": [
            plan.verdict.words,
            "Leakage of the present: how much everything published so far tells about anyone's present state, "
            f"to an {plan.adversary} adversary, if the sequences follow the model{plan.model.given}.",
            "Event level: plain epsilon-DP of one record, under any model; a record is exposed with this noise "
            "once it is old enough to be published. Every private fit that the dataset's chains came from is in it.",
            "Group level: plain DP of all records of all releases together, of sequences that the model ties together, "
            "however they are tied.",
            "Which readings are missing must not depend on their values.",
            *(f"{words[0].upper()}{words[1:]}." for words in protected_words(plan.protect, plan.certified.bound)),
            *(() if plan.query.of_states else plan.assumptions[1:]),  # the verdict is said above
            *plan.model.not_protected,
            *(AGE_WORDS[kind] for kind in times),
        ],
    }
