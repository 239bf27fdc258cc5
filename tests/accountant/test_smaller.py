"""Forward components that are followed by the scalar and the slice state: the smaller counts, and never below truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.accountant.joint import JointComponent
from csdp.accountant.record import Lateness
from csdp.accountant.slice import SmallerComponent
from oracle import joint_kernel, likelihoods, mean_answers, reverse, stationary, worst

from bounds.test_influence import ring  # isort: skip
from accountant.systems import follow

KINDS = ("auto", "scalar", "vector")


def by_kind(plan: csdp.Plan) -> list[Accountant]:
    """The accountant's own choice, and either state alone."""
    own, *alone = (follow(plan, kind) for kind in KINDS)
    assert any(isinstance(component, SmallerComponent) for component in own.components)
    return [own, *alone]


def truth(coupling: np.ndarray, rows: np.ndarray, age: int, epsilon_c: float, releases: int) -> float:
    """Of the mean of binary sequences, over all histories of outputs."""
    s = len(coupling)
    kernel = joint_kernel(coupling, rows)
    law = stationary(kernel)
    answers, sensitivity = mean_answers(s, 2)
    back = [reverse(kernel, law)] * (age + releases)
    return worst(likelihoods(back, answers, epsilon_c / sensitivity, age, releases), s, 2, law)


def test_a_ring_of_six_is_certified_as_sharply_as_a_ring_of_twelve() -> None:
    chain = ring(6, 0.8, 0.3, 0.3, "forward")
    own, scalar, _ = by_kind(csdp.Plan(chain, csdp.Mean(), 1, 0.1))
    assert scalar.limit().epsilon == pytest.approx(0.519, abs=1e-3)
    assert own.limit().epsilon == pytest.approx(0.0860, abs=1e-4)
    assert (own.limit().bound, own.after(2).bound) == ("slice", "slice")
    assert own.ceiling() == pytest.approx(0.0860, abs=1e-4)
    exact = truth(chain.coupling, [[0.7, 0.3], [0.3, 0.7]], 1, 0.1, 3)
    assert exact <= own.after(3).epsilon <= 1.4 * exact


@pytest.mark.parametrize("seed", range(12))
def test_random_components_are_never_below_the_truth_nor_above_either_state(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = 6
    own = random.choice([0.3, 0.7, 0.9])
    coupling = own * np.eye(s) + (1 - own) * random.dirichlet(np.full(s, 0.5), size=s)
    p, q = random.choice([0.02, 0.1, 0.3], size=2)
    rows = np.array([[1 - p, p], [q, 1 - q]])
    age, epsilon_c = int(random.integers(0, 3)), float(random.choice([0.05, 0.5, 2.0]))
    accountants = by_kind(csdp.Plan(csdp.CoupledChain(coupling, rows), csdp.Mean(), age, epsilon_c))
    for releases in (1, 2, 3):
        exact = truth(coupling, rows, age, epsilon_c, releases)
        certified, *alone = (accountant.after(releases).epsilon for accountant in accountants)
        assert exact * (1 - 1e-10) <= certified <= min(alone) * (1 + 1e-12)
    for question in (Accountant.ceiling, Accountant.every_moment, lambda accountant: accountant.limit().epsilon):
        certified, *alone = map(question, accountants)
        assert certified <= min(alone) * (1 + 1e-12)
    # Gaps, other levels, late readings: the same at every moment of any history.
    states = [accountant.start() for accountant in accountants]
    for tick in np.cumsum(random.integers(1, 4, size=5)).tolist():
        late, level = bool(random.random() < 0.3), epsilon_c * float(random.choice([0.5, 1.0]))
        states = [
            accountant.release(state, tick, stale=late, epsilon_c=level)
            for accountant, state in zip(accountants, states, strict=True)
        ]
        for later in (0, 1, 40):
            certified, *alone = (
                accountant.epsilon(state, tick + later) for accountant, state in zip(accountants, states, strict=True)
            )
            assert certified <= min(alone) * (1 + 1e-12)
        certified, *alone = (accountant.peak(state) for accountant, state in zip(accountants, states, strict=True))
        assert certified <= min(alone) * (1 + 1e-12)


def test_neither_state_is_the_smaller_one_always() -> None:
    """Persistent sequences: one number is the smaller after some releases, the last slices in the long run."""
    own, scalar, slices = by_kind(csdp.Plan(ring(6, 0.8, 0.1, 0.1, "forward"), csdp.Mean(), 0, 0.1))
    assert own.after(5).epsilon == scalar.after(5).epsilon < slices.after(5).epsilon
    assert own.limit().epsilon == slices.limit().epsilon < 0.5 * scalar.limit().epsilon
    assert own.every_moment() == scalar.every_moment() < slices.every_moment() == math.inf


def test_a_late_reading_counts_where_it_was_read() -> None:
    plan = csdp.Plan(ring(6, 0.8, 0.3, 0.3, "forward"), csdp.Mean(), 1, 0.1, stale_limit=3)
    accountants = by_kind(plan)
    late = Lateness.from_delays([0, 2, 0, 0, 1, 0])
    states = [accountant.release(accountant.start(), 1, stale=late) for accountant in accountants]
    states = [one.release(state, 2) for one, state in zip(accountants, states, strict=True)]
    certified, *alone = (one.epsilon(state) for one, state in zip(accountants, states, strict=True))
    assert certified == pytest.approx(min(alone), rel=1e-12)


def test_a_clock_takes_the_smaller() -> None:
    chains = [ring(6, 0.8, p, 0.3, "forward") for p in (0.3, 0.4)]
    chain = csdp.EnvironmentChain(chains, cycle=(0, 1))
    own, *alone = by_kind(csdp.Plan(chain, csdp.Mean(), 1, 0.1))
    certified, *others = (each.after(3).epsilon for each in (own, *alone))
    assert certified == pytest.approx(min(others), rel=1e-12)


def test_a_change_of_plan_goes_on_from_both_states() -> None:
    chain = ring(6, 0.8, 0.3, 0.3, "forward")
    old = by_kind(csdp.Plan(chain, csdp.Mean(), 1, 0.1))
    new = by_kind(csdp.Plan(chain, csdp.Count(1), 1, 0.05))
    kept = [
        after.take_over(before, before.history(10), tick=10, cost=1e9) for before, after in zip(old, new, strict=True)
    ]
    certified, *alone = (after.epsilon(state, 10) for after, state in zip(new, kept, strict=True))
    assert certified == pytest.approx(min(alone), rel=1e-9)
    assert certified == pytest.approx(old[0].after(10).epsilon, rel=1e-6)


def test_the_slice_state_alone_comes_to_rest_if_the_scalar_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = csdp.Plan(ring(6, 0.8, 0.3, 0.3, "forward"), csdp.Mean(), 0, 6.0)
    monkeypatch.setattr(JointComponent, "state_at_rest", lambda _: None)
    own, _, slices = by_kind(plan)
    assert own.limit().epsilon == slices.limit().epsilon < math.inf
    assert own.ceiling() == slices.ceiling()
