"""What a fitted chain carries: record, family, cost; through JSON, pickles and files; and what its digest covers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import csdp
from csdp.chain.files import load_model, save_model
from fitting.systems import random_chain


@pytest.fixture(scope="module", params=["em", "joint", "private"])
def chain(request):
    states = random_chain(1, 3, 2).simulate(400, seed=1)
    if request.param == "private":
        return csdp.fit(states, states=2, epsilon=1.0, ensemble=3)
    panel = csdp.Panel.from_states(states.astype(int), names=["a", "b", "c"], values=[0.0, 2.5])
    return csdp.fit(panel, method=request.param, public=True, ensemble=3)


@pytest.mark.parametrize("way", ["file", "pickle"])
def test_everything_travels(chain, way, tmp_path):
    if way == "file":
        save_model(chain, tmp_path / "chain.json")
        back = load_model(tmp_path / "chain.json")
    else:
        back = pickle.loads(pickle.dumps(chain))
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
