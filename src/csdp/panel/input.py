"""How a table of readings is to be read: `InputSpec`, the same for Python, options and `[input]` of a TOML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from csdp.errors import InputError
from csdp.panel.times import Duplicates, Resample
from csdp.toml_text import Document, unknown_key

SECTION = "input"


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Settings of one table; None means: find it in the table, or the default of `csdp.read_readings`.

    Args:
        file: the path of the readings.
        table: a sheet of a workbook.
        delimiter: the character between cells of a text file.
        decimal: the decimal mark of numbers.
        encoding: the encoding of a text file.
        header: whether the first line has the names of the columns.
        skip: number of lines before the header.
        time: column of the times.
        time_format: how times are written if not as ISO, as in strptime.
        timezone: time zone of times without an offset.
        sequence: column of a long table that names the sequence of each reading.
        value: column of a long table that holds the readings.
        names: sequences to read.
        categories: words in the cells, in order; a reading is the place of its word.
        categories_from: "readings" if the words were found in the readings; without it they are declared.
        step: time between two ticks.
        resample: which reading counts within each step, if times lie on no grid.
        duplicates: which reading counts if a sequence has several at one time.
        sort: put rows in the order of their times.

    >>> spec = InputSpec(file="rooms.csv", delimiter=";", decimal=",", time="Zeit", step="30min")
    >>> print(spec.to_toml())
    [input]
    file = "rooms.csv"
    delimiter = ";"
    decimal = ","
    time = "Zeit"
    step = "30min"
    <BLANKLINE>
    """

    file: str | None = None
    table: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    skip: int | None = None
    time: str | None = None
    time_format: str | None = None
    timezone: str | None = None
    sequence: str | None = None
    value: str | None = None
    names: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    categories_from: Literal["readings"] | None = None
    step: int | str | None = None
    resample: Resample | None = None
    duplicates: Duplicates | None = None
    sort: bool | None = None

    def __post_init__(self) -> None:
        if self.decimal not in {None, ".", ","}:
            raise InputError(f"decimal: {self.decimal!r} given; decimal='.' or decimal=','")
        check_no_address(self.file)

    def override(self, **given: Any) -> InputSpec:
        """The same settings, but for those that are given and not None.

        >>> InputSpec(time="Zeit", step=60).override(step=300, time=None)
        InputSpec(time='Zeit', step=300)
        """
        unknown = sorted(set(given) - {field.name for field in fields(self)})
        if unknown:
            raise InputError(
                f"{unknown[0]}: not a setting of readings; there are {', '.join(field.name for field in fields(self))}"
            )
        known = {name: _plain(value) for name, value in given.items() if value is not None}
        if "categories" in known:
            known.setdefault("categories_from", None)
        return replace(self, **known)

    def to_dict(self) -> dict[str, Any]:
        """The settings that are not None."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    def __repr__(self) -> str:
        return f"InputSpec({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def to_toml(self) -> str:
        """The settings as an `[input]` section, which `csdp.read_readings` and every command take."""
        lines = [f"[{SECTION}]"]
        for name, value in self.to_dict().items():
            lines.append(
                f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
            )
        return "\n".join(lines) + "\n"

    def seen_from(self, folder: str | Path) -> InputSpec:
        """The same settings for a TOML file in a folder: readings in or below it are named relative to it."""
        if self.file is None:
            return self
        file, place = Path(self.file).absolute(), Path(folder).absolute()
        return replace(self, file=str(file.relative_to(place) if file.is_relative_to(place) else file))

    def save(self, path: str | Path) -> None:
        """Write the settings as a TOML file, which `load` reads."""
        Path(path).write_text(self.seen_from(Path(path).absolute().parent).to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> InputSpec:
        """Read the `[input]` section of a TOML file; its `file` is relative to the folder of that file."""
        document = Document(path)
        if SECTION not in document.content:
            raise InputError(
                f"{document.path}: no section [{SECTION}]; `csdp open DATA -o {document.path.name}` writes one"
            )
        return read_section(document)


def read_section(document: Document) -> InputSpec:
    """The settings in the `[input]` section of a TOML file, each checked at its line."""
    content = document.content[SECTION]
    if isinstance(content, dict):
        names = [field.name for field in fields(InputSpec)]
        for name, value in content.items():
            if name not in names:
                raise document.error((SECTION, name), unknown_key(name, names))
            if why := _problem(name, value):
                raise document.error((SECTION, name), f"{value!r} given; {why}")
        content = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    from pydantic import ConfigDict, create_model

    types = get_type_hints(InputSpec)
    settings: dict[str, Any] = {field.name: (types[field.name], None) for field in fields(InputSpec)}
    model = create_model("InputSection", __config__=ConfigDict(strict=True), **settings)
    found = dict(document.read(model, content, SECTION))
    try:
        spec = InputSpec(**found)
    except InputError as error:
        raise document.error((SECTION,), str(error)) from None
    if spec.file is None:
        raise document.error((SECTION, "file"), "not given; the path of the readings")
    return replace(spec, file=str(document.path.parent / spec.file))


def _problem(name: str, value: object) -> str:
    """What is wrong with a setting of the right type; empty if nothing is."""
    if name == "delimiter" and isinstance(value, str):  # which may be a space
        return "" if len(value) == 1 else "one character expected, such as ';' or a tab (\"\\t\")"
    if isinstance(value, int) and not isinstance(value, bool) and value < {"skip": 0, "step": 1}.get(name, value):
        return f"a whole number, at least {1 if name == 'step' else 0}"
    if isinstance(value, list) and (not value or len(set(map(repr, value))) != len(value)):
        return "a list of different texts"
    empty = any(isinstance(one, str) and not one.strip() for one in (value if isinstance(value, list) else [value]))
    return "a text that is not empty" if empty else ""


def _plain(value: Any) -> Any:
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def check_no_address(file: object) -> None:
    """Refuse the address of a database without quoting it, because it may contain a password.

    >>> check_no_address("postgresql://reader@host/ward")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: file: an address given; export the table of the database as .parquet, and give that file
    """
    if isinstance(file, str) and "://" in file:
        raise InputError("file: an address given; export the table of the database as .parquet, and give that file")
