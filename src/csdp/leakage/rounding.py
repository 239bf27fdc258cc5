"""Rounding against ourselves: a reported leakage is never below the computed one."""

from __future__ import annotations

import math

SMALLEST = math.ulp(0.0)
_DIGITS = 44


def round_up(value: float) -> float:
    """Round up to 44 binary digits (about 1e-13); never 0, so that underflow does not look like perfect privacy.

    >>> round_up(0.1) >= 0.1, round_up(0.0) > 0, round_up(math.inf)
    (True, True, inf)
    """
    if math.isnan(value):
        raise FloatingPointError("a leakage came out as NaN; please report this chain, query and ages")
    if value <= SMALLEST:
        return SMALLEST
    if math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    raised = math.ldexp(math.ceil(mantissa * 2**_DIGITS), exponent - _DIGITS)
    return raised if raised >= value else math.nextafter(value, math.inf)
