"""A query made of one part per sequence, as its parts say it and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.arrays import Indices
from csdp.computation.tables import check_table
from csdp.errors import InputError, TooLargeError
from csdp.lattice import common_unit
from csdp.queries import Fold, Query, check_snapshots

Floats = npt.NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]

#: Entries of a table of parts that is written out with its zeros.
MAX_PARTS: Final = 50_000_000
#: States up to which sequences that are treated alike are counted instead of looked up one by one.
COUNTED_STATES: Final = 32


@dataclass(frozen=True, eq=False)
class FoldComputation:
    """A query made of one part per sequence, on the values of one chain. It is a query itself, for those values.

    `rows` (s, m, w): the part of every sequence in each state, or (1, m, w) where all have the same; `block` (s,): the
    block of w outputs that a sequence moves, 0 for all where there is one; `over`: by what folded parts are divided.
    """

    name: str
    text: str
    fold: Fold
    rows: Floats
    block: Indices
    over: float
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    groups: Groups | None = None  #: the groups of sequences that it answers for, where it is asked per group
    source: Query | None = field(default=None, repr=False)  #: the query as it was given; None in another process
    #: what is believed about the query and not verified
    assumption: str = ""

    # ---- capabilities --------------------------------------------------------------------------------------------

    @property
    def one_block(self) -> bool:
        """Whether every sequence moves the same outputs."""
        return self.blocks == 1

    @property
    def alike(self) -> bool:
        """Whether sequences are treated alike, so that how many are in each state says all."""
        return self.one_block and self.rows.shape[0] == 1

    @cached_property
    def per_sequence(self) -> bool:
        """Whether there is one output per sequence, in their order, which only that sequence moves."""
        return self.width == 1 and self.blocks > 1 and np.array_equal(self.block, np.arange(self.table.shape[0]))

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of outputs."""
        return int(self.block.max()) + 1

    @property
    def width(self) -> int:
        """Outputs of one block."""
        return int(self.rows.shape[2])

    @property
    def own(self) -> Floats:
        """The part (s, m, w) of every sequence in the outputs of its own block."""
        return np.broadcast_to(self.rows, (*self.table.shape, self.width))

    @cached_property
    def weights(self) -> Floats | None:
        """One number (s, m) for each sequence and state, where the answer folds them (or is the number itself)."""
        return self.own[:, :, 0] if self.width == 1 and (self.one_block or self.per_sequence) else None

    @cached_property
    def unit(self) -> float:
        """The lattice on which parts and answers lie, before the division."""
        return common_unit(self.rows)

    @cached_property
    def largest(self) -> float:
        """What no answer passes before the division, in absolute value."""
        peaks = np.broadcast_to(np.abs(self.rows).max(axis=(1, 2)), self.table.shape[:1])
        return float(np.bincount(self.block, weights=peaks).max() if self.fold == "sum" else peaks.max())

    def likeness(self) -> Floats:
        """Rows (s, ...) that agree for sequences which contribute alike; a block of one's own is like any other."""
        if self.rows.shape[0] == 1:
            rows = np.zeros((self.table.shape[0], 1))
        else:
            rows = self.rows.reshape(self.table.shape[0], -1)
        return rows if self.one_block or self.per_sequence else np.column_stack([self.block, rows])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the answers: two computations of one fingerprint are the same."""
        shape = (*self.table.shape, self.width, self.blocks)
        seal = hashlib.sha256(repr((self.fold, shape, self.rows.shape[0], self.over)).encode())
        seal.update(np.ascontiguousarray(self.rows, dtype="<f8").tobytes())
        if not self.one_block:
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

    def undivided(self, k: int, members: Sequence[int] | None = None) -> float:
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
        return self.undivided(k, members) / self.over

    # ---- parts and answers ---------------------------------------------------------------------------------------

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """Parts (members, m, d) with their zeros; outputs that no member moves are left out, as in `columns`."""
        check_table(self.name, values, self.table)
        chosen = np.arange(self.block.size) if members is None else np.asarray(members, dtype=np.intp)
        alone = self.rows.shape[0] == 1
        rows = np.broadcast_to(self.rows, (chosen.size, *self.rows.shape[1:])) if alone else self.rows[chosen]
        if self.one_block:
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
        if self.one_block:
            return np.arange(self.width)
        blocks = np.unique(self.block[np.asarray(members, dtype=np.intp)])
        return np.asarray((blocks[:, None] * self.width + np.arange(self.width)).ravel())

    def divisor(self, values: Floats) -> float:
        """What the folded parts are divided by in the end."""
        check_table(self.name, values, self.table)
        return self.over

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        check_table(self.name, values, self.table)
        states = check_snapshots(snapshots, values)
        found = self.lattice_answers(states.reshape(-1, states.shape[-1]))
        return (found / self.over).reshape(*states.shape[:-1], found.shape[-1])

    def lattice_answers(self, states: npt.NDArray[Any]) -> Floats:
        """Answers (T, d) of snapshots (T, s), exact, on the lattice (before the division)."""
        return self._answer(states)

    @cached_property
    def _answer(self) -> Callable[[npt.NDArray[Any]], Floats]:
        """The cheapest way to answer; chosen once, because it runs at every tick."""
        m, everyone, own = self.rows.shape[1], np.arange(self.block.size), self.own
        if self.alike and m <= COUNTED_STATES:
            return lambda states: self.answers_of_counts(state_counts(states, m))
        if self.per_sequence:
            return lambda states: np.asarray(own[everyone, states, 0])
        if self.one_block:
            reduce: Any = {"sum": np.sum, "max": np.max, "min": np.min}[self.fold]
            return lambda states: np.asarray(reduce(own[everyone, states], axis=1))
        order = np.argsort(self.block, kind="stable")
        starts = np.searchsorted(self.block[order], np.arange(self.blocks))
        return lambda states: np.add.reduceat(own[everyone, states][:, order], starts, axis=1).reshape(len(states), -1)

    def answers_of_counts(self, counts: npt.NDArray[np.int64]) -> Floats:
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


def state_counts(states: npt.NDArray[Any], m: int) -> npt.NDArray[np.int64]:
    """How many sequences of each snapshot (T, s) are in each state."""
    counts = np.empty((states.shape[0], m), dtype=np.int64)
    for a in range(1, m):
        counts[:, a] = [np.count_nonzero(row == a) for row in states]
    counts[:, 0] = states.shape[1] - counts[:, 1:].sum(axis=1)
    return counts
