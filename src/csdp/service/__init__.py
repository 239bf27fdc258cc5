"""Datasets over HTTP: readings come in, published numbers go out, and a dashboard shows them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a service is started. It holds no secret.

    Args:
        specs: specification files of streams, one dataset each.
        keys: the file of API keys.
        rate: requests per second that one key may make in the long run.
        burst: requests that one key may make at once.
        wrong_keys: requests per second with a wrong key from one address.
        max_body: largest request body, in bytes.
        max_line: longest line of NDJSON, in bytes.
        max_lines: most lines of NDJSON in one body.
        max_waiting: bytes of request bodies held in memory; above it writers get 503.
        body_seconds: time limit for receiving a body.
        send_seconds: time limit for a client to accept a piece of an answer.
        max_listeners: clients on live events.
        work_seconds: how long a request may wait for its dataset.
        standby: wait while another process publishes one of the datasets, and take over when it ends.
    """

    specs: tuple[str, ...]
    keys: str
    rate: float = 200.0
    burst: float = 400.0
    wrong_keys: float = 5.0
    max_body: int = 16 * 2**20
    max_line: int = 4 * 2**20
    max_lines: int = 100_000
    max_waiting: int = 64 * 2**20
    body_seconds: float = 30.0
    send_seconds: float = 30.0
    max_listeners: int = 200
    work_seconds: float = 30.0
    standby: bool = False
