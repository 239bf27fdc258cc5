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
from csdp.accountant import Accountant, State
from csdp.clock import Times, WallClock
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, UnsoundError
from csdp.leakage import shown
from csdp.ledger import Admission, Ledger, Published, Refused, Request, Reserved
from csdp.ledger.records import checked_tick
from csdp.noise import Randomness
from csdp.panel import Panel
from csdp.plan import ALGORITHM, Plan
from csdp.publisher.change import Carried, carried
from csdp.publisher.drawing import chunk_size, drawn, scheduled_level
from csdp.publisher.exposure import RecordCosts
from csdp.publisher.records import Batch, Release, Skipped
from csdp.publisher.refusal import LIMITED, StoppedError, explained
from csdp.publisher.sources import AgedSource, PanelSource
from csdp.publisher.terms import checked_limits, guarantee
from csdp.publisher.times import Ticking

Floats = npt.NDArray[np.float64]
OnRefusal = Literal["raise", "skip"]


class Publisher:
    """Publishes one dataset under one plan, never above its limits.

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
        self.limits = checked_limits(budget=budget, event_limit=event_limit, lifetime_limit=lifetime_limit)
        self.accountant = Accountant(plan)
        self._records = RecordCosts(self.accountant, self.limits["lifetime_limit"])
        self._on_refusal = on_refusal
        self._randomness = Randomness.secure() if unsafe_seed is None else Randomness.unsafe_seed(unsafe_seed)
        self._owns = not isinstance(ledger, Ledger)
        self._ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        try:
            self._ledger.register(
                dataset,
                limits=self._recorded_limits(self.limits),
                chain_digest=plan.chain.digest,
                plan_digest=plan.digest,
                plan_json=json.dumps(plan.record()),
                guarantee=guarantee(plan, self.accountant, self.ticking.words),
                fit_cost=plan.model.fit_cost,
            )
        except BaseException:
            self.close()
            raise
        self._fran = fran.init(plan)
        self._observed: int | None = None

    def _recorded_limits(self, limits: dict[str, float | None]) -> dict[str, Any]:
        """The limits as the ledger keeps them: a dataset has one grid of ticks, as it has one budget."""
        step, origin = self.grid
        grid = {"time_step": step} if step is not None else {}
        return {**limits, **grid, **({"time_origin": origin} if origin else {})}

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
        reason = self._fran.reason or self._quiet(tick, self.ticking.newest_over())
        if reason:
            return self._already(tick) or Skipped(tick, reason)
        granted = self._reserve([(tick, self._fran.stale)])[0]
        if isinstance(granted, Skipped):
            return granted
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
        return fran.observe(state, snapshot)

    def publish(
        self, source: Panel | AgedSource, *, progress: Any = None, each: Callable[[Release], None] | None = None
    ) -> Batch:
        """Publish every tick of a panel (or another aged source) that the limits allow.

        `progress(done, total)` is called as ticks are finished. With `each` every release is handed over as it comes,
        in order, and none is kept, so that memory does not grow with the number of ticks.
        """
        self.ticking.check_source(source)
        aged = PanelSource(source, self.plan) if isinstance(source, Panel) else source
        over = self.ticking.newest_over()
        ready: list[tuple[int, int]] = []
        skipped: list[Skipped] = []
        for tick, stale, missing in aged.availability(self.plan):
            reason = missing or self._quiet(tick, over)
            if reason:
                skipped.append(Skipped(tick, reason))
            else:
                ready.append((tick, stale))
        releases: list[Release] = []
        together = chunk_size(self.plan)
        for start in range(0, len(ready), together):
            chunk = ready[start : start + together]
            try:
                self._publish_chunk(aged, chunk, releases, skipped)
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
    ) -> None:
        stale = dict(chunk)
        refusal: BudgetExceeded | None = None
        try:
            answers = self._reserve(chunk)
        except StoppedError as stopped:
            answers, refusal = stopped.before, stopped.error
        releases.extend(Release.of(answer) for answer in answers if isinstance(answer, Published))
        skipped.extend(answer for answer in answers if isinstance(answer, Skipped))
        granted = [answer for answer in answers if isinstance(answer, Reserved)]
        found = drawn(self.plan, source, {r.tick: stale[r.tick] for r in granted}, self._randomness)
        outputs = [(r, self._output(r, output)) for r, output in zip(granted, found, strict=True)]
        releases.extend(Release.of(done) for done in self._ledger.commit_many(outputs))
        if refusal is not None:
            raise refusal

    def _quiet(self, tick: int, over: int | None) -> str:
        """Why nothing is published at a tick whatever was read, or nothing: its time, or the plan's schedule."""
        if over is not None and tick > over:
            return "its time is not over by the wall clock"
        return "" if scheduled_level(self.plan, tick) != 0.0 else "the plan's schedule publishes nothing at this tick"

    def _output(self, reserved: Reserved, output: fran.Output) -> dict[str, Any]:
        plan = self.plan
        content = dict(vars(output))  # asdict would copy every value of a wide output one by one
        content["ages"] = plan.min_age if plan.min_age == plan.max_age else list(plan.ages)
        content["epsilon_s"] = reserved.charge["present"]
        return content

    def _already(self, tick: int) -> Release | None:
        """What was published at a tick, if anything was."""
        newest = self._ledger.summary(self.dataset).newest_tick
        if newest is None or tick > newest:
            return None
        found = (published for published in self._ledger.published(self.dataset) if published.tick == tick)
        return next(map(Release.of, found), None)

    def _recorded(self, tick: int) -> Release:
        found = self._already(tick)
        if found is not None:
            return found
        raise LedgerConflictError(
            f"tick {tick} is not after tick {self._observed}, and it was not published; ticks must come in order"
        )

    # ---- the rule --------------------------------------------------------------------------------------------------

    def _reserve(self, wanted: Sequence[tuple[int, int]]) -> list[Reserved | Published | Skipped]:
        stop = self._on_refusal == "raise"
        requests = [Request(tick, self.plan.query.name, detail=stale) for tick, stale in wanted]
        found = self._ledger.reserve(self.dataset, requests, self._admit, plan_digest=self.plan.digest, stop=stop)
        answers: list[Reserved | Published | Skipped] = []
        refused: Refused | None = None
        for answer in found:
            if not isinstance(answer, Refused):
                answers.append(answer)
            elif answer.error is not None and stop:
                # A refusal that was recorded earlier does not end the batch: what is granted after it must come out.
                refused = refused or answer
            else:
                answers.append(Skipped(answer.tick, answer.reason))
        if refused is not None and refused.error is not None:
            error = self._explained(refused.error, refused.tick)
            if not answers:
                raise error
            raise StoppedError(answers, error)
        return answers

    def _admit(self, last: dict[str, Any] | None, last_tick: int | None, request: Request) -> Admission:
        """The admissibility rule; runs inside the ledger's transaction."""
        stale = int(request.detail)
        state = self.accountant.start() if last is None else self.accountant.restore(last["accountant"])
        level = scheduled_level(self.plan, request.tick)
        fresh = self.accountant.release(state, request.tick, stale=stale > 0, epsilon_c=level)
        kept = {"releases": 0, "stale": 0, "cost": 0.0} if last is None else last
        kept = {**kept, "releases": int(kept["releases"]) + 1, "stale": max(stale, int(kept["stale"]))}
        kept = {**kept, "times": self.ticking.after(last)}
        charge = {
            "present": self.accountant.leakage(fresh).epsilon,
            "peak": self.accountant.peak(fresh),
            "event": self._records.event(kept),
            "algorithm": ALGORITHM,
        }
        if level is not None:
            charge["epsilon_c"] = level
        if self.limits["lifetime_limit"] is not None:
            charge["lifetime"] = self._records.lifetime(kept)
        # A ceiling for every moment: quiet ticks after the release may raise the leakage before it falls.
        self._check("budget", charge["peak"], lambda: self.accountant.leakage(state, request.tick).epsilon)
        self._check("event_limit", charge["event"], lambda: 0.0 if last is None else self._records.event(last))
        self._check(
            "lifetime_limit", charge.get("lifetime", 0.0), lambda: 0.0 if last is None else self._records.lifetime(last)
        )
        cost = float(kept["cost"]) + self.accountant.history_cost()
        return Admission({**kept, "accountant": fresh.to_dict(), "cost": cost}, charge)

    def _check(self, name: str, value: float, spent_now: Callable[[], float]) -> None:
        limit = self.limits[name]
        if limit is None or value <= limit:
            return
        spent = spent_now()
        raise BudgetExceeded(
            f"{self.dataset}: a release would bring {LIMITED[name]} to {shown(value)}, above its limit {limit:g} "
            f"(now {shown(spent)}); this release was not made",
            limit_name=name,
            spent=spent,
            requested=value,
            remaining=max(0.0, limit - spent),
        )

    def _explained(self, error: BudgetExceeded, tick: int) -> BudgetExceeded:
        """Add what would fit; outside of the ledger's lock, because it takes a search."""
        limit = self.limits["budget"]
        if error.limit_name != "budget" or limit is None:
            return error
        state = self._restored(self._ledger.summary(self.dataset).state) or self.accountant.start()
        return explained(error, accountant=self.accountant, state=state, tick=tick, limit=limit)

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _restored(self, last: dict[str, Any] | None) -> State | None:
        return None if last is None else self.accountant.restore(last["accountant"])

    def remaining(self, *, time: int | None = None) -> dict[str, float]:
        """What is left of every limit, at the newest published tick or at a later one."""
        last = self._ledger.summary(self.dataset).state
        left = {}
        if self.limits["budget"] is not None:
            state = self._restored(last)
            now = 0.0 if state is None else self.accountant.leakage(state, time).epsilon
            left["budget"] = max(0.0, self.limits["budget"] - now)
        if self.limits["event_limit"] is not None:
            used = 0.0 if last is None else self._records.event(last)
            left["event_limit"] = max(0.0, self.limits["event_limit"] - used)
        if self.limits["lifetime_limit"] is not None:
            used = 0.0 if last is None else self._records.lifetime(last)
            left["lifetime_limit"] = max(0.0, self.limits["lifetime_limit"] - used)
        return left

    def information_ages(self) -> tuple[int | None, list[int | None]]:
        """The newest tick taken in, and how old the reading of each sequence is that its release rests on."""
        return self._observed, fran.information_ages(self._fran)

    def summary(self, *, time: int | None = None) -> dict[str, Any]:
        """What was published, refused and lost, and the guarantees, at the newest charged tick or a later one."""
        counts = self._ledger.summary(self.dataset)
        kept = counts.state or {"releases": 0, "stale": 0}
        state = self._restored(counts.state)
        earlier = float(kept["earlier"]["group"]) if kept.get("earlier") else 0.0
        return {
            "dataset": self.dataset,
            "published": counts.committed,
            "refused": counts.refused,
            "lost": counts.lost,
            "newest_tick": counts.newest_tick,
            "limits": dict(self.limits),
            "present": 0.0 if state is None else self.accountant.leakage(state, time).epsilon,
            "event_level": self._records.event(kept),
            "group_level": earlier + self.accountant.group_level(int(kept["releases"])) * bool(kept["releases"]),
            "lifetime": self._records.lifetime(kept),
            "guarantee": self.guarantee(),
        }

    def guarantee(self) -> dict[str, Any]:
        """The guarantees of this plan in words and numbers, as recorded in the ledger."""
        return guarantee(self.plan, self.accountant, self.ticking.words)

    def forget(self) -> None:
        """Forget the readings taken in, as a new process would: for a stream whose clock was wrong and is put back."""
        self._fran, self._observed = fran.init(self.plan), None

    def change_plan(self, plan: Plan, *, from_tick: int, budget: float | None = None) -> Publisher:
        """Continue the dataset under another plan or chain from a tick on: an explicit act, recorded for ever.

        Rule: the old history counts at most what it told between any two snapshots (under any model if the chain
        changes), placed at the newest reading it touched, and shrinks under the new chain from there. Records that both
        plans read count under both.
        """
        if not plan.certified.sound:
            raise UnsoundError(f"bound {plan.certified.bound!r} is not proven, so it cannot publish; use bound='auto'")
        plan.check_noise()
        limits = self.limits if budget is None else {**self.limits, **checked_limits(budget=budget)}
        rule = (
            "same chain: worst log ratio of the old history between any two snapshots"
            if plan.chain == self.plan.chain
            else "new chain: sum of the group-level costs of the old history"
        )
        accountant = Accountant(plan)

        def carry(last: dict[str, Any] | None, last_tick: int | None, _: Any) -> Admission:
            old = Carried(self.plan, self.accountant, 0.0 if last is None else self._records.event(last), last)
            return carried(old, plan, accountant, from_tick)

        self._ledger.change_plan(
            self.dataset,
            limits=self._recorded_limits(limits),
            chain_digest=plan.chain.digest,
            plan_digest=plan.digest,
            plan_json=json.dumps(plan.record()),
            guarantee=guarantee(plan, accountant, self.ticking.words),
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
        )
