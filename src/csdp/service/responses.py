"""Answers: strict JSON, errors as problem details (RFC 9457), and what OpenAPI says of errors and parameters.

A problem names the rule that was broken, and never repeats what a request held."""

from __future__ import annotations

import logging
import os
import traceback
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from csdp.errors import CsdpError, InputError, LedgerBusyError, LedgerHeldError, LedgerTermsError, TooLargeError
from csdp.numbers import encode_json

log = logging.getLogger("csdp.service")

PROBLEM_TYPE = "application/problem+json"


class JsonResponse(Response):
    """A response in strict JSON: an infinite number is the text "inf"."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the body."""
        return encode_json(content)


class HttpProblem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """An error response: a status, a short name of the broken rule, and a sentence on what to do."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}
        self.errors: list[dict[str, str]] = []

    def response(self) -> JsonResponse:
        """The problem details that a client gets."""
        content: dict[str, Any] = {
            "type": f"urn:csdp:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            content["errors"] = self.errors
        return JsonResponse(content, status_code=self.status, media_type=PROBLEM_TYPE, headers=self.headers)


def busy_problem(detail: str, *, seconds: int = 1) -> HttpProblem:
    """503 with Retry-After."""
    return HttpProblem(503, "busy", detail, headers={"Retry-After": str(seconds)})


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
        return HttpProblem(code, f"http-{code}", detail, headers=dict(error.headers or {})).response()

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_: Request, error: RequestValidationError) -> Response:
        # Place and rule only: pydantic's `input` and `ctx` repeat what was sent.
        problem = HttpProblem(422, "invalid", "a parameter is not valid; `errors` names it and its rule")
        problem.errors = [
            {"where": ".".join(str(part) for part in one["loc"]), "rule": str(one["msg"])} for one in error.errors()
        ]
        return problem.response()

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
    if isinstance(error, TooLargeError):
        return HttpProblem(422, "too-large", str(error))
    if isinstance(error, InputError):
        return HttpProblem(422, "invalid", str(error))
    log.error("a request failed: %s", type(error).__name__)
    return HttpProblem(500, "failed", "the request failed; the operator finds the reason with `csdp ledger verify`")


def error_place(error: BaseException) -> str:
    """File and line where an error was raised, without its message, which might repeat what a request held."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown place"


#: The counts of an answer to messages; `reasons` comes beside them.
MESSAGE_COUNTS = ("accepted", "late", "ahead", "unreadable", "recorded")


class ProblemDetails(BaseModel):
    """An error (RFC 9457). It names the rule that was broken, never what a request held."""

    type: str = Field(examples=["urn:csdp:problem:rate"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["too many requests with this key; wait as Retry-After says"])
    errors: list[dict[str, str]] | None = None


# ---- errors, parameters, bodies --------------------------------------------------------------------------------------

_DESCRIPTIONS = {
    400: "The request was cut off",
    401: "No key, or one that is not known",
    403: "The key has another role",
    404: "Not there, or not for this key",
    408: "The body took too long to arrive",
    409: "Not as things stand; the answer says what would do",
    413: "The body is too long",
    415: "A body of another type",
    422: "Not valid; the answer names the rule",
    429: "Too many requests; see Retry-After",
    500: "Something failed",
    503: "Busy; see Retry-After",
}


def describe_errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, 500 among them."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {code: {"description": _DESCRIPTIONS[code], "content": content} for code in (*codes, 500)}


DatasetName = Annotated[str, Path(description="The name of a dataset", min_length=1, max_length=200)]
AfterTick = Annotated[
    int | None, Query(ge=-(2**62), le=2**62, description="Only ticks after this one; else the newest")
]
MaxCount = Annotated[int, Query(ge=1, le=1000, description="How many at most")]

_SNAPSHOT = {
    "type": "object",
    "required": ["time", "values"],
    "properties": {
        "time": {
            "description": "A number, or an ISO timestamp (UTC if it names no zone)",
            "oneOf": [
                {"type": "number", "minimum": -(2**53), "maximum": 2**53},
                {"type": "string", "examples": ["2024-05-01T12:00:07Z"]},
            ],
        },
        "values": {
            "description": "By name, or in the order of the sequences. A value is a number, or null for a gap; "
            "anything else counts as a gap too",
            "oneOf": [{"type": "object"}, {"type": "array"}],
        },
    },
    "examples": [{"time": 1714564807, "values": {"bed 3": 81, "bed 4": None}}],
}
SNAPSHOT_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": _SNAPSHOT},
        "application/x-ndjson": {
            "schema": {
                "type": "string",
                "examples": ['{"time": 60, "sequence": "bed 3", "value": 81}\n{"time": 61, "values": [80, null]}\n'],
            }
        },
    },
}
