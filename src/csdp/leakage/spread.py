"""Independent groups spread over processes: the same answers in the same order, whatever the number of processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from csdp.errors import CsdpError, InputError
from csdp.leakage.part import Part

if TYPE_CHECKING:
    from csdp.leakage.front import Setting

_Group = tuple[tuple[int, ...], int]


def check_workers(workers: Any) -> int:
    """The number of processes, checked."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers: {workers!r} given; a whole number of processes, 1 or more")
    return workers


def over_parts(setting: Setting, method: str, bound: str, *, workers: int = 1) -> list[Any]:
    """`part.method(bound)` for every group of a question, in order."""
    ask = methodcaller(method, bound)
    if check_workers(workers) == 1 or len(setting.parts) < 2:
        return [ask(part) for part in setting.parts]
    try:
        question = pickle.dumps((setting.without_progress(), ask))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"workers: this query cannot be sent to another process ({error}); define its function at the top level of "
            "a module, or use workers=1"
        ) from None
    return list(_in_processes(setting, question, ask, workers))


def _in_processes(setting: Setting, question: bytes, ask: Any, workers: int) -> Iterator[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    parts = setting.parts
    size = max(1, len(parts) // (4 * workers))
    chunks = [parts[start : start + size] for start in range(0, len(parts), size)]
    groups = [[(part.members, part.copies) for part in chunk] for chunk in chunks]
    done = 0
    # Fresh processes: forking one whose linear algebra has threads may hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for chunk, answers in zip(chunks, pool.map(partial(_answers, question), groups), strict=True):
            for part, found in zip(chunk, answers, strict=True):
                # What a group refuses is asked again here, so that the error is the same as without processes.
                yield ask(part) if found is None else found[0]
            done += len(chunk)
            if setting.progress is not None:
                setting.progress("components", done, len(parts))


def _answers(question: bytes, groups: Sequence[_Group]) -> list[tuple[Any] | None]:
    """The work of one process: answers wrapped in tuples, None where a group was refused."""
    setting, ask = pickle.loads(question)  # our own bytes, from the process that started this one
    return [_answer(Part(setting, *group), ask) for group in groups]


def _answer(part: Part, ask: Any) -> tuple[Any] | None:
    try:
        return (ask(part),)
    except CsdpError:
        return None
