"""What a caller gives and gets: scales, shapes, lattices, variances."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction
from math import isclose

import numpy as np
import pytest

from csdp.errors import InputError
from csdp.noise import Randomness, two_sided_geometric, variance

from noise.exact import power_of_e, seeded  # isort: skip


def test_streams_of_a_key_are_the_same_in_every_version() -> None:
    """A ledger may be replayed years later: a change of these numbers is a change of the format."""
    source = Randomness.from_key(bytes(range(32)))
    first, second = (two_sided_geometric(1000.0, 6, source).tolist() for _ in range(2))
    assert first == [509, -3239, 1767, 2765, 442, -497]
    assert second == [2089, 3656, 918, -2875, 769, 1466]
    many = two_sided_geometric(1000.0, 100_000, Randomness.from_key(bytes(range(32))))
    seal = hashlib.sha256(many.astype("<i8").tobytes()).hexdigest()
    assert seal == "d1fb2fb925b6db46564106dab36ceb3cc01bfaf222e899877a0dda25783eed6a"


def test_numbers_of_every_kind_are_taken_exactly() -> None:
    same = [
        1000.0,
        1000,
        Fraction(1000),
        np.float64(1000),
        np.float32(1000),
        np.int32(1000),
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
        Fraction(10**9 + 1),
        Fraction(1, 10**9 + 1),
        True,
        None,
        "5",
        1j,
        [1.0, -1.0],
    ],
)
def test_bad_scales_are_refused(scale: object) -> None:
    with pytest.raises(InputError):
        two_sided_geometric(scale, (3, 2), seeded(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [-1, (2, -1), 2.0, "3", (1.5,)])
def test_bad_shapes_are_refused(shape: object) -> None:
    with pytest.raises(InputError, match="shape"):
        two_sided_geometric(1.0, shape, seeded(1))  # type: ignore[arg-type]


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
