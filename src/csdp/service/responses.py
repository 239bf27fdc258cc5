"""Answers: strict JSON, and errors as problem details (RFC 9457).

A problem names the rule that was broken, and never repeats what a request held."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from csdp.errors import CsdpError, InputError, LedgerBusyError, LedgerHeldError, LedgerTermsError
from csdp.numbers import encode_json

log = logging.getLogger("csdp.service")

PROBLEM_TYPE = "application/problem+json"
#: The counts of an answer to messages; `reasons` comes beside them.
MESSAGE_COUNTS = ("accepted", "late", "ahead", "unreadable", "recorded")


class JsonResponse(Response):
    """A response in strict JSON: an infinite number is the text "inf"."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the body."""
        return encode_json(content)


class ProblemDetails(BaseModel):
    """An error (RFC 9457). It names the rule that was broken, never what a request held."""

    type: str = Field(examples=["urn:csdp:problem:rate"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["too many requests with this key; wait as Retry-After says"])
    errors: list[dict[str, str]] | None = None


_PROBLEM = {
    "description": "Refused, or busy (503, 429: see Retry-After)",
    "content": {PROBLEM_TYPE: {"schema": ProblemDetails.model_json_schema()}},
}
#: The errors of every route, for OpenAPI.
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}


class HttpProblem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """An error response: a status, a short name of the broken rule, and a sentence on what to do."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers
        self.content: dict[str, Any] = {
            "type": f"urn:csdp:problem:{kind}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
        }

    def response(self) -> JsonResponse:
        """The problem details that a client gets."""
        return JsonResponse(self.content, status_code=self.status, media_type=PROBLEM_TYPE, headers=self.headers)


def busy_problem(detail: str, *, seconds: int = 1) -> HttpProblem:
    """503 with Retry-After."""
    return HttpProblem(503, "busy", detail, headers={"Retry-After": str(seconds)})


def invalid_problem(errors: Iterable[Mapping[str, Any]]) -> HttpProblem:
    """422 for errors of pydantic: place and rule only, because their `input` and `ctx` repeat what was sent."""
    problem = HttpProblem(422, "invalid", "not a valid request; `errors` names what is wrong")
    problem.content["errors"] = [{"where": ".".join(map(str, one["loc"])), "rule": one["msg"]} for one in errors]
    return problem


def install_handlers(app: FastAPI) -> None:
    """Turn every error into problem details."""

    @app.exception_handler(HttpProblem)
    async def on_problem(_: Request, error: HttpProblem) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> Response:
        details = {
            404: "there is nothing at this address; /openapi.json lists what there is",
            405: "this address does not take this method; the Allow header lists those it takes",
        }
        code = error.status_code
        detail = details.get(code, "the request cannot be answered")
        return HttpProblem(code, f"http-{code}", detail, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_: Request, error: RequestValidationError) -> Response:
        return invalid_problem(error.errors()).response()

    @app.exception_handler(CsdpError)
    async def on_csdp_error(_: Request, error: CsdpError) -> Response:
        return to_problem(error).response()


def to_problem(error: CsdpError) -> HttpProblem:
    """An error of this package as a problem. Its message is about settings and figures, never about a reading."""
    if isinstance(error, LedgerBusyError):
        return busy_problem("the ledger is busy or out of reach; try again")
    if isinstance(error, LedgerHeldError):
        return busy_problem("this service may not publish the dataset any more and is about to end; send it again")
    if isinstance(error, LedgerTermsError):
        return HttpProblem(409, "terms", f"{error}: the operator restarts the service with them")
    if isinstance(error, InputError):
        return HttpProblem(422, "invalid", str(error))
    log.error("a request failed: %s", type(error).__name__)
    return HttpProblem(500, "failed", "the request failed; the operator finds the reason with `csdp ledger verify`")


def error_place(error: BaseException) -> str:
    """File and line where an error was raised, without its message, which might repeat what a request held."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown place"
