"""Certified leakage at every age up to a largest one, in one pass: what screening many ages needs."""

from __future__ import annotations

import itertools
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress
from csdp.bounds.influence import Influence, require_informed
from csdp.bounds.lineage import lineage, require_forward
from csdp.bounds.rounding import round_up
from csdp.bounds.slice.bound import slice_bound
from csdp.chain import Family, Model, certified_model
from csdp.errors import InputError

Floats = npt.NDArray[np.float64]
Curved = Literal["lineage", "slice", "influence"]


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
    uninformed adversary only) or "slice" (for every adversary) for a forward chain, "influence" (the informed
    adversary) for a backward one. Over a Family: the largest. Never grows with age.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> age_curve(chain, max_age=3).round(4).tolist()
    [1.6946, 0.6702, 0.2982]
    >>> age_curve(chain, max_age=3, bound="lineage", adversary="uninformed").round(4).tolist()
    [1.6946, 0.6455, 0.2564]
    """
    if isinstance(max_age, bool) or not isinstance(max_age, int) or max_age < 1:
        raise InputError(f"max_age: {max_age!r} given; a whole number, 1 or more")
    if bound not in get_args(Curved):
        raise InputError(f"bound: {bound!r} given; 'lineage', 'slice' or 'influence' have a curve over ages")
    if adversary not in get_args(Adversary):
        raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(get_args(Adversary))}")
    members = certified_model(chain).members
    curves = [_curve(member, max_age, bound, adversary, progress) for member in members]
    return np.array([round_up(float(value)) for value in np.max(curves, axis=0)])


def _curve(model: Model, max_age: int, bound: str, adversary: Adversary, progress: Progress | None) -> Floats:
    if bound == "influence":
        require_informed(adversary)
        rule = Influence(model)
        states = itertools.accumulate(range(max_age - 1), lambda state, _: rule.advance(state), initial=rule.cap(1))
        return np.array([float(state.max()) for state in states])
    model = require_forward("age_curve", model)
    if bound == "slice":
        return slice_bound(model, max_age, progress=progress).curve
    if adversary != "uninformed":
        return np.full(max_age, float(lineage(model, 1).ranges.max()))
    found = lineage(model, max_age, curve=True, progress=progress).curve
    assert found is not None
    return np.minimum.accumulate(found)
