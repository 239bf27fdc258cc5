"""Writers that lie about the time, over HTTP: the present is never published as if it were old, and nothing stops."""

from __future__ import annotations

import time

import pytest

from service.parts import serving, settings_of

from stream import hostile  # isort: skip
from stream.hostile import DATASET, POISON, STEP  # isort: skip

URL = f"/api/datasets/{DATASET}"
MANY = {"Content-Type": "application/x-ndjson"}


def spec(folder, **settings):
    return hostile.spec(folder, source="kind = 'http'", **settings)


def post(writer, messages):
    answer = writer.post(f"{URL}/snapshots", content=hostile.lines(messages), headers=MANY)
    assert answer.status_code == 200, answer.text
    return {key: count for key, count in answer.json().items() if count}


def test_one_reading_from_the_future_publishes_nothing(tmp_path):
    with serving(settings_of(tmp_path, specs=[spec(tmp_path, stale_limit=30)])) as served:
        writer, reader = served.client("writer", DATASET), served.client("reader", DATASET)
        messages = [*hostile.honest(range(12, -1, -1)), {"time": time.time() + 370, "sequence": "s0", "value": 1}]
        assert post(writer, messages[:6]) == {"accepted": 6}
        assert [post(writer, [one]) for one in messages[6:]] == [{"accepted": 1}] * 7 + [{"ahead": 1}]
        status = reader.get(f"{URL}/status").json()
        assert (status["times"], status["ahead"]) == ("wall", 1)
        about = reader.get("/api/datasets").json()[0]
        assert about["times"] == "wall"
        assert "wall clock has passed its end" in about["guarantee"]["words"][-1]
        assert (status["closed_tick"] + 1) * STEP <= time.time()
        metrics = served.client("admin", "*").get("/metrics").text
        assert f'csdp_dataset_ahead{{dataset="{DATASET}"}} 1.0' in metrics
        assert len(hostile.published(tmp_path)) in {6, 7}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_a_poisoned_clock_goes_on_also_after_a_restart(tmp_path, poison):
    for oldest, newest in ((15, 7), (7, 0)):
        with serving(settings_of(tmp_path, specs=[spec(tmp_path, age=1)])) as served:
            writer = served.client("writer", DATASET)
            messages = hostile.honest(range(oldest, newest, -1))
            assert post(writer, [*messages[:3], *poison, *messages[3:]]) == {
                "accepted": len(messages),
                "ahead": len(poison),
            }
    assert len(hostile.published(tmp_path)) >= 8


def test_times_that_count_ticks_must_be_declared(tmp_path):
    with serving(settings_of(tmp_path, specs=[spec(tmp_path)])) as served:
        writer = served.client("writer", DATASET)
        answer = writer.post(f"{URL}/snapshots", json={"time": 60, "values": [0, 1]})
        assert answer.status_code == 422
        assert "times = 'data'" in answer.json()["detail"]
        assert post(writer, [{"time": 60, "sequence": "s0", "value": 1}]) == {"unreadable": 1}
