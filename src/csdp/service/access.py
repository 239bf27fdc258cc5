"""Who may do what: one rule for every route, checked before anything of a request is read."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from csdp.errors import InputError
from csdp.service.dataset import Dataset
from csdp.service.events import Feed
from csdp.service.keys import Key, Keys, Role
from csdp.service.limits import Rate, Waiting
from csdp.service.metrics import Metrics
from csdp.service.problems import Problem, busy
from csdp.service.questions import Questions
from csdp.service.settings import Settings

Result = TypeVar("Result")
bearer = HTTPBearer(auto_error=False, description="An API key: `Authorization: Bearer csdp_...`")


@dataclass
class Service:
    """All that the routes share."""

    settings: Settings
    keys: Keys
    datasets: dict[str, Dataset]
    rate: Rate
    failures: Rate  #: wrong keys by address
    waiting: Waiting
    metrics: Metrics
    questions: Questions
    feeds: dict[str, Feed] = field(default_factory=dict)
    listening: int = 0  #: clients on live events

    def left(self) -> None:
        """One of them is gone."""
        self.listening -= 1


def service_of(request: Request) -> Service:
    """The service of a request."""
    found: Service = request.app.state.service
    return found


def address_of(request: Request) -> str:
    """The address of a client."""
    return request.client.host if request.client is not None else ""


def on_this_machine(request: Request) -> bool:
    """Whether a client is on this machine, and nobody in between forwards for others."""
    forwarded = {"x-forwarded-for", "forwarded", "x-real-ip"} & set(request.headers.keys())
    try:
        return not forwarded and ipaddress.ip_address(address_of(request)).is_loopback
    except ValueError:
        return False


def key_of(service: Service, request: Request, given: HTTPAuthorizationCredentials | None) -> Key:
    """The key of a request; wrong ones are slowed down by their address."""
    unknown = {"WWW-Authenticate": 'Bearer realm="csdp"'}
    if given is None:
        raise Problem(401, "no-key", "an API key is needed: `Authorization: Bearer csdp_...`", headers=unknown)
    try:
        key = service.keys.find(given.credentials)
    except InputError:
        raise Problem(500, "keys", "the file of keys cannot be used; the operator's log has the reason") from None
    if key is None:
        service.failures.check(address_of(request))
        raise Problem(401, "wrong-key", "this API key is not known, or was removed", headers=unknown)
    service.rate.check(key.id)
    return key


def need(*roles: Role) -> Callable[..., Awaitable[Key]]:
    """The rule of a route: a key with one of these roles, and for the dataset in the address where there is one."""

    async def check(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None
    ) -> Key:
        service = service_of(request)
        key = key_of(service, request, given)
        if key.role not in roles:
            raise Problem(403, "role", f"this needs a key with role {' or '.join(roles)}; yours is {key.role}")
        name = request.path_params.get("name")
        # The same answer for a dataset of others and for one that does not exist: names are not given away.
        if name is not None and not (key.covers(name) and name in service.datasets):
            raise Problem(404, "no-dataset", "no such dataset for this key; GET /api/datasets lists those there are")
        return key

    return check


def rule(*roles: Role, **more: Any) -> dict[str, Any]:
    """The same rule, for the description of a route."""
    return {"x-roles": list(roles), **more}


Shared = Annotated[Service, Depends(service_of)]
Given = Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
Writer = Annotated[Key, Depends(need("writer"))]
Reader = Annotated[Key, Depends(need("reader", "admin"))]
Anyone = Annotated[Key, Depends(need("writer", "reader", "admin"))]
Admin = Annotated[Key, Depends(need("admin"))]


async def in_thread(service: Service, work: Callable[[], Result]) -> Result:
    """Do something that takes long in a thread, and give up after a while."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        async with asyncio.timeout(service.settings.work_seconds):
            return await asyncio.shield(future)
    except TimeoutError:
        raise busy("the ledger takes long to answer; ask again a little later", seconds=5) from None
