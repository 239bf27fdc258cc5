"""The application: its commands and its version."""

from __future__ import annotations

from typing import Annotated

import typer

import csdp
from csdp.cli.audit import audit
from csdp.cli.chain import chain_app
from csdp.cli.demo import demo
from csdp.cli.doctor import doctor
from csdp.cli.fit import fit
from csdp.cli.init import init
from csdp.cli.leakage import leakage
from csdp.cli.ledger import ledger_app
from csdp.cli.open import open_input
from csdp.cli.plan import plan
from csdp.cli.release import release
from csdp.cli.report import report
from csdp.cli.serve import serve_app
from csdp.cli.stream import stream
from csdp.cli.suggest import suggest
from csdp.cli.terminal import DATA, EVIDENCE, LEAKAGE, PUBLISHING, SETUP, CommandGroup


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"csdp {csdp.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="csdp",
    cls=CommandGroup,
    rich_markup_mode=None,  # help texts contain JSON, whose brackets are not markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def csdp_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Publish statistics of correlated sequences while protecting the present state of each sequence.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json
      csdp leakage chain.json --query mean --age 2 --epsilon-c 1

    Exit codes: 0 done; 2 usage or bad input; 3 a release refused by a limit of its dataset; 4 an audit found a
    violation; 6 a release would hardly reveal more than guessing the usual value;
    130 interrupted.
    """


app.command(name="open", rich_help_panel=DATA)(open_input)
app.add_typer(chain_app, name="chain", rich_help_panel=DATA)
app.command(rich_help_panel=DATA)(suggest)
app.command(rich_help_panel=DATA)(fit)
app.command(rich_help_panel=LEAKAGE)(leakage)
app.command(rich_help_panel=LEAKAGE)(plan)
app.command(rich_help_panel=PUBLISHING)(release)
app.command(rich_help_panel=PUBLISHING)(stream)
app.add_typer(serve_app, name="serve", rich_help_panel=PUBLISHING)
app.add_typer(ledger_app, name="ledger", rich_help_panel=PUBLISHING)
app.command(rich_help_panel=EVIDENCE)(audit)
app.command(rich_help_panel=EVIDENCE)(report)
app.command(rich_help_panel=EVIDENCE)(demo)
app.command(rich_help_panel=SETUP)(init)
app.command(rich_help_panel=SETUP)(doctor)


def main() -> None:
    """Run the command line."""
    app()
