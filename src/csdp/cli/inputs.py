"""Options that hold more than one number: lists, inline JSON, files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csdp.chain import Model
from csdp.chain.files import load_model, read_model
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.plan import Plan


def read_chain(path: str) -> Model:
    """The model in a file, or on standard input for `-`."""
    return read_model(sys.stdin.read()) if path == "-" else load_model(path)


def read_plan(path: str) -> Plan:
    """The plan in a file, as `Plan.to_json` writes it."""
    from csdp.plan import Plan

    try:
        return Plan.from_json(Path(path).read_text(encoding="utf-8"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: not a plan as Plan.to_json writes it ({error})") from None


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
        try:
            text = Path(text).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{where}: no such file, and not JSON, which begins with a bracket") from None
        except IsADirectoryError:
            raise InputError(f"{where}: a folder given; JSON or a JSON file expected") from None
        except ValueError:
            raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from None


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
