"""One step of the joint law in its three forms: the same law, predicted work, and roundings that are allowed for."""

import numpy as np
import pytest

import csdp
from csdp.chain import steps

FLIP = [[0.7, 0.3], [0.3, 0.7]]


def ring(s):
    eye = np.eye(s)
    return csdp.CoupledChain(0.8 * eye + 0.1 * (np.roll(eye, 1, axis=1) + np.roll(eye, -1, axis=1)), FLIP)


#: who follows whom: a line, a ring, a hub that all follow, one who follows all, some that nobody follows
FOLLOWED = {
    "ring": [[0, 1, 5], [1, 2, 0], [2, 3, 1], [3, 4, 2], [4, 5, 3], [5, 0, 4]],
    "hub": [[0], [0, 1], [0, 2], [0, 3], [0, 4], [0, 5]],
    "unfollowed": [[1, 2], [2], [3], [3, 2], [1, 3], [2, 3]],
    "turned": [[5], [3], [4, 2], [0], [1, 0], [2]],
}


@pytest.mark.parametrize("who", FOLLOWED)
def test_sparse_steps_are_those_of_the_kernel(who):
    """In both directions of time, each next state in the place of its own sequence."""
    random = np.random.default_rng(3)
    coupling = np.zeros((6, 6))
    for target, sources in enumerate(FOLLOWED[who]):
        coupling[target, sources] = random.dirichlet(np.ones(len(sources)))
    chain = csdp.CoupledChain(coupling, random.dirichlet(np.ones(2), (6, 6, 2)))
    step, kernel = steps.TensorStep(chain.local), chain.kernel()
    h = random.random((64, 3))
    assert step.push(h) == pytest.approx(kernel.T @ h, rel=1e-12)
    assert step.pull(h) == pytest.approx(kernel @ h, rel=1e-12)


def test_the_depth_of_a_sparse_step_counts_its_sums():
    """Terms that are added up, a product, and one for each next state; what nobody follows is summed out first."""
    coupling = np.zeros((9, 9))
    coupling[0, :6] = 1 / 6
    coupling[1:, 8] = 1.0
    step = csdp.CoupledChain(coupling, FLIP).step
    assert isinstance(step, steps.TensorStep)
    assert step.depth == (64 + 1 + 1) + (2 + 1 + 8) + 4
