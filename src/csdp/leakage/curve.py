"""Certified leakage at every age up to a largest one, in one pass: what screening many ages needs."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress
from csdp.chain import CoupledChain, Family, Model, certified_model
from csdp.errors import InputError
from csdp.leakage.lineage import lineage
from csdp.leakage.rounding import round_up
from csdp.leakage.slice import slice_bound

Floats = npt.NDArray[np.float64]
Curved = Literal["lineage", "slice"]


def age_curve(
    chain: Model | Family,
    *,
    max_age: int,
    bound: str = "slice",
    adversary: Adversary = "informed",
    progress: Progress | None = None,
) -> Floats:
    """Leakage that no query, noise or number of releases passes when all data is at least A old, for A = 1..max_age.

    One walk over the ages: it costs about as much as the last age alone. `bound` is "lineage" (decays with age for the
    uninformed adversary only) or "slice" (for every adversary). Over a Family: the largest. Never grows with age.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> age_curve(chain, max_age=3).round(4).tolist()
    [1.6946, 0.6702, 0.2982]
    >>> age_curve(chain, max_age=3, bound="lineage", adversary="uninformed").round(4).tolist()
    [1.6946, 0.6455, 0.2564]
    """
    if isinstance(max_age, bool) or not isinstance(max_age, int) or max_age < 1:
        raise InputError(f"max_age: {max_age!r} given; a whole number, 1 or more")
    if bound not in get_args(Curved):
        raise InputError(f"bound: {bound!r} given; 'lineage' or 'slice' have a curve over ages")
    if adversary not in get_args(Adversary):
        raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(get_args(Adversary))}")
    chain = certified_model(chain)
    members = chain.members if isinstance(chain, Family) else (chain,)
    curves = [_curve(member, max_age, bound, adversary, progress) for member in members]
    return np.array([round_up(float(value)) for value in np.max(curves, axis=0)])


def _curve(model: Model, max_age: int, bound: str, adversary: Adversary, progress: Progress | None) -> Floats:
    if not isinstance(model, CoupledChain):
        raise InputError(
            f"age_curve: {type(model).__name__} given; a CoupledChain is needed, whose next states are independent "
            "given the present"
        )
    if bound == "slice":
        return slice_bound(model, max_age, progress=progress).curve
    if adversary != "uninformed":
        return np.full(max_age, float(lineage(model, 1).ranges.max()))
    found = lineage(model, max_age, curve=True, progress=progress).curve
    assert found is not None
    return np.minimum.accumulate(found)
