"""Units: a person is several sequences, and the state of all of them at once is the secret."""

from __future__ import annotations

import os

import numpy as np
import pytest

import csdp
from bounds.test_influence import QUERIES, answers, random_system
from csdp.accountant import Accountant
from csdp.errors import InputError
from oracle import Output, World, joint_kernel, reverse, snapshots, stationary

#: Rounding of brute force itself.
ROUNDING = 1e-10


def told_of_unit(world, outputs, watched, unit):
    """Brute force: the largest log ratio of the history between presents that differ inside a unit only."""
    told, law = world.joint(outputs, watched)
    states = np.array(snapshots(world.s, world.m))
    others = [i for i in range(world.s) if i not in unit]
    best = 0.0
    for x in np.flatnonzero(law > 0):
        same = (states[:, others] == states[x, others]).all(axis=1) & (law > 0)
        ratios = (told[x] / law[x]) / (told[same] / law[same][:, None])
        best = max(best, float(np.log(ratios.max())))
    return best


def system(seed):
    """A model of up to three sequences, the kernel of its snapshots, and a unit of two of them."""
    random = np.random.default_rng(seed)
    s, m = [(2, 2), (3, 2), (2, 3)][seed % 3]
    coupling, rows = random_system(random, s, m)
    if seed % 2:
        coupling = np.eye(s)  # every sequence is a component by itself
    rows = 0.9 * rows + 0.1 / m
    backward = seed % 4 >= 2
    chain = csdp.CoupledChain(coupling, rows, direction="backward" if backward else "forward")
    kernel = joint_kernel(coupling, rows)
    law = stationary(kernel)
    return random, chain, reverse(kernel, law) if backward else kernel, (0, s - 1)


def compare(seed):
    """(certificate, brute force) of a random history."""
    random, chain, kernel, unit = system(seed)
    s, m = chain.sequences, chain.states
    query = QUERIES[random.choice(["mean", "max", "count", "histogram"])]
    age, releases = int(random.integers(0, 3)), int(random.integers(1, 3 if m**s > 4 else 4))
    epsilon_c = float(random.choice([0.2, 1.0, 3.0]))
    form = csdp.InfluenceGraph.from_chain(chain) if seed % 4 >= 2 and random.random() < 0.5 else chain
    accountant = Accountant(csdp.Plan(form, query, age, epsilon_c, units=[unit]))
    scale = query.sensitivity(1, chain.value_table)
    f = np.asarray(answers(query, s, m), dtype=float)
    outputs = [Output((n,) * s, f, epsilon_c / scale) for n in range(releases)]
    world = World(kernel, s, m)
    return accountant.after(releases).epsilon, told_of_unit(world, outputs, releases - 1 + age, unit)


def test_no_certificate_of_a_unit_is_below_brute_force():
    pairs = [compare(seed) for seed in range(2000 if os.environ.get("CSDP_FULL") else 36)]
    assert all(certified >= truth - ROUNDING for certified, truth in pairs)
    assert any(certified <= 1.02 * truth for certified, truth in pairs)


def test_two_sequences_that_are_always_equal():
    """No single one can change alone, so single values reveal nothing, and the unit everything."""
    equal = csdp.JointChain(
        [[0.9, 0, 0, 0.1], [0.25] * 4, [0.25] * 4, [0.1, 0, 0, 0.9]], states=2, sequences=2, names=["a", "b"]
    )
    alone, unit = (csdp.Plan(equal, "sum", 0, 1.0, units=units) for units in (None, [["a", "b"]]))
    assert alone.certified.epsilon < 1e-12
    assert unit.certified.epsilon == pytest.approx(2.0)
    assert Accountant(unit).event_level() == pytest.approx(2.0)


def test_a_unit_of_independent_sequences_adds_up():
    rooms = csdp.InfluenceGraph.declared(["a", "b", "c"], own=0.4)
    alone, unit = (Accountant(csdp.Plan(rooms, "mean", 1, 0.5, units=units)) for units in (None, [["a", "c"]]))
    assert unit.limit().epsilon == pytest.approx(2 * alone.limit().epsilon)
    assert unit.every_moment() == pytest.approx(2 * alone.every_moment())
    assert unit.event_level() == pytest.approx(2 * alone.event_level())


def test_a_plan_file_keeps_its_units():
    rooms = csdp.InfluenceGraph.declared(["a", "b", "c"], own=0.4)
    plan = csdp.Plan(rooms, "mean", 1, 0.5, units=[["c", "a"]])
    assert csdp.Plan.from_json(plan.to_json()) == plan
    assert plan.at(0.3).units == plan.units == ((0, 2),)
    assert plan != csdp.Plan(rooms, "mean", 1, 0.5)


@pytest.mark.parametrize(
    ("units", "words"), [(["ab"], "a list of lists"), ([["a", "x"]], "names of sequences"), ([["a", "a"]], "repeats")]
)
def test_wrong_units_are_refused(units, words):
    rooms = csdp.InfluenceGraph.declared(["a", "b"], own=0.4)
    with pytest.raises(InputError, match=words):
        csdp.Plan(rooms, "mean", 1, 0.5, units=units)


def test_sequences_of_a_unit_that_are_read_at_different_ages_cost_apart():
    """A maximum of both has the sensitivity of one; read by two releases, each of them counts."""
    rooms = csdp.InfluenceGraph.declared(["a", "b"], own=0.4)
    same, apart = (csdp.Plan(rooms, "max", ages, 0.5, units=[["a", "b"]]) for ages in (1, [0, 1]))
    assert Accountant(same).event_level() == pytest.approx(0.5)
    assert Accountant(apart).event_level() == pytest.approx(1.0)
    assert Accountant(apart).window_level(3) == pytest.approx(3.0)


def test_a_dataset_keeps_its_units(tmp_path):
    rooms = csdp.InfluenceGraph.declared(["a", "b", "c"], own=0.4)
    options = {"dataset": "home", "ledger": tmp_path / "ledger.db"}
    with csdp.Publisher(csdp.Plan(rooms, "mean", 0, 0.5), **options, event_limit=9.0) as publisher:
        publisher.push([0, 1, 1], time=0)
        with pytest.raises(InputError, match="keep its units"):
            publisher.change_plan(csdp.Plan(rooms, "mean", 0, 0.5, units=[["a", "b"]]), from_tick=1)


def test_a_private_fit_counts_for_every_sequence_of_a_unit(tmp_path):
    chain = csdp.CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]]).carrying(fit_cost={"epsilon": 0.25, "fit": "a"})
    plan = csdp.Plan(chain.with_values_of(chain, [0, 1]), "mean", 0, 0.5, units=[[0, 1]])
    options = {"dataset": "home", "ledger": tmp_path / "ledger.db", "model_unchecked": True}
    with csdp.Publisher(plan, **options, event_limit=9.0) as publisher:
        publisher.push([0, 1], time=0)
        assert publisher.summary()["event_level"] == pytest.approx(2 * 0.5 + 2 * 0.25)
