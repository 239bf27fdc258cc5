"""What a fitted chain carries: record, family, cost; through JSON, pickles and files; and what its digest covers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import csdp
from csdp.chain import Evidence, certified_model
from csdp.chain.files import load_model, read_model, save_model
from csdp.errors import InputError
from fitting.systems import random_chain


@pytest.fixture(scope="module", params=["em", "joint", "private"])
def chain(request):
    states = random_chain(1, 3, 2).simulate(400, seed=1)
    if request.param == "private":
        return csdp.fit(states, states=2, epsilon=1.0, ensemble=3)
    panel = csdp.Panel.from_states(states.astype(int), names=["a", "b", "c"], values=[0.0, 2.5])
    return csdp.fit(panel, method=request.param, public=True, ensemble=3)


@pytest.mark.parametrize("way", ["json", "file", "pickle", "copy"])
def test_everything_travels(chain, way, tmp_path):
    if way == "file":
        save_model(chain, tmp_path / "chain.json")
        back = load_model(tmp_path / "chain.json")
    else:
        back = {
            "json": lambda: read_model(chain.to_json()),
            "pickle": lambda: pickle.loads(pickle.dumps(chain)),
            "copy": lambda: copy.deepcopy(chain),
        }[way]()
    assert back == chain
    assert back.digest == chain.digest
    assert back.fitted == chain.fitted
    assert back.fit_cost == chain.fit_cost
    assert back.family == chain.family
    assert [m.digest for m in back.family] == [m.digest for m in chain.family]
    assert back.names == chain.names
    assert back.values.tolist() == chain.values.tolist()
    assert back.to_json() == chain.to_json()


def test_the_family_holds_the_point_estimate_first(chain):
    assert len(chain.family) == 4
    point = chain.without_family()
    assert chain.family.members[0] == point
    assert point.family is None
    assert point.fitted == chain.fitted
    assert point.fit_cost == chain.fit_cost
    np.testing.assert_array_equal(point.kernel(), chain.kernel())
    assert len({member.digest for member in chain.family}) == 4


def test_certificates_rest_on_the_family(chain):
    assert certified_model(chain) == chain.family
    assert certified_model(chain.family) is chain.family
    point = chain.without_family()
    assert certified_model(point) is point
    both = certified_model(csdp.Family([chain, chain.family.members[1]]))
    assert {m.digest for m in both} == {m.digest for m in chain.family}


def test_the_digest_covers_family_and_cost(chain):
    point = chain.without_family()
    assert point != chain
    carried = {"fit_cost": chain.fit_cost, "evidence": chain.evidence}
    fewer = point.carrying(fitted=chain.fitted, **carried, family=csdp.Family(chain.family.members[:2]))
    assert fewer != chain
    assert point.carrying(**carried | {"fit_cost": {"epsilon": 0.001}}) != point
    assert point.carrying(**carried | {"evidence": Evidence("accepted")}) != point
    assert point.carrying(**carried) == point  # the record of the fit certifies nothing


def test_a_chain_must_be_in_its_family(chain):
    with pytest.raises(InputError, match="first member"):
        chain.without_family().carrying(family=csdp.Family(chain.family.members[1:]))


def test_a_fitted_chain_is_frozen(chain):
    with pytest.raises(AttributeError, match="frozen"):
        chain.family = None
