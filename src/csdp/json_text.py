"""Strict JSON: text from outside is refused with one kind of error, and infinite numbers are written as text."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from csdp.errors import InputError


def parse_json(what: str, text: str | bytes) -> Any:
    """The content of a JSON text; InputError, which begins with `what`, where it is none.

    Python reads whole numbers of at most 4,300 digits, because longer ones would keep it busy.

    >>> parse_json("chain", "[1, 2.5]")
    [1, 2.5]
    >>> parse_json("chain", "9" * 5000)
    Traceback (most recent call last):
    ...
    csdp.errors.InputError: chain: not JSON that can be read (a number of more than 4,300 digits)
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: not JSON ({error})") from None
    except ValueError:  # the only other one that the parser raises
        digits = f"{sys.get_int_max_str_digits():,}"
        raise InputError(f"{what}: not JSON that can be read (a number of more than {digits} digits)") from None


def to_strict_json(content: Any) -> Any:
    """The same data for strict JSON: an infinite number becomes text, to tell it from a missing one (NaN: null).

    >>> to_strict_json({"epsilon": math.inf, "output": (0.5,)})
    {'epsilon': 'inf', 'output': [0.5]}
    """
    if isinstance(content, float) and not math.isfinite(content):
        return None if math.isnan(content) else "inf" if content > 0 else "-inf"
    if isinstance(content, Mapping):
        return {str(key): to_strict_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_strict_json(value) for value in content]
    return content


def json_text(content: Any) -> str:
    """Indented strict JSON, see `to_strict_json`."""
    return json.dumps(to_strict_json(content), indent=2, allow_nan=False)


def encode_json(content: Any) -> bytes:
    """Compact strict JSON, see `to_strict_json`."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(to_strict_json(content), separators=(",", ":"), allow_nan=False).encode()
