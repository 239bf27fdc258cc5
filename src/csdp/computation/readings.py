"""What a verified query of readings computes, and what a release of it costs between states.

The answer is a sum of what the levels of the readings add. The states of the model do not determine it, so nothing can
be computed from its law; but whatever the readings do inside their states, a release tells between two snapshots of
states at most what the sequences whose states differ can move: `costs`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, Ints
from csdp.computation.computation import FoldComputation, FunctionComputation, check_table
from csdp.errors import InputError
from csdp.lattice import common_unit
from csdp.queries import Query, ReadingsQuery, level_spread
from csdp.reading_range import ReadingRange

ReadingsEvidence = Literal["none", "passed", "states", "failed"]

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
    "failed": "on a public past the first assumption on readings was REJECTED, and this was overridden: the leakage of "
    "the present is not certified. What holds is plain differential privacy alone, of one reading (event level) and of "
    "all readings together (group level)",
}


def judge_evidence(check: str | None, given: ReadingsEvidence | None, *, finer: int) -> ReadingsEvidence:
    """What is known of the assumptions on readings; a rejected first one is refused unless `given` overrides it.

    `check`: the verdict of `csdp.check_readings` in the record of the chain's fit, or None; `finer`: how many states it
    proposed.
    """
    if given is not None and given not in EVIDENCE:
        raise InputError(f"readings_check: {given!r} given; one of {', '.join(EVIDENCE)}")
    verdict: Any = check
    if verdict not in EVIDENCE:
        return given or "none"
    if verdict == "failed" and given != "failed":
        use = f"fit with {finer} states" if finer else "use a longer step"
        raise InputError(
            "readings: on the public past, the reading inside a state tells more of the states before and after it, so "
            f"a certificate of these states can be too low where readings are published. Use finer states ({use}), "
            "publish a query of states instead, such as a histogram, or rely on plain and group privacy alone "
            "(readings_check 'failed', or --untested-readings), which the certificate then says"
        )
    return verdict if given != "failed" else "failed"


@dataclass(frozen=True, eq=False)
class ReadingsComputation:
    """A query of readings in a declared range, for the sequences of one chain.

    `parts` (levels, d): whole numbers that a reading at each level adds; `shares` (s,), or (1,) where all are equal:
    the weights of the sequences. Answers lie on the lattice of `unit`; `base` and `step` say what they stand for.
    """

    name: str
    text: str
    of: ReadingRange
    parts: Ints = field(repr=False)
    shares: Floats = field(repr=False)
    base: float
    step: float
    is_mean: bool
    table: Floats = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    source: Query | None = field(default=None, repr=False)  #: the query as it was given; None in another process
    evidence: ReadingsEvidence = "none"  #: what is known of the assumptions on readings; no part of what is computed
    names: tuple[str, ...] = field(default=(), repr=False)  #: the sequences that `outputs` may be named after

    of_states: ClassVar[bool] = False
    is_symmetric: ClassVar[bool] = False
    per_sequence: ClassVar[bool] = False
    groups: ClassVar[None] = None
    weights: ClassVar[None] = None

    @property
    def assumption(self) -> str:
        """What a certificate assumes of the readings, and what is known of that."""
        return f"{ASSUMPTION}. {EVIDENCE[self.evidence]}"

    def judge(self, check: str | None, *, given: ReadingsEvidence | None = None, finer: int = 0) -> ReadingsComputation:
        """The same with what the record of a fit says of the readings; refused where that speaks against them, unless
        `given` (or what was given before) overrides it.
        """
        evidence = judge_evidence(check, given or (None if self.evidence == "none" else self.evidence), finer=finer)
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

    @property
    def offset(self) -> Floats:
        """All answers lie a multiple of `spacing` from 0."""
        return np.zeros(len(self.outputs))

    @cached_property
    def largest(self) -> float:
        """The largest absolute value of an answer, before the division."""
        return self._total_share * float(np.abs(self.parts).max())

    @property
    def _total_share(self) -> float:
        return float(np.broadcast_to(np.abs(self.shares), self.sequences).sum())

    @property
    def denominator(self) -> float:
        """Lattice steps of one unit of the answer, where every sequence was read."""
        return (self.sequences if self.is_mean else 1) / self.step

    def bounds(self, read: int) -> tuple[Floats, Floats]:
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
        """Answers (T, d) of levels (T, s), -1 where a reading is missing; exact, on the lattice."""
        shares = np.broadcast_to(self.shares, self.sequences)
        return np.stack([column[levels] @ shares for column in self._added.T], axis=1)

    def publish(self, noised: Floats, read: int | None) -> Floats:
        """What an answer on the lattice stands for, given how many sequences were read."""
        count = self.sequences if read is None else read
        total = float(self.shares.sum()) if self.needs_all else float(self.shares[0]) * count
        value = self.base * total + self.step * noised
        return np.asarray(value / count if self.is_mean else value)

    def noise_factor(self, read: int | None) -> float:
        """What the noise is multiplied by where only some sequences were read, against all of them."""
        return self.sequences / read if self.is_mean and read is not None else 1.0

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> NoReturn:
        """States do not determine the answer."""
        self.lattice_answers(np.asarray(snapshots))

    def lattice_answers(self, states: npt.NDArray[Any]) -> NoReturn:
        """States do not determine the answer; `level_answers` takes the levels of the readings."""
        raise InputError(
            f"query {self.name}: its answer is not a function of the states, and the law of the readings inside a "
            "state is not known, so this cannot be computed for it; use the query of states (without of=), or a bound "
            "other than exact"
        )

    # ---- sensitivity and costs -------------------------------------------------------------------------------------

    @cached_property
    def _spread(self) -> float:
        return level_spread(self.parts)

    def undivided_sensitivity(self, k: int, members: Sequence[int] | None = None) -> float:
        """s_k before the division: the k largest weights times the largest change of one part."""
        return self.costs.undivided_sensitivity(k, members)

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the largest l1 change of the answer when k readings (of `members`) change."""
        check_table(self.name, values, self.table)
        return self.undivided_sensitivity(k, members) / self.denominator

    @cached_property
    def costs(self) -> FoldComputation:
        """What a release can move where states differ: a part of its own for every sequence and state.

        Between two snapshots of states it is the sum over the sequences whose states differ of all that their readings
        can move; nothing cancels.
        """
        m = self.table.shape[1]
        rows = np.abs(self.shares)[:, None, None] * (0.5 * self._spread) * np.eye(m)
        return FoldComputation(
            name=self.name,
            text=self.text,
            fold="sum",
            rows=rows,
            block=np.arange(self.sequences),
            unit=common_unit(rows),
            denominator=1.0,
            table=self.table,
            outputs=(),
            assumption=self.assumption,
            of_states=False,
        )

    @cached_property
    def by_values(self) -> FoldComputation:
        """The same query where every reading is the value of its state: for planning and estimates, which are allowed
        to approximate; never for a certificate.
        """
        per_level = self.base + self.step * self.parts  # one reading of share 1
        rows = self.shares[:, None, None] * per_level[self.of.levels(self.table)]
        return FoldComputation(
            name=self.name,
            text=self.text,
            fold="sum",
            rows=rows,
            block=np.zeros(self.sequences, dtype=np.intp),
            unit=common_unit(rows),
            denominator=float(self.sequences if self.is_mean else 1),
            table=self.table,
            outputs=self.outputs,
        )

    def labels(self, ages: Sequence[int]) -> Indices:
        """Numbers (s,) that agree for sequences with the same age and weight."""
        return self.costs.labels(ages)

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates, as they were when the query was verified."""
        return self.outputs

    # ---- as a value ------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the answers: two computations of one fingerprint are the same."""
        scalars = (self.of.text, self.base, self.step, self.is_mean, *self.table.shape, *self.parts.shape)
        seal = hashlib.sha256(repr(("readings", *scalars)).encode())
        seal.update(np.ascontiguousarray(self.parts, dtype="<i8").tobytes())
        seal.update(np.ascontiguousarray(self.shares, dtype="<f8").tobytes())
        return seal.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadingsComputation):
            return False
        return (other.fingerprint, other.name) == (self.fingerprint, self.name)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs; the query as it was given may not be importable there."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "source": None}


def read_levels(query: ReadingsQuery, name: str, of: ReadingRange, sequences: int) -> tuple[Ints, Floats]:
    """The parts (levels, d) and the shares of a query of readings, or why they are refused."""
    table = np.asarray(query.level_parts())
    if table.ndim != 2 or table.shape[0] != of.steps + 1 or not table.shape[1]:
        raise InputError(
            f"query {name}: level parts of shape {table.shape} given; (levels, outputs) = ({of.steps + 1}, d) expected"
        )
    numbers = table.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or np.abs(numbers).max() > 2**31:
        raise InputError(f"query {name}: level parts must be whole numbers, at most 2^31; level_value scales them")
    given = query.shares(sequences)
    shares = np.ones(1) if given is None else np.asarray(given, dtype=np.float64)
    if given is not None and shares.shape != (sequences,):
        raise InputError(f"query {name}: shares of shape {shares.shape} given; one for each of {sequences} sequences")
    if not np.isfinite(shares).all():
        raise InputError(f"query {name}: some shares are infinite or no numbers")
    if (shares == shares[0]).all():
        shares = shares[:1]
    return numbers.astype(np.int64), np.array(shares) + 0.0


def read_level_value(query: ReadingsQuery, name: str) -> tuple[float, float]:
    """(base, step) of a query of readings: finite numbers, the step above 0."""
    base, step = map(float, query.level_value())
    if not (math.isfinite(base) and math.isfinite(step) and step > 0):
        raise InputError(f"query {name}: level_value ({base!r}, {step!r}) given; finite numbers, the step above 0")
    return base, step


def on_values(
    computation: FoldComputation | FunctionComputation | ReadingsComputation,
) -> FoldComputation | FunctionComputation:
    """What a query computes on the values that states carry: itself, or, of readings, its approximation by them."""
    return computation.by_values if isinstance(computation, ReadingsComputation) else computation
