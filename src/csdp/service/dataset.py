"""A dataset as the service shows it: what was published, what it cost, what is left. Reads the ledger, never data."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice, takewhile
from typing import Any

from csdp.errors import LedgerConflictError
from csdp.ledger import Entry, Ledger, Published
from csdp.panel.names import arrange_names
from csdp.publisher import Release
from csdp.service.ingest import Limits
from csdp.service.leadership import Door, lock_of
from csdp.service.problems import Problem, busy, place
from csdp.service.publisher_thread import Live
from csdp.service.settings import Settings
from csdp.stream.from_spec import planned, publisher_of, sequences
from csdp.stream.sinks import as_content
from csdp.stream.spec import StreamSpec

log = logging.getLogger("csdp.service")

#: Figures that took longer than this many seconds are used for so many times as long as they took.
_QUICK, _SHARE = 0.1, 10.0
#: Seconds between two looks after a dataset: whether it is ours, whether time has passed.
TEND = 0.25


class Dataset:
    """One dataset of a service; `live` where this process publishes it."""

    def __init__(self, spec: StreamSpec, settings: Settings) -> None:
        self.spec = spec
        self.name = spec.dataset
        if "/" in self.name:
            raise spec.error("dataset", f"{self.name!r} given; a dataset that is served has no '/' in its name")
        self.plan = planned(spec)
        self.names, _ = sequences(spec, self.plan)  # as declared: the order of a snapshot that is a list
        self._called = arrange_names(self.names, self.plan.model.names)
        self.query = self.plan.query.name
        self.live: Live | None = None
        self.on_outcome: Callable[[], None] = lambda: None
        self._settings = settings
        self._ledger = Ledger.open(spec.ledger)
        # For questions only; the runner has its own. Both are of the same plan, and the ledger is one.
        self._publisher = publisher_of(spec, self.plan, self._ledger)
        self._questions = threading.Lock()
        self._figures: tuple[float, tuple[int, int | None], dict[str, Any]] | None = None
        self._lock = lock_of(spec.ledger, self.name)
        self._door = Door(settings.folder, self.name)

    # ---- who publishes ---------------------------------------------------------------------------------------------

    def lead(self) -> bool:
        """Begin to publish if the dataset is ours, stop if it no longer is; whether this changed anything."""
        mine = self._lock.held()
        if mine and self.live is None:
            self.live = Live(self.spec, self.plan, on_outcome=lambda _: self.on_outcome())
            return True
        if not mine and self.live is not None:
            live, self.live = self.live, None
            live.close()
            return True
        return False

    async def tend(self) -> None:
        """Look after the dataset until cancelled; what fails is told, and tried again."""
        last = 0.0
        while True:
            try:
                if time.monotonic() - last > 4 * TEND:
                    last = time.monotonic()
                    await asyncio.to_thread(self.lead)
                    await (self._door.open(self._forwarded) if self.live is not None else self._door.close())
                live = self.live
                if live is not None:
                    await asyncio.wrap_future(live.submit(live.tend))
            except Exception as error:  # one dataset in trouble must not end the service of the others
                log.error("%s: %s at %s", self.name, type(error).__name__, place(error))
                await asyncio.sleep(4 * TEND)
            await asyncio.sleep(TEND)

    async def close(self) -> None:
        """Stop publishing, and close the ledger."""
        await self._door.close()
        live, self.live = self.live, None
        if live is not None:
            await asyncio.to_thread(live.close)
        self._lock.close()
        self._ledger.close()

    # ---- taking in -------------------------------------------------------------------------------------------------

    async def take(self, body: bytes, *, many: bool) -> dict[str, Any]:
        """Take in the body of a request, here or where the dataset is published."""
        live = self.live
        if live is None:
            return await self._door.ask({"op": "take", "many": many}, body, seconds=self._settings.work_seconds)
        limits = Limits(self._settings.max_line, self._settings.max_lines)
        box = [body]  # emptied by whoever comes first, so that work that was given up holds no memory
        work = live.submit(lambda: live.take(box.pop(), many=many, limits=limits))
        del body
        try:
            async with asyncio.timeout(self._settings.work_seconds):
                counts = await asyncio.wrap_future(work)
        except TimeoutError:
            box.clear()
            raise busy("the dataset is busy; send it again a little later", seconds=5) from None
        return asdict(counts)

    async def _forwarded(self, asked: dict[str, Any], body: bytes) -> dict[str, Any]:
        live = self.live
        if live is None:
            raise busy("another process has taken over this dataset; send it again")
        return live.seen() if asked["op"] == "seen" else await self.take(body, many=bool(asked["many"]))

    async def _seen(self) -> dict[str, Any] | None:
        if self.live is not None:
            return self.live.seen()
        try:
            return await self._door.ask({"op": "seen"}, seconds=2.0)
        except Problem:
            return None

    # ---- showing ---------------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What is published, of whom, under which terms."""
        plan, recorded = self.plan, self._ledger.dataset(self.name).terms.limits.to_dict()
        return {
            "name": self.name,
            "sequences": len(self.names),
            "names": list(self.names),
            "query": self.query,
            "outputs": list(plan.query.output_names(self._called, plan.model.value_table)),
            "ages": plan.min_age if plan.min_age == plan.max_age else list(plan.ages),
            "epsilon_c": plan.epsilon_c,
            "adversary": plan.adversary,
            "step": self.spec.clock.step,
            "origin": self.spec.clock.origin,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "limits": {name: recorded[name] for name in self.spec.limits},
            "guarantee": self._publisher.guarantee(),
        }

    def releases(self, after: int | None, limit: int) -> list[dict[str, Any]]:
        """The first outputs after a tick, or the newest ones."""
        found = self._ledger.outputs_after(self.name, after, query=self.query, limit=limit)
        return [self.shown(published) for published in found]

    def shown(self, published: Published) -> dict[str, Any]:
        """An output as readers see it."""
        return {"id": published.seq, **as_content(Release.of(published), self.spec.clock)}

    async def status(self) -> dict[str, Any]:
        """How it is doing."""
        seen = await self._seen() or {}
        figures = await asyncio.to_thread(self.figures, seen.get("closed"))
        ages = seen.get("information_ages", [None] * len(self.names))
        newest = figures["newest_tick"]
        return {
            **figures,
            "newest_time": None if newest is None else self.spec.clock.start(newest),
            "ages": self.plan.min_age if self.plan.min_age == self.plan.max_age else list(self.plan.ages),
            "age_of_information": [
                {"sequence": name, "planned": planned_age, "age": age}
                for name, planned_age, age in zip(self._called, self.plan.ages, ages, strict=True)
            ],
            "age_summary": _ages(ages),
            "watermark": seen.get("watermark"),
            "closed_tick": seen.get("closed"),
            "skipped": seen.get("skipped"),
            "reason": seen.get("reason", ""),
            "times": self.spec.clock.times,
            "ahead": None if not seen else seen["fates"].get("ahead", 0),
            "put_back": seen.get("put_back"),
            "trouble": seen.get("trouble", "no process publishes this dataset at the moment"),
        }

    def figures(self, tick: int | None = None) -> dict[str, Any]:
        """Counts, and leakage as it stands at a tick (the newest charged one by default), from the ledger.

        A long ledger takes long to count, so figures that took long may be a little old.
        """
        with self._questions:
            now, which = time.monotonic(), (self.head(), tick)
            if self._figures is None or (which != self._figures[1] and now > self._figures[0]):
                found = self._counted(tick)
                took = time.monotonic() - now
                self._figures = (now + (_SHARE * took if took > _QUICK else 0.0), which, found)
            return self._figures[2]

    def _counted(self, tick: int | None) -> dict[str, Any]:
        newest = self._publisher.summary()["newest_tick"] if tick is not None else None
        at = tick if newest is not None and tick is not None and tick > newest else None
        found = self._publisher.summary(time=at)
        return {
            "newest_tick": found["newest_tick"],
            "published": found["published"],
            "refused": found["refused"],
            "lost": found["lost"],
            "present": found["present"],
            "budget": found["limits"]["budget"],
            "limits": found["limits"],
            "remaining": self._publisher.remaining(time=at),
            "event_level": found["event_level"],
            "group_level": found["group_level"],
            "lifetime": found["lifetime"],
        }

    # ---- the ledger ------------------------------------------------------------------------------------------------

    def head(self) -> int:
        """The number of the newest entry."""
        try:
            return self._ledger.dataset(self.name).head_seq
        except LedgerConflictError:
            return 0

    def entries(self, after: int, *, limit: int) -> list[Entry]:
        """The first entries after a number, in order."""
        return list(islice(self._ledger.entries(self.name, after=after), limit))

    def outputs(self, after: int, upto: int) -> dict[int, Published]:
        """The outputs after one entry up to another, by the number of theirs."""
        found = takewhile(lambda one: one.seq <= upto, self._ledger.published(self.name, after=after))
        return {published.seq: published for published in found}

    def charges(self, limit: int, *, everything: bool) -> list[dict[str, Any]]:
        """The newest entries: charges and hashes of published ticks, or everything there is."""
        head = self.head()
        found = self.entries(max(0, head - 4 * limit - 4), limit=4 * limit + 4)
        if everything:
            return [_line(entry) for entry in found[-limit:]]
        reserved = {(entry.tick, entry.query): entry for entry in found if entry.kind == "reserve"}
        lines = []
        for entry in found:
            charge = reserved.get((entry.tick, entry.query))
            if entry.kind == "commit" and charge is not None:
                lines.append({**_line(entry), "charge": charge.data()["charge"], "charge_hash": charge.hash})
        return lines[-limit:]


def _ages(ages: list[int | None]) -> dict[str, Any]:
    """The ages of many sequences in four numbers."""
    known = sorted(age for age in ages if age is not None)
    return {
        "smallest": known[0] if known else None,
        "median": known[len(known) // 2] if known else None,
        "largest": known[-1] if known else None,
        "never_read": len(ages) - len(known),
    }


def _line(entry: Entry) -> dict[str, Any]:
    content = entry.data()
    line: dict[str, Any] = {
        "seq": entry.seq,
        "kind": entry.kind,
        "tick": entry.tick,
        "recorded": entry.time,
        "plan": entry.plan,
        "previous": entry.previous,
        "hash": entry.hash,
    }
    if entry.kind in {"reserve", "change"} and "charge" in content:
        line["charge"] = content["charge"]
    if entry.kind == "refuse":
        line["reason"] = content["reason"]
    return line
