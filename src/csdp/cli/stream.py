"""`csdp init`, `csdp stream`, `csdp serve` and `csdp key`: publish readings as they arrive, here or over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli.options import Check, FileDataset, FormatOption
from csdp.cli.reading import locate, takes_readings
from csdp.cli.terminal import (
    CommandGroup,
    Format,
    console,
    print_json,
    print_lines,
    print_notice,
    print_table,
    printable,
)
from csdp.errors import InputError, NotUsefulError
from csdp.panel import InputSpec

if TYPE_CHECKING:
    from csdp.plan import Plan
    from csdp.service.keys import Keys
    from csdp.stream import Alarm, Status
    from csdp.stream.spec import StreamSpec

KeysOption = Annotated[Path, typer.Option(metavar="FILE", help="File of API keys (mode 0600).")]
_KEYS = Path("keys.json")

key_app = typer.Typer(
    cls=CommandGroup,
    help="Make, list and remove the API keys of a service; a running service sees changes at once.\n\n\b\nExample:\n"
    "  csdp key new --role writer --dataset ward-7\n  csdp key list",
    short_help="Make, list and remove the API keys of a service.",
    rich_markup_mode=None,
)


@takes_readings
def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Sample of the readings that will arrive, a table or a .toml file with an [input] section; the names "
            "of sequences and the step are taken from it.",
        ),
    ],
    reading: InputSpec,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STREAM.toml", help="File to write the specification to.")
    ] = Path("stream.toml"),
    dataset: FileDataset = None,
    plan: Annotated[
        str, typer.Option(metavar="PLAN.json", help="Plan file, relative to the folder of the specification.")
    ] = "plan.json",
    force: Annotated[bool, typer.Option("--force", help="Replace the specification if it exists.")] = False,
) -> None:
    """Write a first specification of a stream, with comments, from a file of readings.

    \b
    Example: csdp init rooms.csv --plan plan.json -o stream.toml

    If the plan file is there, it is checked. Exit code 6: it removes less than 5 % of the error of guessing the usual
    value, with what would help; `csdp stream` and `csdp serve` refuse it then.
    """
    from csdp.stream.template import first_spec

    if output.exists() and not force:
        raise InputError(f"{output}: exists already; give another --output, or --force to replace it")
    output.write_text(
        first_spec(locate(data, reading), dataset=dataset, plan=plan, folder=output.parent), encoding="utf-8"
    )
    there = (output.parent / plan).is_file()
    if there:
        try:
            check_spec(str(output))
        except NotUsefulError as stop:
            message = f"{stop}. {output} was written; `csdp stream` and `csdp serve` refuse it until it is changed"
            raise NotUsefulError(message, usefulness=stop.usefulness, helps=stop.helps) from None
    print_lines([f"wrote {output}; look through it, then: csdp stream --spec {output}"])
    if not there:
        print_lines([f"{plan}: not there yet. Make one with `csdp suggest` or `csdp plan`"])


def stream(
    spec: Annotated[
        str, typer.Option(metavar="STREAM.toml", help="Specification of the stream; `csdp init` writes a first one.")
    ],
    check: Check = False,
    form: FormatOption = "table",
) -> None:
    """Publish readings as they arrive: each tick once, after its time is over, within the limits of its dataset.

    \b
    Example:
      csdp chain new --sequences 12 --self-coupling 1 --p 0.1 --q 0.1 -o rooms.json
      csdp chain simulate rooms.json --steps 200 --seed 1 -o rooms.csv
      csdp plan rooms.json --query mean --budget 1 --max-age 5 -o plan.json
      csdp init rooms.csv --plan plan.json -o stream.toml
      csdp stream --spec stream.toml

    Stop with Ctrl-C or SIGTERM; ticks whose time is not over stay open. Start again with the same command: no tick is
    published twice, and an output that may not have arrived is delivered again.
    """
    from csdp.scratch import forbid_core_dumps
    from csdp.stream import run, stop_on_signals
    from csdp.stream.from_spec import open_stream
    from csdp.stream.spec import read_spec

    if check:
        result = check_spec(spec)
        if form == "json":
            print_json(result.to_dict())
        else:
            print_lines([result])
        return
    if form != "table":
        raise InputError("format: json requires --check; without it, outputs go where the specification says")
    forbid_core_dumps()
    with (
        open_stream(read_spec(spec), on_drift=_print_drift) as live,
        stop_on_signals(live.runner.stop),
        _status_line() as update,
    ):
        status = run(live.runner, live.source, by_wall_clock=live.by_wall_clock, on_status=update)
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


def _print_drift(_: Alarm) -> None:
    """Print an alarm on the operator's terminal only: it is derived from private readings."""
    print_notice(
        "drift: the readings no longer follow the chain, which the certified leakage assumes. "
        "This is private: do not act on it in public"
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


@dataclass(frozen=True)
class SpecCheck:
    """A specification whose files were read and whose plan was made; it contains none of the secrets it names."""

    path: str
    spec: StreamSpec
    plan: Plan
    names: tuple[str, ...]

    def __str__(self) -> str:
        limits = ", ".join(f"{name} {value:g}" for name, value in self.spec.limits.items() if value is not None)
        clock = self.spec.clock
        return printable(
            f"{self.path}: dataset {self.spec.dataset}, {len(self.names):,} sequences, {self.plan!r}, limits "
            f"{limits or 'none'}, step {clock.step}, lateness {clock.lateness:g}, times {clock.times}, from "
            f"{self.spec.source.kind} to {self.spec.sink.kind}. {self.plan.verdict.words}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {
            "spec": self.path,
            "dataset": self.spec.dataset,
            "sequences": list(self.names),
            "plan": self.plan.digest,
            "query": self.plan.query.name,
            "ages": list(self.plan.ages),
            "epsilon_c": self.plan.epsilon_c,
            "adversary": self.plan.adversary,
            "leakage": self.plan.certified.epsilon,
            "model": self.plan.verdict.to_dict(),
            "limits": self.spec.limits,
            "step": self.spec.clock.step,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "source": self.spec.source.kind,
            "sink": self.spec.sink.kind,
        }


def check_spec(path: str) -> SpecCheck:
    """Read a specification and all files that it names, as a start would, without opening a ledger."""
    from csdp.stream.from_spec import load_plan, resolve_sequences
    from csdp.stream.spec import read_spec

    spec = read_spec(path)
    plan = load_plan(spec)
    names, _ = resolve_sequences(spec, plan)
    return SpecCheck(path, spec, plan.plan, names)


# ---- csdp serve ----------------------------------------------------------------------------------------------------


def serve(
    spec: Annotated[
        list[str],
        typer.Option(metavar="STREAM.toml", help="Specification of a dataset; repeat the option for several datasets."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8765,
    keys: KeysOption = _KEYS,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another process publishes a dataset, then take over.")
    ] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Average requests per second allowed for one key.")] = 200.0,
    max_body: Annotated[int, typer.Option(min=1024, help="Largest size of a request's body, in bytes.")] = 16 * 2**20,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="Serve /metrics to this machine without a key.")
    ] = False,
    check: Check = False,
    form: FormatOption = "table",
) -> None:
    """Serve datasets over HTTP: readings in, published numbers out, and a dashboard.

    \b
    Example:
      csdp serve --spec stream.toml --check

    Without --check it listens until Ctrl-C or SIGTERM. The first start makes an admin key and prints it once; `csdp key
    new` makes keys for writers and readers.
    """
    try:
        from csdp.service import Settings
        from csdp.service.server import serve as run_server
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs {error.name}: install csdp[service]") from None
    settings = Settings(
        specs=tuple(str(Path(path).absolute()) for path in spec),
        keys=str(keys.absolute()),
        rate=rate,
        burst=max(2 * rate, 20.0),
        max_body=max_body,
        max_line=min(max_body, Settings.max_line),
        max_waiting=max(4 * max_body, Settings.max_waiting),
        open_metrics=open_metrics,
        standby=standby,
    )
    store = _open_keys(keys)
    if check:
        _print_check(settings.specs, store, form)
        return
    if form != "table":
        raise InputError("format: json requires --check; a running service answers in JSON anyway")

    def on_ready(bound_port: int) -> None:
        address = f"[{host}]" if ":" in host else host
        typer.echo(f"csdp: listening on http://{address}:{bound_port}/ (Ctrl-C stops)", err=True)
        _ensure_admin_key(store)

    run_server(settings, host=host, port=port, ready=on_ready)


def _print_check(specs: Sequence[str], store: Keys, form: Format) -> None:
    checks = [check_spec(path) for path in specs]
    keys = store.all()
    if form == "json":
        datasets = [check.to_dict() for check in checks]
        print_json({"datasets": datasets, "keys_file": str(store.path), "keys": len(keys)})
        return
    print_lines([*checks, printable(f"{store.path}: {len(keys)} {'key' if len(keys) == 1 else 'keys'}")])


def _ensure_admin_key(store: Keys) -> None:
    """Make an admin key if there is none, and print it once."""
    from csdp.service.keys import ALL, new_key

    if any(key.role == "admin" and key.is_for_all for key in store.all()):
        return
    key, text = new_key("admin", [ALL], label="first")
    store.add(key)
    print_notice(f"a first admin key, shown this once (its hash is in {store.path}):")
    typer.echo(text)


# ---- csdp key ------------------------------------------------------------------------------------------------------


@key_app.command("new")
def new(
    role: Annotated[
        Literal["writer", "reader", "admin"],
        typer.Option(
            help="What the key allows: send readings (writer), see what is published (reader), or also manage keys "
            "(admin)."
        ),
    ],
    dataset: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="Dataset that the key is valid for; repeat the option for several, '*' for all."
        ),
    ],
    label: Annotated[str, typer.Option(help="A note on who uses the key.")] = "",
    keys: KeysOption = _KEYS,
    form: FormatOption = "table",
) -> None:
    """Make a key and print it once; only its hash is stored.

    \b
    Example: csdp key new --role reader --dataset ward-7 --label corridor
    """
    from csdp.service.keys import new_key

    key, text = new_key(role, dataset, label=label)
    _open_keys(keys).add(key)
    if form == "json":
        print_json({**key.public_record(), "key": text})
        return
    print_notice(f"key {key.id}, shown this once:")
    typer.echo(text)


@key_app.command("list")
def list_keys(keys: KeysOption = _KEYS, form: FormatOption = "table") -> None:
    """List the keys, without their secrets.

    \b
    Example: csdp key list --keys keys.json
    """
    stored = _open_keys(keys).all()
    if form == "json":
        print_json([key.public_record() for key in stored])
        return
    rows = [(key.id, key.role, ", ".join(key.datasets), key.label, key.created) for key in stored]
    columns: dict[str, dict[str, str]] = {name: {} for name in ("id", "role", "datasets", "label", "created")}
    print_table(f"Keys in {keys}", columns, [[printable(cell) for cell in row] for row in rows])


@key_app.command("remove")
def remove(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, or its label if no other key has it.")],
    keys: KeysOption = _KEYS,
    form: FormatOption = "table",
) -> None:
    """Remove a key; it stops working at once, also on open connections.

    \b
    Example: csdp key remove corridor
    """
    store = _open_keys(keys)
    ids = [each.id for each in store.all() if key in (each.id, each.label)]
    if len(ids) != 1:
        what = f"{len(ids)} keys" if ids else "no key"
        raise InputError(f"{keys}: {what} {key!r}; give one of the ids that `csdp key list` shows")
    store.remove(ids[0])
    if form == "json":
        print_json({"removed": ids[0]})
    else:
        print_notice(f"key {ids[0]} removed")


def _open_keys(path: Path) -> Keys:
    from csdp.service.keys import Keys

    return Keys(path.absolute())
