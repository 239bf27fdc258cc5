"""The content of a chapter: claims of the paper with a verdict, findings beyond it, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS = ("reproduced", "reproduced only with", "not reproducible", "false")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, with the result of its printed formula and the exact result.

    `follows`: the printed formula gives the paper's number (None: no number is in question). `holds`: the statement
    is true of the exact quantities (None: it is nothing but the number). Both are the outcome of a comparison of
    computed numbers, never written by hand. `only_with`: what the paper does not say, and without which its number
    does not follow.
    """

    name: str
    where: str
    says: str
    paper: str
    printed: str
    exact: str
    follows: bool | None
    holds: bool | None
    only_with: str = ""
    note: str = ""

    @property
    def kind(self) -> str:
        """One of `VERDICTS`."""
        if self.holds is False:
            return "false"
        if self.follows is False:
            return "not reproducible"
        return "reproduced only with" if self.only_with else "reproduced"

    @property
    def verdict(self) -> str:
        """Its kind, with the condition where there is one."""
        return f"{self.kind} {self.only_with}" if self.kind == "reproduced only with" else self.kind

    @property
    def remark(self) -> str:
        """What the verdict leaves open: whether the number of a false statement follows, and the note."""
        parts = []
        if self.holds is False and self.follows is not None:
            with_what = f", with {self.only_with}" if self.only_with and self.follows else ""
            said = "the printed formula does say so" if self.follows else "nor does the printed formula say so"
            parts.append(said + with_what)
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {**asdict(self), "verdict": self.verdict, "remark": self.remark}


@dataclass(frozen=True)
class Finding:
    """A question the paper leaves open, and its answer."""

    name: str
    question: str
    answer: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Chapter:
    """One figure of the paper, or one extension."""

    name: str
    title: str
    claims: Callable[[], Sequence[Claim]]
    findings: Callable[[], Sequence[Finding]]
    figure: Callable[[], Figure]


def no_entries() -> tuple[()]:
    """Return no claims or findings, for a chapter without them."""
    return ()


def is_close(value: float, paper: float, *, within: float = 0.05) -> bool:
    """Whether a computed number is the paper's, up to its rounding.

    >>> is_close(0.8607, 0.86), is_close(0.97, 0.70)
    (True, False)
    """
    return abs(value - paper) <= within * abs(paper)


def format_list(values: Sequence[float], form: str = ".3g") -> str:
    """Return rounded numbers, separated by commas.

    >>> format_list([0.40002, 0.3])
    '0.4, 0.3'
    """
    return ", ".join(format(value, form) for value in values)


def format_range(values: Sequence[float], form: str = ".0%") -> str:
    """Return the least and largest number as text; one number where both texts are equal.

    >>> format_range([0.974, 0.984]), format_range([0.4, 0.4])
    ('97% to 98%', '40%')
    """
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def format_percent(share: float) -> str:
    """Return a share in whole percent; zero has no sign.

    >>> format_percent(0.4971), format_percent(-1e-9)
    ('50%', '0%')
    """
    return f"{round(share, 4) + 0.0:.0%}"
