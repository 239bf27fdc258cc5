"""The whole path in real processes: chain, readings, release, ledger."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet
import pytest

import postgres
from command import run_command

CHAIN = ("chain", "new", "-s", "2", "--self-coupling", "0.75", "--p", "0.3", "--names", "hall,kitchen")


def csdp(*args, code=0):
    """Run the command in a process of its own; the exit code is checked."""
    done = run_command(*args, COLUMNS="100")
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        assert done.stderr == ""
    return done


def one_line(done):
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("csdp: ")
    return line


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A chain, and the same readings wide as CSV, and long as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("place")
    csdp(*CHAIN, "-o", folder / "chain.json")
    make_plan(folder / "chain.json", folder / "plan.json")
    csdp("chain", "simulate", folder / "chain.json", "--steps", "40", "--seed", "1", "-o", folder / "wide.csv")
    rows = list(csv.DictReader((folder / "wide.csv").read_text().splitlines()))
    assert list(rows[0]) == ["time", "hall", "kitchen"]
    long = [(int(row["time"]), name, float(row[name])) for row in rows for name in ("kitchen", "hall")]
    with (folder / "long.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("time", "sequence", "value"), *long])
    columns = dict(zip(("time", "sequence", "value"), zip(*long, strict=True), strict=True))
    pyarrow.parquet.write_table(pyarrow.table({k: list(v) for k, v in columns.items()}), folder / "long.parquet")
    return folder


def make_plan(chain, path, *more):
    csdp("plan", chain, "--age", "2", "--epsilon-c", "1", "--about", "then", *more, "-o", path)
    return path


def release(place, folder, data, out, *more, code=0, dataset="home", plan=None):
    plan = place / "plan.json" if plan is None else plan
    options = ("--plan", plan, "--dataset", dataset, "--ledger", folder / "ledger.db")
    return csdp("release", data, *options, "-o", out, *more, code=code)


def read(path):
    """The rows of a released series, whatever its format."""
    if path.suffix == ".csv":
        rows = csv.DictReader(path.read_text().splitlines())
        return [{k: float(v) for k, v in row.items() if k not in {"about", "model"}} for row in rows]
    flat = ("values", "estimate", "standard_error", "low", "high")
    rows = json.loads(path.read_text())["releases"]
    rows = [{name: cell for name, cell in row.items() if name not in {"level", "about"}} for row in rows]
    return [{k.removesuffix("s") if k == "values" else k: v[0] if k in flat else v for k, v in r.items()} for r in rows]


def heads(ledger):
    return json.loads(csdp("ledger", "verify", ledger, "--format", "json").stdout)["heads"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("wide.csv", ".csv"),
        ("long.csv", ".json"),
        ("long.parquet", ".csv"),
    ],
)
def test_the_whole_path(place, tmp_path, data, kind):
    out = tmp_path / f"released{kind}"
    output = release(place, tmp_path, place / data, out, "--budget", "0.5").stdout
    assert "38 of 40 ticks of home published, 38 of them charged now" in output
    for words in ("present", "event", "group", "moment", "Not promised:", "To quote: Everything published of home"):
        assert words in output
    rows = read(out)
    assert [row["tick"] for row in rows] == list(range(2, 40))
    assert [row["epsilon_s"] for row in rows] == sorted(row["epsilon_s"] for row in rows)
    assert rows[0]["epsilon_s"] == pytest.approx(0.153045546, abs=1e-9)
    assert all(row["standard_error"] < 0.37 and row["ages"] == 2 and row["stale"] == 0 for row in rows)

    certificate = json.loads((tmp_path / f"released{kind}.certificate.json").read_text())
    assert certificate["schema"] == "csdp/certificate/1"
    promised = certificate["guarantees"]
    assert promised["present"]["epsilon"] == rows[-1]["epsilon_s"]
    assert promised["present"]["ceiling"] == 0.5
    assert promised["event"]["epsilon"] == 1
    assert promised["group"]["epsilon"] == pytest.approx(76)
    assert promised["group"]["ceiling"] is None
    assert promised["every_moment"]["epsilon"] <= promised["every_moment"]["ceiling"]
    assert certificate["counts"]["published"] == 38

    assert heads(tmp_path / "ledger.db") == {"home": certificate["ledger"]["head_hash"]}
    [facts] = json.loads(csdp("ledger", "show", tmp_path / "ledger.db", "--format", "json").stdout)["datasets"]
    assert facts["published"] == 38
    assert facts["last_charge"]["present"] == rows[-1]["epsilon_s"]
    assert facts["plan"] == certificate["plan"]["digest"]
    assert facts["chain"] == certificate["plan"]["chain_digest"]
    assert "38 published" in csdp("ledger", "show", tmp_path / "ledger.db").stdout
    lines = [json.loads(line) for line in csdp("ledger", "export", tmp_path / "ledger.db").stdout.splitlines()]
    assert recomputed(lines) == certificate["ledger"]["head_hash"]


def recomputed(lines):
    """The head of the hash chain, as the format's page says to recompute it."""
    previous = "0" * 64
    for line in lines:
        if line["line"] == "entry":
            names = ("dataset", "seq", "kind", "tick", "query", "plan", "time", "payload")
            text = previous + "\n" + json.dumps([line[name] for name in names], separators=(",", ":"))
            previous = hashlib.sha256(text.encode()).hexdigest()
            assert previous == line["hash"]
    return previous


@pytest.mark.parametrize("kind", [".csv", ".json"])
def test_twice_gives_the_same_bytes_and_no_new_charge(place, tmp_path, kind):
    first, second = tmp_path / f"first{kind}", tmp_path / f"second{kind}"
    release(place, tmp_path, place / "wide.csv", first)
    head = heads(tmp_path / "ledger.db")
    output = release(place, tmp_path, place / "long.parquet", second).stdout
    assert "38 of 40 ticks of home published, 0 of them charged now" in output
    assert "38 were recorded before: their numbers stay, whatever the readings are now" in output
    assert first.read_bytes() == second.read_bytes()
    certificates = [path.with_name(path.name + ".certificate.json").read_bytes() for path in (first, second)]
    assert certificates[0] == certificates[1]
    assert heads(tmp_path / "ledger.db") == head


class TestLimits:
    def test_refused_writes_what_was_published_before(self, place, tmp_path):
        out = tmp_path / "out.csv"
        done = release(place, tmp_path, place / "wide.csv", out, "--budget", "0.2", code=3)
        [line] = done.stderr.splitlines()
        assert line.startswith("csdp: home: a release would bring the leakage of the present to 0.2073")
        assert "from tick 5 on" in line
        rows = read(out)
        assert [row["tick"] for row in rows] == [2, 3]
        assert rows[-1]["epsilon_s"] <= 0.2
        assert "2 of 40 ticks" in done.stdout
        before = out.read_bytes(), heads(tmp_path / "ledger.db")
        again = release(place, tmp_path, place / "wide.csv", out, "--budget", "0.2", code=3)
        assert "0 of them charged now" in again.stdout
        assert (out.read_bytes(), heads(tmp_path / "ledger.db")) == before

    def test_refused_at_once_gives_an_empty_series(self, place, tmp_path):
        out = tmp_path / "out.csv"
        done = release(place, tmp_path, place / "wide.csv", out, "--event-limit", "0.5", code=3)
        assert "epsilon-DP of a record to 1, above its limit 0.5" in done.stderr
        assert read(out) == []
        assert "Nothing has been published of home yet." in done.stdout

    def test_skipping_stays_below_the_ceiling_and_goes_on(self, place, tmp_path):
        out = tmp_path / "out.json"
        options = ("--budget", "0.2", "--on-refusal", "skip")
        output = release(place, tmp_path, place / "wide.csv", out, *options).stdout
        content = json.loads(out.read_text())
        assert all(row["epsilon_s"] <= 0.2 for row in content["releases"])
        assert content["releases"][-1]["tick"] >= 38
        assert {row["tick"] for row in content["releases"]} | {row["tick"] for row in content["skipped"]} == set(
            range(40)
        )
        assert "without output: refused by a limit" in output

    def test_limits_are_terms_of_the_dataset(self, place, tmp_path):
        release(place, tmp_path, place / "wide.csv", tmp_path / "out.csv", "--budget", "0.5")
        done = release(place, tmp_path, place / "wide.csv", tmp_path / "b.csv", "--budget", "5", code=2)
        assert "published under other terms" in one_line(done)
        assert not (tmp_path / "b.csv").exists()


class TestReadings:
    def test_missing_readings(self, place, tmp_path):
        rows = list(csv.reader((place / "wide.csv").read_text().splitlines()))
        rows[11][1] = ""  # hall at time 10
        del rows[21]  # time 20
        data = tmp_path / "gaps.csv"
        data.write_text("\n".join(",".join(row) for row in rows) + "\n")
        release(place, tmp_path, data, tmp_path / "strict.json", dataset="strict")
        content = json.loads((tmp_path / "strict.json").read_text())
        assert {row["tick"]: row["count"] for row in content["releases"] if row["count"] < 2} == {12: 1}
        assert [row["tick"] for row in content["skipped"] if row["reason"] == "no sequence was read at its age"] == [22]
        assert all(row["stale"] == 0 for row in content["releases"])

        filled = tmp_path / "filled.csv"
        plan = make_plan(place / "chain.json", tmp_path / "plan.json", "--stale-limit", "1")
        release(place, tmp_path, data, filled, plan=plan, dataset="filled")
        stale = {row["tick"]: row["stale"] for row in read(filled) if row["stale"]}
        assert stale == {12: 1, 22: 1}
        promised = json.loads((tmp_path / "filled.csv.certificate.json").read_text())["guarantees"]
        assert promised["event"]["epsilon"] == 2  # a reading that stood in for the next one was read twice
        assert promised["present"]["ceiling"] > promised["present"]["epsilon"]

    def test_timestamps_and_step(self, place, tmp_path):
        rows = list(csv.reader((place / "wide.csv").read_text().splitlines()))
        start = datetime(2025, 3, 1)
        for number, row in enumerate(rows[1:]):
            row[0] = (start + timedelta(hours=number)).isoformat()
        data = tmp_path / "stamped.csv"
        data.write_text("\n".join(",".join(row) for row in rows) + "\n")
        release(place, tmp_path, data, tmp_path / "out.csv")
        first = next(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
        assert first["time"] == "2025-03-01T02:00:00"

    def test_values_outside_the_model(self, place, tmp_path):
        data = tmp_path / "high.csv"
        data.write_text("time,hall,kitchen\n" + "".join(f"{t},{7 if t == 1 else 0},1\n" for t in range(5)))
        done = release(place, tmp_path, data, tmp_path / "out.csv", code=2)
        assert "are none of its 2 declared values" in one_line(done)
        assert not (tmp_path / "ledger.db").exists()
        assert "7" not in done.stderr.split("readings:")[1]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "empty"),
            ("time,hall\n1,0\n", "no column 'kitchen'"),
            ("time,hall,kitchen\n1,0,0\n1,0,0\n", "two readings of 'hall' at time 1"),
        ],
    )
    def test_bad_files_are_one_line(self, place, tmp_path, content, message):
        data = tmp_path / "data.csv"
        data.write_text(content)
        assert message in one_line(release(place, tmp_path, data, tmp_path / "out.csv", code=2))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"]


class TestPlaces:
    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write to")
    def test_an_output_that_cannot_be_written_costs_nothing(self, place, tmp_path):
        for out in (tmp_path / "nowhere" / "out.csv", "/proc/out.csv"):
            done = release(place, tmp_path, place / "wide.csv", out, code=2)
            assert "cannot be written" in one_line(done)
            assert "nothing was released" in done.stderr
        assert not (tmp_path / "ledger.db").exists()

    def test_the_kind_of_output_must_be_known(self, place, tmp_path):
        done = release(place, tmp_path, place / "wide.csv", tmp_path / "out.xlsx", code=2)
        assert ".csv or .json" in one_line(done)

    def test_the_readings_are_not_overwritten(self, place, tmp_path):
        before = (place / "wide.csv").read_bytes()
        done = release(place, tmp_path, place / "wide.csv", place / "." / "wide.csv", code=2)
        assert "wide.csv, which is read; give another name" in one_line(done)
        assert (place / "wide.csv").read_bytes() == before

    def test_a_foreign_or_damaged_ledger_is_left_as_it_is(self, place, tmp_path):
        ledger = tmp_path / "ledger.db"
        for content in (b"", b"not a database", os.urandom(5000)):
            ledger.write_bytes(content)
            one_line(release(place, tmp_path, place / "wide.csv", tmp_path / "out.csv", code=2))
            assert ledger.read_bytes() == content
            for command in ("show", "verify", "export"):
                assert "ledger" in one_line(csdp("ledger", command, ledger, code=2))
        assert not (tmp_path / "out.csv").exists()

    def test_an_edited_ledger_is_found(self, place, tmp_path):
        release(place, tmp_path, place / "wide.csv", tmp_path / "out.csv")
        ledger = tmp_path / "ledger.db"
        with sqlite3.connect(ledger) as connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f'DROP TRIGGER "{name}"')
            connection.execute("UPDATE csdp_entries SET payload = '{}' WHERE seq = 3")
        done = csdp("ledger", "verify", ledger, code=2)
        lines = done.stderr.splitlines()
        assert len(lines) >= 2
        assert any("entry 3: does not fit the hash chain" in line for line in lines)
        assert all(line.startswith("csdp: ") for line in lines)

    def test_a_ledger_cut_back_is_found_by_its_head(self, place, tmp_path):
        release(place, tmp_path, place / "wide.csv", tmp_path / "out.csv")
        options = ("ledger", "verify", tmp_path / "ledger.db", "--dataset", "home")
        [head] = heads(tmp_path / "ledger.db").values()
        csdp(*options, "--head", head)
        assert "the noted head is not in the log" in csdp(*options, "--head", "0" * 63 + "1", code=2).stderr

    def test_no_such_ledger_or_dataset(self, place, tmp_path):
        assert "does not exist" in one_line(csdp("ledger", "show", tmp_path / "none.db", code=2))
        assert list(tmp_path.iterdir()) == []
        release(place, tmp_path, place / "wide.csv", tmp_path / "out.csv")
        done = csdp("ledger", "export", tmp_path / "ledger.db", "--dataset", "attic", code=2)
        assert "no dataset 'attic'; recorded: home" in one_line(done)


def test_a_ledger_in_postgresql(place, tmp_path):
    with postgres.cluster() as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        url = server.new_database()
        options = ("--plan", place / "plan.json", "--dataset", "home", "--ledger", url)
        for name in ("a", "b"):
            csdp("release", place / "wide.csv", *options, "-o", tmp_path / f"{name}.csv")
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
        assert "home: no problem found" in csdp("ledger", "verify", url, "--dataset", "home").stdout
        assert "38 published" in csdp("ledger", "show", url).stdout
        recomputed([json.loads(line) for line in csdp("ledger", "export", url).stdout.splitlines()])


def test_no_reading_is_written_anywhere_but_the_input(place, tmp_path):
    """Values that no noise could produce by chance do not turn up in any file that was written."""
    chain = {"coupling": [[0.75, 0.25]] * 2, "transitions": [[0.7, 0.3], [0.3, 0.7]], "values": [1234567, 7654321]}
    (tmp_path / "chain.json").write_text(json.dumps(chain))
    data = tmp_path / "data.csv"
    data.write_text("time,x1,x2\n" + "".join(f"{t},{1234567 if t % 3 else 7654321},1234567\n" for t in range(20)))
    out = tmp_path / "out"
    out.mkdir()
    plan = make_plan(tmp_path / "chain.json", tmp_path / "plan.json", "--query", "sum")
    csdp("release", data, "--plan", plan, "--dataset", "d", "--ledger", out / "l.db", "-o", out / "o.csv")
    assert b"1234567" not in (out / "o.csv").read_bytes()
    assert b"1234567" not in (out / "o.csv.certificate.json").read_bytes()
