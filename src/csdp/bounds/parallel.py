"""Independent groups spread over processes: the same answers in the same order, whatever the number of processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from csdp.bounds.component import Part
from csdp.errors import CsdpError, InputError

if TYPE_CHECKING:
    from csdp.bounds.leakage import Setting

_Group = tuple[tuple[int, ...], int]


@runtime_checkable
class Spread(Protocol):
    """Workers elsewhere, such as `csdp.tables.SparkWorkers`: how many they are, and answers in order."""

    workers: int

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """The answers of some work for each item, in the order of the items."""


def check_workers(workers: Any) -> int:
    """The number of processes, or of workers elsewhere, checked."""
    count = workers.workers if isinstance(workers, Spread) else workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"workers: {workers!r} given; a whole number of processes, 1 or more")
    return count


def over_parts(setting: Setting, method: str, bound: str, *, workers: int | Spread = 1) -> list[Any]:
    """`part.method(bound)` for every group of a question, in order."""
    ask = methodcaller(method, bound)
    alone = check_workers(workers) == 1 and not isinstance(workers, Spread)
    if alone or len(setting.parts) < 2:
        return [ask(part) for part in setting.parts]
    try:
        question = pickle.dumps((setting.without_progress(), ask))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"workers: this query cannot be sent to another process ({error}); define its function at the top level of "
            "a module, or use workers=1"
        ) from None
    return list(_elsewhere(setting, question, ask, workers))


def _elsewhere(setting: Setting, question: bytes, ask: Any, workers: int | Spread) -> Iterator[Any]:
    parts = setting.parts
    size = max(1, len(parts) // (4 * check_workers(workers)))
    chunks = [parts[start : start + size] for start in range(0, len(parts), size)]
    groups = [[(part.members, part.copies) for part in chunk] for chunk in chunks]
    done = 0
    with _pool(workers) as pool:
        for chunk, answers in zip(chunks, pool.map(partial(_answers, question), groups), strict=True):
            for part, found in zip(chunk, answers, strict=True):
                # What a group refuses is asked again here, so that the error is the same as without processes.
                yield ask(part) if found is None else found[0]
            done += len(chunk)
            if setting.progress is not None:
                setting.progress("components", done, len(parts))


def _pool(workers: int | Spread) -> AbstractContextManager[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    if isinstance(workers, Spread):
        return nullcontext(workers)
    # Fresh processes: forking one whose linear algebra has threads may hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def _answers(question: bytes, groups: Sequence[_Group]) -> list[tuple[Any] | None]:
    """The work of one process: answers wrapped in tuples, None where a group was refused."""
    setting, ask = pickle.loads(question)  # our own bytes, from the process that started this one
    return [_answer(Part(setting, *group), ask) for group in groups]


def _answer(part: Part, ask: Any) -> tuple[Any] | None:
    try:
        return (ask(part),)
    except CsdpError:
        return None
