from __future__ import annotations

import math

import numpy as np
import pytest

from csdp import CoupledChain, JointChain, Mean, Panel, Plan, leakage
from csdp.errors import InputError
from csdp.noise import simulate_noise
from csdp.report.figures import coupling_graph_figure
from csdp.report.records import dependences, first_answers, leakage_by_age, public_estimate

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


class TestEstimate:
    def chain(self):
        return CoupledChain([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]])

    def test_it_is_least_squares_with_noise(self):
        past = Panel.from_states(self.chain().simulate(3000, seed=1))
        plan = Plan(self.chain(), Mean(), 2, 1.5)
        slot = public_estimate(plan, past).at(0)
        answers = first_answers(plan, past)
        x, y = answers[:-2], answers[2:]
        noise = plan.noise_variance
        # Least squares with noise of variance v on x is ridge regression with weight n v.
        expected = ((x - x.mean()) @ (y - y.mean())) / (((x - x.mean()) ** 2).sum() + x.size * noise)
        assert slot.gain == pytest.approx(expected, rel=1e-5)
        assert 0 < slot.error**2 < slot.spread

    def test_the_stated_error_is_the_error(self):
        past, new = (self.chain().simulate(n, seed=seed) for n, seed in ((20000, 1), (20000, 2)))
        plan = Plan(self.chain(), Mean(), 1, 2.0)
        estimate = public_estimate(plan, Panel.from_states(past))
        truth = first_answers(plan, Panel.from_states(new))
        noisy = truth[:-1] + 0.5 * simulate_noise(0.5, truth.size - 1, np.random.default_rng(3))
        slot = estimate.at(0)
        raw = slot.usual + slot.gain * (noisy - slot.usual_aged)
        assert ((raw - truth[1:]) ** 2).mean() == pytest.approx(estimate.mse, rel=0.05)
        clipped = np.array([estimate.of(value, 0) for value in noisy])
        assert ((clipped - truth[1:]) ** 2).mean() <= ((raw - truth[1:]) ** 2).mean()
        assert clipped.min() >= 0.0
        assert clipped.max() <= 1.0

    def test_times_of_day_have_their_own_law(self, parking_demo):
        estimate = parking_demo.study.estimate
        assert estimate.by_time
        usual = [slot.usual for _, slot in sorted(estimate.slots.items())]
        assert len(usual) == 9  # 08:00 to 16:00
        assert usual[0] < 0.1
        assert max(usual) > 0.5

    def test_missing_readings_and_unequal_ages(self):
        states = self.chain().simulate(50, seed=1)
        states[5, 1] = -1
        plan = Plan(self.chain(), Mean(), 1, 1.0)
        assert math.isnan(first_answers(plan, Panel.from_states(states))[5])
        assert public_estimate(plan, Panel.from_states(states)).mse > 0
        with pytest.raises(InputError, match="one common age"):
            public_estimate(Plan(self.chain(), Mean(), [1, 2], 1.0), Panel.from_states(states))
        with pytest.raises(InputError, match="fewer than three"):
            public_estimate(plan, Panel.from_states(states[:3]))


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
