"""Models in JSON files, read by the schema in the file, and the private fits that models and plans record."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Final

from csdp.chain.coupled import CoupledChain
from csdp.chain.environment import EnvironmentChain
from csdp.chain.evidence import FitRecord
from csdp.chain.family import Family, certified_model
from csdp.chain.graph import InfluenceGraph
from csdp.chain.joint import JointChain
from csdp.chain.model import BACKWARD_SCHEMA, Model
from csdp.chain.no_model import NoModel
from csdp.errors import InputError
from csdp.numbers import parse_json

_KINDS: dict[str, type[Model]] = {
    CoupledChain.schema: CoupledChain,
    BACKWARD_SCHEMA: CoupledChain,
    JointChain.schema: JointChain,
    EnvironmentChain.schema: EnvironmentChain,
    InfluenceGraph.schema: InfluenceGraph,
    InfluenceGraph.family_schema: InfluenceGraph,
    NoModel.schema: NoModel,
}


def read_model(text: str) -> Model:
    """The model that a JSON text describes: a CoupledChain, JointChain, EnvironmentChain or InfluenceGraph.

    Text without a schema is read as plain `coupling` and `transitions`, or as a `kernel`, written by hand.

    >>> read_model('{"coupling": [[1]], "transitions": [[0.7, 0.3], [0.3, 0.7]]}')
    CoupledChain(1 sequence, 2 states, 1 coupling, digest bea84859)
    """
    return model_from_dict(parse_json("chain", text))


def model_from_dict(content: Any) -> Model:
    """The model that plain data describes, as `to_dict` gives it or as written by hand."""
    if not isinstance(content, dict):
        raise InputError(
            f"chain: a JSON {type(content).__name__} given; an object expected, as `csdp chain new` writes"
        )
    if "schema" not in content:
        return (JointChain if "kernel" in content else CoupledChain).from_dict(content)
    schema = content["schema"]
    if not isinstance(schema, str) or schema not in _KINDS:
        raise InputError(f"chain: schema {schema!r} given; this version reads {', '.join(_KINDS)}")
    return _KINDS[schema].from_dict(content)


def load_model(path: str | PathLike[str]) -> Model:
    """The model in a JSON file; InputError with the path if there is none."""
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise InputError(f"{where}: a folder given; a JSON file expected") from None
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None
    except ValueError as error:  # a path that no file can have
        raise InputError(f"{str(where)!r}: not a path ({error})") from None
    try:
        return read_model(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def save_model(model: Model, path: str | PathLike[str]) -> None:
    """Write a model as JSON; `load_model` gives an equal one back."""
    Path(path).write_text(model.to_json() + "\n", encoding="utf-8")


# ---- private fits ----------------------------------------------------------------------------------------------------

#: Cost of a chain that was fitted to private readings without noise: it limits nothing that it reveals of them.
UNPAID_FIT: Final = {"epsilon": "infinite", "level": "event", "fit": "unpaid"}


def private_fits(model: Model | Family) -> dict[str, float]:
    """Identity and plain epsilon-DP of every private fit that a model, or some member of a family, came from.

    Chains made from the same noised counts name the same fit, and cost once. A cost without an identity, as files of
    csdp 0.1 have it, is that of its chain.

    >>> from csdp import CoupledChain, Family
    >>> chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.3)]
    >>> private_fits(Family(chain.carrying(fit_cost={"epsilon": 0.5, "fit": "a"}) for chain in chains))
    {'a': 0.5}
    >>> sum(private_fits(Family(chain.carrying(fit_cost={"epsilon": 0.5}) for chain in chains)).values())
    1.0
    """
    members = certified_model(model).members
    fits = _costs_by_fit((member.fit_cost, member) for member in members if member.fit_cost is not None)
    if any(member.point.fitted is not None and member.point.fitted.unpaid for member in members):
        fits[UNPAID_FIT["fit"]] = math.inf
    return fits


def recorded_fits(plans: Iterable[str]) -> dict[str, float]:
    """`private_fits` of plans as a ledger keeps them (JSON text): those that a dataset was published under so far.

    Whether a record is in a fit, in the releases or in both is not known here, so it counts as both; a fit was paid for
    whatever plan is in force.
    """
    fits: dict[str, float] = {}
    for text in plans:
        if '"fit_cost"' not in text and '"fitted"' not in text:  # parsing large chains takes long
            continue
        content = json.loads(text)
        members = content.get("chain") if isinstance(content, dict) else None
        chains = [one for one in members or [] if isinstance(one, dict)]
        costly = [one for one in chains if one.get("fit_cost") is not None]
        fits = join_fits(fits, _costs_by_fit((one["fit_cost"], one) for one in costly))
        if any(_records_unpaid_fit(one) for one in chains):
            fits[UNPAID_FIT["fit"]] = math.inf
    return fits


def _records_unpaid_fit(chain: Mapping[str, Any]) -> bool:
    """Whether the plain data of a chain, or of the point of its family, records a fit to private readings."""
    record = chain.get("fitted") or (chain.get("point") or {}).get("fitted")
    return isinstance(record, Mapping) and FitRecord.from_dict(record).unpaid


def _costs_by_fit(costs: Iterable[tuple[Any, Model | dict[str, Any]]]) -> dict[str, float]:
    """Costs by the identity of their fit, given with their chains (plain data is built only if needed)."""
    fits: dict[str, float] = {}
    for cost, chain in costs:
        epsilon = cost.get("epsilon") if isinstance(cost, Mapping) else None
        if epsilon == UNPAID_FIT["epsilon"]:
            fits[UNPAID_FIT["fit"]] = math.inf
            continue
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
            raise InputError(f"fit_cost: epsilon {epsilon!r} given; a finite number, 0 or more, as csdp.fit writes it")
        identity = cost.get("fit")
        if not identity:
            model = model_from_dict(chain) if isinstance(chain, dict) else chain
            identity = model.without_family().digest
        identity = str(identity)
        fits[identity] = max(float(epsilon), fits.get(identity, 0.0))
    return fits


def join_fits(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """The union of two sets of fits; a fit in both counts once, at its larger cost."""
    return {name: max(first.get(name, 0.0), second.get(name, 0.0)) for name in {**first, **second}}


def fits_epsilon(fits: Mapping[str, float]) -> float:
    """Plain epsilon-DP that some private fits have spent on one record together, rounded up."""
    if math.inf in fits.values():
        return math.inf
    exact = sum(map(Fraction, fits.values()), start=Fraction(0))
    total = float(exact)
    return total if total >= exact else math.nextafter(total, math.inf)
