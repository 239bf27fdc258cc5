"""Figures of own data: a scale that noise does not stretch."""

from __future__ import annotations

import numpy as np

from csdp.report import figures
from csdp.report.series import ReleaseRecord, TruthRecord


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
