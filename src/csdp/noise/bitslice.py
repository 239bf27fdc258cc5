"""Bit-sliced exact sampling: one 64-bit word holds one random bit of 64 samples.

A Bernoulli variable of probability p compares random binary digits with those of p: it is 1 if, where they
first differ, the random one is the smaller. Here a plane of words is compared with one digit of p for many
samples at once, lanes that are still equal go on, and after 64 digits (never, in practice) they go on one by
one with as many digits as needed. So every probability is met exactly.

Words are taken in an order that depends on nothing but their values: for each block of samples, WHOLE planes
of (rows x words), then plane by plane the words that still have undecided lanes, then ties, then tails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from csdp.arrays import Ints
from csdp.errors import TooLargeError
from csdp.noise import compiled
from csdp.noise.compiled import WHOLE
from csdp.noise.thresholds import ThresholdTable, WordSource, threshold_table

BLOCK = 512  # words of 64 samples worked on together: the planes of a block stay in cache
COMPILED_FROM = 1 << 14  # samples; below, numpy is done before numba would be loaded

_ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)

_Words = NDArray[np.uint64]


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
    flat_undecided, flat_ones, width = undecided.reshape(-1), ones.reshape(-1), ones.shape[1]
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
    out[:] = np.ascontiguousarray(packed.T).view(f"<i{size}").reshape(-1)


def _digits(first: _Words, plane: int) -> _Words:
    """Return digit number `plane` of every threshold, spread over a whole word: 0 or all ones."""
    return -((first >> np.uint64(63 - plane)) & _ONE)


NUMPY = SamplerLoops(compare, narrow, assemble)


@lru_cache(maxsize=1)
def compiled_engine() -> SamplerLoops:
    """Compile the loops, or load them from numba's cache; numba itself is imported here and only here."""
    from numba import njit

    jit = njit(cache=True, nogil=True)
    return SamplerLoops(jit(compiled.compare), jit(compiled.narrow), jit(compiled.assemble))


def draw(scale: Fraction, count: int, words: WordSource, *, engine: SamplerLoops | None = None) -> Ints:
    """Draw `count` two-sided geometric integers; the engine is chosen by size where none is given."""
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


def _draw_block(law: ThresholdTable, space: _Space, out: Ints, words: WordSource, engine: SamplerLoops) -> None:
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


def _break_ties(law: ThresholdTable, space: _Space, count: int, words: WordSource) -> None:
    """Decide the lanes that were equal to the first 64 digits of their threshold with its further digits."""
    width = space.ones.shape[1]
    undecided, ones = space.undecided.reshape(-1), space.ones.reshape(-1)
    for i in space.index[:count]:
        for lane in _lanes(undecided[i]):
            if law.thresholds[int(i) // width].bernoulli(words, after=1):
                ones[i] |= _ONE << np.uint64(lane)


def _add_tail(law: ThresholdTable, out: Ints, position: int, words: WordSource) -> None:
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
