"""Budgets over time under which the temporal privacy leakage of every tick stays below a bound (Cao et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from csdp.baselines.fresh import Fresh
from csdp.baselines.protocol import Floats, positive, whole
from csdp.baselines.temporal import group_sensitivity, inverse, losses, temporal_leakage
from csdp.chain import Model
from csdp.errors import InputError
from csdp.queries import Query


def temporal_budgets(chain: Model, *, bound: float, length: int, allocation: str = "quantified") -> Floats:
    """Budgets per tick under which the temporal privacy leakage of every tick is at most `bound`.

    "quantified" (Cao et al. 2017, their finer algorithm): more at both ends, one value between, so that TPL meets the
    bound at every tick; where correlations never fade no such value exists and "uniform" is used: the largest equal
    budget that `length` ticks allow.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> budgets = temporal_budgets(chain, bound=1.0, length=5)
    >>> budgets.round(4).tolist()
    [0.7215, 0.443, 0.443, 0.443, 0.7215]
    >>> temporal_leakage(chain, budgets).tpl.round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    bound, length = positive("bound", bound), whole("length", length)
    if allocation not in {"quantified", "uniform"}:
        raise InputError(f"allocation: {allocation!r} given; 'quantified' or 'uniform'")
    if length == 1:
        return np.array([bound])
    if allocation == "quantified" and length > 2:
        ends = _quantified(chain, bound)
        if ends is not None:
            first, middle, last = ends
            budgets = np.full(length, middle)
            budgets[0], budgets[-1] = first, last
            # to the safe side, whatever was rounded
            return budgets * min(1.0, bound / float(temporal_leakage(chain, budgets).tpl.max()))
    low, high = bound / length, bound
    for _ in range(80):
        middle = (low + high) / 2
        if temporal_leakage(chain, np.full(length, middle)).tpl.max() <= bound:
            low = middle
        else:
            high = middle
    return np.full(length, low)


def _quantified(chain: Model, bound: float) -> tuple[float, float, float] | None:
    """(first, between, last) with first + last - between = bound; None where the losses do not settle."""
    pairs = losses(chain)

    def backward(b: float) -> float:
        return max(table.largest(b) for table, _ in pairs)

    def forward(b: float) -> float:
        return max(table.largest(b) for _, table in pairs)

    low, high = 0.0, bound
    for _ in range(60):
        first = (low + high) / 2
        last = inverse(forward, first - backward(first), bound)
        # first + last - (first - L_B(first)): both ends, less what they share
        if last is not None and backward(first) + last <= bound:
            low = first
        else:
            high = first
    between = low - backward(low)
    last = inverse(forward, between, bound)
    if last is None or between <= bound * 1e-9:
        return None
    return low, between, last


@dataclass(frozen=True)
class TemporalBudgets(Fresh):
    """Budgets over time that keep the temporal privacy leakage of every tick below a bound (Cao et al. 2017)."""

    length: int = 100
    allocation: Literal["quantified", "uniform"] = "quantified"

    name: ClassVar[str] = "temporal-budgets"
    label: ClassVar[str] = "temporal leakage, whole series"
    title: ClassVar[str] = "Temporal budgets (Cao et al. 2017)"
    guarantee: ClassVar[str] = (
        "all releases of the stream together tell at most epsilon about any tick's snapshot, under the model"
    )
    inferential: ClassVar[bool] = True

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The largest TPL over `length` ticks of equal noise."""
        cost = group_sensitivity(chain, query) / scale
        return float(temporal_leakage(chain, np.full(whole("length", self.length), cost)).tpl.max())

    def scales(self, chain: Model, query: Query, epsilon: float) -> tuple[float, ...]:
        """One scale for every tick, from budgets for a bound on TPL."""
        budgets = temporal_budgets(chain, bound=epsilon, length=self.length, allocation=self.allocation)
        return tuple((group_sensitivity(chain, query) / budgets).tolist())
