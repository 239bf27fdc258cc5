"""Readings that are missing cost nothing: histories against enumeration, the gate, batches, restarts and replays."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import csdp
from accountant.systems import follow
from csdp import fran
from csdp.accountant import Accountant
from csdp.accountant.record import Lateness
from csdp.errors import InputError
from csdp.noise import Randomness
from csdp.publisher.sources import PanelSource
from oracle import joint_kernel, snapshots

RANGE = csdp.ReadingRange(0, 1, 1)


class Case:
    """A random backward chain of bits, whose readings are its states, and which of them each release read."""

    def __init__(self, seed, *, of=RANGE, rule="vector"):
        self.rule = rule
        rng = np.random.default_rng(seed)
        self.s, self.releases = (2, 3) if seed % 2 else (3, 2)
        self.coupling = rng.dirichlet(np.ones(self.s), size=self.s)
        self.transitions = 0.8 * rng.dirichlet(np.ones(2), size=(self.s, self.s, 2)) + 0.1
        self.age, self.epsilon_c = int(rng.integers(0, 3)), float(rng.uniform(0.3, 2.0))
        self.read = rng.random((self.releases, self.s)) < 0.6  # oldest first
        self.chain = csdp.CoupledChain(self.coupling, self.transitions, direction="backward")
        query = (csdp.Mean, csdp.Sum)[seed % 2](of=of)
        self.plan = csdp.Plan(self.chain, query, self.age, self.epsilon_c)

    def certified(self, read, *, named=True):
        accountant = Accountant(self.plan) if self.rule == "sharpest" else follow(self.plan, self.rule)
        state = accountant.start()
        for tick, row in enumerate(read):
            missing = Lateness.from_delays(row.astype(int) - 1) if named else Lateness(unnamed=not row.all())
            state = accountant.release(state, tick, stale=missing)
        return accountant.leakage(state).epsilon, accountant.peak(state)

    def truth(self, *, scale):
        """The worst log ratio of all outputs: sums of those that were read, with noise of `scale(number read)`."""
        back, snaps = joint_kernel(self.coupling, self.transitions), np.array(snapshots(self.s, 2))
        answers = [snaps[:, row].sum(axis=1) for row in self.read]
        worst = 0.0
        for outputs in product(*map(np.unique, answers)):  # oldest first
            told = np.ones(len(snaps))
            for output, answer, row in zip(outputs, answers, self.read, strict=True):
                told = np.exp(-np.abs(output - answer) / scale(max(1, row.sum()))) * (back @ told)
            given = np.log(np.linalg.matrix_power(back, self.age) @ told)
            tensor = given.reshape((2,) * self.s)
            worst = max(worst, *(float(np.abs(np.diff(tensor, axis=i)).max()) for i in range(self.s)))
        return worst


@pytest.mark.parametrize("seed", range(40))
def test_no_history_with_gaps_is_below_enumeration(seed):
    case = Case(seed)
    epsilon, peak = case.certified(case.read)
    truth = case.truth(scale=lambda n: 1 / case.epsilon_c)  # of a sum of bits: Delta_f is 1, whoever was read
    assert truth <= epsilon * (1 + 1e-9)
    assert epsilon <= peak * (1 + 1e-9)
    whole, _ = case.certified(np.ones_like(case.read))
    assert epsilon <= whole * (1 + 1e-9)


@pytest.mark.parametrize("rule", ["sharpest", "metric", "scalar", "vector"])
def test_no_history_of_states_with_gaps_is_below_enumeration(rule):
    """Where contributions cancel, a missing sequence may raise what a release reveals; whether it is named or not."""
    rose = 0
    for seed in range(60):
        case = Case(seed, of=None, rule=rule)
        truth = case.truth(scale=lambda n, case=case: 1 / case.epsilon_c)
        for named in (True, False):
            epsilon, peak = case.certified(case.read, named=named)
            assert truth <= epsilon * (1 + 1e-9)
            assert epsilon <= peak * (1 + 1e-9)
        whole, _ = case.certified(np.ones_like(case.read))
        rose += truth > whole * 1.01
    assert rose > 3 or rule in {"scalar", "vector"}, "no history shows that gaps must not be charged as planned"


@pytest.mark.parametrize("named", [True, False])
def test_the_first_release_of_a_sum_that_cancels(named):
    """Both sequences read: their sum reveals hardly anything. One of them missing: all of the other."""
    kernel = np.zeros((4, 4))
    kernel[:, 1] = kernel[:, 2] = 0.49  # one of two is in state 1
    kernel[:, 0] = kernel[:, 3] = 0.01
    kernel[1, 1] = kernel[2, 2] = 0.9
    kernel[1, 2] = kernel[2, 1] = 0.08
    chain = csdp.JointChain(kernel, states=2, sequences=2)
    plan = csdp.Plan(chain, csdp.Sum(), 1, 2.0)
    accountant = Accountant(plan)
    missing = Lateness.from_delays([0, -1]) if named else Lateness(unnamed=True)
    state = accountant.release(accountant.start(), 0, stale=missing)
    alone = csdp.leakage(chain, csdp.Linear([1.0, 0.0]), ages=1, epsilon_c=2.0).epsilon
    assert accountant.leakage(state).epsilon >= alone > 4 * accountant.after(1).epsilon


def test_noise_for_all_would_not_hide_a_mean_of_few():
    """The rule (hi - lo) / s for a mean of n < s readings: its noise on the sum is n / s of ours, and is caught."""
    caught = 0
    for seed in range(40):
        case = Case(seed)
        epsilon, _ = case.certified(case.read)
        caught += case.truth(scale=lambda n, case=case: n / case.s / case.epsilon_c) > epsilon * 1.01
    assert caught >= 10


def test_the_noise_of_a_mean_of_few_is_that_of_few():
    """value * n - sum has the scale (hi - lo) / epsilon_c whatever n is; a scale of n / s of it is rejected."""
    plan = csdp.Plan(csdp.CoupledChain(np.eye(8), [[0.7, 0.3], [0.3, 0.7]]), csdp.Mean(of=RANGE), 0, 0.5)
    few = np.where(np.arange(8) < 2, 1.0, np.nan)
    outputs = fran.batch(plan, np.tile(few, (4000, 1)), Randomness.from_key(bytes(range(32))))
    noise = np.array([output.values[0] * 2 - 2 for output in outputs])
    assert {output.count for output in outputs} == {2}
    q = np.exp(-0.5)
    spread, error = 2 * q / (1 - q) ** 2, 6.5 * np.sqrt(5) * 2 * q / (1 - q) ** 2 / np.sqrt(4000)
    assert abs(np.mean(noise**2) - spread) < error
    assert abs(np.mean(noise**2) - spread / 16) > error
    assert outputs[0].noise == pytest.approx(spread / 4)


def flights(sequences=6):
    own = [[0.75, 0.25], [0.4, 0.6]]
    ring = {(i, (i + d) % sequences): w for i in range(sequences) for d, w in ((0, 0.8), (1, 0.2))}
    chain = csdp.CoupledChain(ring, own, direction="backward")
    return csdp.Plan(chain, csdp.Mean(of=RANGE), 1, 0.3)


def gaps(ticks=30, sequences=6, seed=4):
    rng = np.random.default_rng(seed)
    readings = rng.integers(0, 2, size=(ticks, sequences)).astype(float)
    readings[rng.random(readings.shape) < 0.3] = np.nan
    readings[5, :] = np.nan
    return readings


def panel_of(plan, readings):
    states = np.where(np.isnan(readings), -1, readings).astype(int)
    return replace(csdp.Panel.from_states(states, names=plan.model.names), readings=readings)


def test_batches_pushes_and_restarts_charge_the_same(tmp_path):
    plan, readings = flights(), gaps()
    with csdp.Publisher(plan, dataset="a", ledger=tmp_path / "batch.db") as publisher:
        batch = list(publisher.publish(panel_of(plan, readings)))
        assert csdp.replay(publisher.ledger).ok
    pushed = []
    for part in (range(10), range(10, 30)):  # the second process begins anew
        with csdp.Publisher(plan, dataset="a", ledger=tmp_path / "push.db") as publisher:
            if part[0]:
                publisher.observe(readings[part[0] - 1], time=part[0] - 1)
            outs = [publisher.push(readings[tick], time=tick) for tick in part]
            pushed += [out for out in outs if isinstance(out, csdp.Release)]
            assert csdp.replay(publisher.ledger).ok
    assert [r.tick for r in batch] == [r.tick for r in pushed]
    assert [r.count for r in batch] == [r.count for r in pushed]
    np.testing.assert_allclose([r.epsilon_s for r in batch], [r.epsilon_s for r in pushed], rtol=1e-9)
    with csdp.Publisher(plan, dataset="a", ledger=tmp_path / "whole.db") as publisher:
        whole = {r.tick: r.epsilon_s for r in publisher.publish(panel_of(plan, np.nan_to_num(readings)))}
    assert all(r.epsilon_s <= whole[r.tick] * (1 + 1e-9) for r in batch)
    assert np.mean([r.epsilon_s for r in batch]) < 0.97 * np.mean([whole[r.tick] for r in batch])


def test_charges_name_who_was_missing_and_replays_compare_it(tmp_path, monkeypatch):
    plan, readings = flights(), gaps()
    panel = panel_of(plan, readings)
    with csdp.Publisher(plan, dataset="a", ledger=tmp_path / "a.db") as publisher:
        publisher.publish(panel)
        entries = [entry for entry in publisher.ledger.entries("a") if entry.kind == "reserve"]
        recorded = {entry.tick: entry.data()["charge"].get("late") for entry in entries}
    for tick, record in recorded.items():
        absent = np.flatnonzero(np.isnan(readings[tick - 1])).tolist()
        assert record == ({"missing": absent} if absent else None)
    monkeypatch.setattr(
        PanelSource,
        "delays",
        lambda self, plan, ticks: np.tile(np.where(np.arange(6) < 5, -1, 0), (len(ticks), 1)),
    )
    with csdp.Publisher(plan, dataset="b", ledger=tmp_path / "b.db") as publisher:
        publisher.publish(panel)
        replayed = csdp.replay(publisher.ledger)
    assert any("recorded as missing" in finding.what for finding in replayed.findings)
    assert any("leakage of the present" in finding.what for finding in replayed.findings)


def test_small_systems_count_missing_ones_as_read(tmp_path):
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    plan = csdp.Plan(chain, csdp.Mean(of=RANGE), 1, 0.3)
    accountant = Accountant(plan)
    assert not accountant.counts_missing
    state = accountant.release(accountant.start(), 0, stale=Lateness.from_delays([-1, 0]))
    assert state.consecutive == 1  # as planned
    alike = csdp.Plan(csdp.CoupledChain(np.eye(40), [[0.7, 0.3], [0.3, 0.7]], direction="backward"), plan.query, 1, 0.3)
    assert not follow(alike, "vector").counts_missing


def test_records():
    late = Lateness(((2, (1,)),), (0, 3))
    assert Lateness.from_record(late.to_record()) == late
    assert Lateness.from_record({"1": [4]}) == Lateness(((1, (4,)),))
    assert Lateness.from_record(Lateness(unnamed=True).to_record()) == Lateness(unnamed=True)
    many = Lateness.from_delays(-(np.arange(300) % 2))
    assert isinstance(many.to_record()["missing"], str)
    assert Lateness.from_record(many.to_record()) == many
    for wrong in ({"missing": [1, 1]}, {"missing": [1], "1": [1]}, {"missing": [-1]}):
        with pytest.raises(InputError):
            Lateness.from_record(wrong)
    with pytest.raises(InputError):
        Lateness.from_delays([-2, 0])
