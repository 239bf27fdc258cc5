"""`csdp audit`: attack a mechanism and say what it leaks at least, or replay a ledger and recompute its leakages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs, options
from csdp.cli.declaring import Described, declared_plan, refuse_beside
from csdp.cli.output import Format, console, printable, progress_bar, show_json, show_written
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.auditing.audit import Audit
    from csdp.auditing.replay import Replay
    from csdp.plan import Plan

#: An audit found that more leaks than was claimed or recorded.
VIOLATED = 4


def audit(
    chain: options.MaybeChainFile = None,
    query: options.MaybeQuery = None,
    age: options.Age = None,
    ages: options.Ages = None,
    epsilon_c: options.MaybeNoiseLevel = None,
    plan: options.PlanFile = None,
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
    adversary: options.MaybeKnows = None,
    samples: Annotated[int, typer.Option(help="Pasts drawn from each of the two presents.")] = 1_000_000,
    confidence: Annotated[float, typer.Option(help="Probability with which the bound holds.")] = 0.999,
    seed: options.MaybeSeed = None,
    figure: Annotated[
        Path | None, typer.Option(metavar=options.FIGURE, help="Draw the bound against the claim.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL", help="Replay this ledger instead: a SQLite file, or postgresql://... Read only."
        ),
    ] = None,
    dataset: options.OneDataset = None,
    head: options.Head = None,
    form: options.Form = "table",
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
        beside = {
            "--query": query, "--age": age, "--ages": ages, "--epsilon-c": epsilon_c, "--claim": claim,
            "--mechanism": mechanism, "--adversary": adversary, "--figure": figure, "--seed": seed,
        }  # fmt: skip
        refuse_beside(beside, "--ledger")
        _replay(ledger, dataset=dataset, head=head, chain=chain, plan=plan, form=form)
        return
    if dataset is not None or head is not None:
        raise InputError("dataset, head: these belong to --ledger; give it, or leave out --dataset and --head")
    if chain is None and plan is None:
        raise InputError("chain: give CHAIN.json with --age and --epsilon-c, or --plan, or --ledger to replay one")
    inputs.check_figure(figure)
    declared = declared_plan(plan, Described(chain, query, age, ages, epsilon_c, adversary))
    found = _attacked(declared, mechanism, claim, reads, releases, samples, confidence, seed)
    if figure is not None:
        from csdp.report.audit import audit_figure
        from csdp.report.figures import save_figure

        save_figure(audit_figure({mechanism or "our noise": found}), figure)
    if form == "json":
        show_json(found.to_dict())
    else:
        _show(found)
        show_written([figure] if figure is not None else [])
    if found.violated:
        raise typer.Exit(VIOLATED)


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
    from csdp.auditing.audit import audit as run

    with progress_bar() as progress:
        terms: dict[str, Any] = {
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
            return run(declared, **terms)
        return run(
            _callable(mechanism),
            declared.chain,
            declared.query,
            ages=declared.ages,
            epsilon_c=declared.epsilon_c,
            adversary=declared.adversary,
            reads=reads,
            **terms,
        )


def _callable(name: str) -> Any:
    """What MODULE:NAME names; modules of the working folder are found, as with `python -m`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"mechanism: {name!r} given; MODULE:NAME expected, such as mine:noisy_mean")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise InputError(f"mechanism: {module!r} cannot be imported ({error})") from None
    finally:
        sys.path.pop(0)
    if not callable(getattr(found, attribute, None)):
        raise InputError(f"mechanism: {module!r} has no callable {attribute!r}")
    return getattr(found, attribute)


def _show(found: Audit) -> None:
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
    from csdp.auditing.replay import replay
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
