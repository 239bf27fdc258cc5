"""Processes that race, and processes that are killed; a script, so that they are small and have one thread.

python workers.py race WHERE SINK TICKS LIMIT COUNT
python workers.py kill WHERE SINK KILLS SEED
python workers.py step WHERE SINK
python workers.py fill WHERE BYTES
python workers.py hold WHERE
"""

from __future__ import annotations

import json
import os
import random
import resource
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parent.parent))

from csdp.errors import LedgerError
from csdp.ledger import Ledger, Published, Request, Reserved
from csdp.ledger.records import GENESIS
from ledger.rules import PLAN, at_most, register

UNLIMITED = 10**9


def let_out(sink: int, tick: int, query: str, value: str) -> None:
    """Publish: one atomic append to a file that stands for the world outside."""
    os.write(sink, (json.dumps([tick, query, value]) + "\n").encode())


def publish(ledger: Ledger, sink: int, requests: list[Request], limit: int = UNLIMITED) -> None:
    """The gate in miniature: reserve, draw, commit, and only then let it out."""
    answers = ledger.reserve("ward-7", requests, at_most(limit), plan_digest=PLAN)
    held = [answer for answer in answers if isinstance(answer, Reserved)]
    done = ledger.commit_many([(one, {"value": secrets.token_hex(8)}) for one in held])
    for answer in [*done, *(one for one in answers if isinstance(one, Published))]:
        let_out(sink, answer.tick, answer.query, answer.output["value"])


def open_sink(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def race(where: str, sink: str, ticks: int, limit: int, count: int) -> None:
    """Processes that wait for the starting shot, and then ask for every tick like everybody else."""
    out = open_sink(sink)
    waiting, shot = os.pipe()

    def racer() -> None:
        os.close(shot)
        os.read(waiting, 1)  # ends when nobody holds the other end
        with Ledger.open(where) as ledger:
            register(ledger)
            for tick in range(ticks):
                publish(ledger, out, [Request(tick, "mean"), Request(tick, "max")], limit)

    racers = [in_child(racer) for _ in range(count)]
    os.close(shot)
    assert [os.waitpid(racer, 0)[1] for racer in racers] == [0] * count


def check(where: str, sink: str) -> tuple[int, int]:
    """What must hold after any crash; gives charged and published."""
    outside = {}
    for line in Path(sink).read_text().splitlines():
        tick, query, value = json.loads(line)
        # Nothing is published twice with different noise.
        assert outside.setdefault((tick, query), value) == value
    with Ledger.open(where) as ledger:
        assert ledger.verify() == [], ledger.verify()
        recorded = {(one.tick, one.query): one.output["value"] for one in ledger.published("ward-7")}
        summary = ledger.summary("ward-7")
    # No output without a record, and no record of an output without its charge.
    assert outside.items() <= recorded.items()
    assert summary.committed == len(recorded) <= summary.reserved
    assert summary.state is None or summary.state.releases == summary.reserved
    return summary.reserved, len(outside)


class Follower:
    """What `check` checks, of what came since the last look: a long run does not read everything after every kill."""

    def __init__(self, where: str, sink: str) -> None:
        self._where, self._sink = where, Path(sink)
        self._read, self._entry = 0, (0, GENESIS)
        self._outside: dict[tuple[int, str], str] = {}
        self._recorded: dict[tuple[int, str], str] = {}
        self._charged: set[tuple[int, str]] = set()

    def look(self) -> None:
        with self._sink.open() as file:
            file.seek(self._read)
            for line in file.read().splitlines():
                tick, query, value = json.loads(line)
                assert self._outside.setdefault((tick, query), value) == value
            self._read = file.tell()
        with Ledger.open(self._where) as ledger:
            for entry in ledger.entries("ward-7", after=self._entry[0]):
                assert (entry.seq - 1, entry.previous) == self._entry
                assert entry.computed_hash() == entry.hash
                self._entry = entry.seq, entry.hash
                if entry.kind in ("reserve", "commit"):
                    assert entry.tick is not None
                    assert entry.query is not None
                    one = entry.tick, entry.query
                    assert one not in (self._charged if entry.kind == "reserve" else self._recorded)
                    if entry.kind == "reserve":
                        self._charged.add(one)
                    else:
                        self._recorded[one] = entry.data()["output"]["value"]
            assert ledger.dataset("ward-7").head_hash == self._entry[1]
        assert self._recorded.keys() <= self._charged
        assert self._outside.items() <= self._recorded.items()


def endless(where: str, out: int, ready: int) -> None:
    with Ledger.open(where) as ledger:
        register(ledger)
        newest = ledger.summary("ward-7").newest_tick
        tick = 0 if newest is None else newest  # asks for the interrupted tick again
        os.write(ready, b"!")
        while True:
            publish(ledger, out, [Request(tick, "mean"), Request(tick, "max")])
            tick += 1


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked child; forking is safe because this process has one thread and no open ledger."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr)  # noqa: T201 - the test shows it
        os._exit(1)
    os._exit(0)


def kill(where: str, sink: str, kills: int, seed: int) -> None:
    """SIGKILL at random moments; the ledger must be whole after each."""
    out = open_sink(sink)
    draw = random.Random(seed)
    with Ledger.open(where) as ledger:
        register(ledger)
    follower = Follower(where, sink)
    reader, writer = os.pipe()
    for number in range(kills):
        pid = in_child(lambda: endless(where, out, writer))
        if number % 5:  # one in five may die while it opens the ledger
            os.read(reader, 1)
        # Mostly in the first statements; now and then late enough that a busy machine has published something.
        time.sleep(draw.uniform(0.0, 0.03) if number % 10 != 9 else draw.uniform(0.3, 0.6))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the worker ended by itself"
        while select.select([reader], [], [], 0)[0]:
            os.read(reader, 1)
        follower.look()
        if number % 100 == 99:
            check(where, sink)
    print(*check(where, sink))  # noqa: T201 - the answer to the test


def step(where: str, sink: str) -> None:
    """SIGKILL before the first, second, ... statement of two publications, until they get through."""
    out = open_sink(sink)
    with Ledger.open(where) as ledger:
        register(ledger)
    kills = 0
    for after in range(1, 100):
        pid = in_child(lambda after=after: counted(where, out, after))  # type: ignore[misc]
        _, status = os.waitpid(pid, 0)
        charged, published = check(where, sink)
        if not os.WIFSIGNALED(status):
            break
        kills += 1
    else:
        raise AssertionError("never got through")
    assert status == 0
    print(kills, charged, published)  # noqa: T201 - the answer to the test


def counted(where: str, out: int, after: int) -> None:
    left = after

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with Ledger.open(where) as ledger:
        for moment in ("before_cursor_execute", "commit"):
            sa.event.listen(ledger._database.engine, moment, count)
        for tick in (2 * after, 2 * after + 1):
            publish(ledger, out, [Request(tick, "mean"), Request(tick, "max")])


def fill(where: str, limit: int) -> None:
    """A file-size limit stands for a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Ledger.open(where) as ledger:
        register(ledger)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = 0
        try:
            for tick in range(100_000):
                (held,) = ledger.reserve("ward-7", [Request(tick, "m")], at_most(UNLIMITED), plan_digest=PLAN)
                assert isinstance(held, Reserved)
                ledger.commit(held, {"text": "x" * 2000})
                done += 1
        except LedgerError as error:
            print(done, type(error).__name__)  # noqa: T201 - the answer to the test


def hold(where: str) -> None:
    """Hold the dataset, and after a line on standard input try twice to publish; prints the errors."""
    with Ledger.open(where, timeout=10) as ledger:
        ledger.hold("ward-7")
        print("held", flush=True)  # noqa: T201 - the answer to the test
        sys.stdin.readline()
        for tick in (5, 6):
            try:
                ledger.reserve("ward-7", [Request(tick, "mean")], at_most(UNLIMITED), plan_digest=PLAN)
            except LedgerError as error:
                print(type(error).__name__)  # noqa: T201 - the answer to the test


if __name__ == "__main__":
    command, place, *rest = sys.argv[1:]
    if command == "race":
        race(place, rest[0], *map(int, rest[1:]))
    elif command == "kill":
        kill(place, rest[0], int(rest[1]), int(rest[2]))
    elif command == "step":
        step(place, rest[0])
    elif command == "hold":
        hold(place)
    else:
        fill(place, int(rest[0]))
