"""Files that are there wholly or not at all, and JSON that every reader accepts."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from csdp.errors import InputError


def plain(content: Any) -> Any:
    """The same content in strict JSON, which has no infinity: it becomes the string "inf".

    >>> plain({"epsilon": math.inf, "output": (0.5,)})
    {'epsilon': 'inf', 'output': [0.5]}
    """
    if isinstance(content, float) and math.isinf(content):
        return "inf" if content > 0 else "-inf"
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return content


def json_text(content: Any) -> str:
    """Strict JSON: infinite numbers are the string "inf", NaN is never written."""
    return json.dumps(plain(content), indent=2, allow_nan=False)


def ensure_writable(path: Path) -> None:
    """Refuse a place where a file could not be written, before anything is paid for its content."""
    if path.is_dir():
        raise InputError(f"{path}: a folder given; the name of a file expected")
    try:
        with _part(path).open("xb"):
            pass
        _part(path).unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); nothing was released") from None


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place when it is complete; whatever goes wrong before leaves the old one."""
    part = _part(path)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, wholly or not at all."""
    with written_whole(path) as file:
        file.write((json_text(content) + "\n").encode())


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
