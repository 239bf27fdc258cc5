"""Figures of own data: the reader's time, values as they were read, and a scale that noise does not stretch."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.panel import Panel, Readings
from csdp.report import figures
from csdp.report.series import ReleaseRecord, TruthRecord, truth_records

CHAIN = csdp.CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], values=[10.0, 20.0], names=["a", "b"])


def readings() -> tuple[Panel, Readings]:
    read = Readings.from_array([[11.0, 19.0], [9.0, np.nan], [21.0, 22.0]], names=["a", "b"])
    states = np.array([[0, 1], [0, -1], [1, 1]])
    return Panel(read.names, read.ticks, read.times, states, 1, np.array([[10.0, 20.0]] * 2)), read


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (csdp.Mean(), [(0, 15.0), (2, 21.5)]),
        (csdp.Max(), [(0, 19.0), (2, 22.0)]),
        (csdp.Linear([2.0, 1.0]), [(0, 41.0), (2, 64.0)]),
        (csdp.Identity(), [(0, 11.0), (1, 9.0), (2, 21.0)]),
        (csdp.Count(1), [(0, 1.0), (2, 2.0)]),
    ],
)
def test_the_truth_is_that_of_the_readings(query, expected) -> None:
    plan = csdp.Plan(CHAIN, query, ages=1, epsilon_c=1.0)
    panel, read = readings()
    found = truth_records(plan, panel, read)
    assert [(record.tick, pytest.approx(record.value)) for record in found] == expected


def test_noise_does_not_stretch_the_scale() -> None:
    rng = np.random.default_rng(1)
    values = 20 + rng.normal(0, 1, 100)
    values[[10, 60]] = 500.0, -300.0
    released = [ReleaseRecord(t, float(v), 20.0, 19.0, 21.0) for t, v in enumerate(values)]
    truth = [TruthRecord(t, 20.0 + (t % 2)) for t in range(100)]
    axes = figures.release_figure(released, what="mean", truth=truth, usual=[(0, 20.2), (99, 20.2)]).axes[0]
    low, high = axes.get_ylim()
    assert 15 < low < 20
    assert 21 < high < 25
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "no data: mean" in labels
    beyond = int(((values < low) | (values > high)).sum())
    assert f"published ({beyond} beyond the scale, at its edges)" in labels
    assert beyond >= 2
