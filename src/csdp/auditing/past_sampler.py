"""Pasts drawn exactly from the model, given what is known of the present.

The auditor knows the correlations: it draws what a mechanism reads from `Pr(past | present)`, walking back through time
with the backward kernel of each component. Components are independent, so each is drawn on its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import Model
from csdp.errors import InputError, TooLargeError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]

#: Joint states of one component up to which pasts are drawn.
SAMPLED_STATES = 2048
#: Entries of the array of readings that are made at once.
MAX_READINGS = 400_000_000


class Pasts:
    """Draws slices of the past of all sequences, given a present in which -1 marks what is not known."""

    def __init__(self, model: Model, depths: Iterable[int], *, oldest: int) -> None:
        """`depths`: how many steps before the present the slices lie; `oldest`: where an initial law holds."""
        self.model = model
        self.depths = tuple(sorted(set(depths)))
        self._parts = [
            (np.asarray(members), _Component(model, members, self.depths, oldest)) for members in model.components()
        ]

    def draw(self, present: Sequence[int], count: int, random: np.random.Generator) -> Ints:
        """States (count, depths, s) of the slices, in the order of `depths`."""
        entries = count * len(self.depths) * self.model.sequences
        if entries > MAX_READINGS:
            raise TooLargeError(
                f"audit: {count:,} pasts of {len(self.depths)} slices and {self.model.sequences} sequences do not fit; "
                "ask for fewer samples",
                needed=float(entries),
                limit=float(MAX_READINGS),
            )
        kind: Any = np.int8 if self.model.states <= 127 else np.int16
        out = np.empty((count, len(self.depths), self.model.sequences), dtype=kind)
        known = np.asarray(present)
        for members, component in self._parts:
            component.draw(known[members], out, members, random)
        return out

    def check(self, present: Sequence[int]) -> None:
        """Refuse a present that cannot occur."""
        known = np.asarray(present)
        for members, component in self._parts:
            component.law_of_present(known[members])


class _Component:
    """Backward kernels between the slices of one component."""

    def __init__(self, model: Model, members: Sequence[int], depths: Sequence[int], oldest: int) -> None:
        part = model if len(members) == model.sequences else model.subchain(members)
        if part.size > SAMPLED_STATES:
            raise TooLargeError(
                f"audit: a component of {part.states}**{part.sequences} joint states; pasts are drawn for at most "
                f"{SAMPLED_STATES:,}. Audit the mechanism on a smaller chain",
                needed=float(min(part.size, 10**300)),
                limit=float(SAMPLED_STATES),
            )
        self._shape = (part.states,) * part.sequences
        kernel = part.kernel()
        law = part.oldest_law()[0]
        stops = sorted({0, *depths})
        first = oldest if part.initial is not None else stops[-1]
        law = law @ np.linalg.matrix_power(kernel, first - stops[-1]) if first > stops[-1] else law
        self._depths = depths
        #: cumulative backward rows from every stop to the next older one
        self._tables: list[Floats] = []
        for newer, older in reversed(list(itertools.pairwise(stops))):
            joint = law[:, None] * np.linalg.matrix_power(kernel, older - newer)
            self._tables.insert(0, np.cumsum(joint.T, axis=1))
            law = joint.sum(axis=0)
        self._law = law / law.sum()

    def law_of_present(self, known: Ints) -> Floats:
        """The law of the component's present snapshot, given the states that are known (-1: not known)."""
        states = np.array(np.unravel_index(np.arange(self._law.size), self._shape)).T
        fits = ((known < 0) | (states == known)).all(axis=1)
        law = np.where(fits, self._law, 0.0)
        if not law.sum() > 0:
            raise InputError(f"pair: a present of states {known.tolist()} never occurs under the model; give another")
        return np.asarray(law / law.sum())

    def draw(self, known: Ints, out: Ints, members: Ints, random: np.random.Generator) -> None:
        """Fill the columns of the members, slice by slice back through time."""
        law = self.law_of_present(known)
        count = out.shape[0]
        number = _draw_rows(np.cumsum(law)[None, :], np.zeros(count, dtype=np.intp), random)
        column = 0
        if self._depths[0] == 0:
            self._write(number, out[:, 0], members)
            column = 1
        for table in self._tables:
            number = _draw_rows(table, number, random)
            self._write(number, out[:, column], members)
            column += 1

    def _write(self, number: Ints, slice_: Ints, members: Ints) -> None:
        for member, states in zip(members, np.unravel_index(number, self._shape), strict=True):
            slice_[:, member] = states


def _draw_rows(cumulative: Floats, rows: Ints, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """One draw for every entry of `rows` from the law whose running sums are that row; impossible states never."""
    uniform = random.random(rows.size)
    drawn = np.empty(rows.size, dtype=np.intp)
    order = np.argsort(rows, kind="stable")
    present, starts = np.unique(rows[order], return_index=True)
    for row, chosen in zip(present, np.split(order, starts[1:]), strict=True):
        law = cumulative[row]
        last = int(np.searchsorted(law, law[-1], side="left"))  # rounding must not reach a state of probability zero
        drawn[chosen] = np.minimum(np.searchsorted(law, uniform[chosen] * law[-1], side="right"), last)
    return drawn
