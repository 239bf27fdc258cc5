"""A query that is a function of the whole snapshot: its answers are tabled where snapshots are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Indices
from csdp.computation.tables import check_table
from csdp.errors import InputError
from csdp.queries import Query, check_snapshots, largest_change

Floats = npt.NDArray[np.float64]


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
            self._known[key] = self._find(k, members)
        return self._known[key]

    def _find(self, k: int, members: Sequence[int] | None) -> float:
        if self._query is not None:
            return float(self._query.sensitivity(k, self._table))
        assert self._answers is not None
        largest = largest_change(self._answers, k, self._table, members)
        return largest if self.declared is None else max(largest, self.declared[k - 1])


@dataclass(frozen=True, eq=False)
class FunctionComputation:
    """A function of the snapshot, on the values of one chain. It is a query itself, for those values.

    `answers` (m^s, d): of every snapshot, where they are few; else None, and the function is asked. `step`: the lattice
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

    alike = per_sequence = False
    groups = weights = None
    over = 1.0

    @property
    def text(self) -> str:
        """A function has no text that could be read back; its name."""
        return self.name

    @property
    def unit(self) -> float:
        """The lattice on which answers lie."""
        if self.step is None:
            raise InputError(f"query {self.name}: its answers are on no lattice; make a Plan of it")
        return self.step

    def undivided(self, k: int, members: Sequence[int] | None = None) -> float:
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
        return self.undivided(k, members)

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        check_table(self.name, values, self.table)
        states = check_snapshots(snapshots, values)
        if self.answers is not None:
            s, m = self.table.shape
            return np.asarray(self.answers[np.ravel_multi_index(tuple(np.moveaxis(states, -1, 0)), (m,) * s)])
        assert self.source is not None
        return rounded(function_answers(self.source, states, values, len(self.outputs)), self.step)

    def lattice_answers(self, states: npt.NDArray[Any]) -> Floats:
        """Answers (T, d) of snapshots (T, s), on the lattice."""
        return self.evaluate(states.astype(np.intp), self.table)

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
    """What a function says of snapshots (..., s): finite numbers (..., d), as many for each."""
    answers = np.asarray(query.evaluate(states, values), dtype=np.float64)
    if answers.shape[:-1] != states.shape[:-1] or not answers.shape[-1] or not np.isfinite(answers).all():
        raise InputError(f"query {query.name}: evaluate must give finite numbers (..., d) for snapshots (..., s)")
    if outputs is not None and answers.shape[-1] != outputs:
        raise InputError(f"query {query.name}: {answers.shape[-1]} outputs given where there were {outputs} before")
    return answers


def rounded(answers: Floats, step: float | None) -> Floats:
    """Answers on the lattice of a step."""
    return answers if step is None else np.asarray(np.round(answers / step) * step)
