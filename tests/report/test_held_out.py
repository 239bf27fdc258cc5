"""The table of held-out likelihoods in docs/fitting.md, computed again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from csdp import datasets, fit, fit_quality

DOC = Path(__file__).parents[2] / "docs" / "fitting.md"
CASES = {"parking": ("parking", False), "parking, days joined": ("parking", True), "glucose": ("glucose", False)}
CASES["stocks"] = ("stocks", False)


def told():
    rows = re.findall(r"^\| ([a-z, ]+) \|((?: -?[0-9.]+ \|){5}) ([a-z, ]+) \|$", DOC.read_text(encoding="utf-8"), re.M)
    return {name: ([float(cell) for cell in cells.strip(" |").split("|")], words) for name, cells, words in rows}


def test_the_table_is_there():
    assert set(told()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_the_data(name):
    data, joined = CASES[name]
    dataset = datasets.load(data)
    readings = dataset.readings.without_gaps() if joined else dataset.readings
    panel = dataset.discretiser().apply(readings.split(dataset.past_ends)[0])
    chain = fit(panel, public=True, ensemble=0, progress=False)
    quality = fit_quality(chain, panel, public=True, progress=False)
    numbers, words = told()[name]
    now = [quality.chain, quality.independent, quality.stationary, quality.gain, quality.gain_error]
    assert now == pytest.approx(numbers, abs=3e-4)
    checks = {"order": quality.order, "homogeneity": quality.homogeneity, "together": quality.together}
    assert (", ".join(what for what, check in checks.items() if not check.passed) or "nothing") == words
    assert quality.gain <= 3 * quality.gain_error
