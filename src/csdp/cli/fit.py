"""`csdp fit`: a chain from a file of readings, with the discretiser that made states of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs, options
from csdp.cli.output import console, progress_bar, show_json, warnings_told
from csdp.errors import CsdpWarning, InputError
from csdp.fitting.fit import Method

if TYPE_CHECKING:
    from csdp.chain import CoupledChain, JointChain
    from csdp.fitting.quality import FitQuality
    from csdp.panel import Discretiser, Panel, Readings

#: Joint states up to which the leakage under a joint chain is told beside.
JOINT_STATES = 256


def fit(
    data: options.DataFile,
    output: Annotated[str, typer.Option("--output", "-o", metavar="CHAIN.json", help="Where to write the chain.")],
    states: Annotated[int, typer.Option(help="States of each sequence.")] = 4,
    strategy: Annotated[
        Literal["quantile", "uniform", "categories"],
        typer.Option(help="As many readings in each state, equal parts of the bounds, or every number a state."),
    ] = "quantile",
    edges: Annotated[
        str | None, typer.Option(metavar="E1,E2,...", help="Edges between the states, in place of a strategy.")
    ] = None,
    bounds: Annotated[
        str | None, typer.Option(metavar="LOW,HIGH", help="What readings lie between; known without the data.")
    ] = None,
    discretiser: options.FitDiscretiserFile = None,
    save_discretiser: Annotated[
        str | None,
        typer.Option(
            "--save-discretiser",
            "-d",
            metavar="FILE",
            help="Where to write the discretiser.",
            show_default="CHAIN.discretiser.json",
        ),
    ] = None,
    method: Annotated[Method, typer.Option(help="How the chain is found; em maximises the likelihood.")] = "em",
    neighbours: Annotated[
        int | None, typer.Option(help="Others that each sequence may follow.", show_default="all up to 8 sequences")
    ] = None,
    smoothing: Annotated[float, typer.Option(help="Pseudo-counts for what was never seen.")] = 0.5,
    ensemble: Annotated[int, typer.Option(help="Further chains that the data leaves possible, kept as a family.")] = 20,
    direction: Annotated[
        Literal["forward", "backward", "auto"],
        typer.Option(help="The next state from the present, the previous one, or what explains more."),
    ] = "forward",
    public: options.Public = False,
    epsilon: Annotated[
        float | None, typer.Option(help="The readings are private, and this much may be spent on the chain.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only readings before this time: the public past.")
    ] = None,
    step: options.Step = None,
    engine: options.Engine = "memory",
    form: options.Form = "table",
) -> None:
    """Fit a chain to readings, and say how well it explains them.

    \b
    Example:
      csdp fit readings.csv --public --strategy categories -o fitted.json

    A chain tells about the readings that it was fitted on. Fit on public readings (--public, --until), or pay for it
    (--epsilon): without either there is a warning. With --engine duckdb or spark, cells are state numbers, and the
    methods are ching and moments.
    """
    target = Path(output)
    beside = Path(save_discretiser) if save_discretiser else target.with_suffix(".discretiser.json")
    if public and epsilon is not None:
        raise InputError("epsilon: given for readings that are declared public; leave out --epsilon or --public")
    with warnings_told():
        if engine != "memory":
            given = {
                "--until": until, "--epsilon": epsilon, "--edges": edges, "--bounds": bounds,
                "--discretiser": discretiser, "--save-discretiser": save_discretiser, "--neighbours": neighbours,
                "--direction": None if direction == "forward" else direction,
            }  # fmt: skip
            counted = _counted(data, engine, method, states, smoothing, step=step, public=public, given=given)
            made = Made(target, counted, "From pair counts alone: how well it explains the readings is not known.")
        else:
            declared = discretiser is not None or edges is not None or (strategy == "uniform" and bounds is not None)
            if epsilon is not None and not declared:
                raise InputError(
                    "epsilon: states taken from private readings are not paid for; declare them with --edges, with "
                    "--strategy uniform --bounds LOW,HIGH, or with --discretiser"
                )
            readings = _readings(data, step, until)
            cut = _discretiser(readings, states, strategy, edges, bounds, discretiser, public=public)
            panel = cut.apply(readings)
            chain = _fitted(panel, method, neighbours, smoothing, ensemble, direction, public=public, epsilon=epsilon)
            made = Made(target, chain, _evidence(chain, panel), *((beside, cut) if discretiser is None else ()))
        made.save()
    if form == "json":
        show_json(made.to_dict())
    else:
        _show(made, public=public)


@dataclass(frozen=True)
class Evidence:
    """How well a chain explains readings, and what it leaks beside a joint chain where they move together."""

    quality: FitQuality
    leakages: tuple[float, float] | None  #: of the mean at age 1 with epsilon_c 1: the chain, a joint chain


@dataclass(frozen=True)
class Made:
    """A chain with its file, how well it fits (or why that is not told), and the discretiser that was made for it."""

    file: Path
    chain: CoupledChain | JointChain
    evidence: Evidence | str
    discretiser_file: Path | None = None
    discretiser: Discretiser | None = None

    def save(self) -> None:
        """Write the chain, and the discretiser beside it."""
        from csdp.chain.files import save_model

        save_model(self.chain, self.file)
        if self.discretiser is not None and self.discretiser_file is not None:
            self.discretiser.save(self.discretiser_file)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        assert self.chain.fitted is not None
        told = self.evidence if isinstance(self.evidence, Evidence) else None
        return {
            "chain_file": str(self.file),
            "chain": self.chain.digest,
            "discretiser_file": None if self.discretiser_file is None else str(self.discretiser_file),
            "fitted": self.chain.fitted.to_dict(),
            "fit_cost": self.chain.fit_cost,
            "quality": None if told is None else told.quality.to_dict(),
            "quality_note": "" if told is not None else self.evidence,
            "leakage_coupled_and_joint": None if told is None else told.leakages,
        }


def _readings(data: str, step: str | None, until: str | None) -> Readings:
    from csdp.panel import read_readings

    found = read_readings(data, step=inputs.time_step(step))
    if until is None:
        return found
    past, _ = found.split(until)
    if len(past) < 2:
        raise InputError(f"until: fewer than two ticks before {until}; nothing to fit")
    return past


def _discretiser(
    readings: Readings,
    states: int,
    strategy: Any,
    edges: str | None,
    bounds: str | None,
    given: str | None,
    *,
    public: bool,
) -> Discretiser:
    from csdp.panel import Discretiser

    if given is not None:
        return Discretiser.load(given)
    cuts = None if edges is None else inputs.numbers_or_json("edges", edges)
    ends = None if bounds is None else inputs.numbers_or_json("bounds", bounds)
    return Discretiser.fit(
        readings,
        states=states,
        strategy="edges" if cuts is not None else strategy,
        edges=cuts,
        bounds=ends,
        public=public,
    )


def _fitted(
    panel: Panel,
    method: Method,
    neighbours: int | None,
    smoothing: float,
    ensemble: int,
    direction: Literal["forward", "backward", "auto"],
    *,
    public: bool,
    epsilon: float | None,
) -> CoupledChain | JointChain:
    from csdp.fitting.fit import fit as fit_chain

    with progress_bar() as tell:
        return fit_chain(
            panel,
            method=method,
            neighbours=neighbours,
            smoothing=smoothing,
            ensemble=ensemble,
            public=public,
            epsilon=epsilon,
            direction=direction,
            progress=tell or False,
        )


def _evidence(chain: CoupledChain | JointChain, panel: Panel) -> Evidence | str:
    """How good the fit is, or why that is not told."""
    from csdp.fitting.quality import fit_quality

    if chain.fit_cost is not None:
        return (
            f"Paid: epsilon {chain.fit_cost['epsilon']:g} for one reading, charged when a publisher opens the dataset. "
            "How well it fits is not told: that would look at the readings again."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # said when it was fitted
        try:
            with progress_bar() as tell:
                quality = fit_quality(chain.without_family(), panel, public=True, progress=tell or False)
        except InputError:
            return "Too few ticks to hold some out: how well the chain explains the readings is not known."
        apart = quality.together is not None and not quality.together.passed
        return Evidence(quality, _leakages(chain, panel) if apart and chain.size <= JOINT_STATES else None)


def _leakages(chain: CoupledChain | JointChain, panel: Panel) -> tuple[float, float]:
    """The leakage under the chain and under a joint chain, which can move together within a step."""
    from csdp.bounds.leakage import leakage
    from csdp.fitting.fit import fit as fit_chain
    from csdp.queries import Mean

    joint = fit_chain(panel, method="joint", public=True, ensemble=0, progress=False)
    own, other = (leakage(m, Mean(), ages=1, epsilon_c=1.0).epsilon for m in (chain.without_family(), joint))
    return own, other


def _show(made: Made, *, public: bool) -> None:
    """For people: what to beware of, how good the fit is, and what was written."""
    screen, record = console(), made.chain.fitted
    assert record is not None
    for note in record.warnings:
        screen.print(f"Beware: {note}", soft_wrap=True)
    if record.held_out:
        scores = ", ".join(f"{way} {score:.4f}" for way, score in record.held_out)
        screen.print(f"Read {record.direction}: log-likelihood per held-out tick {scores}.", soft_wrap=True)
    if isinstance(made.evidence, Evidence):
        _show_evidence(made.evidence, public=public)
    else:
        screen.print(made.evidence, soft_wrap=True)
    screen.print(f"wrote {made.file}: {made.chain!r}", soft_wrap=True)
    if made.discretiser_file is not None:
        screen.print(f"wrote {made.discretiser_file}: {made.discretiser!r}", soft_wrap=True)


def _show_evidence(told: Evidence, *, public: bool) -> None:
    from csdp.bounds.result import as_text

    screen = console()
    screen.print(told.quality)
    if not public:
        screen.print("This table tells about private readings: keep it to yourself.")
    if told.leakages is not None:
        own, joint = map(as_text, told.leakages)
        screen.print(
            f"The mean at age 1 with epsilon_c = 1 tells {own} under the coupled chain, {joint} under a joint chain "
            "(--method joint).",
            soft_wrap=True,
        )


def _counted(
    data: str,
    engine: Any,
    method: str,
    states: int,
    smoothing: float,
    *,
    step: str | None,
    public: bool,
    given: Mapping[str, Any],
) -> CoupledChain:
    """A chain from the pair counts of a table that need not fit in memory."""
    import numpy as np

    from csdp.chain import FitRecord
    from csdp.fitting import pairs
    from csdp.fitting.counting import everyone
    from csdp.fitting.methods import coupled
    from csdp.fitting.sample import Sample
    from csdp.tables.layout import look
    from csdp.tables.open import pair_counts

    if method not in {"ching", "moments"}:
        raise InputError(
            f"method: {method!r} needs the readings in memory; with --engine {engine} use ching or moments"
        )
    if not public:
        raise InputError(f"engine {engine}: for public readings only; say --public, or use --engine memory")
    for name, value in given.items():
        if value is not None:
            raise InputError(f"engine {engine}: {name} needs the readings in memory; leave it out, or --engine memory")
    names = tuple(name for name in look(data, ()).header if name.lower() != "time")
    if set(names) == {"sequence", "value"}:
        raise InputError(f"engine {engine}: a wide table expected, one column for each sequence")
    width = inputs.engine_step(step, engine)
    graph = everyone(len(names))
    values = np.arange(float(states))
    edges = np.column_stack([graph.targets, graph.sources])
    counts = pair_counts(data, edges, names=names, values=values, engine=engine, step=width).astype(np.float64)
    ticks = counts.sum(axis=(1, 2))
    if method == "ching":
        laws = pairs.marginals_of(counts, graph)
        shares, moves = pairs.ching(counts, laws, graph, smoothing=smoothing, progress=lambda *_: None)
    else:
        shares, moves = pairs.moments(counts, ticks, graph)
    sample = Sample(np.zeros((1, len(names)), dtype=np.int16), states, names, None)
    chain = coupled(sample, graph, shares, moves)
    seen = int(ticks[graph.targets == graph.sources].sum())
    record = FitRecord(method=method, observations=seen, smoothing=smoothing, states=states, public=True)
    return chain.carrying(fitted=record, fit_cost=None)
