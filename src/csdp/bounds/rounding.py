"""Rounding against ourselves: a reported leakage is never below the computed one."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

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


def shown(value: float, digits: int = 6) -> str:
    """A leakage for reading: rounded up, because what is shown must not promise more than what was found.

    The last 1e-12 is taken off first, so that 0.4 plus rounding reads 0.4.

    >>> shown(0.02356211), shown(0.4 + 1e-15), shown(math.inf), shown(round_up(0.0))
    ('0.0235622', '0.4', 'infinite', 'below 1e-300')
    """
    if value == 0:
        return "0"
    if value < 1e-300:
        return "below 1e-300"
    if math.isinf(value):
        return "infinite"
    lowered = Decimal(value) * (1 - Decimal("1e-12"))
    raised = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(lowered)
    return f"{float(raised):.{digits}g}"
