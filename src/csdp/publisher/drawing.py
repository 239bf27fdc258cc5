"""From granted ticks to outputs: exact answers with noise drawn here, or answers whose noise is drawn with the rows."""

from __future__ import annotations

from collections.abc import Mapping

from csdp import fran
from csdp.noise import Randomness
from csdp.plan import Plan
from csdp.publisher.checks import check_answers, check_noised
from csdp.publisher.sources import AgedSource, DrawingSource

#: Ticks that are reserved, released and committed together in a batch, and values that their outputs hold at most.
CHUNK = 100
CHUNK_VALUES = 1_000_000


def chunk_size(plan: Plan) -> int:
    """How many ticks go together: fewer where a release is wide, so that memory stays bounded."""
    return max(1, min(CHUNK, CHUNK_VALUES // len(plan.query.outputs)))


def drawn(plan: Plan, source: AgedSource, granted: Mapping[int, int], randomness: Randomness) -> list[fran.Output]:
    """Outputs of granted ticks, given as tick -> staleness, in that order. Only called after the ledger was charged."""
    if not granted:
        return []
    if isinstance(source, DrawingSource) and source.trusted_noise is True and source.draws(plan):
        # A key lives from here to the end of this call: a driver that dies takes it along, and the tick is lost.
        keys = {tick: randomness.key() for tick in granted}
        noised = check_noised(plan, list(granted), source.noised(plan, keys))
        return [
            fran.finished(plan, row, stale, epsilon_c=scheduled_level(plan, tick), unsafe=randomness.unsafe)
            for (tick, stale), row in zip(granted.items(), noised, strict=True)
        ]
    exact = check_answers(plan, list(granted), source.answers(plan, list(granted)))
    return [
        fran.noisy(plan, answer, stale, randomness, epsilon_c=scheduled_level(plan, tick))
        for (tick, stale), answer in zip(granted.items(), exact, strict=True)
    ]


def scheduled_level(plan: Plan, tick: int) -> float | None:
    """The noise level of a tick, where the plan has a schedule."""
    return None if plan.schedule is None else plan.level(tick)
