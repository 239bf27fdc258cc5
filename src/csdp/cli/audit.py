"""`csdp audit`: attack a mechanism and say what it leaks at least, or replay a ledger and recompute its leakages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs
from csdp.cli.output import Format, console, printable, progress_bar, show_json
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.audit import Audit
    from csdp.audit.replay import Replay
    from csdp.plan import Plan

#: An audit found that more leaks than was claimed or recorded.
VIOLATED = 4


def audit(
    chain: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHAIN.json]", help="The model, as `csdp chain new` writes it; - reads standard input."
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,...", show_default="mean"
        ),
    ] = None,
    age: Annotated[
        int | None, typer.Option(help="How many steps old the published data is, for all sequences.")
    ] = None,
    ages: Annotated[str | None, typer.Option(metavar="A1,A2,...", help="One age per sequence, or one for all.")] = None,
    epsilon_c: Annotated[
        float | None, typer.Option(help="Noise level of the release; smaller means more noise.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="PLAN.json", help="A plan, in the place of chain, query, ages, noise and adversary."),
    ] = None,
    claim: Annotated[
        float | None,
        typer.Option(help="What the mechanism is said to leak.", show_default="what the declared one is certified for"),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="A callable of (readings, generator) to audit; modules of this folder are found.",
            show_default="our own noise",
        ),
    ] = None,
    reads: Annotated[
        Literal["aged", "history"],
        typer.Option(help="What --mechanism is given: aged snapshots, or every slice up to the present."),
    ] = "aged",
    releases: Annotated[int, typer.Option(help="Successive releases whose outputs are seen together.")] = 1,
    adversary: Annotated[
        Literal["informed", "uninformed", "any"] | None,
        typer.Option(
            help="Who knows, beside the model: every other present value, none, or any part of them.",
            show_default="informed",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Pasts drawn from each of the two presents.")] = 1_000_000,
    confidence: Annotated[float, typer.Option(help="Probability with which the bound holds.")] = 0.999,
    seed: Annotated[int | None, typer.Option(help="Repeat an audit; nothing that is drawn is ever published.")] = None,
    figure: Annotated[
        str | None,
        typer.Option(metavar="FIGURE.svg|.png|.pdf", help="Draw the bound against the claim."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL", help="Replay this ledger instead: a SQLite file, or postgresql://... Read only."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="One dataset of the ledger.", show_default="all of them")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head hash of the dataset, noted earlier; needs --dataset.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help='Words for people, or JSON, where infinity is "inf".')] = (
        "table"
    ),
) -> None:
    """Attack a mechanism as a black box and prove what it leaks at least; or replay a ledger.

    \b
    Example:
      csdp audit chain.json --query mean --age 2 --epsilon-c 1 --samples 100000
      csdp audit chain.json --query mean --age 2 --epsilon-c 1 --claim 0.5 --samples 200000 --figure audit.svg
      csdp audit --ledger ledger.db

    With --ledger every recorded leakage is computed again and the hash chain is verified; a chain or --plan that is
    given must be the recorded one. Exit codes: 0 no violation found; 2 usage or bad input; 4 a violation. A violation
    that is not found may still exist.
    """
    if ledger is not None:
        given = {
            "--query": query, "--age": age, "--ages": ages, "--epsilon-c": epsilon_c, "--claim": claim,
            "--mechanism": mechanism, "--adversary": adversary, "--figure": figure, "--seed": seed,
        }  # fmt: skip
        _refuse(given, "a ledger says what was published")
        _replay(ledger, dataset=dataset, head=head, chain=chain, plan=plan, form=form)
        return
    _refuse({"--dataset": dataset, "--head": head}, "these belong to --ledger")
    if figure is not None:
        from csdp.report.files import ensure_writable

        ensure_writable(Path(figure))
    declared = _declared(plan, chain, query, age, ages, epsilon_c, adversary)
    found = _attacked(declared, mechanism, claim, reads, releases, samples, confidence, seed)
    if figure is not None:
        from csdp.report.audit import audit_figure
        from csdp.report.figures import save_figure

        save_figure(audit_figure({mechanism or "our noise": found}), figure)
    _show(found, form)
    if found.violated:
        raise typer.Exit(VIOLATED)


def _refuse(options: dict[str, Any], why: str) -> None:
    both = [name for name, value in options.items() if value is not None]
    if both:
        raise InputError(f"audit: {why}; leave out {', '.join(both)}")


def _declared(
    plan: str | None,
    chain: str | None,
    query: str | None,
    age: int | None,
    ages: str | None,
    epsilon_c: float | None,
    adversary: Literal["informed", "uninformed", "any"] | None,
) -> Plan:
    """The plan of the file, or the one that the options describe."""
    from csdp.plan import Plan
    from csdp.queries import parse_query

    if plan is not None:
        options = {
            "CHAIN.json": chain, "--query": query, "--age": age, "--ages": ages, "--epsilon-c": epsilon_c,
            "--adversary": adversary,
        }  # fmt: skip
        _refuse(options, "the file of --plan says it all")
        return inputs.read_plan(plan)
    if chain is None:
        raise InputError("chain: give CHAIN.json with --age and --epsilon-c, or --plan, or --ledger to replay one")
    if (age is None) == (ages is None):
        raise InputError("age: give --age for all sequences, or --ages with one each")
    if epsilon_c is None:
        raise InputError("epsilon-c: give --epsilon-c, the noise level that is declared")
    old = [age] if ages is None else inputs.whole_numbers("ages", ages)
    return Plan(
        inputs.read_chain(chain),
        parse_query(query or "mean"),
        old[0] if len(old) == 1 else old,
        epsilon_c,
        adversary=adversary or "informed",
    )


def _attacked(
    declared: Plan,
    mechanism: str | None,
    claim: float | None,
    reads: Literal["aged", "history"],
    releases: int,
    samples: int,
    confidence: float,
    seed: int | None,
) -> Audit:
    from csdp.audit import audit as run

    with progress_bar() as progress:
        options: dict[str, Any] = {
            "claim": claim,
            "releases": releases,
            "samples": samples,
            "confidence": confidence,
            "seed": seed,
            "progress": progress,
        }
        if mechanism is None:
            if reads != "aged":
                raise InputError("reads: our own noise reads aged snapshots; 'history' is for --mechanism")
            return run(declared, **options)
        return run(
            _callable(mechanism),
            declared.chain,
            declared.query,
            ages=declared.ages,
            epsilon_c=declared.epsilon_c,
            adversary=declared.adversary,
            reads=reads,
            **options,
        )


def _callable(name: str) -> Any:
    """What MODULE:NAME names; modules of the working folder are found, as with `python -m`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"mechanism: {name!r} given; MODULE:NAME expected, such as mine:noisy_mean")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"mechanism: {module!r} cannot be imported ({error})") from None
    finally:
        sys.path.pop(0)
    if not callable(getattr(found, attribute, None)):
        raise InputError(f"mechanism: {module!r} has no callable {attribute!r}")
    return getattr(found, attribute)


def _show(found: Audit, form: Format) -> None:
    if form == "json":
        show_json(found.to_dict())
        return
    out = console()
    out.print(printable(found.verdict), soft_wrap=True)
    if found.claim is not None:
        out.print(f"Claim: {printable(found.claim_words)}", soft_wrap=True)
    out.print(f"Told apart: {printable(str(found.pair))}; {found.adversary} adversary", soft_wrap=True)
    first, second = (f"{hits:,}" for hits in found.hits)
    out.print(
        f"Event: {printable(found.event)}; {first} against {second} of {found.reported:,} samples "
        f"({found.chosen:,} others chose it)",
        soft_wrap=True,
    )
    out.print(
        "A lower bound proves leaks, not their absence: see the attack model in the documentation.", soft_wrap=True
    )


def _replay(
    where: str, *, dataset: str | None, head: str | None, chain: str | None, plan: str | None, form: Format
) -> None:
    from csdp.audit.replay import replay
    from csdp.ledger import Ledger

    plans = [] if plan is None else [inputs.read_plan(plan)]
    model = None if chain is None else inputs.read_chain(chain)
    with Ledger.open(where, create=False, read_only=True) as book, progress_bar() as progress:
        found = replay(
            book,
            dataset=dataset,
            plans=plans,
            chains=[] if model is None else [model],
            head=head,
            progress=progress,
        )
    _show_replay(found, form)
    if not found.ok:
        raise typer.Exit(VIOLATED)


def _show_replay(found: Replay, form: Format) -> None:
    if form == "json":
        show_json(found.to_dict())
    else:
        typer.echo(found.verdict)
        for name, charges in found.charges.items():
            typer.echo(f"{printable(name)}: {len(charges):,} charges")
        for note in found.notes:
            typer.echo(f"note: {printable(note)}")
    for finding in found.findings:
        typer.echo(f"csdp: {printable(str(finding))}", err=True)
