"""`csdp fit`: a chain from a file of readings."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.chain.files import save_model
from csdp.cli import options
from csdp.cli.terminal import console, print_lines, progress_bar
from csdp.errors import CsdpWarning, InputError
from csdp.fitting.fit import EnvironmentName
from csdp.fitting.fit import fit as fit_chain
from csdp.panel import Discretiser, Panel, read_readings

if TYPE_CHECKING:
    from csdp.fitting.checks import FitQuality
    from csdp.fitting.sample import Chain


def fit(
    data: Annotated[str, options.DATA],
    output: Annotated[str, typer.Option("--output", "-o", metavar="CHAIN.json", help="File to write the chain to.")],
    states: Annotated[int, typer.Option(help="Number of states of each sequence.")] = 4,
    strategy: Annotated[
        Literal["quantile", "uniform", "categories"] | None,
        typer.Option(
            help="How readings become states: equally many readings per state (quantile), intervals of equal width "
            "(uniform), or one state per distinct number or word (categories).",
            show_default="quantile; for words categories",
        ),
    ] = None,
    edges: Annotated[
        str | None, typer.Option(metavar="E1,E2,...", help="Boundaries between the states; replaces --strategy.")
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH", help="Smallest and largest possible reading, known without looking at the data."
        ),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(
            help="Largest number of other sequences that one sequence may depend on.",
            show_default="all up to 8 sequences",
        ),
    ] = None,
    direction: Annotated[
        Literal["forward", "backward"],
        typer.Option(help="Model the next state (forward), or the previous state (backward)."),
    ] = "forward",
    environment: Annotated[
        EnvironmentName | None,
        typer.Option(
            help="Let the chain depend on an environment: a public clock, or a hidden one.",
            show_default="none",
        ),
    ] = None,
    environments: Annotated[
        int | None,
        typer.Option(
            help="Number of hidden environments, or of ticks after which the clock repeats.",
            show_default="chosen on held-out readings; times of day",
        ),
    ] = None,
    public: Annotated[bool, options.PUBLIC] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Fit private readings with this epsilon of differential privacy per reading, above 0."),
    ] = None,
    until: Annotated[str | None, options.UNTIL] = None,
) -> None:
    """Fit a chain to readings, and report how well it explains them.

    \b
    Example:
      csdp fit readings.csv --public --strategy categories -o fitted.json
      csdp fit readings.csv --public --environment clock --environments 2 -o clock.json

    A fitted chain reveals something about its readings. Fit public readings (--public, --until), or fit with
    differential privacy (--epsilon); otherwise a warning is printed.
    """
    target = Path(output)
    if public and epsilon is not None:
        raise InputError("epsilon: given for readings that are declared public; leave out --epsilon or --public")
    spec = options.locate(data)
    words = spec.categories if edges is None and strategy in {None, "categories"} else None
    found = words is not None and spec.categories_from is not None
    uniform = strategy == "uniform" and bounds is not None
    declared = edges is not None or (words is not None and not found) or uniform
    if epsilon is not None and not declared:
        raise InputError(
            "epsilon: states derived from private readings would leak without being charged; declare them with "
            "--edges, --strategy uniform --bounds LOW,HIGH, or `csdp open --categories`"
        )
    readings = read_readings(spec)
    if until is not None:
        readings, _ = readings.split(until, timezone=spec.timezone)
    mapping = Discretiser.fit(
        readings,
        states=states,
        strategy="edges" if edges is not None else strategy,
        edges=_parse_numbers("edges", edges),
        bounds=_parse_numbers("bounds", bounds),
        categories=words,
        public=public,
    )
    if found:
        mapping = replace(mapping, source="public" if public else "private")
    panel = mapping.apply(readings)
    with progress_bar() as progress:
        chain = fit_chain(
            panel,
            neighbours=neighbours,
            public=public,
            epsilon=epsilon,
            direction=direction,
            environment=environment,
            environments=environments,
            progress=progress,
        )
    quality = _evaluate(chain, panel)
    save_model(chain, target)
    mapping_file = target.with_suffix(".discretiser.json")
    mapping.save(mapping_file)
    _print_fit(chain, quality, public=public)
    print_lines([f"wrote {target}: {chain!r}", f"wrote {mapping_file}: {mapping!r}"])


def _parse_numbers(what: str, text: str | None) -> list[float] | None:
    """Parse numbers separated by commas.

    >>> _parse_numbers("edges", "0,1.5")
    [0.0, 1.5]
    """
    try:
        return None if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"{what}: {text!r} given; numbers separated by commas expected") from None


def _evaluate(chain: Chain, panel: Panel) -> FitQuality | str:
    """How good the fit is, or why that cannot be said."""
    from csdp.fitting.checks import fit_quality

    if chain.fitted is not None and chain.fitted.epsilon is not None:
        return (
            f"Paid: epsilon {chain.fitted.epsilon:g} for one reading, charged when a publisher opens the dataset. "
            "How well it fits is not reported, because that would use the private readings again."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # the fit itself has warned
        try:
            with progress_bar() as progress:
                return fit_quality(chain.without_family(), panel, public=True, progress=progress)
        except InputError:
            return "Too few ticks to hold some out: how well the chain explains the readings is unknown."


def _print_fit(chain: Chain, quality: FitQuality | str, *, public: bool) -> None:
    """Print warnings of the fit, how good it is, and the verdict on the chain."""
    record = chain.fitted
    assert record is not None
    print_lines(f"Beware: {note}" for note in record.warnings)
    if record.readings_check == "failed":
        print_lines(
            [
                "Beware: the reading inside a state reveals more of the states around it, so that a plan for readings "
                "is refused. Use finer states (--states), or a query of states."
            ]
        )
    if record.assumes:
        print_lines(
            [
                f"The class that is certified: {record.assumes}. Its limits hold together with confidence "
                f"{record.confidence:g}."
            ]
        )
        print_lines(f"  {step}" for step in record.growing)
        print_lines([f"The tests: {record.power}."] if record.power else [])
    if record.gains:
        print_lines(["Gain over independent chains, nats per held-out tick (standard error):"])
        print_lines(f"  {name}: {gain:.3f} ({error:.3f})" for name, gain, error in record.gains)
    if isinstance(quality, str):
        print_lines([quality])
    else:
        console().print(quality.verdict)
        if not public:
            print_lines(["This table reveals something about private readings: do not pass it on."])
    print_lines([chain.verdict.words])
