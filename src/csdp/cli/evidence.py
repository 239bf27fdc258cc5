"""`csdp audit`, `csdp report` and `csdp demo`: evidence about what was published.

An audit attacks a mechanism and proves a lower bound of its leakage, or replays a ledger and recomputes its leakages.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import csdp
from csdp.audit.black_box import Audit
from csdp.audit.black_box import audit as run_audit
from csdp.cli import options, plan_options
from csdp.cli.reading import locate, takes_readings
from csdp.cli.release import print_guarantees
from csdp.cli.terminal import (
    VIOLATED,
    Format,
    print_json,
    print_lines,
    print_notice,
    print_written,
    printable,
    progress_bar,
    written_files,
)
from csdp.errors import InputError
from csdp.panel import InputSpec, Panel, Readings

if TYPE_CHECKING:
    from csdp.audit.replay import Replay
    from csdp.plan import Plan


def audit(
    chain: options.OptionalChainFile = None,
    query: options.OptionalQuery = None,
    age: options.Age = None,
    ages: options.Ages = None,
    epsilon_c: options.OptionalNoiseLevel = None,
    plan: options.PlanFile = None,
    claim: Annotated[
        float | None,
        typer.Option(
            help="Leakage epsilon that the mechanism is claimed to have.",
            show_default="the certified leakage of the plan",
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Python callable of (readings, generator) to audit; modules in the current folder can be named.",
            show_default="our own noise",
        ),
    ] = None,
    reads: Annotated[
        Literal["aged", "history"],
        typer.Option(
            help="What --mechanism receives: the aged snapshots (aged), or all snapshots up to the present (history)."
        ),
    ] = "aged",
    pair: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Two presents to distinguish, one state for each sequence, such as [[0,1],[1,1]].",
            show_default="the worst pair of one release",
        ),
    ] = None,
    releases: Annotated[
        int, typer.Option(help="Number of successive releases whose outputs the attacker sees together.")
    ] = 1,
    samples: Annotated[
        int, typer.Option(help="Number of samples drawn for each of the two present states.")
    ] = 1_000_000,
    confidence: Annotated[float, typer.Option(help="Confidence level of the lower bound, in (0, 1).")] = 0.999,
    seed: options.OptionalSeed = None,
    figure: Annotated[
        Path | None, typer.Option(metavar=options.FIGURE, help="Draw the lower bound and the claim to this file.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Replay this ledger instead, a SQLite file or a postgresql:// URL; it is only read.",
        ),
    ] = None,
    dataset: options.OneDataset = None,
    head: options.Head = None,
    form: options.FormatOption = "table",
) -> None:
    """Attack a mechanism as a black box and prove a lower bound of its leakage; or replay a ledger.

    \b
    Example:
      csdp audit chain.json --query mean --age 2 --epsilon-c 1 --samples 100000
      csdp audit chain.json --query mean --age 2 --epsilon-c 1 --claim 0.5 --samples 200000 --figure audit.svg
      csdp audit --ledger ledger.db

    With --ledger every recorded leakage is computed again and the hash chain is verified; a chain or --plan must equal
    the recorded one. Exit codes: 0 no violation found; 2 usage or bad input; 4 a violation. Finding no violation does
    not prove that there is none.
    """
    if ledger is not None:
        attack_options = {
            "--query": query, "--age": age, "--ages": ages, "--epsilon-c": epsilon_c, "--claim": claim,
            "--mechanism": mechanism, "--pair": pair, "--figure": figure, "--seed": seed,
        }  # fmt: skip
        options.refuse_together(attack_options, "--ledger")
        _replay(ledger, dataset=dataset, head=head, chain=chain, plan=plan, form=form)
        return
    if dataset is not None or head is not None:
        raise InputError("dataset, head: only with --ledger; give it, or leave out --dataset and --head")
    if chain is None and plan is None:
        raise InputError(
            "chain: not given; give CHAIN.json with --age and --epsilon-c, or --plan, or --ledger to replay one"
        )
    options.check_figure(figure)
    declared = plan_options.load_plan(
        plan, chain=chain, query=query, age=age, ages=ages, epsilon_c=epsilon_c, adversary=None
    )
    with progress_bar() as progress:
        result = _attack(
            declared,
            mechanism,
            reads=reads,
            claim=claim,
            pair=None if pair is None else options.parse_json_or_file("pair", pair),
            releases=releases,
            samples=samples,
            confidence=confidence,
            seed=seed,
            progress=progress,
        )
    if figure is not None:
        from csdp.report.figures import audit_figure, save_figure

        save_figure(audit_figure({mechanism or "our noise": result}), figure)
    if form == "json":
        print_json(result.to_dict())
    else:
        _print_audit(result)
        print_written([figure] if figure is not None else [])
    if result.violated:
        raise typer.Exit(VIOLATED)


def _attack(
    declared: Plan, mechanism: str | None, *, reads: Literal["aged", "history"], **attack_options: Any
) -> Audit:
    """Attack our own noise as declared, or a mechanism of the user under the declared model and ages."""
    if mechanism is None:
        if reads != "aged":
            raise InputError("reads: our own noise reads aged snapshots; 'history' is for --mechanism only")
        return run_audit(declared, **attack_options)
    return run_audit(
        _load_callable(mechanism),
        declared,
        reads=reads,
        **attack_options,
    )


def _load_callable(name: str) -> Any:
    """Import what MODULE:NAME names; modules of the working folder can be imported, as with `python -m`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"mechanism: {name!r} given; MODULE:NAME expected, such as mine:noisy_mean")
    sys.path.insert(0, str(Path.cwd()))
    try:
        imported = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise InputError(f"mechanism: {module!r} cannot be imported ({error})") from None
    finally:
        sys.path.pop(0)
    if not callable(getattr(imported, attribute, None)):
        raise InputError(f"mechanism: {module!r} has no callable {attribute!r}")
    return getattr(imported, attribute)


def _print_audit(result: Audit) -> None:
    print_lines([printable(result.verdict)])
    print_lines([f"Claim: {printable(result.claim_words)}"])
    first, second = (f"{hits:,}" for hits in result.hits)
    print_lines(
        [
            f"Secret pair: {printable(str(result.pair))}",
            f"Event: {printable(result.event)}; {first} against {second} of {result.reported:,} samples "
            f"(chosen on {result.chosen:,} other samples)",
            "A lower bound proves leaks, not their absence: see the attack model in the documentation.",
        ]
    )


def _replay(
    where: str, *, dataset: str | None, head: str | None, chain: str | None, plan: str | None, form: Format
) -> None:
    from csdp.audit.replay import replay
    from csdp.ledger import Ledger

    plans = [] if plan is None else [plan_options.read_plan(plan)]
    chains = [] if chain is None else [options.read_chain(chain)]
    with Ledger.open(where, create=False, read_only=True) as book, progress_bar() as progress:
        result = replay(book, dataset=dataset, plans=plans, chains=chains, head=head, progress=progress)
    _print_replay(result, form)
    if not result.ok:
        raise typer.Exit(VIOLATED)


def _print_replay(result: Replay, form: Format) -> None:
    if form == "json":
        print_json(result.to_dict())
    else:
        typer.echo(result.verdict)
        for name, charges in result.charges.items():
            typer.echo(f"{printable(name)}: {len(charges):,} charges")
        for note in result.notes:
            typer.echo(f"note: {printable(note)}")
    for finding in result.findings:
        print_notice(str(finding))


# ---- csdp report ---------------------------------------------------------------------------------------------------


@takes_readings
def report(
    ledger: options.LedgerArgument,
    dataset: options.Dataset,
    reading: InputSpec,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder to write figures and pages to; created if it does not exist."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Readings; adds a private page that shows the true values, index.html."),
    ] = None,
    discretiser: options.DiscretiserFile = None,
    outside: options.OutsideOption = "refuse",
    form: options.FormatOption = "table",
) -> None:
    """Write a report of a dataset from its ledger. Nothing is published or charged.

    \b
    Example:
      csdp report ledger.db --dataset ward-7 --data readings.csv -o report-out

    share.html contains only what was published. index.html, written with --data, also shows the true values; a notice
    at its top says so.
    """
    from csdp.ledger import Ledger
    from csdp.plan import Plan
    from csdp.report.page import report_ledger

    panel: Panel | None = None
    readings: Readings | None = None
    unit, located = "", None
    if data is not None:
        with Ledger.open(ledger, read_only=True) as book:
            model = Plan.from_json(book.dataset(dataset).terms.plan_json).model
        located = locate(data, reading)
        panel = options.read_states(located, model, discretiser=discretiser, outside=outside)
        if panel.readings is not None and located.categories is None:
            readings = Readings(panel.names, panel.ticks, panel.times, panel.readings, panel.step)
        unit = located.value or ", ".join(model.names if readings is not None and len(model.names) <= 3 else ())
    result = report_ledger(
        ledger,
        output,
        dataset=dataset,
        version=csdp.__version__,
        panel=panel,
        readings=readings,
        unit=unit,
        timezone=reading.timezone if located is None else located.timezone,
    )
    if form == "json":
        print_json({"files": written_files(result.files), "certificate": result.certificate.to_dict()})
        return
    print_lines([f"To quote: {printable(result.certificate.sentence)}"])
    print_written(result.files)


# ---- csdp demo -----------------------------------------------------------------------------------------------------


def demo(
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            "--out",
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
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.", show_default=True)
    ] = 0,
    speed: Annotated[
        float, typer.Option(min=0.01, max=20.0, help="With --live: steps a second; a day of flights has five.")
    ] = 2.0,
    form: options.FormatOption = "table",
) -> None:
    """Fit a chain to the public past of flights, plan for a budget, publish the rest, and write a report.

    \b
    Example:
      csdp demo -o demo-out

    index.html shows the true values next to what was published, and a notice at its top says so; share.html contains
    only what was published. With --live the numbers are published while you watch, and the budget can be changed.
    """
    if live:
        _demonstrate_live(output, form, port=port, speed=speed, browser=browser)
        return
    from csdp.demo.page import lead, run_flights_demo

    with progress_bar() as progress:
        result = run_flights_demo(output or "demo-out", version=csdp.__version__, progress=progress)
    study = result.study
    if form == "json":
        certificate = study.now.certificate.to_dict()
        print_json({**study.summary, "files": written_files(result.files), "certificate": certificate})
        return
    print_lines([study.now.plan.verdict.words, study.data.title, *lead(study)])
    print_guarantees(study.now.certificate)
    print_lines([f"To quote: {study.now.certificate.sentence}"])
    print_written(result.files)


def _demonstrate_live(output: str | None, form: Format, *, port: int, speed: float, browser: bool) -> None:
    """The demonstration on flights as a service that publishes while one looks on."""
    if form != "table":
        raise InputError("format: json given with --live; the running service answers in JSON")
    try:
        from csdp.demo.live import run_live_demo
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: install csdp[service]") from None
    from csdp.demo.flights import FlightsModel, fit_flights, no_progress

    def fit() -> FlightsModel:
        with progress_bar() as progress:
            return fit_flights(progress or no_progress)

    run_live_demo(
        fit,
        folder=None if output is None else Path(output),
        port=port,
        speed=speed,
        browser=browser,
        say=lambda line: print_lines([line]),
    )
