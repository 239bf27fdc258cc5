"""One published tick, as it is recorded in the ledger and handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from csdp.display import Displayed
from csdp.fran import Output
from csdp.ledger import Published, Reserved
from csdp.plan import Plan

_ROWS = ("values", "estimate", "standard_error", "low", "high")


@dataclass(frozen=True)
class Release:
    """One published tick: the noisy values, and the estimate that was made from this release and those before it.

    Attributes: `values` as the mechanism drew them; `estimate` of the answer that `about` names (of the present,
    "now", or of the time of the readings, "then") with its `standard_error` and its band from `low` to `high`, which is
    to hold a share `level` of the truths; `no_data`, the squared error of guessing the usual value; `epsilon_s`, the
    leakage of the present after it, under a model that is `model` ("accepted", "rejected", "untested", "declared").
    Empty or None if no estimate could be made, and in ledgers from before they were recorded; all but the estimate also
    if its error is not known, as that of readings without a public past.
    """

    tick: int
    values: tuple[float, ...]
    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]
    ages: int | tuple[int, ...]
    stale: int
    epsilon_s: float
    unsafe: bool = False
    noise: float | None = None  #: variance of the noise of a value
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    level: float | None = None
    about: Literal["now", "then"] = "now"
    no_data: float | None = None
    model: str | None = None
    count: int | None = None  #: sequences that were read, if readings are published: the divisor of a mean

    @classmethod
    def of(cls, published: Published) -> Release:
        """From what the ledger recorded; what a later version recorded in addition is left out."""
        known = {field.name for field in fields(cls)}
        content = {name: value for name, value in published.output.items() if name in known}
        for name in _ROWS:
            content[name] = tuple(content.get(name, ()))
        if isinstance(content["ages"], list):
            content["ages"] = tuple(content["ages"])
        return cls(tick=published.tick, **content)

    @property
    def usefulness(self) -> float | None:
        """Expected share of the squared error of guessing the usual value that the estimate removes; None if unknown.

        >>> release = Release(5, (0.25,), (0.5,), (0.1,), ages=2, stale=0, epsilon_s=0.2, no_data=0.04)
        >>> round(release.usefulness, 2)
        0.75
        """
        if self.no_data is None or not self.estimate or not self.no_data > 0:
            return None
        return 1.0 - sum(error**2 for error in self.standard_error) / self.no_data


#: Why a tick has no output: its readings or the plan's schedule, a limit, a process that was stopped after it had
#: charged it, a later tick that was charged before it, or another plan that the dataset is published under by now.
Why = Literal["readings", "schedule", "limit", "lost", "order", "terms"]


@dataclass(frozen=True)
class Skipped:
    """A tick without output, and why: in words, and as one word for programs."""

    tick: int
    reason: str
    why: Why = "readings"


@dataclass(frozen=True)
class Batch(Displayed):
    """The releases of a panel, and its ticks without one.

    `recorded`: releases that were on record before, whose numbers do not come from these readings.
    """

    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]
    recorded: int = field(default=0, compare=False)

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __repr__(self) -> str:
        recorded = f" ({self.recorded:,} recorded before)" if self.recorded else ""
        return f"Batch({len(self.releases):,} releases{recorded}, {len(self.skipped):,} ticks without one)"


def record_output(plan: Plan, reserved: Reserved, output: Output) -> dict[str, Any]:
    """What a ledger records of a release."""
    content = dict(vars(output))  # asdict would copy every value of a wide output one by one
    if output.count is None:  # releases of states are recorded as they always were
        del content["count"]
    content["ages"] = plan.min_age if plan.min_age == plan.max_age else list(plan.ages)
    content["epsilon_s"] = reserved.charge.present
    content["model"] = plan.verdict.status
    return content
