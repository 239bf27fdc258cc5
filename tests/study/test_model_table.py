"""The table of models on real data in docs/fitting.md: the numbers are those of `study.environments`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study.environments import ModelRow, describe_model, list_models

from study import sets

DOC = Path(__file__).parents[2] / "docs" / "fitting.md"
#: Rows that take less than a second or two.
QUICK = {
    ("flights", "clock"),
    ("flights", "coupled, backward"),
    ("glucose", "coupled, forward"),
    ("parking", "coupled, backward"),
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
EVERY = [(name, model) for name in sets.NAMES for model in list_models(name)]


def test_every_model_of_every_data_set_has_a_row():
    assert list(TABLE) == EVERY
    assert set(EVERY) > QUICK


@pytest.mark.parametrize(
    ("name", "model"), [each if each in QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in EVERY]
)
def test_the_numbers_are_those_of_the_data(name, model, monkeypatch):
    monkeypatch.setattr("csdp.fitting.grow.FEWEST", 10**9)  # the table is of chains, and growing a class takes minutes
    now = describe_model(name, model)
    told = TABLE[name, model]
    assert (now.model, now.against) == (told.model, told.against)
    assert (now.gain, now.error) == pytest.approx((told.gain, told.error), abs=2e-3)
    assert now.leakage == pytest.approx(told.leakage, abs=2e-3)
