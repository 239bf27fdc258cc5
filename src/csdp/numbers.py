"""Numbers: types of arrays, the lattice of values, and strict JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

# ---- arrays ---------------------------------------------------------------------------------------------------------

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


# ---- the lattice ----------------------------------------------------------------------------------------------------

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
    >>> on_lattice(np.array([5e-324])).tolist()
    [5e-324]
    """
    largest = float(np.abs(numbers).max())
    unit = (fine_unit(largest) or math.ulp(0.0)) if largest else 1.0  # the smallest floats lie on their own lattice
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


# ---- JSON -----------------------------------------------------------------------------------------------------------


def parse_json(what: str, text: str | bytes) -> Any:
    """The content of a JSON text; InputError, which begins with `what`, where it is none.

    Python reads whole numbers of at most 4,300 digits, because longer ones would keep it busy.

    >>> parse_json("chain", "[1, 2.5]")
    [1, 2.5]
    >>> parse_json("chain", "9" * 5000)
    Traceback (most recent call last):
    ...
    csdp.errors.InputError: chain: not JSON that can be read (a number of more than 4,300 digits)
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: not JSON ({error})") from None
    except ValueError:  # the only other one that the parser raises
        digits = f"{sys.get_int_max_str_digits():,}"
        raise InputError(f"{what}: not JSON that can be read (a number of more than {digits} digits)") from None


def to_strict_json(content: Any) -> Any:
    """The same data for strict JSON: an infinite number becomes text, to tell it from a missing one (NaN: null).

    >>> to_strict_json({"epsilon": math.inf, "output": (0.5,)})
    {'epsilon': 'inf', 'output': [0.5]}
    """
    if isinstance(content, float) and not math.isfinite(content):
        return None if math.isnan(content) else "inf" if content > 0 else "-inf"
    if isinstance(content, Mapping):
        return {str(key): to_strict_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_strict_json(value) for value in content]
    return content


def json_text(content: Any) -> str:
    """Indented strict JSON, see `to_strict_json`."""
    return json.dumps(to_strict_json(content), indent=2, allow_nan=False)


def encode_json(content: Any) -> bytes:
    """Compact strict JSON, see `to_strict_json`."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(to_strict_json(content), separators=(",", ":"), allow_nan=False).encode()
