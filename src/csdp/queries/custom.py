"""A query that is a function of the snapshot, and the enumeration of snapshots that finds its sensitivity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.errors import InputError
from csdp.queries.protocol import check_k, check_snapshots

#: Snapshots up to which a custom query's sensitivity is found by enumeration.
ENUMERATION_STATES = 4096


@dataclass(frozen=True)
class Custom:
    """Your own function of the snapshot's values (a number, or d numbers).

    `sensitivity`: s_1, or a function k -> s_k; where only s_1 is given, s_k = k s_1 is used, which is never too small.
    Where nothing is given, snapshots are enumerated (up to 4,096 of them).

    >>> spread = Custom(lambda v: v.max() - v.min(), name="spread")
    >>> spread.sensitivity(1, np.array([[0.0, 1.0]] * 3))
    1.0
    """

    function: Callable[[Floats], Any]
    declared: float | Callable[[int], float] | None = field(default=None)
    label: str = "custom"

    def __init__(
        self,
        function: Callable[[Floats], Any],
        sensitivity: float | Callable[[int], float] | None = None,
        *,
        name: str = "custom",
    ) -> None:
        if not callable(function):
            raise InputError(f"custom: {type(function).__name__} given; a function of a snapshot's values expected")
        if isinstance(sensitivity, int | float) and not (math.isfinite(sensitivity) and sensitivity > 0):
            raise InputError(f"custom: sensitivity {sensitivity} given; it must be positive and finite")
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "declared", sensitivity)
        object.__setattr__(self, "label", name)

    @property
    def name(self) -> str:
        """The name given."""
        return self.label

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d), one call of the function per snapshot."""
        states = check_snapshots(snapshots, values)
        rows = values[np.arange(values.shape[0]), states].reshape(-1, values.shape[0])
        returned = [self.function(row) for row in rows]
        try:
            answers = np.array([np.atleast_1d(np.asarray(answer, dtype=np.float64)) for answer in returned])
        except (TypeError, ValueError):
            answers = np.empty(0)
        if answers.ndim != 2 or not np.isfinite(answers).all():
            raise InputError("custom: the function must return a finite number, or always the same count of them")
        return answers.reshape(*states.shape[:-1], answers.shape[-1])

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k as declared, or by enumeration."""
        k = check_k(k, values.shape[0] if members is None else len(members))
        if callable(self.declared):
            return float(self.declared(k))
        if self.declared is not None:
            return k * float(self.declared)
        s, m = values.shape
        if not is_enumerable(s, m):
            raise InputError(
                f"custom: {m}**{s} snapshots are too many to enumerate; declare sensitivity= (s_1, or k -> s_k)"
            )
        largest = largest_change(self.evaluate(all_snapshots(s, m), values), k, values, members)
        if largest == 0 and members is None:
            raise InputError("custom: the function is constant; there is nothing to protect or to publish")
        return largest

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """The name, numbered where there are several outputs."""
        count = self.evaluate(np.zeros(values.shape[0], dtype=np.intp), values).shape[-1]
        return (self.name,) if count == 1 else tuple(f"{self.name} {i}" for i in range(count))


def is_enumerable(s: int, m: int) -> bool:
    """Whether s sequences with m states have few enough snapshots to enumerate them all."""
    return s * math.log(m) <= math.log(ENUMERATION_STATES) + 1e-9


def all_snapshots(s: int, m: int) -> Indices:
    """Every snapshot (m^s, s) of state numbers, the last sequence changing fastest."""
    return np.array(np.unravel_index(np.arange(m**s), (m,) * s)).T


def largest_change(answers: Floats, k: int, values: Floats, members: Sequence[int] | None) -> float:
    """s_k of the answers (m^s, d) of all snapshots: the largest change when k records (of `members`) change."""
    s, m = values.shape
    grid = answers.reshape((m,) * s + (-1,))
    largest = 0.0
    for chosen in itertools.combinations(range(s) if members is None else members, k):
        moved = np.moveaxis(grid, chosen, range(k)).reshape(m**k, -1, grid.shape[-1])
        for a in range(m**k):
            largest = max(largest, float(np.abs(moved - moved[a]).sum(axis=-1).max()))
    return largest
