"""The readings that a chain is fitted on, checked, and what a chain predicts for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.model import Direction
from csdp.errors import InputError
from csdp.numbers import Floats, Indices, fill_masked
from csdp.panel import Panel
from csdp.panel.panel import match_names, number_names

#: Called with what is done, how far, and out of how much.
Progress = Callable[[str, int, int], None]
States = npt.NDArray[np.int16]
Chain = CoupledChain | JointChain | EnvironmentChain

#: Largest number of states of a fit.
MAX_STATES = 1024
_DISCRETISE = "Discretise first and pass the Panel"


@dataclass(frozen=True, eq=False)
class Sample:
    """States (T, s), -1 if missing, of sequences with `m` states each; newest first for a backward chain.

    `environments` (T,) are the environments under which the step that leads to each tick happens, if known.
    """

    states: States
    m: int
    names: tuple[str, ...] | None
    values: Floats | None
    direction: Direction = "forward"
    environments: Indices | None = None

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return int(self.states.shape[1])

    @property
    def transitions(self) -> int:
        """Number of steps from one tick to the next."""
        return int(self.states.shape[0]) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the sequences, x1, x2, ... if none are given."""
        return self.names or number_names(self.sequences)

    @cached_property
    def has_gaps(self) -> bool:
        """Whether readings are missing."""
        return bool((self.states < 0).any())

    def arrange(self, names: tuple[str, ...]) -> Sample:
        """The same readings with the sequences in the order of a chain's names."""
        hint = "Give the same sequences, or make the chain with the names of the data"
        place = match_names(self.labels, names, what="data", hint=hint)
        if place is None:
            return self
        return replace(
            self,
            states=np.ascontiguousarray(self.states[:, place]),
            names=names,
            values=None if self.values is None else self.values[place],
        )

    def between(self, start: int, stop: int) -> Sample:
        """The readings of some ticks."""
        path = None if self.environments is None else self.environments[start:stop]
        return replace(self, states=self.states[start:stop], environments=path)

    def in_direction(self, direction: Direction) -> Sample:
        """The same readings in the order in which a chain of that direction reads them."""
        if direction == self.direction:
            return self
        path = None if self.environments is None else self.environments[::-1]
        return replace(self, states=np.ascontiguousarray(self.states[::-1]), direction=direction, environments=path)


def snapshot_numbers(states: npt.NDArray[Any], m: int) -> Indices:
    """The number of every snapshot (n, s), the first sequence the most significant digit; void if one is missing.

    >>> snapshot_numbers(np.array([[0, 1], [2, 0]]), 3).tolist()
    [1, 6]
    """
    numbers = np.zeros(states.shape[0], dtype=np.intp)
    for column in states.T:
        numbers = numbers * m + np.maximum(column, 0)
    return numbers


def ignore_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""


def check_chain(chain: Any) -> None:
    """Refuse anything but a chain that fits make."""
    if not isinstance(chain, CoupledChain | JointChain | EnvironmentChain):
        raise InputError(f"chain: {type(chain).__name__} given; CoupledChain, JointChain or EnvironmentChain expected")


def check_source(data: Any, *, public: bool, epsilon: float | None) -> None:
    """Refuse a panel whose edges and values were learned from private readings, if the fit is to be public or paid.

    The chain publishes its values, and every state depends on the edges: no noise on the counts covers them.
    """
    if not isinstance(data, Panel) or data.source != "private" or (epsilon is None and not public):
        return
    given = "public: declared" if epsilon is None else f"epsilon: {epsilon:g} given"
    raise InputError(
        f"{given} for a panel whose edges and values of states come from private readings; the chain would publish "
        "them uncharged. Declare edges, bounds or categories, or learn the discretiser from public readings "
        "(public=True)"
    )


def read_sample(data: Any, *, states: int | None, private: bool = False) -> Sample:
    """Sample from a Panel or a (T, s) array of whole numbers.

    With `private` the number of states must be declared: the largest state seen would already reveal something.
    """
    names: tuple[str, ...] | None = None
    values: Floats | None = None
    if isinstance(data, Panel):
        table, names, values = data.states, data.names, data.values
    elif isinstance(data, np.ndarray | list | tuple):
        table = _read_array(data)
    else:
        raise InputError(
            f"data: {type(data).__name__} given; a Panel or a (ticks, sequences) array of whole numbers expected. "
            "csdp.read_panel reads files and data frames"
        )
    ticks, sequences = table.shape
    if sequences < 1:
        raise InputError("data: no sequences given; at least one column is needed")
    if ticks < 2:
        raise InputError(f"data: {ticks} tick{'s' * (ticks != 1)} given; a transition needs at least 2")
    if (table < -1).any():
        raise InputError("data: states below -1; states count from 0, and -1 marks a missing reading")
    m = _state_count(table, states, values, private)
    return Sample(np.ascontiguousarray(table, dtype=np.int16), m, names, values)


def _state_count(table: npt.NDArray[Any], states: int | None, values: Floats | None, private: bool) -> int:
    if states is not None:
        states = check.whole("states", states, least=2, most=MAX_STATES)
    declared = None if values is None else int(values.shape[-1])
    if declared is not None and states is not None and declared != states:
        raise InputError(f"states: {states} given, but the panel declares {declared} values for each sequence")
    m = states if states is not None else declared
    if m is None and private:
        raise InputError("states: with epsilon the number of states must be given; reading it from the data is a leak")
    largest = int(table.max())
    if largest < 0:
        raise InputError("data: every reading is missing (-1); there is nothing to fit")
    if m is None:
        m = max(largest + 1, 2)
    elif largest >= m:
        raise InputError(f"data: states beyond the declared {m} (0 to {m - 1}); declare more, or discretise again")
    if m > MAX_STATES:
        raise InputError(f"data: {m} states; at most {MAX_STATES:,}. {_DISCRETISE}")
    return m


def _read_array(data: Any) -> npt.NDArray[Any]:
    try:
        table = np.asarray(fill_masked(np.ma.asarray(data), -1))
    except ValueError:
        raise InputError("data: rows of different lengths; a (ticks, sequences) table expected") from None
    if table.dtype == np.bool_:
        table = table.astype(np.int16)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise InputError(
            f"data: {table.dtype} of shape {table.shape} given; whole numbers (ticks, sequences) expected. {_DISCRETISE}"
        )
    return table


def normalise_rows(count: Floats, pseudo: float) -> Floats:
    """Rows of probabilities from counts with pseudo-counts; a row with nothing at all is uniform."""
    raised = count + pseudo
    sums = raised.sum(axis=-1, keepdims=True)
    return np.where(sums > 0, raised / np.where(sums > 0, sums, 1.0), 1.0 / count.shape[-1])


def match_chain(chain: Chain, readings: Sample) -> Sample:
    """The readings in the order of the chain's sequences; they must be those, and of its states."""
    if readings.m > chain.states:
        raise InputError(f"data: {readings.m} states given; the chain has {chain.states}")
    return readings.arrange(chain.names)
