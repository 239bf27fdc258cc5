"""Groups of commands: help in sections that pipe well, and one line for every expected error."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from csdp.cli.output import printable
from csdp.errors import BudgetExceeded, CsdpError, TicksHeldError

#: Usage or bad input.
BAD_INPUT = 2
#: A release would pass a limit of its dataset.
REFUSED = 3
#: Ticks are held by another process, or were lost with it.
HELD = 5
_INTERRUPTED = 130

#: Characters that the first sentence of a command's help may have; longer ones are cut.
_SENTENCE = 200
#: What to do about errors of the operating system.
_HINTS = {
    errno.ENOENT: "check the name and the folder",
    errno.EACCES: "check the permissions, or choose another place",
    errno.EPERM: "check the permissions, or choose another place",
    errno.EROFS: "the disk is read-only; choose another place",
    errno.EISDIR: "a folder is there; give a file",
    errno.ENOTDIR: "a file is in the place of a folder; choose another one",
    errno.EEXIST: "something of that name is there; choose another one",
    errno.ENOSPC: "free some space, or write elsewhere, and run the command again",
    errno.EADDRINUSE: "another process uses that address; choose another port",
    errno.ECONNREFUSED: "nothing listens there; check host and port",
}

#: The panels of `csdp --help`, in the order of the pipeline; each command names its own as `rich_help_panel`.
DATA, LEAKAGE, PUBLISHING, EVIDENCE, REST = PANELS = (
    "Data and models",
    "Leakage and plans",
    "Publishing",
    "Evidence",
    "Setting up",
)


class Group(TyperGroup):
    """A group of commands whose expected errors are one line on stderr and an exit code, never a traceback."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands of the help text, a section for each panel; plain text, so that it pipes well."""
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        width = max(map(len, shown))
        for name in shown:
            command = self.commands[name]
            panel = str(getattr(command, "rich_help_panel", None) or "Commands")
            rows.setdefault(panel, []).append((name.ljust(width), command.get_short_help_str(_SENTENCE)))
        for panel, listed in rows.items():
            if listed:
                with formatter.section(panel):
                    formatter.write_dl(listed)

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
        try:
            code = super().main(args, "csdp", complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            _fail(_usage(error), BAD_INPUT)
        except BudgetExceeded as error:
            _fail(str(error), REFUSED)
        except TicksHeldError as error:
            _fail(str(error), HELD)
        except CsdpError as error:
            _fail("; ".join([str(error), *getattr(error, "__notes__", ())]), BAD_INPUT)
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
            _fail(f"{where}{error.strerror or error}{hint}", BAD_INPUT)
        except MemoryError:
            _fail("not enough memory; use a smaller model or fewer steps, or for a leakage --bound lineage", BAD_INPUT)
        except typer.Abort:
            _fail("interrupted", _INTERRUPTED)
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    if (given := _given(error)) is not None:
        rule = message.partition(", unable to parse")[0]
        message = rule.replace("Input should be", f"{given!r} given; it should be")
    context = getattr(error, "ctx", None)
    hint = f"; try '{context.command_path} --help'" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


def _given(error: typer.TyperException) -> str | None:
    """The text that a check of types refused: its own words name the rule alone."""
    told: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return str(told[0]["input"]) if told and "input" in told[0] else None


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"csdp: {printable(message)}", err=True)
    sys.exit(code)
