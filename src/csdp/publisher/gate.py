"""THE GATE. Nothing is published except through here: reserve in the ledger, release, commit, in that order.

A crash after the reservation loses the tick (it stays charged and is never published); a crash before it loses
nothing. An output can be read once it and its charge are on disk, never before. Whether a tick is released or refused
depends on the plan, the ticks and which readings were missing, never on a value.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy.typing as npt

from csdp import fran
from csdp.accountant import Accountant
from csdp.chain import join_fits, private_fits
from csdp.clock import Times, WallClock
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, UncheckedModelError
from csdp.estimate import Estimator
from csdp.ledger import Ledger, PrivacyLimits, Published, Refused, Request, Reserved, Terms, TickGrid
from csdp.ledger.records import check_tick
from csdp.noise import Randomness, prepare_draws
from csdp.panel import Panel
from csdp.panel.panel import place_states, read_labels
from csdp.plan import Plan
from csdp.publisher import sources
from csdp.publisher.charge import ChangeRule, DatasetAccount, ReleaseRule, check_limits, explain_refusal
from csdp.publisher.estimates import ReleaseEstimates, check_estimator
from csdp.publisher.sources import AgedSource, PanelSource
from csdp.publisher.status import Standing, check_history, describe_guarantee, recorded_account
from csdp.publisher.tick_times import TickTimes

log = logging.getLogger("csdp.publisher")

OnRefusal = Literal["raise", "skip"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# ---- what comes out ------------------------------------------------------------------------------------------------

_ROWS = ("values", "estimate", "standard_error", "low", "high")


@dataclass(frozen=True)
class Release:
    """One published tick: the noisy values, and the estimate that was made from this release and those before it.

    Attributes: `values` as the mechanism drew them; `estimate` of the answer that `about` names (of the present,
    "now", or of the time of the readings, "then") with its `standard_error` and its band from `low` to `high`, which is
    to hold a share `level` of the truths; `no_data`, the squared error of guessing the usual value; `epsilon_s`, the
    leakage of the present after it, under a model that is `model` ("accepted", "rejected", "untested", "declared").
    Empty or None if no estimate could be made, and in ledgers from before they were recorded; all but the estimate also
    if its error is not known, as that of readings without a public past.
    """

    tick: int
    values: tuple[float, ...]
    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]
    ages: int | tuple[int, ...]
    stale: int
    epsilon_s: float
    unsafe: bool = False
    noise: float | None = None  #: variance of the noise of a value
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    level: float | None = None
    about: Literal["now", "then"] = "now"
    no_data: float | None = None
    model: str | None = None
    count: int | None = None  #: sequences that were read: the divisor of a mean; None if the query needs all of them

    @classmethod
    def of(cls, published: Published) -> Release:
        """From what the ledger recorded; what a later version recorded in addition is left out."""
        known = {field.name for field in fields(cls)}
        content = {name: value for name, value in published.output.items() if name in known}
        for name in _ROWS:
            content[name] = tuple(content.get(name, ()))
        if isinstance(content["ages"], list):
            content["ages"] = tuple(content["ages"])
        return cls(tick=published.tick, **content)

    def to_dict(self, time: Any) -> dict[str, Any]:
        """As plain data, with the time at which its tick began."""
        return {
            "tick": self.tick,
            "time": time,
            **{name: list(getattr(self, name)) for name in ("values", "estimate", "standard_error", "low", "high")},
            "level": self.level,
            "about": self.about,
            "ages": self.ages if isinstance(self.ages, int) else list(self.ages),
            "stale": self.stale,
            "epsilon_s": self.epsilon_s,
            "model": self.model,
        } | ({} if self.count is None else {"count": self.count})

    @property
    def usefulness(self) -> float | None:
        """Expected share of the squared error of guessing the usual value that the estimate removes; None if unknown.

        >>> release = Release(5, (0.25,), (0.5,), (0.1,), ages=2, stale=0, epsilon_s=0.2, no_data=0.04)
        >>> round(release.usefulness, 2)
        0.75
        """
        if self.no_data is None or not self.estimate or not self.no_data > 0:
            return None
        return 1.0 - sum(error**2 for error in self.standard_error) / self.no_data


#: Why a tick has no output: its readings or the plan's schedule, a limit, a process that was stopped after it had
#: charged it, a later tick that was charged before it, or another plan that the dataset is published under by now.
Why = Literal["readings", "schedule", "limit", "lost", "order", "terms"]


@dataclass(frozen=True)
class Skipped:
    """A tick without output, and why: in words, and as one word for programs."""

    tick: int
    reason: str
    why: Why = "readings"


@dataclass(frozen=True)
class Batch:
    """The releases of a panel, and its ticks without one.

    `recorded`: releases that were on record before, whose numbers do not come from these readings.
    """

    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]
    recorded: int = field(default=0, compare=False)

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def to_pandas(self) -> Any:
        """A table with a row for each release; a column of several outputs is followed by the number of the output."""
        try:
            import pandas as pd  # type: ignore[import-untyped]  # its stubs are no dependency
        except ModuleNotFoundError:
            raise InputError("to_pandas: pandas is not installed; pip install pandas") from None
        table = pd.DataFrame({"tick": [release.tick for release in self]})
        for name in _ROWS:
            rows = pd.DataFrame([list(getattr(release, name)) for release in self])
            one = name.removesuffix("s")
            rows.columns = [one] if rows.shape[1] == 1 else [f"{one}:{i}" for i in rows.columns]
            table = table.join(rows)
        for name in ("about", "epsilon_s", "model"):
            table[name] = [getattr(release, name) for release in self]
        return table

    def __repr__(self) -> str:
        recorded = f" ({self.recorded:,} recorded before)" if self.recorded else ""
        return f"Batch({len(self.releases):,} releases{recorded}, {len(self.skipped):,} ticks without one)"


def record_output(plan: Plan, reserved: Reserved, output: fran.Output) -> dict[str, Any]:
    """What a ledger records of a release."""
    content = dict(vars(output))  # asdict would copy every value of a wide output one by one
    if output.count is None:
        del content["count"]
    content["ages"] = plan.min_age if plan.min_age == plan.max_age else list(plan.ages)
    content["epsilon_s"] = reserved.charge.present
    content["model"] = plan.verdict.status
    return content


# ---- the gate ------------------------------------------------------------------------------------------------------


def check_plan(plan: Plan, *, model_unchecked: bool) -> None:
    """Refuse a plan whose model the data do not accept, or whose noise cannot be drawn."""
    if not plan.verdict.reliable and not model_unchecked:
        raise UncheckedModelError(
            f"{plan.verdict.words} The leakage of the present may be larger than certified, so nothing was published. "
            "Use a model that its public past accepts, or publish under the event level alone, which holds under any "
            "model: model_unchecked=True"
        )
    plan.check_noise()


def in_turn(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """A method that waits until no other thread is in such a method of the same publisher.

    Without it a tick could be answered from the readings of the next one, which another thread has just taken in: a
    tick newer than certified.
    """

    @wraps(method)
    def wait(self: Any, /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with self._turn:
            return method(self, *args, **options)

    return wait


class Publisher(Standing):
    """Publishes one dataset under one plan, never above its limits.

    The limits that bind are those on record at the moment of each release: if another process (or another publisher
    here) changes them, they hold at once. If it changes the plan or the grid, this publisher charges nothing more and
    raises LedgerTermsError; what it has reserved before may still be committed.

    Args:
        plan: what is published.
        dataset: name in the ledger.
        ledger: a path or URL (SQLite, PostgreSQL), or an open Ledger.
        budget: ceiling for the leakage of the present at every tick; it recovers while nothing is published.
        moment_limit: limit for what everything ever published reveals of a sequence at any one tick, past or present,
            under the model; it never recovers.
        event_limit: limit for the plain epsilon-DP of one record.
        window: a number of ticks, for instance those of a day: every answer then states the plain epsilon-DP of any so
            many consecutive readings of one sequence.
        window_limit: limit for it.
        time_step: time from one tick to the next, if times are not ticks; recorded, so that a later run with another
            one, which would misjudge how fast the past fades, is refused.
        time_origin: where tick 0 begins; recorded likewise.
        times: "wall": ticks are times of the wall clock, and none is published before the clock has passed its end.
            "data": they are what the data say, as in a replay. None: the caller counts them and answers for their age
            (see `push`). It is recorded with every release, and certificates say it.
        wall: the clock on the wall, for times="wall".
        on_refusal: "raise" BudgetExceeded, or "skip" the tick.
        model_unchecked: publish although the data reject the plan's model, or did not test it (UncheckedModelError
            otherwise). Every output says so, and leads with the event level, which holds under any model.
        estimator: makes the estimates that are published with the values, from the releases in the ledger: learned on
            a public past for this plan (`csdp.learn_from_past`), or a custom one; by default by the model
            (`csdp.plan_estimator`). It is post-processing.
        unsafe_seed: for tests only: noise from a seed, and every release is marked unsafe.

    >>> import tempfile
    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Publisher(plan, dataset="ward-7", ledger=f"{folder}/ledger.db", budget=0.3) as publisher:
    ...         first = publisher.push([0], time=1)
    ...         second = publisher.push([1], time=2)
    ...         len(second.values), round(second.epsilon_s, 4), round(publisher.remaining()["budget"], 4)
    (1, 0.1966, 0.1034)
    """

    def __init__(
        self,
        plan: Plan,
        *,
        dataset: str,
        ledger: str | Path | Ledger,
        budget: float | None = None,
        moment_limit: float | None = None,
        event_limit: float | None = None,
        window: int | None = None,
        window_limit: float | None = None,
        time_step: int | None = None,
        time_origin: int = 0,
        times: Times | None = None,
        wall: WallClock | None = None,
        on_refusal: OnRefusal = "raise",
        model_unchecked: bool = False,
        estimator: Estimator | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        check_plan(plan, model_unchecked=model_unchecked)
        check_estimator(plan, estimator)
        if on_refusal not in {"raise", "skip"}:
            raise InputError(f"on_refusal: {on_refusal!r} given; 'raise' or 'skip'")
        grid = TickGrid(time_step, time_origin)
        self.tick_times = TickTimes(times, grid, WallClock() if wall is None else wall)
        self.tick_times.check_plan(plan)
        limits = check_limits(PrivacyLimits(budget, moment_limit, event_limit, window, window_limit))
        accountant = Accountant(plan)
        self.charged = 0  #: ticks that this publisher itself has charged
        self.recorded = 0  #: ticks that were recorded before, whose numbers it has returned as they are
        self._on_refusal = on_refusal
        self._turn = threading.RLock()
        self._fran = fran.init(plan)
        self._observed: int | None = None
        self._states: dict[int, fran.FranState] = {}  # of the ticks that were pushed last
        self._randomness = Randomness.secure() if unsafe_seed is None else Randomness.unsafe_seed(unsafe_seed)
        self._owns_ledger = not isinstance(ledger, Ledger)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        first = DatasetAccount(dataset, grid=grid, accountant=accountant, fits=private_fits(plan.chain))
        try:
            try:
                self.ledger.register(dataset, self._terms(first, limits))
            except LedgerConflictError:
                check_history(self.ledger, dataset)  # says more if an earlier version recorded the plan
                raise
            self.estimates = ReleaseEstimates(plan, dataset=dataset, ledger=self.ledger, estimator=estimator)
            first.fits |= recorded_account(self.ledger, dataset, accountant=accountant, grid=grid).fits
        except BaseException:
            self.close()
            raise
        super().__init__(self.ledger, dataset, account=first, times=self.tick_times.kind)
        self._rule = ReleaseRule(self.account, self.tick_times.kind)

    def _terms(self, account: DatasetAccount, limits: PrivacyLimits) -> Terms:
        """The terms of a plan on the grid of this publisher."""
        plan = account.plan
        return Terms(
            plan_digest=plan.digest,
            plan_json=json.dumps(plan.record()),
            chain_digest=plan.chain.digest,
            limits=limits,
            grid=account.grid,
            guarantee=describe_guarantee(account, [self.tick_times.kind]),
            fit_cost=plan.model.fit_cost,
        )

    @property
    def unsafe(self) -> bool:
        """Whether noise comes from a seed, so that nothing is protected."""
        return self._randomness.unsafe

    # ---- context ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the ledger if this publisher opened it."""
        if self._owns_ledger:
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- publishing ------------------------------------------------------------------------------------------------

    def push(self, snapshot: npt.ArrayLike, *, time: int) -> Release | Skipped:
        """Take in the snapshot of one tick and publish what has aged enough.

        A snapshot holds state numbers, -1 if missing, or the readings that the plan publishes, NaN or None if missing:
        a list in the order of the chain's sequences, a mapping, or a pandas Series with names.

        Ticks between the last one and this one count as missing. A tick that was published before returns its recorded
        output: nothing is drawn or charged. The newest tick may be pushed again after an error; its first snapshot
        counts. Threads that push at once wait for each other.

        Unless times="wall" says that ticks are times of a clock, the caller who pushes tick T promises that every
        reading of tick T - age is at least `age` ticks old by now: one that is newer leaks more than is certified.
        """
        return self.push_many({check_tick(time): snapshot})[0]

    @in_turn
    def push_many(self, snapshots: Mapping[int, npt.ArrayLike]) -> list[Release | Skipped]:
        """What `push` does with each of several ticks, in order; they are charged together and recorded together.

        After an error the same ticks may be pushed again. A process that dies in between loses all of them.
        """
        ready: dict[int, fran.FranState] = {}
        outcomes: dict[int, Release | Skipped] = {}
        ended = self.tick_times.newest_ended()
        for tick, snapshot in snapshots.items():
            state = self._state_at(tick, snapshot)
            skip = None if state is None else self._unscheduled_reason(tick, state.reason, ended)
            if state is not None and skip is None:
                ready[tick] = state
                continue
            published = self._published_at(tick)
            self.recorded += published is not None
            outcome = published or skip
            if outcome is None:
                raise LedgerConflictError(
                    f"tick {tick} is not after tick {self._observed} and was not published; ticks must come in order"
                )
            outcomes[tick] = outcome
        self._states = {tick: self._states[tick] for tick in snapshots if tick in self._states}
        if ready:
            releases: list[Release] = []
            skipped: list[Skipped] = []
            requests = [
                one
                for tick, at in ready.items()
                for one in self._rule.list_requests([sources.Ready(tick, at.stale, at.count)], at)
            ]
            draw = partial(fran.release_many, ready, self._randomness)
            self._publish_together(requests, draw, releases=releases, skipped=skipped)
            outcomes |= {one.tick: one for one in releases} | {one.tick: one for one in skipped}
        return [outcomes[tick] for tick in snapshots]

    def _state_at(self, tick: int, snapshot: npt.ArrayLike) -> fran.FranState | None:
        """What a release of a tick rests on; None for one that is past. The first snapshot of a tick counts."""
        if self._observed is None or tick >= self._observed:
            self.observe(snapshot, time=tick)
            self._states.setdefault(tick, self._fran)
        return self._states.get(tick)

    @in_turn
    def observe(self, snapshot: npt.ArrayLike, *, time: int) -> None:
        """Take in a snapshot without publishing: how a restarted process fills its ages. Older ticks change nothing."""
        tick = check_tick(time)
        if self._observed is not None and tick <= self._observed:
            return
        state, absent = self._fran, fran.missing_snapshot(self.plan)
        gap = 0 if self._observed is None else tick - self._observed - 1
        for _ in range(min(gap, self.plan.max_age + self.plan.stale_limit + 2)):
            state = fran.observe(state, absent)
        named, names = read_labels(snapshot), self.plan.model.names
        state = fran.observe(state, snapshot if named is None else place_states(named, names, missing=absent[0].item()))
        # Together or not at all: after a refused snapshot the rows must still be those of their ticks.
        self._fran, self._observed = state, tick

    @in_turn
    def publish(
        self,
        source: Panel | AgedSource,
        *,
        progress: Any = None,
        each: Callable[[Release], None] | None = None,
    ) -> Batch:
        """Publish every tick of a panel (or another aged source) that the limits allow.

        A tick that was published before keeps its recorded number, whatever the readings are now: the ledger holds no
        readings to compare them with. `Batch.recorded` and a warning in the log say how many there were.

        Args:
            source: the readings.
            progress: called with (done, total) as ticks are finished.
            each: called with every release as it comes, in order; none is then kept, so that memory does not grow.
        """
        self.tick_times.check_source(source, self.plan, begun=self.ledger.dataset(self.dataset).head_seq > 1)
        aged = PanelSource(source, self.plan) if isinstance(source, Panel) else source
        # All of it before anything is charged: a list that is not in order must not cost a tick.
        listed, ended = sources.read_availability(aged, self.plan), self.tick_times.newest_ended()
        skips = {tick: self._unscheduled_reason(tick, missing, ended) for tick, _, missing in listed}
        open_ticks = {tick: stale for tick, stale, _ in listed if skips[tick] is None}
        skipped = [skip for skip in skips.values() if skip is not None]
        counts = sources.read_counts(aged, self.plan, list(open_ticks))
        ready = [sources.Ready(*each, count) for each, count in zip(open_ticks.items(), counts, strict=True)]
        prepare_draws(len(ready))
        releases: list[Release] = []
        together, before = sources.chunk_size(self.plan), self.recorded
        try:
            for start in range(0, len(ready), together):
                chunk = ready[start : start + together]
                requests = self._rule.list_requests(chunk, aged)
                by_place = {one.tick: one for one in chunk}
                draw = partial(sources.draw_outputs, self.plan, aged, by_place, self._randomness)
                try:
                    self._publish_together(requests, draw, releases=releases, skipped=skipped)
                finally:
                    if each is not None:
                        for release in sorted(releases, key=lambda r: r.tick):
                            each(release)
                        releases.clear()
                if progress is not None:
                    progress(min(start + together, len(ready)), len(ready))
        finally:
            recorded = self.recorded - before
            if recorded:
                log.warning(
                    "%s: %d of %d ticks were recorded before; their recorded numbers are returned, whatever the "
                    "readings are now",
                    self.dataset,
                    recorded,
                    len(ready),
                )
        by_tick = attrgetter("tick")
        return Batch(tuple(sorted(releases, key=by_tick)), tuple(sorted(skipped, key=by_tick)), recorded)

    def _publish_together(
        self,
        requests: Sequence[Request],
        draw: Callable[[Sequence[int]], list[fran.Output]],
        *,
        releases: list[Release],
        skipped: list[Skipped],
    ) -> None:
        """Reserve, release what was granted, commit."""
        answers, refusal = self._reserve(requests)
        recorded = [answer for answer in answers if isinstance(answer, Published)]
        releases.extend(map(Release.of, recorded))
        self.recorded += len(recorded)
        granted = [answer for answer in answers if isinstance(answer, Reserved)]
        try:
            outputs = draw([one.tick for one in granted])
        except Exception as error:
            ticks = f"{len(granted):,} ticks from {granted[0].tick} to {granted[-1].tick}"
            error.add_note(f"{ticks} were charged and are lost; nothing of them was published")
            raise
        drawn = [(r.tick, output) for r, output in zip(granted, outputs, strict=True)]
        outputs = self.estimates.add(drawn, recorded)
        pairs = [(r, record_output(self.plan, r, output)) for r, output in zip(granted, outputs, strict=True)]
        committed = self.ledger.commit_many(pairs)
        releases.extend(map(Release.of, committed))
        skipped.extend(answer for answer in answers if isinstance(answer, Skipped))
        if refusal is not None:
            raise refusal

    def _unscheduled_reason(self, tick: int, missing: str, ended: int | None) -> Skipped | None:
        """Why a tick is not reserved: its readings are missing, it is not over, or the schedule leaves it out."""
        if missing:
            return Skipped(tick, missing)
        if ended is not None and tick > ended:
            return Skipped(tick, "its time is not over by the wall clock")
        if self.plan.schedule is not None and self.plan.schedule.level(tick) == 0.0:
            return Skipped(tick, "the plan's schedule publishes nothing at this tick", "schedule")
        return None

    def _published_at(self, tick: int) -> Release | None:
        """What was published at a tick, if anything was."""
        recorded = self.ledger.outputs(self.dataset, after=tick - 1, before=tick + 1)
        return Release.of(recorded[0]) if recorded else None

    # ---- charging --------------------------------------------------------------------------------------------------

    def _reserve(
        self, requests: Sequence[Request]
    ) -> tuple[list[Reserved | Published | Skipped], BudgetExceeded | None]:
        """Charge some ticks: what came of each, and the refusal that ended them if refusals raise.

        What was granted before a refusal is charged, and still to be released.
        """
        stop = self._on_refusal == "raise"
        answers: list[Reserved | Published | Skipped] = []
        refused: Refused | None = None
        for answer in self.ledger.reserve(
            self.dataset, requests, self._rule.admit, plan_digest=self.plan.digest, stop=stop
        ):
            if not isinstance(answer, Refused):
                answers.append(answer)
            elif answer.error is not None and stop:
                # A refusal that was recorded earlier does not end the batch: what is granted after it must come out.
                refused = refused or answer
            else:
                answers.append(Skipped(answer.tick, answer.reason, answer.why))
        self.charged += sum(isinstance(answer, Reserved) for answer in answers)
        return answers, None if refused is None else explain_refusal(self.account, self.ledger, refused)

    # ---- questions ---------------------------------------------------------------------------------------------------

    def information_ages(self) -> tuple[int | None, list[int | None]]:
        """The newest tick taken in, and how old the reading of each sequence is that its release rests on."""
        return self._observed, fran.information_ages(self._fran)

    def change_plan(
        self,
        plan: Plan,
        *,
        from_tick: int,
        budget: float | None = None,
        moment_limit: float | None = None,
        event_limit: float | None = None,
        window: int | None = None,
        window_limit: float | None = None,
        model_unchecked: bool = False,
        estimator: Estimator | None = None,
    ) -> Publisher:
        """Continue the dataset under another plan, chain or limits from a tick on: an explicit and permanent act.

        A limit or window that is not given stays as it is recorded; an infinite limit lifts it. Estimates of the
        new plan use earlier releases of the same query too, with the age and the noise that they had. `model_unchecked`
        as for `Publisher`.

        Rule: the old history counts at most what it revealed between any two snapshots (under any model if the chain
        changes), placed at the newest reading it touched, and shrinks under the new chain from there. Records that both
        plans read count under both.
        """
        check_plan(plan, model_unchecked=model_unchecked)
        check_estimator(plan, estimator)
        self.tick_times.check_plan(plan)
        before = self.ledger.dataset(self.dataset).terms
        given = vars(PrivacyLimits(budget, moment_limit, event_limit, window, window_limit))
        limits = check_limits(replace(before.limits, **{name: new for name, new in given.items() if new is not None}))
        rule = (
            "same chain: worst log ratio of the old history between any two snapshots"
            if plan.chain == self.plan.chain
            else "new chain: sum of the group-level costs of the old history"
        )
        fits = join_fits(self.account.fits, private_fits(plan.chain))
        account = DatasetAccount(self.dataset, grid=self.grid, accountant=Accountant(plan), fits=fits)
        change = ChangeRule(self.account, account, before.number, limits, from_tick)
        terms = replace(self._terms(account, limits), from_tick=from_tick, rule=rule)
        self.ledger.change_plan(self.dataset, terms, change.admit)
        return Publisher(
            plan,
            dataset=self.dataset,
            ledger=self.ledger,
            **vars(limits),
            time_step=self.grid.step,
            time_origin=self.grid.origin,
            times=self.tick_times.times,
            wall=self.tick_times.wall,
            on_refusal=self._on_refusal,
            model_unchecked=model_unchecked,
            estimator=estimator,
        )
