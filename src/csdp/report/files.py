"""Files that commands write: atomically replaced files, and strict JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from csdp.errors import InputError


def to_strict_json(content: Any) -> Any:
    """Convert content to what strict JSON can hold: an infinite number becomes the string "inf".

    >>> to_strict_json({"epsilon": math.inf, "output": (0.5,)})
    {'epsilon': 'inf', 'output': [0.5]}
    """
    if isinstance(content, float) and math.isinf(content):
        return "inf" if content > 0 else "-inf"
    if isinstance(content, Mapping):
        return {str(key): to_strict_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_strict_json(value) for value in content]
    return content


def json_text(content: Any) -> str:
    """Format content as strict JSON: infinite numbers are the string "inf", NaN raises ValueError."""
    return json.dumps(to_strict_json(content), indent=2, allow_nan=False)


def ensure_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any privacy budget is spent on its content."""
    if path.is_dir():
        raise InputError(f"{path}: a folder given; the name of a file expected")
    try:
        with _temporary_path(path).open("xb"):
            pass
        _temporary_path(path).unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); nothing was released") from None


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file and replace the old one when it is complete; an error leaves the old file as it was."""
    part = _temporary_path(path)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, completely or not at all."""
    with replace_file(path) as file:
        file.write((json_text(content) + "\n").encode())


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
