"""`csdp demo --live` in a real browser: one command, a page that is signed in, numbers as they are published."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from types import SimpleNamespace

import httpx
import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from csdp.demo.live import DATASET
from csdp.ledger import Ledger

pytestmark = pytest.mark.slow

MINUTE = 60_000
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 800}}


@pytest.fixture(scope="module")
def live_demo(tmp_path_factory):
    """The command as a user types it, and what it prints."""
    folder = tmp_path_factory.mktemp("live") / "out"
    command = [sys.executable, "-m", "csdp", "demo", "--live", "--no-browser", "--speed", "4", "-o", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines, first = [], threading.Event()

    def read():
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("First number published"):
                first.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        assert first.wait(300), (lines, process.poll())
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/#key=csdp_\S+", "\n".join(lines))
        demo = SimpleNamespace(process=process, lines=lines, url=url, key=url.partition("#key=")[2], folder=folder)
        demo.first = ask(demo, "status")["budget"]  # that of the noise which keeps the limit on any moment
        yield demo
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def opened(live_demo, browser):
    """Opens the printed address; at the end nothing may have complained, and no address may have held the key."""
    complaints, sent, contexts = [], [], []

    def go(size="desktop", scheme="light"):
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(MINUTE)
        page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: sent.append(request.url))
        page.goto(live_demo.url)
        expect(page.locator("#connection-text")).to_have_text("Live", timeout=MINUTE)
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in sent if not url.startswith(live_demo.url.partition("#")[0])] == []
    assert [url for url in sent if "csdp_" in url.partition("#")[0]] == []


def ask(live_demo, part):
    url = f"{live_demo.url.partition('#')[0]}api/datasets/{DATASET}/{part}"
    answer = httpx.get(url, headers={"Authorization": f"Bearer {live_demo.key}"}, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("desktop", "light"),
        ("phone", "dark"),
    ],
)
def test_the_printed_address_shows_numbers_as_they_come(live_demo, opened, size, scheme):
    page = opened(size, scheme)
    assert page.url.endswith("/#live")
    before = int(page.inner_text("#tile-published"))
    expect(page.locator("#tile-published")).not_to_have_text(str(before), timeout=MINUTE)
    for name in ("published number", "estimate", "its band", "no data", "step without a number"):
        expect(page.locator("#live .legend li").filter(has_text=name).first).to_be_visible()
    assert page.locator("#series-chart circle.published").count() > 0
    assert page.locator("#series-chart path.nodata").count() == 1
    expect(page.locator("#live-doubt")).to_be_hidden()  # the flights accept the model
    assert page.inner_text("#live-worth").startswith("The estimate removes ")
    assert re.fullmatch(r"\d+ %", page.inner_text("#tile-belief"))
    expect(page.locator("#replay")).to_contain_text("2013")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    for chart in ("series", "leak"):
        texts = page.locator(f"#{chart}-chart text[text-anchor=middle]")  # at once: the chart is drawn again and again
        ends = texts.evaluate_all("all => all.map(e => e.getBoundingClientRect()).map(box => [box.left, box.right])")
        assert ends
        assert all(right <= left for (_, right), (left, _) in pairwise(sorted(ends))), f"texts of {chart} overlap"
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def told_budgets(live_demo):
    headers = {"Authorization": f"Bearer {live_demo.key}"}
    url = f"{live_demo.url.partition('#')[0]}api/datasets"
    return httpx.get(url, headers=headers, timeout=60).json()[0]["budgets"]


def test_a_smaller_budget_is_planned_for_and_a_larger_one_has_to_be_confirmed(live_demo, opened):
    page = opened()
    budgets = told_budgets(live_demo)
    small, first = budgets[2], live_demo.first
    expect(page.locator("#budget-value")).to_contain_text(f"{first:g} (")
    page.locator("#budget").fill("2")
    expect(page.locator("#budget-words")).to_contain_text("In use", timeout=MINUTE)
    expect(page.locator("#budget-value")).to_contain_text(f"{small:g} (")
    status = ask(live_demo, "status")
    assert status["budget"] == small
    published = status["published"]
    expect(page.locator("#tile-published")).not_to_have_text(str(published), timeout=MINUTE)  # it has resumed
    assert ask(live_demo, "status")["present"] <= small

    page.locator("#budget").fill(str(budgets.index(first)))
    expect(page.locator("#budget-raise")).to_be_visible()
    expect(page.locator("#budget-words")).to_contain_text("the ledger keeps the record that the limit was raised")
    assert ask(live_demo, "status")["budget"] == small  # nothing has happened yet
    page.click("#budget-raise")
    expect(page.locator("#budget-words")).to_contain_text("In use", timeout=MINUTE)
    assert ask(live_demo, "status")["budget"] == first


def test_a_larger_limit_is_refused_unless_it_is_said(live_demo):
    url = f"{live_demo.url.partition('#')[0]}api/datasets/{DATASET}/budget"
    asked = {"headers": {"Authorization": f"Bearer {live_demo.key}"}, "timeout": 60}
    answer = httpx.put(url, json={"budget": told_budgets(live_demo)[-1]}, **asked)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:csdp:problem:raise")
    assert httpx.put(url, json={"budget": 0.333}, **asked).status_code == 422
    assert httpx.put(url, json={"budget": "x"}, **asked).status_code == 422
    assert httpx.put(url, json={"budget": 0.3}).status_code == 401
    assert ask(live_demo, "status")["budget"] == live_demo.first


def test_it_stops_cleanly_and_its_ledger_verifies(live_demo):
    children = psutil.Process(live_demo.process.pid).children(recursive=True)
    live_demo.process.send_signal(signal.SIGTERM)
    assert live_demo.process.wait(60) == 0
    _, told = live_demo.process.communicate()
    assert told == ""  # no log line, and no key in one
    assert not [one for one in psutil.wait_procs(children, timeout=60)[1] if one.is_running()]
    with Ledger.open(live_demo.folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        summary = ledger.summary(DATASET)
        changes = [entry for entry in ledger.entries(DATASET) if entry.kind == "change"]
    assert summary.committed > 3
    assert len(changes) == 2
    last = [line for line in live_demo.lines if line.startswith("Stopped:")]
    assert last == [
        f"Stopped: {summary.committed} numbers published, {summary.refused} refused, 0 lost; the ledger verifies."
    ]


def test_a_folder_with_a_ledger_is_not_used_again(tmp_path):
    (tmp_path / "ledger.db").touch()
    command = [sys.executable, "-m", "csdp", "demo", "--live", "--no-browser", "-o", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert "holds a ledger already" in answer.stderr
