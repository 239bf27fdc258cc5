"""From readings to states of the chain, one snapshot at a time."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

Floats = npt.NDArray[np.float64]


class ToStates(Protocol):
    """What turns a snapshot of readings into states, such as a `csdp.Discretiser`.

    Every number has a state: to refuse one for its value would show, by what is missing, which values there are.
    """

    @property
    def categories(self) -> tuple[str, ...] | None:
        """Labels, where readings are words; the number of a reading is then the place of its label."""

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The states of readings (s,), -1 where a reading is missing (NaN)."""


class Nearest:
    """The state whose declared value is nearest; readings beyond the last value belong to it.

    >>> nearest = Nearest(np.array([[0.0, 1.0], [0.0, 10.0], [0.0, 10.0], [0.0, 1.0]]))
    >>> nearest.states_of(np.array([0.9, 4.0, 99.0, np.nan])).tolist()
    [1, 0, 1, -1]
    """

    categories: tuple[str, ...] | None = None

    def __init__(self, values: Floats) -> None:
        if values.ndim != 2:
            raise InputError(f"values: shape {values.shape} given; (sequences, states)")
        self._order = np.argsort(values, axis=1)
        levels = np.take_along_axis(values, self._order, axis=1)
        self._middle = (levels[:, 1:] + levels[:, :-1]) / 2

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The number of the nearest state of each reading."""
        place = (self._middle < snapshot[:, None]).sum(axis=1)
        states = np.take_along_axis(self._order, place[:, None], axis=1)[:, 0]
        return np.where(np.isnan(snapshot), -1, states)
