"""What a comparison says, of one release or without end: a row for every method, and a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from csdp.bounds.result import as_text
from study.baselines.protocol import Quantity

Verdict = Literal["ours", "same release", "equal", "worse", "BETTER", "misses target", "not comparable"]
ContinualVerdict = Literal["ours", "same release", "equal", "worse", "BETTER", "not comparable"]

AnyRow = TypeVar("AnyRow", "Row", "ContinualRow")

#: Relative difference below which two methods count as equal.
TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method: its own guarantee, its exact leakage, and its error."""

    method: str
    name: str
    label: str  #: the kind of its guarantee
    guarantee: str
    age: int | None = None
    nominal: float | None = None  #: epsilon of its own guarantee; None where it has none or could not be run
    scale: float | None = None
    leakage: Quantity  #: of the present, one release, informed adversary
    lifetime: Quantity  #: of a record, all releases
    mse_raw: float | None = None
    mse: float | None = None  #: of the best linear estimate
    mse_posterior: float | None = None  #: of the posterior mean given one release, where it is known
    verdict: Verdict
    note: str = ""


def _find_row(rows: Sequence[AnyRow], name: str) -> AnyRow:
    """The row of a method, by its short name."""
    for row in rows:
        if row.name == name:
            return row
    raise KeyError(f"{name}: no such row; one of {', '.join(row.name for row in rows)}")


@dataclass(frozen=True)
class Comparison:
    """All methods at one budget (errors are compared) or one error target (leakages are compared)."""

    rows: tuple[Row, ...]
    target: Literal["budget", "max_mse"]
    value: float
    query: str
    length: int
    no_data: float
    chain_digest: str

    def __repr__(self) -> str:
        return f"Comparison({self.query}, {self.target} {self.value:g}, {len(self.rows)} methods)"

    def __getitem__(self, name: str) -> Row:
        return _find_row(self.rows, name)

    @property
    def better(self) -> tuple[Row, ...]:
        """Rows that do better than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Rows with less error than our plan whose leakage of the present is not known."""
        mine = self["ours"].mse
        return tuple(
            row
            for row in self.rows
            if row.leakage.value is None and row.mse is not None and mine is not None and row.mse < mine
        )

    @property
    def headline(self) -> str:
        """The result for our plan, in one or two sentences."""
        what = "error" if self.target == "budget" else "leakage"
        if self.better:
            first = f"Our plan is NOT the best here: less {what} by {', '.join(row.method for row in self.better)}."
        else:
            first = f"No method that can be compared has less {what} than our plan."
        if not self.unknown:
            return first
        limits = [row.leakage.at_most for row in self.unknown]
        words = ["no bound either" if most is None else f"at most {as_text(most, 4)}" for most in limits]
        names = ", ".join(f"{row.method} ({bound})" for row, bound in zip(self.unknown, words, strict=True))
        return f"{first} Less error, but what it leaks is not known: {names}."


@dataclass(frozen=True, kw_only=True)
class ContinualRow:
    """One method: its own epsilon, the certified leakage of the present for ever, and its errors."""

    method: str
    name: str
    guarantee: str
    age: int = 0
    nominal: float | None = None  #: epsilon of its own guarantee; of our plan epsilon_c
    leakage: Quantity  #: of the present, all releases, for ever
    mse: float | None = None  #: of the answer of a tick
    total_mse: float | None = None  #: of the running total, the mean over the ticks of a window
    verdict: ContinualVerdict = "not comparable"  #: on answers
    total_verdict: ContinualVerdict = "not comparable"  #: on running totals
    note: str = ""


@dataclass(frozen=True)
class ContinualComparison:
    """All methods at one certified leakage of the present, for ever."""

    rows: tuple[ContinualRow, ...]
    budget: float
    query: str
    window: int
    no_data: float
    total_no_data: float
    chain_digest: str

    def __repr__(self) -> str:
        return f"ContinualComparison({self.query}, budget {self.budget:g}, {len(self.rows)} methods)"

    def __getitem__(self, name: str) -> ContinualRow:
        return _find_row(self.rows, name)

    @property
    def better(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of the answer of a tick than our plan."""
        return tuple(row for row in self.rows if row.verdict == "BETTER")

    @property
    def better_totals(self) -> tuple[ContinualRow, ...]:
        """Rows with less error of running totals than our plan for them."""
        return tuple(row for row in self.rows if row.total_verdict == "BETTER")

    @property
    def headline(self) -> str:
        """The result for our plan, in two sentences."""
        words = []
        for what, rows in (("answers of a tick", self.better), ("running totals", self.better_totals)):
            if rows:
                words.append(f"On {what} our plan is NOT the best: less error by {', '.join(r.method for r in rows)}.")
            else:
                words.append(f"On {what} no method that can be compared has less error than our plan.")
        return " ".join(words)
