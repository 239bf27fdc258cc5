from __future__ import annotations

from csdp import CoupledChain, Mean, Panel, Plan
from csdp.report.series import truth_records

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def test_answers_of_ticks_with_a_missing_reading_are_not_known():
    states = PAPER.simulate(50, seed=1)
    states[5, 1] = -1
    known = truth_records(Plan(PAPER, Mean(), 1, 1.0), Panel.from_states(states))
    assert [record.tick for record in known] == [*range(5), *range(6, 50)]
