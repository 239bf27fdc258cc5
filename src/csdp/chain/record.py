"""The record of a fit, and what private fits cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, Final

from csdp.chain.family import Family, certified_model
from csdp.chain.files import model_from_dict
from csdp.chain.model import Model
from csdp.errors import InputError


@dataclass(frozen=True)
class FitRecord:
    """How a chain was fitted: the settings, the result, and warnings.

    `observations` counts the transitions that were used, over all sequences; `log_likelihood` is theirs under the
    chain (None if only noised counts were seen). `path` is the objective after each iteration, summed over the
    sequences: the log-likelihood plus the smoothing's share, which EM never lowers. `neighbours` is the largest
    number of other sequences that one may follow, `screened` whether they were chosen from the data. `parameters`
    counts the free numbers of the model. `confidence` is that of the limits of a
    family at once (`ensemble_method` "limits", no further chains). `environment` says where the environment comes from
    (clock, hidden), `environments` how many there are, `shrinkage` how many transitions of the common chain
    each of them got; `gains` are (chain, nats per tick that it gained over independent chains on readings that were set
    aside, standard error) for every chain that was compared. `readings_check` says what the readings behind the states
    showed (`check_readings`; None if they were not public or not given). `step` is the time from one tick to the next
    in seconds, if the readings had timestamps: a publisher whose ticks are of another length is refused. A record of a
    private fit holds nothing else but what the noised counts gave.
    """

    method: str
    observations: int
    log_likelihood: float | None = None
    path: tuple[float, ...] = ()
    iterations: int = 0
    converged: bool = True
    smoothing: float = 0.0
    neighbours: int = 0
    screened: bool = False
    parameters: int = 0
    states: int = 0
    epsilon: float | None = None
    public: bool = False
    ensemble: int = 0
    ensemble_method: str | None = None
    warnings: tuple[str, ...] = ()
    direction: str = "forward"
    confidence: float | None = None
    environment: str | None = None
    environments: int = 0
    shrinkage: float = 0.0
    gains: tuple[tuple[str, float, float], ...] = ()
    readings_check: str | None = None
    step: int | None = None

    def __repr__(self) -> str:
        return f"FitRecord({self.method}, {self.observations:,} transitions, {len(self.warnings)} warnings)"

    @property
    def unpaid(self) -> bool:
        """Whether private readings were used without noise, so that the chain limits nothing it reveals of them."""
        return not self.public and self.epsilon is None

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        content = asdict(self)
        content["path"], content["warnings"] = list(self.path), list(self.warnings)
        content["gains"] = [list(each) for each in self.gains]
        # Fields at their default are left out, as in records of 0.2.
        return {key: value for key, value in content.items() if key not in _LATER or value != _LATER[key]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitRecord:
        """Rebuild from `to_dict`; unknown keys are refused."""
        content = {key: value for key, value in content.items() if key not in _RETIRED}
        unknown = sorted(set(content) - {field.name for field in fields(cls)})
        if unknown or not {"method", "observations"} <= set(content):
            reason = f"unknown {unknown[0]!r}" if unknown else "no method or observations"
            raise InputError(f"chain: the record of its fit is garbled ({reason}); write it with to_json")
        values = dict(content)
        values["path"] = tuple(_finite(value) for value in values.get("path", ()))
        values["gains"] = tuple((str(name), _finite(gain), _finite(se)) for name, gain, se in values.get("gains", ()))
        values["warnings"] = tuple(str(text) for text in values.get("warnings", ()))
        return cls(**values)


#: Fields of csdp 0.2 that are ignored: nothing that is certified depends on them.
_RETIRED = frozenset({"finer_states", "held_out", "kernel", "restarts", "seed"})
#: Fields of a `FitRecord` that are written only if they differ from these.
_LATER: dict[str, Any] = {
    "environment": None,
    "environments": 0,
    "shrinkage": 0.0,
    "gains": [],
    "readings_check": None,
    "step": None,
}


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InputError("chain: the record of its fit holds a number that is not finite")
    return number


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
