"""Publishers that are killed, or race each other. Run as a script: it imports once and forks its victims.

kills WHERE SINK COUNT SEED     publish in a loop, killed by SIGKILL at random moments
steps WHERE SINK                killed before and after every step between reserve and commit
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from csdp.errors import LedgerBusyError
from csdp.ledger import Ledger
from csdp.publisher import Release, gate
from publisher.rules import NAME, check, opened, outputs, panel, same, snapshot

STEPS = ("before reserve", "after reserve", "before noise", "after noise", "before commit", "after commit")


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


def publish_on(where: str, sink: str, ticks: int, *, batches: bool) -> None:
    """Go on after the newest charged tick, pushing one by one or in batches."""
    start = newest(where)
    with opened(where, on_refusal="skip") as publisher:
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


def dying(step: str, calls: int) -> None:
    """Make this process kill itself at the nth time it comes to a step."""
    when, what = step.split()
    holder, names = {
        "reserve": (Ledger, ("reserve",)),
        "noise": (gate.fran, ("add_noise",)),
        "commit": (Ledger, ("commit_many",)),
    }[what]
    left = [calls]

    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def run(*given: object, **named: object) -> object:
            left[0] -= 1
            if when == "before" and left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            found = function(*given, **named)
            if when == "after" and left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return run

    for name in names:
        setattr(holder, name, wrapped(getattr(holder, name)))


def steps(where: str, sink: str) -> None:
    publish_on(where, sink, 3, batches=False)
    published = examined(where, sink, {})
    for step in STEPS:
        for batches, calls in ((False, 1), (True, 1), (True, 2)):

            def victim(step: str = step, calls: int = calls, batches: bool = batches) -> None:
                dying(step, calls)
                publish_on(where, sink, 50, batches=batches)

            _, status = os.waitpid(child(victim), 0)
            assert os.WIFSIGNALED(status), f"{step}: the victim survived"
            with Ledger.open(where) as ledger:
                before = ledger.summary(NAME)
            now = examined(where, sink, published)
            assert before.committed == len(now)
            publish_on(where, sink, 8, batches=batches)
            with Ledger.open(where) as ledger:
                after = ledger.summary(NAME)
                assert after.committed > before.committed, "the publisher does not go on"
                assert after.lost == before.lost
            published = examined(where, sink, now)
    with Ledger.open(where) as ledger:
        check(ledger)
        print("published", len(published), "lost", ledger.summary(NAME).lost)  # noqa: T201


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
    {"kills": kills, "steps": steps, "race": race}[work](*rest[:2], *map(int, rest[2:]))  # type: ignore[operator]
