"""From readings to states of the chain, one snapshot at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats
from csdp.chain import Model
from csdp.errors import InputError
from csdp.panel import Discretiser
from csdp.panel.readings import match_names


class ToStates(Protocol):
    """What turns a snapshot of readings into states, such as a `csdp.Discretiser`.

    Every number has a state: refusing a reading for its value would reveal the value by the gap. The state of a reading
    depends on that reading alone, by edges that do not change: a rank, or a share of the current mean, would let one
    person's reading move the states of others, which no certificate counts. An object that declares `elementwise =
    True` is trusted in this; any other is tested at every snapshot.
    """

    @property
    def categories(self) -> tuple[str, ...] | None:
        """Labels, where readings are texts; the number of a reading is then the index of its label."""

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The states of readings (s,), -1 where a reading is missing (NaN)."""


class Nearest:
    """The state whose declared value is nearest; readings beyond the last value belong to it.

    >>> nearest = Nearest(np.array([[0.0, 1.0], [0.0, 10.0], [0.0, 10.0], [0.0, 1.0]]))
    >>> nearest.states_of(np.array([0.9, 4.0, 99.0, np.nan])).tolist()
    [1, 0, 1, -1]
    """

    categories: tuple[str, ...] | None = None
    elementwise = True

    def __init__(self, values: Floats) -> None:
        if values.ndim != 2:
            raise InputError(f"values: shape {values.shape} given; (sequences, states)")
        self._order = np.argsort(values, axis=1)
        levels = np.take_along_axis(values, self._order, axis=1)
        self._middle = (levels[:, 1:] + levels[:, :-1]) / 2

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The nearest state of each reading."""
        place = (self._middle < snapshot[:, None]).sum(axis=1)
        states = np.take_along_axis(self._order, place[:, None], axis=1)[:, 0]
        return np.where(np.isnan(snapshot), -1, states)


def check_states(states: ToStates, names: Sequence[str], model: Model) -> ToStates:
    """Wrap what turns readings into states, in the order of a chain, so that its answers are checked.

    `names` are those of the sequences in messages, in the order of the chain.
    """
    if isinstance(states, Discretiser):
        states = states.arrange(names if set(states.names) == set(names) else model.names)
    elif hasattr(states, "names"):
        own, hint = tuple(states.names), "Give one for the chain's sequences, in the chain's order"
        expected = names if set(own) == set(names) else model.names
        if match_names(own, expected, what="states", hint=hint) is not None:
            raise InputError(f"states: sequences {', '.join(own[:8])}, in another order than the chain's. {hint}")
    return _CheckedStates(states, model.sequences, model.states)


class _CheckedStates:
    """A discretiser whose answers are checked; a wrong one ends the stream before anything is charged."""

    def __init__(self, inner: ToStates, sequences: int, states: int) -> None:
        self._inner, self._sequences, self._states = inner, sequences, states
        self.categories: tuple[str, ...] | None = getattr(inner, "categories", None)
        self._trusted = getattr(inner, "elementwise", False) is True
        self._rng = np.random.default_rng()

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The states of readings, checked."""
        states = self._ask(snapshot)
        if not self._trusted and self._sequences:
            # The same readings with some of them hidden: the states of the others must not change.
            hidden = self._rng.random(self._sequences) < 0.5
            hidden[self._rng.integers(self._sequences)] = False
            again = self._ask(np.where(hidden, np.nan, snapshot))
            if (again != np.where(hidden, -1, states)).any():
                raise InputError(
                    "states: the state of a reading changed although the reading did not; it must depend on that "
                    "reading alone, by edges that stay the same. Use csdp.Discretiser"
                )
        return states

    def _ask(self, snapshot: Floats) -> npt.NDArray[Any]:
        states = np.asarray(self._inner.states_of(snapshot.copy()))
        if states.shape != (self._sequences,) or not np.issubdtype(states.dtype, np.integer):
            raise InputError(
                f"states: {states.dtype} of shape {states.shape} given; one whole number for each of {self._sequences} "
                "sequences, -1 where the reading is missing"
            )
        if (states < -1).any() or (states >= self._states).any():
            raise InputError(f"states: unknown state; states are 0 to {self._states - 1}, and -1 where one is missing")
        if ((states < 0) != np.isnan(snapshot)).any():
            raise InputError(
                "states: a reading without a state, or a state without a reading; every number has a state, and a "
                "missing reading has -1"
            )
        return states
