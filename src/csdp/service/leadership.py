"""How the processes of a service reach the one that publishes a dataset, the holder of its lease."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from csdp.errors import CsdpError
from csdp.service.responses import HttpProblem, busy_problem, to_problem

Answer = Callable[[dict[str, Any], bytes], Awaitable[dict[str, Any]]]
#: Longest line of JSON between processes, in bytes; the body of a request follows after its line.
_LINE = 2**20


class ForwardSocket:
    """A Unix socket in a private folder, on which the process that publishes a dataset answers the others."""

    def __init__(self, folder: str | None, dataset: str) -> None:
        name = hashlib.sha256(dataset.encode()).hexdigest()[:16]
        self._path = None if folder is None else Path(folder) / f"{name}.sock"
        self._server: asyncio.AbstractServer | None = None

    async def open(self, answer: Answer) -> None:
        """Answer requests with `answer`; replaces the socket of a process that has died."""
        if self._path is None or self._server is not None:
            return
        new = self._path.with_suffix(f".{os.getpid()}")
        new.unlink(missing_ok=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError):
                request = json.loads(await reader.readuntil(b"\n"))
                body = await reader.readexactly(request["length"])
                try:
                    reply = {"answer": await answer(request, body)}
                except (CsdpError, HttpProblem) as error:
                    problem = to_problem(error) if isinstance(error, CsdpError) else error
                    fields = ("status", "kind", "detail", "headers")
                    reply = {"problem": {name: getattr(problem, name) for name in fields}}
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
            writer.close()

        self._server = await asyncio.start_unix_server(serve, path=str(new), limit=_LINE)
        os.chmod(new, 0o600)
        os.replace(new, self._path)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def ask(self, request: dict[str, Any], body: bytes = b"", *, seconds: float) -> dict[str, Any]:
        """Send a request to the process that publishes the dataset; its problem is raised here."""
        unreachable = busy_problem("another process is about to take over this dataset; send it again a little later")
        if self._path is None:
            raise unreachable
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(str(self._path), limit=_LINE)
                try:
                    writer.write(json.dumps({**request, "length": len(body)}).encode() + b"\n" + body)
                    await writer.drain()
                    reply = json.loads(await reader.readuntil(b"\n"))
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            raise unreachable from None
        if "problem" in reply:
            raise HttpProblem(**reply["problem"])
        answer: dict[str, Any] = reply["answer"]
        return answer
