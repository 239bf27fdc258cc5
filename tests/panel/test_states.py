"""Panels and the files they are read from: every refusal says what is wrong, and no reading is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdp.errors import InputError
from csdp.panel import Panel, read_panel, to_states

NAMES = ("a", "b")
VALUES = np.array([[0.0, 1.0, 2.5], [10.0, 20.0, -5.0]])


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, **given: object) -> Panel:
    return read_panel(path, **({"names": NAMES, "values": VALUES} | given))  # type: ignore[arg-type]


def test_one_time_has_one_tick_in_every_file(tmp_path: Path) -> None:
    one = read(write(tmp_path, "time,a,b\n60,0,10\n120,1,10\n180,1,10\n"), step=60)
    two = read(write(tmp_path, "time,a,b\n180,1,10\n300,0,10\n"), step=60)
    assert (one.ticks.tolist(), two.ticks.tolist()) == ([1, 2, 3], [3, 4, 5])
    assert two.states[1].tolist() == [-1, -1]
    assert two.times.tolist() == [180, 240, 300]
    offset = read(write(tmp_path, "time,a,b\n-30,1,10\n30,0,10\n"), step=60)
    assert offset.times.tolist() == [-30, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moment,a,b\n0,0,10\n", "no column 'time'; found moment, a, b"),
        ("time,a,b\n0,0,10\n0,0,10\n", "two readings of 'a' at time 0"),
        ("time,a,b\n0,0.5,10\n1,0.7,10\n", "2 of sequence 1 are none of its 3 declared values"),
        ("time,a,b\n0,0,10\n", "a single time does not show how far apart ticks are"),
        ("time,sequence,value\n0,a,0\n0,c,1\n", "unknown sequence 'c'; the chain names a, b"),
        ("time,sequence,value\n0,a,0\n0,a,1\n", "two readings of 'a' at time 0"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path, text))
    for private in ("0.5", "0.7", "11"):
        assert private not in str(caught.value).replace("data.csv", "")


@given(st.lists(st.lists(st.integers(-1, 2), min_size=2, max_size=2), min_size=1, max_size=6))
@settings(max_examples=60, derandomize=True, database=None, deadline=None)
def test_states_survive_values(states: list[list[int]]) -> None:
    array = np.array(states)
    readings = np.where(array < 0, np.nan, VALUES[np.arange(2), array])
    assert to_states(readings, VALUES).tolist() == states


def test_small_values_are_told_apart() -> None:
    """A tolerance that is no part of the values' own scale would accept anything."""
    tiny = np.array([[0.0, 1e-6]])
    assert to_states(np.array([[1e-6], [0.0]]), tiny).tolist() == [[1], [0]]
    with pytest.raises(InputError, match="none of its 2 declared values"):
        to_states(np.array([[5e-6]]), tiny)
    with pytest.raises(InputError, match="none of its 2 declared values"):
        to_states(np.array([[4e-7]]), tiny)


def test_panels_are_checked() -> None:
    good = Panel.from_states([[0, 1], [1, -1]], names=NAMES, first_tick=5)
    assert (good.ticks.tolist(), good.names) == ([5, 6], NAMES)
    assert Panel.from_states([[0, 1]]).names == ("x1", "x2")
    for bad in ([0, 1], [[0.0, 1.0]], [[True, False]]):
        with pytest.raises(InputError, match="whole numbers"):
            Panel.from_states(bad)
    with pytest.raises(InputError, match="shape"):
        Panel(("a",), good.ticks, good.times, good.states)
    with pytest.raises(InputError, match="consecutive"):
        Panel(NAMES, np.array([1, 3]), good.times, good.states)
    with pytest.raises(InputError, match="columns"):
        to_states(np.zeros((3, 3)), VALUES)
