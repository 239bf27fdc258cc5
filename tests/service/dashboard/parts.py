"""What the tests of the dashboard share: a service that is fed over HTTP, and how numbers are shown."""

import json
import re
import signal
import subprocess
import sys
import time
from decimal import ROUND_CEILING, ROUND_HALF_UP, Context, Decimal
from types import SimpleNamespace

import httpx

from csdp import CoupledChain, Plan
from csdp.bounds.result import in_words
from csdp.planning import plan_frontier
from csdp.planning.plan_file import PlanFile
from csdp.service.keys import Keys, new_key

WARD, TAGGED = "ward 7", "<i>ward 8"
BEDS = ["bed 1", "<b>bed 2"]
STEP, START = 60, 29_000_000
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
PLAN_AGE, PLAN_LEVEL, BUDGET = 1, 0.5, 0.5
MINUTE = 60_000


def up(value, digits=4):
    """A leakage as the page shows it: rounded up, never below its value."""
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))


def near(value, digits=4):
    return Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(value))


def chance(epsilon):
    """What a 50 % guess becomes at most, as the page shows it."""
    words = in_words(epsilon)
    return "100 %" if "certainty" in words else f"{words.split()[-2]} %"


class Ward:
    """A running `csdp serve` with two datasets, and a simulated ward that sends readings."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        self.port = 0
        chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=BEDS)
        plan = Plan(chain, "mean", PLAN_AGE, PLAN_LEVEL)
        PlanFile(plan, frontier=plan_frontier(plan)).save(folder / "mean.json")
        PlanFile(Plan(chain, "histogram", PLAN_AGE, PLAN_LEVEL)).save(folder / "histogram.json")
        self.specs = [
            self._spec(WARD, "mean", limits=f"[limits]\nbudget = {BUDGET}"),
            self._spec(TAGGED, "histogram", limits=""),
        ]
        self.keys = Keys(folder / "keys.json")
        self.reader, self.both = self.new_key("reader", WARD), self.new_key("reader")
        self.writer = self.new_key("writer")
        self.ticks = dict.fromkeys((WARD, TAGGED), START)

    def _spec(self, dataset, name, *, limits):
        path = self.folder / f"{name}.toml"
        path.write_text(
            f"""
dataset = {json.dumps(dataset)}
ledger = "ledger.db"
plan = "{name}.json"
anyway = true
{limits}
[clock]
step = {STEP}
times = "data"
[source]
kind = "http"
[sink]
kind = "none"
"""
        )
        return path

    def new_key(self, role, *datasets):
        key, text = new_key(role, datasets or ["*"])
        self.keys.add(key)
        return SimpleNamespace(id=key.id, text=text)

    def start(self):
        specs = [part for spec in self.specs for part in ("--spec", str(spec))]
        command = [sys.executable, "-m", "csdp", "serve", *specs, "--port", str(self.port)]
        command += ["--keys", str(self.folder / "keys.json")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        told = self.process.stderr.readline()
        self.url = re.search(r"http://127\.0\.0\.1:\d+/", told)[0]
        self.port = int(self.url.rsplit(":", 1)[1].strip("/"))
        deadline = time.monotonic() + 200
        while True:
            try:
                httpx.get(f"{self.url}health", timeout=300).raise_for_status()
                return
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, told = self.process.communicate(timeout=200)
        return told

    def feed(self, count, dataset=WARD):
        """Snapshots of the next ticks; the last one stays open."""
        with httpx.Client(headers={"Authorization": f"Bearer {self.writer.text}"}, timeout=300) as client:
            for _ in range(count):
                tick = self.ticks[dataset] = self.ticks[dataset] + 1
                states = {bed: (tick * (place + 3) // 5) % 2 for place, bed in enumerate(BEDS)}
                body = {"time": tick * STEP + 5, "values": states}
                answer = client.post(f"{self.url}api/datasets/{dataset}/snapshots", json=body)
                assert answer.status_code == 200, answer.text

    def get(self, part, dataset=WARD, **asked):
        headers = {"Authorization": f"Bearer {self.both.text}"}
        answer = httpx.get(f"{self.url}api/datasets/{dataset}/{part}", params=asked, headers=headers, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def frontier(self):
        headers = {"Authorization": f"Bearer {self.reader.text}"}
        (ward,) = httpx.get(f"{self.url}api/datasets", headers=headers, timeout=300).json()
        return ward["frontier"]


def rows(page, name):
    return page.locator(f"#{name} tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )


def table(page, summary, name):
    page.click(f"text={summary}")
    return rows(page, name)
