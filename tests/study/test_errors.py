"""Errors given the aged values, against enumeration and the paper's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from study.baselines.given_aged import error_given_aged

import csdp
from oracle import aged_law, snapshots

PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


@pytest.mark.parametrize("ages", [(1, 2), (0, 0)])
def test_given_aged_values_against_enumeration(ages):
    backward, law = aged_law(PAPER.kernel(), 2, 2, ages)
    states = np.array(snapshots(2, 2))
    now = np.nan_to_num(backward)[:, states.tolist().index([1, 0])] * law
    expected = (now / now.sum()) @ (states.mean(axis=1) - 0.5) ** 2
    found = error_given_aged(PAPER, csdp.Mean(), ages=ages, epsilon_c=1.0, given=[1, 0])
    assert found.aging == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "target", "printed"), [([1, 1], 0.6, 1.49), ([1, 1], 1.0, 0.89), ([1, 0], 0.6, 1.03), ([1, 0], 1.0, 0.76)]
)
def test_the_papers_optimal_noise_levels_follow_from_independent_marginals(given, target, printed):
    asked = {"ages": 20, "given": given, "law": "independent-marginals"}
    error = error_given_aged(PAPER, csdp.Mean(), epsilon_c=1.0, **asked)
    level = 0.5 * np.sqrt(2.0 / (target - error.aging))
    assert round(level, 2) == printed
    assert error_given_aged(PAPER, csdp.Mean(), epsilon_c=level, **asked).mse == pytest.approx(target, rel=1e-6)


def test_the_true_law_asks_for_another_level():
    # With both aged values at 1 the true joint law has a larger aging error than independent marginals.
    true = error_given_aged(PAPER, csdp.Mean(), ages=20, epsilon_c=1.0, given=[1, 1]).aging
    assert true == pytest.approx(0.25 + csdp.mse(PAPER, csdp.Mean(), ages=20, epsilon_c=1.0).no_data, rel=1e-6)
    assert true > 0.375
