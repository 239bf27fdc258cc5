"""Edges, values and words that come from private readings: whatever is paid for or released does not depend on them."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.publisher.sources import PanelSource

READINGS = np.random.default_rng(7).normal(15.0, 6.0, (60, 2))
#: One reading is another: the smallest, the largest, one in the middle, a number that no other reading is.
CHANGES = [(tick, sequence, number) for tick in (3, 11, 59) for sequence in (0, 1) for number in (-500, 500, 14.55)]
STATES: dict[str, dict[str, Any]] = {
    "quantiles": {"states": 3},
    "quantiles in bounds": {"states": 3, "bounds": (0, 30)},
    "equal parts": {"strategy": "uniform", "states": 4},
    "equal parts of bounds": {"strategy": "uniform", "states": 4, "bounds": (0, 30)},
    "distinct numbers": {"strategy": "categories"},
    "edges": {"edges": [10, 20]},
}
DECLARED = {"equal parts of bounds", "edges"}


def pair_of_panels(settings: dict[str, Any], change: tuple[int, int, float]) -> list[csdp.Panel]:
    """The panels of readings, and of the same readings but for one, each by the discretiser that is made from it."""
    tick, sequence, number = change
    other = READINGS.copy()
    other[tick, sequence] = number
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return [csdp.Discretiser.fit(cells, **settings).apply(cells) for cells in (READINGS, other)]


@pytest.mark.parametrize("name", STATES)
def test_one_reading_moves_nothing_that_a_paid_fit_publishes_without_noise(name: str) -> None:
    for change in CHANGES:
        panels = pair_of_panels(STATES[name], change)
        if name in DECLARED:
            np.testing.assert_array_equal(*(csdp.fit(each, epsilon=1.0).value_table for each in panels))
            continue
        for panel in panels:
            with pytest.raises(InputError, match="private readings"):
                csdp.fit(panel, epsilon=1.0)


@pytest.mark.parametrize("name", STATES)
def test_one_reading_moves_the_states_of_no_other_tick_that_is_released(name: str) -> None:
    for change in CHANGES:
        panels = pair_of_panels(STATES[name], change)
        m = panels[0].state_count
        chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], np.full((m, m), 1 / m), names=panels[0].names)
        plan = csdp.Plan(chain, csdp.Mean(), 1, 1.0)
        if name not in DECLARED:
            with pytest.raises(InputError, match="private readings"):
                PanelSource(panels[0], plan)
            continue
        for panel in panels:
            PanelSource(panel, plan)
        others = [np.delete(panel.states, change[0], axis=0) for panel in panels]
        np.testing.assert_array_equal(*others)


def test_that_the_tests_above_can_fail() -> None:
    """Each way of learning from private readings moves edges or values for some change of one reading."""
    for name in sorted(STATES.keys() - DECLARED):
        moves = []
        for change, what in itertools.product(CHANGES, ("values", "states")):
            first, second = pair_of_panels(STATES[name], change)
            one, other = (getattr(panel, what) for panel in (first, second))
            if what == "states":
                one, other = (np.delete(table, change[0], axis=0) for table in (one, other))
            moves.append(one.shape != other.shape or (one != other).any())
        assert any(moves), name
