"""One component seen backwards in time: its backward kernel, what a release costs there, and the last step to the
present.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary
from csdp.chain import Model
from csdp.leakage.bounds import AgedPairs, log_mix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: Relative slack for the rounding of kernels and of sums over them.
SLACK = 1e-11


@dataclass(frozen=True)
class Rows:
    """Pairs of laws on snapshots: p, q and their difference, accurate when tiny (times 2**exponent)."""

    first: Floats
    second: Floats
    gap: Floats
    error: Floats  # (n,) bound on the rounding of gap
    exponent: int


class Backward:
    """The backward kernel `R[x, w] = Pr(x_{t-1} = w | x_t = x)` of one component under its stationary law."""

    def __init__(self, model: Model) -> None:
        self.model = model
        law = model.stationary()
        self.seen: Ints = np.flatnonzero(law > 0)
        self.law = law[self.seen]
        forward = model.kernel()[np.ix_(self.seen, self.seen)]
        self.forward = forward / forward.sum(axis=1, keepdims=True)
        backward = (self.forward * self.law[:, None]).T
        self._powers = {1: backward / backward.sum(axis=1, keepdims=True)}
        self._tables: dict[int, ProfileTable] = {}

    @property
    def size(self) -> int:
        """Snapshots that can occur."""
        return int(self.seen.size)

    def power(self, steps: int) -> Floats:
        """R to a power."""
        if steps not in self._powers:
            if len(self._powers) > 64:
                self._powers = {1: self._powers[1]}
            self._powers[steps] = np.linalg.matrix_power(self._powers[1], steps)
        return np.asarray(self._powers[steps])

    def profile_table(self, steps: int) -> ProfileTable:
        """The profile of R^steps over all pairs of snapshots."""
        if steps not in self._tables:
            if len(self._tables) > 8:
                self._tables.clear()
            self._tables[steps] = ProfileTable(self.power(steps))
        return self._tables[steps]

    @cached_property
    def forward_table(self) -> ProfileTable:
        """The profile of the forward kernel over all pairs of snapshots."""
        return ProfileTable(self.forward)

    def present_rows(self, steps: int, adversary: Adversary) -> list[Rows]:
        """Laws of the snapshot `steps` ago given two presents that the adversary must not tell apart."""
        pairs = AgedPairs(self.model, ages=[steps] * self.model.sequences, adversary=adversary)
        seen = self.seen
        return [Rows(p.first[:, seen], p.second[:, seen], p.gap[:, seen], p.error[seen], p.exponent) for p in pairs]


class ProfileTable:
    """`L(alpha)` of a kernel, for every ordered pair of rows: sorted once, evaluated for any alpha."""

    def __init__(self, kernel: Floats) -> None:
        n = kernel.shape[0]
        over, under = np.repeat(kernel, n, axis=0), np.tile(kernel, (n, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(over > 0, over / under, -1.0)
        order = np.argsort(-ratio, axis=1)
        with np.errstate(divide="ignore"):
            self._over = np.log(np.cumsum(np.take_along_axis(over, order, axis=1), axis=1))
            self._under = np.log(np.cumsum(np.take_along_axis(under, order, axis=1), axis=1))
        self._n = n

    def pairs(self, alpha: float) -> Floats:
        """L(alpha) of every ordered pair of rows, (n, n), rounded up."""
        if alpha <= 0:
            return np.zeros((self._n, self._n))
        if math.isinf(alpha):
            with np.errstate(invalid="ignore"):
                value = np.nan_to_num(self._over - self._under, nan=0.0, posinf=np.inf).max(axis=1)
        else:
            value = (log_mix(self._over, alpha) - log_mix(self._under, alpha)).max(axis=1)
        return np.asarray(np.minimum(value * (1 + SLACK) + 1e-14, alpha)).reshape(self._n, self._n)

    def largest(self, alpha: float) -> float:
        """L(alpha) over all pairs."""
        return float(self.pairs(alpha).max())


def answer_distances(answers: Sequence[Floats], rate: float) -> Floats:
    """`epsilon_c |f(z) - f(z')|_1 / Delta_f` for every pair of snapshots; the largest over what others contribute."""
    best: Floats | None = None
    for table in answers:
        far = np.zeros((table.shape[0], table.shape[0]))
        for column in table.T:
            far += np.abs(column[:, None] - column[None, :])
        best = far if best is None else np.maximum(best, far)
    assert best is not None
    return np.asarray(rate * best)
