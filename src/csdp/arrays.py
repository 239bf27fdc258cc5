"""Array types, read-only arrays, what a mask hides, and how far one operation on floats rounds; named once."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

#: Largest relative rounding error of one operation on floats.
UNIT = float(np.finfo(np.float64).eps) / 2


def fill_masked(data: Any, missing: float) -> Any:
    """The data, with masked cells replaced by what marks a missing one: numpy would read what lies behind the mask.

    >>> fill_masked(np.ma.masked_array([3, 4], mask=[True, False]), -1).tolist(), fill_masked([3, 4], -1)
    ([-1, 4], [3, 4])
    """
    if not isinstance(data, np.ma.MaskedArray):
        return data
    if not np.ma.is_masked(data):
        return data.data
    if data.dtype.kind in "biu":  # -1 and NaN are no numbers of every kind
        data = data.astype(np.float64 if math.isnan(missing) else np.int64)
    return data.filled(missing)


def freeze(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only: what is handed out and used again must not be changed by whoever got it."""
    array.setflags(write=False)
    return array
