"""The posterior mean of one release: every output added up by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from study.baselines.posterior import PosteriorMean

import csdp
from csdp.query import tabulate
from oracle import aged_law, snapshots

SYMMETRIC = [[0.7, 0.3], [0.3, 0.7]]
PAIR = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], SYMMETRIC)
UNEVEN = csdp.CoupledChain([[0.9, 0.1], [0.5, 0.5]], [[0.95, 0.05], [0.4, 0.6]], values=[2, 5])
CHAINS = {
    "pair": PAIR,
    "uneven": UNEVEN,
    "one": csdp.CoupledChain([[1.0]], [[0.6, 0.3, 0.1], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]),
    "hub": csdp.CoupledChain([[1, 0, 0], [0.9, 0.1, 0], [0.9, 0, 0.1]], [[0.8, 0.2], [0.1, 0.9]]),
}


def add_up(chain, query, ages, level, about, estimate):
    """Error of an estimate (of the output) over all outputs that are likely at all, and of the best one."""
    asked = tabulate(query, chain)
    law_given, law = aged_law(chain.kernel(), chain.sequences, chain.states, ages, chain.stationary())
    joint = np.nan_to_num(law_given) * law[:, None]
    f = asked.evaluate(np.array(snapshots(chain.sequences, chain.states)), chain.value_table)[:, 0]
    truth = np.broadcast_to(f[:, None] if about == "now" else f[None, :], joint.shape)
    step = asked.spacing / asked.denominator
    rate = level * step / asked.sensitivity(1, chain.value_table)
    far = int(45 / rate)
    outputs = f.min() + step * np.arange(-far, round((f.max() - f.min()) / step) + far + 1)
    q = np.exp(-rate)
    given, best = 0.0, 0.0
    for y in outputs:
        weight = joint * ((1 - q) / (1 + q) * np.exp(-rate * np.abs(y - f) / step))
        mean = (weight * truth).sum() / weight.sum()
        given += (weight * (truth - estimate(y)) ** 2).sum()
        best += (weight * (truth - mean) ** 2).sum()
    return given, best


@pytest.mark.parametrize("about", ["now", "then"])
@pytest.mark.parametrize("query", [csdp.Mean(), csdp.Max()], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_the_stated_error_is_the_least_over_all_outputs(name, query, about):
    chain = CHAINS[name]
    for age, level in ((0, 1.0), (2, 3.0)):
        ages = [age] * chain.sequences
        made = PosteriorMean(chain, query, ages=ages, epsilon_c=level, then=about == "then")
        given, best = add_up(chain, query, ages, level, about, made.estimate)
        assert given == pytest.approx(made.mse, rel=1e-9, abs=1e-12)
        assert best == pytest.approx(made.mse, rel=1e-9, abs=1e-12)
        linear = csdp.mse(chain, query, ages=ages, epsilon_c=level, estimate="linear", about=about)
        assert made.mse <= linear.mse * (1 + 1e-12)
        shifted, _ = add_up(chain, query, ages, level, about, lambda y, one=made: one.estimate(y) + 0.05)
        assert shifted > made.mse * (1 + 1e-6)  # an estimate that is a little off is noticed
