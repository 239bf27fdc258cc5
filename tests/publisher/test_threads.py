"""Several threads, one publisher: each tick is answered from its own readings."""

from threading import Thread

from csdp import CoupledChain, Mean, Plan, Publisher


def test_a_tick_is_not_answered_from_readings_that_another_thread_takes_in_meanwhile(tmp_path, monkeypatch):
    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 60.0)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        for tick in (0, 1):
            publisher.push([0], time=tick)
        take_in = publisher.observe
        other = Thread(target=lambda: take_in([0], time=3))

        def interrupted(snapshot, *, time):
            take_in(snapshot, time=time)
            if time == 2:  # the other thread comes in between taking in a tick and publishing it
                other.start()
                other.join(0.3)

        monkeypatch.setattr(publisher, "observe", interrupted)
        released = [publisher.push([1], time=2)]
        other.join()
        released.append(publisher.push([0], time=3))
    assert Publisher.push_many.__doc__.startswith("What `push` does")  # a method that waits is still documented
    assert [(one.tick, round(one.values[0])) for one in released] == [(2, 0), (3, 1)]  # the readings of ticks 1 and 2
