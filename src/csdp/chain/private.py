"""What private fits have spent on the records of a dataset: every one of them counts, once, for ever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from csdp.chain.family import Family, certified_model
from csdp.chain.files import model_from_dict
from csdp.chain.model import Model
from csdp.errors import InputError


def private_fits(model: Model | Family) -> dict[str, float]:
    """Identity and plain epsilon-DP of every private fit that a model, or some member of a family, came from.

    Chains made from the same noised counts name the same fit, and cost once. A cost without an identity, as files of
    csdp 0.1 have it, is that of its chain.

    >>> from csdp import CoupledChain
    >>> chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.3)]
    >>> private_fits(Family(chain.carrying(fit_cost={"epsilon": 0.5, "fit": "a"}) for chain in chains))
    {'a': 0.5}
    >>> sum(private_fits(Family(chain.carrying(fit_cost={"epsilon": 0.5}) for chain in chains)).values())
    1.0
    """
    found: dict[str, float] = {}
    for member in certified_model(model) if isinstance(model, Family) or model.family is not None else (model,):
        cost = member.fit_cost
        if cost is None:
            continue
        epsilon = cost.get("epsilon")
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
            raise InputError(f"fit_cost: epsilon {epsilon!r} given; a finite number, 0 or more, as csdp.fit writes it")
        identity = str(cost.get("fit") or member.without_family().digest)
        found[identity] = max(float(epsilon), found.get(identity, 0.0))
    return found


def recorded_fits(plans: Iterable[str]) -> dict[str, float]:
    """The same for plans as a ledger keeps them (JSON text): those that a dataset was published under so far.

    Whether a record is in a fit, in the releases or in both is not known here, so it counts as both; a fit was paid for
    whatever plan is in force.
    """
    found: dict[str, float] = {}
    for text in plans:
        members = json.loads(text).get("chain") or []
        costly = [model_from_dict(content) for content in members if content.get("fit_cost") is not None]
        found = join_fits(found, private_fits(Family(costly)) if costly else {})
    return found


def join_fits(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """All of two sets of fits; the same one counts once."""
    return {name: max(first.get(name, 0.0), second.get(name, 0.0)) for name in {**first, **second}}


def fits_epsilon(fits: Mapping[str, float]) -> float:
    """Plain epsilon-DP that some private fits have spent on one record together, rounded up."""
    exact = sum(map(Fraction, fits.values()), start=Fraction(0))
    total = float(exact)
    return total if total >= exact else math.nextafter(total, math.inf)
