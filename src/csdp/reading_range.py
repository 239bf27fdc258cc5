"""The declared range of readings: clipped to it, and rounded to whole levels, so that sums of them are exact."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError

#: Levels that a range may have: as fine as the lattice of values.
MAX_LEVELS = 2**20

_TEXT = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+)\s+by\s+(\S+)\s*")
_WITH_MEMORY = re.compile(r"(.*\S)\s+(memory\b.*?)\s*", re.DOTALL)


@dataclass(frozen=True)
class ReadingRange:
    """Readings from `low` to `high` in steps of `resolution`, declared before any reading is seen.

    A reading is clipped to the range and rounded to the nearest level `low + n * resolution`. The range, not the
    readings, decides the noise of what is published, so it must come from what is known without them: the range of the
    instrument, or a range that makes sense. Readings outside of it count as its ends.

    Args:
        low: readings below this count as this.
        high: readings above this count as this.
        resolution: the distance of two levels, which must divide the range.

    >>> ReadingRange(0, 1, 0.25).levels([0.3, 7.0, float("nan")]).tolist()
    [1, 4, -1]
    """

    low: float
    high: float
    resolution: float

    def __post_init__(self) -> None:
        for name in ("low", "high", "resolution"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise InputError(f"readings: {name} {value!r} given; a number expected")
            object.__setattr__(self, name, float(value))
        width = self.high - self.low
        if not (math.isfinite(self.low) and math.isfinite(width) and width > 0):
            raise InputError(
                f"readings: range {self.low:g} to {self.high:g} given; low must be below high, both finite"
            )
        if not (math.isfinite(self.resolution) and 0 < self.resolution <= width):
            raise InputError(f"readings: resolution {self.resolution:g} given; above 0, at most the range ({width:g})")
        steps = width / self.resolution
        if abs(steps - round(steps)) > 1e-9 * steps:
            raise InputError(
                f"readings: resolution {self.resolution:g} does not divide the range {self.low:g} to {self.high:g} "
                f"into whole steps ({steps:.6g}); use {width / round(steps):.6g}, or move an end of the range"
            )
        if steps > MAX_LEVELS:
            raise InputError(
                f"readings: {steps:.3g} levels between {self.low:g} and {self.high:g}; at most {MAX_LEVELS:,}. "
                "Use a coarser resolution: noise is wider than it anyway"
            )

    @property
    def steps(self) -> int:
        """Steps from low to high; there is one more level."""
        return round((self.high - self.low) / self.resolution)

    @property
    def width(self) -> float:
        """The range that a clipped reading can cover."""
        return self.steps * self.resolution

    @property
    def text(self) -> str:
        """As `parse` reads it, with all digits."""
        return f"{_number(self.low)}..{_number(self.high)} by {_number(self.resolution)}"

    @classmethod
    def parse(cls, text: str) -> ReadingRange:
        """The range of a text LOW..HIGH by RESOLUTION.

        >>> ReadingRange.parse("-10..40 by 0.5")
        ReadingRange(low=-10.0, high=40.0, resolution=0.5)
        """
        refuse_memory(text)
        match = _TEXT.fullmatch(text)
        try:
            assert match is not None
            low, high, resolution = map(float, match.groups())
        except (AssertionError, ValueError):
            raise InputError(f"readings: {text.strip()!r} given; LOW..HIGH by RESOLUTION, as 0..1 by 0.01") from None
        return cls(low, high, resolution)

    def levels(self, readings: Any) -> npt.NDArray[np.int32]:
        """The level of every reading, -1 where it is missing (NaN, None or masked); infinite ones are refused."""
        try:
            numbers = np.ma.filled(np.ma.asarray(readings).astype(np.float64), np.nan)
        except (TypeError, ValueError):
            raise InputError("readings: numbers expected, NaN where one is missing") from None
        if np.isinf(numbers).any():
            raise InputError("readings: infinite values; write missing readings as empty cells or NaN")
        known = ~np.isnan(numbers)
        with np.errstate(over="ignore"):
            place = np.rint((np.where(known, numbers, self.low) - self.low) / self.resolution)
        return np.where(known, np.clip(place, 0, self.steps), -1).astype(np.int32)

    def values(self, levels: Ints | npt.NDArray[np.int32]) -> Floats:
        """The readings that levels stand for; NaN where missing.

        >>> ReadingRange(0, 1, 0.25).values(np.array([1, -1])).tolist()
        [0.25, nan]
        """
        return np.where(levels >= 0, self.low + levels * self.resolution, np.nan)


def refuse_memory(text: str) -> None:
    """Refuse a memory of readings in the text of a range, or of a query of readings, as version 0.2 wrote it."""
    if longer := _WITH_MEMORY.fullmatch(text):
        raise InputError(
            f"readings: {longer[2]!r} given; readings with a memory are not supported. Write {longer[1].strip()!r} if "
            "a reading depends on the state of its own tick only, else publish a query of states, such as a histogram"
        )


def _number(value: float) -> str:
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
