"""`csdp fit`: a chain from a file of readings, with the discretiser that made states of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs
from csdp.cli.output import console, printable, progress_bar
from csdp.errors import CsdpWarning, InputError

if TYPE_CHECKING:
    from csdp.chain import CoupledChain, JointChain
    from csdp.fit.quality import FitQuality
    from csdp.panel import Discretiser, Panel, Readings

Method = Literal["em", "ching", "counts", "moments", "joint"]
#: Joint states up to which the leakage under a joint chain is told beside.
JOINT_STATES = 256


def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA.csv|.parquet",
            help="Readings: a column `time` and one per sequence, or the columns time, sequence and value.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="CHAIN.json", help="Where to write the chain.")],
    states: Annotated[int, typer.Option(help="States for each sequence.")] = 4,
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
    discretiser: Annotated[
        str | None, typer.Option(metavar="FILE", help="A discretiser that is there already, in place of all these.")
    ] = None,
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
    public: Annotated[bool, typer.Option("--public", help="The readings are public.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="The readings are private, and this much may be spent on the chain.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only readings before this time: the public past.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Time between two ticks, such as 300 or 5min.", show_default="found in the file")
    ] = None,
    engine: Annotated[
        Literal["memory", "duckdb", "spark"],
        typer.Option(help="What counts: memory; duckdb or spark, for more than fits (cells are state numbers)."),
    ] = "memory",
) -> None:
    """Fit a chain to readings, and say how well it explains them.

    \b
    Example:
      csdp fit readings.csv --public --strategy categories -o fitted.json

    A chain tells about the readings that it was fitted on. Fit on public readings (--public, --until), or pay for it
    (--epsilon): without either there is a warning.
    """
    from csdp.chain.files import save_model

    target = Path(output)
    beside = Path(save_discretiser) if save_discretiser else target.with_suffix(".discretiser.json")
    if public and epsilon is not None:
        raise InputError("epsilon: given for readings that are declared public; give one of the two")
    with warnings_told():
        if engine != "memory":
            chain: Any = _counted(data, engine, method, states, smoothing, public=public, epsilon=epsilon)
            save_model(chain, target)
            console().print(f"wrote {target}: {chain!r}, from pair counts alone", soft_wrap=True)
            return
        readings = _readings(data, step, until)
        if epsilon is not None and discretiser is None and edges is None and not (strategy == "uniform" and bounds):
            raise InputError(
                "epsilon: states taken from private readings are not paid for; declare them with --edges, with "
                "--strategy uniform --bounds LOW,HIGH, or with --discretiser"
            )
        cut = _discretiser(readings, states, strategy, edges, bounds, discretiser, public=public)
        panel = cut.apply(readings)
        chain = _fitted(panel, method, neighbours, smoothing, ensemble, public=public, epsilon=epsilon)
    save_model(chain, target)
    if discretiser is None:
        cut.save(beside)
    _told(chain, panel, public=public)
    screen = console()
    screen.print(f"wrote {target}: {chain!r}", soft_wrap=True)
    if discretiser is None:
        screen.print(f"wrote {beside}: {cut!r}", soft_wrap=True)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Warnings as lines on stderr: what a reader of the command should know, without code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CsdpWarning)
        yield
    for text in dict.fromkeys(str(found.message) for found in caught if issubclass(found.category, CsdpWarning)):
        typer.echo(f"csdp: warning: {printable(text)}", err=True)


def _readings(data: str, step: str | None, until: str | None) -> Readings:
    from csdp.panel import read_readings

    found = read_readings(data, step=int(step) if step and step.isdigit() else step)
    if until is None:
        return found
    past, _ = found.split(int(until) if until.lstrip("-").isdigit() else until)
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
    *,
    public: bool,
    epsilon: float | None,
) -> CoupledChain | JointChain:
    from csdp.fit import fit as fit_chain

    with progress_bar() as tell:
        return fit_chain(
            panel,
            method=method,
            neighbours=neighbours,
            smoothing=smoothing,
            ensemble=ensemble,
            public=public,
            epsilon=epsilon,
            progress=tell or False,
        )


def _told(chain: CoupledChain | JointChain, panel: Panel, *, public: bool) -> None:
    """How good the fit is, in words; of a private one only what its record may say."""
    screen = console()
    record = chain.fitted
    assert record is not None
    for note in record.warnings:
        screen.print(f"Beware: {note}", soft_wrap=True)
    if chain.fit_cost is not None:
        screen.print(
            f"Paid: epsilon {chain.fit_cost['epsilon']:g} for one reading, charged when a publisher opens the dataset. "
            "How well it fits is not told: that would look at the readings again.",
            soft_wrap=True,
        )
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # said when it was fitted
        quality = _quality(chain, panel)
    if quality is None:
        screen.print("Too few ticks to hold some out: how well the chain explains the readings is not known.")
        return
    screen.print(quality)
    if not public:
        screen.print("This table tells about private readings: keep it to yourself.")
    if quality.together is not None and not quality.together.passed and chain.size <= JOINT_STATES:
        _both(chain, panel)


def _quality(chain: CoupledChain | JointChain, panel: Panel) -> FitQuality | None:
    from csdp.fit.quality import fit_quality

    try:
        with progress_bar() as tell:
            return fit_quality(chain.without_family(), panel, public=True, progress=tell or False)
    except InputError:
        return None


def _both(chain: CoupledChain | JointChain, panel: Panel) -> None:
    """The leakage under the chain and under a joint chain, which can move together within a step."""
    from csdp.fit import fit as fit_chain
    from csdp.leakage import leakage, shown
    from csdp.queries import Mean

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)
        joint = fit_chain(panel, method="joint", public=True, ensemble=0, progress=False)
    told = [shown(leakage(m, Mean(), ages=1, epsilon_c=1.0).epsilon) for m in (chain.without_family(), joint)]
    console().print(
        f"The mean at age 1 with epsilon_c = 1 tells {told[0]} under the coupled chain, {told[1]} under a joint chain "
        "(--method joint).",
        soft_wrap=True,
    )


def _counted(
    data: str, engine: Any, method: str, states: int, smoothing: float, *, public: bool, epsilon: float | None
) -> CoupledChain:
    """A chain from the pair counts of a table that need not fit in memory."""
    import numpy as np

    from csdp.chain import FitRecord
    from csdp.fit import pairs
    from csdp.fit.counting import everyone
    from csdp.fit.data import Sample
    from csdp.fit.methods import coupled
    from csdp.tables.doors import pair_counts
    from csdp.tables.layout import look

    if method not in {"ching", "moments"}:
        raise InputError(
            f"method: {method!r} needs the readings in memory; with --engine {engine} use ching or moments"
        )
    if epsilon is not None or not public:
        raise InputError(f"engine {engine}: for public readings only (--public); --epsilon needs --engine memory")
    names = tuple(name for name in look(data, ()).header if name.lower() != "time")
    if set(names) == {"sequence", "value"}:
        raise InputError(f"engine {engine}: a wide table expected, one column for each sequence")
    graph = everyone(len(names))
    values = np.arange(float(states))
    edges = np.column_stack([graph.targets, graph.sources])
    counts = pair_counts(data, edges, names=names, values=values, engine=engine).astype(np.float64)
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
