"""The status of a dataset: what is spent and left of the limits on record, and what they allow from now on.

It answers questions from the ledger and cannot publish. It depends on the plan, the limits and what was charged, never
on a value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from csdp.accountant import Accountant, State
from csdp.bounds.result import round_up
from csdp.chain import recorded_fits
from csdp.errors import InputError, LedgerTermsError
from csdp.ledger import DatasetState, Ledger, LedgerSummary, PrivacyLimits, Terms, TickGrid
from csdp.plan import ALGORITHM, Plan, check_supported
from csdp.publisher.charge import LIMITED, DatasetAccount, first_affordable_tick
from csdp.publisher.tick_times import AGE_WORDS

#: Consecutive releases that are looked ahead if no bound holds for all of them: by the accountant, by their number.
_AHEAD, _MANY = 20, 1000


def check_history(ledger: Ledger, dataset: str) -> list[Terms]:
    """The terms of a dataset, oldest first; refused if this version cannot account for one of the plans."""
    history = ledger.history(dataset)
    for terms in history:
        try:
            check_supported(terms.plan_json)
        except InputError as error:
            raise LedgerTermsError(
                f"dataset {dataset!r} was published under plan {terms.plan_digest[:12]}: {error}. This version cannot "
                "account for its releases; use a new dataset name for other data"
            ) from None
    return history


class Standing:
    """What is spent and left of a dataset, from its ledger alone; a ledger opened with `read_only=True` will do.

    If the recorded plan or grid is another one by now, the recorded state means nothing here: LedgerTermsError.

    Args:
        ledger: an open ledger.
        dataset: name in the ledger.
        plan: the recorded plan, which cannot be read back if its query is a Python function.
        account: of the dataset; default the recorded one.
        times: what the times of further releases are ("wall", "data", "ticks"); default those of the recorded releases.

    >>> import tempfile
    >>> from csdp import CoupledChain, Mean, Publisher
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Publisher(plan, dataset="ward-7", ledger=f"{folder}/ledger.db", budget=0.3) as publisher:
    ...         _ = [publisher.push([0], time=tick) for tick in range(2)]
    ...     with Ledger.open(f"{folder}/ledger.db", read_only=True) as ledger:
    ...         standing = Standing(ledger, "ward-7")
    ...         standing.summary()["published"], round(standing.remaining()["budget"], 4)
    (1, 0.1034)
    """

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        *,
        plan: Plan | None = None,
        account: DatasetAccount | None = None,
        times: str | None = None,
    ) -> None:
        self.ledger = ledger
        self.dataset = dataset
        self.account = recorded_account(ledger, dataset, plan=plan) if account is None else account
        self._times = times

    @property
    def plan(self) -> Plan:
        """The plan of the dataset."""
        return self.account.plan

    @property
    def accountant(self) -> Accountant:
        """The plan's accountant."""
        return self.account.accountant

    @property
    def grid(self) -> TickGrid:
        """Time from one tick to the next, and where tick 0 begins."""
        return self.account.grid

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits that bind now."""
        return self.account.check_terms(self.ledger.dataset(self.dataset).terms).to_dict()

    @property
    def fit_epsilon(self) -> float:
        """Plain epsilon-DP that private fits, of this plan's chain and of earlier ones, have spent on one record."""
        return self.account.fit_epsilon(self.ledger.summary(self.dataset).state or DatasetState())

    def remaining(self, *, time: int | None = None) -> dict[str, float]:
        """What is left of every limit, at the newest published tick or at a later one."""
        return self._remaining(self.ledger.summary(self.dataset), time)

    def _remaining(self, recorded: LedgerSummary, time: int | None) -> dict[str, float]:
        return self.account.remaining(recorded.state, self.account.check_terms(recorded.terms), time)

    def summary(self, *, time: int | None = None) -> dict[str, Any]:
        """What was published, refused and lost, and the guarantees, at the newest charged tick or a later one."""
        return self._summary(self.ledger.summary(self.dataset), time)

    def status(self, *, since: int | None) -> dict[str, Any]:
        """The summary together with what is `remaining`, at one moment of the ledger.

        Args:
            since: figures at this tick, or at the newest charged one if that is later: ticks are charged while one
                asks.
        """
        recorded = self.ledger.summary(self.dataset)
        charged = None if recorded.state is None else self.account.restore(recorded.state).tick
        time = since if since is not None and charged is not None and since > charged else None
        return {**self._summary(recorded, time), "remaining": self._remaining(recorded, time)}

    def _summary(self, recorded: LedgerSummary, time: int | None) -> dict[str, Any]:
        account, state = self.account, recorded.state or DatasetState()
        limits = account.check_terms(recorded.terms)
        return {
            "dataset": self.dataset,
            "model": self.plan.verdict.to_dict(),
            "published": recorded.committed,
            "refused": recorded.refused,
            "lost": recorded.lost,
            "newest_tick": recorded.newest_tick,
            "limits": limits.to_dict(),
            "present": account.present(recorded.state, time),
            "every_moment": account.every_moment(state),
            "event_level": account.event(state),
            "window_level": None if limits.window is None else account.window(state, limits.window),
            "group_level": account.group(state),
            "guarantee": self._guarantee(state),
        }

    def guarantee(self) -> dict[str, Any]:
        """The guarantees of the plan in words and numbers."""
        recorded = None if self._times else self.ledger.summary(self.dataset).state
        return self._guarantee(recorded or DatasetState())

    def _guarantee(self, state: DatasetState) -> dict[str, Any]:
        return describe_guarantee(self.account, (self._times,) if self._times else state.times)


def recorded_account(
    ledger: Ledger,
    dataset: str,
    *,
    plan: Plan | None = None,
    accountant: Accountant | None = None,
    grid: TickGrid | None = None,
) -> DatasetAccount:
    """The account of a dataset, with every private fit on record; plan and grid by default as recorded."""
    history = check_history(ledger, dataset)
    if accountant is None:
        accountant = Accountant(Plan.from_json(history[-1].plan_json) if plan is None else plan)
    fits = recorded_fits(map(attrgetter("plan_json"), history))
    return DatasetAccount(dataset, grid=grid or history[-1].grid, accountant=accountant, fits=fits)


def describe_guarantee(account: DatasetAccount, times: Iterable[str]) -> dict[str, Any]:
    """The guarantees of a plan in words and numbers; `times`: what the times of its ticks are, as recorded."""
    plan, fits = account.plan, account.fits
    return {
        "model": plan.verdict.to_dict(),
        "one_release": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "adversary": "informed",
        "every_moment": account.every_moment(DatasetState(stale=plan.stale_limit), ever=True),
        "event_level": round_up(account.accountant.event_level(plan.stale_limit) + account.fit_epsilon(DatasetState())),
        "fits": dict(fits),
        "algorithm": ALGORITHM,
        "words": [
            plan.verdict.words,
            "Leakage of the present: how much everything published so far reveals about anyone's present state, "
            f"to an informed adversary, if the sequences follow the model{plan.model.given}.",
            "Any moment: how much everything ever published reveals about anyone's state at any one tick, past or "
            "present, to an adversary who knows the states of all others at that tick, under the same condition. It "
            "covers one moment, not several together.",
            "Event level: plain epsilon-DP of one record, under any model; a record is exposed with this noise "
            "once it is old enough to be published. Every private fit that the dataset's chains came from is in it.",
            "Group level: plain DP of all records of all releases together, of sequences that the model ties together, "
            "however they are tied.",
            "Which readings are missing must not depend on their values.",
            *(() if plan.query.of_states else plan.assumptions[1:]),  # the verdict is said above
            *plan.model.not_protected,
            *(AGE_WORDS[kind] for kind in times),
        ],
    }


# ---- the outlook ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """What the limits allow from now on: the first tick that may be published, and how many in a row from there on.

    Attributes: `tick`, None if no later tick that was looked at would be admitted; `rests`, the ticks before it that
    would be refused; `ticks` in a row, None for any number; `more`: that many were looked at, and there may be more;
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
        'The limits allow a number at every step.'
        >>> Outlook(15, 1, rests=3, limited_by="budget").words
        'Publishing rests for 3 steps and resumes at step 15. From then on the limits allow 1 number in a row.'
        """
        if self.tick is None:
            return (
                f"The limits allow no more numbers: a release would bring {LIMITED[self.limited_by]} above its limit."
            )
        if self.ticks is None:
            then = "a number at every step"
        else:
            then = f"{'at least ' * self.more}{self.ticks} number{'s' * (self.ticks != 1)} in a row"
        if not self.rests:
            return f"The limits allow {then}."
        pause = f"{self.rests} step{'s' * (self.rests != 1)}"
        return f"Publishing rests for {pause} and resumes at step {self.tick}. From then on the limits allow {then}."


def look_ahead(standing: Standing, newest: int | None) -> Outlook:
    """When the next release would be admitted, and how many at consecutive ticks after it, if all are as planned.

    Args:
        standing: of the dataset.
        newest: the last tick that is over.
    """
    account, recorded = standing.account, standing.ledger.summary(standing.dataset)
    accountant, before = account.accountant, recorded.state or DatasetState()
    limits, state = account.check_terms(recorded.terms), account.restore(recorded.state)
    charged = () if state.consecutive == 0 else (state.tick,)
    tick = max((*charged, *(() if newest is None else (newest,))), default=0)
    left, ended_by = _records_left(account, before, limits)
    if left == 0:
        return Outlook(None, 0, limited_by=ended_by)
    first = tick + 1 if limits.budget is None else first_affordable_tick(accountant, state, tick, limits.budget)
    if first is None:
        return Outlook(None, 0, limited_by="budget")
    rests = first - tick - 1
    count = None if limits.budget is None else _count_in_a_row(accountant, state, first, limits.budget)
    if left is not None and (count is None or left <= count):
        return Outlook(first, left, rests, left == _MANY, ended_by)
    return Outlook(first, count, rests, count == _AHEAD, "budget" if rests or count is not None else "")


def _count_in_a_row(accountant: Accountant, state: State, first: int, budget: float) -> int | None:
    """Releases at consecutive ticks that keep a budget, up to `_AHEAD`; None if no number of them passes it.

    Accounting is monotone: a state below one that a further release does not raise stays below it.
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


def _records_left(account: DatasetAccount, state: DatasetState, limits: PrivacyLimits) -> tuple[int | None, str]:
    """Releases that the limits on records allow, up to `_MANY`, None for any number; and the limit that ends them."""

    def cost(name: str, more: int, *, ever: bool = False) -> float:
        later = replace(state, releases=state.releases + more)
        return account.spent_on_records(later, limits, ever=ever)[name]()

    left, ended_by = None, ""
    for name in account.spent_on_records(state, limits):
        limit = getattr(limits, name)
        if limit is None or cost(name, 1, ever=True) <= limit:
            continue
        count = bisect_right(range(1, _MANY + 1), limit, key=partial(cost, name))
        if left is None or count < left:
            left, ended_by = count, name
    return left, ended_by
