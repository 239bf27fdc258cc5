"""Answers and worlds of a case from its description alone. Imports nothing of the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attacks.cases import Ask, PlanSpec
from attacks.models import Spec, worlds_of
from oracle import Output, digits_of, group_loss, record_loss

Array = NDArray[np.float64]

#: Quiet ticks after a release at which the truth is looked at.
QUIET = 6


def leaves_out(ask: Ask) -> bool:
    """Whether the statistic is one of those that were read; others need every sequence."""
    equal = len(set(ask.weights)) == 1
    sums = {"mean", "sum", "count", "histogram", "above", "weighted"}
    return not ask.groups and (ask.name in sums or (ask.name == "linear" and equal))


def answers(ask: Ask, values: Array, s: int, m: int, read: Sequence[int] | None = None) -> Array:
    """What is asked of every snapshot, in plain words; of the sequences that were read."""
    if not ask.groups:
        members = range(s) if read is None else read
        return np.array([_answer(ask, z, values, members) for z in digits_of(s, m)], dtype=float)
    rows = [[a for g in ask.groups for a in _answer(ask, z, values, g)] for z in digits_of(s, m)]
    return np.array(rows, dtype=float)


def _answer(ask: Ask, z: NDArray[np.intp], values: Array, members: Sequence[int]) -> list[float]:
    m = values.shape[-1]
    table = np.broadcast_to(values, (len(z), m))
    states = [int(z[i]) for i in members]
    v = [float(table[i, z[i]]) for i in members]
    name = ask.name
    plain = {
        "mean": lambda: [sum(v) / len(v)],
        "sum": lambda: [sum(v)],
        "max": lambda: [max(v)],
        "min": lambda: [min(v)],
        "count": lambda: [sum(a == ask.state for a in states)],
        "histogram": lambda: [states.count(a) for a in range(m)],
        "identity": lambda: v,
        "linear": lambda: [sum(ask.weights[i] * u for i, u in zip(members, v, strict=True))],
        "custom": lambda: [max(v) - min(v) + 2.0 * v[0]],
        "above": lambda: [sum(u > table.mean() for u in v)],
        "weighted": lambda: [sum(ask.weights[i] * u for i, u in zip(members, v, strict=True))],
        "average": lambda: [sum(v) / 4],
        "gap": lambda: [max(8.0 - u for u in v)],
    }
    return plain[name]()


class Truth:
    """Everything that was published, and what it tells under the models of a plan."""

    def __init__(self, s: int, m: int) -> None:
        self.s, self.m = s, m
        self.outputs: list[Output] = []
        self.fits: dict[tuple[bytes, float], float] = {}
        self._known: dict[object, object] = {}

    def add(self, reads: tuple[int, ...], table: Array, rate: float) -> None:
        """One more output."""
        self.outputs.append(Output(reads, table, rate))
        self._known.clear()

    def pay(self, plan: PlanSpec) -> None:
        """The private fits behind a plan's models were paid by every record; each of them once."""
        for spec in plan.models:
            if spec.fit is not None:
                self.fits[spec.kernel.tobytes(), spec.fit] = spec.fit

    def histories(self) -> int:
        """How many worst histories there are to look at."""
        return int(np.prod([len(o.likelihoods) for o in self.outputs], dtype=float))

    def present(self, plan: PlanSpec, tick: int) -> list[float]:
        """What all outputs tell of the present at a tick, and at quiet ticks after it; the largest over the family."""
        key = ("present", id(plan), tick)
        if key not in self._known:
            found = [self._told(spec, plan, tick) for spec in plan.models]
            self._known[key] = np.max([one for many in found for one in many], axis=0).tolist()
        return self._known[key]  # type: ignore[return-value]

    def _told(self, spec: Spec, plan: PlanSpec, tick: int) -> list[list[float]]:
        if not self.outputs:
            return [[0.0] * (QUIET + 1)]
        return [world.told_from(self.outputs, tick, QUIET, "informed") for world in worlds_of(spec)]

    def every_moment(self, plan: PlanSpec) -> float:
        """The most that all outputs tell of one record, by someone who knows all other records of its tick."""
        key = ("every_moment", id(plan))
        if key not in self._known:
            slices = [n for o in self.outputs for n in o.reads]
            self._known[key] = max(
                (
                    world.told(self.outputs, n, "informed")
                    for spec in plan.models
                    for world in worlds_of(spec)
                    for n in (range(min(slices), max(slices) + 1) if slices else ())
                ),
                default=0.0,
            )
        return self._known[key]  # type: ignore[return-value]

    def event(self) -> float:
        """Plain epsilon-DP of the record that was read most, private fits included."""
        return record_loss(self.outputs, self.s, self.m) + sum(self.fits.values())

    def window(self, length: int) -> float:
        """Plain epsilon-DP of so many consecutive records of one sequence, each of them in every private fit."""
        return record_loss(self.outputs, self.s, self.m, length) + length * sum(self.fits.values())

    def group(self, plan: PlanSpec) -> float:
        """Plain DP of all records that were read of the sequences that the models tie together, private fits included.

        Each of these records may be in every fit.
        """
        fits = sum(self.fits.values())
        worst = 0.0
        for part in {tuple(part) for spec in plan.models for part in spec.parts}:
            records = {(i, o.reads[i]) for o in self.outputs for i in part}
            worst = max(worst, group_loss(self.outputs, part, self.s, self.m) + fits * len(records))
        return worst
