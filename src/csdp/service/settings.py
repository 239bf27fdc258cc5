"""What a service is started with; travels to worker processes as JSON in the environment. It holds no secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

ENVIRONMENT: Final = "CSDP_SERVICE"


@dataclass(frozen=True)
class Settings:
    """Specifications, the file of keys, and what one client may use.

    Args:
        specs: files of streams, one dataset each.
        keys: the file of API keys.
        rate, burst: requests per second of one key in the long run, and at once.
        wrong_keys: requests per second with a wrong key from one address.
        max_body: bytes of one request's body. max_line: bytes of one line of NDJSON. max_lines: lines of one body.
        max_waiting: bytes of bodies that wait to be taken in; beyond it writers are told to come back.
        body_seconds: how long a body may take to arrive. header_seconds: the same for a request's head.
        send_seconds: how long a client may take to accept a piece of an answer.
        max_listeners: clients on live events, of one process.
        work_seconds: how long a request may wait for its dataset.
        questions: questions of readers that are worked on at once, each in a process of its own.
        question_seconds: how long one question may be worked on, and how long it may wait for its turn.
        question_share: seconds of work on questions in each second that one key may use in the long run.
        open_metrics: serve metrics without a key to clients on this machine.
        folder: a private folder (mode 0700) in which workers reach each other; none where there is one worker.
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
    questions: int = 2
    question_seconds: float = 60.0
    question_share: float = 0.5
    open_metrics: bool = False
    folder: str | None = None

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Back from text."""
        content = json.loads(text)
        return cls(**{**content, "specs": tuple(content["specs"])})
