"""Windows of three sequences: against brute force over all output histories, and never above single sequences."""

import itertools

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.accountant.component import Caps
from csdp.accountant.fixed_point import follow_to_rest
from csdp.bounds.influence import InfluenceRule, influence_rule
from csdp.bounds.triples import Windows, windows_of
from oracle import joint_kernel

from bounds.test_influence import ring  # isort: skip

APART = 1.0 - np.eye(2)


def truth(kernel, s, costs, age):
    """(s, 2, 2), brute force: releases of sum(costs * values), all `age` old, one a tick, oldest last in `costs`.

    The worst log ratio of any history for every change of one present value.
    """
    values = np.array(list(itertools.product(range(2), repeat=s)))
    told = np.ones((1, 2**s))
    for cost in costs[::-1]:
        answers = values @ cost
        density = np.exp(-np.abs(np.unique(answers)[:, None] - answers))
        told = (told[:, None] * density).reshape(-1, 2**s) @ kernel.T
    for _ in range(age - 1):
        told = told @ kernel.T
    logs, worst = np.log(told).reshape(-1, *(2,) * s), np.zeros((s, 2, 2))
    for k, (a, b) in itertools.product(range(s), ((0, 1), (1, 0))):
        worst[k, a, b] = (logs.take(b, axis=k + 1) - logs.take(a, axis=k + 1)).max()
    return worst


def random_chain(random, s):
    """Coupling (on a ring, a line, or any) and transitions, some with zeros, some persistent or skewed."""
    shape, kind = random.integers(3), random.integers(4)
    coupling = random.dirichlet(np.full(s, 0.8), size=s) + 0.5 * np.eye(s)
    apart = np.abs(np.subtract.outer(np.arange(s), np.arange(s)))
    if shape < 2:
        coupling[np.minimum(apart, s - apart) > 1 if shape == 0 else apart > 1] = 0.0
    rows = random.dirichlet(np.full(2, [1.0, 0.2, 1.0, 1.0][kind]), size=(s, s, 2))
    if kind == 2:
        rows = 0.1 * rows + 0.9 * np.eye(2)
    if kind == 3:
        rows = rows * (random.random(rows.shape) < 0.8) + 1e-300
        rows = rows / rows.sum(axis=-1, keepdims=True)
    return coupling / coupling.sum(axis=1, keepdims=True), rows


def compare(seed):
    """(truth, windows, single sequences) of a random history; None where windows are too dear."""
    random = np.random.default_rng([11, seed])
    s, age = int(random.choice([3, 4, 5], p=[0.3, 0.6, 0.1])), int(random.integers(1, 5))
    coupling, rows = random_chain(random, s)
    chain = csdp.CoupledChain(coupling, rows, direction="backward")
    costs = random.choice([0.0, 0.5, 1.0], p=[0.1, 0.3, 0.6], size=(int(random.integers(1, 4)), s))
    costs *= float(random.choice([0.2, 1.0, 4.0]))
    rule = InfluenceRule(chain)
    try:
        windows = Windows(chain, rule)
    except OverflowError:
        return None
    state = rule.start()
    for cost in costs[::-1]:
        state = rule.add(rule.advance(state), cost[:, None, None] * APART)
    found = windows.present(windows.follow(state, age)[-1])
    return truth(joint_kernel(coupling, rows), s, costs, age), found, rule.advance(state, age)


def check_cases(seeds):
    found = [case for seed in seeds if (case := compare(seed)) is not None]
    assert len(found) > 0.7 * len(seeds)
    for exact, windows, singles in found:
        assert (windows >= exact - 1e-10).all()
        assert (windows <= singles * (1 + 1e-12)).all()
    assert sum(exact.max() > 0.01 for exact, _, _ in found) > 0.5 * len(found)
    assert sum(windows.max() < 0.9 * singles.max() for _, windows, singles in found) > 0.2 * len(found)
    return min(float((windows[exact > 0.01] / exact[exact > 0.01]).min(initial=9)) for exact, windows, _ in found)


def test_windows_are_never_below_brute_force_nor_above_single_sequences():
    assert check_cases(range(100)) < 1.01


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_histories():
    check_cases(range(1_000, 4_000))


def test_no_history_passes_the_cap_of_windows():
    for seed in range(25):
        random = np.random.default_rng([12, seed])
        s, age = int(random.choice([3, 4])), int(random.integers(1, 5))
        coupling, rows = random_chain(random, s)
        chain = csdp.CoupledChain(coupling, rows, direction="backward")
        rule = InfluenceRule(chain)
        windows = Windows(chain, rule)
        cap = windows.present(windows.follow(rule.unbounded(), age)[-1])
        exact = truth(joint_kernel(coupling, rows), s, np.full((2, s), 40.0) * 2.0 ** np.arange(s), age)
        assert (cap >= exact - 1e-10).all()
        assert (cap <= rule.cap(age) * (1 + 1e-12)).all()


@pytest.mark.parametrize("size", [7, 12])
def test_a_ring_has_the_values_of_the_theory_page(size):
    chain = ring(size, 0.8, 0.1, 0.1)
    rule, windows = influence_rule(chain), windows_of(chain)
    rest = follow_to_rest(rule.advance, 0.5 * APART + np.zeros((size, 1, 1)), APART)
    assert rule.advance(rest, 8).max() == pytest.approx(1.138, abs=5e-4)
    assert windows.present(windows.follow(rest, 8)[-1]).max() == pytest.approx(0.335, abs=5e-4)
    for age, single, cheap, exact in ((4, 1.988, 0.996, 0.895), (8, 1.305, 0.357, 0.282), (12, 0.813, 0.141, 0.102)):
        assert rule.cap(age).max() == pytest.approx(single, abs=5e-4)
        cap = windows.present(windows.follow(rule.unbounded(), age)[-1]).max()
        assert cap == pytest.approx(cheap, abs=5e-4)
        assert cap > exact


def test_the_accountant_takes_windows_for_readings_that_are_old():
    chain = ring(7, 0.8, 0.1, 0.1)
    alone = influence_rule(chain)
    for age in (0, 1, 2, 8):
        accountant = Accountant(csdp.Plan(chain, csdp.Mean(), age, 0.5))
        rest = follow_to_rest(alone.advance, 0.5 * APART + np.zeros((7, 1, 1)), APART)
        single, told = alone.advance(rest, age).max(), accountant.limit().epsilon
        assert told == pytest.approx(single, rel=1e-6) if age < 2 else told < 0.95 * single
        after = [accountant.after(n).epsilon for n in (1, 2, 40)]
        assert after == sorted(after)
        assert after[-1] <= told * (1 + 1e-9) <= accountant.ceiling() * (1 + 2e-9)
    caps = [Caps(chain, ()).at(steps)[0] for steps in range(1, 8)]
    assert caps == sorted(caps, reverse=True)


def test_the_peak_is_never_below_what_a_quiet_tick_reveals():
    """A hub: many sequences follow one, so that a state rises before it falls."""
    edges = {(k, 0): 0.7 for k in range(1, 6)} | {(k, k): 0.3 for k in range(1, 6)} | {(0, 0): 0.5, (0, 1): 0.5}
    hub = csdp.CoupledChain(edges, [[0.9, 0.1], [0.2, 0.8]], direction="backward")
    for chain in (ring(7, 0.3, 0.05, 0.2), hub):
        accountant = Accountant(csdp.Plan(chain, csdp.Mean(), 2, 1.0))
        state = accountant.release(accountant.release(accountant.start(0), 1), 3)
        later = [accountant.epsilon(state, 3 + n) for n in range(6)]
        assert max(later) <= accountant.peak(state) * (1 + 1e-6)


def test_windows_are_left_out_where_they_do_not_hold_or_are_dear():
    assert windows_of(ring(7, 0.8, 0.1, 0.1)) is not None
    assert windows_of(csdp.InfluenceGraph.from_chain(ring(7, 0.8, 0.1, 0.1))) is not None
    for other in (
        ring(5, 0.8, 0.1, 0.1),  # the joint state is sharper
        ring(7, 0.8, 0.1, 0.1, "forward"),
        csdp.InfluenceGraph.around(ring(7, 0.8, 0.1, 0.1), 0.01),  # limits alone
        ring(100, 0.8, 0.1, 0.1),
        csdp.CoupledChain(np.eye(6), [[0.9, 0.1], [0.1, 0.9]], direction="backward"),
        csdp.CoupledChain(np.full((9, 9), 1 / 9), [[0.9, 0.1], [0.1, 0.9]], direction="backward"),
    ):
        assert windows_of(other) is None
