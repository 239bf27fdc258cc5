"""`csdp serve`: publish over HTTP, and the API keys of the service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.cli import options
from csdp.cli.stream import check_spec
from csdp.cli.terminal import CommandGroup, print_lines, print_notice, print_table, printable
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.service.keys import Keys

KeysOption = Annotated[Path, typer.Option(metavar="FILE", help="File of API keys (mode 0600).")]
_KEYS = Path("keys.json")

serve_app = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
key_app = typer.Typer(
    cls=CommandGroup,
    help="Make, list and remove the API keys of a service; a running service sees changes at once.\n\n\b\nExample:\n"
    "  csdp serve key new --role writer --dataset ward-7\n  csdp serve key list",
    short_help="Make, list and remove the API keys of a service.",
    rich_markup_mode=None,
)
serve_app.add_typer(key_app, name="key")


@serve_app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    spec: Annotated[
        list[str] | None,
        typer.Option(metavar="STREAM.toml", help="Specification of a dataset; repeat the option for several datasets."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8765,
    keys: KeysOption = _KEYS,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another process publishes a dataset, then take over.")
    ] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Average requests per second allowed for one key.")] = 200.0,
    max_body: Annotated[int, typer.Option(min=1024, help="Largest size of a request's body, in bytes.")] = 16 * 2**20,
    check: Annotated[bool, options.CHECK] = False,
) -> None:
    """Serve datasets over HTTP: readings in, published numbers out, and a dashboard.

    \b
    Example:
      csdp serve --spec stream.toml --check

    Without --check it listens until Ctrl-C or SIGTERM. The first start makes an admin key and prints it once; `csdp
    serve key new` makes keys for writers and readers.
    """
    if context.invoked_subcommand is not None:
        return
    if not spec:
        raise InputError("spec: not given; give --spec, a specification as `csdp init` writes it")
    try:
        from csdp.service import Settings
        from csdp.service.app import serve as run_server
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
        standby=standby,
    )
    store = _open_keys(keys)
    if check:
        count = len(store.all())
        keys_found = printable(f"{store.path}: {count} {'key' if count == 1 else 'keys'}")
        print_lines([*map(check_spec, settings.specs), keys_found])
        return

    def on_ready(bound_port: int) -> None:
        address = f"[{host}]" if ":" in host else host
        typer.echo(f"csdp: listening on http://{address}:{bound_port}/ (Ctrl-C stops)", err=True)
        _ensure_admin_key(store)

    run_server(settings, host=host, port=port, ready=on_ready)


def _ensure_admin_key(store: Keys) -> None:
    """Make an admin key if there is none, and print it once."""
    from csdp.service.keys import ALL, new_key

    if any(key.role == "admin" and key.is_for_all for key in store.all()):
        return
    key, text = new_key("admin", [ALL], label="first")
    store.add(key)
    print_notice(f"a first admin key, shown this once (its hash is in {store.path}):")
    typer.echo(text)


# ---- csdp serve key ------------------------------------------------------------------------------------------------


@key_app.command("new")
def new(
    role: Annotated[
        Literal["writer", "reader", "admin"],
        typer.Option(
            help="What the key allows: send readings (writer), see what is published (reader), or also the whole "
            "ledger (admin)."
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
) -> None:
    """Make a key and print it once; only its hash is stored.

    \b
    Example: csdp serve key new --role reader --dataset ward-7 --label corridor
    """
    from csdp.service.keys import new_key

    key, text = new_key(role, dataset, label=label)
    _open_keys(keys).add(key)
    print_notice(f"key {key.id}, shown this once:")
    typer.echo(text)


@key_app.command("list")
def list_keys(keys: KeysOption = _KEYS) -> None:
    """List the keys, without their secrets.

    \b
    Example: csdp serve key list --keys keys.json
    """
    stored = _open_keys(keys).all()
    rows = [(key.id, key.role, ", ".join(key.datasets), key.label, key.created) for key in stored]
    columns = ("id", "role", "datasets", "label", "created")
    print_table(f"Keys in {keys}", columns, [[printable(cell) for cell in row] for row in rows])


@key_app.command("remove")
def remove(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, or its label if no other key has it.")],
    keys: KeysOption = _KEYS,
) -> None:
    """Remove a key; it stops working at once, also on open connections.

    \b
    Example: csdp serve key remove corridor
    """
    store = _open_keys(keys)
    ids = [each.id for each in store.all() if key in (each.id, each.label)]
    if len(ids) != 1:
        what = f"{len(ids)} keys" if ids else "no key"
        raise InputError(f"{keys}: {what} {key!r}; give one of the ids that `csdp serve key list` shows")
    store.remove(ids[0])
    print_notice(f"key {ids[0]} removed")


def _open_keys(path: Path) -> Keys:
    from csdp.service.keys import Keys

    return Keys(path.absolute())
