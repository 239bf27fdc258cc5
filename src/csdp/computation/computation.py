"""What a verified query computes: a fold of one part per sequence, or a function of the whole snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, Ints, freeze
from csdp.errors import InputError, TooLargeError
from csdp.queries import Fold, Query, check_snapshots, largest_change

Groups = tuple[tuple[int, ...], ...]

#: Entries of a table of parts that is written out with its zeros.
MAX_PARTS: Final = 50_000_000
#: States up to which sequences that are treated alike are counted instead of looked up one by one.
COUNTED_STATES: Final = 32


@dataclass(frozen=True, eq=False)
class FoldComputation:
    """A query made of one part per sequence, on the values of one chain. It is a query itself, for those values.

    `rows` (s, m, w): the part of every sequence in each state, or (1, m, w) where all have the same; `block` (s,): the
    block of w outputs that a sequence moves, 0 for all where there is one; `unit`: the lattice on which parts and
    answers lie, before they are divided by `denominator`.
    """

    name: str
    text: str
    fold: Fold
    rows: Floats = field(repr=False)
    block: Indices = field(repr=False)
    unit: float
    denominator: float
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    groups: Groups | None = None  #: the groups of sequences that it answers for, where it has one answer per group
    source: Query | None = field(default=None, repr=False)  #: the query as it was given; None in another process
    assumption: str = ""  #: what is believed about the query and not verified
    #: whether answers are a function of the states; else the parts say only what a release costs between states
    of_states: bool = True
    names: tuple[str, ...] = field(default=(), repr=False)  #: the sequences that `outputs` may be named after
    blocks: int = field(init=False, repr=False)  #: number of blocks of outputs
    width: int = field(init=False, repr=False)  #: outputs of one block
    #: whether sequences are treated alike, so that the counts of the states determine the answer
    is_symmetric: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", int(self.block.max()) + 1)
        object.__setattr__(self, "width", int(self.rows.shape[2]))
        object.__setattr__(self, "is_symmetric", self.blocks == 1 and self.rows.shape[0] == 1)

    # ---- capabilities --------------------------------------------------------------------------------------------

    @property
    def costs(self) -> FoldComputation:
        """The computation whose differences between snapshots of states bound what a release tells of them: itself."""
        return self

    @cached_property
    def _in_own_block(self) -> bool:
        """Whether every sequence has a block of outputs of its own, in their order."""
        return self.blocks > 1 and np.array_equal(self.block, np.arange(self.table.shape[0]))

    @property
    def per_sequence(self) -> bool:
        """Whether there is one output per sequence, in their order, which only that sequence moves."""
        return self.width == 1 and self._in_own_block

    @property
    def own(self) -> Floats:
        """The part (s, m, w) of every sequence in the outputs of its own block."""
        return np.broadcast_to(self.rows, (*self.table.shape, self.width))

    @cached_property
    def weights(self) -> Floats | None:
        """One number (s, m) for each sequence and state, where the answer folds them (or is the number itself)."""
        return self.own[:, :, 0] if self.width == 1 and (self.blocks == 1 or self.per_sequence) else None

    @cached_property
    def largest(self) -> float:
        """The largest absolute value of an answer, before the division."""
        peaks = np.broadcast_to(np.abs(self.rows).max(axis=(1, 2)), self.table.shape[:1])
        return float(np.bincount(self.block, weights=peaks).max() if self.fold == "sum" else peaks.max())

    @cached_property
    def spacing(self) -> float:
        """The coarsest g such that any two answers of one output differ by a multiple of it, before the division.

        Parts are whole multiples of the unit, a power of two, so their greatest common divisor is exact.
        """
        apart = self.rows - self.rows[:, :1] if self.fold == "sum" else self._above_least()
        steps = np.rint(apart / self.unit).astype(np.int64)
        return float(max(1, np.gcd.reduce(steps, axis=None))) * self.unit

    def _above_least(self) -> Floats:
        """How far parts lie above the least answer of their output (max; below the largest for min); 0 for parts that
        never are the answer.
        """
        parts = self.rows if self.fold == "max" else -self.rows
        block = self.block[: len(parts)]
        least = np.full((self.blocks, self.width), -np.inf)
        np.maximum.at(least, block, parts.min(axis=1))
        return np.asarray(np.maximum(parts - least[block][:, None], 0.0))

    @cached_property
    def offset(self) -> Floats:
        """One possible answer (d,): all answers lie a multiple of `spacing` from it."""
        return freeze(np.array(self.lattice_answers(np.zeros((1, self.table.shape[0]), dtype=np.intp))[0]))

    def labels(self, ages: Sequence[int]) -> Indices:
        """Numbers (s,) that agree for sequences with the same age and part; separate blocks may be alike."""
        rows: list[Any] = [np.asarray(ages, dtype=np.float64)]
        if self.blocks > 1 and not self._in_own_block:
            rows.append(self.block)
        if self.rows.shape[0] > 1:
            rows.append(self.rows.reshape(len(ages), -1))
        return np.unique(np.column_stack(rows), axis=0, return_inverse=True)[1].ravel()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the answers: two computations of one fingerprint are the same."""
        shape = (*self.table.shape, self.width, self.blocks)
        seal = hashlib.sha256(repr((self.fold, shape, self.rows.shape[0], self.denominator)).encode())
        seal.update(np.ascontiguousarray(self.rows, dtype="<f8").tobytes())
        if self.blocks > 1:
            seal.update(self.block.astype("<i8").tobytes())
        return seal.hexdigest()

    # ---- sensitivity ---------------------------------------------------------------------------------------------

    @cached_property
    def changes(self) -> Floats:
        """How far each record (s,) alone moves a sum of parts, in l1, before the division."""
        change = np.zeros(self.rows.shape[0])
        for a in range(self.rows.shape[1]):
            for b in range(a):
                np.maximum(change, np.abs(self.rows[:, a] - self.rows[:, b]).sum(axis=-1), out=change)
        return np.broadcast_to(change, self.table.shape[:1])

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k before the division: the parts of different records add up without cancelling, at most."""
        if k < 1:
            raise InputError(f"sensitivity: k={k} given; at least one record changes")
        chosen = slice(None) if members is None else np.asarray(members, dtype=np.intp)
        if self.fold == "sum":
            change = self.changes[chosen]
            return float((np.sort(change)[-k:] if k < change.size else change).sum())
        # One record moves a largest part as far as all can: from its best to what is left when all others are lowest.
        parts = self.own[:, :, 0] if self.fold == "max" else -self.own[:, :, 0]
        return float(max(parts[chosen].max() - parts.min(axis=1).max(), 0.0))

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the largest l1 change of the answer when k records (of `members`) change."""
        check_table(self.name, values, self.table)
        return self.undivided_sensitivity(k, members) / self.denominator

    # ---- parts and answers ---------------------------------------------------------------------------------------

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """Parts (members, m, d) with their zeros; outputs that no member moves are left out, as in `columns`."""
        check_table(self.name, values, self.table)
        return self.contributions(members)

    def contributions(self, members: Sequence[int] | None = None) -> Floats:
        """As `parts`, on the values that the query was verified for."""
        chosen = np.arange(self.block.size) if members is None else np.asarray(members, dtype=np.intp)
        same = self.rows.shape[0] == 1
        rows = np.broadcast_to(self.rows, (chosen.size, *self.rows.shape[1:])) if same else self.rows[chosen]
        if self.blocks == 1:
            return rows
        blocks, place = np.unique(self.block[chosen], return_inverse=True)
        if rows.size * blocks.size > MAX_PARTS:
            raise TooLargeError(
                f"query {self.name}: a table of the parts of {chosen.size:,} sequences in {blocks.size:,} outputs has "
                f"{rows.size * blocks.size:.3g} entries; at most {MAX_PARTS:,}",
                needed=float(rows.size * blocks.size),
                limit=float(MAX_PARTS),
            )
        out = np.zeros((*rows.shape[:2], blocks.size, self.width))
        out[np.arange(chosen.size), :, place] = rows
        return out.reshape(*rows.shape[:2], -1)

    def columns(self, members: Sequence[int]) -> Indices:
        """The outputs that `parts` of some members has, in order."""
        if self.blocks == 1:
            return np.arange(self.width)
        blocks = np.unique(self.block[np.asarray(members, dtype=np.intp)])
        return np.asarray((blocks[:, None] * self.width + np.arange(self.width)).ravel())

    def divisor(self, values: Floats) -> float:
        """What the folded parts are divided by in the end."""
        check_table(self.name, values, self.table)
        return self.denominator

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        check_table(self.name, values, self.table)
        states = check_snapshots(snapshots, values)
        answers = self.lattice_answers(states.reshape(-1, states.shape[-1]))
        return (answers / self.denominator).reshape(*states.shape[:-1], answers.shape[-1])

    @cached_property
    def lattice_answers(self) -> Callable[[npt.NDArray[Any]], Floats]:
        """Answers (T, d) of snapshots (T, s), exact, on the lattice (before the division).

        A function: the cheapest way to answer is chosen once, because it runs at every tick.
        """
        m = self.rows.shape[1]
        if self.is_symmetric and m <= COUNTED_STATES:
            return lambda states: self.answers_of_counts(state_counts(states, m))
        everyone, own = np.arange(self.block.size), self.own
        if self.per_sequence:
            return lambda states: np.asarray(own[everyone, states, 0])
        if self.blocks == 1:
            reduce: Any = {"sum": np.sum, "max": np.max, "min": np.min}[self.fold]
            return lambda states: np.asarray(reduce(own[everyone, states], axis=1))
        order = np.argsort(self.block, kind="stable")
        starts = np.searchsorted(self.block[order], np.arange(self.blocks))
        return lambda states: np.add.reduceat(own[everyone, states][:, order], starts, axis=1).reshape(len(states), -1)

    def publish(self, noised: Floats, read: int | None) -> Floats:
        """What an answer on the lattice stands for; `read`, the number of sequences read, does not matter."""
        return noised / self.denominator

    def noise_factor(self, read: int | None) -> float:
        """The noise does not depend on how many sequences were read."""
        return 1.0

    def answers_of_counts(self, counts: Ints) -> Floats:
        """Answers (T, d) from the number of sequences in each state (T, m), where all are treated alike."""
        part = self.rows[0]
        if self.fold == "sum":
            return np.asarray(counts @ part)
        order = np.argsort(part[:, 0]) if self.fold == "min" else np.argsort(-part[:, 0])
        return np.asarray(part[order[np.argmax(counts[:, order] > 0, axis=1)]])

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates, as they were when the query was verified."""
        return self.outputs

    # ---- as a value ----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FoldComputation) or other.fingerprint != self.fingerprint:
            return False
        return (other.name, other.groups) == (self.name, self.groups)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs; the query as it was given may not be importable there."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "source": None}


def state_counts(states: npt.NDArray[Any], m: int) -> Ints:
    """How many sequences of each snapshot (T, s) are in each state."""
    counts = np.empty((states.shape[0], m), dtype=np.int64)
    for a in range(1, m):
        counts[:, a] = [np.count_nonzero(row == a) for row in states]
    counts[:, 0] = states.shape[1] - counts[:, 1:].sum(axis=1)
    return counts


class Sensitivities:
    """s_k of a function, before rounding: never below that of its tabled answers.

    `declared`: s_1 to s_s as the query says, None where it says nothing and enumeration decides. Without a table the
    query is believed.
    """

    def __init__(self, query: Query, table: Floats, answers: Floats | None, declared: tuple[float, ...] | None) -> None:
        self._query = None if answers is not None else query
        self._table, self._answers, self.declared = table, answers, declared
        self._known: dict[tuple[int, tuple[int, ...] | None], float] = {}

    def __call__(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k, of the records of `members`."""
        if self._query is not None:
            members = None
        key = (k, None if members is None else tuple(members))
        if key not in self._known:
            self._known[key] = self._compute(k, members)
        return self._known[key]

    def _compute(self, k: int, members: Sequence[int] | None) -> float:
        if self._query is not None:
            return float(self._query.sensitivity(k, self._table))
        assert self._answers is not None
        largest = largest_change(self._answers, k, self._table, members)
        return largest if self.declared is None else max(largest, self.declared[k - 1])


@dataclass(frozen=True, eq=False)
class FunctionComputation:
    """A function of the snapshot, on the values of one chain. It is a query itself, for those values.

    `answers` (m^s, d): of every snapshot, where they are few; else None: the function is called. `step`: the lattice
    to which answers are rounded, or None. Rounding moves each of d outputs by half a step at most, so s_k grows by d
    steps.
    """

    name: str
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    answers: Floats | None = field(repr=False)
    step: float | None
    plain: Sensitivities = field(repr=False)  #: before rounding
    fingerprint: str  #: SHA-256 of answers and sensitivities: of all snapshots where they are few, else of a sample
    source: Query | None = field(repr=False)  #: the query as it was given; None in another process
    assumption: str = ""  #: what is believed about the query and not verified
    names: tuple[str, ...] = field(default=(), repr=False)  #: the sequences that `outputs` may be named after

    is_symmetric = per_sequence = False
    of_states = True
    groups = weights = None
    denominator = 1.0

    @property
    def costs(self) -> FunctionComputation:
        """The computation whose differences between snapshots of states bound what a release tells of them: itself."""
        return self

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
    def offset(self) -> Floats:
        """The lattice of a function holds 0."""
        return np.zeros(len(self.outputs))

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k; nothing is divided."""
        if k < 1:
            raise InputError(f"sensitivity: k={k} given; at least one record changes")
        k = min(k, self.table.shape[0] if members is None else len(members))
        if self.step is None:
            return self.plain(k, members)
        # Of a rounded function without a declaration s_k is that of any k records.
        plain = self.plain(k, None if self.plain.declared is None else members)
        return plain + len(self.outputs) * self.step

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the largest l1 change of the answer when k records (of `members`) change."""
        check_table(self.name, values, self.table)
        return self.undivided_sensitivity(k, members)

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        check_table(self.name, values, self.table)
        states = check_snapshots(snapshots, values)
        if self.answers is not None:
            s, m = self.table.shape
            return np.asarray(self.answers[np.ravel_multi_index(tuple(np.moveaxis(states, -1, 0)), (m,) * s)])
        assert self.source is not None
        return round_to_lattice(function_answers(self.source, states, values, len(self.outputs)), self.step)

    def lattice_answers(self, states: npt.NDArray[Any]) -> Floats:
        """Answers (T, d) of snapshots (T, s), on the lattice."""
        return self.evaluate(states.astype(np.intp), self.table)

    def publish(self, noised: Floats, read: int | None) -> Floats:
        """What an answer on the lattice stands for; `read`, the number of sequences read, does not matter."""
        return noised / self.denominator

    def noise_factor(self, read: int | None) -> float:
        """The noise does not depend on how many sequences were read."""
        return 1.0

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates, as they were when the query was verified."""
        return self.outputs

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionComputation) or (other.name, other.step) != (self.name, self.step):
            return False
        same = other.fingerprint == self.fingerprint
        return same and (self.answers is not None or other.source is self.source)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: where the answers say all, not the function, which may not be importable."""
        content = dict(self.__dict__)
        return content if self.answers is None else {**content, "source": None}


def function_answers(query: Query, states: Indices, values: Floats, outputs: int | None = None) -> Floats:
    """The answers of a function for snapshots (..., s): finite numbers (..., d), as many for each."""
    answers = np.asarray(query.evaluate(states, values), dtype=np.float64)
    if answers.shape[:-1] != states.shape[:-1] or not answers.shape[-1] or not np.isfinite(answers).all():
        raise InputError(f"query {query.name}: evaluate must give finite numbers (..., d) for snapshots (..., s)")
    if outputs is not None and answers.shape[-1] != outputs:
        raise InputError(f"query {query.name}: {answers.shape[-1]} outputs given where there were {outputs} before")
    return answers


def round_to_lattice(answers: Floats, step: float | None) -> Floats:
    """Answers on the lattice of a step."""
    return answers if step is None else np.asarray(np.round(answers / step) * step)


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
