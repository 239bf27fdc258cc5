"""Numbers as strict JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


def plain(value: Any) -> Any:
    """The same with every infinite number as the text "inf": a leakage that is not bounded must not look like none.

    >>> plain({"epsilon": float("inf"), "mse": (1.0, 2)})
    {'epsilon': 'inf', 'mse': [1.0, 2]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else ("-inf" if value < 0 else None)
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def encoded(content: Any) -> bytes:
    """Compact strict JSON."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(plain(content), separators=(",", ":"), allow_nan=False).encode()


class Json(Response):
    """An answer in strict JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return encoded(content)
