"""`csdp stream` and `csdp init`: publish readings as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from csdp.cli.checking import checked
from csdp.cli.options import Check, FileDataset, Form
from csdp.cli.output import console, printable, show_json
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.stream import Alarm, Status

Tell = Callable[["Status", str], None]


def stream(
    spec: Annotated[
        str, typer.Option(metavar="STREAM.toml", help="The specification, as `csdp init` writes a first one.")
    ],
    check: Check = False,
    form: Form = "table",
) -> None:
    """Publish readings as they arrive: each tick once, when its time is over, never above the limits of its dataset.

    \b
    Example:
      csdp init readings.csv -o stream.toml
      csdp stream --spec stream.toml

    Stop with Ctrl-C or SIGTERM: ticks whose time is not over stay open. Start again with the same command: no tick is
    published twice, and an output that may not have arrived is delivered again.
    """
    from csdp.stream import run, stop_on_signals
    from csdp.stream.from_spec import open_stream
    from csdp.stream.spec import read_spec

    if check:
        found = checked(spec)
        if form == "json":
            show_json(found.to_dict())
        else:
            console().print(str(found), soft_wrap=True)
        return
    if form != "table":
        raise InputError("format: json goes with --check; without it, outputs go where the specification says")
    with (
        open_stream(read_spec(spec), on_drift=_drifted) as live,
        stop_on_signals(live.runner.stop),
        _status_line() as tell,
    ):
        status = run(live.runner, live.source, by_wall_clock=live.by_wall_clock, on_status=tell)
    typer.echo(f"csdp: {printable(summary(status))}", err=True)


def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA.csv|.parquet",
            help="Readings such as those that will arrive; names and step are taken from it.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STREAM.toml", help="Where to write the specification.")
    ] = Path("stream.toml"),
    dataset: FileDataset = None,
    chain: Annotated[
        str, typer.Option(metavar="CHAIN.json", help="The model, relative to the specification.")
    ] = "chain.json",
    force: Annotated[bool, typer.Option("--force", help="Replace a specification that is there.")] = False,
) -> None:
    """Write a first specification of a stream, with comments, from a file of readings.

    \b
    Example: csdp init readings.csv -o stream.toml
    """
    from csdp.stream.template import first_spec

    if output.exists() and not force:
        raise InputError(f"{output}: exists already; give another --output, or --force to replace it")
    output.write_text(first_spec(data, dataset=dataset, chain=chain), encoding="utf-8")
    screen = console()
    screen.print(f"wrote {output}; look through it, then: csdp stream --spec {output}", soft_wrap=True)
    if not (output.parent / chain).is_file():
        screen.print(
            f"{chain}: not there yet. Make one from public data with `csdp fit`, or with `csdp chain new`",
            soft_wrap=True,
        )


def summary(status: Status) -> str:
    """One line of times and counts; nothing private."""
    counts = ", ".join(f"{count:,} {fate}" for fate, count in sorted(status.fates.items()) if count)
    last = "" if status.last is None else f", last tick {status.last.tick}, epsilon_s {status.last.epsilon_s:.4g}"
    without = f", {status.skipped:,} ticks without output" if status.skipped else ""
    reason = f" ({status.reason})" if status.skipped and status.reason else ""
    times = "; ages are what the timestamps say" if status.times == "data" else ""
    trouble = f"; {status.trouble}" if status.trouble else ""
    return (
        f"{status.dataset}: {status.published:,} published{last}{without}{reason}; messages: {counts or 'none'}"
        f"{times}{trouble}"
    )


def _drifted(_: Alarm) -> None:
    """An alarm comes from private readings: it is for the operator's terminal, never for an output."""
    typer.echo(
        "csdp: drift: the readings no longer follow the chain, on which the certified leakage rests. "
        "This is private: do not act on it in public",
        err=True,
    )


@contextmanager
def _status_line() -> Iterator[Tell | None]:
    """A line on stderr that is drawn anew, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(stderr=True), transient=True, refresh_per_second=5) as drawn:

        def tell(status: Status, state: str) -> None:
            drawn.update(Text(printable(f"{summary(status)}{'; ' + state if state else ''}"), no_wrap=True))

        yield tell
