"""The application: commands, the version, and one line for every expected error."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import csdp
from csdp.cli.audit import audit
from csdp.cli.chain import chain_app
from csdp.cli.compare import compare
from csdp.cli.demo import demo
from csdp.cli.doctor import doctor
from csdp.cli.fit import fit
from csdp.cli.leakage import leakage
from csdp.cli.ledger import ledger_app
from csdp.cli.output import printable
from csdp.cli.plan import plan
from csdp.cli.release import release
from csdp.cli.report import report
from csdp.cli.serve import key_app, serve
from csdp.cli.stream import init, stream
from csdp.cli.suggest import suggest
from csdp.errors import BudgetExceeded, CsdpError

#: Usage or bad input.
BAD_INPUT = 2
#: A release would pass a limit of its dataset.
REFUSED = 3
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


class OneLineErrors(TyperGroup):
    """A group of commands whose expected errors are one line on stderr and an exit code, never a traceback."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands of the help text, a section for each panel; plain text, so that it pipes well."""
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        width = max(map(len, shown))
        for name in shown:
            command = self.commands[name]
            panel = str(getattr(command, "rich_help_panel", None) or REST)
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
        except CsdpError as error:
            _fail(str(error), BAD_INPUT)
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
            _fail(f"{where}{error.strerror or error}{hint}", BAD_INPUT)
        except MemoryError:
            _fail("not enough memory for this model; use a smaller one, or --bound lineage", BAD_INPUT)
        except typer.Abort:
            _fail("interrupted", _INTERRUPTED)
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    hint = f"; try '{context.command_path} --help'" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"csdp: {printable(message)}", err=True)
    sys.exit(code)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"csdp {csdp.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="csdp",
    cls=OneLineErrors,
    rich_markup_mode=None,  # help texts hold JSON, whose brackets are no markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def csdp_command(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Publish statistics of correlated sequences without giving away anyone's present state.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json
      csdp leakage chain.json --query mean --age 2 --epsilon-c 1

    Exit codes: 0 done; 2 usage or bad input; 3 a release refused by a limit of its dataset; 4 an audit
    found a violation.
    """


app.add_typer(chain_app, name="chain", rich_help_panel=DATA)
app.command(rich_help_panel=DATA)(suggest)
app.command(rich_help_panel=DATA)(fit)
app.command(rich_help_panel=LEAKAGE)(leakage)
app.command(rich_help_panel=LEAKAGE)(plan)
app.command(rich_help_panel=LEAKAGE)(compare)
app.command(rich_help_panel=PUBLISHING)(release)
app.command(rich_help_panel=PUBLISHING)(stream)
app.command(rich_help_panel=PUBLISHING)(serve)
app.add_typer(key_app, name="key", rich_help_panel=PUBLISHING)
app.add_typer(ledger_app, name="ledger", rich_help_panel=PUBLISHING)
app.command(rich_help_panel=EVIDENCE)(audit)
app.command(rich_help_panel=EVIDENCE)(report)
app.command(rich_help_panel=EVIDENCE)(demo)
app.command(rich_help_panel=REST)(init)
app.command(rich_help_panel=REST)(doctor)


def main() -> None:
    """Run the command line."""
    app()
