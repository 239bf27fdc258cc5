"""Every source gives the same readings: files and frames, wide and long; what cannot be read is refused in words."""

from __future__ import annotations

import datetime as dt
import gzip
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdp import Panel, Readings, read_panel, read_readings
from csdp.errors import InputError

SECRET = 1234.5
START = np.datetime64("2024-02-28T22:00:00", "s")


def same(one: Readings, other: Readings) -> None:
    assert one.names == other.names
    assert one.step == other.step
    assert one.ticks.tolist() == other.ticks.tolist()
    assert one.times.tolist() == other.times.tolist()
    np.testing.assert_array_equal(one.readings, other.readings)


def long_of(times: np.ndarray, readings: np.ndarray, names: tuple[str, ...]) -> dict[str, object]:
    rows, columns = np.nonzero(~np.isnan(readings))
    return {
        "time": times[rows],
        "sequence": [names[c] for c in columns],
        "value": readings[rows, columns],
    }


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Times with gaps (whole numbers or timestamps), and readings some of which are missing; no row is empty."""
    gaps = draw(st.lists(st.integers(1, 4), min_size=2, max_size=7))
    ticks = np.cumsum(gaps) + draw(st.integers(-5, 5))
    times = START + ticks * 300 if draw(st.booleans()) else ticks * draw(st.sampled_from([1, 60]))
    cell = st.one_of(st.just(float("nan")), st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3)))
    rows = draw(
        st.lists(st.tuples(st.floats(0, 9).map(lambda x: round(x, 2)), cell), min_size=len(gaps), max_size=len(gaps))
    )
    return times, np.array(rows, dtype=np.float64)


@given(tables())
@settings(max_examples=40, derandomize=True, database=None, deadline=None)
def test_every_source_gives_the_same_readings(tmp_path_factory: pytest.TempPathFactory, drawn: tuple) -> None:
    times, cells = drawn
    names = ("a", "b b")
    wide = {"time": times, "a": cells[:, 0], "b b": cells[:, 1]}
    long = long_of(times, cells, names)
    expected = read_readings(wide, names=names)
    arrow = pa.table(wide)
    folder = tmp_path_factory.mktemp("sources")
    for frame, kind in ((arrow, "wide"), (pa.table(long), "long")):
        pq.write_table(frame, folder / f"{kind}.parquet")
        pyarrow.csv.write_csv(frame, folder / f"{kind}.csv")
        (folder / f"{kind}.csv.gz").write_bytes(gzip.compress((folder / f"{kind}.csv").read_bytes()))
        found = pd.DataFrame(wide if kind == "wide" else long)
        polars = pl.from_arrow(frame)
        sources = [frame, found, polars, found.set_index("time") if times.dtype.kind == "M" else found]
        for source in [*sources, *(folder / f"{kind}.{end}" for end in ("csv", "csv.gz", "parquet"))]:
            same(read_readings(source, names=names), expected)
        same(read_readings(str(folder / f"{kind}.csv"), names=names), expected)
    dense = np.full(expected.readings.shape, np.nan)
    dense[((times - times[0]) // np.diff(expected.times)[0]).astype(int)] = cells
    np.testing.assert_array_equal(read_readings(dense, names=names).readings, expected.readings)


def test_columns_by_other_names_and_more_of_them() -> None:
    table = {"When": [0, 0, 1], "who": ["b", "a", "a"], "what": [1.0, 2.0, 3.0], "note": ["x", "y", "z"]}
    found = read_readings(table, time="when", sequence="who", value="what")
    assert found.names == ("a", "b")  # sorted: the same from every order of rows
    np.testing.assert_array_equal(found.readings, [[2, 1], [3, np.nan]])
    usual = {"time": [0, 1], "site": ["a", "a"], "value": [1.0, 2.0]}
    assert read_readings(usual, sequence="site").names == ("a",)
    for settings_ in ({"sequence": "whom", "value": "what"}, {"value": "which", "sequence": "who"}):
        with pytest.raises(InputError, match="no column 'wh"):
            read_readings(table, time="when", **settings_)
    with pytest.raises(InputError, match="three columns"):
        read_readings(table, time="when", sequence="who", value="who")


def test_spaces_around_names_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(' time , a ,"b, c"\n0, 1 ,2\n1,3, nan \n')
    found = read_readings(tmp_path / "d.csv", names=["a", " b, c"])
    assert found.names == ("a", " b, c")
    np.testing.assert_array_equal(found.readings, [[1, 2], [3, np.nan]])
    frame = pd.DataFrame({"time": [0, 1], " a": [1.0, 2.0], 7: [3, 4]})
    assert read_readings(frame).names == ("a", "7")
    long = {"time": [0, 1], "sequence": [" a", "a "], "value": [1, 2]}
    assert read_readings(long, names=[" a "]).readings.tolist() == [[1], [2]]
    with pytest.raises(InputError, match="same name"):
        read_readings({"time": [0], "a": [1], " a": [2]})


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, None, 3], dtype="Int64"),
        pd.array([1.0, None, 3.0], dtype="Float32"),
        np.ma.array([1, 99, 3], mask=[False, True, False]),
        [1, None, 3],
        ["1", " NA ", "3.0"],
        pa.chunked_array([[1], [None, 3]]),
    ],
)
def test_missing_readings_in_every_guise(column: object) -> None:
    """Masked integers above all: numpy would hand out what lies under the mask."""
    readings = read_readings(
        pd.DataFrame({"time": [0, 1, 2], "a": column})
        if hasattr(column, "dtype") and not np.ma.isMaskedArray(column)
        else {"time": [0, 1, 2], "a": column}
    )
    np.testing.assert_array_equal(readings.readings[:, 0], [1, np.nan, 3])


def test_kinds_of_numbers() -> None:
    decimal = pl.DataFrame({"time": [0, 1], "a": [1.5, None]}).with_columns(pl.col("a").cast(pl.Decimal(10, 2)))
    np.testing.assert_array_equal(read_readings(decimal).readings[:, 0], [1.5, np.nan])
    assert read_readings(pd.DataFrame({"time": [0, 1], "a": [True, False]})).readings[:, 0].tolist() == [1, 0]
    empty = pa.table({"time": [0, 1], "a": pa.nulls(2)})
    assert np.isnan(read_readings(empty).readings).all()
    assert read_readings({"time": [0.0, 2.0], "a": [1, 2]}).ticks.tolist() == [0, 1]


def test_an_index_of_pandas_in_parquet(tmp_path: Path) -> None:
    """A nameless index of times is the time; any other index is not taken for a sequence."""
    stamps = pd.DatetimeIndex(START + np.arange(3) * 300)
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=stamps)
    frame.to_parquet(tmp_path / "d.parquet")
    same(read_readings(tmp_path / "d.parquet"), read_readings(frame))
    same(read_readings(pa.Table.from_pandas(frame)), read_readings(frame))
    plain = pd.DataFrame({"time": [0, 1], "a": [1.0, 2.0]}, index=[7, 3])
    plain.to_parquet(tmp_path / "d.parquet")
    assert read_readings(tmp_path / "d.parquet").names == read_readings(plain).names == ("a",)


def test_arrays() -> None:
    found = read_readings(np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]), names=["a", "b"], step=60)
    np.testing.assert_array_equal(found.readings, [[1, np.nan], [3, 4]])
    assert (found.times.tolist(), found.step) == ([0, 60], 60)
    assert read_readings(np.zeros((2, 3))).names == ("x1", "x2", "x3")
    for bad, settings_, message in (
        (np.zeros(3), {}, "shape"),
        (np.array([["a"]]), {}, "numbers"),
        (np.zeros((2, 2)), {"names": ["a"]}, "1 given for 2"),
        (np.zeros((2, 2)), {"names": ["a", "a"]}, "twice"),
        (np.zeros((2, 2)), {"step": "1h"}, "no times"),
        (np.zeros((2, 2)), {"step": 0}, "at least 1"),
        (np.zeros((2, 2)), {"timezone": "UTC"}, "neither times nor words"),
        (np.array([[np.inf]]), {}, "infinite"),
    ):
        with pytest.raises(InputError, match=message):
            read_readings(bad, **settings_)


def test_words() -> None:
    frame = pd.DataFrame({"time": [0, 1, 2], "a": pd.Categorical(["low", None, "high"])})
    found = read_readings(frame, categories=["low", "mid", "high"])
    np.testing.assert_array_equal(found.readings[:, 0], [0, np.nan, 2])
    named_none = read_readings({"time": [0, 1], "a": ["none", "some"]}, categories=["none", "some"])
    assert named_none.readings[:, 0].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"column 'a', row 2 is none of the categories 'low', 'high'") as caught:
        read_readings({"time": [0, 1], "a": ["low", "sick"]}, categories=["low", "high"])
    assert "sick" not in str(caught.value)


class Strange:
    """No table at all."""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pl.LazyFrame({"time": [0]}), "collect a lazy one first"),
        (None, "NoneType given"),
        ([[1.0]], "list given"),
        (Strange(), "Strange given"),
        (pd.DataFrame([[0, 1, 2]], columns=["time", "a", "a"]), "same name"),
        (pd.DataFrame({"time": [0, 1], "a": [1, f"{SECRET}x"]}), "several kinds"),
        (pd.DataFrame({"time": [0, 1], "a": [f"{SECRET}", f"{SECRET}x"]}), "column 'a', row 2 is not a number"),
        (pd.DataFrame({"time": [0, 1], "a": [dt.datetime(2024, 1, 1)] * 2}), "timestamp"),
        (pd.DataFrame({"time": [0, 1]}), "no column besides 'time'"),
        (pd.DataFrame(), "no columns"),
        (pd.DataFrame({"time": [], "a": []}), "no rows"),
        (pd.DataFrame({"a": [1.0]}), "one column only, 'a'"),
        ({"time": [0, 1], "a": [SECRET]}, "differ in length"),
        ({"time": [0, 1], "a": np.full((2, 2), SECRET)}, "several kinds"),
        ({"time": [0, 1], "a": [SECRET, np.inf]}, "infinite"),
        ({"time": [0, 1], "a": ["1_0", "2"]}, "row 1 is not a number"),
        ({"time": [0, 1], "sequence": ["a", None], "value": [SECRET, 1]}, "empty cells"),
        ({"time": [0, 1], "sequence": ["a", " "], "value": [SECRET, 1]}, "empty cells"),
    ],
)
def test_what_is_no_table_is_refused(source: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_readings(source)
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"time,a\n\n\n", "empty"),
        (b"time,a\n0,1234.5\n1,1234.5,7\n", "line 3 has 3 cells, the header has 2"),
        (b'time,a\n0,"1234.5\n1,2\n', "row 1 is not a number"),
        (b"time,a\n0,\xff\n1,2\n", "row 1 is not a number"),
        (b"t\xffme,a\n0,1\n", "no column 'time'; found t\u00ffme, a"),
        (b"time;a\n0;1234.5\n", "a single time"),
    ],
)
def test_bad_csv(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "d.csv").write_bytes(raw)
    with pytest.raises(InputError, match=message) as caught:
        read_readings(tmp_path / "d.csv")
    assert str(SECRET) not in str(caught.value)


def test_line_ends_and_letters(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("\ufefftime,größe\r\n0,1\r\n\r\n1,2".encode())
    found = read_readings(tmp_path / "d.csv")
    assert (found.names, found.readings.tolist()) == (("größe",), [[1], [2]])
    (tmp_path / "d.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="gzip"):
        read_readings(tmp_path / "d.csv.gz")
    with pytest.raises(InputError, match="a folder given; a file expected"):
        read_readings(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_readings(tmp_path / "none.csv")


def test_panels_from_every_source() -> None:
    frame = pl.DataFrame({"time": [0, 1, 3], "a": [10.0, 30.0, None], "b": [10.0, 20.0, 30.0]})
    found = read_panel(frame, values=[10.0, 20.0, 30.0])
    assert found.states.tolist() == [[0, 0], [2, 1], [-1, -1], [-1, 2]]
    assert found.values is not None
    assert found.values.tolist() == [[10, 20, 30]] * 2
    assert found.state_count == 3
    numbers = read_panel(np.array([[0, 1], [2, np.nan]]))
    assert (numbers.states.tolist(), numbers.values, numbers.state_count) == ([[0, 1], [2, -1]], None, 3)
    for bad in ([[0.5]], [[-1.0]], [[1e6]]):
        with pytest.raises(InputError, match="state numbers") as caught:
            read_panel(np.array(bad))
        assert str(bad[0][0]) not in str(caught.value)


def test_panels_with_values_are_checked() -> None:
    for states, values, message in (
        ([[0, 3]], [0, 1], "unknown state"),
        ([[0, -2]], [0, 1], "unknown state"),
        ([[0, 1]], [[0, 1]] * 3, "values"),
        ([[0, 1]], [0, np.nan], "NaN"),
        ([[0, 1]], ["x"], "numbers"),
    ):
        with pytest.raises(InputError, match=message):
            Panel.from_states(states, values=values)
    with pytest.raises(InputError, match="names"):
        Panel.from_states([[0, 1]], names=["a"])
    assert Panel.from_states(np.zeros((0, 2), dtype=int)).state_count == 0


def test_no_record_shows_its_readings() -> None:
    readings = read_readings({"time": [0, 1], "a": [SECRET, 77]})
    panel = Panel.from_states([[3], [77]])
    assert "1234" not in repr(readings)
    assert "77" not in repr(panel)


def test_a_tick_in_which_the_public_past_ends_is_not_public() -> None:
    """An hour that began before it was, with readings after it: its mean told them as public."""
    times = START + np.arange(24) * 600
    whole = read_readings({"time": times, "a": np.arange(24) % 2}, step="1h", resample="mean")
    inside = whole.times[2] + np.timedelta64(30, "m")
    assert [len(whole.split(str(at))[0]) for at in (whole.times[2], inside, whole.times[3])] == [2, 2, 3]
    counted = read_readings({"time": [0, 10, 20, 30], "a": [1, 2, 3, 4]})
    assert [len(counted.split(at)[0]) for at in (9, 10, 19, 20, 40)] == [0, 1, 1, 2, 4]


def test_the_end_of_the_public_past_is_a_time_of_the_zone_of_the_readings() -> None:
    """It was taken as UTC: east of Greenwich, hours after it were fitted as public."""
    local = [f"2024-07-01T{hour:02}:00" for hour in range(24)]
    readings = read_readings({"time": local, "a": list(range(24))}, timezone="Asia/Tokyo")
    assert len(readings.split("2024-07-01T10:00", timezone="Asia/Tokyo")[0]) == 10
    assert len(readings.split("2024-07-01T10:00+09:00")[0]) == 10
    assert len(readings.split("2024-07-01T01:00")[0]) == 10  # times are in UTC
    assert len(readings.split("2024")[0]) == 0
    with pytest.raises(InputError, match="is unknown"):
        readings.split("2024-07-01", timezone="Middle/Earth")


def test_a_part_of_readings() -> None:
    stamped = read_readings({"time": START + np.arange(4) * 3600, "a": [1, 2, 3, 4], "b": [5, 6, 7, 8]})
    past, rest = stamped.split("2024-02-29")
    assert (past.readings[:, 0].tolist(), rest.readings[:, 0].tolist()) == ([1, 2], [3, 4])
    assert rest.ticks.tolist() == stamped.ticks[2:].tolist()
    assert [len(part) for part in stamped.split("2030-01-01")] == [4, 0]
    assert stamped.select(["b"]).readings[:, 0].tolist() == [5, 6, 7, 8]
    with pytest.raises(InputError, match="no time of the kind"):
        stamped.split("tomorrow")
    with pytest.raises(InputError, match="unknown"):
        stamped.select(["c"])
    gappy = read_readings({"time": [0, 1, 5], "a": [1, None, 2]}, step=1)
    joined = gappy.without_gaps()
    assert (joined.ticks.tolist(), joined.times.tolist(), joined.readings[:, 0].tolist()) == ([0, 1], [0, 5], [1, 2])


def test_a_million_rows_in_seconds(tmp_path: Path) -> None:
    """Two columns; a loop over cells would take a minute."""
    rows = 1_000_000
    cells = np.round(np.random.default_rng(1).random(rows), 3)
    pyarrow.csv.write_csv(pa.table({"time": np.arange(rows), "a": cells}), tmp_path / "d.csv")
    begun = time.process_time()
    found = read_readings(tmp_path / "d.csv")
    assert time.process_time() - begun < 10
    np.testing.assert_array_equal(found.readings[:, 0], cells)
