"""Validators that say what was given, what is allowed and what to do.

Each returns the value in its proper type, or raises `InputError`. `name` is what the user wrote, such as
"epsilon_c"; `hint` ends the message with what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from csdp.errors import InputError
from csdp.numbers import Floats, fill_masked

__all__ = ["choice", "distinct", "floats", "number", "text", "whole"]

Choice = TypeVar("Choice", bound=str)


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    hint: str = "",
) -> float:
    """A finite number within its limits.

    >>> number("epsilon_c", 0.5, above=0)
    0.5
    >>> number("epsilon_c", -1, above=0, hint="smaller means more noise")
    Traceback (most recent call last):
    csdp.errors.InputError: epsilon_c: -1 given; a finite number above 0 is allowed (smaller means more noise)
    """
    limits = _words(above=above, least=least, below=below, most=most)
    try:
        found = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or not _within(found, above, least, below, most):
        raise InputError(f"{name}: {value!r} given; a finite number{limits} is allowed{_tail(hint)}")
    return found


def whole(name: str, value: Any, *, least: int = 0, most: int | None = None, hint: str = "") -> int:
    """A whole number within its limits, also as a float such as 3.0.

    >>> whole("horizon", 2.5, least=1)
    Traceback (most recent call last):
    csdp.errors.InputError: horizon: 2.5 given; a whole number, at least 1, is allowed
    """
    try:
        found = None if isinstance(value, bool | str | bytes) else int(value)
        equal = found is not None and bool(found == value)
    except (TypeError, ValueError, OverflowError):
        found, equal = None, False
    if found is None or not equal or not _within(found, None, least, None, most):
        limits = _words(least=least, most=most)
        raise InputError(f"{name}: {value!r} given; a whole number{limits} is allowed{_tail(hint)}")
    return found


def choice(name: str, value: Any, allowed: Sequence[Choice], *, hint: str = "") -> Choice:
    """One of a closed set of words.

    >>> choice("direction", "sideways", ("forward", "backward"))
    Traceback (most recent call last):
    csdp.errors.InputError: direction: 'sideways' given; one of 'forward', 'backward' is allowed
    """
    for word in allowed:
        if isinstance(value, str) and value == word:
            return word
    words = ", ".join(repr(word) for word in allowed)
    raise InputError(f"{name}: {value!r} given; one of {words} is allowed{_tail(hint)}")


def text(name: str, value: Any, *, most: int = 200, hint: str = "") -> str:
    """A text of printable characters, not empty."""
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise InputError(f"{name}: {value!r:.80} given; 1 to {most} printable characters are allowed{_tail(hint)}")
    return value


def distinct(name: str, values: Iterable[Any]) -> None:
    """No value twice.

    >>> distinct("names", ["a", "b", "a"])
    Traceback (most recent call last):
    csdp.errors.InputError: names: 'a' appears twice; give each one a separate name
    """
    seen = set()
    for value in values:
        if value in seen:
            raise InputError(f"{name}: {value!r} appears twice; give each one a separate name")
        seen.add(value)


def floats(name: str, value: Any, *, shape: tuple[int | None, ...] | None = None, finite: bool = True) -> Floats:
    """An array of numbers of the given shape, in which `None` stands for any length.

    >>> floats("weights", [[1, 2], [3]], shape=(None, 2))
    Traceback (most recent call last):
    csdp.errors.InputError: weights: rows of unequal length or cells that are not numeric; give numbers in equal rows
    """
    try:
        found = np.asarray(fill_masked(value, math.nan), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name}: rows of unequal length or cells that are not numeric; give numbers in equal rows"
        ) from None
    if shape is not None and (
        found.ndim != len(shape) or any(n not in {None, k} for n, k in zip(shape, found.shape, strict=True))
    ):
        wanted = " x ".join("any" if n is None else str(n) for n in shape)
        given = " x ".join(map(str, found.shape)) or "a single number"
        raise InputError(f"{name}: {given} given; numbers of shape {wanted} are allowed")
    if finite and not np.isfinite(found).all():
        raise InputError(f"{name}: missing or infinite numbers given; finite numbers are allowed")
    return found


def _within(found: float, above: float | None, least: float | None, below: float | None, most: float | None) -> bool:
    return (
        (above is None or found > above)
        and (least is None or found >= least)
        and (below is None or found < below)
        and (most is None or found <= most)
    )


def _words(
    *, above: float | None = None, least: float | None = None, below: float | None = None, most: float | None = None
) -> str:
    limits = []
    if above is not None:
        limits.append(f"above {above:g}")
    if least is not None:
        limits.append(f"at least {least:,}")
    if below is not None:
        limits.append(f"below {below:g}")
    if most is not None:
        limits.append(f"at most {most:,}")
    if not limits:
        return ""
    joined = " and ".join(limits)
    return f", {joined}," if least is not None or len(limits) > 1 else f" {joined}"


def _tail(hint: str) -> str:
    return f" ({hint})" if hint else ""
