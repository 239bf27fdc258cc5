"""Answers: strict JSON, errors as problem details (RFC 9457), and the OpenAPI description of both.

A problem names the rule that was broken, and never repeats what a request held."""

from __future__ import annotations

import logging
import os
import traceback
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
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


# ---- answers ---------------------------------------------------------------------------------------------------------

#: A number; the text "inf" where nothing bounds it.
Number = float | Literal["inf"]
Limit = float | None
ModelStatus = Literal["accepted", "rejected", "untested", "declared"]


class Record(BaseModel):
    """Base of all answers: no other fields than the declared ones."""

    model_config = ConfigDict(extra="forbid")


class ProblemDetails(BaseModel):
    """An error (RFC 9457). It names the rule that was broken, never what a request held."""

    type: str = Field(examples=["urn:csdp:problem:rate"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["too many requests with this key; wait as Retry-After says"])
    errors: list[dict[str, str]] | None = None


class ModelVerdict(Record):
    """Whether the data accept the model that the leakage of the present assumes."""

    status: ModelStatus
    reason: str
    words: str


class Health(Record):
    """Whether the service works."""

    status: Literal["ok", "degraded"]
    version: str


class Limits(Record):
    """The limits of a dataset, null if there is none."""

    budget: Limit
    event_limit: Limit
    lifetime_limit: Limit


class EstimateInfo(Record):
    """What the estimates next to the published numbers are about, and what they are worth."""

    kind: str = Field(examples=["history"])
    about: Literal["now", "then"] = Field(description="The present answer, or that of the time of the readings")
    level: float | None = Field(description="Share of the truths that the band is to hold; null without a band")
    mse: float = Field(description="Mean squared error to expect")
    no_data: float = Field(description="Mean squared error of guessing the usual value")
    usefulness: float | None = Field(
        description="Share of the squared error of guessing the usual value that is removed; null if it is not known: "
        "for readings without a public past, whose errors are those of readings at the values of their states"
    )
    measured_on: str = Field(description="What that rests on: covariances of the model, or held-out public readings")
    words: str


class FrontierPoint(Record):
    """One setting and what it achieves."""

    age: int
    epsilon_c: float
    leakage: Number
    bound: str
    mse: float
    best: bool = Field(description="No other point has less leakage and less error")


class FrontierInfo(Record):
    """Settings around those of the plan, computed with it and stored in its file."""

    releases: int | Literal["continual"] = Field(description="For how many releases the leakage holds")
    about: Literal["now", "then"]
    no_data: float = Field(description="Mean squared error of guessing the usual value")
    points: list[FrontierPoint]


class DatasetInfo(Record):
    """What is published, of whom, under which terms."""

    name: str
    sequences: int
    names: list[str]
    query: str = Field(examples=["mean"])
    outputs: list[str]
    ages: int | list[int] = Field(description="How many ticks old the published readings are: one for all, or one each")
    epsilon_c: float = Field(description="Noise level of one release; the largest where it changes with time")
    step: int = Field(description="Time from one tick to the next")
    origin: int
    lateness: float
    times: Literal["wall", "data"] = Field(
        description="wall: no tick is published before the wall clock has passed its end; data: the age of what is "
        "published is what the timestamps say"
    )
    limits: Limits
    model: ModelVerdict
    guarantee: dict[str, Any] = Field(description="What is promised, in words and numbers")
    not_protected: list[str] = Field(description="What the model takes as known, so that nothing is promised about it")
    estimate: EstimateInfo | None = Field(description="The estimates; null if none can be made")
    frontier: FrontierInfo | None = Field(description="What other settings would give; null if the plan has none")
    budgets: list[float] = Field(description="Budgets to choose from while it runs; empty if the limits are fixed")


#: The counts of an answer to messages; `reasons` comes beside them.
MESSAGE_COUNTS = ("accepted", "late", "ahead", "unreadable", "recorded")


class Counts(Record):
    """Messages by what became of them, which depends on form, names and times only."""

    accepted: int = Field(description="Messages of an open tick, whatever their values were")
    late: int = Field(description="Their tick was closed already")
    ahead: int = Field(description="Their time lies too far ahead: of the wall clock, or of most sequences")
    unreadable: int = Field(
        description="No message, of no sequence of this dataset, or of an unknown one beside others"
    )
    recorded: int = Field(
        0, description="Taken in for later releases; the number of their tick was recorded before, and stays"
    )
    reasons: list[str] = Field([], description="Unknown sequences that refused snapshots named, at most 8 times")


class ReleaseInfo(Record):
    """One published tick."""

    id: int = Field(description="The entry of the ledger, and the id of its live event")
    tick: int
    time: int = Field(description="When the tick began")
    values: list[float] = Field(description="The noisy answer")
    estimate: list[float] = Field(description="The estimate from this release and those before it")
    standard_error: list[float]
    low: list[float] = Field(description="The band around the estimate; empty if there is none")
    high: list[float]
    level: float | None = Field(description="Share of the truths that the band is to hold")
    about: Literal["now", "then"] = Field(description="The answer at present, or at the time of the readings")
    ages: int | list[int]
    stale: int = Field(description="How many ticks older than planned the oldest reading was")
    epsilon_s: Number = Field(description="Leakage of the present after this release, if the model holds")
    model: ModelStatus | None = Field(description="Verdict of the data on the model; null in ledgers before 0.3")
    usual: list[float] = Field(description="The best that could be said without any release; empty if not known")
    count: int | None = Field(default=None, description="Sequences that were read, where readings are published")


class Age(Record):
    """The age of the reading of one sequence in the newest release."""

    sequence: str
    planned: int
    age: int | None = Field(description="In ticks; null if there is no reading, or no process publishes at the moment")


class OutlookInfo(Record):
    """What the limits allow from now on."""

    tick: int | None = Field(description="The first tick that may be published; null if none may")
    ticks: int | None = Field(description="How many in a row from there on; null without end")
    rests: int = Field(description="Ticks before it that would be refused")
    more: bool = Field(description="So many were looked at, and there may be more")
    limited_by: str = Field(description="The limit that refuses the next tick, or ends them; empty if none does")
    words: str


class StatusInfo(Record):
    """The state of a dataset."""

    newest_tick: int | None
    newest_time: int | None
    published: int
    refused: int
    lost: int
    model: ModelVerdict
    present: Number = Field(
        description="Leakage of the present: what all releases together reveal about any current state, if the model "
        "holds"
    )
    budget: Limit
    limits: Limits
    remaining: dict[str, Number]
    event_level: Number
    group_level: Number
    lifetime: Number
    outlook: OutlookInfo
    ages: int | list[int]
    age_of_information: list[Age]
    watermark: float | None = Field(description="Readings from before this time are late")
    closed_tick: int | None
    skipped: int | None = Field(description="Ticks without output since the process began")
    reason: str = Field(description="Why the last tick without output had none")
    times: Literal["wall", "data"] = Field(description="What ages rest on: the wall clock, or what the timestamps say")
    ahead: int | None = Field(description="Messages refused since the process began: their time lay too far ahead")
    trouble: str = Field(description="Why publishing waits, or empty")


class LedgerLine(Record):
    """One entry of the ledger, without its content."""

    seq: int
    kind: Literal["open", "change", "reserve", "commit", "refuse"]
    tick: int | None
    recorded: str
    plan: str
    previous: str
    hash: str
    charge: dict[str, Any] | None = None
    charge_hash: str | None = None
    reason: str | None = None


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
