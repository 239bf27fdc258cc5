"""The query of readings that a public past allows."""

import numpy as np
import pytest

import csdp
from csdp.fitting.emissions import propose_readings


@pytest.mark.parametrize(("low", "high"), [(0.02, 0.98), (-3.0, 4.0), (180.0, 2200.0), (1e-5, 3e-5), (-1e6, 5e6)])
def test_the_range_is_round_and_holds_nearly_all(low, high):
    readings = np.random.default_rng(2).uniform(low, high, size=(600, 3))
    middle = (low + high) / 2
    past = csdp.Discretiser.declared(["a", "b", "c"], edges=[middle], bounds=(low, high)).apply(readings)
    proposal = propose_readings(past, "sum")
    of = proposal.query.of
    assert np.mean((readings >= of.low) & (readings <= of.high)) > 0.99
    assert of.high - of.low < 1.3 * (high - low)
    assert proposal.check.verdict == "passed"
    assert csdp.queries.parse_query(proposal.query.text) == proposal.query
    chain = csdp.fit(past, public=True, ensemble=0)
    assert csdp.Plan(chain, proposal.query, 1, 1.0).readings_check == "passed"


def test_what_is_not_proposed():
    past = csdp.Discretiser.declared(["a"], edges=[0.0], bounds=(-1, 1)).apply(np.sin(np.arange(800.0) / 20)[:, None])
    refused = propose_readings(past)
    assert refused.query is None
    assert refused.check.verdict == "failed"
    assert propose_readings(csdp.Panel.from_states([[0], [1]])).query is None
