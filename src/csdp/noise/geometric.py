"""Two-sided geometric noise, drawn exactly: one 64-bit word holds one random bit of 64 samples.

A Bernoulli variable of probability p compares random binary digits with those of p: it is 1 if, where they
first differ, the random one is the smaller. Here a plane of words is compared with one digit of p for many
samples at once, lanes that are still equal go on, and after 64 digits (never, in practice) they go on one by
one with as many digits as needed. So every probability is met exactly.

Words are taken in an order that depends on nothing but their values: for each block of samples, WHOLE planes
of (rows x words), then plane by plane the words that still have undecided lanes, then ties, then tails.

Probabilities are binary expansions, to as many digits as a comparison asks for. Every one is made from `exp(-x)`
with x rational and positive, hence irrational: its digits never end, and a comparison with random digits ends with
probability one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, floor, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from csdp.errors import InputError, TooLargeError
from csdp.noise.randomness import Randomness, Words
from csdp.numbers import Ints

BLOCK = 512  # words of 64 samples worked on together: the planes of a block stay in cache
COMPILED_FROM = 1 << 14  # samples; below, numpy is done before numba would be loaded
#: Planes compared for every word before only the undecided ones go on; after 7 about 40 % are left.
WHOLE = 7
#: Single draws that take as long as loading the compiled loops does; and a number for draws that have no end.
_MANY_DRAWS, ENDLESS = 2000, 2**63

_ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)
_SMALLEST, _LARGEST = 1e-9, 1e9

#: Digits are drawn side by side until `exp(-2^I/scale) <= exp(-12)`; what lies above is drawn one by one.
_TAIL_EXPONENT = 12

_Words = NDArray[np.uint64]

Scale = float | Fraction
"""A scale in grid units: floats are taken exactly as they are, fractions avoid even the last rounding."""


# ---- for callers -----------------------------------------------------------------------------------------------------


def two_sided_geometric(scale: Scale, shape: int | tuple[int, ...], randomness: Randomness) -> Ints:
    """Draw independent two-sided geometric (discrete Laplace) integers.

    `Pr(n) = (1-q)/(1+q) q^|n|` with `q = exp(-1/scale)`; for a query on a lattice of step g with sensitivity
    `Delta_f`, `scale = Delta_f / (g epsilon_c)`.

    Guarantee: the law is exact, given uniform random words; a value beyond int64 raises, it never wraps. The
    time a draw takes is not constant, and is no part of the guarantee. Reference: Ghosh, Roughgarden and
    Sundararajan, "Universally utility-maximizing privacy mechanisms" (2009), for the mechanism; the digits
    are derived in `ThresholdTable`.

    >>> noise = two_sided_geometric(1000.0, (2, 3), Randomness.secure())
    >>> noise.shape, noise.dtype
    ((2, 3), dtype('int64'))
    """
    if not isinstance(randomness, Randomness):
        raise InputError("randomness must be a Randomness, such as Randomness.secure()")
    try:
        dimensions = np.broadcast_shapes(shape)
    except (TypeError, ValueError):
        raise InputError(f"shape is {shape!r}; allowed are an integer of at least 0 or a tuple of such") from None
    return draw(_check_scale(scale), prod(dimensions), randomness.words()).reshape(dimensions)


def prepare_draws(count: int) -> None:
    """Load the compiled loops if so many draws follow, one after the other, that it pays; the law stays the same."""
    if count >= _MANY_DRAWS:
        compiled_engine()


def variance(scale: Scale) -> float:
    """Return the variance of the noise, in squared grid units: `2q/(1-q)^2` with `q = exp(-1/scale)`.

    Computed as `2 e^-x / expm1(-x)^2`, `x = 1/scale`, which keeps its digits for the largest scales and goes
    to zero for the smallest.

    >>> variance(1000.0)
    1999999.8333333414
    """
    x = float(1 / _check_scale(scale))
    return 2.0 * exp(-x) / expm1(-x) ** 2


def _check_scale(scale: object) -> Fraction:
    """A scale as an exact fraction; InputError if it is not allowed."""
    if type(scale) is Fraction and scale.denominator <= 10**9 * scale.numerator <= 10**18 * scale.denominator:
        return scale  # the way of every release: whole numbers compare faster than fractions with floats
    number = scale.item() if isinstance(scale, np.generic) else scale
    if (
        isinstance(number, int | float | Fraction)
        and not isinstance(number, bool)
        and _SMALLEST <= number <= _LARGEST  # false for NaN
    ):
        return Fraction(number)
    shown = repr(scale) if not isinstance(scale, Fraction) else "a fraction beyond that"  # it may have many digits
    raise InputError(f"scale is {shown}; allowed are numbers from 1e-9 to 1e9 grid units")


# ---- probabilities --------------------------------------------------------------------------------------------------


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

    def bernoulli(self, words: Words, *, after: int = 0) -> bool:
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
    """Return the thresholds for `q = exp(-1/scale)`; scale is public, so keeping them reveals nothing."""
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


# ---- the loops of the sampler, in numpy -----------------------------------------------------------------------------


class SamplerLoops(NamedTuple):
    """The three loops of the sampler, in numpy or compiled; the same words give the same integers."""

    compare: Callable[[_Words, _Words, _Words, _Words, Ints], int]
    narrow: Callable[[_Words, int, int, _Words, _Words, _Words, Ints, int], tuple[int, int, int]]
    assemble: Callable[[_Words, int, Ints], None]


def compare(words: _Words, first: _Words, undecided: _Words, ones: _Words, index: Ints) -> int:
    """Compare WHOLE planes for every word; list in `index` those with undecided lanes, return how many."""
    planes = words[: WHOLE * ones.size].reshape(WHOLE, *ones.shape)
    undecided[:] = _ALL
    ones[:] = 0
    for plane in range(WHOLE):
        digit = _digits(first, plane)[:, None]
        decided = (planes[plane] ^ digit) & undecided
        ones |= decided & digit
        undecided ^= decided
    left = np.flatnonzero(undecided)
    index[: left.size] = left
    return left.size


def narrow(
    words: _Words,
    at: int,
    plane: int,
    first: _Words,
    undecided: _Words,
    ones: _Words,
    index: Ints,
    count: int,
) -> tuple[int, int, int]:
    """Compare further planes, for undecided words only, while a whole plane fits into `words`."""
    flat_undecided, flat_ones, width = undecided.ravel(), ones.ravel(), ones.shape[1]
    while count and plane < 64 and at + count <= words.size:
        left = index[:count]
        digit = _digits(first, plane)[left // width]
        decided = (words[at : at + count] ^ digit) & flat_undecided[left]
        flat_ones[left] |= decided & digit
        flat_undecided[left] ^= decided
        at += count
        plane += 1
        left = left[flat_undecided[left] != 0]
        count = left.size
        index[:count] = left
    return at, plane, count


def assemble(ones: _Words, digits: int, out: Ints) -> None:
    """Turn digit planes into integers: with the sign in every higher digit they are two's complement."""
    sign = ones[digits]
    size = next(b for b in (2, 4, 8) if digits < 8 * b)  # bytes for the digits and at least one sign
    planes = np.empty((8 * size, sign.size), "<u8")
    planes[:digits] = ones[:digits] ^ sign
    planes[digits:] = sign
    bits = np.unpackbits(planes.view(np.uint8), axis=1, bitorder="little")
    packed = np.packbits(bits, axis=0, bitorder="little")
    out[:] = np.ascontiguousarray(packed.T).view(f"<i{size}").ravel()


def _digits(first: _Words, plane: int) -> _Words:
    """Return digit number `plane` of every threshold, spread over a whole word: 0 or all ones."""
    return -((first >> np.uint64(63 - plane)) & _ONE)


# ---- the same loops for numba ---------------------------------------------------------------------------------------


def compare_loop(
    words: _Words,
    first: _Words,
    undecided: _Words,
    ones: _Words,
    index: Ints,
) -> int:
    """`compare` for numba."""
    rows, width = ones.shape
    count = 0
    for row in range(rows):
        equal = undecided[row]
        one = ones[row]
        for w in range(width):
            equal[w] = _ALL
            one[w] = np.uint64(0)
        for plane in range(WHOLE):
            start = (plane * rows + row) * width
            random = words[start : start + width]
            if (first[row] >> np.uint64(63 - plane)) & np.uint64(1):
                for w in range(width):  # a zero below a one: smaller, decided, the answer is 1
                    one[w] |= equal[w] & ~random[w]
                    equal[w] &= random[w]
            else:
                for w in range(width):  # a one above a zero: larger, decided, the answer is 0
                    equal[w] &= ~random[w]
        for w in range(width):
            index[count] = row * width + w
            count += equal[w] != 0
    return count


def narrow_loop(
    words: _Words,
    at: int,
    plane: int,
    first: _Words,
    undecided: _Words,
    ones: _Words,
    index: Ints,
    count: int,
) -> tuple[int, int, int]:
    """`narrow` for numba."""
    width = ones.shape[1]
    equal = undecided.ravel()
    one = ones.ravel()
    while count > 0 and plane < 64 and at + count <= words.size:
        shift = np.uint64(63 - plane)
        row, end = 0, width
        wanted = ~((first[0] >> shift) & np.uint64(1)) + np.uint64(1)
        left = 0
        for k in range(count):
            i = index[k]
            while i >= end:
                row += 1
                end += width
                wanted = ~((first[row] >> shift) & np.uint64(1)) + np.uint64(1)
            decided = (words[at + k] ^ wanted) & equal[i]
            one[i] |= decided & wanted
            equal[i] ^= decided
            index[left] = i
            left += equal[i] != 0
        at += count
        plane += 1
        count = left
    return at, plane, count


def assemble_loop(ones: _Words, digits: int, out: Ints) -> None:
    """`assemble` for numba."""
    for word in range(ones.shape[1]):
        sign = ones[digits, word]
        samples = out[64 * word : 64 * word + 64]
        for lane in range(64):
            samples[lane] = -np.int64(sign >> np.uint64(lane) & np.uint64(1))
        for digit in range(digits - 1, -1, -1):
            bits = ones[digit, word] ^ sign
            for lane in range(64):
                samples[lane] = samples[lane] << 1 | np.int64(bits >> np.uint64(lane) & np.uint64(1))


NUMPY = SamplerLoops(compare, narrow, assemble)
LOOPS = SamplerLoops(compare_loop, narrow_loop, assemble_loop)


@lru_cache(maxsize=1)
def compiled_engine() -> SamplerLoops:
    """Compile the loops, or load them from numba's cache; numba itself is imported here and only here."""
    from numba import njit

    jit = njit(cache=True, nogil=True)
    return SamplerLoops(jit(compare_loop), jit(narrow_loop), jit(assemble_loop))


# ---- drawing --------------------------------------------------------------------------------------------------------


def draw(scale: Fraction, count: int, words: Words, *, engine: SamplerLoops | None = None) -> Ints:
    """Draw `count` two-sided geometric integers; the engine is chosen by size if none is given."""
    if engine is None:
        # Once loaded, the compiled loops are the faster ones for a single sample too.
        loaded = compiled_engine.cache_info().currsize > 0
        engine = compiled_engine() if loaded or count >= COMPILED_FROM else NUMPY
    law = threshold_table(scale)
    out = np.empty(count, np.int64)
    full = min(BLOCK, -(-count // 64))
    space = _Space(law, full)
    for start in range(0, count, 64 * BLOCK):
        part = out[start : start + 64 * BLOCK]
        width = -(-part.size // 64)
        if width != full:
            space = _Space(law, width)
        target = part if part.size == 64 * width else np.empty(64 * width, np.int64)
        _draw_block(law, space, target, words, engine)
        if target is not part:
            part[:] = target[: part.size]
    return out


class _Space:
    """The working arrays of a block, kept from block to block."""

    def __init__(self, law: ThresholdTable, width: int) -> None:
        shape = (law.first.size, width)
        self.undecided = np.empty(shape, np.uint64)
        self.ones = np.empty(shape, np.uint64)
        self.index = np.empty(self.ones.size, np.int64)
        # One more plane than WHOLE holds all the words that go on, about 0.8 plane together, and is room for
        # any single plane when it has to be filled again.
        self.words = np.empty((WHOLE + 1) * self.ones.size + 64, np.uint64)


def _draw_block(law: ThresholdTable, space: _Space, out: Ints, words: Words, engine: SamplerLoops) -> None:
    words.fill(space.words)
    count = engine.compare(space.words, law.first, space.undecided, space.ones, space.index)
    at = whole = WHOLE * space.ones.size
    plane = WHOLE
    while True:
        at, plane, count = engine.narrow(
            space.words, at, plane, law.first, space.undecided, space.ones, space.index, count
        )
        if count == 0 or plane == 64:
            break
        at = whole  # the next plane does not fit into what is left
        words.fill(space.words[whole:])
    if count:
        _break_ties(law, space, count, words)
    engine.assemble(space.ones, law.digits, out)
    for position in np.flatnonzero(space.ones[-1]):
        for lane in _lanes(space.ones[-1, position]):
            _add_tail(law, out, int(position) * 64 + lane, words)


def _break_ties(law: ThresholdTable, space: _Space, count: int, words: Words) -> None:
    """Decide the lanes that were equal to the first 64 digits of their threshold with its further digits."""
    width = space.ones.shape[1]
    undecided, ones = space.undecided.ravel(), space.ones.ravel()
    for i in space.index[:count]:
        for lane in _lanes(undecided[i]):
            if law.thresholds[int(i) // width].bernoulli(words, after=1):
                ones[i] |= _ONE << np.uint64(lane)


def _add_tail(law: ThresholdTable, out: Ints, position: int, words: Words) -> None:
    """Add what lies above the digits of one sample: one 2^I for the tail drawn, and for each that follows."""
    beyond = 1
    while law.tail.bernoulli(words):
        beyond += 1
    out[position] = _move_away(int(out[position]), beyond << law.digits)


def _move_away(value: int, more: int) -> int:
    """Move a value away from zero (-1 being the zero of the negative side); refuse to leave int64."""
    sign = -1 if value < 0 else 0
    magnitude = (value ^ sign) + more
    if magnitude >= 2**63:
        raise TooLargeError(
            "a noise value passes the 64-bit integers, which has a probability below exp(-9e9) at any "
            "allowed scale: the random words are broken",
            needed=float(magnitude),
            limit=float(2**63 - 1),
        )
    return magnitude ^ sign


def _lanes(word: np.uint64) -> Iterator[int]:
    """Give the positions of the ones in a word, from the lowest."""
    rest = int(word)
    while rest:
        yield (rest & -rest).bit_length() - 1
        rest &= rest - 1
