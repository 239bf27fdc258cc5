"""`csdp serve` and `csdp key`: the service, and who may use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.cli.checking import checked
from csdp.cli.group import Group
from csdp.cli.options import Check, Form
from csdp.cli.output import Format, console, printable, show_json
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.service.keys import Keys

KeysOption = Annotated[Path, typer.Option(metavar="FILE", help="The file of API keys (mode 0600).")]
_KEYS = Path("keys.json")

key_app = typer.Typer(
    cls=Group,
    help="Make, list and remove the API keys of a service, which sees a change at once.\n\n\b\nExample:\n"
    "  csdp key new --role writer --dataset ward-7\n  csdp key list",
    short_help="Make, list and remove the API keys of a service.",
    rich_markup_mode=None,
)


def serve(
    spec: Annotated[
        list[str],
        typer.Option(metavar="STREAM.toml", help="The specification of a dataset; give it several times for several."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")] = 8765,
    keys: KeysOption = _KEYS,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; more than 1 needs PostgreSQL.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second of one key, in the long run.")] = 200.0,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of one request's body.")] = 16 * 2**20,
    question_seconds: Annotated[
        float, typer.Option(min=1.0, help="Seconds that one question of a reader (what-if, frontier) may take.")
    ] = 60.0,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="Show /metrics to this machine without a key.")
    ] = False,
    check: Check = False,
    form: Form = "table",
) -> None:
    """Serve datasets over HTTP: readings in, published numbers out, and a dashboard.

    \b
    Example:
      csdp serve --spec stream.toml --check

    Without --check it listens until Ctrl-C or SIGTERM. The first start makes an admin key and shows it once; `csdp key
    new` makes those of writers and readers.
    """
    try:
        from csdp.service import Settings
        from csdp.service.server import serve as run
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
        question_seconds=question_seconds,
        open_metrics=open_metrics,
    )
    store = _store(keys)
    if check:
        _show_check(settings.specs, store, form)
        return
    if form != "table":
        raise InputError("format: json goes with --check; a service that runs answers in JSON anyway")

    def ready(at: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"csdp: listening on http://{shown}:{at}/ (Ctrl-C stops)", err=True)
        _first_key(store)

    run(settings, host=host, port=port, workers=workers, ready=ready)


def _show_check(specs: Sequence[str], store: Keys, form: Format) -> None:
    found = [checked(path) for path in specs]
    keys = store.all()
    if form == "json":
        show_json({"datasets": [one.to_dict() for one in found], "keys_file": str(store.path), "keys": len(keys)})
        return
    for one in found:
        console().print(str(one), soft_wrap=True)
    console().print(printable(f"{store.path}: {len(keys)} {'key' if len(keys) == 1 else 'keys'}"), soft_wrap=True)


def _first_key(store: Keys) -> None:
    """An admin key where there is none, shown once."""
    from csdp.service.keys import ALL, new_key

    if any(key.role == "admin" and key.is_for_all for key in store.all()):
        return
    key, text = new_key("admin", [ALL], label="first")
    store.add(key)
    typer.echo(f"csdp: a first admin key, shown this once (its hash is in {printable(str(store.path))}):", err=True)
    typer.echo(text)


@key_app.command("new")
def new(
    role: Annotated[
        Literal["writer", "reader", "admin"],
        typer.Option(help="writer hands in readings, reader sees what is published, admin manages keys too."),
    ],
    dataset: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="A dataset that it is for; give it several times for several, '*' for all."),
    ],
    label: Annotated[str, typer.Option(help="A remark on who has it.")] = "",
    keys: KeysOption = _KEYS,
    form: Form = "table",
) -> None:
    """Make a key and show it once; only its hash is kept.

    \b
    Example: csdp key new --role reader --dataset ward-7 --label corridor
    """
    from csdp.service.keys import new_key

    key, text = new_key(role, dataset, label=label)
    _store(keys).add(key)
    if form == "json":
        show_json({**key.public_record(), "key": text})
        return
    typer.echo(f"csdp: key {key.id}, shown this once:", err=True)
    typer.echo(text)


@key_app.command("list")
def list_keys(keys: KeysOption = _KEYS, form: Form = "table") -> None:
    """Show the keys there are, without their secrets.

    \b
    Example: csdp key list --keys keys.json
    """
    from rich.table import Table

    found = [key.public_record() for key in _store(keys).all()]
    if form == "json":
        show_json(found)
        return
    table = Table(title=f"Keys in {keys}", title_justify="left")
    for column in ("id", "role", "datasets", "label", "created"):
        table.add_column(column)
    for key in found:
        names = key["datasets"]
        assert isinstance(names, list)
        shown = (key["id"], key["role"], ", ".join(names), key["label"], key["created"])
        table.add_row(*(printable(str(part)) for part in shown))
    console().print(table)


@key_app.command("remove")
def remove(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, or its label where no other has it.")],
    keys: KeysOption = _KEYS,
    form: Form = "table",
) -> None:
    """Remove a key; it stops working at once, also on connections that are open.

    \b
    Example: csdp key remove corridor
    """
    store = _store(keys)
    found = [one.id for one in store.all() if key in (one.id, one.label)]
    if len(found) != 1:
        what = f"{len(found)} keys" if found else "no key"
        raise InputError(f"{keys}: {what} {key!r}; give one of the ids that `csdp key list` shows")
    store.remove(found[0])
    if form == "json":
        show_json({"removed": found[0]})
    else:
        typer.echo(f"csdp: key {found[0]} removed", err=True)


def _store(path: Path) -> Keys:
    from csdp.service.keys import Keys

    return Keys(path.absolute())
