"""Pasts are drawn from the model: against the law of the aged snapshot that the oracle finds by walking forward."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from csdp import CoupledChain
from csdp.audit.presents import PastSampler
from oracle import aged_law, joint_kernel

ALARM = 1e-10
T3 = [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
CASES = {
    "skewed": ([[1.0]], [[0.99, 0.01], [0.3, 0.7]], (2,)),
    "pair": ([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], (1, 3)),
    "three states": ([[0.6, 0.4], [0.3, 0.7]], T3, (2, 1)),
    "periodic": ([[0.0, 1.0], [1.0, 0.0]], [[0.2, 0.8], [0.9, 0.1]], (3, 1)),
    "independent": ([[1.0, 0.0], [0.0, 1.0]], [[0.7, 0.3], [0.1, 0.9]], (1, 2)),
}


def drawn(chain, ages, present, count, seed):
    depths = sorted(set(ages))
    slices = PastSampler(chain, depths).draw(present, count, np.random.default_rng(seed))
    return np.stack([slices[:, depths.index(age), i] for i, age in enumerate(ages)], axis=1)


def p_value(readings, law, states):
    numbers = np.ravel_multi_index(tuple(readings.T), (states,) * readings.shape[1])
    counts, expected = np.bincount(numbers, minlength=law.size), law * len(readings)
    assert counts[law <= 0].sum() == 0, "something impossible was drawn"
    seen = law > 0
    statistic = ((counts[seen] - expected[seen]) ** 2 / expected[seen]).sum()
    return float(stats.chi2.sf(statistic, max(seen.sum() - 1, 1)))


@pytest.mark.parametrize("name", CASES)
def test_the_law_of_what_is_read_given_the_present(name):
    coupling, transitions, ages = CASES[name]
    chain = CoupledChain(coupling, transitions)
    s, m = chain.sequences, chain.states
    kernel = joint_kernel(coupling, transitions)
    rows, law = aged_law(kernel, s, m, ages)
    possible = np.flatnonzero(law > 0)
    for number in possible:
        present = np.unravel_index(number, (m,) * s)
        sample = drawn(chain, ages, [int(v) for v in present], 40_000, seed=int(number))
        assert p_value(sample, rows[number], m) > ALARM
    # As many samples find out a past that belongs to another present.
    apart = [n for n in possible if np.abs(rows[n] - rows[possible[0]]).sum() > 0.1]
    if apart:
        assert _rejects(sample_of=(chain, ages, m), rows=rows, first=possible[0], other=apart[-1])


def _rejects(sample_of, rows, first, other):
    chain, ages, m = sample_of
    present = [int(v) for v in np.unravel_index(other, (m,) * chain.sequences)]
    sample = drawn(chain, ages, present, 40_000, seed=99)
    try:
        return p_value(sample, rows[first], m) < ALARM
    except AssertionError:
        return True


def test_what_is_not_known_of_the_present_is_drawn_too():
    chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7]])
    rows, law = aged_law(joint_kernel([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7]]), 2, 2, (1, 2))
    mixed = (law[2] * rows[2] + law[3] * rows[3]) / (law[2] + law[3])  # x1 = 1, x2 unknown
    assert p_value(drawn(chain, (1, 2), [1, -1], 100_000, seed=1), mixed, 2) > ALARM
    assert p_value(drawn(chain, (1, 2), [1, 0], 100_000, seed=1), mixed, 2) < ALARM


def test_slices_of_one_past_hang_together():
    """Successive slices follow the chain: a permutation leaves no freedom at all."""
    turning = CoupledChain([[1.0]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    slices = PastSampler(turning, range(5)).draw([2], 50, np.random.default_rng(1))
    assert slices[:, :, 0].tolist() == [[2, 1, 0, 2, 1]] * 50
