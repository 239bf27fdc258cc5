"""Masked cells are missing at every door: numpy itself reads what lies behind a mask."""

import numpy as np
import pytest

import csdp
from csdp import CoupledChain, Identity, Mean, Panel, Plan, Publisher, ReadingRange
from csdp.errors import InputError

CHAIN = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]])
HIDDEN = [[True, False]]


def masked(cells, **options):
    return np.ma.masked_array(cells, mask=HIDDEN * len(cells), **options)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_a_masked_state_is_not_published(tmp_path, kind):
    states = masked([[1, 1]], dtype=kind)
    with Publisher(Plan(CHAIN, Identity(), 0, 30.0), dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        assert publisher.push(states[0], time=0).why == "readings"
        for panel in (Panel.from_states(states, first_tick=1), Panel.from_states([states[0]], first_tick=2)):
            assert panel.states.tolist() == [[-1, 1]]
            assert not publisher.publish(panel).releases
        ticks = np.arange(3, 4)
        assert not publisher.publish(Panel(("x1", "x2"), ticks, ticks, states)).releases
        assert publisher.charged == 0


def test_a_masked_reading_is_not_published(tmp_path):
    readings, ticks = masked([[0.9, 0.2]]), np.arange(1)
    with Publisher(
        Plan(CHAIN, Mean(of=ReadingRange(0, 1, 0.1)), 0, 1e3), dataset="d", ledger=tmp_path / "ledger.db"
    ) as publisher:
        (batch,) = publisher.publish(Panel(("x1", "x2"), ticks, ticks, np.array([[-1, 0]]), readings=readings))
        assert (batch.count, round(batch.values[0], 1)) == (1, 0.2)
        pushed = publisher.push(readings[0], time=1)
        assert (pushed.count, round(pushed.values[0], 1)) == (1, 0.2)
    with pytest.raises(InputError, match="only if, a state is -1"):
        Panel(("x1", "x2"), ticks, ticks, np.array([[1, 0]]), readings=readings)
    assert np.isnan(csdp.Readings(("x1", "x2"), ticks, ticks, masked([[9, 2]])).readings).tolist() == HIDDEN


def test_fits_do_not_look_behind_a_mask():
    states = masked(np.ones((60, 2), dtype=int))
    with pytest.raises(InputError, match="'x1' has no transition"):
        csdp.fit(states, public=True, states=2)
