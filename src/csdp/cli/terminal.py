"""What commands print: help in sections, tables, JSON, progress, and one line for every expected error.

The remedies in messages of the library are printed as options of the command that was run: `step='5min'` is
`--step 5min` here.
"""

from __future__ import annotations

import errno
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from csdp.errors import BudgetExceeded, CsdpError, CsdpWarning, NotUsefulError
from csdp.numbers import json_text

if TYPE_CHECKING:
    from rich.console import Console

    from csdp.chain import Verdict

Format = Literal["table", "json"]

#: Exit code: wrong usage or bad input.
BAD_INPUT = 2
#: Exit code: a release would exceed a limit of its dataset.
REFUSED = 3
#: Exit code: an audit or a replay found a violation.
VIOLATED = 4
#: Exit code: a release would hardly reveal more than guessing the usual value.
NOT_USEFUL = 6
_INTERRUPTED = 130
_EXIT_CODES: dict[type[CsdpError], int] = {BudgetExceeded: REFUSED, NotUsefulError: NOT_USEFUL}

#: Longest first sentence of a command's help, in characters; typer cuts longer ones.
_SENTENCE = 200
#: The panels of `csdp --help`, in the order of the pipeline; each command names its own as `rich_help_panel`.
DATA, LEAKAGE, PUBLISHING, EVIDENCE, SETUP = PANELS = (
    "Data and models",
    "Leakage and plans",
    "Publishing",
    "Evidence",
    "Setting up",
)

#: A Python argument in a message: a word, =, and perhaps a value. Not a part of a path or of an equation.
_ARGUMENT = re.compile(
    r"(?<![\w./=-])(?P<name>[a-z][a-z_]*)=(?:'(?P<text>[^']*)'|(?P<flag>True|False)|(?P<number>\d[\w.]*))?(?![\w/=])"
)
#: A setting that a message names as in Python; words without an underscore are left alone, they may be just words.
_SETTING = re.compile(r"(?<![\w./`-])[a-z]+(?:_[a-z]+)+(?![\w(=]|\.\w)")
#: Numbers of the theory, which messages name as such.
_SYMBOLS = frozenset({"epsilon_c", "epsilon_s"})
#: What to do about errors of the operating system.
_HINTS = {
    errno.ENOENT: "check the name and the folder",
    errno.EACCES: "check the permissions, or choose another place",
    errno.EROFS: "the disk is read-only; choose another place",
    errno.EISDIR: "this is a folder; give a file",
    errno.ENOTDIR: "a parent of this path is a file, not a folder; choose another path",
    errno.ENOSPC: "free some space, or write elsewhere, and run the command again",
}
#: Options that have another name since 0.2.
_RENAMED = {"--lifetime-limit": "--moment-limit"}
#: Settings that are not options: they stand in an [input] section.
_SECTION = ("encoding", "header", "skip")


# ---- groups of commands --------------------------------------------------------------------------------------------


class CommandGroup(TyperGroup):
    """A group of commands whose expected errors are one line on stderr and an exit code, never a traceback."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the help text, one section per panel, as plain text that can be piped."""
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        width = max(map(len, self.commands))
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", None) or "Commands")
            rows.setdefault(panel, []).append((name.ljust(width), command.get_short_help_str(_SENTENCE)))
        for panel, lines in rows.items():
            if lines:
                with formatter.section(panel):
                    formatter.write_dl(lines)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that the arguments name."""
        words = list(sys.argv[1:] if args is None else args)

        def advise(message: str) -> str:
            return as_options(message, find_command(self, words), root=self)

        try:
            with _warnings_as_lines(advise):
                code = super().main(args, "csdp", complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            _fail(_usage_message(error), BAD_INPUT)
        except CsdpError as error:
            message = "; ".join([str(error), *getattr(error, "__notes__", ())])
            _fail(advise(message), _EXIT_CODES.get(type(error), BAD_INPUT))
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
            _fail(f"{where}{error.strerror or error}{hint}", BAD_INPUT)
        except MemoryError:
            _fail("not enough memory; use a smaller model or fewer steps, or for a leakage --bound slice", BAD_INPUT)
        except typer.Abort:
            _fail("interrupted", _INTERRUPTED)
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _usage_message(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    # Type checks name the rule but not the text that broke it; that is in the details of their cause.
    details: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if details and "input" in details[0]:
        rule = message.partition(", unable to parse")[0]
        message = rule.replace("Input should be", f"{str(details[0]['input'])!r} given; it should be")
    renamed = _RENAMED.get(getattr(error, "option_name", ""))
    message = message if renamed is None else f"{message}: its name is {renamed} now"
    context = getattr(error, "ctx", None)
    hint = f"; try '{context.command_path} --help'" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


@contextmanager
def _warnings_as_lines(advise: Callable[[str], str]) -> Iterator[None]:
    """Print each warning of csdp once, as a line on stderr and without source code."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        show_otherwise = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            text = str(message)
            if not issubclass(category, CsdpWarning):
                show_otherwise(message, category, *where, **more)
            elif text not in printed:
                printed.add(text)
                print_notice(f"warning: {advise(text)}")

        warnings.simplefilter("always", CsdpWarning)
        warnings.showwarning = show
        yield


def _fail(message: str, code: int) -> NoReturn:
    print_notice(message)
    sys.exit(code)


# ---- advice ---------------------------------------------------------------------------------------------------------


def as_options(message: str, command: Any, *, root: Any) -> str:
    """A message whose remedies are options of a command; those of other commands are named with the command.

    Args:
        message: what the library says.
        command: the command that was run.
        root: the application, for options of its other commands.
    """
    own = _options(command)

    def option(name: str, value: str | None) -> str | None:
        if (name, value) == ("times", "data"):
            return "--simulated-times"
        if name in _SECTION:
            set_to = "" if value is None else f" = {value.lower() if value in {'True', 'False'} else repr(value)}"
            return f"{name}{set_to} in an [input] section (`csdp open`)"
        flag = f"--{name.replace('_', '-')}"
        words = flag if value in {None, "True"} else f"{flag} {shlex.quote(str(value))}"
        if flag in own:
            return words
        other = next((path for path, each in walk_commands(root) if flag in _options(each)), None)
        return None if other is None else f"`csdp {other} {words}`"

    def argument(match: re.Match[str]) -> str:
        value = match["text"] if match["text"] is not None else match["flag"] or match["number"]
        return option(match["name"], value) or match[0]

    def setting(match: re.Match[str]) -> str:
        flag = f"--{match[0].replace('_', '-')}"
        return flag if match[0] not in _SYMBOLS and flag in own else match[0]

    return _SETTING.sub(setting, _ARGUMENT.sub(argument, message))


def walk_commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command of a group, with the words that call it."""
    for name, command in group.commands.items():
        yield f"{path}{name}", command
        if hasattr(command, "commands"):
            yield from walk_commands(command, f"{path}{name} ")


def find_command(root: Any, arguments: Iterable[str]) -> Any:
    """The command that the arguments name."""
    command = root
    for argument in arguments:
        inner = getattr(command, "commands", {})
        if argument not in inner:
            return command
        command = inner[argument]
    return command


def _options(command: Any) -> frozenset[str]:
    return frozenset(name for parameter in command.params for name in parameter.opts if name.startswith("--"))


# ---- output --------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Text as one line without control characters, whatever a file or a name contains.

    >>> printable("two\\nlines" + chr(27) + "[31m")
    'two lines?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def print_notice(message: str) -> None:
    """Print one line on stderr that starts with `csdp:`."""
    typer.echo(f"csdp: {printable(message)}", err=True)


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: brackets in names and JSON are not markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on stdout; without columns it has no head."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=bool(columns))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_lines(lines: Iterable[object]) -> None:
    """Print lines on stdout without wrapping them."""
    screen = console()
    for line in lines:
        screen.print(str(line), soft_wrap=True)


def verdict_first(verdict: Verdict, *lines: str) -> list[str]:
    """Lines with the verdict on a model: before them if the data do not accept the model, else after the first."""
    return [verdict.words, *lines] if not verdict.reliable else [lines[0], verdict.words, *lines[1:]]


def print_written(paths: Iterable[Path]) -> None:
    """Print which files were written; reports draw true values on `index.html` only."""
    print_lines(f"wrote {path}{' (contains private data)' * (path.name == 'index.html')}" for path in paths)


def print_json(content: Any) -> None:
    """Print strict JSON: infinite numbers are the string "inf", NaN is never written."""
    typer.echo(json_text(content))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A callback (what, done, total) that draws on stderr if that is a terminal; None otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda what, done, total: bar.update(task, description=printable(what), completed=done, total=total)
