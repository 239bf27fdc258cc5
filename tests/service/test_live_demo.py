"""What the live demonstration rests on: a dataset that continues under other terms, and a key that stays secret."""

from __future__ import annotations

import asyncio
import json
import webbrowser
from concurrent.futures import ThreadPoolExecutor

import pytest

from csdp import Mean, Plan
from csdp.demo import live
from csdp.ledger import Ledger
from csdp.planning.plan_file import PlanFile
from csdp.service import dataset as served_dataset
from csdp.service.dataset import ServedDataset
from csdp.service.responses import ReleaseInfo, StatusInfo
from csdp.stream.spec import read_spec

from service.parts import STEP, WARD, pairs, settings_of, write_spec  # isort: skip


@pytest.fixture(autouse=True)
def fresh_figures(monkeypatch):
    """On a busy machine figures are slow to compute, and then kept for a while."""
    monkeypatch.setattr(served_dataset, "_QUICK", float("inf"))


def run_apart(work):
    """Run a coroutine in a thread of its own: a browser that other tests keep open has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def snapshot(tick):
    return json.dumps({"time": tick * STEP, "values": [tick % 2, 1]}).encode()


def changed_spec(folder, epsilon_c, budget):
    path = write_spec(folder, limits=f"budget = {budget}")
    plan = Plan(pairs(2), Mean(), 1, epsilon_c, stale_limit=1)
    PlanFile(plan).save(folder / f"{WARD}.plan.json")
    return read_spec(path)


async def hand_in(dataset, ticks):
    for tick in ticks:
        await dataset.ingest(snapshot(tick), many=False)


def test_a_dataset_continues_under_another_plan(tmp_path):
    async def run():
        settings = settings_of(tmp_path, specs=[write_spec(tmp_path, limits="budget = 2.0")])
        dataset = ServedDataset(read_spec(settings.specs[0]), settings, budgets=(0.1, 2.0))
        await dataset.start()
        await hand_in(dataset, range(10))
        before = await dataset.status()
        first = await dataset.change_terms(changed_spec(tmp_path, 0.02, 0.1))
        assert first == before["newest_tick"] + 1
        described = dataset.describe()
        assert (described["epsilon_c"], described["limits"]["budget"], described["budgets"]) == (0.02, 0.1, [0.1, 2.0])
        lowered = await dataset.status()
        StatusInfo.model_validate(lowered)
        assert lowered["present"] > 0.1  # what was published counts on
        assert lowered["outlook"]["rests"] > 0
        resumes = lowered["outlook"]["tick"]
        await hand_in(dataset, range(9, resumes + 4))
        after = await dataset.status()
        releases = dataset.releases(before["newest_tick"], 100)
        assert [one["tick"] for one in releases] == list(range(resumes, resumes + 3))
        ReleaseInfo.model_validate(releases[0])
        assert max(one["epsilon_s"] for one in releases) <= 0.1
        assert after["published"] == before["published"] + 3
        await dataset.close()
        with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
            assert ledger.verify() == []
            assert [entry.kind for entry in ledger.entries(WARD)].count("change") == 1

    run_apart(run())


def test_the_key_is_on_no_command_line(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":7")
    live._open_browser(tmp_path, "http://127.0.0.1:1/#key=csdp_secret")
    (address,) = opened
    assert "csdp_secret" not in address
    page = tmp_path / "open.html"
    assert page.stat().st_mode & 0o077 == 0
    assert "#key=csdp_secret" in page.read_text()
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    live._open_browser(tmp_path, "http://127.0.0.1:1/#key=csdp_secret")
    assert len(opened) == 1
