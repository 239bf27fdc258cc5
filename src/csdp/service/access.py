"""Who may do what, and how much: the roles of every route, request rates, and limits on request bodies."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect

from csdp.errors import InputError
from csdp.service import Settings
from csdp.service.dataset import ServedDataset
from csdp.service.events import Feed
from csdp.service.keys import Key, Keys, Role
from csdp.service.responses import HttpProblem, busy_problem

if TYPE_CHECKING:
    from csdp.service.app import Metrics

Result = TypeVar("Result")
Credentials = Annotated[
    HTTPAuthorizationCredentials | None,
    Security(HTTPBearer(auto_error=False, description="An API key: `Authorization: Bearer csdp_...`")),
]
#: Clients whose request rate is remembered; the least recently seen is forgotten first.
_REMEMBERED = 10_000


class RateLimit:
    """A token bucket per client: `burst` requests at once, `rate` per second in the long run.

    >>> now = [0.0]
    >>> limit = RateLimit(rate=1.0, burst=2.0, clock=lambda: now[0])
    >>> [limit.wait("a") for _ in range(3)], limit.wait("b")
    ([0.0, 0.0, 1.0], 0.0)
    >>> now[0] = 1.0
    >>> limit.wait("a")
    0.0
    """

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token and return 0.0, or return the seconds until there is one."""
        now = self._clock()
        tokens, since = self._tokens.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        granted = tokens >= 1.0
        self._tokens[client] = (tokens - 1.0 if granted else tokens, now)
        if len(self._tokens) > _REMEMBERED:
            self._tokens.popitem(last=False)
        return 0.0 if granted else (1.0 - tokens) / self._rate

    def check(self, client: str) -> None:
        """Refuse a client that asks too often."""
        seconds = self.wait(client)
        if seconds > 0:
            after = {"Retry-After": str(max(1, round(seconds + 0.5)))}
            raise HttpProblem(429, "rate", "too many requests with this key; wait as Retry-After says", headers=after)


class PendingBytes:
    """Bounds the memory for request bodies that arrive or wait for their dataset."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves a number of bytes; all of them are freed at the end."""
        reserved = 0

        def add(size: int) -> None:
            nonlocal reserved
            if self._used + size > self._limit:
                raise busy_problem("too much waits to be taken in; send it again a little later")
            reserved += size
            self._used += size

        try:
            yield add
        finally:
            self._used -= reserved


@dataclass
class Service:
    """What the routes share."""

    settings: Settings
    keys: Keys
    datasets: dict[str, ServedDataset]
    rate: RateLimit
    failures: RateLimit  #: requests with wrong keys, by address
    pending: PendingBytes
    metrics: Metrics
    feeds: dict[str, Feed] = field(default_factory=dict)


async def get_service(request: Request) -> Service:
    """The service that a request belongs to. Asynchronous, so that no request waits for a thread to look it up."""
    service: Service = request.app.state.service
    return service


async def get_key(request: Request) -> Key:
    """The key that `for_roles` has found."""
    key: Key = request.state.key
    return key


Shared = Annotated[Service, Depends(get_service)]
CurrentKey = Annotated[Key, Depends(get_key)]


def for_roles(*roles: Role) -> dict[str, Any]:
    """Settings of a route: a key with one of these roles, valid for the dataset in the path if there is one.

    It is checked before the body of a request is read. Wrong keys are rate limited by address, right ones by key.
    """

    async def check(request: Request, service: Shared, credentials: Credentials = None) -> None:
        challenge = {"WWW-Authenticate": 'Bearer realm="csdp"'}
        if credentials is None:
            detail = "an API key is needed: `Authorization: Bearer csdp_...`"
            raise HttpProblem(401, "no-key", detail, headers=challenge)
        try:
            key = service.keys.find(credentials.credentials)
        except (InputError, OSError):
            detail = "the file of keys cannot be used; the operator's log has the reason"
            raise HttpProblem(500, "keys", detail) from None
        if key is None:
            service.failures.check(request.client.host if request.client is not None else "")
            raise HttpProblem(401, "wrong-key", "this API key is not known, or was removed", headers=challenge)
        service.rate.check(key.id)
        if key.role not in roles:
            raise HttpProblem(403, "role", f"this needs a key with role {' or '.join(roles)}; yours is {key.role}")
        name = request.path_params.get("name")
        # A dataset of others and one that does not exist get the same answer, so that names are not given away.
        if name is not None and not (key.covers(name) and name in service.datasets):
            detail = "no such dataset for this key; GET /api/datasets lists those there are"
            raise HttpProblem(404, "no-dataset", detail)
        request.state.key = key

    return {"dependencies": [Depends(check)], "openapi_extra": {"x-roles": list(roles)}}


async def run_in_thread(service: Service, work: Callable[[], Result]) -> Result:
    """Run `work` in a thread; 503 after `work_seconds`."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        async with asyncio.timeout(service.settings.work_seconds):
            return await asyncio.shield(future)
    except TimeoutError:
        raise busy_problem("the ledger takes long to answer; ask again a little later", seconds=5) from None


async def read_body(request: Request, reserve: Callable[[int], None], settings: Settings) -> bytes:
    """Read the body of a request: 413 if it is too long, 408 if it takes too long.

    `reserve` is called with the size of each piece, see `PendingBytes.reserve`.
    """
    too_long = f"at most {settings.max_body:,} bytes in one request; send it in several"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > settings.max_body:
        raise HttpProblem(413, "too-long", too_long)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_body:
                    raise HttpProblem(413, "too-long", too_long)
                reserve(len(part))
                parts.append(part)
    except ClientDisconnect:
        raise HttpProblem(400, "cut-off", "the request ended before its body was complete") from None
    except TimeoutError:
        detail = f"the request was not complete after {settings.body_seconds:g} seconds"
        raise HttpProblem(408, "slow", detail, headers={"Connection": "close"}) from None
    return b"".join(parts)
