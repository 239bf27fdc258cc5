"""The application: its commands, and the version."""

from __future__ import annotations

from typing import Annotated

import typer

import csdp
from csdp.cli.audit import audit
from csdp.cli.chain import chain_app
from csdp.cli.compare import compare
from csdp.cli.demo import demo
from csdp.cli.doctor import doctor
from csdp.cli.fit import fit
from csdp.cli.group import DATA, EVIDENCE, LEAKAGE, PUBLISHING, REST, Group
from csdp.cli.leakage import leakage
from csdp.cli.ledger import ledger_app
from csdp.cli.plan import plan
from csdp.cli.release import release
from csdp.cli.report import report
from csdp.cli.serve import key_app, serve
from csdp.cli.stream import init, stream
from csdp.cli.suggest import suggest


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"csdp {csdp.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="csdp",
    cls=Group,
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
