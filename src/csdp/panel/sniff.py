"""What a text file says about itself: its encoding, and the dialect of a CSV file."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from csdp.errors import InputError
from csdp.scratch import Scratch

#: Bytes of a file that are looked at to find its dialect.
_SAMPLE = 2**20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = ",;\t|"


def find_encoding(raw: bytes) -> str:
    """The encoding of a text: by its mark, by its zero bytes, UTF-8 if it is that, or else that of western Windows.

    >>> find_encoding("größe".encode("latin-1")), find_encoding("größe".encode()), find_encoding("a".encode("utf-16"))
    ('cp1252', 'utf-8', 'utf-16')
    """
    for mark, name in _BOMS:
        if raw.startswith(mark):
            return name
    head = raw[:_SAMPLE]
    if b"\0" in head:
        return "utf-16-le" if head[1::2].count(0) >= head[::2].count(0) else "utf-16-be"
    for name in ("utf-8", "cp1252"):
        try:
            raw.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def to_utf8(label: str, raw: bytes, encoding: str | None) -> tuple[bytes, str]:
    """The text in UTF-8 without a mark, and its encoding as given or found."""
    name = encoding or find_encoding(raw)
    try:
        text = raw.decode(name)
    except LookupError:
        raise InputError(
            f"{label}: encoding {name!r} is unknown; such as encoding='utf-8', 'utf-16', 'latin-1' or 'cp1252'"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{label}: not a text file in {name}; give the right encoding=, or leave it out") from None
    return text.removeprefix("\ufeff").encode(), name


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; `skipped` lines before the header are not part of the table."""

    delimiter: str
    header: bool
    skipped: int = 0


def find_dialect(text: bytes, *, delimiter: str | None, header: bool | None, skip: int | None = None) -> Dialect:
    """The dialect of a CSV text in UTF-8, found by DuckDB where it is not given.

    Lines are only skipped before a header: anywhere else they would be readings that vanish.

    >>> find_dialect("Zeit;Küche\\n1;20,5\\n2;20,7\\n".encode(), delimiter=None, header=None)
    Dialect(delimiter=';', header=True, skipped=0)
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\n\r'):
        raise InputError(f"delimiter: {delimiter!r} given; one character, such as delimiter=';'")
    if delimiter is not None and header is not None and skip is not None:
        return Dialect(delimiter, header, skip)
    text = text.split(b"\n", skip or 0)[-1]
    sample = text[:_SAMPLE]
    if len(text) > _SAMPLE:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    dialect = _sniff(sample, {"delim": delimiter, "header": header})
    first = sample.partition(b"\n")[0].decode(errors="replace")
    if (
        dialect is None
        or (dialect.skipped and not dialect.header)
        or not (dialect.skipped or dialect.delimiter in first)
    ):
        # Rows of different lengths, which the reader refuses in words, or a single column.
        mark = delimiter or max(_DELIMITERS, key=first.count)
        dialect = Dialect(mark, _has_names(first, mark) if header is None else header)
    return replace(dialect, skipped=dialect.skipped + (skip or 0))


def _sniff(sample: bytes, given: Mapping[str, object]) -> Dialect | None:
    import duckdb

    known = {name: value for name, value in given.items() if value is not None}
    options = "".join(f", {name}=?" for name in known)
    question = f"SELECT Delimiter, HasHeader, SkipRows FROM sniff_csv(?, strict_mode=false{options})"
    try:
        with _file_of(sample) as path, _open_duckdb(os.getpid()).cursor() as cursor:
            row = cursor.execute(question, [path, *known.values()]).fetchone()
    except duckdb.Error:
        return None
    if row is None or len(row[0]) != 1:
        return None
    return Dialect(row[0], bool(row[1]), int(row[2]))


@cache
def _open_duckdb(_: int) -> Any:
    """A database in memory, opened once in each process, because opening takes longer than finding a dialect."""
    import duckdb

    return duckdb.connect(":memory:", config={"autoinstall_known_extensions": False, "threads": 1})


@contextmanager
def _file_of(sample: bytes) -> Iterator[str]:
    """The path of a file with a text: in memory where the system can, so that no copy of readings reaches a disk."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("csdp")
        try:
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(sample)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with Scratch() as folder:
            path = folder.path / "sample.csv"
            path.write_bytes(sample)
            yield str(path)


def _has_names(line: str, delimiter: str) -> bool:
    cells = next(csv.reader([line], delimiter=delimiter), [])
    return any(cell.strip()[:1].isalpha() for cell in cells)
