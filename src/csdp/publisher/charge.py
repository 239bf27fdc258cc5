"""Charges: what a release or a change of plan costs, and whether the limits on record allow it.

Both rules run inside the ledger's transaction, on the state and the terms recorded there, and may run again after a
lost race: they are pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from csdp.accountant import Accountant, Lateness, State
from csdp.accountant.build import build_components
from csdp.bounds.result import as_text, round_up
from csdp.chain import fits_epsilon, join_fits
from csdp.errors import BudgetExceeded, InputError, LedgerTermsError
from csdp.ledger import (
    Admission,
    Charge,
    DatasetState,
    EarlierPlans,
    Ledger,
    PrivacyLimits,
    Refused,
    Request,
    Terms,
    TickGrid,
)
from csdp.plan import ALGORITHM, Plan
from csdp.publisher.sources import NamingSource, Ready

#: How far ahead the first affordable tick is looked for.
HORIZON = 100_000
#: What each limit of a dataset limits.
LIMITED = {
    "budget": "the leakage of the present",
    "event_limit": "the plain epsilon-DP of a record",
    "lifetime_limit": "what all releases reveal of a record",
}


def check_limits(limits: PrivacyLimits) -> PrivacyLimits:
    """Limits as positive numbers, None for no limit."""
    checked: dict[str, float | None] = {}
    for name, value in vars(limits).items():
        checked[name] = None if value is None else float(value)
        if value is not None and not float(value) > 0:
            raise InputError(f"{name}: {value} given; a limit is a positive number (or None for no limit)")
    return PrivacyLimits(**checked)


class DatasetAccount:
    """What a dataset has spent under a plan, computed from its recorded state.

    Args:
        dataset: name in the ledger.
        grid: the grid of ticks that the plan is published on.
        accountant: of the plan.
        fits: every private fit behind the recorded plans, with its epsilon.
    """

    def __init__(self, dataset: str, *, grid: TickGrid, accountant: Accountant, fits: Mapping[str, float]) -> None:
        self.dataset = dataset
        self.plan = accountant.plan
        self.grid = grid
        self.accountant = accountant
        self.fits = dict(fits)
        self._lifetimes: dict[tuple[int, float, bool], float] = {}
        self._newest: tuple[dict[str, Any], State] | None = None  # a state that was not read back, with its record

    def check_terms(self, terms: Terms) -> PrivacyLimits:
        """The limits that bind now: those on record, even if they were changed since this was opened.

        Another plan or grid makes other releases of the same ticks, so it cannot be adopted: LedgerTermsError. The same
        for recorded limits that this version does not know.
        """
        differences = []
        if terms.plan_digest != self.plan.digest:
            differences.append(f"plan {terms.plan_digest[:12]}, not {self.plan.digest[:12]}")
        if terms.grid != self.grid or terms.further:
            further = f" and {terms.further}" if terms.further else ""
            differences.append(f"(time_step, time_origin) {tuple(terms.grid)}{further}, not {tuple(self.grid)}")
        if differences:
            raise LedgerTermsError(
                f"dataset {self.dataset!r} is published under {' and '.join(differences)}, since its terms were "
                "changed; nothing was charged. Open a new publisher under the recorded terms"
            )
        return check_limits(terms.limits)

    # ---- the accountant's state ----------------------------------------------------------------------------------

    def restore(self, state: DatasetState | None) -> State:
        """The accountant's state on record; the one before any release if there is none."""
        if state is None:
            return self.accountant.start()
        known = self._newest
        if known is not None and known[0] is state.accountant:
            return known[1]
        return self.accountant.restore(state.accountant, cost=state.cost)

    def release(self, last: DatasetState | None, tick: int, read: int | Lateness) -> tuple[State, DatasetState]:
        """The states after a release; `read`: by how many steps some reading was late, or which readings were."""
        before = DatasetState() if last is None else last
        level = None if self.plan.schedule is None else self.plan.level(tick)
        stale, which = (read, read > 0) if isinstance(read, int) else (read.worst, read)
        fresh = self.accountant.release(self.restore(last), tick, stale=which, epsilon_c=level)
        record = fresh.to_dict()
        self._newest = (record, fresh)
        after = replace(
            before,
            accountant=record,
            releases=before.releases + 1,
            stale=max(stale, before.stale),
            cost=before.cost + self.accountant.history_cost(),
        )
        return fresh, after

    def present(self, state: DatasetState | None, time: int | None = None) -> float:
        """Leakage of the present at the newest charged tick, or at a later one."""
        return 0.0 if state is None else self.accountant.epsilon(self.restore(state), time)

    # ---- what a record has cost ----------------------------------------------------------------------------------

    def fit_epsilon(self, state: DatasetState) -> float:
        """What all private fits have spent on one record.

        Those of plans that came and went while this publisher was open are in the recorded state.
        """
        return fits_epsilon(join_fits(self.fits, state.fits))

    def event(self, state: DatasetState) -> float:
        """Plain epsilon-DP of the record that was read most, under this plan and earlier ones, the fits included."""
        released, fits = self.released_event(state), self.fit_epsilon(state)
        return round_up(released + fits) if fits else released

    def released_event(self, state: DatasetState) -> float:
        """The same, from releases alone."""
        own = self.accountant.event_level(state.stale) if state.releases else 0.0
        if state.earlier is None:
            return own
        return round_up(own + state.earlier.event) if state.earlier.overlap else max(own, state.earlier.event)

    def group(self, state: DatasetState) -> float:
        """Plain DP of all records of all releases, of sequences that the model ties together; each is in the fits."""
        own = self.accountant.group_level(state.releases) if state.releases else 0.0
        releases = state.releases + (state.earlier.releases if state.earlier else 0)
        released = (state.earlier.group if state.earlier else 0.0) + own
        fits = self.fit_epsilon(state)
        if not fits or math.isinf(fits):
            return fits or released
        return round_up(released + releases * self.accountant.largest_component * fits)

    def lifetime(self, state: DatasetState, limit: float | None) -> float:
        """What all releases, under this plan and earlier ones, reveal of one record.

        The bound for any number of releases is used if it is within the limit; otherwise the count of releases
        sharpens it.
        """
        earlier = state.earlier
        releases = state.releases + (earlier.releases if earlier else 0)
        if not releases:
            return 0.0
        cost, overlap = (earlier.slice, earlier.overlap) if earlier else (0.0, False)
        key = (state.stale, cost, overlap)
        if key not in self._lifetimes:
            self._lifetimes[key] = self.accountant.every_moment(None, stale=state.stale, earlier=cost, overlap=overlap)
        if limit is not None and self._lifetimes[key] <= limit:
            return self._lifetimes[key]
        counted = self.accountant.every_moment(releases, stale=state.stale, earlier=cost, overlap=overlap)
        return min(self._lifetimes[key], counted)

    def remaining(self, state: DatasetState | None, limits: PrivacyLimits, time: int | None) -> dict[str, float]:
        """What is left of every limit."""
        before = state or DatasetState()
        left = {}
        if limits.budget is not None:
            left["budget"] = limits.budget - self.present(state, time)
        if limits.event_limit is not None:
            left["event_limit"] = limits.event_limit - self.event(before)
        if limits.lifetime_limit is not None:
            left["lifetime_limit"] = limits.lifetime_limit - self.lifetime(before, limits.lifetime_limit)
        return {name: max(0.0, value) for name, value in left.items()}


# ---- releases --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleaseRule:
    """Grants a release or refuses it. `times`: what the times of the ticks are, as it is recorded."""

    account: DatasetAccount
    times: str

    def list_requests(self, wanted: Sequence[Ready], source: object) -> list[Request]:
        """Requests for ticks, with who is late or missing if it matters, as far as the source names them."""
        plan, accountant = self.account.plan, self.account.accountant
        details: dict[int, int | Lateness] = {one.tick: one.stale for one in wanted}
        sequences = plan.model.sequences
        asked = [
            one
            for one in wanted
            if (one.stale and accountant.follows_delays) or (one.read < sequences and accountant.counts_missing)
        ]
        if isinstance(source, NamingSource):
            ticks = [one.tick for one in asked]
            rows = source.delays(plan, ticks) if ticks else ()
            details |= {tick: Lateness.from_delays(row) for tick, row in zip(ticks, rows, strict=True)}
        else:
            details |= {one.tick: Lateness(unnamed=True) for one in asked if not one.stale}
        return [Request(one.tick, plan.query.name, detail=details[one.tick]) for one in wanted]

    def admit(self, last: DatasetState | None, _last_tick: int | None, request: Request) -> Admission:
        """The state after a release and its charge; BudgetExceeded if it would pass a limit."""
        assert request.terms is not None
        account = self.account
        limits = account.check_terms(request.terms)
        before = DatasetState() if last is None else last
        read: int | Lateness = request.detail
        fresh, after = account.release(last, request.tick, read)
        after = replace(after, times=tuple(sorted({*before.times, self.times})))
        lifetime = limits.lifetime_limit
        present, peak = account.accountant.charge(fresh)
        charge = Charge(
            present=present,
            peak=peak,
            event=account.event(after),
            lifetime=None if lifetime is None else account.lifetime(after, lifetime),
            epsilon_c=None if account.plan.schedule is None else account.plan.level(request.tick),
            algorithm=ALGORITHM,
            late=read.to_record() if isinstance(read, Lateness) and read else None,
        )
        # A ceiling for every moment: quiet ticks after the release may raise the leakage before it falls.
        self._check("budget", limits.budget, charge.peak, lambda: account.present(last, request.tick))
        self._check("event_limit", limits.event_limit, charge.event, lambda: account.event(before))
        self._check("lifetime_limit", lifetime, charge.lifetime, lambda: account.lifetime(before, lifetime))
        return Admission(after, charge)

    def _check(self, name: str, limit: float | None, value: float | None, spent_now: Callable[[], float]) -> None:
        """Refuse a release that would bring what a limit limits above it."""
        if limit is None or (value is not None and value <= limit):
            return
        assert value is not None
        spent = spent_now()
        raise BudgetExceeded(
            f"{self.account.dataset}: a release would bring {LIMITED[name]} to {as_text(value)}, above its limit "
            f"{limit:g} (now {as_text(spent)}); this release was not made",
            limit_name=name,
            spent=spent,
            requested=value,
            remaining=max(0.0, limit - spent),
        )


def explain_refusal(account: DatasetAccount, ledger: Ledger, refused: Refused) -> BudgetExceeded:
    """The error of a refusal, with the first affordable tick and settings that would fit at every tick.

    It takes a search, so it runs outside of the ledger's lock.
    """
    error = refused.error
    assert error is not None
    recorded = ledger.summary(account.dataset)
    limit = recorded.terms.limits.budget
    if error.limit_name != "budget" or limit is None or recorded.terms.plan_digest != account.plan.digest:
        return error
    later = first_affordable_tick(account.accountant, account.restore(recorded.state), refused.tick, limit)
    fits = fitting_settings(account.plan, error.requested, limit)
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

    def is_affordable(wait: int) -> bool:
        return bool(accountant.peak(accountant.release(state, tick + wait)) <= limit)

    found: int | None = next((1 << n for n in range(HORIZON.bit_length()) if is_affordable(1 << n)), None)
    if found is None:
        return None
    first = found // 2 + 1
    return tick + first + bisect_left(range(first, found), True, key=is_affordable)


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
    other = Plan(plan.chain, plan.query, ages, epsilon_c, units=plan.units)
    return Accountant(other, build_components(other, "scalar")).limit().epsilon


# ---- changes of plan -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangeRule:
    """Carries the history of a dataset over to another plan, or refuses the change.

    The old history counts at most what it revealed between any two snapshots (under any model if the chain changes),
    placed at the newest reading it touched, and shrinks under the new chain from there.

    Args:
        old: the account under the plan before.
        new: the account under the new plan.
        number: the number of the recorded terms that the change was asked for.
        limits: those of the new terms.
        from_tick: the first tick under the new plan.
    """

    old: DatasetAccount
    new: DatasetAccount
    number: int
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
        accountant, tick = self.new.accountant, self.from_tick - 1
        state, earlier = accountant.start(tick), None
        if before.cost > 0:
            history = self.old.restore(before)
            state = accountant.take_over(self.old.accountant, history, tick=tick, cost=before.cost)
            earlier = _earlier_costs(self.old, before, history.tick, self.new.plan, self.from_tick)
        after = DatasetState(
            accountant=state.to_dict(),
            cost=before.cost,
            times=before.times,
            fits=join_fits(self.new.fits, before.fits),
            earlier=earlier,
        )
        self._check_records(before, after)
        return Admission(after, Charge(present=0.0 if last is None else accountant.epsilon(state)))

    def _check_records(self, before: DatasetState, after: DatasetState) -> None:
        """Refuse a change that by itself raises what a record has cost above its limits: they never recover.

        A limit that is lowered below what is spent already is no such change: it ends the releases. The leakage of the
        present is left to the first release: it falls while nothing is published.
        """
        old, new, limits = self.old, self.new, self.limits
        if limits.event_limit is not None:
            event = new.event(after)
            if event > limits.event_limit >= old.event(before):
                fits = f" ({as_text(new.fit_epsilon(after))} of it from private fits)"
                raise self._refusal("event_limit", limits.event_limit, event, fits)
        if limits.lifetime_limit is not None:
            lifetime = new.lifetime(after, limits.lifetime_limit)
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


def _earlier_costs(
    old: DatasetAccount, last: DatasetState, last_tick: int, following: Plan, from_tick: int
) -> EarlierPlans:
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
        event=old.released_event(last),
        # Another chain may tie together what this one holds apart.
        group=group if same_chain else max(group, last.cost),
        slice=this_chain if same_chain else any_model,
        slice_any=any_model,
        newest=max(newest),
        overlap=from_tick - following.max_age - following.stale_limit <= max(newest),
    )
