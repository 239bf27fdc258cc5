"""What a comparison says, of one release or without end: a row for every method, and a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from csdp.baselines.protocol import Quantity
from csdp.bounds.result import as_text
from csdp.display import Displayed

if TYPE_CHECKING:
    from rich.table import Table

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
class Comparison(Displayed):
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

    @property
    def lifetime_headline(self) -> str:
        """Methods with a lower lifetime leakage than our plan, which does not protect old records."""
        mine = self["ours"].lifetime.value
        lower = [
            row.method
            for row in self.rows[1:]
            if row.name != "no-data"
            and mine is not None
            and row.lifetime.value is not None
            and row.verdict in {"equal", "worse", "BETTER"}
            and row.lifetime.value < mine * (1 - TIE)
        ]
        if not lower:
            return "No method that can be compared has a lower lifetime leakage of a record."
        return f"Over the lifetime of a record our plan tells more than: {', '.join(lower)}."

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain data."""
        return [asdict(row) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        return {
            "target": self.target,
            "value": self.value,
            "query": self.query,
            "length": self.length,
            "no_data": self.no_data,
            "chain_digest": self.chain_digest,
            "headline": self.headline,
            "lifetime_headline": self.lifetime_headline,
            "rows": self.records(),
        }

    def __rich__(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        goal = (
            "leakage of the present at most" if self.target == "budget" else "squared error (linear estimate) at most"
        )
        title = (
            f"{self.query}: every method at {goal} {self.value:g}; informed adversary, one release; lifetime over "
            f"{self.length} releases; publish nothing: squared error {self.no_data:.4g}"
        )
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method and kind of guarantee")
        table.add_column("age", justify="right")
        for name in ("own\nepsilon", "leakage\n(exact)", "lifetime", "squared error\nraw", "squared error\nlinear"):
            table.add_column(name, justify="right")
        table.add_column("against\nours")
        short = {"same release": "same", "not comparable": "-", "misses target": "misses"}
        for row in self.rows:
            table.add_row(
                f"{row.method}\n  {row.label}",
                "-" if row.age is None else str(row.age),
                format_number(row.nominal),
                format_quantity(row.leakage),
                format_quantity(row.lifetime),
                format_number(row.mse_raw),
                format_number(row.mse),
                short.get(row.verdict, row.verdict),
                style={"ours": "bold", "BETTER": "bold red", "not comparable": "dim"}.get(row.verdict),
            )
        return table


def format_number(value: float | None) -> str:
    """A number in four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}"


def format_quantity(quantity: Quantity) -> str:
    """A value, its bound, or that there is neither."""
    if quantity.value is not None:
        return f"{quantity.value:.4g}"
    return "not\ncomputed" if quantity.at_most is None else f"at most\n{as_text(quantity.at_most, 4)}"


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
class ContinualComparison(Displayed):
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

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        content = {
            name: getattr(self, name)
            for name in ("budget", "query", "window", "no_data", "total_no_data", "chain_digest", "headline")
        }
        return {"releases": "continual", **content, "rows": [asdict(row) for row in self.rows]}

    def __rich__(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        title = (
            f"{self.query}: a release at every tick without end, certified leakage of the present at most "
            f"{self.budget:g}; best linear estimates from the history; publish nothing: squared error "
            f"{self.no_data:.4g}, "
            f"running total over up to {self.window} ticks {self.total_no_data:.4g}"
        )
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method")
        for name in ("age", "own\nepsilon", "certified", "squared\nerror", "share", "total: squared\nerror", "share"):
            table.add_column(name, justify="right")
        table.add_column("against ours\n(answer, total)")
        for row in self.rows:
            table.add_row(
                row.method,
                str(row.age),
                format_number(row.nominal),
                format_quantity(row.leakage),
                format_number(row.mse),
                format_share(row.mse, self.no_data),
                format_number(row.total_mse),
                format_share(row.total_mse, self.total_no_data),
                f"{row.verdict}, {row.total_verdict}" if row.verdict != "ours" else "ours",
                style={"ours": "bold", "BETTER": "bold red"}.get(row.verdict),
            )
        return table


def format_share(value: float | None, whole: float) -> str:
    """An error as a share of that of publishing nothing."""
    return "-" if value is None else f"{value / whole:.1%}"
