"""A TOML file with the line of every key, and errors that name it: FILE:LINE: what was given, what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from csdp.errors import CsdpError, InputError

Kind = TypeVar("Kind")
Keys = tuple[str, ...]
_MISSING: Any = object()


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
        self._lines = key_lines(text)

    def _syntax_message(self, message: str, text: str) -> str:
        words, _, place = message.rpartition(" (at ")
        if place.startswith("line "):
            return f"{self.path}:{place.removeprefix('line ').split(',')[0]}: not TOML: {words}"
        return f"{self.path}:{text.count(chr(10)) + 1}: not TOML: {message}"

    def line(self, keys: Keys) -> int:
        """The line of a key, or of the nearest table around it."""
        while keys and keys not in self._lines:
            keys = keys[:-1]
        return self._lines.get(keys, 1)

    def error(self, keys: Keys, message: str) -> InputError:
        """An error at a key."""
        name = ".".join(keys)
        return InputError(f"{self.path}:{self.line(keys)}: {name + ': ' if name else ''}{message}")

    def section(self, *keys: str) -> TomlTable:
        """A table of the file; empty where there is none."""
        content: Any = self.content
        for key in keys:
            content = content.get(key, {})
        if not isinstance(content, dict):
            raise self.error(keys, f"a {_type_name(content)} given; a table such as [{'.'.join(keys)}] expected")
        return TomlTable(self, keys, content)


class TomlTable:
    """One table, whose keys are read one by one; keys that nothing reads are an error."""

    def __init__(self, document: Document, keys: Keys, content: dict[str, Any]) -> None:
        self._document = document
        self._keys = keys
        self._content = content
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def error(self, key: str, message: str) -> InputError:
        """An error at one of the keys."""
        return self._document.error((*self._keys, key), message)

    def take(self, key: str, kind: Callable[[object], Kind], default: Kind = _MISSING) -> Kind:
        """The value of a key, checked by `kind`, which raises InputError with what is allowed."""
        self._known.append(key)
        if key not in self._content:
            if default is _MISSING:
                where = f" in [{'.'.join(self._keys)}]" if self._keys else ""
                raise self._document.error(self._keys, f"no {key!r}{where}; it is needed")
            return default
        try:
            return kind(self._content[key])
        except CsdpError as error:
            raise self.error(key, str(error)) from None

    def allow(self, *keys: str) -> None:
        """Allow keys that are read elsewhere."""
        self._known += keys

    def finish(self) -> None:
        """Refuse keys that were neither read nor allowed."""
        for key in self._content:
            if key not in self._known:
                raise self.error(key, f"unknown key{_suggest(key, self._known)}; allowed: {', '.join(self._known)}")


def _suggest(key: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


# ---- kinds of values -------------------------------------------------------------------------------------------------


def text(value: object) -> str:
    """Check a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{_describe(value)} given; a text expected")
    return value


def boolean(value: object) -> bool:
    """Check true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{_describe(value)} given; true or false")
    return value


def integer(low: int, high: int = 2**53) -> Callable[[object], int]:
    """A check for an integer from `low` to `high`."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InputError(f"{_describe(value)} given; a whole number from {low:,} to {high:,}")
        return value

    return check


def positive(value: object) -> float:
    """Check a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InputError(f"{_describe(value)} given; a positive number")
    return float(value)


def one_of(*allowed: str) -> Callable[[object], str]:
    """A check for one of some texts."""

    def check(value: object) -> str:
        if value not in allowed:
            raise InputError(f"{_describe(value)} given; one of {', '.join(map(repr, allowed))}")
        return str(value)

    return check


def texts(value: object) -> tuple[str, ...]:
    """Check a list of different texts."""
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise InputError(f"{_describe(value)} given; a list of texts")
    if len(set(value)) != len(value):
        raise InputError("the same text twice; each one once")
    return tuple(value)


def integers(value: object) -> tuple[int, ...]:
    """Check a list of integers, 0 or more."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{_describe(value)} given; a list of whole numbers")
    return tuple(integer(0)(item) for item in value)


def _type_name(value: object) -> str:
    return {dict: "table", list: "list", str: "text", bool: "true/false"}.get(type(value), "number")


def _describe(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float) else f"a {_type_name(value)}"


# ---- lines -----------------------------------------------------------------------------------------------------------


def key_lines(source: str) -> dict[Keys, int]:
    """The line of every key and table of a valid TOML text.

    >>> key_lines("a = 1\\n[clock] # grid\\nstep = 'b = [2'\\n'late ness' = [\\n 1]\\nx.y = 3")
    {('a',): 1, ('clock',): 2, ('clock', 'step'): 3, ('clock', 'late ness'): 4, ('clock', 'x', 'y'): 6}
    """
    lines: dict[Keys, int] = {}
    table: Keys = ()
    open_text, depth = "", 0
    for number, line in enumerate(source.splitlines(), start=1):
        if not open_text and not depth:
            start = line.strip()
            if start.startswith("["):
                table = _split_key(start.lstrip("[").strip(), end="]")
                lines.setdefault(table, number)
                continue
            if start and not start.startswith("#"):
                lines.setdefault((*table, *_split_key(start, end="=")), number)
        open_text, depth = _scan_line(line, open_text, depth)
    return lines


def _split_key(source: str, *, end: str) -> Keys:
    """The parts of a dotted key, up to the character that ends it."""
    keys: list[str] = []
    part, quote = "", ""
    for character in source:
        if quote:
            quote = "" if character == quote else quote
            part += "" if not quote else character
        elif character in "\"'":
            quote = character
        elif character in f".{end}":
            keys.append(part)
            part = ""
            if character == end:
                break
        elif not character.isspace():
            part += character
    return tuple(keys)


def _scan_line(line: str, open_text: str, depth: int) -> tuple[str, int]:
    """The delimiter of the text that is open after a line, and the number of open brackets."""
    i = 0
    while i < len(line):
        rest = line[i:]
        if open_text:
            if rest.startswith(open_text):
                i += len(open_text)
                open_text = ""
                continue
            i += 2 if open_text[0] == '"' and rest[0] == "\\" else 1
            continue
        quote = next((q for q in ('"""', "'''", '"', "'") if rest.startswith(q)), "")
        if quote:
            open_text = quote
        elif rest[0] == "#":
            break
        else:
            depth += (rest[0] in "[{") - (rest[0] in "]}")
        i += max(1, len(quote))
    return (open_text if len(open_text) == 3 else ""), depth
