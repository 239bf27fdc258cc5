from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import Accountant, Ledger, Mean, Plan, datasets, leakage
from csdp.chain.files import load_model
from csdp.errors import InputError
from csdp.panel import Discretiser
from csdp.report.demo import CASES, prepare
from csdp.report.records import day_names, first_answers


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
        assert study.plan.epsilon_c < study.point_best.plan.epsilon_c

    def test_the_estimate_follows_the_truth_better_than_no_data(self, parking_demo):
        study = parking_demo.study
        plan, found = study.plan, study.estimate
        truth = first_answers(plan, study.prepared.rest)[:, None]
        start = int(study.prepared.rest.ticks[0])
        off, _, _ = found.estimator.errors(np.tile(truth, (27, 1)), plan.noise_variance, seed=1, start=start)
        usual = found.estimator.usual_at(start + np.arange(len(truth)))
        assert (off**2).mean() < 0.85 * np.nanmean((usual - truth) ** 2)  # over much noise, which no seed fixes
        assert study.published.errors.usual <= study.published.errors.constant
        assert found.kind in {"history", "seasonal"}
        assert found.usefulness > 0.25

    def test_it_draws_what_is_published(self, parking_demo):
        study = parking_demo.study
        for release, record in zip(study.published.batch, study.published.records, strict=True):
            assert (record.estimate, record.low, record.high) == (release.estimate[0], release.low[0], release.high[0])
        assert study.published.certificate.worth["about"] == "now"
        folder = parking_demo.files[0].parent
        assert study.published.certificate.worth["words"] in (folder / "share.html").read_text(encoding="utf-8")

    def test_no_figure_to_share_knows_the_truth(self, parking_demo):
        for path in parking_demo.files:
            if path.suffix == ".svg" or path.name == "share.html":
                assert "true value" not in path.read_text(encoding="utf-8"), path.name

    @pytest.mark.parametrize("name", CASES)
    def test_every_case_is_ready(self, name):
        prepared = prepare(name)
        assert len(prepared.rest) == prepared.case.publish
        assert prepared.past.times[-1] < prepared.rest.times[0]
        assert sorted(n for group in prepared.case.groups for n in group) == sorted(prepared.past.names)
        assert prepared.past.state_count == 2

    def test_unknown_data(self):
        with pytest.raises(InputError, match="'weather' given; the demonstration has parking"):
            prepare("weather")


def test_joint_chains_of_the_groups_are_told(parking_demo):
    study = parking_demo.study
    one = leakage(study.chain.without_family(), Mean(), ages=study.plan.ages, epsilon_c=study.plan.epsilon_c)
    assert study.coupled_leakage == pytest.approx(one.epsilon, rel=1e-9)
    assert study.joint_leakage > 0
    text = (parking_demo.files[0].parent / "share.html").read_text(encoding="utf-8")
    assert "Under joint chains of the groups" in text


def test_days_of_numbers_have_no_names():
    assert day_names([1, 2], ["1", "2"]) == []
