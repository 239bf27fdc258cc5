"""Long questions of readers: answered in processes of their own, with a time limit, and a share of the time per key.

Nothing here touches data or the ledger: an answer follows from the chain and the query, which are public. Everything in
this module runs in the event loop; the work itself is in `csdp.service.solver`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import pickle
import sys
import time
from asyncio.subprocess import SubprocessStreamProtocol
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from csdp.plan import Plan
from csdp.service.responses import HttpProblem, busy_problem
from csdp.service.solver import HEAD, Question, to_frame

log = logging.getLogger("csdp.service")

#: Answers in the cache; a slider asks for the same ones again and again.
_CACHED = 4096
#: Questions that may wait: of all keys, and of one.
_MAX_WAITING, _MAX_WAITING_OF_KEY = 32, 8
#: Keys whose use is remembered; the least recently seen is forgotten first.
_REMEMBERED = 10_000
_STATUS = {"too-large": 422, "invalid": 422, "failed": 500}
DatasetQuestion = tuple[str, Question]


class TimeShare:
    """Seconds of work per client: `burst` at once, `rate` per second in the long run. Use is known afterwards.

    >>> now = [0.0]
    >>> share = TimeShare(rate=0.5, burst=10.0, clock=lambda: now[0])
    >>> share.use("a", 12.0)
    >>> share.left("a"), share.left("b")
    (-2.0, 10.0)
    >>> now[0] = 6.0
    >>> share.left("a")
    1.0
    """

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, client: str) -> float:
        """Seconds that a client has left, below zero where it has used more."""
        left, since = self._left.get(client, (self._burst, 0.0))
        return min(self._burst, left + (self._clock() - since) * self._rate)

    def use(self, client: str, seconds: float) -> None:
        """Subtract the seconds that work for a client has taken."""
        left = self.left(client) - seconds
        self._left.pop(client, None)
        self._left[client] = (left, self._clock())
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    def check(self, client: str) -> None:
        """Refuse a client that has used its share."""
        left = self.left(client)
        if left <= 0:
            after = {"Retry-After": str(max(1, math.ceil((1.0 - left) / self._rate)))}
            detail = (
                f"questions of this key have used their {self._burst:g} seconds, which come back at {self._rate:g} a "
                "second; wait as Retry-After says"
            )
            raise HttpProblem(429, "share", detail, headers=after)


class SolverProcess:
    """One process that answers questions."""

    def __init__(self, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport) -> None:
        self._process, self._transport = process, transport
        self._plans: set[str] = set()

    @classmethod
    async def start(cls) -> SolverProcess:
        """Start a process; it takes about a second until it can answer."""
        # One thread each: the other cores are for publishing, and for other questions.
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        loop = asyncio.get_running_loop()
        # As asyncio.create_subprocess_exec, which hides the transport: it must be closed before the loop is.
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(2**16, loop),
            sys.executable,
            *("-m", "csdp.service.solver"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            env={**os.environ, **dict.fromkeys(threads, "1")},
            start_new_session=True,
        )
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def solve(self, dataset: str, plan: Plan, question: Question) -> dict[str, Any]:
        """The answer, or a problem, as the process writes it; EOFError where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        new_plan = None if dataset in self._plans else plan
        try:
            self._process.stdin.write(to_frame(pickle.dumps((dataset, new_plan, question))))
            await self._process.stdin.drain()
            self._plans.add(dataset)
            size = int.from_bytes(await self._process.stdout.readexactly(HEAD), "big")
            reply: dict[str, Any] = json.loads(await self._process.stdout.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            raise EOFError from None
        return reply

    async def end(self) -> None:
        """End the process at once, whatever it does."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._transport.close()


@dataclass(eq=False)
class _Task:
    """A question that waits or is worked on, for all who asked it; `key` is charged for it."""

    question: DatasetQuestion
    key: str
    answer: asyncio.Future[dict[str, Any]]
    askers: int = 0
    work: asyncio.Task[None] | None = None
    asked: float = field(default_factory=time.monotonic)

    def fail(self, problem: HttpProblem) -> None:
        """Answer with a problem, unless there is an answer."""
        if not self.answer.done():
            self.answer.set_exception(problem)
            self.answer.exception()  # mark it as retrieved: all askers may have left


class Questions:
    """Answers questions about the plans of some datasets.

    Args:
        plans: the plan of every dataset.
        processes: questions worked on at once; of one key all but one of them, and at least one.
        seconds: time limit for one question, and for how long it may wait for its turn.
        share: seconds of work per second that one key may use in the long run.
    """

    def __init__(self, plans: Mapping[str, Plan], *, processes: int, seconds: float, share: float) -> None:
        self._plans = plans
        self._processes, self._seconds = processes, seconds
        self._share = TimeShare(rate=share, burst=2 * seconds)
        self._cache: OrderedDict[DatasetQuestion, dict[str, Any]] = OrderedDict()
        self._tasks: dict[DatasetQuestion, _Task] = {}
        self._idle: list[SolverProcess] = []
        self._closed = False

    async def ask(
        self, key: str, dataset: str, question: Question, *, wait_for_disconnect: Callable[[], Awaitable[None]]
    ) -> dict[str, Any]:
        """Answer a question for the holder of a key; work on a question ends when all who asked it have left.

        Args:
            key: the id of the key, which is charged for the work.
            dataset: the dataset whose plan the question is about.
            question: the question.
            wait_for_disconnect: returns when the client has left.
        """
        which = (dataset, question)
        if which in self._cache:
            self._cache.move_to_end(which)
            return self._cache[which]
        task = self._tasks.get(which) or self._add_task(which, key)
        task.askers += 1
        left: asyncio.Future[Any] = asyncio.ensure_future(wait_for_disconnect())
        try:
            await asyncio.wait([task.answer, left], return_when=asyncio.FIRST_COMPLETED)
            if not task.answer.done():
                raise HttpProblem(400, "cut-off", "the client left before the answer was there")
            return task.answer.result()
        finally:
            left.cancel()
            task.askers -= 1
            if not task.askers and not task.answer.done():
                self._give_up(task, HttpProblem(400, "cut-off", "all clients that asked have left"))

    def _add_task(self, which: DatasetQuestion, key: str) -> _Task:
        if self._closed:
            raise busy_problem("the service is stopping", seconds=5)
        self._share.check(key)
        waiting = [task for task in self._tasks.values() if task.work is None]
        if sum(task.key == key for task in waiting) >= _MAX_WAITING_OF_KEY:
            detail = (
                f"{_MAX_WAITING_OF_KEY} questions of this key wait already, and no more may; ask again a little later"
            )
            raise HttpProblem(429, "questions", detail, headers={"Retry-After": "5"})
        if len(waiting) >= _MAX_WAITING:
            detail = f"{_MAX_WAITING} questions wait already, and no more may; ask again a little later"
            raise busy_problem(detail, seconds=5)
        loop = asyncio.get_running_loop()
        task = self._tasks[which] = _Task(which, key, loop.create_future())
        loop.call_later(self._seconds, self._expire, task)
        self._start_tasks()
        return task

    def _expire(self, task: _Task) -> None:
        if task.work is None and not task.answer.done():
            detail = (
                f"all {self._processes} processes for questions were in use for {self._seconds:g} seconds; ask again"
            )
            self._give_up(task, busy_problem(detail, seconds=5))

    def _give_up(self, task: _Task, problem: HttpProblem) -> None:
        """End a question: one that waits gets no turn, one that is worked on loses its process."""
        task.fail(problem)
        self._tasks.pop(task.question, None)
        if task.work is not None:
            task.work.cancel()

    def _start_tasks(self) -> None:
        """Start as many questions as there are free processes; the key that has used the least goes first."""
        while True:
            busy_keys = [task.key for task in self._tasks.values() if task.work is not None]
            each = max(1, self._processes - 1)
            ready = [task for task in self._tasks.values() if task.work is None and busy_keys.count(task.key) < each]
            if self._closed or not ready or len(busy_keys) >= self._processes:
                return
            task = min(ready, key=lambda one: (-self._share.left(one.key), one.asked))
            task.work = asyncio.ensure_future(self._work(task))

    async def _work(self, task: _Task) -> None:
        """Work on a question; its process is used again only if it has answered in time."""
        dataset, question = task.question
        begun = time.monotonic()
        solver = None
        try:
            async with asyncio.timeout(self._seconds):
                self._idle = [one for one in self._idle if one.is_alive]
                solver = self._idle.pop() if self._idle else await SolverProcess.start()
                reply = await solver.solve(dataset, self._plans[dataset], question)
            self._idle.append(solver)
            solver = None
            self._finish(task, reply)
        except TimeoutError:
            detail = f"more than the {self._seconds:g} seconds that one question may take; ask for smaller ages"
            task.fail(HttpProblem(422, "too-large", detail))
        except EOFError:
            task.fail(busy_problem("the process that worked on this question has ended; ask again", seconds=5))
        finally:
            self._share.use(task.key, time.monotonic() - begun)
            if self._tasks.get(task.question) is task:  # it may have been given up, and asked again
                del self._tasks[task.question]
            if solver is not None:
                await solver.end()
            self._start_tasks()

    def _finish(self, task: _Task, reply: dict[str, Any]) -> None:
        if "answer" not in reply:
            kind, detail = reply["problem"], reply["detail"]
            if kind == "failed":
                log.error("a question failed: %s", detail)
                detail = "something unexpected happened; the operator's log has the place"
            task.fail(HttpProblem(_STATUS[kind], kind, detail))
            return
        self._cache[task.question] = reply["answer"]
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        if not task.answer.done():
            task.answer.set_result(reply["answer"])

    async def close(self) -> None:
        """Answer no more, and end every process."""
        self._closed = True
        working = [task.work for task in self._tasks.values() if task.work is not None]
        for task in list(self._tasks.values()):
            if not task.answer.done():
                self._give_up(task, busy_problem("the service is stopping", seconds=5))
        await asyncio.gather(*working, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(solver.end() for solver in idle))
