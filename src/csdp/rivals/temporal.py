"""Temporal privacy leakage (Cao et al. 2017): what a stream of releases tells of one record, and budgets that bound it.

`BPL_t = L_B(BPL_{t-1}) + eps_t`, `FPL_t = L_F(FPL_{t+1}) + eps_t`, `TPL = BPL + FPL - eps_t`, with L the loss function
of the backward and of the forward kernel over all pairs of snapshots. Everything is in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from csdp.accountant.kernels import Backward, ProfileTable
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.queries import Query
from csdp.rivals.fresh import Fresh, FreshRelease, group_sensitivity
from csdp.rivals.protocol import Floats, checked, one_target, positive, whole

#: Joint states of a component up to which its loss functions are tabled.
LOSS_STATES = 256


@dataclass(frozen=True, eq=False)
class TemporalLeakage:
    """Backward, forward and temporal privacy leakage of every tick."""

    bpl: Floats
    fpl: Floats
    tpl: Floats

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {"bpl": self.bpl.tolist(), "fpl": self.fpl.tolist(), "tpl": self.tpl.tolist()}


def temporal_leakage(chain: Model, epsilons: npt.ArrayLike) -> TemporalLeakage:
    """BPL, FPL and TPL per tick of releases that cost `epsilons[t]` between any two snapshots of tick t.

    Several components: the largest of each. Reference: Cao, Yoshikawa, Xiao and Xiong, "Quantifying differential
    privacy under temporal correlations" (2017).

    >>> from csdp import CoupledChain
    >>> found = temporal_leakage(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), [1.0] * 100)
    >>> round(float(found.bpl.max()), 4), round(float(found.tpl.max()), 4)
    (1.5261, 2.0522)
    """
    if not isinstance(chain, Model):
        raise InputError(f"chain: {type(chain).__name__} given; CoupledChain or JointChain expected")
    if chain.initial is not None:
        raise InputError("chain: it has an initial law; temporal leakage here is for the stationary law")
    costs = _budgets(epsilons)
    bpl, fpl, tpl = (np.zeros(costs.size) for _ in range(3))
    for backward, forward in losses(chain):
        back = _recursion(costs, backward.largest)
        ahead = _recursion(costs[::-1], forward.largest)[::-1]
        bpl, fpl, tpl = np.maximum(bpl, back), np.maximum(fpl, ahead), np.maximum(tpl, back + ahead - costs)
    return TemporalLeakage(bpl, fpl, tpl)


def _budgets(epsilons: npt.ArrayLike) -> Floats:
    try:
        costs = np.asarray(epsilons, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("epsilons: one non-negative number per tick expected") from None
    if costs.ndim != 1 or not costs.size or not np.isfinite(costs).all() or (costs < 0).any():
        raise InputError("epsilons: a list of finite numbers, 0 or more, one per tick")
    return costs


@lru_cache(maxsize=8)
def losses(chain: Model) -> tuple[tuple[ProfileTable, ProfileTable], ...]:
    """Backward and forward loss functions of every kind of component."""
    found = []
    for members, _ in chain.alike(np.zeros(chain.sequences, dtype=np.intp)):
        part = chain if len(members) == chain.sequences else chain.subchain(members)
        if part.size > LOSS_STATES:
            raise TooLargeError(
                f"temporal leakage: a component has {part.states}**{part.sequences} joint states; "
                f"at most {LOSS_STATES}",
                needed=float(min(part.size, 10**300)),
                limit=LOSS_STATES,
            )
        backward = Backward(part)
        found.append((backward.profile_table(1), backward.forward_table))
    return tuple(found)


def _recursion(costs: Floats, loss: Callable[[float], float]) -> Floats:
    out = np.empty(costs.size)
    last = 0.0
    for t, cost in enumerate(costs):
        last = float(cost) + loss(last)
        out[t] = last
    return out


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
        last = _inverse(forward, first - backward(first), bound)
        # first + last - (first - L_B(first)): both ends, less what they share
        if last is not None and backward(first) + last <= bound:
            low = first
        else:
            high = first
    between = low - backward(low)
    last = _inverse(forward, between, bound)
    if last is None or between <= bound * 1e-9:
        return None
    return low, between, last


def _inverse(loss: Callable[[float], float], cost: float, ceiling: float) -> float | None:
    """b with b - L(b) = cost, which grows with b; None where it lies above the ceiling."""
    if ceiling - loss(ceiling) < cost:
        return None
    low, high = 0.0, ceiling
    for _ in range(60):
        middle = (low + high) / 2
        if middle - loss(middle) < cost:
            low = middle
        else:
            high = middle
    return high


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

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> FreshRelease:
        """Budgets for a bound on TPL; at a given scale, the bound that equal noise meets."""
        one_target(epsilon, scale)
        query = checked(chain, query)
        if epsilon is None:
            return self.at_scale(chain, query, positive("scale", scale))
        bound = positive("epsilon", epsilon)
        budgets = temporal_budgets(chain, bound=bound, length=self.length, allocation=self.allocation)
        scales = group_sensitivity(chain, query) / budgets
        return self.made(chain, query, bound, tuple(scales.tolist()))
