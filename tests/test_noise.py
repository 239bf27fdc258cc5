"""The sampler against an oracle that follows the definition bit by bit in exact arithmetic."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from math import floor, isclose

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from csdp.errors import InputError, TooLargeError, UnsafeRandomnessWarning
from csdp.noise import Randomness, bitslice, lattice_step, thresholds, two_sided_geometric, variance
from csdp.noise.compiled import WHOLE
from csdp.noise.randomness import Words
from csdp.noise.thresholds import Table, Threshold

ENGINES = ["numpy", "compiled"]
SCALES = [1e-9, 0.01, 1 / 12, 0.5, 1.0, 7.3, 1000.0, 65536.0, 1e9]


def engine(name: str) -> bitslice.Engine:
    return bitslice.NUMPY if name == "numpy" else bitslice.compiled_engine()


def seeded(seed: int) -> Randomness:
    with pytest.warns(UnsafeRandomnessWarning):
        return Randomness.unsafe_seed(seed)


# ---------------------------------------------------------------- the oracle


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
    noise = bitslice.draw(scale, len(oracle.values), replay, engine=engine(name))
    assert noise.tolist() == oracle.values
    assert replay.at == len(oracle.log)


# ---------------------------------------------------------------- thresholds


@pytest.mark.parametrize("scale", SCALES)
def test_threshold_digits_agree_with_integer_arithmetic(scale: float) -> None:
    for law in thresholds.table(Fraction(scale)).thresholds:
        for k in (0, 1, 2, 7):
            assert law.word(k) == oracle_digits(law.exponent, law.is_odds, 64 * (k + 1)) % 2**64


@settings(max_examples=60, deadline=None)
@given(st.fractions(Fraction(1, 10**9), 300, max_denominator=10**9), st.booleans(), st.integers(0, 4))
def test_any_threshold_agrees_with_integer_arithmetic(x: Fraction, is_odds: bool, k: int) -> None:
    if x > 0:
        expected = oracle_digits(x, is_odds, 64 * (k + 1)) % 2**64
        assert Threshold(x, is_odds).word(k) == expected


def test_a_threshold_of_a_billion_zeros_is_known_without_computing_it() -> None:
    law = thresholds.table(Fraction(1e-9)).tail
    assert law.word(0) == law.word(3) == law.word(10**6) == 0


@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 7.3, 40.0])
def test_digits_sign_and_tail_together_give_the_two_sided_geometric_law(scale: float) -> None:
    law = thresholds.table(Fraction(scale))
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

    oracle_laws = thresholds.table(Fraction(scale)).thresholds
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


def test_a_value_beyond_64_bits_raises_and_never_wraps() -> None:
    assert bitslice._beyond(0, 2**63 - 1) == 2**63 - 1
    assert bitslice._beyond(-1, 2**63 - 1) == -(2**63)
    for value in (0, -1):
        with pytest.raises(TooLargeError) as caught:
            bitslice._beyond(value, 2**63)
        assert caught.value.limit == 2.0**63


@pytest.mark.parametrize("name", ENGINES)
def test_overflow_raises_from_the_sampler_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    likely = tuple(Threshold(Fraction(1, 10), True) for _ in range(64))
    law = Table(62, likely, np.array([t.word(0) for t in likely], np.uint64))
    monkeypatch.setattr(bitslice, "table", lambda scale: law)
    with pytest.raises(TooLargeError, match="broken"):
        bitslice.draw(Fraction(1), 64, Words(bytes(32)), engine=engine(name))


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-9, 9).map(lambda e: min(max(10.0**e, 1e-9), 1e9)) | st.fractions(Fraction(1, 100), 10**6),
    st.integers(0, 3000),
    st.integers(0, 2**32),
)
@example(1000.0, 64 * bitslice.BLOCK * 2 + 65, 1)
@example(1e9, 64 * bitslice.BLOCK + 1, 2)
@example(1024 / 12, 64 * bitslice.BLOCK * 3, 3)
@example(2.0**15 / 12, 200, 4)  # 15 digits and the sign fill a field of 16 exactly
@example(2.0**16 / 12, 200, 5)
@example(2.0**31 / 12, 200, 6)
@example(2.0**32 / 12, 200, 7)
def test_numpy_and_compiled_give_the_same_bits(scale: float | Fraction, count: int, seed: int) -> None:
    key = seed.to_bytes(32, "big")
    plain, compiled = (bitslice.draw(Fraction(scale), count, Words(key), engine=engine(e)) for e in ENGINES)
    np.testing.assert_array_equal(plain, compiled)


# ---------------------------------------------------------------- the front door


def test_streams_of_a_key_are_the_same_in_every_version() -> None:
    """A ledger may be replayed years later: a change of these numbers is a change of the format."""
    source = Randomness.from_key(bytes(range(32)), stream=5)
    first, second = (two_sided_geometric(1000.0, 6, source).tolist() for _ in range(2))
    assert first == [-3628, 319, -80, -963, 1032, -76]
    assert second == [448, 11, 2558, -1071, 36, -1777]


def test_scales_are_broadcast_along_the_last_axis() -> None:
    noise = two_sided_geometric([1e-3, 1.0, 1e6], (2000, 3), seeded(1))
    assert noise.shape == (2000, 3)
    assert noise.dtype == np.int64
    assert (noise[:, 0] == 0).all()
    assert 0 < np.abs(noise[:, 1]).max() < 40
    assert np.abs(noise[:, 2]).max() > 1e6


def test_numbers_of_every_kind_are_taken_exactly() -> None:
    same = [
        1000.0,
        1000,
        Fraction(1000),
        np.float64(1000),
        np.float32(1000),
        np.int32(1000),
        np.array(1000.0),
    ]
    drawn = {two_sided_geometric(s, 50, seeded(2)).tobytes() for s in same}
    assert len(drawn) == 1


@pytest.mark.parametrize("shape", [0, (0,), (3, 0), ()])
def test_empty_and_scalar_shapes(shape: int | tuple[int, ...]) -> None:
    assert two_sided_geometric(5.0, shape, seeded(1)).shape == (shape if isinstance(shape, tuple) else (shape,))


@pytest.mark.parametrize(
    "scale",
    [
        0.0,
        -1.0,
        float("nan"),
        float("inf"),
        9e-10,
        1.1e9,
        True,
        None,
        "5",
        1j,
        [1.0, -1.0],
        [[1.0], [2.0, 3.0]],
        [],
    ],
)
def test_bad_scales_are_refused(scale: object) -> None:
    with pytest.raises(InputError):
        two_sided_geometric(scale, (3, 2), seeded(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [-1, (2, -1), 2.0, "3", None, True, (1.5,), [[1]]])
def test_bad_shapes_are_refused(shape: object) -> None:
    with pytest.raises(InputError, match="shape"):
        two_sided_geometric(1.0, shape, seeded(1))  # type: ignore[arg-type]


def test_scales_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(InputError, match="broadcast"):
        two_sided_geometric([1.0, 2.0], (2, 3), seeded(1))


def test_numpy_generators_are_refused() -> None:
    with pytest.raises(InputError, match="Randomness"):
        two_sided_geometric(1.0, 3, np.random.default_rng(1))  # type: ignore[arg-type]


def test_small_draws_do_not_load_numba() -> None:
    code = (
        "import sys; from csdp.noise import *; two_sided_geometric(9.0, 5000, Randomness.secure());"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("exponent", range(-9, 10))
def test_variance_keeps_its_digits(exponent: int) -> None:
    scale = 10.0**exponent
    low, _ = power_of_e(1 / Fraction(scale), 2000) if scale > 1e-3 else (0, 0)
    q = Fraction(low, 2**2000)
    assert isclose(variance(scale), float(2 * q / (1 - q) ** 2), rel_tol=1e-13, abs_tol=1e-300)


def test_variance_refuses_bad_scales() -> None:
    with pytest.raises(InputError):
        variance(0.0)


@settings(deadline=None)
@given(st.floats(1e-100, 1e100), st.floats(1e-100, 1e100))
@example(1.0, 1024.0)
@example(1.0, float(np.nextafter(1024.0, 0)))
@example(0.1, 3.0)
def test_the_lattice_step_is_the_largest_allowed(unit: float, scale: float) -> None:
    step = lattice_step(unit, scale)
    assert step <= unit
    assert 1024 * Fraction(step) <= Fraction(scale)
    assert step == unit or 2048 * Fraction(step) > Fraction(scale)
    ratio = Fraction(unit) / Fraction(step)
    assert ratio.denominator == 1
    assert ratio.numerator.bit_count() == 1


@pytest.mark.parametrize(
    ("unit", "scale"),
    [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (float("nan"), 1.0), (1.0, float("inf")), (1e-300, 1e-323)],
)
def test_lattices_that_cannot_be_are_refused(unit: float, scale: float) -> None:
    with pytest.raises(InputError):
        lattice_step(unit, scale)


# ---------------------------------------------------------------- randomness


def test_words_are_the_key_stream_of_aes_256_ctr() -> None:
    """NIST SP 800-38A, F.5.5: plain text xor cipher text of the first block."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    start = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    block = int("6bc1bee22e409f96e93d7e117393172a", 16) ^ int("601ec313775789a5b7a7f504bbf3d228", 16)
    words = np.empty(2, np.uint64)
    Words(key, start).fill(words)
    assert words.tobytes() == block.to_bytes(16, "big")


def test_a_long_fill_equals_many_short_ones() -> None:
    whole, parts = np.empty(200_000, np.uint64), np.empty(200_000, np.uint64)
    Words(bytes(32)).fill(whole)
    source = Words(bytes(32))
    for part in np.array_split(parts, 777):
        source.fill(part)
    np.testing.assert_array_equal(whole, parts)


def test_seeds_warn_and_mark_what_they_give() -> None:
    assert seeded(1).unsafe
    assert not Randomness.secure().unsafe
    assert not Randomness.from_key(os.urandom(32)).unsafe
    assert "seed" in repr(seeded(1))
    assert "secure" in repr(Randomness.secure())
    key = os.urandom(32)
    assert key.hex() not in repr(Randomness.from_key(key))


@pytest.mark.parametrize("key", [b"", bytes(31), "x" * 32, None])
def test_bad_keys_are_refused(key: object) -> None:
    with pytest.raises(InputError):
        Randomness.from_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [-1, 2**48, 1.0, True])
def test_bad_streams_are_refused(stream: object) -> None:
    with pytest.raises(InputError):
        Randomness.from_key(bytes(32), stream=stream)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1.0, None, True, "1"])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(InputError):
        Randomness.unsafe_seed(seed)  # type: ignore[arg-type]


def test_sources_are_neither_pickled_nor_copied() -> None:
    for source in (Randomness.secure(), Randomness.from_key(bytes(32)), seeded(1)):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="repeat"):
                duplicate(source)


def test_a_stream_ends_before_it_would_run_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csdp.noise.randomness._DRAWS", 2)
    source = Randomness.from_key(bytes(32))
    source.words(), source.words()
    with pytest.raises(InputError, match="another stream"):
        source.words()


def head(source: Randomness) -> bytes:
    """Return the first words of the next draw; two of them agree by chance with probability 2^-256."""
    words = np.empty(4, np.uint64)
    source.words().fill(words)
    return words.tobytes()


def in_a_fork(work: Callable[[], bytes]) -> bytes:
    """Return what `work` gives in a forked child."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions warn of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_streams_and_draws_of_a_key_are_disjoint() -> None:
    sources = [Randomness.from_key(bytes(32), stream=s) for s in (0, 1, 2**48 - 1)]
    heads = [head(source) for source in sources for _ in range(50)]
    assert len(set(heads)) == 150


def test_forks_never_repeat() -> None:
    source = Randomness.secure()
    heads = [head(source)]
    for _ in range(6):
        heads += [in_a_fork(lambda: head(source)), head(source)]
    heads.append(in_a_fork(lambda: in_a_fork(lambda: head(source))))
    assert all(len(h) == 32 for h in heads)
    assert len(set(heads)) == len(heads)


@pytest.mark.parametrize("pid_returns", [False, True])
def test_a_keyed_source_is_refused_in_a_fork(pid_returns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Randomness.from_key(os.urandom(32))
    if pid_returns:  # a grandchild may get the number of a process that has gone
        parent = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: parent)

    def work() -> bytes:
        try:
            return head(source)
        except InputError as error:
            return str(error).encode()

    assert b"another process" in in_a_fork(work)
    assert len(head(source)) == 32


@pytest.mark.parametrize("kind", ["secure", "key"])
def test_threads_never_repeat(kind: str) -> None:
    source = Randomness.secure() if kind == "secure" else Randomness.from_key(os.urandom(32))
    with ThreadPoolExecutor(8) as pool:
        heads = list(pool.map(lambda _: head(source), range(2000)))
    assert len(set(heads)) == len(heads)


def test_processes_never_repeat() -> None:
    code = (
        "import numpy as np; from csdp.noise import Randomness; w = np.empty(4, np.uint64);"
        "Randomness.secure().words().fill(w); print(w.tobytes().hex())"
    )
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    heads = [child.communicate()[0].strip() for child in children]
    assert all(len(h) == 64 for h in heads)
    assert len(set(heads)) == 3
