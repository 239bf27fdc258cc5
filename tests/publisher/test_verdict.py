"""The verdict on a model travels with its numbers: into files, the gate, certificates, pages, streams, the service."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import csdp
from csdp.chain import Evidence, Family, FitRecord
from csdp.chain.files import load_model, save_model
from csdp.errors import AlteredPlanError, BudgetExceeded, PrivacyLeakWarning, UncheckedModelError
from csdp.report.certificate import UNPAID_WORDS, certify
from csdp.report.page import report_ledger

SLOW = 0.97
EQUAL = [[0.98, 0, 0, 0.02], [0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5], [0.02, 0, 0, 0.98]]  # two sequences, always equal
REFUSED = "MODEL REJECTED by its public past: .*nothing was published.*model_unchecked=True"


def slow_states(ticks: int, sequences: int, seed: int) -> np.ndarray:
    """A slow autoregression cut into two states: its past says more about the present than its newest state."""
    noise = np.random.default_rng(seed).normal(size=(ticks, sequences))
    level = np.zeros_like(noise)
    for t in range(1, ticks):
        level[t] = SLOW * level[t - 1] + math.sqrt(1 - SLOW**2) * noise[t]
    return (level > 0).astype(np.int8)


def own_chain(states: np.ndarray) -> csdp.CoupledChain:
    """The frequencies of single steps, back in time; no tests, no class."""
    sequences = states.shape[1]
    counts = np.zeros((sequences, 2, 2))
    np.add.at(counts, (np.arange(sequences), states[1:], states[:-1]), 1)
    moves = np.zeros((sequences, sequences, 2, 2))
    moves[...] = 0.5
    moves[np.arange(sequences), np.arange(sequences)] = counts / counts.sum(axis=2, keepdims=True)
    return csdp.CoupledChain(np.eye(sequences), moves, direction="backward")


@pytest.fixture(scope="module")
def rejected():
    states = slow_states(3000, 5, seed=1)
    return csdp.check_model(own_chain(states), states)


@pytest.fixture(scope="module")
def declared():
    return csdp.CoupledChain([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]])


def publish(plan, folder, **options):
    with csdp.Publisher(plan, dataset="d", ledger=folder / "ledger.db", **options) as publisher:
        batch = publisher.publish(csdp.Panel.from_states(slow_states(30, plan.model.sequences, seed=2)))
        return batch, certify(publisher, publisher.ledger), publisher.summary()


def test_a_certificate_of_the_rejected_model_would_be_too_low(rejected):
    """The reason for all of this: the lag-13 frequencies of every sequence show more than is certified."""
    from csdp.age_check import observed_leakage

    age = 13
    certified = csdp.leakage(rejected.without_family(), "sum", ages=age, epsilon_c=1.0).epsilon
    parts = np.tile(np.array([[0.0], [1.0]]), (5, 1, 1))
    shown = observed_leakage(rejected.evidence.counts[age - 1], parts, 1.0, lag=age, level=None)
    assert (shown > certified).all()


def test_the_gate_refuses_a_rejected_model(rejected, tmp_path):
    plan = csdp.Plan(rejected, "mean", 2, 0.5)
    assert (rejected.verdict.status, plan.verdict.status) == ("rejected", "rejected")
    with pytest.raises(UncheckedModelError, match=REFUSED):
        publish(plan, tmp_path)
    assert not (tmp_path / "ledger.db").exists()


def test_the_verdict_survives_files_and_what_is_made_of_a_model(rejected, tmp_path):
    save_model(rejected, tmp_path / "chain.json")
    again = load_model(tmp_path / "chain.json")
    plan = csdp.Plan(again, "mean", 2, 0.5)
    read = csdp.Plan.from_json(plan.to_json())
    parts = [again, again.subchain([0, 1]), *Family([again]).members]
    assert {part.verdict.status for part in parts} == {"rejected"}
    assert read.verdict == plan.verdict
    assert read.digest == plan.digest
    assert "MODEL REJECTED" in repr(read)
    assert "MODEL REJECTED" in repr(read.certified)


def test_no_chain_passes_for_one_that_was_accepted(rejected):
    """The verdict is in the digest: a plan whose chain was edited to be accepted, or never tested, is refused."""
    plan = csdp.Plan(rejected, "mean", 2, 0.5)
    content = json.loads(plan.to_json())
    for evidence in ({"status": "accepted", "reason": ""}, None):
        edited = json.loads(json.dumps(content))
        edited["chain"][0]["evidence"] = evidence
        with pytest.raises(AlteredPlanError):
            csdp.Plan.from_json(json.dumps(edited))


def test_with_the_flag_every_output_says_so_first_and_leads_with_the_event_level(rejected, tmp_path):
    batch, certificate, summary = publish(csdp.Plan(rejected, "mean", 2, 0.5), tmp_path, model_unchecked=True)
    assert certificate.promises[0].name == "event"
    assert certificate.sentence.startswith("MODEL REJECTED by its public past")
    assert f"epsilon {certificate['event'].epsilon:g} " in certificate.sentence
    assert "ONLY IF the sequences follow the model" in certificate["present"].holds
    assert certificate.to_dict()["model"]["status"] == summary["model"]["status"] == "rejected"
    assert summary["guarantee"]["words"][0].startswith("MODEL REJECTED")
    assert {release.model for release in batch} == {"rejected"}
    panel = csdp.Panel.from_states(slow_states(30, 5, seed=2))
    report_ledger(tmp_path / "ledger.db", tmp_path / "report", dataset="d", version="0", panel=panel)
    for name in ("share.html", "index.html"):
        page = (tmp_path / "report" / name).read_text()
        assert page.index("MODEL REJECTED") < page.index("<h1>")
    with csdp.Ledger.open(tmp_path / "ledger.db") as ledger:
        assert any("MODEL REJECTED" in note for note in csdp.replay(ledger).notes)


def test_a_change_of_plan_is_refused_likewise(rejected, tmp_path):
    start = csdp.CoupledChain(np.eye(5), [[0.9, 0.1], [0.2, 0.8]])
    with csdp.Publisher(csdp.Plan(start, "mean", 2, 0.5), dataset="d", ledger=tmp_path / "l.db") as publisher:
        worse = csdp.Plan(rejected, "mean", 2, 0.5)
        with pytest.raises(UncheckedModelError, match=REFUSED):
            publisher.change_plan(worse, from_tick=5)
        assert publisher.change_plan(worse, from_tick=5, model_unchecked=True).plan == worse


def test_a_declared_model_needs_no_flag_and_is_called_declared(declared, tmp_path):
    _, certificate, summary = publish(csdp.Plan(declared, "mean", 1, 0.5), tmp_path)
    assert certificate.promises[0].name == "present"
    assert "(Model declared, not tested)" in certificate.sentence
    assert summary["model"]["status"] == "declared"


def test_a_fit_of_an_earlier_version_counts_as_not_tested(declared, tmp_path):
    old = declared.carrying(fitted=FitRecord("em", 499, public=True))  # as a file of 0.2 has it
    with pytest.raises(UncheckedModelError, match="MODEL NOT TESTED: fitted by a version of csdp that did not"):
        publish(csdp.Plan(old, "mean", 1, 0.5), tmp_path)
    past = declared.simulate(500, seed=2)
    assert csdp.check_model(old, past).verdict.status == "accepted"


def test_a_model_is_judged_by_a_past_that_contradicts_it(declared):
    assert csdp.check_model(declared, declared.simulate(2000, seed=1)).verdict.status == "accepted"
    assert csdp.check_model(declared, slow_states(2000, 2, seed=1)).verdict.status == "rejected"
    assert csdp.check_model(declared, declared.simulate(60, seed=1)).verdict.status == "untested"


def test_what_a_past_accepts_is_the_class_and_not_its_point(declared, tmp_path):
    """The class may have grown: a memory, edges, slow levels. What is made of the chain alone has none of them."""
    graph = csdp.InfluenceGraph.declared(declared.names, own=0.6, others={("x1", "x2"): 0.3, ("x2", "x1"): 0.5})
    point = declared.carrying(evidence=Evidence("accepted"))
    chain = point.carrying(evidence=Evidence("accepted"), family=graph.with_point(point))
    assert csdp.Plan(chain, "mean", 0, 0.5).verdict.status != "rejected"
    assert chain.verdict.status == "accepted"
    for alone in (chain.without_family(), chain.subchain([0, 1])):
        assert alone.verdict.status == "untested"
        with pytest.raises(
            UncheckedModelError, match="accepts the class that was grown around it, not the chain alone"
        ):
            publish(csdp.Plan(alone, "mean", 0, 0.5), tmp_path)


# ---- fits that are neither public nor paid for ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def unpaid(declared):
    with pytest.warns(PrivacyLeakWarning, match="infinite epsilon"):
        return csdp.fit(declared.simulate(500, seed=3))


def test_an_unpaid_fit_of_private_readings_costs_an_infinite_epsilon(unpaid, tmp_path):
    plan = csdp.Plan(unpaid, "mean", 1, 0.5)
    assert unpaid.verdict.status == "untested"
    with pytest.raises(BudgetExceeded, match="infinite, above its limit 10"):
        publish(plan, tmp_path, event_limit=10.0, model_unchecked=True)
    folder = tmp_path / "without-limit"
    folder.mkdir()
    _, certificate, summary = publish(plan, folder, model_unchecked=True)
    assert certificate["event"].epsilon == certificate["group"].epsilon == summary["event_level"] == math.inf
    assert certificate.not_promised[0] == UNPAID_WORDS
    report_ledger(folder / "ledger.db", folder / "report", dataset="d", version="0")
    assert "reveal them without limit" in (folder / "report" / "share.html").read_text()
    with csdp.Ledger.open(folder / "ledger.db") as ledger:
        assert not csdp.replay(ledger).findings


def test_the_cost_of_an_unpaid_fit_is_carried_along(unpaid):
    made = [unpaid.without_family(), unpaid.subchain([0, 1]), Family([unpaid, unpaid])]
    for model in (*made, csdp.CoupledChain.from_dict(json.loads(unpaid.to_json()))):
        assert math.inf in csdp.chain.private_fits(model).values()


def test_an_unpaid_fit_that_an_earlier_version_recorded_costs_as_much(unpaid, declared, tmp_path):
    """Its chain has the record of the fit, but no cost; and a later plan does not take the cost back."""
    old = unpaid.without_family().carrying(fitted=unpaid.fitted)
    with csdp.Publisher(
        csdp.Plan(old, "mean", 1, 0.5), dataset="d", ledger=tmp_path / "l.db", model_unchecked=True
    ) as publisher:
        publisher.push([0, 0], time=0)
        publisher.push([0, 1], time=1)
        assert publisher.summary()["event_level"] == math.inf
        later = publisher.change_plan(csdp.Plan(declared, "mean", 1, 0.5), from_tick=5)
        assert later.summary()["event_level"] == math.inf


# ---- the plan's own ages -------------------------------------------------------------------------------------------


def delayed_copies(ticks: int, sequences: int, lag: int, seed: int) -> np.ndarray:
    """Each state repeats the one some ticks ago, half of the time: no test of one step, or two, can see it."""
    random = np.random.default_rng(seed)
    states = random.integers(0, 2, size=(ticks, sequences))
    kept = random.random((ticks, sequences)) < 0.5
    for t in range(lag, ticks):
        states[t] = np.where(kept[t], states[t - lag], states[t])
    return states


def test_what_the_data_show_at_the_plans_own_age_rejects_the_model():
    states = delayed_copies(2000, 4, lag=5, seed=1)
    chain = csdp.check_model(own_chain(states), states)
    assert chain.verdict.status == "accepted"
    assert csdp.Plan(chain, "mean", 4, 1.0).verdict.status == "accepted"
    plan = csdp.Plan(chain, "mean", 5, 1.0)
    assert plan.certified.epsilon < 0.1
    assert plan.verdict.status == "rejected"
    assert "at age 5 the public past of" in plan.verdict.reason
    assert csdp.Plan(chain, "mean", [5, 1, 1, 1], 1.0).verdict.status == "rejected"
    assert csdp.Plan(chain, "max", 5, 1.0).verdict.status == "rejected"


def test_an_age_beyond_what_was_counted_is_not_tested(declared):
    chain = csdp.check_model(declared, declared.simulate(200, seed=1))
    assert csdp.Plan(chain, "mean", 10, 1.0).verdict.status == "accepted"
    assert csdp.Plan(chain, "mean", 11, 1.0).verdict.status == "untested"


@pytest.mark.parametrize(
    "truth",
    [
        csdp.CoupledChain(np.eye(3), [[0.95, 0.05], [0.1, 0.9]], direction="backward"),
        csdp.CoupledChain(np.eye(2), [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]),
        csdp.CoupledChain([[0.1, 0.9], [0.9, 0.1]], [[0.95, 0.05], [0.05, 0.95]]),  # others explain most of it
        csdp.JointChain(EQUAL, states=2, sequences=2),
    ],
    ids=["independent", "three states", "coupled", "always equal"],
)
def test_a_right_model_is_not_rejected_at_any_age(truth):
    """Level 0.001 for each of 75 plans, each seed fixed."""
    for seed in range(25):
        tested = csdp.check_model(truth, truth.simulate(1500, seed=seed))
        counts = Evidence("accepted", "", tested.evidence.sequences, tested.evidence.counts)
        model = truth.carrying(evidence=counts)
        for age in (1, 3, 10):
            assert csdp.Plan(model, "sum", age, 1.0).verdict.status == "accepted"


def test_frequencies_never_show_more_than_the_exact_leakage():
    from csdp.age_check import observed_leakage

    random = np.random.default_rng(7)
    for _ in range(40):
        m, age = int(random.integers(2, 4)), int(random.integers(1, 5))
        rows = random.dirichlet(np.ones(m), size=m)
        chain = csdp.CoupledChain([[1.0]], rows, direction="backward")
        back = np.linalg.matrix_power(rows, age)
        shown = observed_leakage(1e9 * back[None], np.arange(m)[None, :, None] * 1.0, 1.5 / (m - 1), lag=1, level=None)
        assert shown[0] <= csdp.leakage(chain, "sum", ages=age, epsilon_c=1.5).epsilon + 1e-12
