"""A plan file carries everything that publishing needs besides readings and a ledger."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, Discretiser, Mean, Panel, Plan
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.planning.plan_file import PlanFile
from csdp.publisher import learn_from_past

CHAIN = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.95, 0.05], [0.05, 0.95]], names=["hall", "kitchen"])
PLAN = Plan(CHAIN, Mean(), ages=1, epsilon_c=2.0)


def test_what_is_saved_is_loaded_and_the_plan_keeps_its_digest(tmp_path):
    past = Panel.from_states(CHAIN.simulate(600, seed=1), names=CHAIN.names)
    states = Discretiser.declared(CHAIN.names, edges=[20.0], bounds=[0, 40])
    file = PlanFile(PLAN, "then", learn_from_past(PLAN, past, about="then"), states)
    file.save(tmp_path / "plan.json")
    loaded = PlanFile.load(tmp_path / "plan.json")
    assert (loaded.plan.digest, loaded.about, loaded.discretiser) == (PLAN.digest, "then", states)
    assert loaded.estimator.to_dict() == file.learned.to_dict()


def test_a_plan_alone_is_a_plan_file(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    loaded = PlanFile.load(tmp_path / "plan.json")
    assert (loaded.plan, loaded.discretiser, loaded.estimator.about) == (PLAN, None, "now")


@pytest.mark.parametrize("until", [None, 150, "2016-11-15", "2024-07-01T08:00:00Z"])
def test_the_end_of_the_public_past_is_kept(tmp_path, until):
    PlanFile(PLAN, until=until).save(tmp_path / "plan.json")
    assert PlanFile.load(tmp_path / "plan.json").until == until
    assert ("until" in json.loads((tmp_path / "plan.json").read_text())) == (until is not None)


@pytest.mark.parametrize("until", [True, 1.5, "tomorrow", "", ["2016"]])
def test_an_end_of_the_past_that_is_no_time_is_refused(tmp_path, until):
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN.to_dict(), "until": until}))
    with pytest.raises(InputError, match=r"plan\.json: until: .* given"):
        PlanFile.load(tmp_path / "plan.json")


def test_an_estimator_of_another_plan_is_refused(tmp_path):
    past = Panel.from_states(CHAIN.simulate(600, seed=1), names=CHAIN.names)
    other = learn_from_past(Plan(CHAIN, Mean(), ages=1, epsilon_c=1.0), past)
    content = {**PLAN.to_dict(), "estimator": other.to_dict()}
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"plan\.json: estimator: made for the plan"):
        PlanFile.load(tmp_path / "plan.json")


def test_a_discretiser_from_private_readings_or_with_too_many_states_is_refused():
    readings = np.random.default_rng(1).normal(size=(100, 2))
    with pytest.warns(PrivacyLeakWarning):
        private = Discretiser.fit(readings, states=2)
    with pytest.raises(InputError, match="private readings"):
        PlanFile(PLAN, discretiser=private)
    with pytest.raises(InputError, match="3 states given, the chain has 2"):
        PlanFile(PLAN, discretiser=Discretiser.declared(CHAIN.names, edges=[1.0, 2.0]))


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(InputError, match=r"no such file; `csdp plan`"):
        PlanFile.load(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        PlanFile.load(tmp_path / "plan.json")
