"""The SQL that DuckDB and Spark share. Aging shifts a row to `tick + age`; there is no self-join.

All sums are of whole numbers, so the engines agree to the last bit. The table `dimensions` has one row per sequence:
its position in the chain, its age and two secret random weights (see `csdp.tables.survey`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.panel.grid import EMPTY
from csdp.panel.readings import match_names
from csdp.plan import Plan

#: Every character that `str.strip` and the reader in memory take for a space.
SPACES = "".join(map(chr, filter(lambda code: chr(code).isspace(), range(0x3001))))
#: Codes in the column of states for rows without a valid state.
MISSING, UNDECLARED, INFINITE, NO_NUMBER = -1, -2, -3, -4

CellKind = Literal["small", "numbers", "text"]


@dataclass(frozen=True)
class LongRelation:
    """A table as a relation with the columns time, sequence, value.

    `whole_names`: the sequences are whole numbers. `cells`: "small" for whole numbers of at most 16 bits, which have
    few distinct values; "numbers"; or "text". `nanoseconds`: times are whole numbers of nanoseconds since 1970.
    """

    label: str
    relation: str
    whole_names: bool
    cells: CellKind
    nanoseconds: bool = False

    def trim_names(self) -> LongRelation:
        """Return the same table with no spaces around names of sequences, as the reader in memory has them."""
        return replace(self, relation=f"SELECT time, {trim('sequence')} AS sequence, value FROM ({self.relation}) t")


def cell_kind(label: str, kind: str, *, small: Container[str], numbers: Container[str], text: str) -> CellKind:
    """Kind of cells of an SQL type, given the dialect's names of types; decimals are numbers in every dialect."""
    if kind in small:
        return "small"
    if kind in numbers or kind.lower().startswith("decimal"):
        return "numbers"
    if kind == text:
        return "text"
    raise InputError(f"{label}: the readings hold {kind}, not numbers")


@dataclass(frozen=True, eq=False)
class Domain:
    """Names of the sequences and their declared values: (m,), or (s, m) where sequences differ."""

    names: tuple[str, ...]
    values: Floats
    clamp: bool

    def arrange(self, names: Sequence[str]) -> Domain:
        """Return the same domain with its sequences in the order of a chain's names."""
        hint = "Open the table with names= of the chain"
        place = match_names(self.names, names, what="table", hint=hint)
        if place is None:
            return self
        return replace(
            self, names=tuple(self.names[i] for i in place), values=self.values if self.alike else self.values[place]
        )

    @property
    def states(self) -> int:
        """Number of states m."""
        return int(self.values.shape[-1])

    @property
    def alike(self) -> bool:
        """Whether all sequences have the same values."""
        return self.values.ndim == 1

    @property
    def tolerance(self) -> Floats:
        """How far from a declared value a reading may be, as in `csdp.panel.to_states`; one, or one per sequence."""
        ordered = np.sort(self.values, axis=-1)
        gaps = np.diff(ordered, axis=-1)
        least = np.min(np.where(gaps > 0, gaps, np.inf), axis=-1, initial=np.inf)
        return np.asarray(np.minimum(1e-5 * float(np.abs(self.values).max()), least / 2))


def trim(column: str) -> str:
    """SQL for a text without spaces around it; what SQL itself trims differs between dialects."""
    return f"trim(BOTH '{SPACES}' FROM {column})"


def number(value: float) -> str:
    """SQL literal that every dialect reads as the same double."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def value_columns(domain: Domain) -> dict[str, npt.NDArray[np.generic]]:
    """Columns of `dimensions` for values that differ between sequences."""
    if domain.alike:
        return {}
    order = np.argsort(domain.values, axis=1)
    levels = np.take_along_axis(domain.values, order, axis=1)
    middles = (levels[:, 1:] + levels[:, :-1]) / 2
    return {
        "tolerance": domain.tolerance,
        **{f"level_{k}": levels[:, k] for k in range(domain.states)},
        **{f"state_{k}": order[:, k].astype(np.int32) for k in range(domain.states)},
        **{f"middle_{k}": middles[:, k] for k in range(domain.states - 1)},
    }


def readings(
    layout: LongRelation, domain: Domain, more: Iterable[str] = (), *, reading_level: str | None = None
) -> str:
    """Relation of all rows with the columns of their sequence (and `more` of `dimensions`) and their state `st`.

    `st` is the state, or one of the codes MISSING, UNDECLARED, INFINITE, NO_NUMBER. `reading_level`: SQL for a
    column `lv` of the reading v.
    """
    if domain.alike:
        order = np.argsort(domain.values)
        levels = domain.values[order]
        level, state = [number(v) for v in levels], [str(int(k)) for k in order]
        middle, tolerance = [number(v) for v in (levels[1:] + levels[:-1]) / 2], number(float(domain.tolerance))
    else:
        level, state, middle = (
            [f"d.{kind}_{k}" for k in range(domain.states)] for kind in ("level", "state", "middle")
        )
        tolerance = "d.tolerance"
    nearest, place = (_stepwise(middle, choice) for choice in (level, state))
    wrong = "" if domain.clamp else f"WHEN abs({nearest} - v) > {tolerance} THEN {UNDECLARED} "
    text = layout.cells == "text"
    words = ", ".join(f"'{word}'" for word in (*EMPTY, "-nan", "+nan"))
    infinite = "abs(v) = CAST('Infinity' AS DOUBLE)"
    # Dialects also take 1_000, 1d, 1f or 0x1p1 for numbers, which the reader in memory refuses.
    unusual = f"NOT isnan(v) AND NOT {infinite} AND translate(cell, '0123456789+-.eE', '') <> ''"
    garbled = f"WHEN (v IS NULL AND lower(cell) NOT IN ({words})) OR ({unusual}) THEN {NO_NUMBER} " if text else ""
    st = (
        f"CASE {garbled}WHEN v IS NULL OR isnan(v) THEN {MISSING} "
        f"WHEN {infinite} THEN {INFINITE} {wrong}ELSE {place} END"
    )
    if text:
        cells = f"SELECT time, sequence, {trim('value')} AS cell FROM ({layout.relation}) c"
        inner = f"SELECT time, sequence, cell, TRY_CAST(cell AS DOUBLE) AS v FROM ({cells}) q"
    else:
        inner = f"SELECT time, sequence, CAST(value AS DOUBLE) AS v FROM ({layout.relation}) q"
    extra = "".join(f", d.{name}" for name in ("idx", "age", "w", "w2", *more))
    lv = "" if reading_level is None else f", {reading_level} AS lv"
    return (
        f"SELECT r.time, r.sequence{extra}, CAST({st} AS INT) AS st{lv} "
        f"FROM ({inner}) r LEFT JOIN dimensions d ON r.sequence = d.name"
    )


def _stepwise(middle: list[str], choice: list[str]) -> str:
    """SQL for the choice whose interval holds v: the one after the last middle below v."""
    if len(choice) == 1:
        return choice[0]
    steps = "".join(f"WHEN v > {middle[k - 1]} THEN {choice[k]} " for k in range(len(choice) - 1, 0, -1))
    return f"CASE {steps}ELSE {choice[0]} END"


def has_own_contributions(plan: Plan | None) -> bool:
    """Whether sequences contribute differently, so that counts of states do not determine the answer."""
    return plan is not None and plan.query.weights is not None and not has_equal_contributions(plan)


def has_equal_contributions(plan: Plan) -> bool:
    """Whether all sequences contribute the same in the same state, to one output or each to its own."""
    return isinstance(plan.query, FoldComputation) and plan.query.rows.shape[0] == 1


def lattice_contributions(plan: Plan) -> Ints:
    """Contribution of each state in whole lattice units: (s, m), or (1, m) where all sequences are alike."""
    weights = plan.query.weights
    assert weights is not None
    return np.round((weights[:1] if has_equal_contributions(plan) else weights) / plan.unit).astype(np.int64)


def contribution_columns(plan: Plan | None) -> dict[str, npt.NDArray[np.generic]]:
    """Columns of `dimensions`: the contribution of a sequence in each state, where sequences differ."""
    if plan is None or not has_own_contributions(plan):
        return {}
    return {f"contribution_{a}": column for a, column in enumerate(lattice_contributions(plan).T)}


def contribution(plan: Plan) -> str:
    """SQL for the contribution of a row, in whole lattice units."""
    if has_own_contributions(plan):
        choices = list(contribution_columns(plan))
    else:
        choices = [f"CAST({units} AS BIGINT)" for units in lattice_contributions(plan)[0]]
    return "CASE st " + "".join(f"WHEN {a} THEN {text} " for a, text in enumerate(choices)) + "END"


def folded_column(plan: Plan | None) -> str:
    """SQL for a column `p` of folded contributions; empty where counts of states determine the answer."""
    if plan is None or not has_own_contributions(plan) or plan.query.per_sequence:
        return ""
    query = plan.query
    if not isinstance(query, FoldComputation):
        return ""
    return f", CAST({query.fold}({contribution(plan)}) AS BIGINT) AS p"


def fill_gaps(known: str, *, limit: int, last: int, unnest: str) -> str:
    """Relation that repeats each reading at up to `limit` following ticks (`slice`) without a reading.

    `unnest`: SQL of the dialect that makes rows of the whole numbers {a} to {b}.
    """
    following = f"SELECT n.*, lead(tick) OVER (PARTITION BY idx ORDER BY tick) AS following FROM ({known}) n"
    end = f"least(coalesce(following - 1, {last}), tick + {limit}, {last})"
    return f"SELECT f.*, {unnest.format(a='tick', b=end)} AS slice FROM ({following}) f"
