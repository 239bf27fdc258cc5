"""What options hold: files, lists of numbers, inline JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csdp.chain import Model
from csdp.chain.files import load_model, read_model
from csdp.errors import InputError
from csdp.json_text import parse_json

if TYPE_CHECKING:
    from csdp.panel import Panel
    from csdp.panel.read import Outside
    from csdp.plan import Plan


def read_chain(path: str) -> Model:
    """The model in a file, or on standard input for `-`."""
    return read_model(sys.stdin.read()) if path == "-" else load_model(path)


def read_plan(path: str) -> Plan:
    """The plan in a file, as `csdp plan` or `Plan.to_json` writes it."""
    from csdp.plan import Plan

    text = _text_of(path, path)
    try:
        return Plan.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, IndexError, ValueError) as error:
        raise InputError(f"{path}: not a plan as `csdp plan` writes it ({error})") from None


def _text_of(path: str, where: str) -> str:
    """The text of a JSON file; errors begin with `where`."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{where}: a folder given; a JSON file expected") from None
    except ValueError:  # no text, or a path that no file can have
        raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None


def read_states(
    data: str, model: Model, *, discretiser: str | None, step: int | str | None, outside: Outside = "refuse"
) -> Panel:
    """Readings as states of a model: a discretiser makes them, or they are the values that the model declares."""
    from csdp.panel import Discretiser, read_panel

    if discretiser is not None:
        return read_panel(data, names=model.names, discretiser=Discretiser.load(discretiser), step=step)
    return read_panel(data, names=model.names, values=model.value_table, step=step, outside=outside)


def time_step(text: str | None) -> int | str | None:
    """A whole number where it is one; readers of panels know the rest, such as 5min.

    >>> time_step("300"), time_step("5min"), time_step(None)
    (300, '5min', None)
    """
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def engine_step(text: str | None, engine: str) -> int | None:
    """A step for an engine that reads the file itself, which takes whole numbers only."""
    step = time_step(text)
    if isinstance(step, str):
        raise InputError(f"step: {text!r} given; with --engine {engine} a whole number (seconds for timestamps)")
    return step


def check_figure(path: Path | None) -> None:
    """Refuse a figure that could not be written, before its content is worked out."""
    from csdp.report.files import ensure_writable

    if path is None:
        return
    if path.suffix.lower() not in {".svg", ".png", ".pdf"}:
        raise InputError(f"figure: {path.name!r} given; a name that ends in .svg, .png or .pdf expected")
    ensure_writable(path)


def whole_numbers(what: str, text: str) -> list[int]:
    """Whole numbers separated by commas.

    >>> whole_numbers("ages", "1,3")
    [1, 3]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{what}: {text!r} given; whole numbers separated by commas expected") from None


def json_or_file(what: str, text: str) -> Any:
    """JSON given inline (it begins with a bracket) or as the path of a file.

    >>> json_or_file("coupling", "[[0.75, 0.25], [0.25, 0.75]]")
    [[0.75, 0.25], [0.25, 0.75]]
    """
    inline = text.lstrip().startswith(("[", "{"))
    where = what if inline else f"{what}: {text}"
    if not inline:
        if not Path(text).exists():
            raise InputError(f"{where}: no such file, and not JSON, which begins with a bracket")
        text = _text_of(text, where)
    return parse_json(where, text)


def numbers_or_json(what: str, text: str) -> Any:
    """Numbers separated by commas, or JSON inline or in a file.

    >>> numbers_or_json("values", "0,1.5")
    [0.0, 1.5]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return json_or_file(what, text)


def names_list(text: str) -> list[str]:
    """Names separated by commas, or a JSON list.

    >>> names_list("kitchen, hall")
    ['kitchen', 'hall']
    """
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",")]
    names = json_or_file("names", text)
    if not all(isinstance(name, str) for name in names):
        raise InputError("names: a JSON list of strings expected")
    return list(names)
