from __future__ import annotations

import json
import math

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, JointChain, Ledger, Mean, Panel, Plan, datasets, leakage
from csdp.chain.files import load_model
from csdp.errors import InputError
from csdp.estimate.error import noise_variance
from csdp.panel import Discretiser
from csdp.report.demo import CASES, prepare
from csdp.report.figures import coupling_graph_figure
from csdp.report.page import day_names
from csdp.report.records import dependences, first_answers, public_estimate


class TestDemo:
    def test_it_is_the_real_thing(self, parking_demo):
        study = parking_demo.study
        data = datasets.load("parking")
        assert study.prepared.past.times[-1] < np.datetime64(data.past_ends) <= study.prepared.rest.times[0]
        assert study.chain.fitted.public
        assert len(study.chain.family) == study.chain.fitted.ensemble + 1 > 3
        assert study.plan.chain == study.chain.family
        folder = parking_demo.files[0].parent
        with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
            assert ledger.verify() == []
            assert ledger.summary("parking").committed == len(study.published.batch) >= 55
        certificate = json.loads((folder / "released.csv.certificate.json").read_text())
        assert certificate["guarantees"]["present"]["ceiling"] == study.prepared.case.budget <= 1
        assert load_model(folder / "chain.json").digest == study.chain.digest
        assert Discretiser.load(folder / "discretiser.json") == study.prepared.discretiser

    def test_the_family_is_certified_and_the_point_estimate_is_beside(self, parking_demo):
        study = parking_demo.study
        assert 0.999 * study.prepared.case.budget <= study.ceiling <= study.prepared.case.budget
        assert study.ceiling == Accountant(study.plan).ceiling()
        assert max(r.epsilon for r in study.published.leakage) <= study.ceiling
        alone = Accountant(Plan(study.chain.without_family(), Mean(), study.plan.ages, study.plan.epsilon_c))
        assert alone.ceiling() <= study.ceiling
        assert study.plan.epsilon_c < study.point_plan.epsilon_c

    def test_the_estimate_follows_the_truth_better_than_no_data(self, parking_demo):
        study = parking_demo.study
        plan, rest, found = study.plan, study.prepared.rest, study.estimate
        age, truth = plan.ages[0], first_answers(study.plan, study.prepared.rest)
        noise = noise_variance(plan.model, plan.query, plan.epsilon_c)
        expected, usual = [], []
        for t in range(age, truth.size):  # over the noise, which no seed fixes: in closed form
            slot = found.at(rest.times[t])
            off = slot.usual + slot.gain * (truth[t - age] - slot.usual_aged) - truth[t]
            expected.append(off**2 + slot.gain**2 * noise)
            usual.append((slot.usual - truth[t]) ** 2)
        assert np.nanmean(expected) < 0.85 * np.nanmean(usual)
        assert np.nanmean(usual) == pytest.approx(study.published.errors.usual, rel=0.1)
        assert study.published.errors.usual < study.published.errors.constant
        assert found.mse < 0.75 * found.no_data

    def test_no_figure_to_share_knows_the_truth(self, parking_demo):
        for path in parking_demo.files:
            if path.suffix == ".svg" or path.name == "share.html":
                assert "true value" not in path.read_text(encoding="utf-8"), path.name

    @pytest.mark.parametrize("name", CASES)
    def test_every_case_is_ready(self, name):
        found = prepare(name)
        assert len(found.rest) == found.case.publish
        assert found.past.times[-1] < found.rest.times[0]
        assert sorted(n for group in found.case.groups for n in group) == sorted(found.past.names)
        assert found.past.state_count == 2

    def test_unknown_data(self):
        with pytest.raises(InputError, match="'weather' given; the demonstration has parking"):
            prepare("weather")


class TestEstimate:
    def chain(self):
        return CoupledChain([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]])

    def test_it_is_least_squares_with_noise(self):
        past = Panel.from_states(self.chain().simulate(3000, seed=1))
        plan = Plan(self.chain(), Mean(), 2, 1.5)
        slot = public_estimate(plan, past).at(0)
        answers = first_answers(plan, past)
        x, y = answers[:-2], answers[2:]
        noise = 2 * (0.5 / 1.5) ** 2
        # Least squares with noise of variance v on x is ridge regression with weight n v.
        expected = ((x - x.mean()) @ (y - y.mean())) / (((x - x.mean()) ** 2).sum() + x.size * noise)
        assert slot.gain == pytest.approx(expected, rel=1e-5)
        assert 0 < slot.error**2 < slot.spread

    def test_the_stated_error_is_the_error(self):
        past, new = (self.chain().simulate(n, seed=seed) for n, seed in ((20000, 1), (20000, 2)))
        plan = Plan(self.chain(), Mean(), 1, 2.0)
        found = public_estimate(plan, Panel.from_states(past))
        truth = first_answers(plan, Panel.from_states(new))
        noisy = truth[:-1] + np.random.default_rng(3).laplace(0, 0.25, truth.size - 1)
        slot = found.at(0)
        raw = slot.usual + slot.gain * (noisy - slot.usual_aged)
        assert ((raw - truth[1:]) ** 2).mean() == pytest.approx(found.mse, rel=0.05)
        clipped = np.array([found.of(value, 0) for value in noisy])
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


class TestGraph:
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


def test_joint_chains_of_the_groups_are_told(parking_demo):
    study = parking_demo.study
    one = leakage(study.chain.without_family(), Mean(), ages=study.plan.ages, epsilon_c=study.plan.epsilon_c)
    assert study.coupled_leakage == pytest.approx(one.epsilon, rel=1e-9)
    assert study.joint_leakage > 0
    text = (parking_demo.files[0].parent / "share.html").read_text(encoding="utf-8")
    assert "Under joint chains of the groups" in text


def test_days_of_numbers_have_no_names():
    assert day_names([1, 2], ["1", "2"]) == []
