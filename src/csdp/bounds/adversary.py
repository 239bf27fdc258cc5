"""What an adversary knows besides the model, and which presents must not be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices
from csdp.errors import InputError, TooLargeError

#: Every other present value ("informed"), nothing ("uninformed"), or the worst subset of them ("any").
Adversary = Literal["informed", "uninformed", "any"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)
#: Values that lie this share further apart than a distance still count as that close: decimals are rounded.
_CLOSE = 1e-9


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    if adversary == "informed":
        return [everyone]
    if adversary == "uninformed":
        return [(i,) for i in everyone]
    if adversary == "any":
        if sequences > 16:
            raise TooLargeError(
                f"adversary 'any' looks at all 2**{sequences} sets of known sequences; at most 16 sequences. "
                "Use bound='lineage', which covers them all",
                needed=2.0**sequences,
                limit=2.0**16,
            )
        subsets = range(1, 2**sequences)
        return [tuple(i for i in everyone if bits >> i & 1) for bits in subsets]
    raise InputError(f"adversary: {adversary!r} given; 'informed', 'uninformed' or 'any'")


def marginal(measure: Floats, known: Sequence[int], sequences: int, states: int) -> Floats:
    """Sum a measure on snapshots (N, ...) over the sequences that are not known."""
    tensor = measure.reshape((states,) * sequences + measure.shape[1:])
    away = tuple(i for i in range(sequences) if i not in known)
    return np.asarray(tensor.sum(axis=away)).reshape((states ** len(known), *measure.shape[1:]))


@dataclass(frozen=True, eq=False)
class ProtectedPairs:
    """Which two present states of a sequence must not be told apart: any two, or those whose values are close.

    `close` (s, m, m) says so for every sequence; `windows` are the largest sets of states of which any two are close.

    >>> pairs = ProtectedPairs.of([[0.0, 1.0, 3.0]], protect=2.0)
    >>> pairs.close[0].tolist(), pairs.windows(0)
    ([[True, True, False], [True, True, True], [False, True, True]], [[0, 1], [1, 2]])
    """

    values: Floats = field(repr=False)
    protect: float | None
    close: Bools = field(repr=False)

    @classmethod
    def of(cls, values: npt.ArrayLike, protect: float | None) -> ProtectedPairs:
        """The pairs of states with values (s, m) at most `protect` apart; all pairs where that is None."""
        table = np.asarray(values, dtype=np.float64)
        s, m = table.shape
        if protect is None:
            return cls(table, None, np.broadcast_to(np.True_, (s, m, m)))
        rows = table[:1] if (table == table[0]).all() else table
        close = np.abs(rows[:, :, None] - rows[:, None, :]) <= protect * (1.0 + _CLOSE)
        return cls(table, protect, np.broadcast_to(close, (s, m, m)))

    def windows(self, sequence: int) -> list[list[int]]:
        """The largest sets of states of one sequence, of which any two must not be told apart; two states at least."""
        row, close = self.values[sequence], self.close[sequence]
        order = np.argsort(row, kind="stable")
        ends = [int(np.flatnonzero(close[state][order])[-1]) for state in order]  # values are on a line
        starts = [n for n in range(row.size) if n == 0 or ends[n] > ends[n - 1]]
        return [sorted(order[n : ends[n] + 1].tolist()) for n in starts if ends[n] > n]

    def keep(self, told: Floats) -> Floats:
        """What is told (k s, m, m) between the states of every sequence, k blocks of them; 0 between other pairs."""
        if self.protect is None:
            return told
        return np.asarray(np.where(np.tile(self.close, (told.shape[0] // len(self.close), 1, 1)), told, 0.0))

    def labels(self, labels: Indices) -> Indices:
        """Numbers (s,) that agree where `labels` do and values are as far apart: the same for every distance."""
        if self.protect is None:
            return labels
        rows = np.column_stack([labels, self.values - self.values[:, :1]])
        return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def check_protect(protect: Any, values: Floats) -> float | None:
    """A distance that some two values of a sequence do not pass, or None: any two values are protected."""
    if protect is None:
        return None
    if isinstance(protect, bool) or not isinstance(protect, int | float) or not 0 < protect < math.inf:
        raise InputError(f"protect: {protect!r} given; a positive distance of values, or None for any two values")
    far = np.diff(np.sort(values, axis=1), axis=1)
    if far.size and not far.min() <= protect * (1.0 + _CLOSE):
        raise InputError(
            f"protect: {protect:g} given, but no two values of a sequence are that close; the nearest are "
            f"{far.min():g} apart. Give at least that, or leave it out"
        )
    return float(protect)
