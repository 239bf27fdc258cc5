"""A mechanism as a table: for every answer the probabilities of finitely many outputs, drawn exactly.

Probabilities are whole numbers over 2^64, so one random word decides one output and nothing is rounded when it is
drawn. What a table tells is computed from these whole numbers, never from the programme that proposed them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from csdp.arrays import Floats, Indices, freeze
from csdp.errors import InputError
from csdp.noise.randomness import Randomness

#: What the weights of one answer sum to: the number of values of a random word.
TOTAL: Final = 2**64
#: Answers, and outputs, up to which a table is kept.
LARGEST: Final = 512
#: Bound on the rounding of the difference of two logarithms of weights, which are below 45.
_ROUNDING: Final = 1e-13


@dataclass(frozen=True)
class MechanismTable:
    """Probabilities `weights[v][o] / 2^64` of publishing `outputs[o]` where the exact answer is `answers[v]`.

    Guarantee: `draw` has exactly this law, given uniform random words. Two answers v, v' are told apart by at most
    `distances[v, v'] = max_o ln M[v,o] / M[v',o]`, rounded up.

    Args:
        answers: all possible answers before the query's division, in rising order.
        outputs: what may be published, in rising order.
        weights: a row for each answer; positive whole numbers with the sum 2^64.

    >>> half = 2**63
    >>> table = MechanismTable((0.0, 1.0), (0.25, 0.75), ((half + half // 2, half // 2), (half // 2, half + half // 2)))
    >>> round(table.record_epsilon(1.0), 6) == round(math.log(3), 6)
    True
    """

    answers: tuple[float, ...]
    outputs: tuple[float, ...]
    weights: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return f"MechanismTable({len(self.answers)} answers, {len(self.outputs)} outputs)"

    def __post_init__(self) -> None:
        for name in ("answers", "outputs"):
            object.__setattr__(self, name, _check_rising(name, getattr(self, name)))
        rows = tuple(tuple(row) for row in self.weights)
        object.__setattr__(self, "weights", rows)
        if len(rows) != len(self.answers) or any(len(row) != len(self.outputs) for row in rows):
            raise InputError(
                f"table: weights must have a row for each of {len(self.answers)} answers, with a number for each of "
                f"{len(self.outputs)} outputs"
            )
        for answer, row in zip(self.answers, rows, strict=True):
            if any(isinstance(weight, bool) or not isinstance(weight, int) for weight in row):
                raise InputError(f"table: weights of answer {answer:g} that are no whole numbers")
            if min(row) <= 0:
                raise InputError(
                    f"table: a weight of {min(row)} for answer {answer:g}; weights are 1 or more, because an output "
                    "that some answer never has would give that answer away"
                )
            if sum(row) != TOTAL:
                raise InputError(f"table: the weights of answer {answer:g} sum to {sum(row)}; they must sum to 2**64")

    @classmethod
    def from_probabilities(
        cls, answers: Sequence[float], outputs: Sequence[float], probabilities: Floats
    ) -> MechanismTable:
        """The table nearest to probabilities (answers, outputs): weights are rounded down, the largest takes the rest.

        >>> MechanismTable.from_probabilities([0.0], [1.0, 2.0], np.array([[0.25, 0.75]])).weights[0][0] == 2**62
        True
        """
        table = np.asarray(probabilities, dtype=np.float64)
        if table.ndim != 2 or not np.isfinite(table).all() or (table < 0).any() or not (table.sum(axis=1) > 0).all():
            raise InputError("table: probabilities must be a matrix of numbers, 0 or more, with a positive sum in rows")
        weights = []
        for row in table / table.sum(axis=1, keepdims=True):
            whole = [max(1, int(p * float(TOTAL))) for p in row.tolist()]
            whole[int(row.argmax())] += TOTAL - sum(whole)
            weights.append(tuple(whole))
        return cls(tuple(map(float, answers)), tuple(map(float, outputs)), tuple(weights))

    # ---- what it tells -----------------------------------------------------------------------------------------------

    @cached_property
    def probabilities(self) -> Floats:
        """Probabilities (answers, outputs), each correct to the last digit of a float."""
        return freeze(np.array([[weight / TOTAL for weight in row] for row in self.weights]))

    @cached_property
    def distances(self) -> Floats:
        """`max_o ln M[v,o] / M[v',o]` between any two answers, the larger of both directions, rounded up."""
        logs = np.array([[math.log(weight) for weight in row] for row in self.weights])
        far = np.zeros((len(logs), len(logs)))
        for column in logs.T:
            np.maximum(far, np.abs(column[:, None] - column[None, :]), out=far)
        return freeze((far + _ROUNDING) * (1.0 - np.eye(len(logs))))

    def record_epsilon(self, sensitivity: float) -> float:
        """The least epsilon with `M[v,o] <= e^{epsilon |v-v'| / sensitivity} M[v',o]`, rounded up.

        `sensitivity`: the largest change of the answer by one record, before the division. Whatever holds for noise of
        level epsilon because its likelihood changes by at most `epsilon |v-v'| / sensitivity` holds for the table.
        """
        values = np.array(self.answers)
        apart = np.abs(values[:, None] - values[None, :])
        with np.errstate(invalid="ignore"):
            rates = np.where(apart > 0, self.distances / apart, 0.0)
        return float(rates.max()) * sensitivity * (1.0 + 1e-12)

    # ---- drawing -----------------------------------------------------------------------------------------------------

    @cached_property
    def _thresholds(self) -> tuple[NDArray[np.uint64], ...]:
        """By answer: the sums of the weights of the first outputs, all below 2^64."""
        return tuple(np.array(list(accumulate(row))[:-1], dtype=np.uint64) for row in self.weights)

    def likelihood(self, answers: Floats, output: float) -> Floats:
        """The probability of an output for each of some answers."""
        if output not in self.outputs:
            raise InputError(f"table: output {output!r} given; one of {self.outputs[:4]}... expected")
        return np.asarray(self.probabilities[self._rows(np.asarray(answers)), self.outputs.index(output)])

    def _rows(self, wanted: Floats) -> Indices:
        """The row of each answer; an answer that is not in the table is refused."""
        known = np.array(self.answers)
        rows = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        if not np.array_equal(known[rows], wanted):
            raise InputError("table: an answer that the table does not list; nothing is published for it")
        return np.asarray(rows)

    def draw(self, answers: Floats, randomness: Randomness) -> Floats:
        """One output for each answer, independent of each other; an answer that is not in the table is refused."""
        if not isinstance(randomness, Randomness):
            raise InputError("randomness must be a Randomness, such as Randomness.secure()")
        rows = self._rows(np.asarray(answers, dtype=np.float64).ravel())
        words = np.empty(rows.size, np.uint64)
        randomness.words().fill(words)
        chosen = np.empty(rows.size, np.intp)
        for row in np.unique(rows):
            cells = np.flatnonzero(rows == row)
            chosen[cells] = np.searchsorted(self._thresholds[row], words[cells], side="right")
        return np.array(self.outputs)[chosen].reshape(np.shape(answers))

    # ---- as plain data -----------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data; weights are text, because many readers of JSON round whole numbers above 2^53."""
        rows = [[str(weight) for weight in row] for row in self.weights]
        return {"answers": list(self.answers), "outputs": list(self.outputs), "weights": rows}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> MechanismTable:
        """A table from `to_dict`, checked as any other."""
        if not isinstance(content, Mapping) or set(content) != {"answers", "outputs", "weights"}:
            raise InputError("table: answers, outputs and weights expected, as MechanismTable.to_dict writes them")
        try:
            rows = tuple(tuple(_read_weight(weight) for weight in row) for row in content["weights"])
        except TypeError:
            raise InputError("table: weights must be a list of rows of whole numbers written as text") from None
        return cls(content["answers"], content["outputs"], rows)


def _read_weight(text: Any) -> int:
    """A weight as it is written: up to twenty digits and nothing else."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 20:
        raise InputError("table: weights are whole numbers, 1 to 2**64, written as text")
    return int(text)


def _check_rising(name: str, numbers: Any) -> tuple[float, ...]:
    """Finite numbers in rising order, at least one."""
    try:
        values = tuple(numbers)
    except TypeError:
        values = ()
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise InputError(f"table: {name} that are no numbers")
    rising = tuple(float(value) for value in values)
    if not 1 <= len(rising) <= LARGEST or not all(map(math.isfinite, rising)):
        raise InputError(f"table: {len(rising)} {name} given; 1 to {LARGEST} finite numbers")
    if any(not low < high for low, high in pairwise(rising)):
        raise InputError(f"table: {name} must rise, each listed once")
    return rising
