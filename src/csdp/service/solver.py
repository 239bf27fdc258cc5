"""A process that answers long questions, one after the other: what other settings would cost and give.

It reads frames from standard input, each a question, and writes one frame with the answer for each. Its parent may kill
it at any moment; it ends when its input does, so that it does not outlive the service, however that ends.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Literal

from csdp.accountant import Accountant
from csdp.bounds.overview import leakage_table
from csdp.bounds.result import round_up
from csdp.chain import certified_model, fits_epsilon, private_fits
from csdp.errors import InfeasibleError, InputError, TooLargeError
from csdp.estimate import Moments, moments
from csdp.estimate.error import error_from_moments
from csdp.estimate.result import About, Error, Estimate, about_words
from csdp.plan import Plan

Releases = Literal["1", "continual"]
#: ("what-if", age, epsilon_c, releases), ("frontier", releases), or ("delay", budget, largest error).
Question = (
    tuple[Literal["what-if"], int, float, Releases]
    | tuple[Literal["frontier"], Releases]
    | tuple[Literal["delay"], float, float]
)
#: Bounds that hold for any number of releases.
_ANY_NUMBER = ("freshness", "lineage", "slice")
#: Longest delay that is looked for, in ticks.
_LONGEST_DELAY = 50
_FRONTIER_AGES = (0, 1, 2, 3, 5, 8, 13)
#: Noise levels of the frontier of releases at every tick: each costs a whole accountant.
_FRONTIER_LEVELS = (0.05, 0.15, 0.4, 1.0, 3.0, 10.0)
#: Bytes of the length in front of a frame.
HEAD = 8
#: Niceness of this process: publishing goes first.
_NICE = 10


class WhatIf:
    """Answers questions about one plan with other settings. An answer may take long."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        model = certified_model(plan.chain)
        self._models = model.members
        self._moments: Callable[[int], list[Moments]] = lru_cache(maxsize=64)(self._compute_moments)

    @property
    def _secret(self) -> dict[str, Any]:
        """Against whom the present is protected, and which values of it."""
        return {"adversary": self._plan.adversary, "protect": self._plan.protect}

    def solve(self, question: Question) -> dict[str, Any]:
        """Answer a question."""
        if question[0] == "delay":
            return self.delay(question[1], question[2])
        return self.frontier(question[1]) if question[0] == "frontier" else self.answer(*question[1:])

    def delay(self, budget: float, max_error: float) -> dict[str, Any]:
        """The least delay at which numbers about the time of the readings may be this accurate, for ever."""
        from csdp.planning import find_plan

        plan = self._plan
        asked = {"budget": budget, "max_error": max_error}
        try:
            found = find_plan(
                plan.chain,
                plan.query,
                about="then",
                budget=budget,
                max_mse=max_error**2,
                releases="continual",
                max_age=_LONGEST_DELAY,
                **self._secret,
            )
        except InfeasibleError as error:
            nothing = dict.fromkeys(("delay", "epsilon_c", "leakage", "error", "usefulness"))
            return {**asked, **nothing, "words": str(error)}
        return {
            **asked,
            "delay": found.delay,
            "epsilon_c": found.plan.epsilon_c,
            "leakage": found.leakage.epsilon,
            "error": math.sqrt(found.error.mse),
            "usefulness": found.error.known_usefulness,
            "words": f"A number held back by {found.delay} steps {found.error.in_words}, "
            f"{about_words('then', found.delay)}.",
        }

    def answer(self, age: int, epsilon_c: float, releases: Releases) -> dict[str, Any]:
        """Leakage and error of one common age and one noise level, for one release or for one at every tick."""
        plan = self._plan
        other = Plan(plan.chain, plan.query, age, epsilon_c, stale_limit=plan.stale_limit, **self._secret)
        other.check_noise()
        proven, unproven = self._bounds(age, epsilon_c)
        accountant = Accountant(other)
        if releases == "continual":
            last = accountant.limit()
            certified, bound = accountant.ceiling(), last.bound
            proven = {name: value for name, value in proven.items() if name in _ANY_NUMBER}
            proven[bound] = min(certified, proven.get(bound, certified))
            unproven = {}
        else:
            certified, bound = other.certified.epsilon, other.certified.bound
        kinds: tuple[Estimate, ...] = ("raw", "linear", "history")
        errors = {str(name): self._error(age, epsilon_c, name) for name in kinds}
        errors["then"] = self._error(age, epsilon_c, "history", "then")
        return {
            "age": age,
            "epsilon_c": epsilon_c,
            "releases": releases,
            "leakage": proven,
            "unproven": unproven,
            "certified": certified,
            "bound": bound,
            "mse": {name: error.safe for name, error in errors.items()},
            "no_data": errors["raw"].no_data,
            "approximate": errors["raw"].approximate,
            "event_level": round_up(accountant.event_level(plan.stale_limit) + fits_epsilon(private_fits(plan.chain))),
        }

    def _bounds(self, age: int, epsilon_c: float) -> tuple[dict[str, float], dict[str, float]]:
        """Proven and unproven bounds by name: the largest over the models, where a bound applies to all of them."""
        plan = self._plan
        tables = [
            leakage_table(model, plan.query, ages=age, epsilon_c=epsilon_c, at_any_tick=True, **self._secret)
            for model in self._models
        ]
        proven: dict[str, float] = {}
        unproven: dict[str, float] = {}
        for row in tables[0].rows:
            same = [[other for other in table.rows if other.bound == row.bound] for table in tables]
            if all(same):
                into = proven if row.sound else unproven
                into[row.bound] = max(other.epsilon for others in same for other in others)
        return proven, unproven

    def _compute_moments(self, age: int) -> list[Moments]:
        return [moments(model.point, self._plan.query, ages=(age,) * model.sequences) for model in self._models]

    def _error(self, age: int, epsilon_c: float, estimate: Estimate, about: About = "now") -> Error:
        query = self._plan.query
        errors = [
            error_from_moments(model.point, query, known, (age,) * model.sequences, epsilon_c, estimate, about)
            for model, known in zip(self._models, self._moments(age), strict=True)
        ]
        return max(errors, key=lambda error: error.safe)

    def frontier(self, releases: Releases) -> dict[str, Any]:
        """Leakage and error over a grid of ages and noise levels, and the squared error of publishing nothing."""
        from csdp.planning import frontier

        plan = self._plan
        line = frontier(
            plan.chain,
            plan.query,
            ages=_FRONTIER_AGES,
            levels=None if releases == "1" else _FRONTIER_LEVELS,
            releases=1 if releases == "1" else "continual",
            **self._secret,
        )
        return {"releases": releases, "points": line.records(), "no_data": line.no_data}


def to_frame(content: bytes) -> bytes:
    """Content with its length in front."""
    return len(content).to_bytes(HEAD, "big") + content


def _read_frames(source: BinaryIO, questions: SimpleQueue[bytes]) -> None:
    """Queue the frames that come; at the end of the input the process ends, also in the middle of its work."""
    while len(head := source.read(HEAD)) == HEAD:
        questions.put(source.read(int.from_bytes(head, "big")))
    os._exit(0)


def _solve(known: dict[str, WhatIf], content: bytes) -> dict[str, Any]:
    """The answer, or the rule that the question broke."""
    try:
        dataset, plan, question = pickle.loads(content)  # from the process that started this one
        if plan is not None:
            assert isinstance(plan, Plan)
            known[dataset] = WhatIf(plan)
        return {"answer": known[dataset].solve(question)}
    except TooLargeError as error:
        return {"problem": "too-large", "detail": str(error)}
    except InputError as error:
        return {"problem": "invalid", "detail": str(error)}
    except Exception as error:  # the place only: a message might quote anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"problem": "failed", "detail": f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"}


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then ends this process
    if hasattr(os, "nice"):
        os.nice(_NICE)
    source, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up among the answers
    questions: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_frames, args=(source, questions), daemon=True).start()
    known: dict[str, WhatIf] = {}
    while True:
        answers.write(to_frame(json.dumps(_solve(known, questions.get())).encode()))
        answers.flush()


if __name__ == "__main__":
    main()
