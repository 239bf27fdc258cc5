"""Queries as a stranger would write them: honest ones, with what they compute in plain Python, and hostile ones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Stranger:
    """What a stranger writes by hand, from the protocol alone; nothing is inherited from the library."""

    fold = "sum"
    name = "mine"

    def part(self, i: int, value: float) -> Any:
        """What sequence i adds with a value: a number, or several."""
        return value

    def over(self, values: Any) -> Any:
        return 1.0

    def parts(self, values: Any, members: Any = None) -> Any:
        chosen = range(len(values)) if members is None else members
        return np.array([[np.atleast_1d(self.part(i, float(v))) for v in values[i]] for i in chosen], dtype=float)

    def divisor(self, values: Any) -> Any:
        return self.over(values)

    def answer(self, values: Any, snapshot: Any) -> list[float]:
        """The answer of one snapshot in plain Python."""
        rows = [np.atleast_1d(self.part(i, float(values[i][a]))) for i, a in enumerate(snapshot)]
        fold = {"sum": sum, "max": max, "min": min}[self.fold]
        return [fold(float(row[c]) for row in rows) / self.over(values) for c in range(len(rows[0]))]

    def evaluate(self, snapshots: Any, values: Any) -> Any:
        given = np.asarray(snapshots)
        flat = given.reshape(-1, given.shape[-1])
        return np.array([self.answer(values, z) for z in flat.tolist()]).reshape(*given.shape[:-1], -1)

    def sensitivity(self, k: int, values: Any, *, members: Any = None) -> float:
        """By enumeration of every pair of snapshots that differ in k records at most."""
        s, m = np.shape(values)
        able = set(range(s) if members is None else members)
        found = {z: self.answer(values, z) for z in itertools.product(range(m), repeat=s)}
        best = 0.0
        for z, y in itertools.combinations(found, 2):
            moved = {i for i in range(s) if z[i] != y[i]}
            if len(moved) <= k and moved <= able:
                best = max(best, sum(abs(a - b) for a, b in zip(found[z], found[y], strict=True)))
        return best

    def output_names(self, names: Any, values: Any) -> tuple[str, ...]:
        count = self.parts(values).shape[2]
        return tuple(f"{self.name} {c}" for c in range(count))


# ---------------------------------------------------------------- honest


@dataclass
class Weighted(Stranger):
    weights: tuple[float, ...] = (4.0, 1.0, 2.0)
    name: str = "weighted"

    def part(self, i: int, value: float) -> Any:
        return self.weights[i] * value


class Average(Stranger):
    name = "average"

    def over(self, values: Any) -> Any:
        return 4.0


class Quarter(Average):
    """Not a power of two: quotients are rounded."""

    name = "per seven"

    def over(self, values: Any) -> Any:
        return 7


class Remainder(Stranger):
    fold = "max"
    name = "largest of 6 - value"

    def part(self, i: int, value: float) -> Any:
        return 6.0 - value


class DividedRemainder(Remainder):
    fold = "min"
    name = "smallest of 6 - value, halved"

    def over(self, values: Any) -> Any:
        return 2.0


class TwoStates(Stranger):
    """How many carry one of some values."""

    name = "some values"

    def part(self, i: int, value: float) -> Any:
        return float(value in (2.0, -3.0, 5.5, 6.0))


class Vector(Stranger):
    """Two outputs in which records may cancel: the first sequence moves them against each other."""

    name = "vector"

    def part(self, i: int, value: float) -> Any:
        return [value, -value if i == 0 else value]


class Each(Stranger):
    """One output per sequence, twice the value: an identity that nobody calls so."""

    name = "each twice"

    def part(self, i: int, value: float) -> Any:
        raise NotImplementedError

    def parts(self, values: Any, members: Any = None) -> Any:
        table = np.asarray(values) if members is None else np.asarray(values)[list(members)]
        return 2.0 * table[:, :, None] * np.eye(len(table))[:, None, :]

    def answer(self, values: Any, snapshot: Any) -> list[float]:
        return [2.0 * float(values[i][a]) for i, a in enumerate(snapshot)]


HONEST = [Weighted(), Average(), Quarter(), Remainder(), DividedRemainder(), TwoStates(), Vector(), Each()]
#: Honest too, but with the name of a built-in query that computes something else.
MISNAMED = [
    Weighted(name="identity"),
    Weighted(name="mean"),
    Weighted(name="linear:1,1,1"),
    Weighted(name="linear-"),
    Weighted(name="histogram"),
    Weighted(name="sum of 2 groups"),
]


# ---------------------------------------------------------------- hostile


@dataclass
class Told(Weighted):
    """A weighted sum with one method that says what it is given."""

    lie: dict[str, Any] = field(default_factory=dict)

    def parts(self, values: Any, members: Any = None) -> Any:
        return self._said("parts", super().parts(values, members))

    def divisor(self, values: Any) -> Any:
        return self._said("divisor", super().divisor(values))

    def evaluate(self, snapshots: Any, values: Any) -> Any:
        return self._said("evaluate", super().evaluate(snapshots, values))

    def sensitivity(self, k: int, values: Any, *, members: Any = None) -> Any:
        return self._said("sensitivity", super().sensitivity(k, values, members=members))

    def output_names(self, names: Any, values: Any) -> Any:
        return self._said("output_names", super().output_names(names, values))

    def _said(self, what: str, honest: Any) -> Any:
        return self.lie[what](honest) if what in self.lie else honest


def _raise(error: Exception) -> Any:
    raise error


class Restless(Weighted):
    """Other parts at every call."""

    calls = 0

    def parts(self, values: Any, members: Any = None) -> Any:
        self.calls += 1
        return super().parts(values, members) * self.calls


class Blocks(Weighted):
    """Says which block of outputs each sequence moves, as built-in queries with many outputs do."""

    def __init__(self, numbers: Any, factor: float = 1.0) -> None:
        super().__init__()
        self.numbers, self.factor = numbers, factor

    def blocks(self, values: Any) -> Any:
        return self.factor * super().parts(values), np.array(self.numbers)


def told(**lie: Any) -> Told:
    return Told(lie=lie)


def without(query: Any, **changed: Any) -> Any:
    for name, value in changed.items():
        setattr(query, name, value)
    return query


#: query, and what its refusal says.
HOSTILE = {
    "sensitivity too small": (told(sensitivity=lambda v: v / 2), "sensitivity .* for 1 record, but by its parts"),
    "sensitivity of many too small": (
        without(told(), sensitivity=lambda k, values, members=None: 8.0),
        "sensitivity 8.0 given for 2 records, but by its parts the answer moves by 12",
    ),
    "sensitivity is no number": (told(sensitivity=lambda v: float("nan")), "sensitivity nan given"),
    "sensitivity is a text": (told(sensitivity=lambda v: "much"), "sensitivity 'much' given"),
    "evaluate is another function": (told(evaluate=lambda v: v / 4), "evaluate and the sum of the parts"),
    "evaluate is no number": (told(evaluate=lambda v: v * np.nan), "evaluate and the sum of the parts"),
    "evaluate of another shape": (told(evaluate=lambda v: v[..., 0]), "evaluate and the sum of the parts"),
    "evaluate fails": (told(evaluate=lambda v: _raise(KeyError("x"))), "evaluate failed .KeyError"),
    "parts differ": (Restless(), "parts differs from call to call"),
    "parts are no numbers": (told(parts=lambda p: p * np.nan), "some parts are infinite or no numbers"),
    "parts are infinite": (told(parts=lambda p: p + np.inf), "some parts are infinite or no numbers"),
    "parts off the lattice": (told(parts=lambda p: p / 3), "binary digits at most, so that sums are exact"),
    "parts far apart": (told(parts=lambda p: p * 1e30 + 1.0), "binary digits at most, so that sums are exact"),
    "parts without outputs": (told(parts=lambda p: p[:, :, 0]), r"parts of shape \(3, 2\) given"),
    "parts of too few sequences": (told(parts=lambda p: p[1:]), r"parts of shape \(2, 2, 1\) given"),
    "parts of no output": (told(parts=lambda p: p[:, :, :0]), r"parts of shape \(3, 2, 0\) given"),
    "parts are text": (told(parts=lambda p: "4, 1, 2"), "parts failed .ValueError"),
    "parts fail": (told(parts=lambda p: _raise(RuntimeError("x"))), "parts failed .RuntimeError"),
    "parts do not fit in memory": (told(parts=lambda p: _raise(MemoryError())), "parts failed .MemoryError"),
    "divisor 0": (told(divisor=lambda v: 0.0), "divisor 0.0 given; it must be positive and finite"),
    "divisor below 0": (told(divisor=lambda v: -4.0), "divisor -4.0 given"),
    "divisor is no number": (told(divisor=lambda v: float("nan")), "divisor nan given"),
    "divisor is infinite": (told(divisor=lambda v: float("inf")), "divisor inf given"),
    "divisor beyond floats": (told(divisor=lambda v: 5e-324), "answers divided by it are beyond what a float holds"),
    "divisor is an array": (told(divisor=lambda v: np.array([2.0])), "divisor array.* given"),
    "too many names": (told(output_names=lambda names: ("a", "b")), "2 names of outputs given for 1 outputs"),
    "names are numbers": (told(output_names=lambda names: (1,)), "1 names of outputs given for 1 outputs"),
    "unknown fold": (without(told(), fold="median"), "fold 'median' given; sum, max or min"),
    "no name": (without(told(), name=""), "its name is ''"),
    "name is a number": (without(told(), name=3), "its name is 3"),
    "blocks are not numbered from 0": (Blocks([1, 2, 3]), "blocks are whole numbers from 0 on, one for each of 3"),
    "blocks below 0": (Blocks([-1, 0, 1]), "blocks are whole numbers from 0 on"),
    "blocks of too few": (Blocks([0, 1]), "blocks are whole numbers from 0 on"),
    "blocks are other outputs": (Blocks([0, 1, 2]), "1 names of outputs given for 3 outputs"),
    "blocks are other parts": (Blocks([0, 0, 0], factor=0.25), "evaluate and the sum of the parts"),
    "several largest": (without(Vector(), fold="max"), "the max of parts with several outputs"),
}
