"""TOML files that pydantic reads into typed records. Errors name file and key, what was given and what is allowed."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from csdp.errors import InputError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Kind = TypeVar("Kind")
Keys = tuple[str, ...]


class Document:
    """A parsed TOML file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{self.path}: no such file; `csdp init DATA` writes a first one") from None
        except UnicodeDecodeError:
            raise InputError(f"{self.path}: not a text file in UTF-8") from None
        try:
            self.content: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{self.path}: not TOML: {error}") from None
        except (ValueError, RecursionError):
            why = "a number has too many digits, or it is nested too deeply"
            raise InputError(f"{self.path}: not TOML that can be read: {why}") from None

    def error(self, keys: Keys, message: str) -> InputError:
        """An error at a key."""
        name = ".".join(keys)
        return InputError(f"{self.path}: {name}: {message}" if name else f"{self.path}: {message}")

    def read(self, kind: type[Kind], content: object, *keys: str) -> Kind:
        """A record of some kind (a pydantic model or a dataclass) from the content at some keys.

        Validators find the folder of the file in their context, for paths that are relative to it.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(kind).validate_python(content, context={"folder": self.path.parent})
        except ValidationError as error:
            raise self._translate(error.errors(include_url=False)[0], content, keys) from None

    def _translate(self, found: ErrorDetails, content: Any, keys: Keys) -> InputError:
        """An error of pydantic, at its key."""
        for part in found["loc"]:  # which also names the member of a union, for which there is no key
            if isinstance(content, dict) and isinstance(part, str) and part in content:
                keys, content = (*keys, part), content[part]
        rule, given, words = found["type"], found["input"], found["msg"]
        if rule == "missing":
            return self.error((*keys, str(found["loc"][-1])), "not given; it is needed")
        if rule == "value_error":  # in our words already
            return self.error(keys, str(found["ctx"]["error"]))
        words = words[:1].lower() + words[1:].replace("valid tuple", "list")
        return self.error(keys, f"{given!r} given; {words}" if isinstance(given, str | int | float) else words)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What is wrong with a key that is none of the known ones."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1)
    return f"unknown key{f' (did you mean {close[0]!r}?)' if close else ''}; allowed: {', '.join(names)}"
