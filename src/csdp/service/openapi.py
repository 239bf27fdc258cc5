"""What the routes are described with: errors, parameters and bodies of the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query

from csdp.service import models
from csdp.service.problems import MEDIA_TYPE

_WORDS = {
    400: "The request was cut off",
    401: "No key, or one that is not known",
    403: "The key has another role",
    404: "Not there, or not for this key",
    408: "The body took too long to arrive",
    413: "The body is too long",
    415: "A body of another type",
    422: "Not valid; the answer names the rule",
    429: "Too many requests; see Retry-After",
    500: "Something failed",
    503: "Busy; see Retry-After",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Descriptions of errors."""
    return {code: _error(code) for code in (*codes, 500)}


def _error(code: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {"description": _WORDS[code], "content": content}


KEYED = (401, 403, 429)
Name = Annotated[str, Path(description="The name of a dataset", min_length=1, max_length=200)]
Tick = Annotated[int | None, Query(ge=-(2**62), le=2**62, description="Only ticks after this one; else the newest")]
Count = Annotated[int, Query(ge=1, le=1000, description="How many at most")]
Common = Annotated[int, Query(ge=0, le=1000, description="Age of all readings, in ticks")]
Level = Annotated[float, Query(gt=0, le=1000, allow_inf_nan=False, description="Noise level")]
Many = Annotated[Literal["1", "continual"], Query(description="One release, or one at every tick")]

_SNAPSHOT = {
    "type": "object",
    "required": ["time", "values"],
    "properties": {
        "time": {
            "description": "A number, or an ISO timestamp (UTC where it names no zone)",
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
KEY_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": models.NewKey.model_json_schema(),
            "example": {"role": "reader", "datasets": ["ward-7"], "label": "dashboard in the corridor"},
        }
    },
}
