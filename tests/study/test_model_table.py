"""The table of models on real data in docs/fitting.md: the numbers are those of `study.environments`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study.environments import ModelRow, describe_model, list_models

from csdp import datasets
from csdp.errors import InputError

DOC = Path(__file__).parents[2] / "docs" / "fitting.md"
FROM_R = {"influenza": "r-cran-surveillance", "irish_wind": "r-cran-gstat"}
#: Rows that take less than a second or two.
QUICK = {
    ("flights", "clock"),
    ("flights", "coupled, backward"),
    ("glucose", "coupled, forward"),
    ("influenza", "coupled, backward"),
    ("parking", "coupled, backward"),
    ("stocks", "hidden"),
    ("wind", "coupled, forward"),
}


def read_table() -> dict[tuple[str, str], ModelRow]:
    number = r"(-?[0-9.]+)"
    row = rf"^\| ([a-z_]+) \| ([a-z ,]+?)( [0-9]+)? \| {number} \| {number} \| ([a-z0-9, ]+) \| {number} \|$"
    found = re.findall(row, DOC.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        (data, model): ModelRow(data, model + count, float(gain), float(error), against, float(leakage))
        for data, model, count, gain, error, against, leakage in found
    }


TABLE = read_table()
EVERY = [(name, model) for name in datasets.names() for model in list_models(name)]


def test_every_model_of_every_data_set_has_a_row():
    assert list(TABLE) == EVERY
    assert set(EVERY) > QUICK


def test_on_at_least_four_data_sets_the_best_model_beats_independent_chains():
    best = {
        name: max((row for row in TABLE.values() if row.data == name), key=lambda row: row.gain) for name, _ in EVERY
    }
    assert sum(row.is_better for row in best.values()) >= 4


@pytest.mark.parametrize(
    ("name", "model"), [each if each in QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in EVERY]
)
def test_the_numbers_are_those_of_the_data(name, model):
    try:
        now = describe_model(name, model)
    except InputError as missing:
        if name in FROM_R and "is not installed" in str(missing):
            pytest.skip(f"apt-get install {FROM_R[name]}")
        raise
    told = TABLE[name, model]
    assert (now.model, now.against) == (told.model, told.against)
    assert (now.gain, now.error) == pytest.approx((told.gain, told.error), abs=2e-3)
    assert now.leakage == pytest.approx(told.leakage, abs=2e-3)
