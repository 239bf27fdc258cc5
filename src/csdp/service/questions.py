"""Long questions of readers: worked out in processes of their own, with a time limit, and a share for each key.

Nothing of it touches data or the ledger: an answer follows from the chain and the query, which are public. Everything
here runs in the event loop; the work itself is in `csdp.service.solver`.
"""

from __future__ import annotations

import asyncio
import json
import logging
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
from csdp.service.limits import Share
from csdp.service.problems import Problem, busy
from csdp.service.solver import HEAD, frame
from csdp.service.whatif import Question

log = logging.getLogger("csdp.service")

#: Answers that are kept; a slider asks for the same ones again and again.
_KEPT = 4096
#: Questions that may wait, of all keys and of one.
_WAITING, _OF_ONE = 32, 8
_STATUS = {"too-large": 422, "invalid": 422, "failed": 500}
Which = tuple[str, Question]


class Solver:
    """One process that answers questions."""

    def __init__(self, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport) -> None:
        self._process, self._transport = process, transport
        self._plans: set[str] = set()

    @classmethod
    async def start(cls) -> Solver:
        """Start a process; it takes about a second until it can answer."""
        # One thread each: the other cores are for those who publish, and for other questions.
        alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        loop = asyncio.get_running_loop()
        # As asyncio.create_subprocess_exec, which keeps the transport to itself: it must be closed before the loop is.
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(2**16, loop),
            sys.executable,
            *("-m", "csdp.service.solver"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            env={**os.environ, **alone},
            start_new_session=True,
        )
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process.returncode is None

    async def solve(self, dataset: str, plan: Plan, question: Question) -> dict[str, Any]:
        """The answer; EOFError where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = None if dataset in self._plans else plan
        try:
            self._process.stdin.write(frame(pickle.dumps((dataset, given, question))))
            await self._process.stdin.drain()
            self._plans.add(dataset)
            size = int.from_bytes(await self._process.stdout.readexactly(HEAD), "big")
            found: dict[str, Any] = json.loads(await self._process.stdout.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            raise EOFError from None
        return found

    async def end(self) -> None:
        """End the process at once, whatever it does."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._transport.close()


@dataclass(eq=False)
class _Task:
    """A question that waits or is worked on, for all who asked it; `key` is the one that pays."""

    which: Which
    key: str
    answer: asyncio.Future[dict[str, Any]]
    askers: int = 0
    work: asyncio.Task[None] | None = None
    asked: float = field(default_factory=time.monotonic)


class Questions:
    """Answers questions about the plans of some datasets.

    Args:
        plans: of every dataset.
        processes: questions that are worked on at once; of one key all but one of them, and at least one.
        seconds: how long one question may be worked on, and how long it may wait for its turn.
        share: seconds of work in each second that one key may use in the long run.
    """

    def __init__(self, plans: Mapping[str, Plan], *, processes: int, seconds: float, share: float) -> None:
        self._plans = plans
        self._processes, self._seconds = processes, seconds
        self._share = Share(rate=share, burst=2 * seconds)
        self._kept: OrderedDict[Which, dict[str, Any]] = OrderedDict()
        self._tasks: dict[Which, _Task] = {}
        self._idle: list[Solver] = []
        self._closed = False

    async def ask(
        self, key: str, dataset: str, question: Question, *, gone: Callable[[], Awaitable[None]]
    ) -> dict[str, Any]:
        """An answer for the holder of a key, who may be gone before; what nobody waits for is ended."""
        which = (dataset, question)
        if which in self._kept:
            self._kept.move_to_end(which)
            return self._kept[which]
        task = self._tasks.get(which) or self._new_task(which, key)
        task.askers += 1
        left: asyncio.Future[Any] = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([task.answer, left], return_when=asyncio.FIRST_COMPLETED)
            if not task.answer.done():
                raise Problem(400, "cut-off", "the client left before the answer was there")
            return task.answer.result()
        finally:
            left.cancel()
            task.askers -= 1
            if not task.askers and not task.answer.done():
                self._give_up(task, Problem(400, "cut-off", "nobody waits for this answer"))

    def _new_task(self, which: Which, key: str) -> _Task:
        if self._closed:
            raise busy("the service is stopping", seconds=5)
        self._share.check(key)
        waiting = [task for task in self._tasks.values() if task.work is None]
        if sum(task.key == key for task in waiting) >= _OF_ONE:
            after = {"Retry-After": "5"}
            told = f"{_OF_ONE} questions of this key wait already, and no more may; ask again a little later"
            raise Problem(429, "questions", told, headers=after)
        if len(waiting) >= _WAITING:
            raise busy(f"{_WAITING} questions wait already, and no more may; ask again a little later", seconds=5)
        loop = asyncio.get_running_loop()
        task = self._tasks[which] = _Task(which, key, loop.create_future())
        loop.call_later(self._seconds, self._expire, task)
        self._begin()
        return task

    def _expire(self, task: _Task) -> None:
        if task.work is None and not task.answer.done():
            told = f"all {self._processes} processes for questions were in use for {self._seconds:g} seconds; ask again"
            self._give_up(task, busy(told, seconds=5))

    def _give_up(self, task: _Task, problem: Problem) -> None:
        """End a question: one that waits has no turn, one that is worked on loses its process."""
        task.answer.set_exception(problem)
        task.answer.exception()  # seen: nobody may be left to look
        self._tasks.pop(task.which, None)
        if task.work is not None:
            task.work.cancel()

    def _begin(self) -> None:
        """Begin as many questions as there is room for: those first whose key has used the least."""
        while True:
            busy_keys = [task.key for task in self._tasks.values() if task.work is not None]
            each = max(1, self._processes - 1)
            ready = [task for task in self._tasks.values() if task.work is None and busy_keys.count(task.key) < each]
            if self._closed or not ready or len(busy_keys) >= self._processes:
                return
            task = min(ready, key=lambda one: (-self._share.left(one.key), one.asked))
            task.work = asyncio.ensure_future(self._work(task))

    async def _work(self, task: _Task) -> None:
        """Work on a question, in a process that is used again only where it came to an end by itself."""
        dataset, question = task.which
        begun = time.monotonic()
        solver = None
        try:
            async with asyncio.timeout(self._seconds):
                self._idle = [one for one in self._idle if one.alive]
                solver = self._idle.pop() if self._idle else await Solver.start()
                found = await solver.solve(dataset, self._plans[dataset], question)
            self._idle.append(solver)
            solver = None
            self._finish(task, found)
        except TimeoutError:
            told = f"more than the {self._seconds:g} seconds that one question may take; ask for smaller ages"
            self._fail(task, Problem(422, "too-large", told))
        except EOFError:
            self._fail(task, busy("the process that worked on this question has ended; ask again", seconds=5))
        finally:
            self._share.use(task.key, time.monotonic() - begun)
            if self._tasks.get(task.which) is task:  # it may have been given up, and asked again
                del self._tasks[task.which]
            if solver is not None:
                await solver.end()
            self._begin()

    def _finish(self, task: _Task, found: dict[str, Any]) -> None:
        if "answer" not in found:
            kind, detail = found["problem"], found["detail"]
            if kind == "failed":
                log.error("a question failed: %s", detail)
                detail = "something unexpected happened; the operator's log has the place"
            self._fail(task, Problem(_STATUS[kind], kind, detail))
            return
        self._kept[task.which] = found["answer"]
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        if not task.answer.done():
            task.answer.set_result(found["answer"])

    def _fail(self, task: _Task, problem: Problem) -> None:
        if not task.answer.done():
            task.answer.set_exception(problem)
            task.answer.exception()  # seen: nobody may be left to look

    async def close(self) -> None:
        """Answer no more, and end every process."""
        self._closed = True
        working = [task.work for task in self._tasks.values() if task.work is not None]
        for task in list(self._tasks.values()):
            if not task.answer.done():
                self._give_up(task, busy("the service is stopping", seconds=5))
        await asyncio.gather(*working, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(solver.end() for solver in idle))
