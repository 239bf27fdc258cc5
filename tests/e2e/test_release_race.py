"""Several `csdp release` of one dataset at once: each gets the whole series, or says why not; in either database."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from command import Command, run_command
from csdp.ledger import Ledger, Refused
from csdp.publisher.admission import LEASE, describe_refusal

from e2e.altered import Hold, an_hour_later  # isort: skip

TICKS = 260  # three chunks
PLAN = ("--query", "mean", "--age", "2", "--epsilon-c", "0.5", "--about", "then")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    run("chain", "new", "-s", "2", "--self-coupling", "0.75", "--p", "0.3", "-o", folder / "chain.json")
    run("chain", "simulate", folder / "chain.json", "--steps", TICKS, "--seed", "1", "-o", folder / "readings.csv")
    return folder


def command(place, where, out, *more):
    arguments = ("release", place / "readings.csv", "--chain", place / "chain.json", *PLAN, "--dataset", "ward-7")
    return [*map(str, arguments), "--ledger", where, "-o", str(out), "--format", "json", *map(str, more)]


def run(*args, code=0):
    done = run_command(*args)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@contextmanager
def holder(place, where, out):
    """A process that has charged the first chunk and does not commit it before `hold.released`."""
    hold = Hold()
    process = Command(*command(place, where, out), before=hold)
    try:
        assert hold.reached.wait(300)
        yield process, hold
    finally:
        process.kill()


def check(where):
    """Every published tick once, with a charge of its own, and a log that verifies."""
    with Ledger.open(where) as ledger:
        assert ledger.verify() == []
        ticks = [one.tick for one in ledger.published("ward-7")]
        assert len(ticks) == len(set(ticks))
        return ledger.summary("ward-7")


def test_four_at_once_all_get_the_whole_series(place, tmp_path, where):
    outs = [tmp_path / f"{number}.csv" for number in range(4)]
    running = [Command(*command(place, where, out)) for out in outs]
    ended = [process.finish() for process in running]
    assert [process.returncode for process in ended] == [0] * 4, ended
    assert len({out.read_bytes() for out in outs}) == 1
    assert [int(row["tick"]) for row in rows(outs[0])] == list(range(2, TICKS))
    results = [json.loads(process.stdout) for process in ended]
    assert sum(one["charged_now"] for one in results) == TICKS - 2
    assert {(one["published"], one["held"], one["lost"]) for one in results} == {(TICKS - 2, 0, 0)}
    assert check(where).lost == 0


def test_ticks_that_a_live_process_holds_are_waited_for(place, tmp_path, where):
    with holder(place, where, tmp_path / "holder.csv") as (slow, hold):
        waiting = Command(*command(place, where, tmp_path / "out.csv", "--wait", 120))
        line = waiting.first_complaint()  # it says so, and goes on waiting
        assert "waiting up to" in line
        assert "100 ticks that another process is publishing" in line
        hold.released.set()
        for process in (slow, waiting):
            ended = process.finish()
            assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "holder.csv").read_bytes()
    assert len(rows(tmp_path / "out.csv")) == TICKS - 2
    assert check(where).lost == 0


def test_a_holder_that_was_killed(place, tmp_path, where):
    """Its ticks are charged and lost: said so, with an exit code of its own where they might still come."""
    out = tmp_path / "out.csv"
    with holder(place, where, tmp_path / "holder.csv") as (slow, _):
        slow.kill()
    done = run(*command(place, where, out, "--wait", 0.2), code=5)
    assert "100 ticks are held by another process that did not record them within 0.2 s" in done.stderr
    assert f"the {TICKS - 102} that are published are in {out}" in done.stderr
    content = json.loads(done.stdout)
    assert (content["published"], content["held"], content["lost"]) == (TICKS - 102, 100, 0)
    assert [int(row["tick"]) for row in rows(out)] == list(range(102, TICKS))
    with Ledger.open(where) as ledger:
        summary = ledger.summary("ward-7")
        assert summary.lost == 100
    # Long after, they count as lost: the rest is the whole series that there will ever be.
    assert not (tmp_path / "holder.csv").exists()
    later = _later(place, where, out)
    assert (later["published"], later["held"], later["lost"]) == (TICKS - 102, 0, 100)
    assert later["certificate"]["counts"]["without_output"]["lost: charged before, never published"] == 100
    assert check(where).lost == 100


def _later(place, where, out):
    """The same command on the same ledger, an hour later by the clock of whoever asks."""
    done = Command(*command(place, where, out), before=an_hour_later).finish()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_nothing_at_all_came(place, tmp_path, where):
    """The reproduction: a file with a header and no rows, exit code 0 and no word."""
    out = tmp_path / "out.csv"
    short = tmp_path / "readings.csv"
    short.write_text("".join((place / "readings.csv").read_text().splitlines(keepends=True)[:60]))
    with holder(place, where, tmp_path / "holder.csv"):
        given = [str(short) if part == str(place / "readings.csv") else part for part in command(place, where, out)]
        done = run(*given, "--wait", 0.2, code=5)
    assert "none is published" in done.stderr
    assert "57 ticks are held" in done.stderr
    assert rows(out) == []


def test_an_old_reservation_is_lost_and_a_young_one_held():
    """Decided by its age alone; the clocks of two machines may differ, which changes words and nothing else."""
    now = datetime.now(UTC)
    for age, wait, why in (
        (0.0, 0.0, "held"),
        (-3600.0, 0.0, "held"),
        (LEASE + 5, 0.0, "lost"),
        (LEASE + 5, 60, "held"),
    ):
        since = (now - timedelta(seconds=age)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        found = describe_refusal(Refused("d", 3, "mean", "lost", "", since=since), wait)
        assert found.why == why
