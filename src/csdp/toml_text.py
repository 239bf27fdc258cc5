"""TOML files that pydantic reads into typed records. Errors name the line: FILE:LINE: key: what was given, what is
allowed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from csdp.errors import InputError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Kind = TypeVar("Kind")
Keys = tuple[str, ...]

#: What is allowed, by pydantic's name of the broken rule, where that rule has no words of our own.
_ALLOWED = {
    "bool_type": "true or false",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt:,}",
    "greater_than_equal": "{ge:,} or more",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "less_than_equal": "at most {le:,}",
    "literal_error": "one of {expected}",
    "string_pattern_mismatch": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list that is not empty",
    "tuple_type": "a list of texts",
    "union_tag_invalid": "one of {expected_tags}",
}


class Document:
    """A parsed TOML file; its errors name the line of a key."""

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
            raise InputError(self._syntax_message(str(error), text)) from None
        except (ValueError, RecursionError):
            why = "a number has too many digits, or it is nested too deeply"
            raise InputError(f"{self.path}: not TOML that can be read: {why}") from None
        self._text = text

    def _syntax_message(self, message: str, text: str) -> str:
        words, _, place = message.rpartition(" (at ")
        if place.startswith("line "):
            return f"{self.path}:{place.removeprefix('line ').split(',')[0]}: not TOML: {words}"
        return f"{self.path}:{text.count(chr(10)) + 1}: not TOML: {message}"

    @cached_property
    def _lines(self) -> dict[Keys, int]:
        return key_lines(self._text)

    def line(self, keys: Keys) -> int:
        """The line of a key, or of the nearest table around it."""
        while keys and keys not in self._lines:
            keys = keys[:-1]
        return self._lines.get(keys, 1)

    def error(self, keys: Keys, message: str) -> InputError:
        """An error at a key."""
        name = ".".join(keys)
        return InputError(f"{self.path}:{self.line(keys)}: {name + ': ' if name else ''}{message}")

    def read(self, kind: type[Kind], content: object, *keys: str) -> Kind:
        """A record of some kind (a pydantic model or a dataclass) from the content at some keys.

        Validators find the folder of the file in their context, for paths that are relative to it.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(kind).validate_python(content, context={"folder": self.path.parent})
        except ValidationError as error:
            raise self._translate(error.errors(include_url=False)[0], keys) from None

    def _translate(self, found: ErrorDetails, keys: Keys) -> InputError:
        """An error of pydantic in our words, at the line of its key."""
        content = self._at(keys)
        for part in found["loc"]:  # which also names the member of a union, for which there is no key
            if isinstance(content, dict) and isinstance(part, str) and part in content:
                keys, content = (*keys, part), content[part]
        rule, facts = found["type"], found.get("ctx", {})
        if rule in {"missing", "union_tag_not_found"}:
            name = found["loc"][-1] if rule == "missing" else facts["discriminator"].strip("'")
            where = f" in [{'.'.join(keys)}]" if keys else ""
            return self.error(keys, f"no {name!r}{where}; it is needed")
        if rule == "at_key":
            return self.error((*keys, facts["key"]), facts["words"])
        if rule == "value_error":
            return self.error(keys, str(facts["error"]))
        if rule in {"model_type", "model_attributes_type", "dataclass_type"}:
            return self.error(keys, f"{_describe(content)} given; a table such as [{'.'.join(keys)}] expected")
        given: object = found["input"]
        if rule == "union_tag_invalid":
            name = facts["discriminator"].strip("'")
            keys, given = (*keys, name), facts["tag"]
        allowed = _ALLOWED[rule].format(**facts) if rule in _ALLOWED else found["msg"].lower()
        return self.error(keys, f"{_describe(given)} given; {allowed}")

    def _at(self, keys: Keys) -> Any:
        content: Any = self.content
        for key in keys:
            content = content[key]
        return content


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What is wrong with a key that is none of the known ones."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1)
    return f"unknown key{f' (did you mean {close[0]!r}?)' if close else ''}; allowed: {', '.join(names)}"


def _describe(value: object) -> str:
    if isinstance(value, str | int | float):
        return repr(value)
    return f"a {'table' if isinstance(value, dict) else 'list' if isinstance(value, list) else 'time'}"


# ---- lines -----------------------------------------------------------------------------------------------------------


def key_lines(source: str) -> dict[Keys, int]:
    """The line of every key and table of a valid TOML text.

    >>> key_lines("a = 1\\n[clock] # grid\\nstep = 'b = [2'\\n'late ness' = [\\n 1]\\nx.y = 3")
    {('a',): 1, ('clock',): 2, ('clock', 'step'): 3, ('clock', 'late ness'): 4, ('clock', 'x'): 6, \
('clock', 'x', 'y'): 6}
    """
    lines: dict[Keys, int] = {}
    table: Keys = ()
    statement, first = "", 1
    for number, line in enumerate(source.split("\n"), start=1):
        statement += line + "\n"
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:  # a value that goes on in the next line
            continue
        if statement.lstrip().startswith("["):
            *_, table = _paths(content, ())
            lines.setdefault(table, first)
        else:
            lines |= dict.fromkeys(_paths(content, table), first) | lines
        statement, first = "", number + 1
    return lines


def _paths(content: dict[str, Any], above: Keys) -> Iterator[Keys]:
    """Every key of a table and of the tables in it, with what is above it."""
    for key, value in content.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
