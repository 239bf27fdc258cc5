"""Live events: the entries of the ledger as server-sent events. The number of an entry is the id of its event.

Every process follows the ledger by itself, so it does not matter which one publishes; a client that was away resumes
after the last id that it saw. An event is encoded once for all clients, and no client has a queue of its own that could
grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
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

#: Seconds between two reads of the ledger while nothing is published here: another process may publish.
POLL = 1.0
#: Least seconds between two reads: to send takes the time that writers need.
PAUSE = 0.4
#: Seconds after which a silent connection gets a comment.
HEARTBEAT = 15.0
#: Events in memory, for clients that are a little behind; others read the ledger.
_BUFFERED = 1000
#: Entries that are read at once.
_PAGE = 500
#: Most sequences for which a status event lists the age of each.
_LISTED_AGES = 256
#: Said to a client that has seen more than there is.
_BEYOND = (
    "Last-Event-ID lies beyond the newest entry of the ledger: an older copy of it was restored, or it is from another "
    "service. Events go on after the id of this one; read /releases again"
)
Event = tuple[int, bytes]


class Feed:
    """The events of one dataset in one process."""

    def __init__(self, dataset: ServedDataset) -> None:
        self._dataset = dataset
        self._buffer: deque[Event] = deque()
        self._start = -1  # `_buffer` has all events after this number up to `_end`
        self._end = -1
        self._status = b""
        self._status_number = 0
        self._status_time = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._changed = self._loop.create_future()
        self._reading = asyncio.Lock()
        self._closed = False
        self.listeners = 0
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
                self._start, self._buffer = -1, deque()
                continue
            try:
                await self._update()
            except Exception as error:  # such as a busy ledger; the next read finds what was missed
                log.warning("%s: events wait: %s at %s", self._dataset.name, type(error).__name__, error_place(error))

    async def _update(self) -> None:
        """Read what the ledger has recorded since the last time, and wake all listeners if there are news.

        Also if a part of it fails: what was read before is there for them.
        """
        async with self._reading:
            before = (self._end, self._status_number)
            try:
                await self._read_news()
                await self._read_status()
            finally:
                if (self._end, self._status_number) != before:
                    self._wake_listeners()

    async def _read_news(self) -> None:
        if self._start < 0:
            self._start = self._end = await asyncio.to_thread(self._dataset.head)
        read = _PAGE
        while read == _PAGE:  # what is recorded after the last page wakes us again
            events, end = await asyncio.to_thread(self._read, self._end)
            self._buffer.extend(events)
            read, self._end = end - self._end, end
            while len(self._buffer) > _BUFFERED:
                self._start = self._buffer.popleft()[0]

    async def _read_status(self) -> None:
        """Ask for the status, at most once every `POLL` seconds."""
        now = self._loop.time()
        if self._status and now < self._status_time + POLL:
            self._loop.call_later(self._status_time + POLL - now, self._wake.set)
            return
        content: dict[str, Any] = await self._dataset.status()
        if len(content["age_of_information"]) > _LISTED_AGES:
            del content["age_of_information"]
        status = encode_event("status", content)
        if status != self._status:
            self._status, self._status_number, self._status_time = status, self._status_number + 1, now

    def _wake_listeners(self) -> None:
        self._changed.set_result(None)
        self._changed = self._loop.create_future()

    def _read(self, after: int) -> tuple[list[Event], int]:
        """A page of events after an entry, and the number of the last entry that was read."""
        entries = self._dataset.entries(after, limit=_PAGE)
        if not entries:
            return [], after
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
        return sorted(events), entries[-1].seq

    async def close(self) -> None:
        """End the streams of all listeners; they come back with the last id that they saw."""
        self._closed = True
        self._wake_listeners()

    async def listen(self, after: int | None) -> AsyncGenerator[bytes, None]:
        """Events after an entry, or from now on; a comment where nothing happens for a while."""
        self.listeners += 1
        try:
            if self._start < 0:
                await self._update()
            self._wake.set()  # with earlier listeners the buffer may be a second old
            position = self._end if after is None else after
            if position > self._end:
                head = await asyncio.to_thread(self._dataset.head)
                if position > head:
                    position = head
                    yield encode_event("reset", {"id": head, "reason": _BEYOND}, head)
            status_number = -1
            while not self._closed:
                while position < self._start:  # too far behind for the buffer: from the ledger
                    events, end = await asyncio.to_thread(self._read, position)
                    if events:
                        yield b"".join(data for _, data in events)
                    position = end if end > position else self._start
                # Nothing is awaited from looking for news until waiting for them, so none come in between unnoticed.
                if position < self._newest or status_number != self._status_number:
                    status = b"" if status_number == self._status_number else self._status
                    news = b"".join(data for number, data in self._buffer if number > position) + status
                    position, status_number = max(position, self._newest), self._status_number
                    yield news
                elif not await self._wait_for_change():
                    yield b": still here\n\n"
        finally:
            self.listeners -= 1

    @property
    def _newest(self) -> int:
        """The number of the newest event in memory."""
        return self._buffer[-1][0] if self._buffer else -1

    async def _wait_for_change(self) -> bool:
        """Wait for another event, another status, or the end; False after `HEARTBEAT` seconds."""
        done, _ = await asyncio.wait([self._changed], timeout=HEARTBEAT)
        return bool(done)


class EventStream(StreamingResponse):
    """A response of events. However it ends, its generator is closed and `on_close` is called."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], *, on_close: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events, self._on_close = events, on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client has left, does not accept them, or may no longer have them."""
        try:
            async with aclosing(self._events):
                await super().__call__(scope, receive, send)
        finally:
            self._on_close()


def encode_event(name: str, content: object, number: int | None = None) -> bytes:
    """One server-sent event.

    >>> encode_event("release", {"tick": 3}, 7)
    b'id: 7\\nevent: release\\ndata: {"tick":3}\\n\\n'
    """
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: " + name.encode() + b"\ndata: " + encode_json(content) + b"\n\n"
