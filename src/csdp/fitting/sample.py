"""The readings that a chain is fitted on, checked, and what a chain predicts for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices, fill_masked
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.model import Direction
from csdp.errors import InputError
from csdp.panel import Panel
from csdp.panel import Readings as PanelReadings
from csdp.panel.readings import check_distinct, match_names, number_names

#: Called with what is done, how far, and out of how much.
Progress = Callable[[str, int, int], None]
States = npt.NDArray[np.int16]
Chain = CoupledChain | JointChain | EnvironmentChain

#: Largest number of states of a fit.
MAX_STATES = 1024
#: Added to every count of the laws that a chain is compared with.
_PSEUDO_COUNT = 0.5
_DISCRETISE = "a fit needs whole-number states; discretise first and pass the Panel"


@dataclass(frozen=True, eq=False)
class Sample:
    """States (T, s), -1 where missing, of sequences with `m` states each; newest first for a backward chain.

    `environments` (T,) are the environments under which the step that leads to each tick happens, where known.
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
        """Names of the sequences, x1, x2, ... where none are given."""
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
        """The same readings in the order in which a chain of that direction meets them."""
        if direction == self.direction:
            return self
        path = None if self.environments is None else self.environments[::-1]
        return replace(self, states=np.ascontiguousarray(self.states[::-1]), direction=direction, environments=path)


def snapshot_numbers(states: npt.NDArray[Any], m: int) -> Indices:
    """The number of every snapshot (n, s), the first sequence the most significant digit; void where one is missing.

    >>> snapshot_numbers(np.array([[0, 1], [2, 0]]), 3).tolist()
    [1, 6]
    """
    numbers = np.zeros(states.shape[0], dtype=np.intp)
    for column in states.T:
        numbers = numbers * m + np.maximum(column, 0)
    return numbers


def check_chain(chain: Any) -> None:
    """Refuse what is no chain."""
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
    """Sample from a Panel, a (T, s) array of whole numbers, or a dataframe of whole numbers.

    With `private` the number of states must be declared: the largest state seen would already reveal something.
    """
    names: tuple[str, ...] | None = None
    values: Any = None
    if isinstance(data, Panel):
        table, names, values = np.asarray(data.states), tuple(data.names), getattr(data, "values", None)
    elif isinstance(data, np.ndarray | list | tuple):
        table = _read_array(data)
    else:
        table, names = _read_frame(data)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise InputError(f"data: {table.dtype} of shape {table.shape} given; whole numbers (ticks, sequences) expected")
    ticks, sequences = table.shape
    if sequences < 1:
        raise InputError("data: no sequences given; at least one column is needed")
    if ticks < 2:
        raise InputError(f"data: {ticks} tick{'s' * (ticks != 1)} given; a transition needs at least 2")
    if (table < -1).any():
        raise InputError("data: states below -1; states count from 0, and -1 marks a missing reading")
    m = _state_count(table, states, values, private)
    return Sample(np.ascontiguousarray(table, dtype=np.int16), m, names, values)


def _state_count(table: npt.NDArray[Any], states: int | None, values: Any, private: bool) -> int:
    if states is not None and (isinstance(states, bool) or not isinstance(states, int | np.integer) or states < 2):
        raise InputError(f"states: {states!r} given; a whole number of at least 2")
    declared = None if values is None else int(np.shape(values)[-1])
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
    return int(m)


def _read_array(data: Any) -> npt.NDArray[Any]:
    try:
        table = np.asarray(fill_masked(np.ma.asarray(data), -1))
    except ValueError:
        raise InputError("data: rows of different lengths; a (ticks, sequences) table expected") from None
    if table.dtype == np.bool_:
        table = table.astype(np.int16)
    if table.ndim == 1 and np.issubdtype(table.dtype, np.integer):
        raise InputError(f"data: shape {table.shape} given; for one sequence pass it as a column, x.reshape(-1, 1)")
    if not np.issubdtype(table.dtype, np.integer):
        raise InputError(f"data: {table.dtype} of shape {table.shape} given; {_DISCRETISE}")
    return table


def _read_frame(data: Any) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """A dataframe of any library that narwhals knows; nulls are missing readings."""
    import narwhals as nw

    if isinstance(data, PanelReadings):
        raise InputError(f"data: readings that are numbers, not states; {_DISCRETISE}")
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputError(
            f"data: {type(data).__name__} given; a Panel, a (ticks, sequences) integer array or a dataframe expected"
        ) from None
    except nw.exceptions.DuplicateError:
        raise InputError("data: two columns have the same name; names must be distinct") from None
    columns = []
    for name in frame.columns:
        if str(name).lower() == "time":
            raise InputError(f"data: column {name!r} is no sequence; drop it, or read the file as a Panel")
        column = frame[name]
        if column.dtype == nw.Boolean:
            column = column.cast(nw.Int16)
        if not column.dtype.is_integer():
            raise InputError(f"data: column {name!r} holds {column.dtype}; {_DISCRETISE}")
        columns.append(column.cast(nw.Int64).fill_null(-1).to_numpy())
    if not columns:
        raise InputError("data: a dataframe without columns given")
    names = tuple(str(name) for name in frame.columns)
    check_distinct(names, "data: columns")
    return np.stack(columns, axis=1), names


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


@dataclass(frozen=True, eq=False)
class Prediction:
    """Laws of next states under a chain for every step of the readings."""

    chain: CoupledChain | JointChain
    readings: Sample

    @cached_property
    def sample(self) -> Sample:
        """The readings in the order in which the chain meets them."""
        return self.readings.in_direction(self.chain.direction)

    @cached_property
    def _present(self) -> npt.NDArray[Any]:
        return self.sample.states[:-1]

    @cached_property
    def _joint(self) -> tuple[Floats, Bools]:
        """Rows of the kernel (steps, N) of a joint chain, and which presents are complete."""
        assert isinstance(self.chain, JointChain)
        complete = np.asarray((self._present >= 0).all(axis=1))
        return self.chain.kernel()[snapshot_numbers(self._present, self.chain.states)], complete

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | present)` (steps, m), and at which steps present and next are known."""
        m, following = self.chain.states, self.sample.states[1:, target]
        if isinstance(self.chain, JointChain):
            rows, complete = self._joint
            axes = tuple(i + 1 for i in range(self.chain.sequences) if i != target)
            law = rows.reshape((-1,) + (m,) * self.chain.sequences).sum(axis=axes)
            return law, complete & (following >= 0)
        edges = np.flatnonzero(self.chain.edge_targets == target) if self.chain.edges < 4096 else self._edges_of(target)
        table, which = self.chain.transition_table
        law = np.zeros((following.size, m))
        known = following >= 0
        for e in edges.tolist():
            column = self._present[:, self.chain.edge_sources[e]]
            known &= column >= 0
            law += self.chain.edge_weights[e] * table[which[e]][np.maximum(column, 0)]
        return law, known

    @cached_property
    def _starts(self) -> Indices:
        assert isinstance(self.chain, CoupledChain)
        return np.searchsorted(self.chain.edge_targets, np.arange(self.chain.sequences + 1))

    def _edges_of(self, target: int) -> Indices:
        return np.arange(self._starts[target], self._starts[target + 1])

    def scores(self, target: int) -> tuple[Floats, Bools]:
        """Log-probability of the next state of a target at every step (0 where unknown)."""
        return score_law(*self.law(target), self.sample.states[1:, target])

    def joint_scores(self) -> Floats:
        """Log-probability of the whole next snapshot under a joint chain at every step (0 where unknown)."""
        rows, complete = self._joint
        following = self.sample.states[1:]
        code = snapshot_numbers(following, self.chain.states)
        known = complete & (following >= 0).all(axis=1)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, rows[np.arange(code.size), code], 1.0)), 0.0)

    def residuals(self, target: int) -> tuple[Floats, Floats]:
        """Residuals of a target and their variances, as `law_residuals` has them."""
        return law_residuals(*self.law(target), self.sample.states[1:, target])


def score_law(law: Floats, known: Bools, following: npt.NDArray[Any]) -> tuple[Floats, Bools]:
    """Log-probability of what followed under a law (steps, m), 0 where unknown; and where it is known."""
    chance = law[np.arange(following.size), np.maximum(following, 0)]
    with np.errstate(divide="ignore"):
        return np.where(known, np.log(np.where(known, chance, 1.0)), 0.0), known


def law_residuals(law: Floats, known: Bools, following: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Residuals and their variances (steps, m - 1), each with mean zero given the past and uncorrelated.

    One for each question "state a, given that it is a or above?": `1(y >= a) (1(y = a) - h_a)` has variance
    `Pr(y >= a) h_a (1 - h_a)` under the law. Zero where a reading is missing.
    """
    above = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
    m = law.shape[1]
    hazard = law[:, :-1] / np.maximum(above[:, :-1], 1e-300)
    states = np.arange(m - 1)
    left = (following[:, None] >= states) * ((following[:, None] == states) - hazard)
    variance = above[:, :-1] * hazard * (1.0 - hazard)
    keep = known[:, None]
    return np.where(keep, left, 0.0), np.where(keep, np.maximum(variance, 0.0), 0.0)


def own_law(readings: Sample, target: int) -> Floats:
    """Transitions (m, m) of a sequence that follows itself only, counted and smoothed."""
    column = readings.states[:, target]
    both = (column[:-1] >= 0) & (column[1:] >= 0)
    cells = column[:-1][both].astype(np.intp) * readings.m + column[1:][both]
    counts = np.bincount(cells, minlength=readings.m**2).reshape(readings.m, readings.m) + _PSEUDO_COUNT
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def still_law(readings: Sample, target: int) -> Floats:
    """Frequencies (m,) of a sequence, smoothed: the law that knows no past."""
    column = readings.states[:, target]
    counts = np.bincount(column[column >= 0], minlength=readings.m) + _PSEUDO_COUNT
    return np.asarray(counts / counts.sum())
