"""What the commands print: tables for people, JSON for programs, progress for those who wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

Format = Literal["table", "json"]


def printable(text: str) -> str:
    """One line without control characters, whatever a file or a name holds.

    >>> printable("two\\nlines" + chr(27) + "[31m")
    'two lines?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: brackets in names and JSON are no markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def show_json(content: Any) -> None:
    """Print strict JSON: infinite numbers are the string "inf", NaN is never written."""
    from csdp.report.files import json_text

    typer.echo(json_text(content))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A callback (what, done, total) that draws on stderr where that is a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield tell
