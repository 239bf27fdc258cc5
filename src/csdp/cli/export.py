"""`csdp export`: a release as a short Python script and a notebook that reproduce it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from csdp.cli import options
from csdp.cli.plan_options import read_plan, read_stored
from csdp.cli.terminal import print_written
from csdp.errors import InputError
from csdp.estimate.result import about_words
from csdp.report.files import ensure_writable, replace_file

if TYPE_CHECKING:
    from csdp.plan import Plan


@dataclass(frozen=True)
class Cell:
    """One step of a script or notebook: what it does, its code, what it shows, and a picture for the notebook."""

    words: str
    code: str = ""
    shown: str = ""
    picture: str = ""


def export(
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="Plan file written by `csdp plan`.")],
    data: Annotated[
        str, typer.Option(metavar="DATA.csv|.parquet|.toml", help="Readings that the script is to publish.")
    ] = "readings.csv",
    dataset: options.FileDataset = None,
    ledger: Annotated[
        str, typer.Option(metavar="LEDGER.db|URL", help="Ledger that the script charges; limits in it are kept.")
    ] = "ledger.db",
    budget: options.OptionalBudget = None,
    event_limit: options.OptionalEventLimit = None,
    discretiser: options.DiscretiserFile = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.py", help="Script to write; NAME.ipynb is the notebook.")
    ] = Path("release.py"),
) -> None:
    """Write a Python script and a notebook that reproduce a release: readings, plan, publisher, release, report.

    Nothing is published or charged by writing them. A script that runs on the ledger of a release gives back what is
    recorded there; on a new ledger it publishes again, with new noise.

    \b
    Example:
      csdp export plan.json --data readings.csv --dataset ward-7 --ledger ledger.db --budget 0.5 -o release.py
    """
    if output.suffix != ".py":
        raise InputError(f"output: {output.name!r} given; a name that ends in .py (the notebook ends in .ipynb)")
    made, stored = read_plan(plan), read_stored(plan)
    name = Path(data).stem if dataset is None else dataset
    cells = _cells(
        made,
        about=stored.about if stored.learned is None else stored.learned.about,
        files={"PLAN": plan, "READINGS": data, "LEDGER": ledger, "DATASET": name, "REPORT": f"{output.stem}-report"},
        limits=_recorded_limits(ledger, name) or {"budget": budget, "event_limit": event_limit},
        discretiser=discretiser,
    )
    written = {output: script_text(cells), output.with_suffix(".ipynb"): notebook_text(cells)}
    for path in written:
        ensure_writable(path)
    for path, text in written.items():
        with replace_file(path) as file:
            file.write(text.encode())
    print_written(written)


def _recorded_limits(ledger: str, dataset: str) -> dict[str, float | None]:
    """The limits of a dataset in its ledger; empty where there is none yet."""
    from csdp.ledger import Ledger

    if "://" not in ledger and not Path(ledger).exists():
        return {}
    with Ledger.open(ledger, read_only=True) as book:
        known = {each.name: each.terms.limits.to_dict() for each in book.datasets()}
    return known.get(dataset, {})


def _cells(
    plan: Plan, *, about: Any, files: dict[str, str], limits: dict[str, float | None], discretiser: str | None
) -> list[Cell]:
    states = (
        "values=plan.model.value_table" + ("" if plan.query.of_states else ', outside="clamp"')
        if discretiser is None
        else f"discretiser=csdp.Discretiser.load({_quote(discretiser)})"
    )
    given = "".join(f"\n    {name}={value!r}," for name, value in limits.items() if value is not None)
    settings = "\n".join(f"{name} = {_quote(value)}" for name, value in files.items())
    publish = f"""\
        wall = panel.times.dtype.kind == "M"  # timestamps are compared with the clock of this machine
        with csdp.Publisher(
            plan,
            dataset=DATASET,
            ledger=LEDGER,{given.replace(chr(10), chr(10) + " " * 8)}
            time_step=panel.step,
            times="wall" if wall else "data",
            estimator=estimator,
        ) as publisher:
            batch = publisher.publish(panel)"""
    return [
        Cell(
            f"The release of plan {plan.digest[:12]}: {plan.query.text}, {about_words(about, plan.max_age)}. It is "
            "published through the ledger: what is recorded comes back, without new noise and without a charge."
        ),
        Cell(
            "What is read and written.",
            "from pathlib import Path\n\nimport csdp\nfrom csdp.planning import check_useful\n"
            "from csdp.publisher.estimates import StoredEstimate\nfrom csdp.report.files import Series, write_series\n"
            f"from csdp.report.reports import report_ledger\n\n{settings}",
        ),
        Cell(
            "The plan with its chain, as it was certified. What it is worth must be known before anything is charged.",
            f"""\
        text = Path(PLAN).read_text(encoding="utf-8")
        plan = csdp.Plan.from_json(text)
        assert plan.digest == "{plan.digest}"
        estimator = StoredEstimate.read(text).estimator(plan)
        if estimator is not None:
            check_useful(plan, estimator.expected(plan.noise_variance))""",
            "plan",
        ),
        Cell("The model that its guarantee assumes.", "chain = plan.chain", "chain"),
        Cell(
            "The readings, as states of the chain.",
            f"panel = csdp.read_panel(READINGS, names=plan.model.names, {states})",
            "panel",
        ),
        Cell("Publish: charge, release, record, in that order.", publish, "batch"),
        Cell(
            "The released series, as `csdp release` writes it.",
            'write_series(Series.of(plan, panel, batch.releases, batch.skipped), Path(f"{DATASET}-released.csv"))',
            picture="batch.plot()",
        ),
        Cell(
            "A page to pass on, with the certificate. It shows nothing that was not published.",
            "report = report_ledger(LEDGER, REPORT, dataset=DATASET, version=csdp.__version__)",
            "report.certificate.sentence",
        ),
    ]


def _quote(text: str) -> str:
    """A text as Python writes it, between double quotes."""
    return json.dumps(text, ensure_ascii=False)


def script_text(cells: list[Cell]) -> str:
    """A Python script of some cells, which prints what a notebook would show.

    >>> print(script_text([Cell("Two numbers."), Cell("Their sum.", "total = 1 + 2", "total")]), end="")
    # Two numbers.
    <BLANKLINE>
    # Their sum.
    total = 1 + 2
    print(total)
    """
    parts = []
    for cell in cells:
        shown = [f"print({cell.shown})"] if cell.shown else []
        words = fill(cell.words, 116, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
        parts.append("\n".join([words, *([dedent(cell.code)] if cell.code else []), *shown]))
    return "\n\n".join(parts) + "\n"


def notebook_text(cells: list[Cell]) -> str:
    """A notebook of some cells, without outputs, in version 4.5 of its format.

    >>> notebook = json.loads(notebook_text([Cell("Their sum.", "total = 1 + 2", "total")]))
    >>> [cell["source"] for cell in notebook["cells"]]
    [['Their sum.'], ['total = 1 + 2\\n', 'total']]
    """
    made: list[dict[str, Any]] = []
    for cell in cells:
        made.append({"cell_type": "markdown", "source": cell.words.splitlines(keepends=True)})
        code = "\n".join(part for part in (dedent(cell.code), cell.shown, cell.picture) if part)
        if code:
            source = code.splitlines(keepends=True)
            made.append({"cell_type": "code", "source": source, "execution_count": None, "outputs": []})
    for number, each in enumerate(made):
        each |= {"id": f"cell-{number}", "metadata": {}}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
