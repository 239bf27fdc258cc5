"""`csdp demo`: the whole pipeline on real flights, as a report or live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import csdp
from csdp.cli.release import print_guarantees
from csdp.cli.terminal import print_lines, print_written, progress_bar
from csdp.errors import InputError


def demo(
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder to write figures and pages to; created if it does not exist. Default demo-out; with --live a "
            "temporary folder that is removed at the end.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Replay flights through a service on this machine, and show it in the browser until Ctrl-C."
        ),
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --live: open the page, or only print its address.")
    ] = True,
    speed: Annotated[
        float, typer.Option(min=0.01, max=20.0, help="With --live: steps a second; a day of flights has five.")
    ] = 2.0,
) -> None:
    """Fit a chain to the public past of flights, plan for a budget, publish the rest, and write a report.

    \b
    Example:
      csdp demo -o demo-out

    index.html shows the true values next to what was published, and a notice at its top says so; share.html contains
    only what was published. With --live the numbers are published while you watch, and the budget can be changed.
    """
    if live:
        _run_live(output, speed=speed, browser=browser)
        return
    from csdp.demo.page import lead, run_flights_demo

    with progress_bar() as progress:
        result = run_flights_demo(output or "demo-out", version=csdp.__version__, progress=progress)
    study = result.study
    print_lines([study.now.plan.verdict.words, study.data.title, *lead(study)])
    print_guarantees(study.now.certificate)
    print_lines([f"To quote: {study.now.certificate.sentence}"])
    print_written(result.files)


def _run_live(output: str | None, *, speed: float, browser: bool) -> None:
    """The demonstration on flights as a service that publishes while one looks on."""
    try:
        from csdp.demo.live import run_live_demo
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: install csdp[service]") from None
    from csdp.demo.flights import FlightsModel, fit_flights, no_progress

    def fit() -> FlightsModel:
        with progress_bar() as progress:
            return fit_flights(progress or no_progress)

    folder = None if output is None else Path(output)
    run_live_demo(fit, folder=folder, speed=speed, browser=browser, say=lambda line: print_lines([line]))
