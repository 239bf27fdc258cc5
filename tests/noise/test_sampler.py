"""Thresholds and the sampler against the definition, digit by digit."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isclose

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from csdp.errors import TooLargeError
from csdp.noise import geometric
from csdp.noise.geometric import Threshold, ThresholdTable
from csdp.noise.randomness import Words

from noise.exact import ENGINES, FAST, SCALES, Oracle, check, engine, oracle_digits, random_oracle  # isort: skip


# ---------------------------------------------------------------- thresholds


@pytest.mark.parametrize("scale", SCALES)
def test_threshold_digits_agree_with_integer_arithmetic(scale: float) -> None:
    for law in geometric.threshold_table(Fraction(scale)).thresholds:
        for k in (0, 1, 2, 7):
            assert law.word(k) == oracle_digits(law.exponent, law.is_odds, 64 * (k + 1)) % 2**64


@settings(max_examples=60, deadline=None)
@given(st.fractions(Fraction(1, 10**9), 300, max_denominator=10**9), st.booleans(), st.integers(0, 4))
def test_any_threshold_agrees_with_integer_arithmetic(x: Fraction, is_odds: bool, k: int) -> None:
    if x > 0:
        expected = oracle_digits(x, is_odds, 64 * (k + 1)) % 2**64
        assert Threshold(x, is_odds).word(k) == expected


#: ln 2, rounded down
LN_2 = Fraction(6931471805599453094172321214581765680755001343602552541206800094933936219696947156058633, 10**88)


@pytest.mark.parametrize("thin", [30, 43, 44, 45, 46, 47, 60])
def test_digits_are_proven_however_close_a_probability_is_to_a_short_one(thin: int) -> None:
    """exp(-x) a hair above and a hair below 2^-k, about as thin as the arithmetic, and far thinner."""
    hair = Fraction(1, 10**thin)
    for k in range(1, 64):
        above, below = (Threshold(k * LN_2 + move, is_odds=False) for move in (-hair, hair))
        assert above.word(0) == 2 ** (64 - k)
        assert below.word(0) == 2 ** (64 - k) - 1


def test_a_threshold_of_a_billion_zeros_is_known_without_computing_it() -> None:
    law = geometric.threshold_table(Fraction(1e-9)).tail
    assert law.word(0) == law.word(3) == law.word(10**6) == 0


@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 7.3, 40.0])
def test_digits_sign_and_tail_together_give_the_two_sided_geometric_law(scale: float) -> None:
    law = geometric.threshold_table(Fraction(scale))
    *digits, sign, tail = [t.word(0) / 2**64 for t in law.thresholds]
    q = np.exp(-1 / scale)
    for n in [*range(-300, 301), 1000, -2000]:
        g = n if n >= 0 else -1 - n
        probability = (sign if n < 0 else 1 - sign) * tail ** (g >> law.digits) * (1 - tail)
        for i, p in enumerate(digits):
            probability *= p if g >> i & 1 else 1 - p
        expected = (1 - q) / (1 + q) * q ** abs(n)
        assert isclose(probability, expected, rel_tol=1e-9, abs_tol=1e-19)


# ---------------------------------------------------------------- the sampler against the oracle


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_sampler_does_what_the_definition_says(scale: float, name: str) -> None:
    check(random_oracle(Fraction(scale), 2, seed=3), Fraction(scale), name)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("scale", [1 / 12, 1.0, 7.3, 1000.0])
def test_ties_beyond_the_first_64_digits_are_broken_exactly(scale: float, name: str) -> None:
    """Some lanes of every row repeat their threshold for 64, 128 or 192 digits, and only then differ."""
    source = np.random.default_rng(5)
    tied = 1 << 3 | 1 << 17 | 1 << 63

    def choose(row: int, position: int, plane: int) -> int:
        law = oracle_laws[row]
        digit = oracle_digits(law.exponent, law.is_odds, plane + 1) & 1
        noise = int(source.integers(2**64, dtype=np.uint64))
        return noise & ~tied | (tied if digit else 0)

    def single(law: Threshold, k: int) -> int:
        exact = oracle_digits(law.exponent, law.is_odds, 64 * (k + 1)) % 2**64
        if k == 0:  # a tail already drawn: stop it
            return 2**64 - 1
        return (exact + int(source.choice([0, 1, -1]))) % 2**64

    oracle_laws = geometric.threshold_table(Fraction(scale)).thresholds
    oracle = Oracle(Fraction(scale), 2, choose, single)
    assert len(oracle.log) > 64 * len(oracle_laws)
    check(oracle, Fraction(scale), name)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("scale", [0.02, 1 / 12, 1.0, 7.3, 1000.0, 1e9])
def test_digits_beyond_the_table_are_drawn(scale: float, name: str) -> None:
    """One lane has random digits of zero: all its digits are 1, and then several tails follow."""
    source = np.random.default_rng(7)
    draws = iter([0, 0, 0, 2**64 - 1])

    def choose(row: int, position: int, plane: int) -> int:
        noise = int(source.integers(2**64, dtype=np.uint64))
        return noise & ~(1 << 9)

    def single(law: Threshold, k: int) -> int:
        return next(draws) if k == 0 else 0

    oracle = Oracle(Fraction(scale), 1, choose, single)
    far = oracle.values[9]
    assert far == -1 - ((5 << oracle.digits) - 1)
    check(oracle, Fraction(scale), name)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("scale", [1.0, 7.3, 1000.0])
def test_the_tail_goes_on_with_its_own_probability(scale: float, name: str) -> None:
    """Words just below and just above the threshold of the tail, in the place of extreme ones."""
    source = np.random.default_rng(8)
    moves = iter([-1, -1, 1])

    def choose(row: int, position: int, plane: int) -> int:
        return int(source.integers(2**64, dtype=np.uint64)) & ~(1 << 9)

    def single(law: Threshold, k: int) -> int:
        return oracle_digits(law.exponent, law.is_odds, 64) + next(moves)

    oracle = Oracle(Fraction(scale), 1, choose, single)
    assert oracle.values[9] == -1 - ((4 << oracle.digits) - 1)
    check(oracle, Fraction(scale), name)


def test_a_value_beyond_64_bits_raises_and_never_wraps() -> None:
    assert geometric._move_away(0, 2**63 - 1) == 2**63 - 1
    assert geometric._move_away(-1, 2**63 - 1) == -(2**63)
    for value in (0, -1):
        with pytest.raises(TooLargeError) as caught:
            geometric._move_away(value, 2**63)
        assert caught.value.limit == 2.0**63


@pytest.mark.parametrize("name", FAST)
def test_overflow_raises_from_the_sampler_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    likely = tuple(Threshold(Fraction(1, 10), True) for _ in range(64))
    law = ThresholdTable(62, likely, np.array([t.word(0) for t in likely], np.uint64))
    monkeypatch.setattr(geometric, "threshold_table", lambda scale: law)
    with pytest.raises(TooLargeError, match="broken"):
        geometric.draw(Fraction(1), 64, Words(bytes(32)), engine=engine(name))


def test_a_long_draw_begins_as_one_that_fills_its_first_block() -> None:
    """Blocks of 512 words take their random words one after the other, whatever follows."""
    first = 64 * 512
    long, short = (
        geometric.draw(Fraction(9), n, Words(bytes(32)), engine=geometric.NUMPY) for n in (first + 99, first)
    )
    np.testing.assert_array_equal(long[:first], short)
    assert (long[first:] != long[:99]).any()


def test_numba_is_loaded_by_the_first_large_draw_and_used_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (2**14, 2**14 + 1):
        loaded = lru_cache(lambda: geometric.NUMPY)
        monkeypatch.setattr(geometric, "compiled_engine", loaded)
        geometric.draw(Fraction(9), 2**14 - 1, Words(bytes(32)))
        assert loaded.cache_info().currsize == 0
        geometric.draw(Fraction(9), count, Words(bytes(32)))
        assert loaded.cache_info().currsize == 1
        geometric.draw(Fraction(9), 1, Words(bytes(32)))
        assert loaded.cache_info().hits == 1


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-9, 9).map(lambda e: min(max(10.0**e, 1e-9), 1e9)) | st.fractions(Fraction(1, 100), 10**6),
    st.integers(0, 3000),
    st.integers(0, 2**32),
)
@example(1000.0, 64 * geometric.BLOCK * 2 + 65, 1)
@example(1e9, 64 * geometric.BLOCK + 1, 2)
@example(1024 / 12, 64 * geometric.BLOCK * 3, 3)
@example(2.0**15 / 12, 200, 4)  # 15 digits and the sign fill a field of 16 exactly
@example(2.0**16 / 12, 200, 5)
@example(2.0**31 / 12, 200, 6)
@example(2.0**32 / 12, 200, 7)
def test_numpy_and_compiled_give_the_same_bits(scale: float | Fraction, count: int, seed: int) -> None:
    key = seed.to_bytes(32, "big")
    plain, compiled = (
        geometric.draw(Fraction(scale), count, Words(key), engine=engine(e)) for e in ("numpy", "compiled")
    )
    np.testing.assert_array_equal(plain, compiled)
