"""The sampler's definition followed bit by bit in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
import pytest
from numpy.typing import NDArray

from csdp.errors import UnsafeRandomnessWarning
from csdp.noise import Randomness, geometric
from csdp.noise.geometric import WHOLE, Threshold

FAST = ["numpy", "compiled"]
ENGINES = [*FAST, "interpreted"]
SCALES = [1e-9, 0.01, 1 / 12, 0.5, 1.0, 7.3, 1000.0, 2.0**16 / 12, 65536.0, 1e9]  # one of exactly sixteen digits


def engine(name: str) -> geometric.SamplerLoops:
    """The numpy loops, the compiled ones, or the source of the compiled ones as Python runs it."""
    if name == "interpreted":
        return geometric.LOOPS
    return geometric.NUMPY if name == "numpy" else geometric.compiled_engine()


def seeded(seed: int) -> Randomness:
    with pytest.warns(UnsafeRandomnessWarning):
        return Randomness.unsafe_seed(seed)


@lru_cache(maxsize=10_000)
def power_of_e(x: Fraction, bits: int) -> tuple[int, int]:
    """Bracket 2^bits exp(-x), by the alternating series of exp(-x/2^k) and k squarings in integers."""
    if x >= bits:
        return 0, 1
    halvings = floor(x).bit_length() + 2
    guard = bits + 4 * halvings + 40
    small = x / 2**halvings
    term, total, n = Fraction(1), Fraction(0), 0
    while term * 2**guard > 1:
        total += (-1) ** n * term
        n += 1
        term = Fraction(floor(term * small / n * 2 ** (2 * guard)), 2 ** (2 * guard))
    low = floor(total * 2**guard) - n - 2
    high = low + 2 * n + 6
    for _ in range(halvings):
        low, high = low * low >> guard, (high * high >> guard) + 1
    return low >> guard - bits, (high >> guard - bits) + 1


def oracle_digits(x: Fraction, is_odds: bool, bits: int) -> int:
    """Return floor(2^bits p) from the bracket; the test fails if the bracket cannot tell."""
    fine = bits + 64
    ends = {(e << bits) // ((1 << fine) + e) if is_odds else e >> fine - bits for e in power_of_e(Fraction(x), fine)}
    assert len(ends) == 1
    return ends.pop()


class Oracle:
    """Draws sample by sample from the definition, and logs the words in the order the sampler takes them.

    `choose(row, position, plane)` gives the words of the planes, `single()` those of ties and tails.
    """

    def __init__(
        self,
        scale: Fraction,
        width: int,
        choose: Callable[[int, int, int], int],
        single: Callable[[Threshold, int], int],
    ) -> None:
        self.digits = 0
        while Fraction(2**self.digits) / scale < 12:
            self.digits += 1
        exponents = [*(Fraction(2**i) / scale for i in range(self.digits)), 1 / scale]
        self.laws = [Threshold(x, True) for x in exponents]
        self.laws.append(Threshold(Fraction(2**self.digits) / scale, False))
        self.log: list[int] = []
        self.single = single
        bits = self._planes(width, choose)
        self.values = [self._value([row[k] for row in bits]) for k in range(64 * width)]

    def _planes(self, width: int, choose: Callable[[int, int, int], int]) -> list[list[int]]:
        cells = [(row, position) for row in range(len(self.laws)) for position in range(width)]
        prefix = dict.fromkeys(((row, 64 * p + lane) for row, p in cells for lane in range(64)), 0)
        answer: dict[tuple[int, int], int] = {}
        room = (WHOLE + 1) * len(cells) + 64
        plane, left = 0, cells
        while left and plane < 64:
            if len(left) > room:
                self.log += [0] * room  # what is left of the buffer is thrown away
                room = len(cells) + 64
            for row, position in left:
                word = choose(row, position, plane)
                self.log.append(word)
                for lane in range(64):
                    cell = (row, 64 * position + lane)
                    if cell in answer:
                        continue
                    prefix[cell] = 2 * prefix[cell] + (word >> lane & 1)
                    law = self.laws[row]
                    wanted = oracle_digits(law.exponent, law.is_odds, plane + 1)
                    if prefix[cell] != wanted:
                        answer[cell] = int(prefix[cell] < wanted)
            room -= len(left)
            plane += 1
            if plane >= WHOLE:
                left = [(r, p) for r, p in left if any((r, 64 * p + lane) not in answer for lane in range(64))]
        self.log += [0] * room
        for row, position in cells:
            for lane in range(64):
                cell = (row, 64 * position + lane)
                if cell not in answer:
                    answer[cell] = self._bernoulli(self.laws[row], prefix[cell], 64)
        return [[answer[row, k] for k in range(64 * width)] for row in range(len(self.laws))]

    def _bernoulli(self, law: Threshold, prefix: int, bits: int) -> int:
        while True:
            self.log.append(self.single(law, bits // 64))
            prefix, bits = prefix << 64 | self.log[-1], bits + 64
            wanted = oracle_digits(law.exponent, law.is_odds, bits)
            if prefix != wanted:
                return int(prefix < wanted)

    def _value(self, bits: list[int]) -> int:
        beyond = bits[-1]
        while beyond and self._bernoulli(self.laws[-1], 0, 0):
            beyond += 1
        geometric = (beyond << self.digits) + sum(b << i for i, b in enumerate(bits[: self.digits]))
        return -1 - geometric if bits[self.digits] else geometric


class Replay:
    """Gives back logged words, and notices when more are asked for."""

    def __init__(self, words: list[int]) -> None:
        self.words = words
        self.at = 0

    def fill(self, buffer: NDArray[np.uint64], /) -> None:
        buffer[:] = np.array(self.words[self.at : self.at + buffer.size], np.uint64)
        self.at += buffer.size


def random_oracle(scale: Fraction, width: int, seed: int) -> Oracle:
    source = np.random.default_rng(seed)

    def word(*_: object) -> int:
        return int(source.integers(2**64, dtype=np.uint64))

    return Oracle(scale, width, word, word)


def check(oracle: Oracle, scale: Fraction, name: str) -> None:
    replay = Replay(oracle.log)
    with np.errstate(over="ignore"):  # two's complement on purpose, where Python runs what is to be compiled
        noise = geometric.draw(scale, len(oracle.values), replay, engine=engine(name))
    assert noise.tolist() == oracle.values
    assert replay.at == len(oracle.log)
