"""Tables in packages of R, where they are installed: which files there are, and data frames in .rda files.

An .rda file holds named R objects, serialised in XDR. Only what a table of numbers needs is read (vectors, lists,
attributes); anything else is refused, and nothing in the file is ever executed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from csdp.errors import InputError

#: Where Debian and R put packages; R_LIBS, R_LIBS_USER and R_LIBS_SITE come first, as in R.
LIBRARIES = ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")
_MISSING = -(2**31)
_OPENERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZ": bz2.decompress,
    b"\xfd7": lzma.decompress,
}


def find_r_file(package: str, file: str) -> Path | None:
    """The file of an installed R package, or None."""
    named = [os.environ.get(name, "") for name in ("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE")]
    folders = [folder for value in named for folder in value.split(os.pathsep) if folder]
    return next((path for f in (*folders, *LIBRARIES) if (path := Path(f) / package / file).is_file()), None)


@dataclass
class _RVector:
    values: Any
    attributes: dict[str, Any] = field(default_factory=dict)


class _XdrReader:
    """Items of R's serialisation, in the order in which they stand."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._references: list[Any] = []

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if count < 0 or len(part) < count:
            raise ValueError("the file ends early")
        self._at += count
        return part

    def integer(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def item(self) -> Any:
        flags = self.integer()
        kind = flags & 0xFF
        if kind not in self._READERS:
            raise ValueError(f"an R object of type {kind}")
        return self._READERS[kind](self, flags)

    def _skip(self, _: int) -> None:
        return None

    def _symbol(self, _: int) -> Any:
        name = self.item()
        self._references.append(name)
        return name

    def _reference(self, flags: int) -> Any:
        return self._references[(flags >> 8 or self.integer()) - 1]

    def _pairs(self, flags: int) -> dict[str, Any]:
        """A chain of tagged values, up to its end."""
        pairs: dict[str, Any] = {}
        while flags & 0xFF == 2:
            if flags & 0x200:
                self.item()  # attributes of the chain itself say nothing of a table
            tag = self.item() if flags & 0x400 else ""
            pairs[tag] = self.item()
            flags = self.integer()
        return pairs

    def _text(self, _: int) -> str | None:
        length = self.integer()
        return None if length == -1 else self.take(length).decode("utf-8", errors="replace")

    def _numbers(self, flags: int, kind: str) -> _RVector:
        count = self.integer()
        values = np.frombuffer(self.take(count * np.dtype(kind).itemsize), dtype=kind)
        numbers = np.where(values == _MISSING, np.nan, values) if kind == ">i4" else values.astype(np.float64)
        return _RVector(numbers, self._attributes(flags))

    def _whole(self, flags: int) -> _RVector:
        return self._numbers(flags, ">i4")

    def _real(self, flags: int) -> _RVector:
        return self._numbers(flags, ">f8")

    def _list(self, flags: int) -> _RVector:
        values = [self.item() for _ in range(self.integer())]
        return _RVector(values, self._attributes(flags))

    def _attributes(self, flags: int) -> dict[str, Any]:
        return (self.item() or {}) if flags & 0x200 else {}

    _READERS: dict[int, Callable[[_XdrReader, int], Any]] = {  # noqa: RUF012 - a table of the format, never written to
        1: _symbol,
        2: _pairs,
        9: _text,
        10: _whole,
        13: _whole,
        14: _real,
        16: _list,
        19: _list,
        254: _skip,
        255: _reference,
    }


def read_r_frame(path: Path, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a data frame of numbers in an .rda file."""
    raw = path.read_bytes()
    try:
        data = _OPENERS.get(raw[:2], bytes)(raw)
        objects = _read_objects(data)
        frame = objects[name]
        columns = zip(frame.attributes["names"].values, frame.values, strict=True)
        return {str(label): np.asarray(column.values, dtype=np.float64) for label, column in columns}
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, OSError, EOFError, lzma.LZMAError) as error:
        raise InputError(
            f"{path.name}: no data frame {name!r} of numbers could be read from it ({error}); install the package again"
        ) from None


def _read_objects(data: bytes) -> dict[str, Any]:
    reader = _XdrReader(data)
    if reader.take(5) not in (b"RDX2\n", b"RDX3\n") or reader.take(2) != b"X\n":
        raise ValueError("not in R's binary format")
    version = reader.integer()
    reader.take(8)  # the versions of R that wrote it, and that can read it
    if version == 3:
        reader.take(reader.integer())  # the encoding of its text
    objects = reader.item()
    if not isinstance(objects, dict):
        raise ValueError("no named objects")
    return objects
