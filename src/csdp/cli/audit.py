"""`csdp audit`: attack the releases of a plan and prove a lower bound of their leakage, or replay a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from csdp.audit.black_box import Audit
from csdp.audit.black_box import audit as run_audit
from csdp.cli import options
from csdp.cli.terminal import (
    VIOLATED,
    Format,
    print_json,
    print_lines,
    print_notice,
    printable,
    progress_bar,
)
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.plan import Plan


def audit(
    plan: Annotated[
        str | None,
        typer.Argument(metavar="PLAN.json", help="Plan to attack; with --ledger, the one that must be recorded."),
    ] = None,
    claim: Annotated[
        float | None,
        typer.Option(
            help="Leakage epsilon that the releases are claimed to have.",
            show_default="the certified leakage of the plan",
        ),
    ] = None,
    releases: Annotated[
        int, typer.Option(help="Number of successive releases whose outputs the attacker sees together.")
    ] = 1,
    samples: Annotated[
        int, typer.Option(help="Number of samples drawn for each of the two present states.")
    ] = 1_000_000,
    seed: Annotated[int | None, options.SEED] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Replay this ledger instead, a SQLite file or a postgresql:// URL; it is only read.",
        ),
    ] = None,
    dataset: Annotated[str | None, options.ONE_DATASET] = None,
    head: Annotated[str | None, options.HEAD] = None,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Attack the releases of a plan as a black box and prove a lower bound of their leakage; or replay a ledger.

    \b
    Example:
      csdp audit plan.json --samples 100000
      csdp audit plan.json --claim 2 --samples 200000
      csdp audit --ledger ledger.db

    With --ledger every recorded leakage is computed again and the hash chain is verified; a plan must equal the
    recorded one. Exit codes: 0 no violation found; 2 usage or bad input; 4 a violation. Finding no violation does not
    prove that there is none.
    """
    from csdp.planning.plan_file import PlanFile

    declared = None if plan is None else PlanFile.load(plan).plan
    if ledger is not None:
        options.refuse_together({"--claim": claim, "--seed": seed}, "--ledger")
        _replay(ledger, dataset=dataset, head=head, plan=declared, form=form)
        return
    if dataset is not None or head is not None:
        raise InputError("dataset, head: only with --ledger; give it, or leave out --dataset and --head")
    if declared is None:
        raise InputError("plan: not given; give PLAN.json, as `csdp plan` writes it, or --ledger to replay one")
    with progress_bar() as progress:
        result = run_audit(
            declared,
            claim=claim,
            releases=releases,
            samples=samples,
            seed=seed,
            progress=progress,
        )
    if form == "json":
        print_json(result.to_dict())
    else:
        _print_audit(result)
    if result.violated:
        raise typer.Exit(VIOLATED)


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


def _replay(where: str, *, dataset: str | None, head: str | None, plan: Plan | None, form: Format) -> None:
    from csdp.audit.replay import replay
    from csdp.ledger import Ledger

    with Ledger.open(where, create=False, read_only=True) as book, progress_bar() as progress:
        plans = [] if plan is None else [plan]
        result = replay(book, dataset=dataset, plans=plans, head=head, progress=progress)
    if form == "json":
        print_json(result.to_dict())
    else:
        typer.echo(result.verdict)
        for name, charges in result.charges.items():
            typer.echo(f"{printable(name)}: {charges:,} charges")
        for note in result.notes:
            typer.echo(f"note: {printable(note)}")
    for finding in result.findings:
        print_notice(str(finding))
    if not result.ok:
        raise typer.Exit(VIOLATED)
