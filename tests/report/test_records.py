from __future__ import annotations

import numpy as np
import pytest

from csdp import CoupledChain, Mean, Panel, Plan, Release
from csdp.report.series import first_answers, release_records

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def test_answers_of_ticks_with_a_missing_reading_are_not_known():
    states = PAPER.simulate(50, seed=1)
    states[5, 1] = -1
    answers = first_answers(Plan(PAPER, Mean(), 1, 1.0), Panel.from_states(states))
    assert np.flatnonzero(np.isnan(answers)).tolist() == [5]


def test_a_release_without_a_recorded_band_has_one_of_two_standard_errors():
    old, new = (Release(7, (0.5,), (0.4,), (0.1,), 2, 0, 0.2, low=low, high=low) for low in ((), (0.4,)))
    records = release_records([old, new, Release(8, (0.5,), (), (), 2, 0, 0.2)])
    assert [(r.low, r.high) for r in records] == [(pytest.approx(0.2), pytest.approx(0.6)), (0.4, 0.4), (None, None)]
