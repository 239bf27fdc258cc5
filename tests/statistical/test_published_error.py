"""What the publisher puts out is as far from the present as `mse` predicts: raw and linear estimate.

Seeds are fixed. Intervals are five standard errors of batch means wide, and the same test must reject the prediction
for a mechanism with half or twice the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

import csdp
from csdp.errors import UnsafeRandomnessWarning
from csdp.query_table import Query

Array = NDArray[np.float64]

PAIR = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]])
TICKS, BATCHES = 12_000, 40


@pytest.fixture(scope="module")
def published(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Query], tuple[Array, Array, Array]]:
    """Raw outputs, linear estimates and the truth of the same ticks, at age 1 and epsilon_c 3; made once per query."""

    @cache
    def publish(query: Query) -> tuple[Array, Array, Array]:
        plan = csdp.Plan(PAIR, query, 1, 3.0)
        states = PAIR.simulate(TICKS + plan.max_age, seed=11)
        with pytest.warns(UnsafeRandomnessWarning):
            opened = csdp.Publisher(
                plan, dataset="d", ledger=tmp_path_factory.mktemp(query.name) / "ledger.db", unsafe_seed=7
            )
        with opened as publisher:
            batch = publisher.publish(csdp.Panel.from_states(states))
        raw = np.array([release.values for release in batch])
        linear = np.array([release.estimate for release in batch])
        ticks = [release.tick for release in batch]
        return raw, linear, query.evaluate(states[ticks].astype(np.intp), PAIR.value_table)

    return publish


def interval(squares: Array) -> tuple[float, float]:
    batches = squares[: squares.size // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half = 5 * float(batches.std(ddof=1)) / BATCHES**0.5
    return float(batches.mean()) - half, float(batches.mean()) + half


@pytest.mark.parametrize(
    "query", [csdp.Mean(), pytest.param(csdp.Histogram(), marks=pytest.mark.slow)], ids=lambda q: q.name
)
def test_the_publisher_s_error_is_the_predicted_one(
    published: Callable[[Query], tuple[Array, Array, Array]], query: csdp.query_table.Query
) -> None:
    raw, linear, truth = published(query)
    for estimate, output in (("raw", raw), ("linear", linear)):
        low, high = interval(((output - truth) ** 2).sum(axis=1))
        predicted = csdp.mse(PAIR, query, ages=1, epsilon_c=3.0, estimate=estimate)  # type: ignore[arg-type]
        assert low <= predicted.mse <= high
        for wrong in (1.5, 6.0):
            other = csdp.mse(PAIR, query, ages=1, epsilon_c=wrong, estimate=estimate)  # type: ignore[arg-type]
            assert not low <= other.mse <= high, f"{estimate}: cannot tell epsilon_c 3 from {wrong}"
