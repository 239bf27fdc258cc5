"""Errors as problem details (RFC 9457). They name the rule that was broken, never what a request held."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from csdp.errors import CsdpError, InputError, LedgerBusyError, LedgerTermsError, TooLargeError

log = logging.getLogger("csdp.service")

MEDIA_TYPE = "application/problem+json"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Problem(Exception):  # noqa: N818 - it is an answer, as its standard calls it
    """An answer other than success: a status, a short name of the rule, and a sentence on what to do."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}
        self.errors: list[dict[str, str]] = []

    def response(self) -> JSONResponse:
        """As a client sees it."""
        content: dict[str, Any] = {
            "type": f"urn:csdp:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            content["errors"] = self.errors
        return JSONResponse(content, status_code=self.status, media_type=MEDIA_TYPE, headers=self.headers)


def busy(detail: str, *, seconds: int = 1) -> Problem:
    """Come back later."""
    return Problem(503, "busy", detail, headers={"Retry-After": str(seconds)})


def install(app: FastAPI) -> None:
    """Turn every error into problem details."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> JSONResponse:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        words = {
            404: "there is nothing at this address; /openapi.json lists what there is",
            405: "this address does not take this method; the Allow header lists those it takes",
        }
        detail = words.get(error.status_code, "the request cannot be answered")
        found = Problem(error.status_code, f"http-{error.status_code}", detail, headers=dict(error.headers or {}))
        return found.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Only where and which rule: pydantic's `input` and `ctx` repeat what was sent.
        found = Problem(422, "invalid", "a parameter is not valid; `errors` names it and its rule")
        found.errors = [
            {"where": ".".join(str(part) for part in one["loc"]), "rule": str(one["msg"])} for one in error.errors()
        ]
        return found.response()

    @app.exception_handler(CsdpError)
    async def known(_: Request, error: CsdpError) -> JSONResponse:
        return translated(error).response()


def translated(error: CsdpError) -> Problem:
    """One of our own errors as a problem. Its words are about settings and figures, never about a reading."""
    if isinstance(error, LedgerBusyError):
        return busy("the ledger is busy or out of reach; try again")
    if isinstance(error, LedgerTermsError):
        return Problem(409, "terms", f"{error}: the operator restarts the service with them")
    if isinstance(error, TooLargeError):
        return Problem(422, "too-large", str(error))
    if isinstance(error, InputError):
        return Problem(422, "invalid", str(error))
    log.error("a request failed: %s", type(error).__name__)
    return Problem(500, "failed", "the request failed; the operator finds the reason with `csdp ledger verify`")


def place(error: BaseException) -> str:
    """Where an error was raised, without its message: that might repeat what a request held."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"


class Guarded:
    """The outermost layer: an unexpected error becomes a plain answer, and its content stays out of the log."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ConnectionError:
            log.info("a client did not take its answer and was left")
        except Exception as error:
            if scope["type"] != "http":
                raise
            log.error("an unexpected %s at %s", type(error).__name__, place(error))
            if not started:
                failed = Problem(500, "failed", "something unexpected happened; the operator's log has the place")
                await failed.response()(scope, receive, send)
