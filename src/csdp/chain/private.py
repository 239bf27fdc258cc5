"""What private fits have spent on the records of a dataset: every one of them counts, once, for ever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

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
    chosen = certified_model(model)
    members = chosen.members if isinstance(chosen, Family) else (chosen,)
    return _counted((member.fit_cost, member) for member in members if member.fit_cost is not None)


def recorded_fits(plans: Iterable[str]) -> dict[str, float]:
    """The same for plans as a ledger keeps them (JSON text): those that a dataset was published under so far.

    Whether a record is in a fit, in the releases or in both is not known here, so it counts as both; a fit was paid for
    whatever plan is in force.
    """
    found: dict[str, float] = {}
    for text in plans:
        if '"fit_cost"' not in text:  # large chains are not read in vain
            continue
        content = json.loads(text)
        members = content.get("chain") if isinstance(content, dict) else None
        costly = [one for one in members or [] if isinstance(one, dict) and one.get("fit_cost") is not None]
        found = join_fits(found, _counted((one["fit_cost"], one) for one in costly))
    return found


def _counted(costs: Iterable[tuple[Any, Model | dict[str, Any]]]) -> dict[str, float]:
    """Costs by the identity of their fit, given with their chains (plain data is built only where it is needed)."""
    found: dict[str, float] = {}
    for cost, chain in costs:
        epsilon = cost.get("epsilon") if isinstance(cost, Mapping) else None
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
            raise InputError(f"fit_cost: epsilon {epsilon!r} given; a finite number, 0 or more, as csdp.fit writes it")
        identity = cost.get("fit")
        if not identity:
            model = chain if isinstance(chain, Model) else model_from_dict(chain)
            identity = model.without_family().digest
        identity = str(identity)
        found[identity] = max(float(epsilon), found.get(identity, 0.0))
    return found


def join_fits(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """All of two sets of fits; the same one counts once."""
    return {name: max(first.get(name, 0.0), second.get(name, 0.0)) for name in {**first, **second}}


def fits_epsilon(fits: Mapping[str, float]) -> float:
    """Plain epsilon-DP that some private fits have spent on one record together, rounded up."""
    exact = sum(map(Fraction, fits.values()), start=Fraction(0))
    total = float(exact)
    return total if total >= exact else math.nextafter(total, math.inf)
