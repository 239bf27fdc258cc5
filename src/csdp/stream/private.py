"""Files that only their owner may read (mode 0600), replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path


def write_privately(path: Path, content: bytes) -> None:
    """Write a file in the place of an older one; whatever goes wrong leaves that one. Durable when this returns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "keys.json"
    ...     write_privately(file, b"{}")
    ...     file.read_bytes(), oct(file.stat().st_mode & 0o777), len(list(file.parent.iterdir()))
    (b'{}', '0o600', 1)
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # also where an older one with another mode was left behind
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
