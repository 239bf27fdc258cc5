"""All bounds side by side, for people and as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from csdp.aging import Adversary, Progress
from csdp.bounds.leakage import BOUNDS, Setting, leakage
from csdp.bounds.result import Leakage
from csdp.bounds.rounding import shown
from csdp.chain import Family, Model, certified_model
from csdp.errors import CsdpError
from csdp.queries import Query

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class LeakageTable:
    """Leakages by bound; bounds that do not apply carry the reason instead."""

    rows: tuple[Leakage, ...]
    missing: dict[str, str]
    title: str

    def records(self) -> list[dict[str, Any]]:
        """One plain record per bound."""
        return [row.to_dict() for row in self.rows]

    def __getitem__(self, bound: str) -> Leakage:
        for row in self.rows:
            if row.bound == bound:
                return row
        raise KeyError(f"{bound}: {self.missing.get(bound, 'unknown bound')}")

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.title, title_justify="left")
        for column, justify in (("bound", "left"), ("epsilon", "right"), ("", "left"), ("holds for", "left")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type] # plain text for a literal
        for row in self.rows:
            mark = "" if row.sound else "UNSOUND"
            words = row.assumptions[-1] if row.bound != "exact" else "one release; the truth under the model"
            table.add_row(row.bound, shown(row.epsilon), mark, words, style=None if row.sound else "dim")
        for bound, reason in self.missing.items():
            table.add_row(bound, "-", "", reason, style="dim")
        return table


def leakage_table(
    chain: Model | Family,
    query: Query,
    *,
    ages: Any,
    epsilon_c: float,
    adversary: Adversary = "informed",
    at_any_tick: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> LeakageTable:
    """Every bound for one release, sharpest first, then the paper's printed formulas, marked unsound.

    Over a Family, and over that of a fitted chain, every bound is the largest. `workers`: processes over which
    components are spread. `at_any_tick`: as for `leakage`.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = leakage_table(chain, Mean(), ages=2, epsilon_c=1.0)
    >>> round(table["profile"].epsilon, 6), table["printed-loose"].sound
    (0.196443, False)
    """
    model = certified_model(chain)
    question: dict[str, Any] = {
        "ages": ages,
        "epsilon_c": epsilon_c,
        "adversary": adversary,
        "at_any_tick": at_any_tick,
        "progress": progress,
    }
    setting = Setting.make(model.members[0], query, **question)
    rows, missing = [], {}
    for bound in BOUNDS:
        if adversary != "informed" and bound.startswith("printed"):
            continue
        try:
            if len(model.members) > 1:
                rows.append(leakage(model, query, bound=bound, workers=workers, **question))
            else:
                rows.append(setting.answer(bound, workers=workers))
        except CsdpError as error:
            missing[bound] = str(error)
    ages_told = str(setting.ages[0]) if len(set(setting.ages)) == 1 else ",".join(map(str, setting.ages[:12]))
    title = f"Leakage of the present: {query.name}, age {ages_told}, epsilon_c {epsilon_c:g}, {adversary} adversary"
    return LeakageTable(tuple(rows), missing, title)
