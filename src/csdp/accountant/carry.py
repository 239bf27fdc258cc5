"""What a history under one plan tells under the next: the worst log ratio between any two snapshots.

The proof is in docs/planning.md, "A change of plan".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Charged(Protocol):
    """What is asked of a unit of the plan before."""

    @property
    def component(self) -> object:
        """The component that the unit is, or that it was cut from."""

    def between(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots that differ in this unit only."""


#: Every unit of the plan before, under the same model, with its state at the newest slice that the history touched.
Before = Sequence[tuple[Charged, Floats]]


def worst_component(before: Before) -> float:
    """The worst log ratio of a history between any two snapshots of one component.

    Two snapshots of a component that was cut may differ in every group: they are changed one after the other, and what
    each change tells adds up.
    """
    parts: dict[int, list[float]] = {}
    for unit, state in before:
        parts.setdefault(id(unit.component), []).append(unit.between(state))
    return max(added(levels) for levels in parts.values())


def added(levels: Sequence[float]) -> float:
    """A sum, rounded up."""
    return levels[0] if len(levels) == 1 else math.fsum(levels) * (1 + 1e-15)
