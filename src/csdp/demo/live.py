"""`csdp demo --live`: a service on this machine, days of flights replayed through it at speed, and a budget to change.

Nothing here publishes: readings are handed to the dataset of the service as a writer would hand them in, and the
service's own publisher charges the ledger, draws the noise and publishes. A change of budget is a change of plan that
the ledger records: what was published before counts on under the new plan.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from csdp.bounds.result import as_text, in_words
from csdp.chain.files import save_model
from csdp.demo.flights import DAY, MOMENT_LIMIT, FlightsModel
from csdp.errors import InputError, LedgerError
from csdp.files import Scratch, write_privately
from csdp.ledger import Ledger
from csdp.plan import Plan
from csdp.planning import Frontier, Point, frontier
from csdp.planning.plan_file import PlanFile
from csdp.publisher import learn_from_past
from csdp.service import Settings
from csdp.service.access import for_roles
from csdp.service.app import answer_requests, create, open_socket
from csdp.service.dataset import ServedDataset
from csdp.service.keys import Keys, new_key
from csdp.service.responses import PROBLEMS, HttpProblem, JsonResponse
from csdp.service.routes import PLACE, DatasetName
from csdp.stream.spec import StreamSpec, read_spec

#: Name of the dataset.
DATASET = "flights"
#: Noise levels of the slider, as shares of the one that keeps the first budget.
_SHARES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
#: Seconds until a dataset that is busy is handed readings again.
_PAUSE = 0.2

Say = Callable[[str], None]


class NewBudget(BaseModel, extra="forbid"):
    """Another budget for a dataset that is replayed."""

    budget: float = Field(description="One of the dataset's `budgets`")
    allow_more: bool = Field(default=False, description="Needed where it is larger than the limit on record")


@dataclass
class LiveDemo:
    """The dataset of the demonstration, its replay, and its changes of budget.

    Args:
        folder: a private folder for chain, plan, ledger and keys.
        model: the fitted chain and the readings.
        speed: ticks a second.
        say: called with every line of text.
        begun: when the demonstration was started, by `time.monotonic`.
    """

    folder: Path
    model: FlightsModel
    speed: float
    say: Say
    begun: float
    choices: dict[float, Point] = field(default_factory=dict)  #: a point of the frontier for each budget
    handing_in: asyncio.Lock = field(default_factory=asyncio.Lock)
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _dataset: ServedDataset | None = None
    _line: Frontier | None = None
    _newest: int = -1  # the tick that is open

    @property
    def dataset(self) -> ServedDataset:
        """The dataset of the service."""
        assert self._dataset is not None
        return self._dataset

    def plan(self) -> float:
        """Find the points that the slider chooses from, around the least noise that keeps the limit on any moment.

        Returns the budget of that one.
        """
        level = self.model.plan_for(MOMENT_LIMIT).epsilon_c
        levels = [share * level for share in _SHARES]
        self._line = frontier(self.model.chain, self.model.query, ages=(0,), levels=levels, releases="continual")
        self.choices = {max(float(as_text(one.leakage, 2)), one.leakage): one for one in self._line.points}
        return max(budget for budget, one in self.choices.items() if one.epsilon_c <= level)

    def write_spec(self, budget: float) -> Path:
        """Write the plan of a point, with its learned estimate and the frontier, and the specification."""
        point = self.choices[budget]
        plan = Plan(self.model.chain, self.model.query, point.age, point.epsilon_c)
        learned = learn_from_past(plan, self.model.past, period=DAY)
        discretiser = self.model.data.discretiser()
        PlanFile(plan, "now", learned, discretiser, frontier=self._line).save(self.folder / "plan.json")
        path = self.folder / "stream.toml"
        path.write_text(_SPEC.format(dataset=DATASET, budget=budget), encoding="utf-8")
        return path

    def open(self, settings: Settings) -> dict[str, ServedDataset]:
        """Open the dataset for a service."""
        self._dataset = ServedDataset(read_spec(settings.specs[0]), settings, budgets=sorted(self.choices))
        return {DATASET: self._dataset}

    # ---- the replay ------------------------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Hand in the readings after the public past, tick after tick, until cancelled or at their end."""
        said = False
        try:
            for place, tick in enumerate(self.model.rest.ticks.tolist()):
                async with self.handing_in:
                    await self._hand_in(tick)
                thread = self.dataset.publisher_thread
                if not said and thread is not None and thread.runner.status().last is not None:
                    self.say(f"First number published {time.monotonic() - self.begun:.1f} s after the start.")
                    said = True
                if place:  # the first tick is published when the second one begins
                    await asyncio.sleep(1 / self.speed)
        except Exception as error:  # the page goes on, and must not look as if the recording had ended
            self.say(f"The replay has failed ({type(error).__name__}); the page stays open until Ctrl-C.")
            raise
        self.say("The recording has ended; the page stays open until Ctrl-C.")

    async def _hand_in(self, tick: int) -> None:
        """The readings of one tick, as a writer would send them: null if nothing departed."""
        rest = self.model.rest
        assert rest.readings is not None
        readings = rest.readings[tick - int(rest.ticks[0])].tolist()
        named = {name: None if math.isnan(one) else one for name, one in zip(rest.names, readings, strict=True)}
        body = json.dumps({"time": tick, "values": named}).encode()
        while True:
            try:
                await self.dataset.ingest(body, many=False)
            except HttpProblem as problem:
                if problem.status != 503:
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                self._newest = tick
                return

    # ---- another budget --------------------------------------------------------------------------------------------

    async def change_budget(self, asked: NewBudget) -> dict[str, Any]:
        """Continue under the plan of another point; a larger budget only if the request allows it."""
        if asked.budget not in self.choices:
            allowed = ", ".join(f"{one:g}" for one in sorted(self.choices))
            raise HttpProblem(422, "invalid", f"budget: one of {allowed}")
        async with self.planning:
            before = self.dataset.spec.limits.budget
            assert before is not None
            raised, first = asked.budget > before, self._newest
            if raised and not asked.allow_more:
                detail = (
                    f"a larger limit than the {before:g} on record, for the same sequences; what was published counts "
                    "on. Ask again with allow_more to record it"
                )
                raise HttpProblem(409, "raise", detail)
            if asked.budget != before:
                spec = await asyncio.to_thread(self._replan, asked.budget)
                async with self.handing_in:
                    first = await self.dataset.change_terms(spec)
                    await self._hand_in(self._newest)  # the open tick again: its readings were in memory only
                how = "raised, as asked" if raised else "lowered"
                self.say(f"Budget {how} to {asked.budget:g} from step {first} on; the ledger has recorded it.")
            level = self.dataset.plan.epsilon_c
        return {"budget": asked.budget, "epsilon_c": level, "first_tick": first, "raised": raised}

    def _replan(self, budget: float) -> StreamSpec:
        return read_spec(self.write_spec(budget))

    def router(self) -> APIRouter:
        """The routes of the demonstration, besides those of every service."""
        router = APIRouter(responses=PROBLEMS)

        @router.put(
            f"{PLACE}/budget",
            tags=["planning"],
            summary="Plan for another budget, and continue under it",
            **for_roles("admin"),
        )
        async def change(name: DatasetName, asked: NewBudget) -> Response:
            """Recorded in the ledger. What was published counts on; a larger limit needs `allow_more`."""
            return JsonResponse(await self.change_budget(asked))

        @router.get(f"{PLACE}/replay", tags=["datasets"], summary="What is replayed", **for_roles("reader", "admin"))
        async def replay(name: DatasetName) -> Response:
            """The times of the ticks: they are public, and count steps of three hours in which flights depart."""
            rest = self.model.rest
            times = rest.times.astype("datetime64[m]").astype(str).tolist()
            return JsonResponse({"first_tick": int(rest.ticks[0]), "times": times, "speed": self.speed})

        return router


_SPEC = """dataset = "{dataset}"
ledger = "ledger.db"
plan = "plan.json"
anyway = true  # the slider also has budgets that are too small to be of use

[limits]
budget = {budget}

[clock]
step = 1
times = "data"

[source]
kind = "http"

[sink]
kind = "none"
"""


def run_live_demo(
    fit: Callable[[], FlightsModel],
    *,
    folder: Path | None,
    speed: float,
    browser: bool,
    say: Say,
) -> None:
    """Serve the demonstration on this machine until SIGINT or SIGTERM, then verify its ledger.

    Args:
        fit: fits the chain, see `csdp.demo.flights.fit_flights`.
        folder: where chain, plan, ledger and keys are written; None for a private folder that is removed at the end.
        speed: ticks a second.
        browser: open the page.
        say: called with every line of text.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        where = stack.enter_context(Scratch()).path if folder is None else _new_folder(folder)
        say("Fitting a chain with hidden environments to the public past of 33 destinations (some ten seconds) ...")
        demo = LiveDemo(where, fit(), speed, say, begun)
        save_model(demo.model.chain, where / "chain.json")
        say(f"Planning to reveal at most {MOMENT_LIMIT:g} about any moment: {in_words(MOMENT_LIMIT)} ...")
        first = demo.plan()
        settings = Settings(specs=(str(demo.write_spec(first)),), keys=str(where / "keys.json"))
        key, text = new_key("admin", [DATASET], label="live demonstration")
        Keys(settings.keys).add(key)
        datasets = demo.open(settings)
        say(demo.dataset.plan.verdict.words)
        with open_socket("127.0.0.1", 0) as listening:
            # Behind the "#": a browser sends no part of it to any server.
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/#key={text}"
            say(f"Replaying the days after it through the service's own gate: {speed:g} steps a second, {DAY} a day.")
            say(f"Open {url}")
            say("The key in this address ends with the demonstration. Ctrl-C stops it.")
            if browser:
                _open_browser(where, url)
            answer_requests(create(settings, datasets, routers=(demo.router(),), work=(demo.replay,)), listening)
        say(_verify(where / "ledger.db"))


def _new_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "ledger.db").exists():
        raise InputError(f"output: {folder} holds a ledger already; give another folder, or none for a temporary one")
    return folder


def _open_browser(folder: Path, url: str) -> None:
    """Open the page by a private file that leads to it: arguments of a command can be seen by others."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return  # without a screen a browser of the terminal would take it over
    page = folder / "open.html"
    content = (
        f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}"><title>csdp</title>'
    )
    write_privately(page, content.encode())
    webbrowser.open(page.as_uri())


def _verify(ledger: Path) -> str:
    """What the ledger holds at the end, and that it is whole."""
    with Ledger.open(ledger, read_only=True) as book:
        summary, problems = book.summary(DATASET), book.verify()
    if problems:
        raise LedgerError(f"the ledger does not verify: {problems[0]}")
    counts = f"{summary.committed} numbers published, {summary.refused} refused, {summary.lost} lost"
    return f"Stopped: {counts}; the ledger verifies."
