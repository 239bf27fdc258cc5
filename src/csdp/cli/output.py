"""What the commands print: tables for people, JSON for programs, progress for those who wait."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from csdp.errors import CsdpWarning

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


def show_written(paths: Iterable[Path]) -> None:
    """Say which files were written, and which of them is not to be shared."""
    for path in paths:
        console().print(f"wrote {path}{' (contains private data)' if _is_private(path) else ''}", soft_wrap=True)


def written_files(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The same as data.

    >>> written_files([Path("out/share.html")])
    [{'path': 'out/share.html', 'private': False}]
    """
    return [{"path": str(path), "private": _is_private(path)} for path in paths]


def _is_private(path: Path) -> bool:
    return path.name == "index.html"  # reports draw true values on this page only


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


@contextmanager
def warnings_told() -> Iterator[None]:
    """Warnings as lines on stderr: what a reader of the command should know, without code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CsdpWarning)
        yield
    for text in dict.fromkeys(str(found.message) for found in caught if issubclass(found.category, CsdpWarning)):
        typer.echo(f"csdp: warning: {printable(text)}", err=True)
