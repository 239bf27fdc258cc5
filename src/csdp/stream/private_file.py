"""Files that only their owner may read (mode 0600), replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path

from csdp.scratch import open_part


def write_privately(path: Path, content: bytes) -> None:
    """Write a file in the place of an older one; whatever goes wrong leaves that one. Durable when this returns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "keys.json"
    ...     write_privately(file, b"{}")
    ...     file.read_bytes(), oct(file.stat().st_mode & 0o777), len(list(file.parent.iterdir()))
    (b'{}', '0o600', 1)
    """
    with open_part(path) as (handle, part):
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
