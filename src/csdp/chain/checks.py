"""Validation of what makes up a chain: every message says what was given, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.lattice import common_unit, on_lattice

Floats = npt.NDArray[np.float64]

#: A row may miss 1 by this much; it is then scaled to sum to 1.
ROW_TOLERANCE = 1e-8


def as_floats(what: str, given: Any) -> Floats:
    """Convert to a float array of finite numbers, or say what is wrong."""
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers in a regular array, got {type(given).__name__} ({error})") from None
    if not np.isfinite(array).all():
        raise InputError(f"{what}: NaN or infinite entries are not allowed; replace or remove them")
    return array


def stochastic(what: str, rows: Floats) -> Floats:
    """Check that the last axis holds probability rows, and scale away rounding in the input."""
    if (rows < 0).any():
        at = tuple(int(v) for v in np.argwhere(rows < 0)[0])
        raise InputError(f"{what}: negative probability {rows[at]:.6g} at {at}; probabilities lie in [0, 1]")
    sums = rows.sum(axis=-1)
    off = np.abs(sums - 1.0)
    if off.size and off.max() > ROW_TOLERANCE:
        at = tuple(int(v) for v in np.argwhere(off > ROW_TOLERANCE)[0])
        hint = "each row (from -> to) must sum to 1"
        square = rows.ndim >= 2 and rows.shape[-1] == rows.shape[-2]
        if square and np.abs(rows.sum(axis=-2) - 1.0).max() <= ROW_TOLERANCE:
            hint += "; here the columns do: the matrix seems to be transposed, pass its transpose"
        if not at:  # one law, not rows of a matrix
            raise InputError(f"{what}: it sums to {float(sums):.6g}; a law must sum to 1")
        where = f"row {at[-1]}" if len(at) < 2 else f"row {at[-1]} of matrix {at[:-1]}"
        raise InputError(f"{what}: {where} sums to {float(sums[at]):.6g}; {hint}")
    # Scaling only where needed keeps a JSON round trip bit for bit the same.
    needs = off > 1e-15 * rows.shape[-1]
    return np.where(needs[..., None], rows / np.where(sums > 0, sums, 1.0)[..., None], rows)


def lattice_values(given: Any, sequences: int, states: int) -> tuple[Floats, float]:
    """Values of the states on a power-of-two lattice, and its step.

    Exact noise needs every query value to be a multiple of one power of two. Values that already are (with at
    most 20 binary digits, such as integers and halves) stay as they are; others move by at most 2^-21 of the largest.
    """
    if given is None:
        return np.arange(states, dtype=np.float64), 1.0
    values = as_floats("values", given)
    if values.shape not in {(states,), (sequences, states)}:
        raise InputError(
            f"values: shape {values.shape} given; one value per state ({states},), "
            f"or one row per sequence ({sequences}, {states})"
        )
    if np.ptp(values) == 0:
        raise InputError("values: all states carry the same value; at least two must differ")
    values = on_lattice(values) + 0.0  # turns -0.0 into 0.0, so equal chains have equal digests
    return values, common_unit(values)


def check_names(given: Sequence[str] | None, sequences: int) -> tuple[str, ...] | None:
    """Names of the sequences: distinct, one each."""
    if given is None:
        return None
    names = tuple(str(name) for name in given)
    if len(names) != sequences:
        raise InputError(f"names: {len(names)} given for {sequences} sequences; give one each")
    if len(set(names)) != sequences:
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"names: {twice!r} appears twice; names must be distinct")
    return names


def check_initial(given: Any, sequences: int, states: int) -> Floats | None:
    """A law of the oldest snapshot: joint (states**sequences,), or independent (sequences, states)."""
    if given is None:
        return None
    law = as_floats("initial", given)
    joint = law.ndim == 1 and law.shape[0] == states**sequences
    if not joint and law.shape != (sequences, states):
        raise InputError(
            f"initial: shape {law.shape} given; a joint law has {states}**{sequences} entries, "
            f"independent marginals have shape ({sequences}, {states})"
        )
    return stochastic("initial", law)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only."""
    array.setflags(write=False)
    return array
