from __future__ import annotations

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain, JointChain, Mean, Panel, Plan, Release
from csdp.errors import InputError
from csdp.report.figures import coupling_graph_figure
from csdp.report.series import Dependence, dependences, first_answers, release_records

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


def test_a_dependence_is_the_strongest_of_all_environments():
    follow = CoupledChain([[0.75, 0.25], [0, 1.0]], [[0.7, 0.3], [0.3, 0.7]])
    alone = CoupledChain([[1.0, 0], [0, 1.0]], [[0.6, 0.4], [0.1, 0.9]])
    expected = [Dependence(0, 0, 0.5), Dependence(0, 1, 0.1), Dependence(1, 1, 0.5)]
    for how in ({"cycle": (0, 1)}, {"switching": [[0.5, 0.5], [0.5, 0.5]]}):
        assert dependences(EnvironmentChain([follow, alone], **how)) == expected


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
