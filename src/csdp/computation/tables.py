"""The table of values that a computation belongs to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

Floats = npt.NDArray[np.float64]


def is_same_table(values: Floats, table: Floats) -> bool:
    """Whether two tables of values are equal; views of the same numbers without looking at them."""
    if values is table:
        return True
    one, two = values.__array_interface__["data"], table.__array_interface__["data"]
    if one == two and values.shape == table.shape and values.strides == table.strides:
        return True
    return bool(np.array_equal(values, table))


def check_table(name: str, values: Floats, table: Floats) -> None:
    """Refuse other values than those that a query was verified for."""
    if not is_same_table(values, table):
        raise InputError(f"query {name}: it was verified for the values of another chain; give the query itself")
