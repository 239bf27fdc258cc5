"""Statistics of readings, clipped to a declared range and rounded to whole levels, so that sums of them are exact.

The answer is a sum of what the levels of the readings add. The states of the model do not determine it, so nothing can
be computed from its law; but whatever the readings do inside their states, a release reveals between two snapshots of
states at most what the sequences whose states differ can move: `ReadingsTable.costs`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from csdp.check import number
from csdp.errors import InputError
from csdp.numbers import Floats, Indices, Ints, common_unit, freeze
from csdp.query_table import FoldTable, Query, Table, is_same_table

ReadingsEvidence = Literal["none", "passed", "states"]

#: Levels that a range may have: as fine as the lattice of values.
MAX_LEVELS = 2**20

#: Distinct rows of contributions that are compared with one another.
_COMPARED = 2048

#: What a certificate of the present state assumes of the readings, and one of the present reading besides.
ASSUMPTION = (
    "readings are published. First assumption: a reading is made of its sequence's state and of something that is "
    "independent of all states; with it the certificate holds for the present state. Second assumption: besides, the "
    "state is a function of the reading, and what a reading is made of beside the state is independent over time and "
    "sequences; with both it holds for the present reading too (at age 0 a reading tells epsilon_c more of itself)"
)
#: What is known of the two assumptions.
EVIDENCE: dict[ReadingsEvidence, str] = {
    "none": "neither assumption on readings was tested: no public past of the readings was given",
    "passed": "both assumptions on readings were tested on a public past, and not rejected",
    "states": "on a public past the first assumption on readings was not rejected, and the second was: nothing is "
    "certified about the present reading, only about the present state",
}

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
            object.__setattr__(self, name, number(f"readings: {name}", getattr(self, name)))
        width = self.high - self.low
        if not 0 < width < math.inf:
            raise InputError(f"readings: range {self.low:g} to {self.high:g} given; low must be below high")
        if not 0 < self.resolution <= width:
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
        """The level of every reading, -1 if it is missing (NaN, None or masked); infinite ones are refused."""
        try:
            numbers = np.ma.filled(np.ma.asarray(readings).astype(np.float64), np.nan)
        except (TypeError, ValueError):
            raise InputError("readings: numbers expected, NaN if one is missing") from None
        if np.isinf(numbers).any():
            raise InputError("readings: infinite values; write missing readings as empty cells or NaN")
        known = ~np.isnan(numbers)
        with np.errstate(over="ignore"):
            place = np.rint((np.where(known, numbers, self.low) - self.low) / self.resolution)
        return np.where(known, np.clip(place, 0, self.steps), -1).astype(np.int32)

    def level_from(self, bound: float) -> int:
        """The first level whose reading is at least a bound; a bound that is a level but for rounding is that level.

        >>> ReadingRange(0, 1, 0.1).level_from(0.3), ReadingRange(0, 1, 0.1).level_from(0.31)
        (3, 4)
        """
        place = (bound - self.low) / self.resolution
        return round(place) if abs(place - round(place)) < 1e-9 * max(1.0, abs(place)) else math.ceil(place)


def refuse_memory(text: str) -> None:
    """Refuse a memory of readings in the text of a range, or of a query of readings, as version 0.2 wrote it."""
    if longer := _WITH_MEMORY.fullmatch(text):
        raise InputError(
            f"readings: {longer[2]!r} given; readings with a memory are not supported. Write {longer[1].strip()!r} if "
            "a reading depends on the state of its own tick only, else publish a query of states, such as a histogram"
        )


def _number(value: float) -> str:
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def judge_evidence(check: str | None, given: str | None) -> ReadingsEvidence:
    """What is known of the assumptions on readings; a rejected first assumption is refused.

    `check`: the verdict of `check_readings` in the record of the chain's fit, or None; `given`: as it is declared.
    """
    if "failed" in (check, given):
        raise InputError(
            "readings: on the public past, the reading inside a state reveals more of the states before and after it, "
            "so a certificate of these states can be too low if readings are published. Use finer states or a longer "
            "step, or publish a query of states instead, such as a histogram"
        )
    if given is not None and given not in EVIDENCE:
        raise InputError(f"readings_check: {given!r} given; one of {', '.join(EVIDENCE)}")
    known: Any = check if check in EVIDENCE else given or "none"
    verdict: ReadingsEvidence = known
    return verdict


@dataclass(frozen=True, eq=False)
class ReadingsTable(Table):
    """A query of readings in a declared range, for the sequences of one chain.

    `parts` (levels, d): whole numbers that a reading at each level adds; `shares` (s,), or (1,) if all are equal: the
    weights of the sequences. Answers lie on the lattice of `unit`; `base` and `step` say what they stand for.
    """

    name: str
    text: str
    of: ReadingRange
    parts: Ints = field(repr=False)
    base: float
    step: float
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    source: Query = field(repr=False)  #: the query that the table is made of
    shares: Floats = field(default_factory=lambda: np.ones(1), repr=False)
    is_mean: bool = False
    evidence: ReadingsEvidence = "none"  #: what is known of the assumptions on readings; no part of what is computed

    of_states: ClassVar[bool] = False
    is_symmetric: ClassVar[bool] = False
    per_sequence: ClassVar[bool] = False
    custom: ClassVar[bool] = False
    groups: ClassVar[None] = None
    weights: ClassVar[None] = None

    def __post_init__(self) -> None:
        freeze(self.parts)
        shares = self.shares[:1] if (self.shares == self.shares[0]).all() else self.shares
        object.__setattr__(self, "shares", freeze(np.array(shares) + 0.0))

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> Any:
        """The same table, or that of the query for other values."""
        if is_same_table(values, self.table):
            return self
        return replace(self.source.on(values, names), evidence=self.evidence)

    @property
    def assumption(self) -> str:
        """What a certificate assumes of the readings, and what is known of that."""
        return f"{ASSUMPTION}. {EVIDENCE[self.evidence]}"

    def judge(self, check: str | None, *, given: str | None = None) -> ReadingsTable:
        """The same with what the record of a fit says of the readings; refused if that speaks against them."""
        evidence = judge_evidence(check, given or (None if self.evidence == "none" else self.evidence))
        return self if evidence == self.evidence else replace(self, evidence=evidence)

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return int(self.table.shape[0])

    @property
    def needs_all(self) -> bool:
        """Whether a tick at which some sequence was not read has no answer: a sum of unequal weights."""
        return self.shares.size > 1

    # ---- lattice ---------------------------------------------------------------------------------------------------

    @cached_property
    def unit(self) -> float:
        """The lattice on which answers lie, before they are divided."""
        return common_unit(self.shares)

    @cached_property
    def spacing(self) -> float:
        """The coarsest lattice that holds the answers, whichever sequences were read."""
        shares = np.rint(self.shares / self.unit).astype(np.int64)
        return float(np.gcd.reduce(shares) * max(1, np.gcd.reduce(self.parts, axis=None))) * self.unit

    @cached_property
    def largest(self) -> float:
        """The largest absolute value of an answer, before the division."""
        total_share = float(np.broadcast_to(np.abs(self.shares), self.sequences).sum())
        return total_share * float(np.abs(self.parts).max())

    @property
    def denominator(self) -> float:
        """Lattice steps of one unit of the answer, if every sequence was read."""
        return (self.sequences if self.is_mean else 1) / self.step

    def bounds_of(self, read: int) -> tuple[Floats, Floats]:
        """The least and the largest answer (d,) of a tick at which so many sequences were read, on the lattice."""
        low, high = self.parts.min(axis=0), self.parts.max(axis=0)
        if not self.needs_all:
            ends = self.shares[0] * read * np.array([low, high], dtype=np.float64)
            return ends.min(axis=0), ends.max(axis=0)
        ends = self.shares[:, None, None] * np.array([low, high], dtype=np.float64)
        return ends.min(axis=1).sum(axis=0), ends.max(axis=1).sum(axis=0)

    # ---- answers ---------------------------------------------------------------------------------------------------

    @cached_property
    def _added(self) -> Floats:
        """(levels + 1, d) what a level adds; the last row, which -1 finds, is that of a reading that is missing."""
        return np.vstack([self.parts, np.zeros((1, self.parts.shape[1]))]).astype(np.float64)

    def level_answers(self, levels: npt.NDArray[Any]) -> Floats:
        """Answers (T, d) of levels (T, s), -1 if a reading is missing; exact, on the lattice."""
        shares = np.broadcast_to(self.shares, self.sequences)
        return np.stack([column[levels] @ shares for column in self._added.T], axis=1)

    def lattice(self, read: int) -> tuple[Floats, float]:
        """One possible answer (d,), and a distance of which all others are multiples away, whoever was read."""
        return self.offset, self.spacing

    def publish(self, noised: Floats, read: int | None) -> Floats:
        """What an answer on the lattice stands for, given how many sequences were read."""
        count = self.sequences if read is None else read
        total = float(self.shares.sum()) if self.needs_all else float(self.shares[0]) * count
        value = self.base * total + self.step * noised
        return np.asarray(value / count if self.is_mean else value)

    def lattice_answers(self, states: npt.NDArray[Any]) -> NoReturn:
        """States do not determine the answer; `level_answers` takes the levels of the readings."""
        raise InputError(
            f"query {self.name}: its answer is not a function of the states, and the law of the readings inside a "
            "state is not known, so this cannot be computed for it; use the query of states (without of=), or a bound "
            "other than exact"
        )

    # ---- sensitivity and costs -------------------------------------------------------------------------------------

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k before the division: the k largest weights times the largest change of one reading."""
        return self.costs.undivided_sensitivity(k, members)

    @cached_property
    def costs(self) -> FoldTable:
        """What a release can move if states differ: a separate contribution for every sequence and state.

        Between two snapshots of states it is the sum over the sequences whose states differ of all that their readings
        can move; nothing cancels.
        """
        m = self.table.shape[1]
        return FoldTable(
            name=self.name,
            text=self.text,
            rows=np.abs(self.shares)[:, None, None] * (0.5 * level_spread(self.parts)) * np.eye(m),
            block=np.arange(self.sequences),
            table=self.table,
            outputs=(),
            assumption=self.assumption,
            of_states=False,
        )

    @cached_property
    def by_values(self) -> FoldTable:
        """The same query if every reading is the value of its state: for planning and estimates, which are allowed to
        approximate; never for a certificate.
        """
        per_level = self.base + self.step * self.parts  # one reading of share 1
        return FoldTable(
            name=self.name,
            text=self.text,
            rows=self.shares[:, None, None] * per_level[self.of.levels(self.table)],
            denominator=float(self.sequences if self.is_mean else 1),
            table=self.table,
            outputs=self.outputs,
        )

    def labels(self, ages: Sequence[int]) -> Indices:
        """Numbers (s,) that agree for sequences with the same age and weight."""
        return self.costs.labels(ages)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the answers: two tables of one fingerprint are the same."""
        scalars = (self.of.text, self.base, self.step, self.is_mean, *self.table.shape, *self.parts.shape)
        seal = hashlib.sha256(repr(("readings", *scalars)).encode())
        seal.update(np.ascontiguousarray(self.parts, dtype="<i8").tobytes())
        seal.update(np.ascontiguousarray(self.shares, dtype="<f8").tobytes())
        return seal.hexdigest()


def level_spread(parts: npt.ArrayLike) -> float:
    """The largest l1 distance between what two levels add; an upper bound of it if levels are very many.

    >>> level_spread([[1, 0], [0, 1], [0, 1]])
    2.0
    """
    table = np.asarray(parts, dtype=np.float64)
    if table.shape[1] == 1:
        return float(np.ptp(table))
    distinct = np.unique(table, axis=0)
    if distinct.shape[0] > _COMPARED:
        return float(np.ptp(distinct, axis=0).sum())
    return float(max(np.abs(distinct - row).sum(axis=1).max() for row in distinct))
