"""Which process publishes a dataset, and how the others reach it.

One process at a time holds the lock of a dataset: with SQLite the only one there is, with PostgreSQL the one whose
session has an advisory lock, which the server takes back when that process dies. The lock decides who collects the
readings. That each tick is charged and published at most once does not rest on it: that is the ledger's own doing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from csdp.ledger.database import parse_place
from csdp.service.problems import Problem, busy

Answer = Callable[[dict[str, Any], bytes], Awaitable[dict[str, Any]]]
#: Bytes of a line between processes; a body follows after its line.
_LINE = 2**20


class Lock(Protocol):
    """The right to publish a dataset."""

    def held(self) -> bool:
        """Whether this process has it; tries to take it where nobody has."""

    def close(self) -> None:
        """Give it back."""


class Alone:
    """With SQLite there is one process."""

    def held(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing to give back."""


class Advisory:
    """A lock of a session in PostgreSQL."""

    def __init__(self, url: sa.URL, dataset: str) -> None:
        digest = hashlib.sha256(f"csdp service {dataset}".encode()).digest()
        self._number = int.from_bytes(digest[:8], "big", signed=True)
        self._engine = sa.create_engine(
            url,
            poolclass=sa.NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            connect_args={"connect_timeout": 5},
        )
        self._session: sa.Connection | None = None
        self._mine = False

    def held(self) -> bool:
        """Ask the server: a session that was lost has lost the lock too."""
        try:
            if self._session is None:
                self._session = self._engine.connect()
            if self._mine:
                self._session.execute(sa.text("SELECT 1"))
            else:
                taken = self._session.execute(sa.select(sa.func.pg_try_advisory_lock(self._number)))
                self._mine = bool(taken.scalar())
        except sa.exc.SQLAlchemyError:
            self.close()
        return self._mine

    def close(self) -> None:
        """End the session, and the lock with it."""
        self._mine = False
        if self._session is not None:
            with suppress(sa.exc.SQLAlchemyError):
                self._session.invalidate()
                self._session.close()
            self._session = None


def lock_of(ledger: str, dataset: str) -> Lock:
    """The lock of a dataset in a ledger."""
    found = parse_place(ledger)
    return Alone() if isinstance(found, Path) else Advisory(found, dataset)


class Door:
    """Where the process that publishes a dataset takes what others forward: a socket in a private folder."""

    def __init__(self, folder: str | None, dataset: str) -> None:
        name = hashlib.sha256(dataset.encode()).hexdigest()[:16]
        self._path = None if folder is None else Path(folder) / f"{name}.sock"
        self._server: asyncio.AbstractServer | None = None

    async def open(self, answer: Answer) -> None:
        """Answer what comes; takes the place of the door of a process that has died."""
        if self._path is None or self._server is not None:
            return
        new = self._path.with_suffix(f".{os.getpid()}")
        new.unlink(missing_ok=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError):
                asked = json.loads(await reader.readuntil(b"\n"))
                body = await reader.readexactly(asked["length"])
                writer.write(json.dumps(await _answered(answer, asked, body)).encode() + b"\n")
                await writer.drain()
            writer.close()

        self._server = await asyncio.start_unix_server(serve, path=str(new), limit=_LINE)
        os.chmod(new, 0o600)
        os.replace(new, self._path)

    async def close(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def ask(self, asked: dict[str, Any], body: bytes = b"", *, seconds: float) -> dict[str, Any]:
        """Forward something to the process that publishes the dataset."""
        nobody = busy("another process is about to take over this dataset; send it again a little later")
        if self._path is None:
            raise nobody
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(str(self._path), limit=_LINE)
                try:
                    writer.write(json.dumps({**asked, "length": len(body)}).encode() + b"\n" + body)
                    await writer.drain()
                    found = json.loads(await reader.readuntil(b"\n"))
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            raise nobody from None
        if "problem" in found:
            raise Problem(**found["problem"])
        answer: dict[str, Any] = found["answer"]
        return answer


async def _answered(answer: Answer, asked: dict[str, Any], body: bytes) -> dict[str, Any]:
    try:
        return {"answer": await answer(asked, body)}
    except Problem as problem:
        kept = ("status", "kind", "detail", "headers")
        return {"problem": {name: getattr(problem, name) for name in kept}}
