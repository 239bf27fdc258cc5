"""Queries as strangers write them: from the documentation, without knowing what the library does with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class _Folded:
    """What the four below share."""

    fold: ClassVar[str] = "sum"
    name: ClassVar[str]

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        whole = self.contributions(values)
        return whole if members is None else whole[list(members)]

    def contributions(self, values: Floats) -> Floats:
        raise NotImplementedError

    def divisor(self, values: Floats) -> float:
        return 1.0

    def evaluate(self, snapshots: ArrayLike, values: Floats) -> Floats:
        chosen = self.parts(values)[np.arange(len(values)), np.asarray(snapshots)]
        folded: Any = {"sum": np.sum, "max": np.max, "min": np.min}[self.fold](chosen, axis=-2)
        return np.asarray(folded / self.divisor(values))

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        moves = np.ptp(self.parts(values, members)[:, :, 0], axis=1)
        if self.fold == "sum":
            return float(np.sort(moves)[::-1][:k].sum() / self.divisor(values))
        whole = self.parts(values)[:, :, 0]  # from its best to what is left when all others are lowest, or beyond
        return float(max(self.parts(values, members)[:, :, 0].max() - whole.min(axis=1).max(), 0.0))

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True)
class Above(_Folded):
    """How many sequences carry more than a threshold."""

    threshold: float
    name: ClassVar[str] = "above"

    def contributions(self, values: Floats) -> Floats:
        return (values > self.threshold).astype(float)[:, :, None]


@dataclass(frozen=True)
class Weighted(_Folded):
    """A weighted sum that calls itself something else."""

    weights: tuple[float, ...]
    name: ClassVar[str] = "score"

    def contributions(self, values: Floats) -> Floats:
        return (np.asarray(self.weights)[:, None] * values)[:, :, None]


@dataclass(frozen=True)
class Average(_Folded):
    """A sum divided in the end, by a number of its own."""

    parts_of: int
    name: ClassVar[str] = "average"

    def contributions(self, values: Floats) -> Floats:
        return np.array(values)[:, :, None]

    def divisor(self, values: Floats) -> float:
        return float(self.parts_of)


@dataclass(frozen=True)
class Gap(_Folded):
    """How far the lowest value lies below a level: the largest of parts that are not the values."""

    level: float
    fold: ClassVar[str] = "max"
    name: ClassVar[str] = "gap"

    def contributions(self, values: Floats) -> Floats:
        return (self.level - np.asarray(values))[:, :, None]
