from __future__ import annotations

import numpy as np
import pytest

from csdp import CoupledChain, JointChain, Mean, Panel, Plan, Release, leakage
from csdp.errors import InputError
from csdp.report.figures import coupling_graph_figure
from csdp.report.records import dependences, first_answers, leakage_by_age, release_records

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


class TestSweeps:
    def test_by_age_is_the_library(self):
        for record in leakage_by_age(PAPER, Mean(), ages=[1, 3], epsilon_c=0.5):
            expected = leakage(PAPER, Mean(), ages=record.age, epsilon_c=0.5, bound=record.bound)
            assert (record.epsilon, record.sound) == (expected.epsilon, expected.sound)

    def test_progress_is_told(self):
        calls = []
        leakage_by_age(PAPER, Mean(), ages=[1, 2], epsilon_c=1.0, progress=lambda *t: calls.append(t))
        assert calls == [("leakage by age", 1, 2), ("leakage by age", 2, 2)]


def test_answers_of_ticks_with_a_missing_reading_are_not_known():
    states = PAPER.simulate(50, seed=1)
    states[5, 1] = -1
    answers = first_answers(Plan(PAPER, Mean(), 1, 1.0), Panel.from_states(states))
    assert np.flatnonzero(np.isnan(answers)).tolist() == [5]


def test_a_release_without_a_recorded_band_has_one_of_two_standard_errors():
    old, new = (Release(7, (0.5,), (0.4,), (0.1,), 2, 0, 0.2, low=low, high=low) for low in ((), (0.4,)))
    records = release_records([old, new, Release(8, (0.5,), (), (), 2, 0, 0.2)])
    assert [(r.low, r.high) for r in records] == [(pytest.approx(0.2), pytest.approx(0.6)), (0.4, 0.4), (None, None)]


class TestDependences:
    def test_dependences_are_changes_of_the_next_state(self):
        chain = CoupledChain([[0.6, 0.4], [0.3, 0.7]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
        joint = JointChain(chain.kernel(), states=3, sequences=2)
        for mine, other in zip(dependences(chain), dependences(joint), strict=True):
            assert (mine.target, mine.source) == (other.target, other.source)
            assert mine.strength == pytest.approx(other.strength, abs=1e-9)

    def test_too_many_to_draw(self):
        chain = CoupledChain(np.eye(41), [[0.7, 0.3], [0.3, 0.7]])
        with pytest.raises(InputError, match="at most 40"):
            coupling_graph_figure(chain)
        assert coupling_graph_figure(chain.subchain(range(3))).axes
