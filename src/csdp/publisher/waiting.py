"""Ticks that another process has reserved: told apart from lost ones, and waited for.

A reservation does not say whether its process still lives. One that is younger than `LEASE` seconds, or than the wait
that was asked for, counts as held: its output may still come. An older one counts as lost. Neither is ever reserved
again, so a wrong guess costs a message, never a second publication.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from csdp.errors import InputError
from csdp.ledger import Ledger, Published, Refused
from csdp.publisher.records import Skipped

#: Seconds for which a reservation without output counts as held by a process that is at work.
LEASE = 30.0
#: Seconds between two looks at the ledger: the first, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5

OnWait = Callable[[int, float], None]


def check_wait(seconds: float) -> float:
    """A number of seconds to wait, 0 or more."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InputError(f"wait: {seconds!r} given; a number of seconds, 0 or more")
    return float(seconds)


def describe_refusal(refused: Refused, wait: float) -> Skipped:
    """Why a tick has no output here, in words and as one word."""
    if refused.why != "lost" or refused.since is None:
        return Skipped(refused.tick, refused.reason, refused.why)
    age = (datetime.now(UTC) - datetime.fromisoformat(refused.since)).total_seconds()
    if age < max(wait, LEASE):
        return Skipped(
            refused.tick,
            f"tick {refused.tick} is held: another process has reserved it and not committed it yet, or was just "
            "stopped; it stays charged. Ask again later, or wait for it (wait=SECONDS)",
            "held",
        )
    return Skipped(
        refused.tick,
        f"tick {refused.tick} is lost: reserved but not committed since {refused.since}; it stays charged and cannot "
        "be reserved again",
        "lost",
    )


def wait_for(
    ledger: Ledger, dataset: str, ticks: Sequence[int], *, query: str, wait: float, on_wait: OnWait | None = None
) -> Mapping[int, Published]:
    """The outputs of held ticks that are recorded within `wait` seconds; reads only, so nobody waits for us.

    `on_wait(held, seconds)` is told before each pause how many ticks are still held and for how long we wait at most.
    """
    found: dict[int, Published] = {}
    end, pause = time.monotonic() + wait, _FIRST_PAUSE
    while True:
        open_ticks = [tick for tick in ticks if tick not in found]
        found |= {published.tick: published for published in ledger.outputs_of(dataset, open_ticks, query=query)}
        left = end - time.monotonic()
        if len(found) == len(ticks) or left <= 0:
            return found
        if on_wait is not None:
            on_wait(len(ticks) - len(found), left)
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
