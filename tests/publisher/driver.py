"""Publishers that are killed, or race each other. Run as a script: it imports once and forks its victims.

kills WHERE SINK COUNT SEED     publish in a loop, killed by SIGKILL at random moments
statements WHERE SINK           killed before every statement of the database
race WHERE SINK COUNT TICKS     COUNT processes publish the same ticks at once
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1]))

from csdp.errors import LedgerBusyError
from csdp.ledger import Ledger
from csdp.publisher import Release
from publisher.rules import NAME, check, opened, outputs, panel, same, snapshot


def told(sink: str, releases: list[Release]) -> None:
    """What left the gate, one line a tick, in one write."""
    out = os.open(sink, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for release in releases:
        os.write(out, f"{release.tick} {release.values[0]!r}\n".encode())
    os.close(out)


def child(work: Callable[[], None]) -> int:
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(code)


def newest(where: str) -> int:
    with Ledger.open(where) as ledger:
        if not ledger.datasets():
            return 0
        return ledger.summary(NAME).newest_tick or 0


def publish_on(where: str, sink: str, ticks: int, *, batches: bool, die_before: int | None = None) -> None:
    """Go on after the newest charged tick, pushing one by one or in batches; perhaps die before a statement."""
    start = newest(where)
    with opened(where, on_refusal="skip") as publisher:
        if die_before is not None:
            die_before_statement(publisher.ledger, die_before)
        if batches:
            for first in range(start, start + ticks, 5):
                told(sink, list(publisher.publish(panel(6, first=first))))
            return
        for tick in range(start, start + ticks):
            result = publisher.push(snapshot(tick), time=tick)
            if isinstance(result, Release):
                told(sink, [result])


def examined(where: str, sink: str, before: dict[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
    """All that must hold after a crash; what is published now."""
    with Ledger.open(where) as ledger:
        published = outputs(ledger)
    same(before, published)
    seen: dict[int, float] = {}
    for line in Path(sink).read_text().splitlines() if Path(sink).exists() else ():
        tick, value = line.split()
        assert seen.setdefault(int(tick), float(value)) == float(value), "published twice with different noise"
        assert published[int(tick)] == (float(value),), "left the gate without its record"
    return published


def size(sink: str) -> int:
    return Path(sink).stat().st_size if Path(sink).exists() else 0


def kills(where: str, sink: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    publish_on(where, sink, 3, batches=False)
    published = examined(where, sink, {})
    died = 0
    for number in range(count):
        told_before = size(sink)
        victim = child(lambda batches=number % 3 == 0: publish_on(where, sink, 100_000, batches=batches))
        # Every other one dies while it publishes, however slow the machine; the others at any moment.
        while number % 2 and size(sink) == told_before:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(victim, signal.SIGKILL)
        _, status = os.waitpid(victim, 0)
        died += os.WIFSIGNALED(status)
        published = examined(where, sink, published)
    with Ledger.open(where) as ledger:
        check(ledger)
        lost = ledger.summary(NAME).lost
    assert died == count
    print("published", len(published), "lost", lost)  # noqa: T201


def die_before_statement(ledger: Ledger, number: int) -> None:
    """Make this process kill itself before the nth statement or commit from now on."""
    left = [number]

    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for moment in ("before_cursor_execute", "commit"):
        sa.event.listen(ledger._database.engine, moment, count)


def statements(where: str, sink: str) -> None:
    publish_on(where, sink, 3, batches=False)
    published = examined(where, sink, {})
    for number in range(1, 200):

        def victim(number: int = number) -> None:
            publish_on(where, sink, 7, batches=number % 2 == 0, die_before=number)

        _, status = os.waitpid(child(victim), 0)
        published = examined(where, sink, published)
        if not os.WIFSIGNALED(status):
            break
    assert status == 0
    with Ledger.open(where) as ledger:
        lost = ledger.summary(NAME).lost
    publish_on(where, sink, 8, batches=True)
    assert len(examined(where, sink, published)) > len(published), "the publisher does not go on"
    with Ledger.open(where) as ledger:
        check(ledger)
        assert ledger.summary(NAME).lost == lost
        print("kills", number - 1, "published", len(published), "lost", ledger.summary(NAME).lost)  # noqa: T201


def race(where: str, sink: str, count: int, ticks: int) -> None:
    with opened(where, on_refusal="skip"):
        pass
    begin = time.time() + 0.5

    def racer(number: int) -> None:
        with opened(where, on_refusal="skip") as publisher:
            time.sleep(max(0.0, begin - time.time()))
            for tick in range(ticks):
                result = None
                while result is None:
                    with contextlib.suppress(LedgerBusyError):
                        if number % 4 == 3:
                            result = list(publisher.publish(panel(ticks)))
                        else:
                            found = publisher.push(snapshot(tick), time=tick)
                            result = [found] if isinstance(found, Release) else []
                told(f"{sink}.{number}", result)
                if number % 4 == 3:
                    return

    runners = [child(lambda n=n: racer(n)) for n in range(count)]
    assert [os.waitpid(runner, 0)[1] for runner in runners] == [0] * count
    for number in range(count):
        examined(where, f"{sink}.{number}", {})
    with Ledger.open(where) as ledger:
        published = check(ledger)
        assert len(published) == ledger.summary(NAME).committed
        print("published", len(published), "lost", ledger.summary(NAME).lost)  # noqa: T201


if __name__ == "__main__":
    work, *rest = sys.argv[1:]
    {"kills": kills, "statements": statements, "race": race}[work](*rest[:2], *map(int, rest[2:]))  # type: ignore[operator]
