"""The posterior mean of one release: reference values, and every output added up by brute force."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, TooLargeError
from csdp.estimate.single import PosteriorMean
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


@pytest.mark.parametrize(
    ("own", "level", "laplace", "share"),
    [
        (0.5, 0.5, 0.9364, 0.8958),
        (0.5, 1.0, 0.7863, 0.6883),
        (0.75, 0.5, 0.9375, 0.8976),
        (0.75, 1.0, 0.7895, 0.6928),
    ],
)
def test_reference_values_of_fresh_releases(own, level, laplace, share):
    """The best of Laplace noise with the linear estimate, and of noise on the lattice with the posterior mean."""
    chain = csdp.CoupledChain([[own, 1 - own], [1 - own, own]], SYMMETRIC)
    error = csdp.mse(chain, csdp.Mean(), ages=0, epsilon_c=level, estimate="posterior")
    assert error.mse / error.no_data == pytest.approx(share, abs=5e-5)
    assert csdp.leakage(chain, csdp.Mean(), ages=0, epsilon_c=level).epsilon == pytest.approx(level)
    assert 1 - error.usefulness == pytest.approx(share, abs=5e-5)
    noise = 2 * (0.5 / level) ** 2
    assert noise / (noise + error.no_data) == pytest.approx(laplace, abs=5e-5)


@pytest.mark.parametrize(
    ("sequences", "own", "level", "laplace", "ours"),
    [(2, 0.75, 1.0, 0.712, 0.583), (2, 0.75, 2.0, 0.382, 0.216), (6, 0.8, 1.0, 0.382, 0.320)],
)
def test_error_shares_of_slow_chains(sequences, own, level, laplace, ours):
    """Laplace noise and the linear estimate against noise on the lattice of the answers and the posterior mean."""
    coupling = np.full((sequences, sequences), (1 - own) / (sequences - 1))
    np.fill_diagonal(coupling, own)
    slow = csdp.CoupledChain(coupling, [[0.95, 0.05], [0.05, 0.95]])
    error = csdp.mse(slow, csdp.Mean(), ages=0, epsilon_c=level, estimate="posterior")
    noise = 2 * (1 / sequences / level) ** 2
    assert noise / (noise + error.no_data) == pytest.approx(laplace, abs=6e-4)
    assert error.mse / error.no_data == pytest.approx(ours, abs=6e-4)


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
@pytest.mark.parametrize("query", [csdp.Mean(), csdp.Sum(), csdp.Max(), csdp.Count(1)], ids=str)
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


def test_unequal_ages():
    made = PosteriorMean(UNEVEN, csdp.Sum(), ages=[1, 3], epsilon_c=2.0)
    assert add_up(UNEVEN, csdp.Sum(), [1, 3], 2.0, "now", made.estimate)[0] == pytest.approx(made.mse, rel=1e-9)


def test_what_has_no_posterior_is_refused():
    with pytest.raises(InputError, match=r"needs one output .* Use estimate='linear'"):
        csdp.mse(PAIR, csdp.Histogram(), ages=0, epsilon_c=1.0, estimate="posterior")
    odd = csdp.CoupledChain(np.eye(2), SYMMETRIC, values=[[0, 2], [0, 2**20]])
    with pytest.raises(TooLargeError, match="lattice points"):
        csdp.mse(odd, csdp.Sum(), ages=0, epsilon_c=1.0, estimate="posterior")
