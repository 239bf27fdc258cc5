"""One thread at a time: what a publisher has taken in is that of one tick, and must not change until it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: What the threads of one publisher wait for; a thread that has its turn may ask again.
new_turn = threading.RLock


def in_turn(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """A method that waits until no other thread is in such a method of the same object (`_turn`).

    Without it a tick could be answered from the readings of the next one, which another thread has just taken in: a
    tick newer than certified.
    """

    @wraps(method)
    def wait_for_turn(self: Any, /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with self._turn:
            return method(self, *args, **options)

    return wait_for_turn
