"""Datasets over HTTP: readings come in, published numbers go out, and a dashboard shows them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a service is started. It holds no secret, and reaches worker processes as JSON in the environment.

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
        header_seconds: time limit for receiving the head of a request.
        send_seconds: time limit for a client to accept a piece of an answer.
        max_listeners: clients on live events, per process.
        work_seconds: how long a request may wait for its dataset.
        lease_seconds: after so many seconds of silence the process that publishes a dataset is replaced by another.
        questions: questions worked on at once, each in a process of its own.
        question_seconds: time limit for one question, and for how long it may wait for its turn.
        question_share: seconds of work on questions per second that one key may use in the long run.
        open_metrics: serve metrics without a key to clients on this machine.
        folder: private folder (mode 0700) with the sockets between workers; None with one worker.
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
    header_seconds: float = 10.0
    send_seconds: float = 30.0
    max_listeners: int = 200
    work_seconds: float = 30.0
    lease_seconds: float = 10.0
    questions: int = 2
    question_seconds: float = 60.0
    question_share: float = 0.5
    open_metrics: bool = False
    folder: str | None = None

    def to_json(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read settings that `to_json` wrote."""
        content = json.loads(text)
        return cls(**{**content, "specs": tuple(content["specs"])})
