"""A component seen backwards in time: powers, profiles, and the cost of a query that is not a sum."""

import math
from fractions import Fraction

import numpy as np
import pytest

import oracle as o
from accountant.systems import follow
from csdp import CoupledChain, Max
from csdp.accountant.kernels import BackwardKernel, ProfileTable
from csdp.plan import Plan

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7]])
BROKEN = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])


@pytest.mark.parametrize("alpha", [1e-6, 0.3, 2.0, 50.0])
def test_profiles_are_the_oracle_s(alpha: float) -> None:
    kernel = BackwardKernel(PAIR).power(1)
    profile = ProfileTable(kernel, relative=0.0).pairs(alpha)
    for x, y in np.ndindex(4, 4):
        assert profile[x, y] == pytest.approx(o.profile(kernel, [(x, y)], alpha), rel=1e-9, abs=1e-13)
        assert profile[x, y] >= o.profile(kernel, [(x, y)], alpha) - 4e-16  # the oracle's own rounding


def test_profiles_at_the_ends_of_alpha() -> None:
    """Nothing published tells nothing; everything published tells the log ratio, endless where a zero gives it away."""
    table = ProfileTable(BROKEN, relative=0.0)
    assert (table.pairs(0.0) == 0).all()
    whole = table.pairs(math.inf)
    assert whole[0, 1] == pytest.approx(math.log(2.5))
    assert whole[1, 0] == math.inf
    assert whole[1, 2] == pytest.approx(0.0, abs=2e-12)
    assert table.largest(math.inf) == math.inf


@pytest.mark.parametrize(
    ("flips", "steps"), [((0.3, 0.3), 7), ((0.01, 0.3), 1), ((1e-3, 2e-3), 500), ((0.999, 0.998), 64)]
)
def test_errors_of_powers_are_counted(flips: tuple[float, float], steps: int) -> None:
    """Against exact fractions: entries lie within the stated error, and no profile is below the true one."""
    p, q = (Fraction(flip) for flip in flips)
    alone = BackwardKernel(CoupledChain([[1.0]], [[1 - flips[0], flips[0]], [flips[1], 1 - flips[1]]]))
    stay = [(q + (1 - p - q) ** steps * p) / (p + q), (p + (1 - p - q) ** steps * q) / (p + q)]
    exact = [[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]
    for (x, w), entry in np.ndenumerate(alone.power(steps)):
        assert abs(Fraction(float(entry)) - exact[x][w]) <= Fraction(alone.relative(steps)) * exact[x][w]
    for alpha in (1e-9, 0.5, 3.0):
        growth = Fraction(math.expm1(alpha))
        true = max((1 + growth * exact[x][w]) / (1 + growth * exact[1 - x][w]) for x in range(2) for w in range(2))
        assert alone.profile_table(steps).largest(alpha) >= math.log1p(float(true - 1)) * (1 - 1e-15)


@pytest.mark.parametrize("kind", ["metric", "scalar"])
def test_a_forgotten_history_does_not_come_back(kind: str) -> None:
    """Waiting longer than the chain remembers adds nothing, not even rounding."""
    accountant = follow(Plan(PAIR, Max(), 1, 0.5), kind)
    state = accountant.release(accountant.start(), 1)
    far = [accountant.release(state, 1 + wait) for wait in (10**3, 10**5, 10**9)]
    fresh = accountant.after(1).epsilon
    assert [accountant.leakage(one).epsilon for one in far] == pytest.approx([fresh] * 3, rel=1e-11)
