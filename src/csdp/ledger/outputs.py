"""Outputs of releases: in the entry of the commit, or, where too large for a row, in a write-once file.

A file is named by the reservation that it belongs to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from csdp.errors import LedgerConflictError, LedgerCorruptError, LedgerError
from csdp.ledger.records import Entry, JSONObject, Published, decode, encode, sha256
from csdp.scratch import open_bytes, sync_directory

INLINE_VALUES = 10_000


class Outputs:
    """The directory beside the ledger; None where a server's ledger was opened without one."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def prepare(self, reservation_hash: str, output: JSONObject) -> tuple[JSONObject, bytes | None]:
        """What the commit entry will say of an output, and the content of its file where it needs one."""
        count = count_values(output)
        if count <= INLINE_VALUES:
            return {"output": output}, None
        text = encode(output, "an output")
        name = f"{reservation_hash}.json"
        return {"file": {"name": name, "sha256": sha256(text), "values": count}}, text.encode()

    def load(self, payload: JSONObject) -> JSONObject:
        """The output that a commit entry speaks of, checked against its digest."""
        if "output" in payload:
            output: JSONObject = payload["output"]
            return output
        recorded = payload["file"]
        path = self._path(recorded["name"])
        try:
            text = path.read_bytes()
        except OSError as error:
            raise LedgerCorruptError(
                f"the output file {path.name} cannot be read ({error.strerror}); restore it from a backup"
            ) from None
        if sha256(text.decode(errors="replace")) != recorded["sha256"]:
            raise LedgerCorruptError(f"the output file {path.name} is not what was published; restore it")
        return decode(text.decode())

    def to_published(self, entry: Entry) -> Published:
        """The output that a commit entry records, with its tick and query."""
        assert entry.tick is not None
        assert entry.query is not None
        return Published(
            dataset=entry.dataset,
            tick=entry.tick,
            query=entry.query,
            seq=entry.seq,
            plan_digest=entry.plan,
            time=entry.time,
            output=self.load(entry.data()),
        )

    def write(self, payload: JSONObject, content: bytes) -> None:
        """Make the file durable, before any entry speaks of it. It is never replaced."""
        name, count = payload["file"]["name"], payload["file"]["values"]
        path = self._path(name)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle = open_bytes(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            # The same commit, repeated after its outcome was unknown. Anything else may not replace it.
            if path.is_symlink() or path.read_bytes() != content:
                raise LedgerConflictError(f"the output file {name} already holds something else") from None
            return
        except OSError as error:
            raise LedgerError(f"the output file {name} cannot be created: {error.strerror}") from error
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            message = f"an output of {count:,} values cannot be written: {error.strerror}; nothing was committed"
            raise LedgerError(message) from error

    def _path(self, name: str) -> Path:
        if self._directory is None:
            raise LedgerError(
                f"outputs of more than {INLINE_VALUES:,} values live in files:"
                " open the ledger with outputs=DIRECTORY, the same one each time"
            )
        return self._directory / Path(name).name  # a tampered name must not lead elsewhere


def count_values(value: Any) -> int:
    """How many single values a JSON value holds.

    >>> count_values({"values": [1.0, 2.0, [3.0]], "age": 2})
    4
    """
    if isinstance(value, dict):
        return sum(map(count_values, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_values, value))
    return 1
