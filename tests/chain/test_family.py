"""What a chain carries besides its law: the record of a fit, its cost, and the family that certificates rest on."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import csdp
from csdp.chain import Evidence, FitRecord, certified_model, fits_epsilon, join_fits, private_fits, recorded_fits
from csdp.chain.files import read_model
from csdp.errors import InputError

COST = {"epsilon": 0.5, "level": "event"}
UNTESTED = Evidence("untested", "fitted to private readings, which may not be used to test it")
RECORD = FitRecord("em", 99, log_likelihood=-66.5, iterations=1, warnings=("few transitions",))


def flipping(p: float) -> csdp.CoupledChain:
    return csdp.CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]], names=["a"], values=[0, 3])


def fitted() -> csdp.CoupledChain:
    point = flipping(0.3).carrying(fitted=RECORD, fit_cost=COST, evidence=UNTESTED)
    family = csdp.Family([point, flipping(0.2)])
    return point.carrying(fitted=RECORD, fit_cost=COST, evidence=UNTESTED, family=family)


def test_all_of_it_travels_through_json() -> None:
    chain = fitted()
    back = read_model(chain.to_json())
    assert back == chain
    assert back.to_json() == chain.to_json()
    assert (back.fitted, back.fit_cost, back.family) == (RECORD, COST, chain.family)
    shared = json.loads(chain.to_json())["family"][0]
    assert not {"values", "names"} & set(shared)  # written once, for all members


def test_a_record_of_an_earlier_version_is_read_without_its_removed_settings() -> None:
    earlier = RECORD.to_dict() | {"restarts": 3, "seed": 1, "kernel": "ordinal", "path": [-70.0, -66.5], "states": 2}
    assert FitRecord.from_dict(earlier) == RECORD


def test_the_digest_covers_cost_and_family_but_not_the_record() -> None:
    plain = flipping(0.3)
    paid = plain.carrying(fit_cost=COST, evidence=UNTESTED)
    digests = [plain.digest, paid.digest, plain.carrying(fit_cost={"epsilon": 9.0}).digest, fitted().digest]
    assert len(set(digests)) == 4
    assert plain.carrying(fitted=RECORD).digest == plain.digest
    assert fitted().without_family() == paid
    assert fitted().without_family().fitted == RECORD


def test_certificates_rest_on_every_chain_that_is_possible() -> None:
    chain = fitted()
    assert certified_model(chain) is chain.family
    assert certified_model(chain.without_family()) == chain.without_family()
    nested = certified_model(csdp.Family([chain, flipping(0.4)]))
    assert isinstance(nested, csdp.Family)
    assert [member.digest for member in nested] == [
        chain.without_family().digest,
        flipping(0.2).digest,
        flipping(0.4).digest,
    ]


def test_a_chain_that_is_not_in_its_family_is_refused() -> None:
    with pytest.raises(InputError, match="must be its first member"):
        flipping(0.3).carrying(family=csdp.Family([flipping(0.2), flipping(0.3)]))
    with pytest.raises(InputError, match="with the cost of its fit"):
        flipping(0.3).carrying(fit_cost=COST, family=csdp.Family([flipping(0.3)]))


@pytest.mark.parametrize(
    ("garbled", "message"),
    [
        ({"fitted": {"method": "em"}}, "no method or observations"),
        ({"fitted": {"method": "em", "observations": 1, "gains": [["a", "NaN", 0]]}}, "not finite"),
        ({"fit_cost": 1.0}, "must be JSON objects"),
        ({"family": 7}, "lacks or garbles"),
    ],
)
def test_garbled_json_is_refused(garbled: dict[str, Any], message: str) -> None:
    content = {"coupling": [[1]], "transitions": [[0.7, 0.3], [0.3, 0.7]], **garbled}
    with pytest.raises(InputError, match=message):
        read_model(json.dumps(content))


def test_private_fits_of_all_recorded_plans_count_once_each_at_their_larger_cost() -> None:
    """Whatever comes before or after them: plans without a fit, plans that are no objects, the same fit again."""

    def plan(*fits: tuple[str, float]) -> str:
        chains = [flipping(0.3).carrying(fit_cost={"epsilon": cost, "fit": name}) for name, cost in fits]
        return json.dumps({"chain": [chain.to_dict() for chain in chains or [flipping(0.3)]]})

    texts = [plan(), '["fit_cost"]', plan(("a", 0.5)), plan(), plan(("b", 0.25), ("a", 0.75)), plan(("a", 0.5))]
    for order in (texts, texts[::-1]):
        assert recorded_fits(order) == {"a": 0.75, "b": 0.25}
    assert recorded_fits(texts[:2]) == {}
    assert join_fits({"a": 0.5, "b": 1.0}, {"a": 0.75, "c": 0.0}) == {"a": 0.75, "b": 1.0, "c": 0.0}
    assert join_fits({"a": -0.5}, {"b": -0.5}) == {"a": 0.0, "b": 0.0}  # a wrong record takes nothing off the others


def test_the_cost_of_several_fits_is_rounded_up() -> None:
    costs = {str(n): 0.1 for n in range(10)}
    assert sum(costs.values()) < 1.0
    assert fits_epsilon(costs) >= 1.0
    assert fits_epsilon({"a": 2.0**53, "b": 1.0}) == 2.0**53 + 2
    assert fits_epsilon({}) == 0.0


@pytest.mark.parametrize("cost", [-0.5, math.inf, math.nan, "1"])
def test_a_cost_that_is_no_number_is_refused(cost: Any) -> None:
    with pytest.raises(InputError, match="a finite number, 0 or more"):
        private_fits(flipping(0.3).carrying(fit_cost={"epsilon": cost, "fit": "a"}))
