"""Live events: the entries of the ledger as server-sent events. The number of an entry is the id of its event.

A client that was away resumes after the last id that it saw. Clients at the same place share what is read and encoded,
and no client has a queue of its own that could grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from csdp.numbers import encode_json
from csdp.publisher import Release, Skipped
from csdp.service.dataset import ServedDataset
from csdp.service.responses import error_place

log = logging.getLogger("csdp.service")

#: Seconds between two looks at the ledger while nothing is published here.
POLL = 1.0
#: Least seconds between two looks: to send takes the time that writers need.
PAUSE = 0.4
#: Seconds after which a silent connection gets a comment.
HEARTBEAT = 15.0
#: Entries that are read at once, and pages in memory.
_PAGE, _PAGES = 500, 16
#: Most sequences for which a status event lists the age of each.
_LISTED_AGES = 256
#: Said to a client that has seen more than there is.
_BEYOND = (
    "Last-Event-ID lies beyond the newest entry of the ledger: an older copy of it was restored, or it is from another "
    "service. Events go on after the id of this one; read /releases again"
)


class Feed:
    """The events of one dataset."""

    def __init__(self, dataset: ServedDataset) -> None:
        self.listeners = 0
        self._dataset = dataset
        self._head = -1  # the newest entry; -1 while nobody listens
        self._pages: dict[int, tuple[bytes, int]] = {}  # events after an entry, and the last entry that was read
        self._reading = asyncio.Lock()
        self._status = b""
        self._status_number = 0
        self._status_time = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._changed = self._loop.create_future()
        self._closed = False
        dataset.on_outcome = self._wake_from_thread

    def _wake_from_thread(self, _: Release | Skipped) -> None:
        """Called in the thread that publishes, once the ledger has recorded the outcome.

        A loop that has to read it already is not woken again: `follow` clears the event before it reads.
        """
        if self.listeners and not self._wake.is_set():
            with suppress(RuntimeError):  # the loop is closed: the service stops
                self._loop.call_soon_threadsafe(self._wake.set)

    async def follow(self) -> None:
        """Follow the ledger while there are listeners, until cancelled.

        Not more often than every `PAUSE` seconds: what is published faster goes out together.
        """
        while True:
            await asyncio.sleep(PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL - PAUSE):  # unlike wait_for it never loses a cancellation
                    await self._wake.wait()
            self._wake.clear()
            if not self.listeners:
                self._head = -1
                continue
            try:
                await self._update()
            except Exception as error:  # such as a busy ledger; the next look finds what was missed
                log.warning("%s: events wait: %s at %s", self._dataset.name, type(error).__name__, error_place(error))

    async def _update(self) -> None:
        """Look for new entries, then for another status, and wake all listeners after each."""
        head = await asyncio.to_thread(self._dataset.head)
        if head != self._head:
            self._head = head
            self._wake_listeners()
        now = self._loop.time()
        if self._status and now < self._status_time + POLL:
            self._loop.call_later(self._status_time + POLL - now, self._wake.set)
            return
        content: dict[str, Any] = await self._dataset.status()
        if len(content["age_of_information"]) > _LISTED_AGES:
            del content["age_of_information"]
        status = encode_event("status", content)
        if status != self._status:
            self._status = status
            self._status_time = now
            self._status_number += 1
            self._wake_listeners()

    def _wake_listeners(self) -> None:
        self._changed.set_result(None)
        self._changed = self._loop.create_future()

    async def _read(self, after: int) -> tuple[bytes, int]:
        """A page of events after an entry, and the last entry that was read; one listener reads it for all."""
        async with self._reading:
            if after not in self._pages:
                page = await asyncio.to_thread(self._read_page, after)
                if len(self._pages) >= _PAGES:
                    self._pages.clear()
                self._pages[after] = page
            return self._pages[after]

    def _read_page(self, after: int) -> tuple[bytes, int]:
        entries = self._dataset.entries(after, limit=_PAGE)
        own = [entry for entry in entries if entry.query == self._dataset.query]
        commits = [entry for entry in own if entry.kind == "commit"]
        events = [
            (record["id"], encode_event("release", record, record["id"]))
            for record in self._dataset.committed_records(commits)
        ]
        for entry in own:
            if entry.kind == "refuse":
                refusal = {"id": entry.seq, "tick": entry.tick, "reason": entry.data()["reason"]}
                events.append((entry.seq, encode_event("refused", refusal, entry.seq)))
        return b"".join(event for _, event in sorted(events)), entries[-1].seq if entries else self._head

    async def close(self) -> None:
        """End the streams of all listeners; they come back with the last id that they saw."""
        self._closed = True
        self._wake_listeners()

    async def listen(self, after: int | None, allowed: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Events after an entry, or from now on, while they are allowed; a comment if nothing happens for a while."""
        self.listeners += 1
        try:
            if self._head < 0:
                await self._update()
            self._wake.set()  # with earlier listeners the newest entry known may be a second old
            position = self._head if after is None else after
            if position > self._head:
                head = await asyncio.to_thread(self._dataset.head)
                if position > head:
                    position = head
                    yield encode_event("reset", {"id": head, "reason": _BEYOND}, head)
            status_number = -1
            while not self._closed:
                news = b""
                if position < self._head:
                    news, position = await self._read(position)
                # Nothing is awaited from looking for news until waiting for them, so none come in between unnoticed.
                if status_number != self._status_number:
                    news += self._status
                    status_number = self._status_number
                elif not news and position >= self._head:
                    done, _ = await asyncio.wait([self._changed], timeout=HEARTBEAT)
                    news = b"" if done else b": still here\n\n"
                if not allowed():
                    return
                if news:
                    yield news
        finally:
            self.listeners -= 1


class EventStream(StreamingResponse):
    """A response of events. However it ends, its generator is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client has left, does not accept them, or may no longer have them."""
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def encode_event(name: str, content: object, number: int | None = None) -> bytes:
    """One server-sent event.

    >>> encode_event("release", {"tick": 3}, 7)
    b'id: 7\\nevent: release\\ndata: {"tick":3}\\n\\n'
    """
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: " + name.encode() + b"\ndata: " + encode_json(content) + b"\n\n"
