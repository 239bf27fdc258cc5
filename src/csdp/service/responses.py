"""JSON responses, and errors as problem details (RFC 9457), which name the broken rule and never repeat the request."""

from __future__ import annotations

import logging
import traceback
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from csdp.errors import CsdpError, InputError, LedgerBusyError, LedgerTermsError, TooLargeError
from csdp.stream.sinks import encode_json

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
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
