"""Noise for releases: the only place where randomness is drawn for one.

Floating-point Laplace noise leaks through its low bits (Mironov 2012), so values stay on a lattice of step g
and the noise is an integer number of steps, two-sided geometric, drawn exactly: no rounding, no cut-off, no
delta.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1, prod
from operator import index

import numpy as np
from numpy.typing import ArrayLike

from csdp.errors import InputError
from csdp.noise.bitslice import compiled_engine, draw
from csdp.noise.randomness import Randomness
from csdp.numbers import Ints

__all__ = [
    "ENDLESS",
    "Randomness",
    "prepare_draws",
    "simulate_noise",
    "two_sided_geometric",
    "variance",
]

Scale = float | Fraction
"""A scale in grid units: floats are taken exactly as they are, fractions avoid even the last rounding."""

_SMALLEST, _LARGEST = 1e-9, 1e9
#: Single draws that take as long as loading the compiled loops does; and a number for draws that have no end.
_MANY_DRAWS, ENDLESS = 2000, 2**63


def two_sided_geometric(scale: Scale | ArrayLike, shape: int | tuple[int, ...], randomness: Randomness) -> Ints:
    """Draw independent two-sided geometric (discrete Laplace) integers.

    `Pr(n) = (1-q)/(1+q) q^|n|` with `q = exp(-1/scale)`; for a query on a lattice of step g with sensitivity
    `Delta_f`, `scale = Delta_f / (g epsilon_c)`. An array of scales is broadcast to the shape.

    Guarantee: the law is exact, given uniform random words; a value beyond int64 raises, it never wraps. The
    time a draw takes is not constant, and is no part of the guarantee. Reference: Ghosh, Roughgarden and
    Sundararajan, "Universally utility-maximizing privacy mechanisms" (2009), for the mechanism; the digits
    are derived in `csdp.noise.bitslice`.

    >>> noise = two_sided_geometric(1000.0, (2, 3), Randomness.secure())
    >>> noise.shape, noise.dtype
    ((2, 3), dtype('int64'))
    """
    if not isinstance(randomness, Randomness):
        raise InputError("randomness must be a Randomness, such as Randomness.secure()")
    dimensions = _check_shape(shape)
    try:
        if isinstance(scale, Fraction):
            return draw(_check_scale(scale), prod(dimensions), randomness.words()).reshape(dimensions)
        scales = np.asarray(scale)
        if scales.ndim == 0:
            return draw(_check_scale(scale), prod(dimensions), randomness.words()).reshape(dimensions)
        scales = np.broadcast_to(scales, dimensions)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"the scales are no array that broadcasts to the noise's shape {dimensions}") from None
    distinct, place = np.unique(scales, return_inverse=True)
    exact = [_check_scale(s) for s in distinct.tolist()]
    noise = np.empty(scales.size, np.int64)
    for k, one in enumerate(exact):
        cells = np.flatnonzero(place.reshape(-1) == k)
        noise[cells] = draw(one, cells.size, randomness.words())
    return noise.reshape(dimensions)


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


def simulate_noise(scale: float, shape: int | tuple[int, ...], generator: np.random.Generator) -> Ints:
    """Numbers of the same law from a statistical generator: for simulations of an error, never for a release.

    >>> simulate_noise(2.0, 5, np.random.default_rng(1)).tolist()
    [0, 3, -1, 4, 0]
    """
    stop = -expm1(-1.0 / scale)
    return np.asarray(generator.geometric(stop, shape) - generator.geometric(stop, shape), dtype=np.int64)


def _check_scale(scale: object) -> Fraction:
    """A scale as an exact fraction; InputError if it is not allowed."""
    if type(scale) is Fraction and scale.denominator <= 10**9 * scale.numerator <= 10**18 * scale.denominator:
        return scale  # the way of every release: whole numbers compare faster than fractions with floats
    number = scale.item() if isinstance(scale, np.generic | np.ndarray) else scale
    if (
        isinstance(number, int | float | Fraction)
        and not isinstance(number, bool)
        and _SMALLEST <= number <= _LARGEST  # false for NaN
    ):
        return Fraction(number)
    shown = repr(scale) if not isinstance(scale, Fraction) else "a fraction beyond that"  # it may have many digits
    raise InputError(f"scale is {shown}; allowed are numbers from 1e-9 to 1e9 grid units")


def _check_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """A shape as a tuple; InputError if it is not allowed."""
    try:
        sizes = shape if isinstance(shape, tuple | list) else (shape,)
        dimensions = tuple(-1 if isinstance(size, bool) else index(size) for size in sizes)
    except TypeError:
        dimensions = (-1,)
    if any(size < 0 for size in dimensions):
        raise InputError(f"shape is {shape!r}; allowed are an integer of at least 0 or a tuple of such")
    return dimensions
