"""Ticks that another process has reserved: told apart from lost ones, and waited for.

A reservation does not say whether its process still lives. One that is younger than `LEASE` seconds, or than the wait
that was asked for, counts as held: its output may still come. An older one counts as lost. Neither is ever reserved
again, so a wrong guess costs a message, never a second publication.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from csdp.errors import InputError
from csdp.ledger import Ledger, Refused
from csdp.publisher.records import Release, Skipped

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
    ledger: Ledger, dataset: str, skipped: Sequence[Skipped], *, query: str, wait: float, on_wait: OnWait | None
) -> tuple[list[Release], list[Skipped]]:
    """Of ticks without output: held ones that are recorded within `wait` seconds, and the rest.

    Reads only, so nobody waits for us. `on_wait(held, seconds)` is told before each pause how many ticks are still held
    and for how long we wait at most.
    """
    held = {skip.tick for skip in skipped if skip.why == "held"}
    found: dict[int, Release] = {}
    end, pause = time.monotonic() + wait, _FIRST_PAUSE
    while wait and len(found) < len(held):
        recorded = ledger.outputs_of(dataset, sorted(held - set(found)), query=query)
        found |= {published.tick: Release.of(published) for published in recorded}
        left = end - time.monotonic()
        if len(found) == len(held) or left <= 0:
            break
        if on_wait is not None:
            on_wait(len(held) - len(found), left)
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return list(found.values()), [skip for skip in skipped if skip.tick not in found]
