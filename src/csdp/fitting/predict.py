"""What a chain says of the next states, given readings; and what is left over when they are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, JointChain
from csdp.errors import InputError
from csdp.fitting.sample import Sample, snapshot_numbers

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def match_chain(chain: CoupledChain | JointChain, readings: Sample) -> Sample:
    """The readings in the order of the chain's sequences; they must be those, and of its states."""
    if readings.m > chain.states:
        raise InputError(f"data: {readings.m} states given; the chain has {chain.states}")
    return readings.arrange(chain.names)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Laws of next states under a chain for every step of the readings."""

    chain: CoupledChain | JointChain
    readings: Sample

    @cached_property
    def sample(self) -> Sample:
        """The readings in the order in which the chain meets them."""
        return self.readings.in_direction(self.chain.direction)

    @cached_property
    def _present(self) -> npt.NDArray[Any]:
        return self.sample.states[:-1]

    @cached_property
    def _joint(self) -> tuple[Floats, Bools]:
        """Rows of the kernel (steps, N) of a joint chain, and which presents are complete."""
        assert isinstance(self.chain, JointChain)
        complete = np.asarray((self._present >= 0).all(axis=1))
        return self.chain.kernel()[snapshot_numbers(self._present, self.chain.states)], complete

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | present)` (steps, m), and at which steps present and next are known."""
        m, following = self.chain.states, self.sample.states[1:, target]
        if isinstance(self.chain, JointChain):
            rows, complete = self._joint
            axes = tuple(i + 1 for i in range(self.chain.sequences) if i != target)
            law = rows.reshape((-1,) + (m,) * self.chain.sequences).sum(axis=axes)
            return law, complete & (following >= 0)
        edges = np.flatnonzero(self.chain.edge_targets == target) if self.chain.edges < 4096 else self._edges_of(target)
        table, which = self.chain.transition_table
        law = np.zeros((following.size, m))
        known = following >= 0
        for e in edges.tolist():
            column = self._present[:, self.chain.edge_sources[e]]
            known &= column >= 0
            law += self.chain.edge_weights[e] * table[which[e]][np.maximum(column, 0)]
        return law, known

    @cached_property
    def _starts(self) -> npt.NDArray[np.intp]:
        assert isinstance(self.chain, CoupledChain)
        return np.searchsorted(self.chain.edge_targets, np.arange(self.chain.sequences + 1))

    def _edges_of(self, target: int) -> npt.NDArray[np.intp]:
        return np.arange(self._starts[target], self._starts[target + 1])

    def scores(self, target: int) -> tuple[Floats, Bools]:
        """Log-probability of the next state of a target at every step (0 where unknown)."""
        law, known = self.law(target)
        following = np.maximum(self.sample.states[1:, target], 0)
        chance = law[np.arange(following.size), following]
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, chance, 1.0)), 0.0), known

    def joint_scores(self) -> Floats:
        """Log-probability of the whole next snapshot under a joint chain at every step (0 where unknown)."""
        rows, complete = self._joint
        following = self.sample.states[1:]
        code = snapshot_numbers(following, self.chain.states)
        known = complete & (following >= 0).all(axis=1)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(np.where(known, rows[np.arange(code.size), code], 1.0)), 0.0)

    def residuals(self, target: int) -> tuple[Floats, Floats]:
        """Residuals and their variances (steps, m - 1), each with mean zero given the past and uncorrelated.

        One for each question "state a, given that it is a or above?": `1(y >= a) (1(y = a) - h_a)` has variance
        `Pr(y >= a) h_a (1 - h_a)` under the chain. Zero where a reading is missing.
        """
        law, known = self.law(target)
        following = self.sample.states[1:, target]
        above = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
        m = law.shape[1]
        hazard = law[:, :-1] / np.maximum(above[:, :-1], 1e-300)
        states = np.arange(m - 1)
        left = (following[:, None] >= states) * ((following[:, None] == states) - hazard)
        variance = above[:, :-1] * hazard * (1.0 - hazard)
        keep = known[:, None]
        return np.where(keep, left, 0.0), np.where(keep, np.maximum(variance, 0.0), 0.0)


def own_law(readings: Sample, target: int, smoothing: float = 0.5) -> Floats:
    """Transitions (m, m) of a sequence that follows itself only, counted and smoothed."""
    column = readings.states[:, target]
    both = (column[:-1] >= 0) & (column[1:] >= 0)
    cells = column[:-1][both].astype(np.intp) * readings.m + column[1:][both]
    counts = np.bincount(cells, minlength=readings.m**2).reshape(readings.m, readings.m) + smoothing
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def still_law(readings: Sample, target: int, smoothing: float = 0.5) -> Floats:
    """Frequencies (m,) of a sequence, smoothed: the law that knows no past."""
    column = readings.states[:, target]
    counts = np.bincount(column[column >= 0], minlength=readings.m) + smoothing
    return np.asarray(counts / counts.sum())
