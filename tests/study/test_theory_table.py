"""Theorem, function, test: every row of docs/statements.md names functions and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import lru_cache, reduce
from importlib import import_module
from pathlib import Path

import pytest

import csdp

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")


def tables(text):
    """(head, rows) of every table, cells split at the bars."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.strip().splitlines()]
        yield lines[0], lines[2:]


ROWS = [row for head, rows in tables(TEXT) if head[-1].endswith("test") for row in rows]


def resolve(name):
    """What a dotted name stands for: an attribute, or a module (csdp.leakage is a function and a room)."""
    package, *parts = name.split(".")
    try:
        return reduce(getattr, parts, import_module(package))
    except AttributeError:
        room, _, last = name.rpartition(".")
        try:
            return import_module(name)
        except ImportError:
            return getattr(import_module(room), last)


@lru_cache
def defined(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_many_rows_in_several_tables():
    assert len(ROWS) > 60
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_functions_and_tests_of_a_row_exist(row):
    _, functions, tests = row
    named = re.findall(r"`((?:csdp|study)\.[\w.]+)", functions)
    bounds = re.findall(r'bound="([\w-]+)"', functions)
    assert named or bounds, "a row without a function"
    for name in named:
        assert resolve(name) is not None
    assert set(bounds) <= {row.bound for row in _table().rows} | set(_table().missing)
    paths = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", tests)
    assert len(paths) == tests.count("`") // 2 > 0, "a row without a test, or with one that cannot be read"
    for path, test in paths:
        assert (ROOT / path).is_file(), path
        assert not test or test in defined(path), f"{path}::{test}"


@lru_cache
def _table():
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    return csdp.leakage_table(chain, csdp.Mean(), ages=1, epsilon_c=1.0)


def test_a_name_that_is_not_there_is_found_out():
    with pytest.raises((AttributeError, ImportError)):
        resolve("csdp.bounds.nonsense")
    with pytest.raises((AttributeError, ImportError)):
        resolve("csdp.nonsense")


#: Public names that hold data or are told of elsewhere, and state no theorem.
PLAIN = {"Panel", "Readings", "Discretiser", "read_panel", "read_readings", "Release", "Skipped", "Schedule", "Plan"}
PLAIN |= {
    "Attack",
    "Audit",
    "Drift",
    "DriftCheck",
    "DynamicPlan",
    "FitQuality",
    "FitRecord",
    "Leakage",
}
PLAIN |= {"LeakageSummary", "LeakageTable", "PerGroup", "Replay", "JointChain"}
PLAIN |= {"DistanceTable", "FoundInput", "InputSpec", "LearnedEstimator", "ReadingRange", "ReadingsCheck", "find_input"}
PLAIN |= {"Count", "Custom", "Histogram", "Identity", "Linear", "Max", "Mean", "Min", "Sum"}


def test_every_public_function_that_states_something_is_in_a_table():
    named = {name for row in ROWS for name in re.findall(r"`csdp\.(\w+)", row[1])}
    missing = set(csdp.__all__) - PLAIN - named
    assert not missing, f"no theorem, function, test row for {sorted(missing)}"
