"""The application: commands, the version, and one line for every expected error."""

from __future__ import annotations

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
from csdp.cli.leakage import leakage
from csdp.cli.ledger import ledger_app
from csdp.cli.output import printable
from csdp.cli.plan import plan
from csdp.cli.release import release
from csdp.cli.stream import init, stream
from csdp.errors import BudgetExceeded, CsdpError

#: Usage or bad input.
BAD_INPUT = 2
#: A release would pass a limit of its dataset.
REFUSED = 3
_INTERRUPTED = 130


class OneLineErrors(TyperGroup):
    """A group of commands whose expected errors are one line on stderr and an exit code, never a traceback."""

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
            _fail(f"{where}{error.strerror or error}", BAD_INPUT)
        except MemoryError:
            _fail("not enough memory for this model; use a smaller one, or --bound lineage", BAD_INPUT)
        except typer.Abort:
            _fail("interrupted", _INTERRUPTED)
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".")
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
    add_completion=False,
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


app.add_typer(chain_app, name="chain")
app.command()(leakage)
app.command()(plan)
app.command()(compare)
app.command()(release)
app.command()(init)
app.command()(stream)
app.add_typer(ledger_app, name="ledger")
app.command()(audit)
app.command()(demo)


def main() -> None:
    """Run the command line."""
    app()
