"""What a query computes on the values of one chain, as a table from which everything else follows.

`FoldTable`: one contribution for every sequence and state, folded by a sum, the largest or the smallest, and divided in
the end. `FunctionTable`: the answers of all snapshots, if there are few. Sensitivities, lattice, answers and
fingerprint are read off the table, so there is nothing to verify.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, Indices, Ints, common_unit, fine_unit, freeze

Fold = Literal["sum", "max", "min"]
Groups = tuple[tuple[int, ...], ...]

#: Entries of a table of contributions that is written out with its zeros.
MAX_PARTS: Final = 50_000_000
#: States up to which sequences that are treated alike are counted instead of looked up one by one.
COUNTED_STATES: Final = 32
#: Snapshots up to which a function is tabulated.
ENUMERATION_STATES: Final = 4096


class Query:
    """What is asked of a snapshot. The set is closed: built-in queries, and `Custom` for a table or a function.

    `values` is always the table of numbers that the states carry, (s, m), as in `Model.value_table`.
    """

    if TYPE_CHECKING:  # fields of tables, properties of queries

        @property
        def name(self) -> str:
            """Short name, as on the command line."""

        @property
        def text(self) -> str:
            """The query as `parse_query` reads it, with all digits."""

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> Any:
        """The table of the query for these values. `names`: of the sequences; `on_lattice`: round a function."""
        raise NotImplementedError

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        return np.asarray(self.on(values).evaluate(snapshots, values))

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the largest l1 change of the answer when k records (of `members`) change."""
        table = self.on(values)
        return float(table.undivided_sensitivity(k, members) / table.denominator)

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates."""
        outputs: tuple[str, ...] = self.on(values, names).outputs
        return outputs


class Table(Query):
    """What the tables of queries share: answers stand for themselves once divided, and equal tables are one."""

    def on(self: Any, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> Any:
        """The same table if it was made for these values and names; else that of its query."""
        rounded = self._is_rounded or not on_lattice
        if rounded and is_same_table(values, self.table) and (not names or self.names in ((), tuple(names))):
            return self
        if self.source is None:
            raise InputError(f"query {self.name}: it was made for other values or names; give the query itself")
        return self.source.on(values, names, on_lattice=on_lattice)

    @property
    def _is_rounded(self) -> bool:
        """Whether answers are on a lattice."""
        return True

    @property
    def costs(self) -> Any:
        """The table whose differences between snapshots of states bound what a release reveals of them: itself."""
        return self

    @property
    def offset(self: Any) -> Floats:
        """One possible answer (d,), a multiple of `spacing` from all others."""
        return np.zeros(len(self.outputs))

    def evaluate(self: Any, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        check_table(self.name, values, self.table)
        states = check_snapshots(snapshots, values)
        answers = self.lattice_answers(states.reshape(-1, states.shape[-1]))
        return np.asarray((answers / self.denominator).reshape(*states.shape[:-1], answers.shape[-1]))

    def publish(self: Any, noised: Floats, read: int | None) -> Floats:
        """What an answer on the lattice stands for, given how many sequences were read (None for all)."""
        return np.asarray(noised / (self.denominator if read is None or not self.is_mean else read))

    def noise_factor(self: Any, read: int | None) -> float:
        """What the noise is multiplied by if only some sequences were read, against all of them."""
        return float(self.sequences / read) if self.is_mean and read is not None else 1.0

    def least_read(self: Any) -> int:
        """The least number of sequences that a release rests on; those that were not read contribute nothing."""
        return int(self.sequences) if self.needs_all else 1

    def __eq__(self: Any, other: Any) -> bool:
        if type(other) is not type(self):
            return False
        return bool((other.fingerprint, other.name, other.groups) == (self.fingerprint, self.name, self.groups))

    def __hash__(self: Any) -> int:
        return hash(self.fingerprint)


@dataclass(frozen=True, eq=False)
class FoldTable(Table):
    """A query made of one contribution per sequence, on the values of one chain.

    `rows` (s, m, w): the contribution of every sequence in each state, or (1, m, w) if all have the same; `block` (s,):
    the block of w outputs that a sequence moves, 0 for all if none is given. Folded contributions are divided by
    `denominator`, or, if it is a mean, by the number of sequences that were read.
    """

    name: str
    text: str
    rows: Floats = field(repr=False)
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    block: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp), repr=False)
    fold: Fold = "sum"
    denominator: float = 1.0
    is_mean: bool = False
    #: whether a tick at which some sequence was not read has no answer; always so unless it is one sum over sequences
    needs_all: bool = False
    groups: Groups | None = None  #: the groups of sequences, if there is one answer per group
    source: Query | None = field(default=None, repr=False)  #: the query that the table is made of
    names: tuple[str, ...] = field(default=(), repr=False)  #: the sequences that `outputs` may be named after
    custom: bool = False  #: whether the text does not say what is computed
    assumption: str = ""  #: what a certificate assumes of the query
    #: whether answers are a function of the states; else the table only bounds what a release costs between states
    of_states: bool = True
    unit: float = field(init=False)  #: the lattice on which contributions lie, before the division
    blocks: int = field(init=False, repr=False)  #: number of blocks of outputs
    width: int = field(init=False, repr=False)  #: outputs of one block
    #: whether sequences are treated alike, so that the counts of the states determine the answer
    is_symmetric: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = first_row_if_alike(self.rows)
        object.__setattr__(self, "rows", freeze(np.array(rows, dtype=np.float64) + 0.0))  # without -0.0
        block = self.block if self.block.size else np.zeros(self.table.shape[0], dtype=np.intp)
        object.__setattr__(self, "block", freeze(block))
        object.__setattr__(self, "unit", common_unit(self.rows))
        object.__setattr__(self, "blocks", int(self.block.max()) + 1)
        object.__setattr__(self, "width", int(self.rows.shape[2]))
        object.__setattr__(self, "is_symmetric", self.blocks == 1 and self.rows.shape[0] == 1)
        object.__setattr__(self, "needs_all", self.needs_all or self.fold != "sum" or self.blocks > 1)

    # ---- shape -----------------------------------------------------------------------------------------------------

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return int(self.table.shape[0])

    @cached_property
    def _in_own_block(self) -> bool:
        """Whether every sequence has a block of outputs to itself, in their order."""
        return self.blocks > 1 and np.array_equal(self.block, np.arange(self.table.shape[0]))

    @property
    def per_sequence(self) -> bool:
        """Whether there is one output per sequence, in their order, which only that sequence moves."""
        return self.width == 1 and self._in_own_block

    @property
    def own(self) -> Floats:
        """The contribution (s, m, w) of every sequence to the outputs of its block."""
        return np.broadcast_to(self.rows, (*self.table.shape, self.width))

    @cached_property
    def weights(self) -> Floats | None:
        """One number (s, m) for each sequence and state, if the answer folds them (or is the number itself)."""
        return self.own[:, :, 0] if self.width == 1 and (self.blocks == 1 or self.per_sequence) else None

    @cached_property
    def largest(self) -> float:
        """The largest absolute value of an answer, before the division."""
        peaks = np.broadcast_to(np.abs(self.rows).max(axis=(1, 2)), self.table.shape[:1])
        return float(np.bincount(self.block, weights=peaks).max() if self.fold == "sum" else peaks.max())

    @cached_property
    def spacing(self) -> float:
        """The coarsest g such that any two answers of one output differ by a multiple of it, before the division.

        Contributions are whole multiples of the unit, a power of two, so their greatest common divisor is exact.
        """
        apart = self.rows - self.rows[:, :1] if self.fold == "sum" else self._above_least()
        steps = np.rint(apart / self.unit).astype(np.int64)
        return float(max(1, np.gcd.reduce(steps, axis=None))) * self.unit

    def _above_least(self) -> Floats:
        """How far contributions lie above the least answer of their output (max; below the largest for min).

        0 for those that never are the answer.
        """
        parts = self.rows if self.fold == "max" else -self.rows
        block = self.block[: len(parts)]
        least = np.full((self.blocks, self.width), -np.inf)
        np.maximum.at(least, block, parts.min(axis=1))
        return np.asarray(np.maximum(parts - least[block][:, None], 0.0))

    @cached_property
    def offset(self) -> Floats:
        """One possible answer (d,): all answers lie a multiple of `spacing` from it if every sequence was read."""
        return freeze(np.array(self.lattice_answers(np.zeros((1, self.table.shape[0]), dtype=np.intp))[0]))

    def lattice(self, read: int) -> tuple[Floats, float]:
        """One possible answer (d,) of so many sequences, and a distance of which all others are multiples away."""
        if read == self.sequences:
            return self.offset, self.spacing
        return (self.rows[0, 0] * read, self.spacing) if self.is_symmetric else (np.zeros(self.width), self.unit)

    def bounds_of(self, read: int) -> tuple[Floats, Floats]:
        """The least and the largest answer (d,) of so many sequences, before the division."""
        if self.needs_all:
            join, start = {"sum": (np.add, 0.0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}[self.fold]
            low, high = np.full((2, self.blocks, self.width), start)
            join.at(low, self.block, self.own.min(axis=1))
            join.at(high, self.block, self.own.max(axis=1))
            return low.ravel(), high.ravel()
        least, most = np.sort(self.own.min(axis=1), axis=0), np.sort(self.own.max(axis=1), axis=0)
        return least[:read].sum(axis=0), most[self.sequences - read :].sum(axis=0)

    def labels(self, ages: Sequence[int]) -> Indices:
        """Numbers (s,) that agree for sequences with the same age and contribution; separate blocks may be alike."""
        rows: list[Any] = [np.asarray(ages, dtype=np.float64)]
        if self.blocks > 1 and not self._in_own_block:
            rows.append(self.block)
        if self.rows.shape[0] > 1:
            rows.append(self.rows.reshape(len(ages), -1))
        return np.unique(np.column_stack(rows), axis=0, return_inverse=True)[1].ravel()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the answers: two tables of one fingerprint are the same."""
        shape = (*self.table.shape, self.width, self.blocks)
        seal = hashlib.sha256(repr((self.fold, shape, self.rows.shape[0], self.denominator)).encode())
        seal.update(np.ascontiguousarray(self.rows, dtype="<f8").tobytes())
        if self.blocks > 1:
            seal.update(self.block.astype("<i8").tobytes())
        return seal.hexdigest()

    # ---- sensitivity -----------------------------------------------------------------------------------------------

    @cached_property
    def changes(self) -> Floats:
        """How far each record (s,) alone moves a sum, in l1, before the division."""
        change = np.zeros(self.rows.shape[0])
        for a in range(self.rows.shape[1]):
            for b in range(a):
                np.maximum(change, np.abs(self.rows[:, a] - self.rows[:, b]).sum(axis=-1), out=change)
        return np.broadcast_to(change, self.table.shape[:1])

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k before the division: contributions of different records add up without cancelling, at most."""
        check_k(k)
        chosen = slice(None) if members is None else np.asarray(members, dtype=np.intp)
        if self.fold == "sum":
            change = self.changes[chosen]
            return float((np.sort(change)[-k:] if k < change.size else change).sum())
        # One record moves the largest as far as all can: from its best to what is left when all others are lowest.
        parts = self.own[:, :, 0] if self.fold == "max" else -self.own[:, :, 0]
        return float(max(parts[chosen].max() - parts.min(axis=1).max(), 0.0))

    # ---- contributions and answers ---------------------------------------------------------------------------------

    def contributions(self, members: Sequence[int] | None = None) -> Floats:
        """Contributions (members, m, d) with their zeros; outputs that no member moves are left out, as in `columns`.

        By default of all sequences.
        """
        chosen = np.arange(self.block.size) if members is None else np.asarray(members, dtype=np.intp)
        same = self.rows.shape[0] == 1
        rows = np.broadcast_to(self.rows, (chosen.size, *self.rows.shape[1:])) if same else self.rows[chosen]
        if self.blocks == 1:
            return rows
        blocks, place = np.unique(self.block[chosen], return_inverse=True)
        if rows.size * blocks.size > MAX_PARTS:
            raise TooLargeError(
                f"query {self.name}: a table of {chosen.size:,} sequences and {blocks.size:,} outputs has "
                f"{rows.size * blocks.size:.3g} entries; at most {MAX_PARTS:,}",
                needed=float(rows.size * blocks.size),
                limit=float(MAX_PARTS),
            )
        out = np.zeros((*rows.shape[:2], blocks.size, self.width))
        out[np.arange(chosen.size), :, place] = rows
        return out.reshape(*rows.shape[:2], -1)

    def columns(self, members: Sequence[int]) -> Indices:
        """The outputs that `contributions` of some members have, in order."""
        if self.blocks == 1:
            return np.arange(self.width)
        blocks = np.unique(self.block[np.asarray(members, dtype=np.intp)])
        return np.asarray((blocks[:, None] * self.width + np.arange(self.width)).ravel())

    @cached_property
    def lattice_answers(self) -> Callable[[npt.NDArray[Any]], Floats]:
        """Answers (T, d) of snapshots (T, s), exact, on the lattice (before the division).

        A sequence whose state is -1 was not read and contributes nothing to a sum. A function: the cheapest way to
        answer is chosen once, because it runs at every tick.
        """
        m = self.rows.shape[1]
        if self.is_symmetric and m <= COUNTED_STATES:
            counted = [a for a in range(m) if self.fold != "sum" or self.rows[0, a].any()]  # others change no sum
            return lambda states: self.answers_of_counts(state_counts(states, counted, m))
        everyone, own = np.arange(self.block.size), self.own
        if self.per_sequence:
            return lambda states: np.asarray(own[everyone, states, 0])
        if self.blocks == 1 and self.fold == "sum":
            none = np.zeros((len(self.rows), 1, self.width))
            added = np.broadcast_to(np.hstack([self.rows, none]), (self.sequences, m + 1, self.width))
            return lambda states: np.asarray(added[everyone, states].sum(axis=1))
        if self.blocks == 1:
            reduce: Any = {"max": np.max, "min": np.min}[self.fold]
            return lambda states: np.asarray(reduce(own[everyone, states], axis=1))
        order = np.argsort(self.block, kind="stable")
        starts = np.searchsorted(self.block[order], np.arange(self.blocks))
        return lambda states: np.add.reduceat(own[everyone, states][:, order], starts, axis=1).reshape(len(states), -1)

    def answers_of_counts(self, counts: Ints) -> Floats:
        """Answers (T, d) from the number of sequences in each state (T, m), if all are treated alike."""
        part = self.rows[0]
        if self.fold == "sum":
            return np.asarray(counts @ part)
        order = np.argsort(part[:, 0]) if self.fold == "min" else np.argsort(-part[:, 0])
        return np.asarray(part[order[np.argmax(counts[:, order] > 0, axis=1)]])


@dataclass(frozen=True, eq=False)
class FunctionTable(Table):
    """A function of the snapshot, as the table of its answers on the values of one chain.

    `exact` (m^s, d): the answers of all snapshots; `step`: the lattice to which they are rounded, or None. Rounding
    moves each of d outputs by half a step at most, so s_k grows by d steps.
    """

    name: str
    exact: Floats = field(repr=False)
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    on_lattice: bool
    source: Query | None = field(default=None, repr=False)  #: the query of the function; None in another process
    names: tuple[str, ...] = field(default=(), repr=False)
    answers: Floats = field(init=False, repr=False)  #: rounded to the lattice, if there is one
    step: float | None = field(init=False)

    is_symmetric: ClassVar[bool] = False
    per_sequence: ClassVar[bool] = False
    of_states: ClassVar[bool] = True
    custom: ClassVar[bool] = True
    groups: ClassVar[None] = None
    weights: ClassVar[None] = None
    denominator: ClassVar[float] = 1.0
    assumption: ClassVar[str] = ""
    is_mean: ClassVar[bool] = False
    needs_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self.exact)
        one = self._exact_sensitivity(1)
        if one == 0:
            raise InputError("custom: the function is constant; there is nothing to protect or to publish")
        step = fine_unit(one) if self.on_lattice else None
        object.__setattr__(self, "step", step)
        rounded = self.exact if step is None else np.round(self.exact / step) * step
        object.__setattr__(self, "answers", freeze(np.asarray(rounded)))

    @property
    def _is_rounded(self) -> bool:
        return self.step is not None

    @property
    def text(self) -> str:
        """A function has no text that could be read back; its name."""
        return self.name

    def labels(self, ages: Sequence[int]) -> Indices:
        """Numbers (s,), all different: nothing says that a function treats any two sequences alike."""
        return np.arange(len(ages))

    @property
    def unit(self) -> float:
        """The lattice on which answers lie."""
        if self.step is None:
            raise InputError(f"query {self.name}: its answers are on no lattice; make a Plan of it")
        return self.step

    @property
    def spacing(self) -> float:
        """The lattice on which answers lie; nothing is known of a coarser one."""
        return self.unit

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return int(self.table.shape[0])

    def lattice(self, read: int) -> tuple[Floats, float]:
        """One possible answer (d,), and a distance of which all others are multiples away."""
        return self.offset, self.spacing

    def bounds_of(self, read: int) -> tuple[Floats, Floats]:
        """The least and the largest answer of every output."""
        return self.answers.min(axis=0), self.answers.max(axis=0)

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[int, ...] | None], float]:
        return {}

    def _exact_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k of the answers before they are rounded."""
        key = (k, None if members is None else tuple(members))
        if key not in self._known:
            self._known[key] = largest_change(self.exact, k, self.table, members)
        return self._known[key]

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k; nothing is divided. Of rounded answers it is that of any k records."""
        check_k(k)
        k = min(k, self.table.shape[0] if members is None else len(members))
        if self.step is None:
            return self._exact_sensitivity(k, members)
        return self._exact_sensitivity(k) + len(self.outputs) * self.step

    def lattice_answers(self, states: npt.NDArray[Any]) -> Floats:
        """Answers (T, d) of snapshots (T, s), on the lattice."""
        s, m = self.table.shape
        return np.asarray(self.answers[np.ravel_multi_index(tuple(states.T.astype(np.intp)), (m,) * s)])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all answers, and of the sensitivity to one record and to all."""
        sensitivities = [self.undivided_sensitivity(k) for k in (1, self.table.shape[0])]
        content = np.append(self.answers.ravel(), sensitivities)
        return hashlib.sha256(np.ascontiguousarray(content + 0.0, dtype="<f8").tobytes()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: not the function, which may not be importable there."""
        return {**self.__dict__, "source": None}


def first_row_if_alike(rows: Floats) -> Floats:
    """One row if all are the same, so that nothing is done a million times; views of one row are not compared."""
    if rows.shape[0] > 1 and rows.strides[0] == 0:
        return rows[:1]
    return rows[:1] if (rows == rows[:1]).all() else rows


def state_counts(states: npt.NDArray[Any], counted: Sequence[int], m: int) -> Ints:
    """How many sequences of each snapshot (T, s) are in each of the states that are counted; 0 for the others."""
    counts = np.zeros((states.shape[0], m), dtype=np.int64)
    for a in counted:
        counts[:, a] = [np.count_nonzero(row == a) for row in states]
    return counts


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


def check_snapshots(snapshots: npt.ArrayLike, values: Floats) -> Indices:
    """Snapshots (..., s) of state numbers, ready to be used as indices; anything else is refused."""
    states = np.asarray(snapshots)
    s, m = values.shape
    if states.ndim < 1 or states.shape[-1] != s:
        raise InputError(f"snapshot: shape {states.shape} given; the last axis must have one state per sequence ({s})")
    if not np.issubdtype(states.dtype, np.integer):
        raise InputError(f"snapshot: {states.dtype} given; states are whole numbers 0..{m - 1}")
    if states.size and (states.min() < 0 or states.max() >= m):
        raise InputError(f"snapshot: unknown state; states are whole numbers 0..{m - 1}")
    return states.astype(np.intp)


def check_k(k: int) -> None:
    """Refuse a number of records below 1."""
    if k < 1:
        raise InputError(f"sensitivity: k={k} given; at least one record changes")


def is_same_table(values: Floats, table: Floats) -> bool:
    """Whether two tables of values are equal; views of the same numbers without looking at them."""
    if values is table:
        return True
    one, two = values.__array_interface__["data"], table.__array_interface__["data"]
    if one == two and values.shape == table.shape and values.strides == table.strides:
        return True
    return bool(np.array_equal(values, table))


def check_table(name: str, values: Floats, table: Floats) -> None:
    """Refuse other values than those that a table was made for."""
    if not is_same_table(values, table):
        raise InputError(f"query {name}: its table was made for the values of another chain; give the query itself")
