"""A memory of two steps, by pairs (present, previous) as states: what a certificate of pairs bounds, by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import csdp
from oracle import Array, Output, World, digits_of, joint_kernel, stationary

#: Two sequences copy the first one, which copies one of them: seldom wrong, and all of them plain chains of one step.
COPIES = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
ROWS = np.array([[0.95, 0.05], [0.05, 0.95]])
PRESENT = [0.0, 0.0, 1.0, 1.0]  # the value of a pair (present, previous) is that of its present


def pair_kernel(kernel: Array, s: int) -> Array:
    """The kernel on pairs of binary snapshots; the state of a sequence is 2 * present + previous."""
    snaps, place = digits_of(s, 2), 4 ** np.arange(s - 1, -1, -1)
    pairs = np.zeros((4**s, 4**s))
    for (w, before), (x, now), (y, after) in product(enumerate(snaps), repeat=3):
        del w
        pairs[(2 * now + before) @ place, (2 * after + now) @ place] = kernel[x, y]
    return pairs


def told_of_pairs(pairs: Array, s: int, age: int) -> float:
    """What one sum tells of the pair of a sequence, to somebody who knows the pairs of all others."""
    answers = (digits_of(s, 4) // 2).sum(axis=1, keepdims=True).astype(float)
    return World(pairs, s, 4).told([Output((-age,) * s, answers, 1.0)], 0, "informed")


@pytest.mark.parametrize(("age", "ordinary", "of_pairs"), [(1, 1.522376, 1.0), (3, 1.152237, 1.016748)])
def test_a_certificate_of_pairs_does_not_bound_who_knows_only_the_others_present(age, ordinary, of_pairs):
    kernel = joint_kernel(COPIES, np.broadcast_to(ROWS, (3, 3, 2, 2)))
    sums = digits_of(3, 2).sum(axis=1, keepdims=True).astype(float)
    truth = World(kernel, 3, 2).told([Output((-age,) * 3, sums, 1.0)], 0, "informed")
    pairs = pair_kernel(kernel, 3)
    assert truth == pytest.approx(ordinary, abs=1e-6)
    assert told_of_pairs(pairs, 3, age) == pytest.approx(of_pairs, abs=1e-6)
    # The same numbers from the library, whose chains on pairs are joint ones.
    plain = csdp.CoupledChain(COPIES, ROWS)
    assert csdp.leakage(plain, csdp.Sum(), ages=age, epsilon_c=1.0).epsilon == pytest.approx(ordinary, abs=1e-5)
    joint = csdp.JointChain(pairs, states=4, sequences=3, values=PRESENT)
    assert csdp.leakage(joint, csdp.Sum(), ages=age, epsilon_c=1.0).epsilon == pytest.approx(of_pairs, abs=2e-5)


@pytest.mark.parametrize("seed", range(6))
def test_for_sequences_that_follow_only_themselves_it_does(seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(2) * (1.0, 0.3)[seed % 2], size=(2, 2))  # of the next state, by present and previous
    pairs = np.zeros((4, 4))
    for now, before, after in product(range(2), repeat=3):
        pairs[2 * now + before, 2 * after + now] = rows[now, before, after]
    law, answers = stationary(pairs), np.array([[0.0], [0.0], [1.0], [1.0]])
    chain = csdp.CoupledChain([[1.0]], pairs, values=PRESENT)
    for age in (1, 2, 3):
        accountant = csdp.Accountant(csdp.Plan(chain, csdp.Sum(), age, 1.0))
        for releases in (1, 3):
            outputs = [Output((-age - n,), answers, 1.0) for n in range(releases)]
            joint = World(pairs, 1, 4, law).joint(outputs, 0)[0]
            given = np.log(joint.reshape(2, 2, -1).sum(axis=1) / law.reshape(2, 2).sum(axis=1)[:, None])
            assert accountant.after(releases).epsilon >= np.abs(given[0] - given[1]).max() * (1 - 1e-9)
