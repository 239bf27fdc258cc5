"""Several `csdp release` of one dataset at once: one publishes, the others are refused in words; in either database."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager

import pytest

from command import Command, run_command
from csdp.ledger import Ledger

from e2e.altered import Hold  # isort: skip

TICKS = 260  # three chunks
PLAN = ("--age", "2", "--epsilon-c", "0.5", "--about", "then")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    run("chain", "new", "-s", "2", "--self-coupling", "0.75", "--p", "0.3", "-o", folder / "chain.json")
    run("chain", "simulate", folder / "chain.json", "--steps", TICKS, "--seed", "1", "-o", folder / "readings.csv")
    run("plan", folder / "chain.json", *PLAN, "-o", folder / "plan.json")
    return folder


def command(place, where, out, *more):
    arguments = ("release", place / "readings.csv", "--plan", place / "plan.json", "--dataset", "ward-7")
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


def test_one_publishes_and_the_others_are_refused(place, tmp_path, where):
    with holder(place, where, tmp_path / "holder.csv") as (slow, hold):
        done = run(*command(place, where, tmp_path / "other.csv"), code=2)
        assert "dataset 'ward-7' of" in done.stderr
        assert "is published by another process; wait until that has ended" in done.stderr
        assert not (tmp_path / "other.csv").exists()
        hold.released.set()
        ended = slow.finish()
        assert ended.returncode == 0, ended.stderr
    again = json.loads(run(*command(place, where, tmp_path / "again.csv")).stdout)
    assert (again["published"], again["charged_now"], again["lost"]) == (TICKS - 2, 0, 0)
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "holder.csv").read_bytes()
    assert check(where).lost == 0


def test_a_holder_that_was_killed(place, tmp_path, where):
    """Its ticks are charged and lost; another process publishes the rest at once, and counts them."""
    out = tmp_path / "out.csv"
    with holder(place, where, tmp_path / "holder.csv") as (slow, _):
        slow.kill()
    content = json.loads(run(*command(place, where, out)).stdout)
    assert (content["published"], content["lost"]) == (TICKS - 102, 100)
    assert content["certificate"]["counts"]["without_output"]["lost: charged before, never published"] == 100
    assert [int(row["tick"]) for row in rows(out)] == list(range(102, TICKS))
    assert not (tmp_path / "holder.csv").exists()
    assert check(where).lost == 100
