"""Probabilities as binary expansions, to as many digits as a comparison asks for.

Every probability here is made from `exp(-x)` with x rational and positive, hence irrational: its digits never
end, and a comparison with random digits ends with probability one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_TAIL_EXPONENT = 12
"""Digits are drawn side by side until `exp(-2^I/scale) <= exp(-12)`; what lies above is drawn one by one."""


class WordSource(Protocol):
    """Whatever fills a buffer with independent uniform 64-bit words."""

    def fill(self, buffer: NDArray[np.uint64], /) -> None:
        """Overwrite the buffer with fresh words."""


@lru_cache(maxsize=4096)
def _expansion(exponent: Fraction, is_odds: bool, bits: int) -> int:
    """Return `floor(2^bits p)` with `p = e/(1+e)` (odds) or `p = e` (plain), `e = exp(-exponent)`.

    The value is bracketed with directed rounding (Decimal.exp is correctly rounded) and the bracket narrowed
    until both ends have the same floor, so the digits are proven, not estimated.
    """
    if exponent >= bits:  # p <= exp(-bits) < 2^-bits: all digits are 0, however small p is
        return 0
    precision = bits // 3 + 25
    while True:
        ends: list[int] = []
        for rounding in (ROUND_CEILING, ROUND_FLOOR):
            context = Context(prec=precision, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
            x = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
            nearest = context.exp(x.copy_negate())
            is_lower = rounding == ROUND_CEILING
            e = Fraction(context.next_minus(nearest) if is_lower else context.next_plus(nearest))
            ends.append(floor((e / (1 + e) if is_odds else e) * 2**bits))
        if ends[0] == ends[1]:
            return ends[0]
        precision *= 2


@dataclass(frozen=True)
class Threshold:
    """The probability `e/(1+e)` (odds) or `e` (plain) with `e = exp(-exponent)`, as a binary expansion.

    >>> Threshold(Fraction(1), is_odds=False).word(0) / 2**64
    0.36787944117144233
    """

    exponent: Fraction
    is_odds: bool

    def word(self, k: int) -> int:
        """Return binary digits 64k to 64k+63 behind the point, as one integer."""
        return _expansion(self.exponent, self.is_odds, 64 * (k + 1)) & (2**64 - 1)

    def bernoulli(self, words: WordSource, *, after: int = 0) -> bool:
        """Draw 1 with exactly this probability, given that the first `after` words of digits were equal."""
        buffer = np.empty(1, np.uint64)
        while True:
            words.fill(buffer)
            random, wanted = int(buffer[0]), self.word(after)
            if random != wanted:
                return random < wanted
            after += 1


@dataclass(frozen=True)
class ThresholdTable:
    """What one scale needs: thresholds of `digits` digits, then of the sign, then of the tail.

    A geometric G with `Pr(G >= k) = q^k`, `q = exp(-1/scale)`, has independent binary digits, digit i being 1
    with odds `q^(2^i)`. What is left above digit I-1, `G >> I`, is geometric again, with ratio `q^(2^I)`, and
    independent of the digits below: nothing is cut off. The sign is 1 (negative) with odds q, and then the
    two-sided variable is `-1-G`, which is G with every digit flipped.
    """

    digits: int
    thresholds: tuple[Threshold, ...]
    first: NDArray[np.uint64]

    @property
    def tail(self) -> Threshold:
        """The probability that G goes beyond its digits, and, having passed 2^I, beyond each further 2^I."""
        return self.thresholds[-1]


@lru_cache(maxsize=256)
def threshold_table(scale: Fraction) -> ThresholdTable:
    """Return the thresholds for `q = exp(-1/scale)`; scale is public, so keeping them tells nothing."""
    digits = 0
    while 2**digits < _TAIL_EXPONENT * scale:
        digits += 1
    thresholds = (
        *(Threshold(2**i / scale, is_odds=True) for i in range(digits)),
        Threshold(1 / scale, is_odds=True),
        Threshold(2**digits / scale, is_odds=False),
    )
    first = np.array([t.word(0) for t in thresholds], np.uint64)
    first.flags.writeable = False
    return ThresholdTable(digits, thresholds, first)
