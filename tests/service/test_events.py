"""Live events: exactly the entries of the ledger, in order, whoever listens and whatever fails meanwhile."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from csdp.ledger import Entry
from csdp.publisher import Skipped
from csdp.service import events
from csdp.service.events import Feed

from service.parts import WARD, hand_in, serving, settings_of, write_spec  # isort: skip
from service.parts import events as read_events  # isort: skip

URL = f"/api/datasets/{WARD}"
OUTCOME = Skipped(1, "told by a test")


class Recorded:
    """What a feed needs of a dataset: a log that a test writes, and a status that it may hold up."""

    name, query = WARD, "mean"

    def __init__(self):
        self.log, self.reads, self.asked = [], 0, asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failure = None

    def append(self, *kinds):
        for kind in kinds:
            seq = len(self.log) + 1
            self.log.append(Entry(WARD, seq, kind, seq, "mean", "p", "", '{"reason":"spent"}', "", str(seq)))

    def head(self):
        return len(self.log)

    def entries(self, after, *, limit):
        self.reads += 1
        return self.log[after : after + limit]

    def committed_records(self, entries):
        return [{"id": entry.seq, "tick": entry.tick} for entry in entries]

    async def status(self):
        self.asked.set()
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return {"age_of_information": [], "published": len(self.log)}


class Listener:
    """One client of a feed; `ids` are those of the events that it got."""

    def __init__(self, feed, after=None):
        self._stream, self.text = feed.listen(after, lambda: True), b""

    async def take(self):
        self.text += await asyncio.wait_for(anext(self._stream), 10)

    async def take_until(self, count):
        while len(self.ids) < count:
            await self.take()

    @property
    def ids(self):
        return [int(line[4:]) for line in self.text.decode().splitlines() if line.startswith("id: ")]

    async def close(self):
        await self._stream.aclose()


def run_alone(work):
    """Run a coroutine in a thread of its own: a browser that other tests opened keeps a loop in the main thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


@pytest.fixture
def quick(monkeypatch):
    """Rounds and statuses without pauses."""
    monkeypatch.setattr(events, "POLL", 0.02)
    monkeypatch.setattr(events, "PAUSE", 0.0)


def test_a_client_that_asks_in_the_middle_of_an_update_misses_nothing(quick):
    async def run():
        dataset = Recorded()
        feed = Feed(dataset)
        first, second = Listener(feed, 0), Listener(feed, 0)
        await first.take()  # the first status
        await second.take()
        dataset.append("commit")
        await feed._update()
        await first.take_until(1)  # `second` is slower
        dataset.append("refuse", "commit")
        await asyncio.sleep(0.03)
        dataset.may_answer.clear()
        dataset.asked.clear()
        update = asyncio.create_task(feed._update())
        await dataset.asked.wait()  # the events are read, the status is not
        await second.take_until(1)
        dataset.may_answer.set()
        await update
        dataset.append("commit")
        await asyncio.sleep(0.03)
        await feed._update()
        for one in (first, second):
            await one.take_until(4)
            assert one.ids == [1, 2, 3, 4]
            await one.close()

    run_alone(run)


def test_what_is_published_while_a_round_reads_is_read_in_the_next(monkeypatch):
    """No poll helps here: the publisher's call alone must be enough."""
    monkeypatch.setattr(events, "POLL", 60.0)
    monkeypatch.setattr(events, "PAUSE", 0.001)

    async def run():
        dataset = Recorded()
        feed = Feed(dataset)
        listener = Listener(feed)
        await listener.take()
        follow = asyncio.create_task(feed.follow())

        def publish():
            for _ in range(300):
                dataset.append("commit")
                feed._wake_from_thread(OUTCOME)
                time.sleep(0.0005)

        thread = threading.Thread(target=publish)
        thread.start()
        await listener.take_until(300)
        thread.join()
        assert listener.ids == list(range(1, 301))
        follow.cancel()
        await listener.close()

    run_alone(run)


def test_every_client_gets_every_release_and_refusal_once(tmp_path):
    """Several clients, from the start and from now on, while ticks are published and refused."""
    settings = settings_of(tmp_path, specs=[write_spec(tmp_path, limits="budget = 0.25")])
    ticks = 40
    with serving(settings) as served:
        writer, reader, admin = served.client("writer"), served.client("reader"), served.client("admin")
        heard, ready = [[] for _ in range(6)], threading.Barrier(7, timeout=60)

        def listen(number):
            since = {"Last-Event-ID": "0"} if number % 2 else {}
            with served.client("reader").stream("GET", f"{URL}/events", headers=since) as live:
                waits = True
                for name, identity, content in read_events(live):
                    if waits:
                        ready.wait()
                        waits = False
                    if name in {"release", "refused"}:
                        heard[number].append((name, identity, content["tick"]))
                        if content["tick"] == ticks - 2:
                            return

        threads = [threading.Thread(target=listen, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        ready.wait()
        hand_in(writer, range(ticks))
        for thread in threads:
            thread.join(60)
        log = admin.get(f"{URL}/ledger", params={"limit": 1000}).json()
        names = {"commit": "release", "refuse": "refused"}
        expected = [(names[one["kind"]], one["seq"], one["tick"]) for one in log if one["kind"] in names]
        assert {name for name, _, _ in expected} == {"release", "refused"}
        assert all(one == expected for one in heard)
        assert reader.get(f"{URL}/status").json()["refused"] > 0
