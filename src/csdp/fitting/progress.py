"""The progress bar of a fit."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from csdp.fitting.sample import Progress

#: Seconds of work before a progress bar appears.
PATIENCE = 1.0


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def show_progress(progress: Progress | bool | None) -> Iterator[Progress]:
    """The progress function: the given one; a bar on a terminal (None, True); one that does nothing (False)."""
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
    """A rich progress bar on stderr that appears only after `PATIENCE` seconds."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._since < PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(console=Console(stderr=True), transient=True)
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
