"""How much one client may use: requests per second, bytes that wait, bodies that arrive slowly."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.requests import ClientDisconnect

from csdp.service.problems import Problem, busy

#: Clients whose use is remembered; the one that was quiet for longest is forgotten first.
_REMEMBERED = 10_000


class Rate:
    """A bucket of tokens per client: `burst` at once, `rate` per second in the long run.

    >>> now = [0.0]
    >>> rate = Rate(rate=1.0, burst=2.0, clock=lambda: now[0])
    >>> [rate.wait("a") for _ in range(3)], rate.wait("b")
    ([0.0, 0.0, 1.0], 0.0)
    >>> now[0] = 1.0
    >>> rate.wait("a")
    0.0
    """

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token: 0.0, or the seconds until there is one."""
        now = self._clock()
        left, since = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        taken = left >= 1.0
        self._left[client] = (left - 1.0 if taken else left, now)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._rate

    def check(self, client: str) -> None:
        """Refuse a client that asks too often."""
        seconds = self.wait(client)
        if seconds > 0:
            after = {"Retry-After": str(max(1, round(seconds + 0.5)))}
            raise Problem(429, "rate", "too many requests with this key; wait as Retry-After says", headers=after)


class Share:
    """Seconds of work per client: `burst` at once, `rate` per second in the long run. Use is known afterwards.

    >>> now = [0.0]
    >>> share = Share(rate=0.5, burst=10.0, clock=lambda: now[0])
    >>> share.use("a", 12.0)
    >>> share.left("a"), share.left("b")
    (-2.0, 10.0)
    >>> now[0] = 6.0
    >>> share.left("a")
    1.0
    """

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, client: str) -> float:
        """Seconds that a client has left, below zero where it has used more."""
        left, since = self._left.get(client, (self._burst, 0.0))
        return min(self._burst, left + (self._clock() - since) * self._rate)

    def use(self, client: str, seconds: float) -> None:
        """Take off what the work for a client has taken."""
        left = self.left(client) - seconds
        self._left.pop(client, None)
        self._left[client] = (left, self._clock())
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    def check(self, client: str) -> None:
        """Refuse a client that has used its share."""
        left = self.left(client)
        if left <= 0:
            after = {"Retry-After": str(max(1, math.ceil((1.0 - left) / self._rate)))}
            told = (
                f"questions of this key have used their {self._burst:g} seconds, which come back at {self._rate:g} a "
                "second; wait as Retry-After says"
            )
            raise Problem(429, "share", told, headers=after)


async def until_gone(request: Request) -> None:
    """Return when the client of a request has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Waiting:
    """Bytes of bodies that are on their way or wait to be taken in; bounded, so that memory is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """What is taken inside is given back at the end."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self._used + size > self._limit:
                raise busy("too much waits to be taken in; send it again a little later")
            mine += size
            self._used += size

        try:
            yield take
        finally:
            self._used -= mine


async def body_of(request: Request, take: Callable[[int], None], *, limit: int, seconds: float) -> bytes:
    """The body of a request: not longer than `limit`, and complete after `seconds`."""
    too_long = Problem(413, "too-long", f"at most {limit:,} bytes in one request; send it in several")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise too_long
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_long
                take(len(part))
                parts.append(part)
    except ClientDisconnect:
        raise Problem(400, "cut-off", "the request ended before its body was complete") from None
    except TimeoutError:
        late = f"the request was not complete after {seconds:g} seconds"
        raise Problem(408, "slow", late, headers={"Connection": "close"}) from None
    return b"".join(parts)
