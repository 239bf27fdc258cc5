"""Models in JSON files: one reader for every kind of model, chosen by the schema in the file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from csdp.chain.coupled import CoupledChain
from csdp.chain.environment import EnvironmentChain
from csdp.chain.family import InfluenceFamily
from csdp.chain.joint import JointChain
from csdp.chain.model import Model
from csdp.errors import InputError
from csdp.numbers import parse_json

_KINDS: dict[str, type[Model]] = {
    **dict.fromkeys(CoupledChain.schemas(), CoupledChain),
    **dict.fromkeys(JointChain.schemas(), JointChain),
    **dict.fromkeys(EnvironmentChain.schemas(), EnvironmentChain),
    **dict.fromkeys(InfluenceFamily.schemas(), InfluenceFamily),
}


def read_model(text: str) -> Model:
    """The model that a JSON text describes: a CoupledChain, JointChain, EnvironmentChain or InfluenceFamily.

    Text without a schema is read as plain `coupling` and `transitions`, or as a `kernel`, written by hand.

    >>> read_model('{"coupling": [[1]], "transitions": [[0.7, 0.3], [0.3, 0.7]]}')
    CoupledChain(1 sequence, 2 states, 1 coupling, digest bea84859)
    """
    return model_from_dict(parse_json("chain", text))


def model_from_dict(content: Any) -> Model:
    """The model that plain data describes, as `to_dict` gives it or as written by hand."""
    if not isinstance(content, dict):
        raise InputError(
            f"chain: a JSON {type(content).__name__} given; an object expected, as `csdp chain new` writes"
        )
    try:
        if "schema" not in content:
            return (JointChain if "kernel" in content else CoupledChain).from_dict(content)
        schema = content["schema"]
        if not isinstance(schema, str) or schema not in _KINDS:
            raise InputError(f"chain: schema {schema!r} given; this version reads {', '.join(_KINDS)}")
        return _KINDS[schema].from_dict(content)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"chain: the JSON is garbled ({error}); write it with to_json or `csdp chain new`") from None


def load_model(path: str | PathLike[str]) -> Model:
    """The model in a JSON file; InputError with the path if there is none."""
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise InputError(f"{where}: a folder given; a JSON file expected") from None
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None
    except ValueError as error:  # a path that no file can have
        raise InputError(f"{str(where)!r}: not a path ({error})") from None
    try:
        return read_model(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def save_model(model: Model, path: str | PathLike[str]) -> None:
    """Write a model as JSON; `load_model` gives an equal one back."""
    Path(path).write_text(model.to_json() + "\n", encoding="utf-8")
