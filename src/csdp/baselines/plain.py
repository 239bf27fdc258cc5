"""Plain, group and age-dependent differential privacy: noise for records that are taken as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from csdp.baselines.fresh import Fresh
from csdp.baselines.laws import own_variation
from csdp.baselines.temporal import group_sensitivity
from csdp.bounds.closed_forms import loose_bound
from csdp.chain import Model
from csdp.queries import Query


@dataclass(frozen=True)
class LaplaceDP(Fresh):
    """Plain differential privacy: scale Delta_f / epsilon, one record at a time, correlations ignored."""

    name: ClassVar[str] = "laplace"
    label: ClassVar[str] = "DP of one record"
    title: ClassVar[str] = "Laplace (Dwork et al. 2006)"
    guarantee: ClassVar[str] = "epsilon-DP of one record; nothing is said about what correlations give away"
    inferential: ClassVar[bool] = False

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """Delta_f / scale."""
        return query.sensitivity(1, chain.value_table) / scale


@dataclass(frozen=True)
class GroupDP(Fresh):
    """Group differential privacy: all records that the model ties together count as one."""

    name: ClassVar[str] = "group"
    label: ClassVar[str] = "DP of all tied records"
    title: ClassVar[str] = "Laplace for groups"
    guarantee: ClassVar[str] = "epsilon-DP of all records of one tick that are tied together, however they are tied"
    inferential: ClassVar[bool] = True

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """s_k / scale, k the largest component."""
        return group_sensitivity(chain, query) / scale


@dataclass(frozen=True)
class AgeDP(Fresh):
    """Age-dependent DP (Zhang et al. 2023): epsilon-DP noise on aged data, users taken as independent."""

    age: int = 1

    name: ClassVar[str] = "adp"
    label: ClassVar[str] = "age-dependent DP, users independent"
    title: ClassVar[str] = "Age-dependent DP (Zhang et al. 2023)"
    guarantee: ClassVar[str] = (
        "a user's present is protected up to epsilon IF users are independent: ln(1 + Delta(t)(e^eps_c - 1))"
    )
    inferential: ClassVar[bool] = False

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """ln(1 + Delta (e^(Delta_f / scale) - 1)), Delta the largest total variation of a user's own aged state."""
        return loose_bound(own_variation(chain, self.age), query.sensitivity(1, chain.value_table) / scale)

    def describe(self, chain: Model, query: Query, scale: float) -> dict[str, Any]:
        """Delta(t)."""
        return {"total_variation": own_variation(chain, self.age)}
