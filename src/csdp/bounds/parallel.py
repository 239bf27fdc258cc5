"""Components shared between processes: the same answers in the same order, whatever the number of processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from csdp.bounds.component import Component
from csdp.errors import CsdpError, InputError

if TYPE_CHECKING:
    from csdp.bounds.leakage import Setting

T = TypeVar("T")
Method = Callable[[Component, str], T]


@runtime_checkable
class Workers(Protocol):
    """Workers elsewhere, such as `csdp.tables.SparkWorkers`: how many they are, and answers in order."""

    workers: int

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """The answers of some work for each item, in the order of the items."""


def map_components(setting: Setting, method: Method[T], bound: str, *, workers: int | Workers = 1) -> list[T]:
    """`method(component, bound)` for every component of a setting, in order.

    Args:
        setting: whose components are asked.
        method: a method of `Component` that takes a bound.
        bound: the bound.
        workers: number of processes, or workers elsewhere.
    """
    elsewhere = isinstance(workers, Workers)
    count = workers.workers if isinstance(workers, Workers) else workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"workers: {workers!r} given; a whole number of processes, 1 or more")
    components = setting.components
    if (count == 1 and not elsewhere) or len(components) < 2:
        return [method(component, bound) for component in components]
    try:
        task = pickle.dumps((replace(setting, progress=None), method, bound))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"workers: this query cannot be sent to another process ({error}); define its function at the top level of "
            "a module, or use workers=1"
        ) from None
    size = max(1, len(components) // (4 * count))
    chunks = [components[start : start + size] for start in range(0, len(components), size)]
    groups = [[(component.members, component.copies) for component in chunk] for chunk in chunks]
    out: list[T] = []
    with _open_pool(workers) as pool:
        for chunk, answers in zip(chunks, pool.map(partial(_run_task, task), groups), strict=True):
            # What a component refuses is computed again here, so that the error is the same as without processes.
            out += [
                method(component, bound) if answer is None else answer[0]
                for component, answer in zip(chunk, answers, strict=True)
            ]
            if setting.progress is not None:
                setting.progress("components", len(out), len(components))
    return out


def _open_pool(workers: int | Workers) -> AbstractContextManager[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    if isinstance(workers, Workers):
        return nullcontext(workers)
    # Fresh processes: forking one whose linear algebra has threads may hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def _run_task(task: bytes, groups: Sequence[tuple[tuple[int, ...], int]]) -> list[tuple[Any] | None]:
    """The work of one process: answers wrapped in tuples, None where a component was refused."""
    setting, method, bound = pickle.loads(task)  # our own bytes, from the process that started this one
    answers: list[tuple[Any] | None] = []
    for members, copies in groups:
        try:
            answers.append((method(Component(setting, members, copies), bound),))
        except CsdpError:
            answers.append(None)
    return answers
