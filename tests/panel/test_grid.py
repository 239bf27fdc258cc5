"""Order, repetition, resampling, gaps, clocks: each handled as documented, or refused in words."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdp import read_readings
from csdp.errors import InputError, TooLargeError
from csdp.panel import times as grid
from csdp.panel.times import parse_step


def column(table: dict[str, object], **settings_: object) -> list[float]:
    return read_readings(table, **settings_).readings[:, 0].tolist()  # type: ignore[arg-type]


def test_out_of_order() -> None:
    table = {"time": [2, 0, 1], "a": [3.0, 1.0, 2.0]}
    assert column(table) == [1, 2, 3]
    blocks = {"time": [0, 1, 1, 0], "sequence": ["a", "a", "b", "b"], "value": [1, 2, 3, 4]}
    assert read_readings(blocks).readings.tolist() == [[1, 4], [2, 3]]


@pytest.mark.parametrize(("how", "expected"), [("first", 1.0), ("last", 5.0), ("mean", 3.0)])
def test_two_readings_of_one_time(how: str, expected: float) -> None:
    wide = {"time": [0, 0, 0, 1], "a": [None, 1.0, 5.0, 7.0], "b": [1, None, None, 2]}
    long = {"time": [0, 0, 1], "sequence": ["a"] * 3, "value": [1.0, 5.0, 7.0]}
    for table in (wide, long):
        with pytest.raises(InputError, match=r"two readings of 'a' at time 0; .*duplicates="):
            read_readings(table)
        assert column(table, duplicates=how) == [expected, 7]
    assert read_readings(wide, duplicates=how).readings[:, 1].tolist() == [1, 2]  # type: ignore[arg-type]
    shuffled = {"time": [1, 0, 0], "a": [7.0, 1.0, 5.0]}
    assert column(shuffled, duplicates=how) == [expected, 7]


@pytest.mark.parametrize(("how", "expected"), [("first", [1, 5]), ("last", [4, 5]), ("mean", [2.5, 5])])
def test_resampling(how: str, expected: list[float]) -> None:
    """Tick k holds [k step, (k+1) step)."""
    table = {"time": [61, 90, 119, 120], "a": [1.0, None, 4.0, 5.0]}
    with pytest.raises(InputError, match="step="):
        read_readings(table, resample=how)  # type: ignore[arg-type]
    found = read_readings(table, resample=how, step=60)  # type: ignore[arg-type]
    assert (found.ticks.tolist(), found.times.tolist()) == ([1, 2], [60, 120])
    assert found.readings[:, 0].tolist() == expected
    with pytest.raises(InputError, match="grid of 60"):
        read_readings(table, step=60)


@given(
    st.lists(st.tuples(st.integers(-30, 30), st.sampled_from("ab"), st.integers(-9, 9)), min_size=1, max_size=25),
    st.sampled_from(["first", "last", "mean"]),
    st.sampled_from(["first", "last", "mean"]),
    st.integers(1, 9),
)
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
def test_resampling_against_a_plain_loop(rows: list, duplicates: str, resample: str, step: int) -> None:
    rules = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: sum(x) / len(x)}
    exact = defaultdict(list)
    for time, name, value in rows:
        exact[name, time].append(value)
    ticks = defaultdict(list)
    for (name, time), values in sorted(exact.items()):
        ticks[name, time // step].append(rules[duplicates](values))
    table = {"time": [r[0] for r in rows], "sequence": [r[1] for r in rows], "value": [float(r[2]) for r in rows]}
    found = read_readings(table, names=["a", "b"], duplicates=duplicates, resample=resample, step=step)  # type: ignore[arg-type]
    for row, tick in enumerate(found.ticks.tolist()):
        for place, name in enumerate("ab"):
            expected = rules[resample](ticks[name, tick]) if (name, tick) in ticks else np.nan
            np.testing.assert_allclose(found.readings[row, place], expected, rtol=1e-12, atol=1e-12)
    assert {tick for _, tick in ticks} <= set(found.ticks.tolist())


def test_choices_are_named_when_wrong() -> None:
    table = {"time": [0, 1], "a": [1, 2]}
    for settings_, message in (
        ({"duplicates": "median"}, "one of 'refuse', 'first', 'last', 'mean' is allowed"),
        ({"resample": "median"}, "one of 'first', 'last', 'mean' is allowed"),
        ({"names": []}, "at least one"),
        ({"colour": "red"}, "colour: not a setting of readings; there are file, table"),
        ({"names": ["a", "a"]}, "appears twice"),
    ):
        with pytest.raises(InputError, match=message):
            read_readings(table, **settings_)


def test_gaps_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"gaps of 1,999,998 ticks; at most 1,000,000"):
        read_readings({"time": [0, 1, 2_000_000], "a": [1, 2, 3]})
    monkeypatch.setattr(grid, "MAX_CELLS", 10)
    with pytest.raises(TooLargeError, match="11 ticks of 1 sequences") as caught:
        read_readings({"time": [0, 1, 10], "a": [1, 2, 3]})
    assert (caught.value.needed, caught.value.limit) == (11, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("5min", 300), ("1h", 3600), ("1D", 86400), ("h", 3600), (" 2 w ", 1209600), (60, 60)],
)
def test_steps_in_words(text: str | int, expected: int) -> None:
    assert parse_step(text, stamps=True) == expected
    table = {"time": np.datetime64("2024-01-01", "s") + np.arange(3) * expected, "a": [1, 2, 3]}
    assert read_readings(table, step=text).step == expected


@pytest.mark.parametrize("text", ["soon", "5ms", "1.5h", "", "-1h", True, 1.5])
def test_steps_that_are_none(text: object) -> None:
    with pytest.raises(InputError, match=r"step: .*'5min'"):
        read_readings({"time": ["2024-01-01", "2024-01-02"], "a": [1, 2]}, step=text)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the times are whole numbers"):
        read_readings({"time": [0, 60], "a": [1, 2]}, step="1min")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit(tmp_path: Path, unit: str) -> None:
    stamps = np.array(["2024-03-01T00:00:00", "2024-03-01T00:05:00"], dtype=f"datetime64[{unit}]")
    expected = int(np.datetime64("2024-03-01", "s").astype(np.int64)) // 300
    pq.write_table(pa.table({"time": stamps, "a": [1.0, 2.0]}), tmp_path / "d.parquet")
    for source in (tmp_path / "d.parquet", {"time": stamps, "a": [1, 2]}, pd.DataFrame({"time": stamps, "a": [1, 2]})):
        found = read_readings(source)
        assert (found.step, found.ticks.tolist()) == (300, [expected, expected + 1])
        assert found.times.dtype == np.dtype("datetime64[s]")


def test_fractions_of_a_second() -> None:
    table = {"time": [f"2024-01-01T00:00:0{second}" for second in ("0.25", "0.75", "1.5")], "a": [1, 2, 3]}
    with pytest.raises(InputError, match=r"fractions of a second.*resample"):
        read_readings(table)
    assert column(table, step="1s", resample="mean") == [1.5, 3]
    shifted = {"time": ["2024-01-01T00:00:00.250001", "2024-01-01T00:01:00.250001"], "a": [1, 2]}
    found = read_readings(shifted)
    assert (found.step, str(found.times[0])) == (60, "2024-01-01T00:00:00")
    fine = pl.DataFrame(
        {"time": [dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 2)], "a": [1, 2]}
    )
    with pytest.raises(InputError, match="fractions"):
        read_readings(fine)


def test_offsets_become_utc() -> None:
    texts = {"time": ["2024-07-01T02:00:00+02:00", "2024-07-01T01:00:00Z", "2024-06-30T22:00-0400"], "a": [1, 2, 3]}
    found = read_readings(texts)
    assert [str(t) for t in found.times] == ["2024-07-01T00:00:00", "2024-07-01T01:00:00", "2024-07-01T02:00:00"]
    stamps = [dt.datetime(2024, 7, 1, hour, tzinfo=ZoneInfo("Europe/Paris")) for hour in (2, 3, 4)]
    for frame in (
        pd.DataFrame({"time": stamps, "a": [1, 2, 3]}),
        pd.DataFrame({"time": pd.Series(stamps, dtype=object), "a": [1, 2, 3]}),
        pl.DataFrame({"time": stamps, "a": [1, 2, 3]}),
        {"time": stamps, "a": [1, 2, 3]},
    ):
        assert read_readings(frame).ticks.tolist() == found.ticks.tolist()
    local = {"time": ["2024-07-01 02:00", "2024-07-01 03:00", "2024-07-01 04:00"], "a": [1, 2, 3]}
    assert read_readings(local, timezone="Europe/Paris").ticks.tolist() == found.ticks.tolist()


def test_times_with_and_without_offset_do_not_mix() -> None:
    texts = {"time": ["2024-07-01T00:00:00Z", "2024-07-01T01:00:00"], "a": [1, 2]}
    stamps = [dt.datetime(2024, 7, 1), dt.datetime(2024, 7, 2, tzinfo=dt.UTC)]
    for source in (
        texts,
        {"time": stamps, "a": [1, 2]},
        pd.DataFrame({"time": pd.Series(stamps, dtype=object), "a": [1, 2]}),
    ):
        with pytest.raises(InputError, match="mixes times"):
            read_readings(source)
    with pytest.raises(InputError, match="carries its own offset"):
        read_readings({"time": ["2024-07-01T00:00:00Z"], "a": [1]}, timezone="UTC", step=1)


def test_the_hour_that_clocks_change() -> None:
    """25 hours lie between the two midnights when clocks go back."""
    autumn = {"time": ["2016-10-30 00:00", "2016-10-31 00:00"], "a": [1, 2]}
    found = read_readings(autumn, timezone="Europe/London", step="1h")
    assert len(found) == 26
    assert str(found.times[0]) == "2016-10-29T23:00:00"
    for time, message in (
        ("2016-10-30 01:30:00", "2016-10-30 01:30:00 is there twice"),
        ("2016-03-27 01:30:00", "2016-03-27 01:30:00 does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            read_readings({"time": [time, "2016-12-01"], "a": [1, 2]}, timezone="Europe/London")
    with pytest.raises(InputError, match=r"'Mars/Olympus' is unknown"):
        read_readings(autumn, timezone="Mars/Olympus")


@pytest.mark.parametrize(
    "times",
    [
        [0.5, 1.0],
        [0.0, np.nan],
        [0.0, np.inf],
        [dt.timedelta(1), dt.timedelta(2)],
        [True, False],
        ["2024-01-01", None],
        ["2024-02-30", "2024-03-01"],
        ["99999999999999999999999", "5"],
        np.array(["2024-01-01", "NaT"], dtype="datetime64[s]"),
    ],
)
def test_times_that_are_none(times: object) -> None:
    with pytest.raises(InputError, match="column 'time' must hold whole numbers or ISO timestamps throughout"):
        read_readings({"time": times, "a": [1, 2]})


@pytest.mark.parametrize("times", [[-(2**63), 2**63 - 1], [0, 2**62], np.array([1, 2**64 - 1], dtype=np.uint64)])
def test_times_beyond_counting(times: object) -> None:
    with pytest.raises(InputError, match=r"too far|beyond 64 bits"):
        read_readings({"time": times, "a": [1, 2]})
