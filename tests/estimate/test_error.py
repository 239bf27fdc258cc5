"""Moments of the aged and the present answer: pair laws, joint law and simulation agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csdp import Count, CoupledChain, Family, Histogram, Identity, JointChain, Linear, Max, Mean, Sum
from csdp.errors import InputError
from csdp.estimate import mse
from csdp.estimate.moments import Moments, _by_joint_law, _by_simulation, moments
from csdp.query import PerGroup
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


def close(result: Moments, expected: tuple[np.ndarray, ...]) -> None:
    got = (result.mean_aged, result.mean_now, result.cov_aged, result.cov_now, result.cross)
    for a, b in zip(got, expected, strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-11)


def test_variance_in_the_paper_s_setting() -> None:
    """The accuracies of 0.6 to 1.0 that the paper reports are above the variance of the query, 0.136."""
    result = moments(PAPER, Mean(), ages=(2, 2))
    assert result.how == "pair laws"
    assert round(float(result.cov_now[0, 0]), 4) == 0.1359
    assert round(float(result.cross[0, 0]), 5) == 0.02174
    assert result.mean_now[0] == pytest.approx(0.5)
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
    result = moments(chain, query, ages=ages)  # type: ignore[arg-type]
    assert result.how == "pair laws"
    close(result, expected)
    close(_by_joint_law(chain, query, ages), expected)  # type: ignore[arg-type]


def test_a_query_that_no_record_changes_is_refused_in_words() -> None:
    chain = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=[[2.0, 2.0], [0.0, 1.0]])
    with pytest.raises(InputError, match="max never changes with one record, so no noise is added to it"):
        mse(chain, "max", ages=1, epsilon_c=1.0)


def test_max_and_joint_chains_use_the_joint_law() -> None:
    result = moments(PAPER, Max(), ages=(1, 2))
    assert result.how == "joint law"
    close(result, oracle_moments(PAPER, Max(), (1, 2)))
    joint = JointChain(joint_kernel([[0.5, 0.5], [0.5, 0.5]], SYMMETRIC), states=2, sequences=2)
    close(moments(joint, Mean(), ages=(2, 2)), oracle_moments(PAPER, Mean(), (2, 2)))


def test_simulation_agrees_within_its_error() -> None:
    result = _by_simulation(PAPER, Mean(), (1, 2))
    exact = moments(PAPER, Mean(), ages=(1, 2))
    assert result.how == "simulation"
    assert np.allclose(result.cov_now, exact.cov_now, atol=0.012)
    assert np.allclose(result.cov_aged, exact.cov_aged, atol=0.012)
    assert np.allclose(result.cross, exact.cross, atol=0.012)
    assert np.allclose(result.mean_now, exact.mean_now, atol=0.05)


def test_too_large_for_a_law_is_simulated() -> None:
    ring = _ring(26)
    assert moments(ring, Max(), ages=[1] * 26).how == "simulation"


def test_a_chain_that_hardly_mixes_is_answered_by_its_joint_law() -> None:
    own, p = 1 - 1e-5, 1e-6
    slow = CoupledChain([[own, 1 - own], [1 - own, own]], [[1 - p, p], [p, 1 - p]])
    result = moments(slow, Mean(), ages=(1, 1))
    assert result.how == "joint law"
    followed, kept = 2 * own * (1 - own), (1 - 2 * p) ** 2  # both follow the same one; neither changes
    correlation = kept * followed / (1 - kept * (1 - followed))
    assert result.cov_now[0, 0] == pytest.approx((1 + correlation) / 8, rel=1e-6)


@pytest.mark.parametrize("noise", [1e-6, 0.1, 10.0, 1e6])
@pytest.mark.parametrize("query", [Mean(), Identity(), Histogram()], ids=lambda q: q.name)
def test_linear_estimate_is_best_and_never_worse_than_no_data(query: object, noise: float) -> None:
    result = moments(PAPER, query, ages=(1, 3))  # type: ignore[arg-type]
    offset, gain, error = result.linear_estimate(noise)
    assert (error**2 <= np.diag(result.cov_now) * (1 + 1e-12)).all()

    def mse(g: np.ndarray) -> np.ndarray:
        d = len(offset)
        return np.diag(
            result.cov_now - g @ result.cross - (g @ result.cross).T + g @ (result.cov_aged + noise * np.eye(d)) @ g.T
        )

    assert np.allclose(mse(gain), error**2, atol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert (mse(gain + 0.1 * rng.standard_normal(gain.shape)) >= error**2 - 1e-9).all()
    assert np.allclose(offset + gain @ result.mean_aged, result.mean_now)


class TestError:
    """The error of a release, of estimates from it, and of what cannot be asked."""

    def test_a_simulated_error_counts_with_its_upper_end(self) -> None:
        error = mse(_ring(26, [[0.98, 0.02], [0.5, 0.5]]), Max(), ages=1, epsilon_c=1.0)
        assert error.how == "simulation"
        assert error.interval is not None
        assert error.interval[0] < error.mse < error.interval[1] == error.safe

    def test_over_a_family_the_largest(self) -> None:
        slow, fast = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.1, 0.4))
        error = mse(Family([slow, fast]), Mean(), ages=1, epsilon_c=1.0)
        assert error == mse(fast, Mean(), ages=1, epsilon_c=1.0)
        assert error.mse > mse(slow, Mean(), ages=1, epsilon_c=1.0).mse

    def test_an_unknown_estimate_is_refused(self) -> None:
        with pytest.raises(InputError, match="estimate: 'best' given; one of 'raw', 'linear', 'history'"):
            mse(PAPER, Mean(), ages=1, epsilon_c=1.0, estimate="best")  # type: ignore[arg-type]


def _ring(sequences: int, moves: list[list[float]] = SYMMETRIC) -> CoupledChain:
    ring = {(j, j): 0.8 for j in range(sequences)} | {(j, (j + 1) % sequences): 0.2 for j in range(sequences)}
    return CoupledChain(ring, moves)


@pytest.mark.parametrize(
    "query",
    [
        PerGroup(Sum(), ((0, 3), (1, 2))),
        PerGroup(Histogram(), ((0,), (1, 2, 3))),
        PerGroup(Count(1), ((3,), (2,), (1,), (0,))),
        Identity(),
    ],
    ids=lambda query: query.name,
)
def test_outputs_of_groups_and_sequences_keep_their_places(query: Any) -> None:
    """Over independent components: each moves outputs of its own only."""
    for coupling in (np.eye(4), [[0.5, 0.5, 0, 0], [0.2, 0.8, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 0.3, 0.7]]):
        chain = CoupledChain(coupling, [[0.7, 0.3], [0.2, 0.8]], values=[0.0, 3.0])
        pairs, whole = moments(chain, query, ages=(1, 2, 3, 1)), _by_joint_law(chain, query, (1, 2, 3, 1))
        assert (pairs.how, whole.how) == ("pair laws", "joint law")
        for name in ("mean_aged", "mean_now", "cov_aged", "cov_now", "cross"):
            assert np.allclose(getattr(pairs, name), getattr(whole, name), rtol=0, atol=1e-9), name
