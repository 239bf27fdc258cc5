"""Live events: what the ledger records, as server-sent events. The number of an entry is the id of its event.

Every process follows the ledger by itself, so it does not matter which one publishes; a client that was away goes on
from the last id that it saw. An event is encoded once for all clients, and a slow client holds up nobody: there is no
queue of its own that could grow.
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

from csdp.service.dataset import Dataset
from csdp.service.problems import place
from csdp.service.strict_json import encoded

log = logging.getLogger("csdp.service")

#: Seconds between looks at the ledger while nothing wakes us: another process may have published.
POLL = 1.0
#: Seconds between two looks, at least.
_PAUSE = 0.1
#: Seconds after which a silent connection gets a sign of life.
HEARTBEAT = 15.0
#: Events that are kept for clients that are a little behind; others read the ledger.
_KEPT = 1000
#: Entries that are read at once.
_PAGE = 500
#: Sequences up to which every status has the age of each.
_EACH = 256
Event = tuple[int, bytes]


class Feed:
    """The events of one dataset in one process."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._kept: deque[Event] = deque()
        self._start = -1  # all events after this number, up to `_upto`, are in `_kept`
        self._upto = -1
        self._status = b""
        self._turn = 0
        self._told = 0.0  # when the status was looked at for the last time
        self._moved = asyncio.Condition()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._reading = asyncio.Lock()
        self._over = False
        self.listeners = 0
        dataset.on_outcome = self._outcome

    def _outcome(self) -> None:
        """Called in the thread that publishes."""
        with suppress(RuntimeError):  # the loop is closed: the service stops
            self._loop.call_soon_threadsafe(self._wake.set)

    async def follow(self) -> None:
        """Follow the ledger while somebody listens, until cancelled.

        Not more often than ten times a second: what is published faster goes out together, so that many listeners do
        not take the time that writers need.
        """
        while True:
            await asyncio.sleep(_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):  # unlike wait_for it never loses a cancellation
                    await self._wake.wait()
            self._wake.clear()
            if not self.listeners:
                self._start, self._kept = -1, deque()
                continue
            try:
                await self._look()
            except Exception as error:  # such as a busy ledger; the next look finds what was missed
                log.warning("%s: events wait: %s at %s", self._dataset.name, type(error).__name__, place(error))

    async def _look(self) -> None:
        """Take in what the ledger has recorded since the last look, and tell everybody who listens."""
        async with self._reading:
            if self._start < 0:
                self._start = self._upto = await asyncio.to_thread(self._dataset.head)
            while True:
                found, upto = await asyncio.to_thread(self._read, self._upto)
                self._kept.extend(found)
                if upto == self._upto:
                    break
                self._upto = upto
            while len(self._kept) > _KEPT:
                self._start = self._kept.popleft()[0]
            now = self._loop.time()
            if now >= self._told + POLL or not self._status:
                status = sse("status", await self._brief())
                if status != self._status:
                    self._status, self._turn, self._told = status, self._turn + 1, now
            else:
                self._loop.call_later(self._told + POLL - now, self._wake.set)
            async with self._moved:
                self._moved.notify_all()

    async def _brief(self) -> dict[str, Any]:
        """The status, without a line for each sequence where there are very many."""
        status = await self._dataset.status()
        if len(status["age_of_information"]) > _EACH:
            del status["age_of_information"]
        return status

    def _read(self, after: int) -> tuple[list[Event], int]:
        """A page of events after an entry, and the number of the last entry that was looked at."""
        entries = self._dataset.entries(after, limit=_PAGE)
        if not entries:
            return [], after
        upto = entries[-1].seq
        outputs = self._dataset.outputs(after, upto) if any(entry.kind == "commit" for entry in entries) else {}
        found: list[Event] = []
        for entry in entries:
            if entry.query != self._dataset.query:
                continue
            if entry.kind == "commit":
                found.append((entry.seq, sse("release", self._dataset.shown(outputs[entry.seq]), entry.seq)))
            elif entry.kind == "refuse":
                content = {"id": entry.seq, "tick": entry.tick, "reason": entry.data()["reason"]}
                found.append((entry.seq, sse("refused", content, entry.seq)))
        return found, upto

    async def end(self) -> None:
        """Let everybody go who listens; they come back with the last id that they saw."""
        self._over = True
        async with self._moved:
            self._moved.notify_all()

    async def listen(self, after: int | None) -> AsyncGenerator[bytes, None]:
        """What happens after an entry, or from now on; a sign of life where nothing does."""
        self.listeners += 1
        try:
            if self._start < 0:
                await self._look()
            self._wake.set()  # others listened before: what they know may be a second old
            position = self._upto if after is None else after
            turn = -1
            while not self._over:
                while position < self._start:  # too far behind for what is kept: from the ledger
                    found, upto = await asyncio.to_thread(self._read, position)
                    if found:
                        yield b"".join(data for _, data in found)
                    position = upto if upto > position else self._start
                news = [event for event in self._kept if event[0] > position]
                if news:
                    position = news[-1][0]
                    yield b"".join(data for _, data in news)
                if turn != self._turn:
                    turn = self._turn
                    yield self._status
                elif not await self._news(position, turn):
                    yield b": still here\n\n"
        finally:
            self.listeners -= 1

    async def _news(self, position: int, turn: int) -> bool:
        def some() -> bool:
            return self._over or turn != self._turn or bool(self._kept and self._kept[-1][0] > position)

        try:
            async with self._moved, asyncio.timeout(HEARTBEAT):
                await self._moved.wait_for(some)
        except TimeoutError:
            return False
        return True


class EventStream(StreamingResponse):
    """An answer of events. However it ends, what feeds it ends with it, and makes room for another client."""

    media_type = "text/event-stream"

    def __init__(self, feeding: AsyncGenerator[bytes, None], *, done: Callable[[], None]) -> None:
        super().__init__(feeding, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._feeding, self._done = feeding, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client is gone, does not take them, or may no longer have them."""
        try:
            async with aclosing(self._feeding):
                await super().__call__(scope, receive, send)
        finally:
            self._done()


def sse(name: str, content: object, number: int | None = None) -> bytes:
    """One server-sent event.

    >>> sse("release", {"tick": 3}, 7)
    b'id: 7\\nevent: release\\ndata: {"tick":3}\\n\\n'
    """
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: " + name.encode() + b"\ndata: " + encoded(content) + b"\n\n"
