"""JSON text from outside: text that is not JSON is refused with one kind of error, whatever is wrong with it."""

from __future__ import annotations

import json
import sys
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
