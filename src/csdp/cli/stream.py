"""`csdp stream`: publish readings as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from csdp.cli import options
from csdp.cli.terminal import console, print_lines, print_notice, printable

if TYPE_CHECKING:
    from csdp.stream import Status


def stream(
    spec: Annotated[
        str, typer.Option(metavar="STREAM.toml", help="Specification of the stream; `csdp init` writes a first one.")
    ],
    check: Annotated[bool, options.CHECK] = False,
) -> None:
    """Publish readings as they arrive: each tick once, after its time is over, within the limits of its dataset.

    \b
    Example:
      csdp chain new --sequences 12 --self-coupling 1 --p 0.1 --q 0.1 -o rooms.json
      csdp chain simulate rooms.json --steps 200 --seed 1 -o rooms.csv
      csdp plan rooms.json --query mean --budget 1 --max-age 5 -o rooms.plan.json
      csdp init rooms.csv --plan rooms.plan.json -o stream.toml
      csdp stream --spec stream.toml

    Stop with Ctrl-C or SIGTERM; ticks whose time is not over stay open. Start again with the same command: no tick is
    published twice, and an output that may not have arrived is delivered again.
    """
    from csdp.files import forbid_core_dumps
    from csdp.stream import run, stop_on_signals
    from csdp.stream.spec import open_stream, read_spec

    if check:
        print_lines([check_spec(spec)])
        return
    forbid_core_dumps()
    found = read_spec(spec)
    with open_stream(found) as (runner, source), stop_on_signals(runner.stop), _status_line() as update:
        status = run(runner, source, by_wall_clock=found.by_wall_clock, on_status=update)
    print_notice(summarise_status(status))


def summarise_status(status: Status) -> str:
    """Summarise a status in one line of times and counts, without private values."""
    counts = ", ".join(f"{count:,} {fate}" for fate, count in sorted(status.fates.items()) if count)
    last = "" if status.last is None else f", last tick {status.last.tick}, epsilon_s {status.last.epsilon_s:.4g}"
    without = f", {status.skipped:,} ticks without output" if status.skipped else ""
    reason = f" ({status.reason})" if status.skipped and status.reason else ""
    past = f"; {status.past:,} ticks were recorded before: their numbers stay as they are" if status.past else ""
    times = "; ages are what the timestamps say" if status.times == "data" else ""
    trouble = f"; {status.trouble}" if status.trouble else ""
    return (
        f"{status.dataset}: {status.published:,} published{last}{without}{reason}; messages: {counts or 'none'}"
        f"{past}{times}{trouble}"
    )


@contextmanager
def _status_line() -> Iterator[Callable[[Status, str], None] | None]:
    """A callback that redraws a status line on stderr if that is a terminal; None otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(stderr=True), transient=True, refresh_per_second=5) as line:

        def update(status: Status, state: str) -> None:
            line.update(Text(printable(f"{summarise_status(status)}{'; ' + state if state else ''}"), no_wrap=True))

        yield update


# ---- --check -------------------------------------------------------------------------------------------------------


def check_spec(path: str) -> str:
    """Read a specification and all files that it names, as a start would, without opening a ledger, and describe it."""
    from csdp.stream.spec import load_plan, read_spec, resolve_names

    spec = read_spec(path)
    stored = load_plan(spec)
    names, plan = resolve_names(spec, stored), stored.plan
    limits = ", ".join(f"{name} {value:g}" for name, value in spec.limits if value is not None)
    return printable(
        f"{path}: dataset {spec.dataset}, {len(names):,} sequences, {plan!r}, limits {limits or 'none'}, step "
        f"{spec.clock.step}, lateness {spec.clock.lateness:g}, times {spec.clock.times}, from {spec.source.kind} to "
        f"{spec.sink.kind}. {plan.verdict.words}"
    )
