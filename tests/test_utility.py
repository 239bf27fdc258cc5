"""Moments of the aged and the present answer: pair laws, joint law and simulation agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csdp import Count, CoupledChain, Histogram, Identity, JointChain, Linear, Max, Mean, Sum
from csdp.errors import InputError
from csdp.utility import Moments, moments
from csdp.utility.second_order import _by_joint_law, _by_simulation
from oracle import aged_law, joint_kernel, snapshots

SYMMETRIC = [[0.7, 0.3], [0.3, 0.7]]
PAPER = CoupledChain([[0.5, 0.5], [0.5, 0.5]], SYMMETRIC)


def oracle_moments(chain: CoupledChain, query: object, ages: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    s, m = chain.sequences, chain.states
    law_given, law = aged_law(chain.kernel(), s, m, ages)
    joint = np.nan_to_num(law_given) * law[:, None]
    f = query.evaluate(np.array(snapshots(s, m)), chain.value_table)  # type: ignore[attr-defined]
    now, old = law @ f, joint.sum(axis=0) @ f
    x, z = f - now, f - old
    return old, now, (z.T * joint.sum(axis=0)) @ z, (x.T * law) @ x, z.T @ joint.T @ x


def close(found: Moments, expected: tuple[np.ndarray, ...]) -> None:
    got = (found.mean_aged, found.mean_now, found.cov_aged, found.cov_now, found.cross)
    for a, b in zip(got, expected, strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-11)


def test_variance_in_the_paper_s_setting() -> None:
    """Theory section 5.5: accuracies of 0.6 to 1.0 are above the variance of the query, 0.136."""
    found = moments(PAPER, Mean(), ages=(2, 2))
    assert found.how == "pair laws"
    assert round(float(found.cov_now[0, 0]), 4) == 0.1359
    assert round(float(found.cross[0, 0]), 5) == 0.02174
    assert found.mean_now[0] == pytest.approx(0.5)
    three_quarters = moments(CoupledChain([[0.75, 0.25], [0.25, 0.75]], SYMMETRIC), Mean(), ages=(2, 2))
    assert three_quarters.cov_now[0, 0] == pytest.approx(0.4 / 3)


@given(
    st.sampled_from([Mean(), Sum(), Count(0), Histogram(), Identity(), Linear([1.0, -0.5, 2.0])]),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.sampled_from((2, 3)),
    st.sampled_from(("dense", "identity", "blocks", "chain")),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_pair_laws_agree_with_the_joint_law_and_the_oracle(
    query: object, ages: list[int], m: int, shape: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights = (
        rng.integers(1, 9, (3, 3))
        * {
            "dense": np.ones((3, 3)),
            "identity": np.eye(3),
            "blocks": np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]),
            "chain": np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]]),
        }[shape]
    )
    moves = rng.dirichlet(np.ones(m), (3, 3, m))
    chain = CoupledChain(weights / weights.sum(axis=1, keepdims=True), moves)
    expected = oracle_moments(chain, query, tuple(ages))
    found = moments(chain, query, ages=ages)  # type: ignore[arg-type]
    assert found.how == "pair laws"
    close(found, expected)
    close(_by_joint_law(chain, query, ages), expected)  # type: ignore[arg-type]


def test_max_and_joint_chains_use_the_joint_law() -> None:
    found = moments(PAPER, Max(), ages=(1, 2))
    assert found.how == "joint law"
    close(found, oracle_moments(PAPER, Max(), (1, 2)))
    joint = JointChain(joint_kernel([[0.5, 0.5], [0.5, 0.5]], SYMMETRIC), states=2, sequences=2)
    close(moments(joint, Mean(), ages=(2, 2)), oracle_moments(PAPER, Mean(), (2, 2)))


def test_simulation_agrees_within_its_error() -> None:
    found = _by_simulation(PAPER, Mean(), (1, 2))
    exact = moments(PAPER, Mean(), ages=(1, 2))
    assert found.how == "simulation"
    assert np.allclose(found.cov_now, exact.cov_now, atol=0.012)
    assert np.allclose(found.cov_aged, exact.cov_aged, atol=0.012)
    assert np.allclose(found.cross, exact.cross, atol=0.012)
    assert np.allclose(found.mean_now, exact.mean_now, atol=0.05)


def test_too_large_for_a_law_is_simulated_and_an_initial_law_then_refused() -> None:
    s = 26
    ring = {(j, j): 0.8 for j in range(s)} | {(j, (j + 1) % s): 0.2 for j in range(s)}
    assert moments(CoupledChain(ring, SYMMETRIC), Max(), ages=[1] * s).how == "simulation"
    with pytest.raises(InputError, match="initial law"):
        moments(CoupledChain(ring, SYMMETRIC, initial=np.full((s, 2), 0.5)), Max(), ages=[1] * s)


@pytest.mark.parametrize("noise", [1e-6, 0.1, 10.0, 1e6])
@pytest.mark.parametrize("query", [Mean(), Identity(), Histogram()], ids=lambda q: q.name)
def test_linear_estimate_is_best_and_never_worse_than_no_data(query: object, noise: float) -> None:
    found = moments(PAPER, query, ages=(1, 3))  # type: ignore[arg-type]
    offset, gain, error = found.linear_estimate(noise)
    assert (error**2 <= np.diag(found.cov_now) * (1 + 1e-12)).all()

    def mse(g: np.ndarray) -> np.ndarray:
        d = len(offset)
        return np.diag(
            found.cov_now - g @ found.cross - (g @ found.cross).T + g @ (found.cov_aged + noise * np.eye(d)) @ g.T
        )

    assert np.allclose(mse(gain), error**2, atol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert (mse(gain + 0.1 * rng.standard_normal(gain.shape)) >= error**2 - 1e-9).all()
    assert np.allclose(offset + gain @ found.mean_aged, found.mean_now)


def test_fresh_data_without_noise_is_the_answer() -> None:
    offset, gain, error = moments(PAPER, Mean(), ages=(0, 0)).linear_estimate(1e-12)
    assert gain[0, 0] == pytest.approx(1.0)
    assert offset[0] == pytest.approx(0.0, abs=1e-9)
    assert error[0] < 1e-5
