"""The lattice of values: multiples of one power of two, so that sums are exact and noise can be drawn exactly."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]  # csdp.arrays is in the same layer

#: Binary digits that a number keeps below the largest of its array.
LATTICE_BITS = 20


def fine_unit(largest: float) -> float:
    """The lattice for numbers up to `largest`: 2^-20 of the next power of two above it.

    >>> fine_unit(1.0) == 2.0**-19, fine_unit(0.75) == 2.0**-20
    (True, True)
    """
    return math.ldexp(1.0, math.frexp(largest)[1] - LATTICE_BITS)


def on_lattice(numbers: Floats) -> Floats:
    """Numbers moved to the lattice of the largest of them: each by at most 2^-21 of the power of two above it.

    Integers and halves, and whatever else has at most 20 binary digits, stay as they are.

    >>> on_lattice(np.array([3.0, -0.5])).tolist(), float(on_lattice(np.array([0.1, 1.0]))[0])
    ([3.0, -0.5], 0.10000038146972656)
    """
    largest = float(np.abs(numbers).max())
    unit = fine_unit(largest) if largest else 1.0
    return np.asarray(np.round(numbers / unit) * unit)


def common_unit(numbers: Floats) -> float:
    """The largest power of two that divides every number; 1 if all of them are 0.

    >>> common_unit(np.array([0.0, 6.0, 4.0])), common_unit(np.array([0.75])), common_unit(np.zeros(2))
    (2.0, 0.25, 1.0)
    """
    nonzero = np.abs(numbers[numbers != 0])
    if not nonzero.size:
        return 1.0
    mantissa, exponent = np.frexp(np.unique(nonzero))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = digits & -digits
    return float(np.ldexp(1.0, int((exponent - 53 + np.log2(lowest)).min())))
