"""The SQL that DuckDB and Spark share. Aging is a shift of the row, `tick + age`, never a self-join.

Everything that is summed is a whole number, so no engine can differ in a last bit. A table of dimensions, one row for
each sequence, brings its place, its age and a secret random weight (see `survey`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.panel.readings import match_names
from csdp.panel.tables import EMPTY
from csdp.plan import Plan

Floats = npt.NDArray[np.float64]

#: What a row can be beside a state.
MISSING, UNDECLARED, INFINITE, NO_NUMBER = -1, -2, -3, -4


Cells = Literal["small", "numbers", "text"]


@dataclass(frozen=True)
class Layout:
    """A table as a relation with the columns time, sequence, value.

    `whole_names`: the sequences are whole numbers. `cells`: "small" for whole numbers of at most 16 bits, of which
    there can be few different ones; "numbers"; or "text".
    """

    label: str
    relation: str
    whole_names: bool
    cells: Cells


def cells_of(label: str, kind: str, *, small: Container[str], numbers: Container[str], text: str) -> Cells:
    """What cells of some kind hold, given what the dialect calls its kinds; decimals are numbers in every dialect."""
    if kind in small:
        return "small"
    if kind in numbers or kind.lower().startswith("decimal"):
        return "numbers"
    if kind == text:
        return "text"
    raise InputError(f"{label}: the readings hold {kind}, not numbers")


@dataclass(frozen=True, eq=False)
class Domain:
    """What the sequences are called and which values they may have: values (m,), or (s, m) where they differ."""

    names: tuple[str, ...]
    values: Floats
    clamp: bool

    def arrange(self, names: Sequence[str]) -> Domain:
        """The same domain with its sequences in the order of a chain's names."""
        hint = "Open the table with names= of the chain"
        place = match_names(self.names, names, what="table", hint=hint)
        if place is None:
            return self
        return replace(
            self, names=tuple(self.names[i] for i in place), values=self.values if self.alike else self.values[place]
        )

    @property
    def states(self) -> int:
        """m."""
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


def number(value: float) -> str:
    """A double that every dialect reads as the same double."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def columns(domain: Domain) -> dict[str, npt.NDArray[np.generic]]:
    """Columns of dimensions for values that differ between sequences."""
    if domain.alike:
        return {}
    order = np.argsort(domain.values, axis=1)
    levels = np.take_along_axis(domain.values, order, axis=1)
    middles = (levels[:, 1:] + levels[:, :-1]) / 2
    found: dict[str, npt.NDArray[np.generic]] = {"tolerance": domain.tolerance}
    found |= {f"level_{k}": levels[:, k] for k in range(domain.states)}
    found |= {f"state_{k}": order[:, k].astype(np.int32) for k in range(domain.states)}
    return found | {f"middle_{k}": middles[:, k] for k in range(domain.states - 1)}


def readings(layout: Layout, domain: Domain, more: Iterable[str] = ()) -> str:
    """Every row with its sequence (`more` columns of the dimensions with it) and its state `st`, or what is wrong."""
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
    garbled = f"WHEN v IS NULL AND value IS NOT NULL AND {_not_empty()} THEN {NO_NUMBER} " if text else ""
    st = (
        f"CASE {garbled}WHEN v IS NULL OR isnan(v) THEN {MISSING} "
        f"WHEN abs(v) = CAST('Infinity' AS DOUBLE) THEN {INFINITE} {wrong}ELSE {place} END"
    )
    v = "TRY_CAST(trim(value) AS DOUBLE)" if text else "CAST(value AS DOUBLE)"
    extra = "".join(f", d.{name}" for name in ("idx", "age", "w", "w2", *more))
    inner = f"SELECT time, sequence, value, {v} AS v FROM ({layout.relation}) q"
    return (
        f"SELECT r.time, r.sequence{extra}, CAST({st} AS INT) AS st "
        f"FROM ({inner}) r LEFT JOIN dimensions d ON r.sequence = d.name"
    )


def _stepwise(middle: list[str], choice: list[str]) -> str:
    """The choice whose interval holds v: the one after the last middle that v is above."""
    if len(choice) == 1:
        return choice[0]
    steps = "".join(f"WHEN v > {middle[k - 1]} THEN {choice[k]} " for k in range(len(choice) - 1, 0, -1))
    return f"CASE {steps}ELSE {choice[0]} END"


def _not_empty() -> str:
    words = ", ".join(f"'{word}'" for word in EMPTY)
    return f"lower(trim(value)) NOT IN ({words})"


def weighted(plan: Plan | None) -> bool:
    """Whether what a sequence contributes depends on which one it is, so that counts of states do not say all."""
    return plan is not None and plan.query.weights is not None and not shared(plan)


def shared(plan: Plan) -> bool:
    """Whether every sequence contributes the same in the same state, in one output or each in its own."""
    return isinstance(plan.query, FoldComputation) and plan.query.rows.shape[0] == 1


def units(plan: Plan) -> npt.NDArray[np.int64]:
    """What each state contributes, in whole lattice units: (s, m), or (1, m) where all sequences are alike."""
    weights = plan.query.weights
    assert weights is not None
    return np.round((weights[:1] if shared(plan) else weights) / plan.unit).astype(np.int64)


def part_columns(plan: Plan | None) -> dict[str, npt.NDArray[np.generic]]:
    """Columns of dimensions: what a sequence contributes in each state, where sequences differ."""
    if plan is None or not weighted(plan):
        return {}
    return {f"part_{a}": column for a, column in enumerate(units(plan).T)}


def part(plan: Plan) -> str:
    """What a row contributes, in whole lattice units."""
    found = units(plan)
    each = [f"part_{a}" if weighted(plan) else f"CAST({found[0, a]} AS BIGINT)" for a in range(found.shape[1])]
    return "CASE st " + "".join(f"WHEN {a} THEN {text} " for a, text in enumerate(each)) + "END"


def folded_part(plan: Plan | None) -> str:
    """A column `p` of folded parts, where counts of states do not say all; nothing elsewhere."""
    if plan is None or not isinstance(plan.query, FoldComputation) or not weighted(plan) or plan.query.per_sequence:
        return ""
    return f", CAST({plan.query.fold}({part(plan)}) AS BIGINT) AS p"


def on_clock(readings_sql: str, clock: str) -> str:
    """Known readings with their ticks; only those of the times that the clock lists."""
    return f"SELECT k.*, c.tick FROM ({readings_sql}) k JOIN {clock} c ON k.time = c.time WHERE k.st >= 0"


def filled(known: str, *, limit: int, last: int, unnest: str) -> str:
    """Every reading at its own slice and, where the next are missing, at up to `limit` more: the shift of a stale row.

    `unnest`: how the dialect makes rows of the whole numbers {a} to {b}.
    """
    following = f"SELECT n.*, lead(tick) OVER (PARTITION BY idx ORDER BY tick) AS following FROM ({known}) n"
    end = f"least(coalesce(following - 1, {last}), tick + {limit}, {last})"
    return f"SELECT f.*, {unnest.format(a='tick', b=end)} AS slice FROM ({following}) f"
