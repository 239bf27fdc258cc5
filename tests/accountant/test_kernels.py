"""A component seen backwards in time: powers, profiles, and the cost of a query that is not a sum."""

import math
from fractions import Fraction

import numpy as np
import pytest

import oracle as o
from csdp import CoupledChain, Custom, Max
from csdp.accountant import Accountant
from csdp.accountant.kernels import BackwardKernel, ProfileTable, step_back
from csdp.bounds.metric import FlowSolver, LawPairs
from csdp.plan import Plan

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7]])
BROKEN = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])


def test_powers_and_tables_stay_right_when_old_ones_are_dropped() -> None:
    backward = BackwardKernel(PAIR)
    once = backward.power(1)
    for steps in range(1, 80):
        assert backward.power(steps) == pytest.approx(np.linalg.matrix_power(once, steps), abs=1e-14)
    first = backward.profile_table(1).largest(0.7)
    for steps in range(2, 12):
        assert backward.profile_table(steps).largest(0.7) <= first
    assert backward.profile_table(1).largest(0.7) == first


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


def test_a_tiny_cost_keeps_its_digits_beside_the_rounding_of_the_kernel() -> None:
    table = BackwardKernel(PAIR).profile_table(1)
    assert table.largest(1e-12) / 1e-12 == pytest.approx(table.largest(1e-5) / 1e-5, rel=1e-3)


def test_two_laws_that_seem_equal_may_differ_by_their_rounding() -> None:
    """What rounding hides is charged where it tells most: at the rarest snapshot."""
    law = np.array([[0.9, 0.1]])
    metric = np.array([[0.0, 1.0], [1.0, 0.0]])
    for exponent in (0, -40):
        rows = LawPairs(law, law, np.zeros((1, 2)), np.array([1e-15, 1e-15]), exponent)
        assert FlowSolver(metric).bounds(rows)[0] == pytest.approx(1e-14 * 2.0**exponent, rel=1e-9, abs=0)


def test_a_state_that_tells_nothing_stays_so() -> None:
    kernel = BackwardKernel(PAIR).power(1)
    assert (step_back(np.zeros((4, 4)), kernel, np.full((4, 4), np.inf), relative=1e-14) == 0).all()


@pytest.mark.parametrize("flips", [(0.3, 0.3), (0.01, 0.3), (1e-3, 2e-3), (0.999, 0.998)])
@pytest.mark.parametrize("steps", [1, 7, 64, 500])
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
    accountant = Accountant(Plan(PAIR, Max(), 1, 0.5), state=kind)
    state = accountant.release(accountant.start(), 1)
    far = [accountant.release(state, 1 + wait) for wait in (10**3, 10**5, 10**9)]
    fresh = accountant.after(1).epsilon
    assert [accountant.leakage(one).epsilon for one in far] == pytest.approx([fresh] * 3, rel=1e-11)


def test_a_chain_that_never_forgets_has_no_such_end() -> None:
    turning = BackwardKernel(CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]]))
    assert turning.settling_steps == 2**20
    assert turning.profile_table(10**3).largest(0.4) == pytest.approx(0.4)


def test_a_custom_query_is_charged_as_the_same_built_in_one() -> None:
    largest = Custom(lambda values: values.max(axis=-1), name="largest")
    for ages in (1, (1, 2)):
        same = [Accountant(Plan(PAIR, query, ages, 0.5)).after(3).epsilon for query in (Max(), largest)]
        assert same[0] == pytest.approx(same[1], rel=1e-5)  # the answers of a function are rounded to a lattice
