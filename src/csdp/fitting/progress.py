"""Progress of long work: told to a function, or drawn with rich once it takes longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Called with what is done, how far, and out of how much.
Progress = Callable[[str, int, int], None]
#: Seconds of work before a bar appears.
PATIENCE = 1.0


def _silent(what: str, done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def show_progress(progress: Progress | bool | None) -> Iterator[Progress]:
    """A function to tell progress to: the given one; a bar on a terminal (None, True); nobody (False)."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _silent
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    """A rich progress bar on stderr that appears only where there is something to wait for."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._shown: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._shown is None:
            if time.monotonic() - self._since < PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._shown = RichProgress(console=Console(stderr=True), transient=True)
            self._shown.start()
        if what not in self._tasks:
            self._tasks[what] = self._shown.add_task(what, total=total)
        self._shown.update(self._tasks[what], completed=done, total=total)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()
