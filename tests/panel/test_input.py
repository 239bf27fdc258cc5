"""How a table is written is found in it: text, numbers, times, columns, kinds of files; what is unclear is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from csdp import InputSpec, Readings, find_input, read_readings
from csdp.errors import InputError

EXPECTED = [[1.5, 10.0], [2.5, np.nan], [3.5, 30.0]]


def check(found: Readings) -> None:
    assert found.names == ("a", "b")
    np.testing.assert_array_equal(found.readings, EXPECTED)


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(",", "utf-8-sig"), (";", "latin-1"), ("\t", "utf-16"), ("|", "cp1252")],
)
def test_delimiters_and_encodings(tmp_path: Path, delimiter: str, encoding: str) -> None:
    lines = ["time,größe,b", "0,1.5,10", "1,2.5,", "2,3.5,30"]
    file = tmp_path / "d.csv"
    file.write_bytes("\n".join(lines).replace(",", delimiter).encode(encoding))
    found = read_readings(file)
    assert found.names == ("größe", "b")
    np.testing.assert_array_equal(found.readings, EXPECTED)


def test_lines_before_the_header(tmp_path: Path) -> None:
    text = "Station 7\nmade on;1.1.2024\n\ntime;a;b\n0;1,5;10\n1;2,5;\n2;3,5;30\n"
    (tmp_path / "d.csv").write_text(text)
    check(read_readings(tmp_path / "d.csv"))
    found = find_input(tmp_path / "d.csv")
    assert found.spec.skip == 3
    check(read_readings(found.spec))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1,234", "2,345"], "may be decimal or between thousands; give decimal="),
        (["1.234,5", "2,5"], "is not a number"),
        (["1,5", "2.5"], "is not a number"),
        (["1,5,5", "2"], "is not a number"),
    ],
)
def test_numbers_that_are_not_clear(cells: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_readings({"time": [0, 1], "a": cells})
    assert cells[0] not in str(caught.value)


def test_decimal_commas() -> None:
    assert read_readings({"time": [0, 1], "a": ["1,234", "12"]}, decimal=",").readings[:, 0].tolist() == [1.234, 12]
    found = read_readings({"time": [0, 1, 2], "a": ["-0,5", " 1,25e1 ", ""], "b": ["3", "4", "5"]})
    np.testing.assert_array_equal(found.readings, [[-0.5, 3], [12.5, 4], [np.nan, 5]])
    with pytest.raises(InputError, match=r"row 2 is not a number with a decimal comma"):
        read_readings({"time": [0, 1], "a": ["0,5", "1.5"]}, decimal=",")
    with pytest.raises(InputError, match=r"one of '\.', ',' is allowed"):
        read_readings({"time": [0, 1], "a": [1, 2]}, decimal="'")


@pytest.mark.parametrize(
    ("times", "first"),
    [
        (["27.10.2024 02:30", "28.10.2024 02:30"], "2024-10-27T02:30:00"),
        (["1.2.2024", "2.2.2024"], "2024-02-01T00:00:00"),
        (["10/27/2024 1:05 PM", "10/28/2024 1:05 PM"], "2024-10-27T13:05:00"),
        (["27/10/2024 13:05:09", "28/10/2024 13:05:09"], "2024-10-27T13:05:09"),
        (["2024/10/27 13:05", "2024/10/28 13:05"], "2024-10-27T13:05:00"),
    ],
)
def test_times_that_are_not_iso(times: list[str], first: str) -> None:
    assert str(read_readings({"time": times, "a": [1, 2]}).times[0]) == first
    spec = find_input({"time": times, "a": [1, 2]}).spec
    assert spec.time_format is not None
    assert str(read_readings({"time": times, "a": [1, 2]}, time_format=spec.time_format).times[0]) == first


def test_day_or_month() -> None:
    unclear = {"time": ["01/02/2024", "02/02/2024"], "a": [1, 2]}
    with pytest.raises(InputError, match="which number is the day and which the month"):
        read_readings(unclear)
    assert str(read_readings(unclear, time_format="%m/%d/%Y").times[0]) == "2024-01-02T00:00:00"
    with pytest.raises(InputError, match="does not hold times written as"):
        read_readings({"time": ["27/10/2024", "10/28/2024"], "a": [1, 2]}, time_format="%d/%m/%Y")
    with pytest.raises(InputError):  # one day first, one month first
        read_readings({"time": ["27/10/2024", "10/28/2024"], "a": [1, 2]})


class TestClocksThatGoBack:
    ZONE = "Europe/Berlin"

    def local(self, minutes: int, count: int) -> list[str]:
        start = datetime(2024, 10, 26, 22, tzinfo=UTC)
        zone = ZoneInfo(self.ZONE)
        return [f"{(start + timedelta(minutes=minutes * i)).astimezone(zone):%Y-%m-%d %H:%M}" for i in range(count)]

    @pytest.mark.parametrize("minutes", [10, 30, 60])
    def test_the_order_of_rows_tells_the_passes_apart(self, minutes: int) -> None:
        times = self.local(minutes, 360 // minutes)
        found = read_readings({"time": times, "a": np.arange(len(times))}, timezone=self.ZONE)
        assert found.readings[:, 0].tolist() == list(range(len(times)))
        assert str(found.times[0]) == "2024-10-26T22:00:00"

    def test_each_sequence_of_a_long_table(self) -> None:
        times = [time for time in self.local(30, 12) for _ in "ab"]
        table = {"time": times, "sequence": ["a", "b"] * 12, "value": np.arange(24.0)}
        found = read_readings(table, timezone=self.ZONE)
        assert found.readings.tolist() == np.arange(24.0).reshape(12, 2).tolist()

    def test_one_pass_alone_is_refused(self) -> None:
        times = [time for i, time in enumerate(self.local(30, 12)) if not 4 <= i < 6]
        with pytest.raises(InputError, match="does not show which is meant"):
            read_readings({"time": times, "a": np.arange(len(times))}, timezone=self.ZONE)


class TestColumns:
    def test_the_column_of_times(self) -> None:
        for name in ("Timestamp", "charttime", "Zeit"):
            assert read_readings({name: ["2024-01-01", "2024-01-02"], "a": [1, 2]}).names == ("a",)
        assert read_readings({"date": [1, 2], "a": [1, 2]}).names == ("a",)
        with pytest.raises(InputError, match="several columns hold times: begin, end; give one as time="):
            read_readings({"begin": ["2024-01-01"], "end": ["2024-01-02"], "a": [1]})

    def test_long_tables(self) -> None:
        rows = {"when": [0, 0, 1, 1], "patient_id": [7, 8, 7, 8], "rate": [1.0, 2.0, 3.0, 4.0]}
        assert read_readings(rows).readings.tolist() == [[1, 2], [3, 4]]
        words = {"when": [0, 0, 1, 1], "x": ["p", "q", "p", "q"], "rate": [1.0, 2.0, 3.0, 4.0]}
        assert read_readings(words).names == ("p", "q")
        two = {**words, "other": [1, 2, 3, 4]}
        with pytest.raises(InputError, match="which column holds the readings"):
            read_readings(two)
        assert read_readings(two, sequence="x", value="other").readings.tolist() == [[1, 2], [3, 4]]
        with pytest.raises(InputError, match="give sequence= and value="):
            read_readings({**words, "y": ["u", "v", "u", "v"]})

    def test_a_wide_table_is_not_taken_for_a_long_one(self) -> None:
        assert read_readings({"time": [0, 1], "id": [1, 2], "x": [3, 4]}).names == ("id", "x")
        with pytest.raises(InputError, match="two readings of 'a'"):
            read_readings({"time": [0, 0], "a": [1, 2], "b": [3, 4]})

    def test_columns_of_words(self) -> None:
        found = find_input({"time": [0, 1], "a": [1.0, 2.0], "note": ["x", "y"]})
        assert found.spec.names == ("a",)
        assert ("left out", "columns that hold no numbers: note", "--names --categories") in found.facts
        labels = find_input({"time": [0, 1], "a": ["low", "high"]})
        assert labels.spec.categories == ("high", "low")


class TestKinds:
    TABLE = pa.table({"time": [0, 1, 2], "a": [1.5, 2.5, 3.5], "b": [10.0, None, 30.0]})

    def test_parquet(self, tmp_path: Path) -> None:
        pq.write_table(self.TABLE, tmp_path / "d.parquet")
        check(read_readings(tmp_path / "d.parquet"))
        (tmp_path / "d.parquet").write_bytes(b"no such thing")
        with pytest.raises(InputError, match="or a damaged one"):
            read_readings(tmp_path / "d.parquet")

    def test_json_lines(self, tmp_path: Path) -> None:
        rows = self.TABLE.to_pylist()
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        check(read_readings(tmp_path / "d.jsonl"))
        messages = [{"time": row["time"], "values": {"a": row["a"], "b": row["b"]}} for row in rows]
        (tmp_path / "d.ndjson").write_text("".join(json.dumps(row) + "\n" for row in messages))
        check(read_readings(tmp_path / "d.ndjson"))
        for text, message in (('{"time": 77.5', "not JSON lines"), ('{"time": 0, "a": [1]}', "not numbers")):
            (tmp_path / "d.jsonl").write_text(text)
            with pytest.raises(InputError, match=message):
                read_readings(tmp_path / "d.jsonl")

    def test_databases_are_to_be_exported(self, tmp_path: Path) -> None:
        (tmp_path / "ward.duckdb").write_bytes(b"DUCK")
        with pytest.raises(InputError, match="export the table of a database"):
            read_readings(tmp_path / "ward.duckdb")
        with pytest.raises(InputError, match="an address given; export the table") as refused:
            read_readings("postgresql://me:secret@host/d")
        assert "secret" not in str(refused.value)
        with pytest.raises(InputError, match="an address given"):
            InputSpec(file="postgresql://me@host/d")

    def test_excel(self, tmp_path: Path) -> None:
        file = tmp_path / "d.xlsx"
        file.write_bytes(b"PK")
        with pytest.raises(InputError, match="not an Excel file"):
            read_readings(file)
        book = openpyxl.Workbook()
        for row in (("time", "a", "b"), (0, 1.5, 10), (1, 2.5, None), (2, 3.5, 30)):
            book.active.append(row)
        book.save(file)
        check(read_readings(file))
        with pytest.raises(InputError, match="no sheet 'x'; give table="):
            read_readings(file, table="x")


class TestSpec:
    def test_every_setting_survives_a_file(self, tmp_path: Path) -> None:
        spec = InputSpec(
            file=str(tmp_path / "d.csv"),
            delimiter="\t",
            decimal=",",
            encoding="latin-1",
            header=False,
            skip=2,
            time='a "time"',
            time_format="%d.%m.%Y",
            timezone="UTC",
            sequence="s",
            value="v",
            names=("ä", "b"),
            categories=("x", "y"),
            step=60,
            resample="last",
            duplicates="mean",
        )
        spec.save(tmp_path / "in.toml")
        assert InputSpec.load(tmp_path / "in.toml") == spec
        assert 'file = "d.csv"' in (tmp_path / "in.toml").read_text()

    def test_irregular_times_are_resampled(self) -> None:
        rng = np.random.default_rng(1)
        times = np.datetime64("2024-01-01", "s") + np.arange(200) * 300 + rng.integers(-40, 40, 200)
        found = find_input({"time": times, "a": np.arange(200.0)})
        assert (found.spec.step, found.spec.resample) == ("5min", "last")
        assert 195 <= len(found.readings) <= 205

    def test_a_gap_is_no_irregular_time(self) -> None:
        times = np.concatenate([np.arange(50), np.arange(400, 450)]) * 60
        assert find_input({"time": times, "a": np.zeros(100)}).spec.step == 60


def write_times(path: Path, times: list[str]) -> Path:
    """A table of one sequence at some times."""
    path.write_text("time,a\n" + "".join(f"{when},{k}\n" for k, when in enumerate(times)))
    return path


@pytest.mark.parametrize("offset", ["+02:00", "+02", "Z"])
def test_times_with_an_offset_are_moments(tmp_path: Path, offset: str) -> None:
    path = write_times(tmp_path / "r.csv", [f"2024-07-01T1{k}:00:00{offset}" for k in range(3)])
    hour = 10 if offset == "Z" else 8
    for readings in (read_readings(path), find_input(path).readings):
        assert readings.times[0] == np.datetime64(f"2024-07-01T{hour:02}:00:00")
    assert "with offsets, here in UTC" in str(find_input(path).facts)
    with pytest.raises(InputError, match="carries its own offset from UTC; leave out timezone"):
        read_readings(path, timezone="Europe/Berlin")


def test_times_with_and_without_an_offset_are_refused(tmp_path: Path) -> None:
    path = write_times(tmp_path / "r.csv", ["2024-07-01T10:00:00+02:00", "2024-07-01T11:00:00", "2024-07-01T12:00:00"])
    for read in (read_readings, find_input):
        with pytest.raises(InputError, match="mixes times with an offset from UTC and times without"):
            read(path)


def test_offsets_change_with_daylight_saving_time(tmp_path: Path) -> None:
    times = ["2024-10-27T01:00:00+02:00", "2024-10-27T02:00:00+02:00", "2024-10-27T02:00:00+01:00"]
    readings = read_readings(write_times(tmp_path / "r.csv", times))
    assert (len(readings), readings.step) == (3, 3600)


MONTHS = {
    "starts": [f"2024-{m:02}-01" for m in range(1, 13)],
    "one missing": [f"2024-{m:02}-01" for m in (1, 2, 3, 5, 6)],
    "ends": ["2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"],
    "local midnight": ["2024-01-01T00:00:00+01:00", "2024-02-01T00:00:00+01:00", "2024-05-01T00:00:00+02:00"],
    "quarters": ["2023-10-01", "2024-01-01", "2024-04-01", "2024-07-01"],
    "years": ["2022-01-01", "2023-01-01", "2024-01-01", "2025-01-01"],
}


@pytest.mark.parametrize("times", MONTHS.values(), ids=MONTHS)
def test_months_are_no_ticks(tmp_path: Path, times: list[str]) -> None:
    """They were read as steps of a day or a week, almost all of them missing."""
    path = write_times(tmp_path / "r.csv", times)
    for read in (read_readings, find_input):
        with pytest.raises(InputError, match=r"r\.csv: times are months apart .* Number the months"):
            read(path)
    assert read_readings(path, step="30D", resample="last").step == 30 * 86400


def test_long_steps_that_are_no_months(tmp_path: Path) -> None:
    path = write_times(tmp_path / "r.csv", ["2023-02-01", "2023-03-01", "2023-03-29", "2023-04-26"])
    assert read_readings(path).step == find_input(path).readings.step == 28 * 86400
