"""What the limits of a dataset allow from now on: when the next number may be published, and how many in a row.

Answers questions and cannot publish. It depends on the plan, the limits and what was charged, never on a value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from csdp.accountant import Accountant, State
from csdp.ledger import DatasetState
from csdp.publisher.admission import LIMITED, first_affordable_tick
from csdp.publisher.standing import RecordCosts, Standing

#: Consecutive releases that are looked ahead where no bound holds for all of them: by the accountant, by their number.
_AHEAD, _MANY = 20, 1000


@dataclass(frozen=True)
class Outlook:
    """What the limits allow from now on: the first tick that may be published, and how many in a row from there on.

    Attributes: `tick`, None where no later tick that was looked at would be admitted; `rests`, the ticks before it that
    would be refused; `ticks` in a row, None without end; `more`: that many were looked at, and there may be more;
    `limited_by`: the limit that refuses the next tick, or ends them.
    """

    tick: int | None
    ticks: int | None
    rests: int = 0
    more: bool = False
    limited_by: str = ""

    @property
    def words(self) -> str:
        """In a sentence or two.

        >>> Outlook(12, None).words
        'The limits allow a number at every step, without end.'
        >>> Outlook(15, 1, rests=3, limited_by="budget").words
        'Publishing rests for 3 steps and resumes at step 15. From then on the limits allow 1 number in a row.'
        """
        if self.tick is None:
            return (
                f"The limits allow no more numbers: a release would bring {LIMITED[self.limited_by]} above its limit."
            )
        if self.ticks is None:
            then = "a number at every step, without end"
        else:
            then = f"{'at least ' * self.more}{self.ticks} number{'s' * (self.ticks != 1)} in a row"
        if not self.rests:
            return f"The limits allow {then}."
        pause = f"{self.rests} step{'s' * (self.rests != 1)}"
        return f"Publishing rests for {pause} and resumes at step {self.tick}. From then on the limits allow {then}."

    def continued(self, before: int | None, charged: int | None, newest: int | None) -> Outlook | None:
        """The same outlook some ticks later, without computing it anew; None where it must be.

        Args:
            before: the newest charged tick when it was computed.
            charged: the newest charged tick now; nothing but planned releases lies between.
            newest: the last tick that is over.

        >>> Outlook(15, 9, rests=3, limited_by="budget").continued(9, 9, 13).rests
        1
        >>> Outlook(15, 9).continued(14, 15, 15)
        Outlook(tick=16, ticks=8, rests=0, more=False, limited_by='')
        """
        if self.tick is None:
            return self if charged == before else None
        if charged == before:
            late = newest is not None and newest >= self.tick  # the tick has passed without a release
            tick = newest + 1 if newest is not None and late else self.tick
            rests = self.rests if newest is None else tick - newest - 1
            return replace(self, tick=tick, rests=rests, more=self.more or (late and self.ticks is not None))
        if charged != self.tick or self.ticks == 1:
            return None
        ticks = None if self.ticks is None else self.ticks - 1
        by = "" if ticks is None else self.limited_by
        return replace(self, tick=self.tick + 1, ticks=ticks, rests=0, limited_by=by).continued(
            charged, charged, newest
        )


def look_ahead(standing: Standing, newest: int | None) -> Outlook:
    """When the next release would be admitted, and how many at consecutive ticks after it, if all are as planned.

    Args:
        standing: of the dataset.
        newest: the last tick that is over.
    """
    accountant, costs = standing.accountant, standing.costs
    recorded = standing.ledger.summary(standing.dataset)
    limits, before = standing.check_terms(recorded.terms), recorded.state or DatasetState()
    state = accountant.start() if recorded.state is None else accountant.restore(before.accountant, cost=before.cost)
    charged = () if state.consecutive == 0 else (state.tick,)
    tick = max((*charged, *(() if newest is None else (newest,))), default=0)
    if (
        limits.event_limit is not None
        and costs.event(replace(before, releases=before.releases + 1)) > limits.event_limit
    ):
        return Outlook(None, 0, limited_by="event_limit")
    left = _lifetime_left(costs, before, limits.lifetime_limit)
    if left == 0:
        return Outlook(None, 0, limited_by="lifetime_limit")
    first = tick + 1 if limits.budget is None else first_affordable_tick(accountant, state, tick, limits.budget)
    if first is None:
        return Outlook(None, 0, limited_by="budget")
    rests = first - tick - 1
    count = None if limits.budget is None else _count_in_a_row(accountant, state, first, limits.budget)
    if left is not None and (count is None or left <= count):
        return Outlook(first, left, rests, left == _MANY, "lifetime_limit")
    return Outlook(first, count, rests, count == _AHEAD, "budget" if rests or count is not None else "")


def _count_in_a_row(accountant: Accountant, state: State, first: int, budget: float) -> int | None:
    """Releases at consecutive ticks that keep a budget, up to `_AHEAD`; None where no number of them passes it.

    Accounting is monotone: a state below one that a further release does not raise stays below it for ever.
    """
    rest = accountant.long_run() if accountant.ceiling() <= budget else None
    for count in range(_AHEAD):
        after = accountant.release(state, first + count)
        if accountant.peak(after) > budget:
            return count
        if (rest is not None and _is_below(after, rest)) or (count and _is_below(after, state)):
            return None
        state = after
    return _AHEAD


def _is_below(one: State, other: State) -> bool:
    """Whether a state is nowhere above another one of the same form."""
    form = [(each.behind, [part.shape for part in each.slices], sorted(each.pending)) for each in (one, other)]
    return form[0] == form[1] and all((a <= b).all() for a, b in zip(one.slices, other.slices, strict=True))


def _lifetime_left(costs: RecordCosts, state: DatasetState, limit: float | None) -> int | None:
    """Releases that a lifetime limit still allows, up to `_MANY`; None without end."""
    if limit is None:
        return None

    def cost(more: int) -> float:
        return costs.lifetime(replace(state, releases=state.releases + more), limit)

    low, high = 0, 1
    while cost(high) <= limit:
        if high > _MANY:  # the bound for any number of releases is used where it is within the limit
            return None if cost(1) == cost(high) else _MANY
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= limit else (low, middle)
    return min(low, _MANY)
