"""`csdp open`: three ordinary files from file to report, with what it wrote and nothing else."""

from __future__ import annotations

import json
import shlex
import tomllib
from datetime import timedelta

import numpy as np
import pytest

import ordinary
from csdp import InputSpec, read_readings
from csdp.chain.files import load_model
from csdp.panel import find_input

#: Settings of commands that keep a test short.
TICKS = 60
SMALL = ("--states", "2", "--neighbours", "0", "--public")


@pytest.fixture(params=ordinary.FILES)
def file(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ordinary.FILES[request.param](tmp_path / request.param, ticks=TICKS)
    return tmp_path / request.param


def test_from_file_to_report_with_the_input_file_alone(run, file):
    shown = run("open", file.name, "-o", "input.toml").stdout
    assert "PRIVATE" in shown
    run("fit", "input.toml", *SMALL, "-o", "chain.json")
    states = ["--discretiser", "chain.discretiser.json", "--stale-limit", "1"]
    given = ["--age", "1", "--epsilon-c", "2", "--about", "then"]
    run("plan", "chain.json", *given, *states, "-o", "plan.json")
    plan = ["--plan", "plan.json", "--dataset", "d"]
    out = ["--ledger", "ledger.db", "--simulated-times", "--model-unchecked", "-o", "out.csv", "--format", "json"]
    released = json.loads(run("release", "input.toml", *plan, *out).stdout)
    assert released["published"] > TICKS / 2
    assert released["certificate"]["model"]["status"] == "untested"  # too few ticks
    run("report", "ledger.db", *plan, "--data", "input.toml", "-o", "report")
    assert (file.parent / "report" / "index.html").stat().st_size > 1000
    run("init", "input.toml", "--plan", "later.json", "-o", "stream.toml")
    assert "input" in tomllib.loads((file.parent / "stream.toml").read_text())
    run("fit", "stream.toml", *SMALL, "-o", "again.json")
    assert load_model("again.json").digest == load_model("chain.json").digest


def follow(run, file, *options):
    """From a file to a report with `open`, `suggest`, and the commands that it prints: what is published of it."""
    run("open", file.name, "-o", "input.toml")
    content = json.loads(
        run("suggest", "input.toml", "--public", "-o", "suggested", "--format", "json", *options).stdout
    )
    assert content["plans"][0]["usefulness"] >= 0.05
    for line in content["next"]:
        run(*shlex.split(line)[1:])
    assert (file.parent / "report" / "index.html").stat().st_size > 1000
    certificate = json.loads((file.parent / "released.csv.certificate.json").read_text())
    assert certificate["guarantees"]["present"]["epsilon"] <= 1
    return certificate["counts"]["published"]


def test_from_file_to_a_useful_release_and_report_with_suggest(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ordinary.write_meters(tmp_path / "meters.csv", ticks=240)
    assert follow(run, tmp_path / "meters.csv", "--seconds", "1", "--query", "mean") > 120


@pytest.mark.slow
@pytest.mark.parametrize("name", ordinary.FILES)
def test_every_file_in_full_goes_to_a_useful_release(run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    ordinary.FILES[name](tmp_path / name)
    assert follow(run, tmp_path / name) > 150


class TestWhatIsFound:
    def test_sensors_with_offsets_and_summer_time(self, tmp_path):
        ordinary.write_sensors(tmp_path / "sensors.csv")
        found = find_input(tmp_path / "sensors.csv")
        assert found.spec.time == "timestamp"
        assert (found.spec.delimiter, found.spec.step, found.spec.sequence) == (",", "30min", None)
        assert found.readings.names == ("kitchen", "hall", "bath")
        # No hour is there twice, and none is missing, where clocks were set back on 27 October at 01:00 UTC.
        assert len(found.readings) == 700
        night = (found.readings.times >= np.datetime64("2024-10-27T00:00")) & (
            found.readings.times < np.datetime64("2024-10-27T03:00")
        )
        assert night.sum() == 6

    def test_patients_in_a_long_table(self, tmp_path):
        ordinary.write_patients(tmp_path / "patients.txt", ticks=80)
        spec = find_input(tmp_path / "patients.txt").spec
        assert (spec.delimiter, spec.time, spec.sequence, spec.value) == (
            "\t",
            "charttime",
            "patient_id",
            "heart_rate",
        )
        readings = read_readings(spec)
        assert readings.names == ("1001", "1002", "1003", "1004")
        assert readings.step == 300
        assert 60 <= np.nanmin(readings.readings) <= np.nanmax(readings.readings) <= 100

    def test_meters_with_decimal_commas(self, tmp_path):
        ordinary.write_meters(tmp_path / "meters.csv")
        found = find_input(tmp_path / "meters.csv")
        spec = found.spec
        assert (spec.delimiter, spec.decimal, spec.encoding) == (";", ",", "cp1252")
        assert (spec.time_format, spec.duplicates, spec.step) == ("%d.%m.%Y %H:%M", "last", "15min")
        assert found.readings.names == ("Küche", "Büro")
        assert found.readings.readings[-1, 0] == 2.0  # the correction, which comes last
        # Read directly, without the choices that `csdp open` makes, the repeated lines are refused.
        with pytest.raises(ValueError, match="two readings of"):
            read_readings(tmp_path / "meters.csv")

    def test_the_section_reads_the_same(self, run, file):
        run("open", file.name, "-o", "input.toml")
        found = find_input(file)
        again = read_readings("input.toml")
        np.testing.assert_array_equal(again.readings, found.readings.readings)
        assert again.times.tolist() == found.readings.times.tolist()
        assert InputSpec.load("input.toml").override(file=str(file)) == found.spec


class TestOptions:
    """Each option overrules what is found."""

    def test_each_of_them(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        text = "a|who|what|note\n01/02/2024 00:30|p|1,5|low\n01/02/2024 00:31|p|2,5|high\n01/02/2024 00:31|p|3,5|low\n"
        (tmp_path / "d.csv").write_bytes(("made by hand\n" + text).encode("utf-16-le"))
        (tmp_path / "text.toml").write_text('[input]\nfile = "d.csv"\nencoding = "utf-16-le"\nskip = 1\n')
        given = [
            *("--time", "a", "--time-format", "%d/%m/%Y %H:%M", "--sequence", "who", "--delimiter", "|"),
            *("--timezone", "Europe/Berlin", "--step", "1min", "--duplicates", "mean"),
        ]
        run("open", "text.toml", *given, "--value", "what", "--decimal", ",", "-o", "in.toml")
        readings = read_readings("in.toml")
        assert readings.readings[:, 0].tolist() == [1.5, 3.0]
        assert str(readings.times[0]) == "2024-01-31T23:30:00"
        words = ("--value", "note", "--categories", "low,high", "--names", "p")
        run("open", "text.toml", *given, *words, "-o", "in.toml")
        assert read_readings("in.toml").readings[:, 0].tolist() == [0.0, 0.5]

    def test_they_go_before_the_input_file(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "d.csv").write_text("time,a,b\n0,0,1\n1,1,1\n3,0,1\n3,1,0\n")
        run("open", "d.csv", "-o", "in.toml")
        assert read_readings("in.toml").readings[3].tolist() == [1, 0]
        assert read_readings("in.toml", duplicates="first").readings[3].tolist() == [0, 1]
        run("open", "in.toml", "--step", "3", "--resample", "first", "-o", "other.toml")
        spec = InputSpec.load("other.toml")
        assert (spec.step, spec.resample) == (3, "first")

    def test_no_header(self, run, tmp_path):
        (tmp_path / "d.csv").write_text("0,1.5\n1,2.5\n2,3.5\n")
        (tmp_path / "text.toml").write_text('[input]\nfile = "d.csv"\nheader = false\n')
        run("open", tmp_path / "text.toml", "--time", "column1", "-o", tmp_path / "in.toml")
        assert read_readings(tmp_path / "in.toml").readings[:, 0].tolist() == [1.5, 2.5, 3.5]


class TestTrouble:
    def test_the_output(self, fails, tmp_path):
        (tmp_path / "d.toml").write_text("[input]\nfile = 'x.csv'\n")
        assert "ends in .toml" in fails("open", tmp_path / "d.csv", "-o", tmp_path / "d.txt")
        assert "overwrite" in fails("open", tmp_path / "d.toml", "-o", tmp_path / "d.toml")
        assert "x.csv: no such file" in fails("open", tmp_path / "d.toml")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("time = 'a'\n", "input.toml: input.file: not given"),
            (
                "file = 'd.csv'\nduplicates = 'some'\n",
                "input.toml: input.duplicates: 'some' given; input should",
            ),
            ("file = 'd.csv'\ndelimeter = ';'\n", "unknown key (did you mean 'delimiter'?)"),
            ("file = 'd.csv'\nstep = 0\n", "input: step: 0 given; a whole number, at least 1"),
        ],
    )
    def test_mistakes_in_the_section_name_their_key(self, fails, tmp_path, text, told):
        (tmp_path / "input.toml").write_text(f"[input]\n{text}")
        assert told in fails("open", tmp_path / "input.toml")

    def test_clocks_that_are_set_back_want_a_zone(self, run, fails, tmp_path):
        from datetime import UTC, datetime

        start = datetime(2024, 10, 26, 20, tzinfo=UTC)
        rows = [(start + timedelta(minutes=30 * t)).astimezone(ordinary.BERLIN) for t in range(20)]
        text = "time,a\n" + "".join(f"{when:%Y-%m-%d %H:%M},{i}\n" for i, when in enumerate(rows))
        (tmp_path / "d.csv").write_text(text)
        message = fails("open", tmp_path / "d.csv")
        assert "as where clocks are set back; give --timezone" in message
        run("open", tmp_path / "d.csv", "--timezone", "Europe/Berlin", "-o", tmp_path / "in.toml")
        assert read_readings(tmp_path / "in.toml").readings[:, 0].tolist() == list(range(20))

    def test_no_cell_is_quoted_in_an_error(self, fails, tmp_path):
        secret = "77.125"
        for text in (
            f"time,a\n0,{secret}x\n1,2\n",
            f"time,a\n0,1\n1,{secret},3\n",
            f"time;a\n0;{secret},4\n1;2\n",
            f"{secret},2\n{secret},3\n",
            f"time,who,x,y\n0,a,{secret},2\n0,b,{secret},2\n",
        ):
            (tmp_path / "d.csv").write_text(text)
            assert secret not in fails("open", tmp_path / "d.csv")
