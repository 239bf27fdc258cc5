"""Whether the limits on record allow a release, or a change of plan, what a refusal can suggest, and what comes out.

Both rules run inside the ledger's transaction, on the state and the terms that are recorded there, and may run again
after a lost race: they are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from csdp.accountant import Accountant, Lateness, State
from csdp.bounds.result import as_text
from csdp.chain import join_fits
from csdp.display import Displayed
from csdp.errors import BudgetExceeded, InputError, LedgerTermsError
from csdp.ledger import Admission, Charge, DatasetState, EarlierPlans, PrivacyLimits, Refused, Request, Terms
from csdp.plan import ALGORITHM, Plan
from csdp.publisher.release import Release
from csdp.publisher.sources import NamingSource
from csdp.publisher.standing import RecordCosts, Standing

#: How far ahead the first affordable tick is looked for.
HORIZON = 100_000
#: What each limit of a dataset limits.
LIMITED = {
    "budget": "the leakage of the present",
    "event_limit": "the plain epsilon-DP of a record",
    "lifetime_limit": "what all releases tell of a record",
}
#: Why a tick has no output: its readings or the plan's schedule, a limit, a process that was stopped after it had
#: charged it, a later tick that was charged before it, or another plan that the dataset is published under by now.
Why = Literal["readings", "schedule", "limit", "lost", "order", "terms"]


@dataclass(frozen=True)
class Skipped:
    """A tick without output, and why: in words, and as one word for programs."""

    tick: int
    reason: str
    why: Why = "readings"


@dataclass(frozen=True)
class Batch(Displayed):
    """The releases of a panel, and its ticks without one.

    `recorded`: releases that were on record before, whose numbers do not come from these readings.
    """

    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]
    recorded: int = field(default=0, compare=False)

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __repr__(self) -> str:
        recorded = f" ({self.recorded:,} recorded before)" if self.recorded else ""
        return f"Batch({len(self.releases):,} releases{recorded}, {len(self.skipped):,} ticks without one)"


def check_on_refusal(on_refusal: str) -> None:
    """Refuse what a publisher cannot do with refusals."""
    if on_refusal not in {"raise", "skip"}:
        raise InputError(f"on_refusal: {on_refusal!r} given; 'raise' or 'skip'")


# ---- releases --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleaseRule:
    """Grants a release or refuses it. `times`: what the times of the ticks are, as it is recorded."""

    standing: Standing
    times: str

    def list_requests(
        self,
        wanted: Sequence[tuple[int, int]],
        source: object,
    ) -> list[Request]:
        """Requests for (tick, staleness) pairs, with who is late or missing if the source names them."""
        plan, accountant = self.standing.plan, self.standing.accountant
        details: dict[int, int | Lateness] = dict(wanted)
        stale = [tick for tick, steps in wanted if steps]
        if isinstance(source, NamingSource) and stale and accountant.follows_delays:
            late = source.delays(plan, stale)
            details |= {tick: Lateness.from_delays(row) for tick, row in zip(stale, late, strict=True)}
        if isinstance(source, NamingSource) and not plan.query.of_states and accountant.follows_missing:
            ticks = [tick for tick, _ in wanted]
            absent = zip(ticks, source.absent(plan, ticks), strict=True)
            details |= {tick: Lateness.from_missing(row) for tick, row in absent if row.any()}
        return [Request(tick, plan.query.name, detail=details[tick]) for tick, _ in wanted]

    def admit(self, last: DatasetState | None, _last_tick: int | None, request: Request) -> Admission:
        """The state after a release and its charge; BudgetExceeded where it would pass a limit."""
        assert request.terms is not None
        accountant, costs = self.standing.accountant, self.standing.costs
        limits = self.standing.check_terms(request.terms)
        before = DatasetState() if last is None else last
        state = accountant.start() if last is None else accountant.restore(last.accountant, cost=last.cost)
        plan = accountant.plan
        read: int | Lateness = request.detail
        late = read if isinstance(read, Lateness) else None
        stale = read if isinstance(read, int) else read.worst
        level = None if plan.schedule is None else plan.level(request.tick)
        which = stale > 0 if late is None else late
        fresh = accountant.release(state, request.tick, stale=which, epsilon_c=level)
        after = replace(
            before,
            accountant=fresh.to_dict(),
            releases=before.releases + 1,
            stale=max(stale, before.stale),
            cost=before.cost + accountant.history_cost(),
            times=tuple(sorted({*before.times, self.times})),
        )
        lifetime = limits.lifetime_limit
        charge = Charge(
            present=accountant.epsilon(fresh),
            peak=accountant.peak(fresh),
            event=costs.event(after),
            lifetime=None if lifetime is None else costs.lifetime(after, lifetime),
            epsilon_c=level,
            algorithm=ALGORITHM,
            late=late.to_record() if late else None,
        )
        # A ceiling for every moment: quiet ticks after the release may raise the leakage before it falls.
        self._check("budget", limits.budget, charge.peak, lambda: accountant.leakage(state, request.tick).epsilon)
        self._check("event_limit", limits.event_limit, charge.event, lambda: costs.event(before))
        self._check("lifetime_limit", lifetime, charge.lifetime, lambda: costs.lifetime(before, lifetime))
        return Admission(after, charge)

    def _check(self, name: str, limit: float | None, value: float | None, spent_now: Callable[[], float]) -> None:
        """Refuse a release that would bring what a limit limits above it."""
        if limit is None or (value is not None and value <= limit):
            return
        assert value is not None
        spent = spent_now()
        raise BudgetExceeded(
            f"{self.standing.dataset}: a release would bring {LIMITED[name]} to {as_text(value)}, above its limit "
            f"{limit:g} (now {as_text(spent)}); this release was not made",
            limit_name=name,
            spent=spent,
            requested=value,
            remaining=max(0.0, limit - spent),
        )


def explain_refusal(standing: Standing, refused: Refused) -> BudgetExceeded:
    """The error of a refusal, with the first affordable tick and settings that would fit at every tick.

    Outside of the ledger's lock, because it takes a search.
    """
    error, accountant = refused.error, standing.accountant
    assert error is not None
    recorded = standing.ledger.summary(standing.dataset)
    limit, last = recorded.terms.limits.budget, recorded.state
    if error.limit_name != "budget" or limit is None or recorded.terms.plan_digest != standing.plan.digest:
        return error
    state = accountant.start() if last is None else accountant.restore(last.accountant, cost=last.cost)
    later = first_affordable_tick(accountant, state, refused.tick, limit)
    fits = fitting_settings(accountant.plan, error.requested, limit)
    hints = [f"{name} {value:.4g} would fit at every tick" for name, value in fits.items()]
    if later is not None:
        hints.insert(0, f"it could be afforded from tick {later} on if nothing is published before")
    return BudgetExceeded(
        "; ".join([str(error), ", or ".join(hints)] if hints else [str(error)]),
        limit_name=error.limit_name,
        spent=error.spent,
        requested=error.requested,
        remaining=error.remaining,
        fits=fits,
        affordable_from=later,
    )


def first_affordable_tick(accountant: Accountant, state: State, tick: int, limit: float) -> int | None:
    """The first tick after `tick`, and after all that is charged, at which a release would be admitted if nothing is
    published before.
    """
    if state.consecutive != 0:
        tick = max(tick, state.tick)

    def cost(at: int) -> float:
        return accountant.peak(accountant.release(state, at))

    wait = 1
    while cost(tick + wait) > limit:
        wait *= 2
        if wait > HORIZON:
            return None
    low, high = tick + wait // 2, tick + wait
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(middle) <= limit else (middle, high)
    return high


def fitting_settings(plan: Plan, requested: float, limit: float) -> dict[str, Any]:
    """A noise level, and an age, at which releasing at every tick stays below the limit."""
    fits: dict[str, Any] = {}
    level = plan.epsilon_c
    for _ in range(30):
        level *= min(0.9, max(0.1, limit / max(requested, 1e-300)))
        if _long_run(plan, plan.ages, level) <= limit:
            fits["epsilon_c"] = level
            break
    for more in (1, 2, 3, 5, 8, 13, 21):
        ages = tuple(age + more for age in plan.ages)
        if _long_run(plan, ages, plan.epsilon_c) <= limit:
            fits["age"] = min(ages)
            break
    return fits


def _long_run(plan: Plan, ages: Sequence[int], epsilon_c: float) -> float:
    other = Plan(plan.chain, plan.query, ages, epsilon_c, adversary=plan.adversary, protect=plan.protect)
    return Accountant(other, state="scalar").limit().epsilon


# ---- changes of plan -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangeRule:
    """Carries the history of a dataset over to another plan, or refuses the change.

    The old history counts at most what it told between any two snapshots (under any model if the chain changes), placed
    at the newest reading it touched, and shrinks under the new chain from there.

    Args:
        old: the standing under the plan before.
        number: the number of the recorded terms that the change was asked for.
        costs: what a record costs under the new plan.
        accountant: of the new plan.
        limits: those of the new terms.
        from_tick: the first tick under the new plan.
    """

    old: Standing
    number: int
    costs: RecordCosts
    accountant: Accountant
    limits: PrivacyLimits
    from_tick: int

    def admit(self, last: DatasetState | None, _last_tick: int | None, terms: Terms) -> Admission:
        """The state under the new plan before its first release, and the leakage of the present with it."""
        self.old.check_terms(terms)  # the recorded state means something under its own plan only
        if terms.number != self.number:
            raise LedgerTermsError(
                f"the terms of dataset {self.old.dataset!r} were changed by another process meanwhile; look at them, "
                "and change them again if that is still wanted"
            )
        before = DatasetState() if last is None else last
        state, earlier = self.accountant.start(self.from_tick - 1), None
        if before.cost > 0:
            history = self.old.accountant.restore(before.accountant, cost=before.cost)
            state = self.accountant.take_over(self.old.accountant, history, tick=self.from_tick - 1, cost=before.cost)
            earlier = _earlier_costs(self.old, before, history.tick, self.accountant.plan, self.from_tick)
        after = DatasetState(
            accountant=state.to_dict(),
            cost=before.cost,
            times=before.times,
            fits=join_fits(self.costs.fits, before.fits),
            earlier=earlier,
        )
        self._check_records(before, after)
        return Admission(after, Charge(present=0.0 if last is None else self.accountant.leakage(state).epsilon))

    def _check_records(self, before: DatasetState, after: DatasetState) -> None:
        """Refuse a change that by itself raises what a record has cost above its limits: they never recover.

        A limit that is lowered below what is spent already is no such change: it ends the releases. The leakage of the
        present is left to the first release: it falls while nothing is published.
        """
        old, limits = self.old.costs, self.limits
        if limits.event_limit is not None:
            event = self.costs.event(after)
            if event > limits.event_limit >= old.event(before):
                fits = f" ({as_text(self.costs.fit_epsilon(after))} of it from private fits)"
                raise self._refusal("event_limit", limits.event_limit, event, fits)
        if limits.lifetime_limit is not None:
            lifetime = self.costs.lifetime(after, limits.lifetime_limit)
            if lifetime > limits.lifetime_limit >= old.lifetime(before, limits.lifetime_limit):
                raise self._refusal("lifetime_limit", limits.lifetime_limit, lifetime)

    def _refusal(self, name: str, limit: float, value: float, detail: str = "") -> BudgetExceeded:
        return BudgetExceeded(
            f"{self.old.dataset}: under the new plan {LIMITED[name]} would be {as_text(value)}{detail}, above its "
            f"limit {limit:g}, before any release; the plan was not changed. Use a chain whose fit is paid for "
            "already, or a new dataset for records that no fit has read",
            limit_name=name,
            spent=value,
            requested=value,
            remaining=0.0,
        )


def _earlier_costs(old: Standing, last: DatasetState, last_tick: int, following: Plan, from_tick: int) -> EarlierPlans:
    """What the releases under a plan, and under those before it, mean for limits on records under the next."""
    accountant, before, releases = old.accountant, last.earlier, last.releases
    group = accountant.group_level(releases) if releases else 0.0
    this_chain = accountant.slice_cost(last.stale) if releases else 0.0
    any_model = accountant.slice_cost(last.stale, any_model=True) if releases else 0.0
    newest = [last_tick - old.plan.min_age] if releases else []
    if before is not None:
        releases += before.releases
        group += before.group
        this_chain = before.slice + this_chain if before.overlap else max(before.slice, this_chain)
        any_model = before.slice_any + any_model if before.overlap else max(before.slice_any, any_model)
        newest.append(before.newest)
    same_chain = following.chain == old.plan.chain
    return EarlierPlans(
        releases=releases,
        event=old.costs.released_event(last),
        # Another chain may tie together what this one holds apart.
        group=group if same_chain else max(group, last.cost),
        slice=this_chain if same_chain else any_model,
        slice_any=any_model,
        newest=max(newest),
        overlap=from_tick - following.max_age - following.stale_limit <= max(newest),
    )
