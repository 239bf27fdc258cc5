"""THE GATE. Nothing is published except through here: reserve in the ledger, release, commit, in that order.

A crash after the reservation loses the tick (it stays charged and is never published); a crash before it loses
nothing. Whether a tick is released or refused depends on the plan, the ticks and which readings were missing, never
on a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.accountant import Accountant
from csdp.chain import join_fits, private_fits, recorded_fits
from csdp.clock import Times, WallClock
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, LedgerTermsError, UnsoundError
from csdp.ledger import Admission, Change, Ledger, Published, Refused, Request, Reserved
from csdp.ledger.records import checked_tick
from csdp.noise import Randomness
from csdp.panel import Panel
from csdp.panel.readings import place_states, read_labels
from csdp.plan import Plan
from csdp.publisher.change import Carried, carried, check_records
from csdp.publisher.checks import read_availability
from csdp.publisher.drawing import chunk_size, drawn, scheduled_level
from csdp.publisher.exposure import NOTHING, RecordCosts
from csdp.publisher.records import Batch, Release, Skipped
from csdp.publisher.refusal import StoppedError, explained
from csdp.publisher.rule import Rule
from csdp.publisher.sources import AgedSource, PanelSource
from csdp.publisher.standing import Standing
from csdp.publisher.terms import checked_limits, guarantee, record_terms
from csdp.publisher.times import Ticking
from csdp.publisher.waiting import OnWait, check_wait, describe_refusal, wait_for

Floats = npt.NDArray[np.float64]
OnRefusal = Literal["raise", "skip"]


class Publisher:
    """Publishes one dataset under one plan, never above its limits.

    The limits that bind are those on record at the moment of each release: where another process (or another publisher
    here) changes them, they hold at once. Where it changes the plan or the grid, this publisher charges nothing more
    and raises LedgerTermsError; what it has reserved before may still be committed.

    Args:
        plan: what is published; its bound must be sound.
        dataset: name in the ledger.
        ledger: a path or URL (SQLite, PostgreSQL), or an open Ledger.
        budget: ceiling for the leakage of the present at every moment; it recovers while nothing is published.
        event_limit: limit for the plain epsilon-DP of one record.
        lifetime_limit: limit for what all releases tell of one record.
        time_step: time from one tick to the next, where times are not ticks; recorded, so that a later run with
            another one, which would misjudge how fast the past fades, is refused.
        time_origin: where tick 0 begins; recorded likewise.
        times: "wall": ticks are times of the wall clock, and none is published before the clock has passed its end.
            "data": they are what the data say, as in a replay. None: the caller counts them and answers for their age
            (see `push`). It is recorded with every release, and certificates say it.
        wall: the clock on the wall, for times="wall".
        on_refusal: "raise" BudgetExceeded, or "skip" the tick.
        wait: seconds to wait for the output of a tick that another process has reserved; then it is Skipped.
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
        event_limit: float | None = None,
        lifetime_limit: float | None = None,
        time_step: int | None = None,
        time_origin: int = 0,
        times: Times | None = None,
        wall: WallClock | None = None,
        on_refusal: OnRefusal = "raise",
        wait: float = 0.0,
        unsafe_seed: int | None = None,
    ) -> None:
        if not plan.certified.sound:
            raise UnsoundError(f"bound {plan.certified.bound!r} is not proven, so it cannot publish; use bound='auto'")
        if on_refusal not in {"raise", "skip"}:
            raise InputError(f"on_refusal: {on_refusal!r} given; 'raise' or 'skip'")
        plan.check_noise()
        self.plan = plan
        self.dataset = dataset
        self.ticking = Ticking(times, time_step, time_origin, WallClock() if wall is None else wall)
        limits = checked_limits(budget=budget, event_limit=event_limit, lifetime_limit=lifetime_limit)
        self.accountant = Accountant(plan)
        self._on_refusal = on_refusal
        self._wait = check_wait(wait)
        self.charged = 0  #: ticks that this publisher itself has charged
        self._randomness = Randomness.secure() if unsafe_seed is None else Randomness.unsafe_seed(unsafe_seed)
        self._owns = not isinstance(ledger, Ledger)
        self._ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        try:
            self._ledger.register(
                dataset,
                limits=record_terms(limits, self.grid),
                chain_digest=plan.chain.digest,
                plan_digest=plan.digest,
                plan_json=json.dumps(plan.record()),
                guarantee=guarantee(plan, self.accountant, private_fits(plan.chain), self.ticking.words),
                fit_cost=plan.model.fit_cost,
            )
            fits = recorded_fits(terms.plan_json for terms in self._ledger.history(dataset))
        except BaseException:
            self.close()
            raise
        self._records = RecordCosts(self.accountant, fits=fits)
        self._standing = Standing(self._ledger, dataset, self.accountant, self._records, self.grid)
        self._rule = Rule(dataset, self.accountant, self._records, self._standing, self.ticking)
        self._fran = fran.init(plan)
        self._observed: int | None = None

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits that bind now, from the ledger."""
        return self._standing.limits(self._ledger.dataset(self.dataset).terms)

    @property
    def grid(self) -> tuple[int | None, int]:
        """Time from one tick to the next, and where tick 0 begins."""
        return self.ticking.step, self.ticking.origin

    @property
    def unsafe(self) -> bool:
        """Whether noise comes from a seed, so that nothing is protected."""
        return self._randomness.unsafe

    # ---- context ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the ledger if this publisher opened it."""
        if self._owns:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- publishing ------------------------------------------------------------------------------------------------

    def push(self, snapshot: npt.ArrayLike, *, time: int) -> Release | Skipped:
        """Take in the snapshot of one tick (state numbers, -1 where missing) and publish what has aged enough.

        A list is in the order of the chain's sequences; a mapping, or a pandas Series with names, is taken by name.

        Ticks between the last one and this one count as missing. A tick that was published before returns its recorded
        output: no noise is drawn, nothing is charged. The newest tick may be pushed again after an error; its first
        snapshot counts.

        Unless times="wall" says that ticks are times of a clock, whoever pushes tick T promises that every reading of
        tick T - age is at least `age` ticks old by now: one that is newer leaks more than is certified.
        """
        tick = checked_tick(time)
        if self._observed is not None and tick < self._observed:
            return self._recorded(tick)
        self.observe(snapshot, time=tick)
        absent = self._absence(tick, self._fran.reason, self.ticking.newest_over())
        if absent is not None:
            return self._already(tick) or absent
        granted = self._reserve([(tick, self._fran.stale)])[0]
        if isinstance(granted, Skipped):
            came, left = self._come([granted], None)
            return came[0] if came else left[0]
        if isinstance(granted, Published):
            return Release.of(granted)
        output = fran.release(self._fran, self._randomness, epsilon_c=scheduled_level(self.plan, tick))
        assert output is not None
        return Release.of(self._ledger.commit(granted, self._output(granted, output)))

    def observe(self, snapshot: npt.ArrayLike, *, time: int) -> None:
        """Take in a snapshot without publishing: how a restarted process fills its ages. Older ticks change nothing."""
        tick = checked_tick(time)
        if self._observed is None or tick > self._observed:
            # Together or not at all: after a refused snapshot the rows must still be those of their ticks.
            self._fran, self._observed = self._with(snapshot, tick), tick

    def _with(self, snapshot: npt.ArrayLike, tick: int) -> fran.FranState:
        """The readings with one snapshot more; the ticks in between count as missing."""
        state = self._fran
        if self._observed is not None:
            absent = np.full(self.plan.model.sequences, -1, dtype=np.int8)
            gap = tick - self._observed - 1
            for _ in range(min(gap, self.plan.max_age + self.plan.stale_limit + 2)):
                state = fran.observe(state, absent)
        named = read_labels(snapshot)
        return fran.observe(state, snapshot if named is None else place_states(named, self.plan.model.names))

    def publish(
        self,
        source: Panel | AgedSource,
        *,
        progress: Any = None,
        each: Callable[[Release], None] | None = None,
        on_wait: OnWait | None = None,
    ) -> Batch:
        """Publish every tick of a panel (or another aged source) that the limits allow.

        `progress(done, total)` is called as ticks are finished. With `each` every release is handed over as it comes,
        in order, and none is kept, so that memory does not grow with the number of ticks. `on_wait(held, seconds)` is
        told of ticks that another process holds, while we wait for them (`wait`).
        """
        self.ticking.check_source(source)
        aged = PanelSource(source, self.plan) if isinstance(source, Panel) else source
        # All of it before anything is charged: a list that is not in order must not cost a tick.
        listed, over = list(read_availability(aged, self.plan)), self.ticking.newest_over()
        absent = {tick: self._absence(tick, missing, over) for tick, _, missing in listed}
        ready = [(tick, stale) for tick, stale, _ in listed if absent[tick] is None]
        skipped = [skip for skip in absent.values() if skip is not None]
        releases: list[Release] = []
        together = chunk_size(self.plan)
        for start in range(0, len(ready), together):
            chunk = ready[start : start + together]
            try:
                self._publish_chunk(aged, chunk, releases, skipped, on_wait)
            finally:
                if each is not None:
                    for release in sorted(releases, key=lambda r: r.tick):
                        each(release)
                    releases.clear()
            if progress is not None:
                progress(min(start + together, len(ready)), len(ready))
        return Batch(tuple(sorted(releases, key=lambda r: r.tick)), tuple(sorted(skipped, key=lambda r: r.tick)))

    def _publish_chunk(
        self,
        source: AgedSource,
        chunk: Sequence[tuple[int, int]],
        releases: list[Release],
        skipped: list[Skipped],
        on_wait: OnWait | None,
    ) -> None:
        stale = dict(chunk)
        refusal: BudgetExceeded | None = None
        try:
            answers = self._reserve(chunk)
        except StoppedError as stopped:
            answers, refusal = stopped.before, stopped.error
        releases.extend(Release.of(answer) for answer in answers if isinstance(answer, Published))
        granted = [answer for answer in answers if isinstance(answer, Reserved)]
        try:
            found = drawn(self.plan, source, {r.tick: stale[r.tick] for r in granted}, self._randomness)
        except Exception as error:
            ticks = f"{len(granted):,} ticks from {granted[0].tick} to {granted[-1].tick}"
            error.add_note(f"{ticks} were charged and are lost; nothing of them was published")
            raise
        outputs = [(r, self._output(r, output)) for r, output in zip(granted, found, strict=True)]
        releases.extend(Release.of(done) for done in self._ledger.commit_many(outputs))
        # Our own ticks are recorded before we wait for those of others, so that nobody waits in a circle.
        came, left = self._come([answer for answer in answers if isinstance(answer, Skipped)], on_wait)
        releases.extend(came)
        skipped.extend(left)
        if refusal is not None:
            raise refusal

    def _come(self, skipped: Sequence[Skipped], on_wait: OnWait | None) -> tuple[list[Release], list[Skipped]]:
        """Of ticks without output: those that another process records while we wait, and the rest."""
        query = self.plan.query.name
        return wait_for(self._ledger, self.dataset, skipped, query=query, wait=self._wait, on_wait=on_wait)

    def _absence(self, tick: int, missing: str, over: int | None) -> Skipped | None:
        """Why a tick is not asked for: its readings are missing, it is not over, or the schedule leaves it out."""
        if missing:
            return Skipped(tick, missing)
        if over is not None and tick > over:
            return Skipped(tick, "its time is not over by the wall clock")
        if scheduled_level(self.plan, tick) == 0.0:
            return Skipped(tick, "the plan's schedule publishes nothing at this tick", "schedule")
        return None

    def _output(self, reserved: Reserved, output: fran.Output) -> dict[str, Any]:
        plan = self.plan
        content = dict(vars(output))  # asdict would copy every value of a wide output one by one
        content["ages"] = plan.min_age if plan.min_age == plan.max_age else list(plan.ages)
        content["epsilon_s"] = reserved.charge["present"]
        return content

    def _already(self, tick: int) -> Release | None:
        """What was published at a tick, if anything was."""
        found = self._ledger.outputs_of(self.dataset, [tick], query=None)
        return Release.of(found[0]) if found else None

    def _recorded(self, tick: int) -> Release:
        found = self._already(tick)
        if found is not None:
            return found
        raise LedgerConflictError(
            f"tick {tick} is not after tick {self._observed}, and it was not published; ticks must come in order"
        )

    # ---- charging --------------------------------------------------------------------------------------------------

    def _reserve(self, wanted: Sequence[tuple[int, int]]) -> list[Reserved | Published | Skipped]:
        stop = self._on_refusal == "raise"
        requests = [Request(tick, self.plan.query.name, detail=stale) for tick, stale in wanted]
        found = self._ledger.reserve(self.dataset, requests, self._rule.admit, plan_digest=self.plan.digest, stop=stop)
        answers: list[Reserved | Published | Skipped] = []
        refused: Refused | None = None
        for answer in found:
            if not isinstance(answer, Refused):
                answers.append(answer)
            elif answer.error is not None and stop:
                # A refusal that was recorded earlier does not end the batch: what is granted after it must come out.
                refused = refused or answer
            else:
                answers.append(describe_refusal(answer, self._wait))
        self.charged += sum(isinstance(answer, Reserved) for answer in answers)
        if refused is not None and refused.error is not None:
            error = self._explained(refused.error, refused.tick)
            if not answers:
                raise error
            raise StoppedError(answers, error)
        return answers

    def _explained(self, error: BudgetExceeded, tick: int) -> BudgetExceeded:
        """Add what would fit; outside of the ledger's lock, because it takes a search."""
        found = self._ledger.summary(self.dataset)
        limit = found.terms.limits.get("budget")
        if error.limit_name != "budget" or limit is None or found.terms.plan_digest != self.plan.digest:
            return error
        state = self._standing.state_of(found) or self.accountant.start()
        return explained(error, accountant=self.accountant, state=state, tick=tick, limit=limit)

    # ---- questions ---------------------------------------------------------------------------------------------------

    def remaining(self, *, time: int | None = None) -> dict[str, float]:
        """What is left of every limit, at the newest published tick or at a later one."""
        return self._standing.remaining(time=time)

    def information_ages(self) -> tuple[int | None, list[int | None]]:
        """The newest tick taken in, and how old the reading of each sequence is that its release rests on."""
        return self._observed, fran.information_ages(self._fran)

    def summary(self, *, time: int | None = None) -> dict[str, Any]:
        """What was published, refused and lost, and the guarantees, at the newest charged tick or a later one."""
        return {**self._standing.summary(time=time), "guarantee": self.guarantee()}

    def guarantee(self) -> dict[str, Any]:
        """The guarantees of this plan in words and numbers, as recorded in the ledger."""
        return guarantee(self.plan, self.accountant, self._records.fits, self.ticking.words)

    def forget(self) -> None:
        """Forget the readings taken in, as a new process would: for a stream whose clock was wrong and is put back."""
        self._fran, self._observed = fran.init(self.plan), None

    @property
    def fit_epsilon(self) -> float:
        """Plain epsilon-DP that private fits, of this plan's chain and of earlier ones, have spent on one record."""
        return self._records.fit_epsilon(self._ledger.summary(self.dataset).state or {})

    def change_plan(
        self,
        plan: Plan,
        *,
        from_tick: int,
        budget: float | None = None,
        event_limit: float | None = None,
        lifetime_limit: float | None = None,
    ) -> Publisher:
        """Continue the dataset under another plan, chain or limits from a tick on: an explicit act, recorded for ever.

        A limit that is not given stays as it is recorded; infinity lifts it.

        Rule: the old history counts at most what it told between any two snapshots (under any model if the chain
        changes), placed at the newest reading it touched, and shrinks under the new chain from there. Records that both
        plans read count under both.
        """
        if not plan.certified.sound:
            raise UnsoundError(f"bound {plan.certified.bound!r} is not proven, so it cannot publish; use bound='auto'")
        plan.check_noise()
        before = self._ledger.dataset(self.dataset).terms
        given = checked_limits(budget=budget, event_limit=event_limit, lifetime_limit=lifetime_limit)
        new = {name: value for name, value in given.items() if value is not None}
        limits = {**{name: before.limits.get(name) for name in given}, **new}
        rule = (
            "same chain: worst log ratio of the old history between any two snapshots"
            if plan.chain == self.plan.chain
            else "new chain: sum of the group-level costs of the old history"
        )
        accountant = Accountant(plan)
        records = RecordCosts(accountant, fits=join_fits(self._records.fits, private_fits(plan.chain)))

        def carry(last: dict[str, Any] | None, last_tick: int | None, change: Change) -> Admission:
            self._standing.limits(change.old)  # the recorded state means something under its own plan only
            if change.old.number != before.number:
                raise LedgerTermsError(
                    f"the terms of dataset {self.dataset!r} were changed by another process meanwhile; look at them, "
                    "and change them again if that is still wanted"
                )
            old = Carried(self.plan, self.accountant, 0.0 if last is None else self._records.released(last), last)
            fits = join_fits(records.fits, (last or {}).get("fits", {}))
            admitted = carried(old, plan, accountant, from_tick, fits=fits)
            check_records(self.dataset, (self._records, last or NOTHING), (records, admitted.state), limits)
            return admitted

        self._ledger.change_plan(
            self.dataset,
            limits=record_terms(limits, self.grid),
            chain_digest=plan.chain.digest,
            plan_digest=plan.digest,
            plan_json=json.dumps(plan.record()),
            guarantee=guarantee(plan, accountant, records.fits, self.ticking.words),
            fit_cost=plan.model.fit_cost,
            from_tick=from_tick,
            rule=rule,
            admit=carry,
        )
        return Publisher(
            plan,
            dataset=self.dataset,
            ledger=self._ledger,
            budget=limits["budget"],
            event_limit=limits["event_limit"],
            lifetime_limit=limits["lifetime_limit"],
            time_step=self.grid[0],
            time_origin=self.grid[1],
            times=self.ticking.times,
            wall=self.ticking.wall,
            on_refusal=self._on_refusal,
            wait=self._wait,
        )
