"""Charges: what a release or a change of plan costs, and whether the limits on record allow it.

Both rules run inside the ledger's transaction, on the state and the terms recorded there, and may run again after a
lost race: they are pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from csdp import check
from csdp.accountant import Accountant, Lateness, State
from csdp.accountant.build import build_components
from csdp.accountant.component import Component
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
#: What is said of every moment if no number of the plan bounds it.
GROWS = (
    "grows with every release under this model; more noise slows it down, and a model with influences in both "
    "directions of time bounds it"
)
#: What each limit of a dataset limits.
LIMITED = {
    "budget": "the leakage of the present",
    "moment_limit": "what everything published reveals of any moment",
    "event_limit": "the plain epsilon-DP of a record",
    "window_limit": "the plain epsilon-DP of a window of consecutive readings",
}


def check_limits(limits: PrivacyLimits) -> PrivacyLimits:
    """Limits as positive numbers, None for no limit, and the length of the window that is limited."""
    checked: dict[str, float] = {}
    for name, value in vars(replace(limits, window=None)).items():
        if value is not None and not float(value) > 0:
            raise InputError(f"{name}: {value} given; a limit is a positive number (or None for no limit)")
        checked |= {} if value is None else {name: float(value)}
    window = None if limits.window is None else check.whole("window", limits.window, least=1, hint="a number of ticks")
    if window is None and limits.window_limit is not None:
        raise InputError(
            f"window_limit: {limits.window_limit:g} given without a window; give window=, the number of consecutive "
            "ticks whose readings it limits"
        )
    return PrivacyLimits(**checked, window=window)


class _EveryMoment:
    """What releases reveal of a sequence at any one tick, by their number; what is bounded is computed once.

    For every component two bounds hold: that for any number of releases, and that for as many as were made. The second
    only grows, so once it has reached the first it is not computed again.

    What earlier plans add to a slice counts as a whole for components that are followed jointly. One that is followed
    sequence by sequence charges every value by itself: there they add their plain epsilon of one record.
    """

    def __init__(self, components: Sequence[Component], *, stale: int, earlier: EarlierPlans | None) -> None:
        whole, event, overlap = (earlier.slice, earlier.event, earlier.overlap) if earlier else (0.0, 0.0, False)
        self._counted = [partial(one.every_moment, stale=stale, earlier=whole, overlap=overlap) for one in components]
        self._ever = [
            one.every_moment(None, stale=stale, earlier=event if one.kind == "vector" else whole, overlap=overlap)
            for one in components
        ]
        self._reached = [math.inf] * len(self._ever)
        self.ever = round_up(max(self._ever))

    def after(self, releases: int) -> float:
        """The smaller of the two, for the component that reveals most."""
        worst = 0.0
        for n, ever in enumerate(self._ever):
            counted = ever if releases >= self._reached[n] else self._counted[n](releases)
            if counted >= ever:
                self._reached[n] = min(releases, self._reached[n])
            worst = max(worst, min(counted, ever))
        return round_up(worst)


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
        self._moments: dict[tuple[float, ...], _EveryMoment] = {}
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
        stale, which = (read, read > 0) if isinstance(read, int) else (read.worst, read)
        fresh = self.accountant.release(self.restore(last), tick, stale=which, epsilon_c=self.plan.level(tick))
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
        """What all private fits have spent on one record, or on those of a unit at one tick.

        Those of plans that came and went while this publisher was open are in the recorded state.
        """
        return self.plan.unit_size * fits_epsilon(join_fits(self.fits, state.fits))

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

    def every_moment(self, state: DatasetState, *, ever: bool = False) -> float:
        """What everything published, under this plan and earlier ones, reveals of a sequence at any one tick.

        `ever`: after any number of further releases under this plan.
        """
        earlier = state.earlier
        releases = state.releases + (earlier.releases if earlier else 0)
        if not releases and not ever:
            return 0.0
        costs = () if earlier is None else (earlier.slice, earlier.event, earlier.overlap)
        key = (state.stale, *costs)
        if key not in self._moments:
            self._moments[key] = _EveryMoment(self.accountant.components, stale=state.stale, earlier=earlier)
        return self._moments[key].ever if ever else self._moments[key].after(releases)

    def window(self, state: DatasetState, length: int, *, ever: bool = False) -> float:
        """Plain epsilon-DP of any `length` consecutive readings of one sequence, under this plan and earlier ones.

        Proof. The releases under one plan that read the window are at most those that `Accountant.window_level` and
        `EarlierPlans.window` count, and the parts add up. Or together: all of them read at ages (with delays) from the
        youngest to the oldest of all plans, so that their ticks are among length + oldest - youngest consecutive ones,
        at most one release at each, none above the largest level. A private fit has read every reading of the window.

        `ever`: after any number of further releases under this plan.
        """
        plan, earlier = self.plan, state.earlier
        own = self.accountant.window_level(length, state.stale)
        own = own if ever else min(own, state.releases * plan.unit_level)
        fits = length * self.fit_epsilon(state)
        if earlier is None:
            return round_up(own + fits) if own or fits else 0.0
        released = own + earlier.window(length)
        if own and earlier.youngest is not None and earlier.oldest is not None:
            spread = max(earlier.oldest, plan.max_age + state.stale) - min(earlier.youngest, plan.min_age)
            released = min(released, max(earlier.level, plan.unit_level) * (length + spread))
        return round_up(released + fits)

    def remaining(self, state: DatasetState | None, limits: PrivacyLimits, time: int | None) -> dict[str, float]:
        """What is left of every limit."""
        before = state or DatasetState()
        spent = {"budget": lambda: self.present(state, time), **self.spent_on_records(before, limits)}
        bounds = {name: limit for name, limit in limits.to_dict().items() if name in spent and limit is not None}
        return {name: max(0.0, limit - spent[name]()) for name, limit in bounds.items()}

    def spent_on_records(
        self, state: DatasetState, limits: PrivacyLimits, *, ever: bool = False
    ) -> dict[str, Callable[[], float]]:
        """What is compared with each limit on records; `ever`: after any number of further releases."""
        window = limits.window
        return {
            "moment_limit": lambda: self.every_moment(state, ever=ever),
            "event_limit": lambda: self.event(state),
            **({} if window is None else {"window_limit": lambda: self.window(state, window, ever=ever)}),
        }


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
        present, peak = account.accountant.charge(fresh)
        charge = Charge(
            present=present,
            peak=peak,
            every_moment=account.every_moment(after),
            event=account.event(after),
            window=None if limits.window is None else account.window(after, limits.window),
            epsilon_c=None if account.plan.schedule is None else account.plan.level(request.tick),
            algorithm=ALGORITHM,
            late=read.to_record() if isinstance(read, Lateness) and read else None,
        )
        spent = account.spent_on_records(before, limits)
        # A ceiling at every tick: quiet ticks after the release may raise the leakage before it falls.
        self._check("budget", limits.budget, charge.peak, lambda: account.present(last, request.tick))
        self._check("moment_limit", limits.moment_limit, charge.every_moment, spent["moment_limit"])
        self._check("event_limit", limits.event_limit, charge.event, spent["event_limit"])
        if limits.window is not None:
            self._check("window_limit", limits.window_limit, charge.window, spent["window_limit"])
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
    limits = recorded.terms.limits
    limit = vars(limits)[error.limit_name]
    if limit is None or recorded.terms.plan_digest != account.plan.digest:
        return error
    later = None
    if error.limit_name == "budget":
        later = first_affordable_tick(account.accountant, account.restore(recorded.state), refused.tick, limit)
        fits = fitting_settings(account.plan, error.requested, limit)
        hints = [f"{name} {value:.4g} would fit at every tick" for name, value in fits.items()]
        if later is not None:
            hints.insert(0, f"it could be afforded from tick {later} on if nothing is published before")
    else:  # what a record has cost never falls, so this helps a dataset that begins with it
        fits = _fitting_level(account, limits, error)
        hints = [f"{name} {value:.4g} fits at every tick of a new dataset" for name, value in fits.items()]
    if not hints and error.limit_name == "moment_limit":
        hints = [f"it {GROWS}"]
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
    fits = _find_level(lambda level: _long_run(plan, plan.ages, level), plan.epsilon_c, requested, limit)
    for more in (1, 2, 3, 5, 8, 13, 21):
        ages = tuple(age + more for age in plan.ages)
        if _long_run(plan, ages, plan.epsilon_c) <= limit:
            fits["age"] = min(ages)
            break
    return fits


def _fitting_level(account: DatasetAccount, limits: PrivacyLimits, error: BudgetExceeded) -> dict[str, Any]:
    """A noise level at which every tick of a new dataset keeps a limit on records."""
    plan = account.plan
    limit = vars(limits)[error.limit_name]
    readings = limits.window if error.limit_name == "window_limit" else 1
    assert readings is not None
    stale = plan.stale_limit

    def after_all(level: float) -> float:
        other = Accountant(Plan(plan.chain, plan.query, plan.ages, level, units=plan.units))
        if error.limit_name == "moment_limit":
            return other.every_moment(stale=stale)
        return other.window_level(readings, stale) + readings * account.fit_epsilon(DatasetState())

    return _find_level(after_all, plan.epsilon_c, error.requested, limit)


def _find_level(number: Callable[[float], float], level: float, requested: float, limit: float) -> dict[str, Any]:
    """A noise level below one that comes to `requested`, whose number is within the limit; none if none is found."""
    for _ in range(30):
        level *= min(0.9, max(0.1, limit / max(requested, 1e-300)))
        found = number(level)
        if found <= limit:
            return {"epsilon_c": level}
        if math.isinf(found):
            break
    return {}


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
        if self.new.plan.units not in ((), self.old.plan.units):
            raise InputError(
                f"units: the new plan has others than dataset {self.old.dataset!r}, whose earlier releases are not "
                "accounted for by them; keep its units, or open a new dataset"
            )
        before = DatasetState() if last is None else last
        accountant, tick = self.new.accountant, self.from_tick - 1
        state, earlier = accountant.start(tick), None
        if before.cost > 0:
            history = self.old.restore(before)
            state = accountant.take_over(self.old.accountant, history, tick=tick, cost=before.cost)
            earlier = earlier_costs(self.old, before, history.tick, self.new.plan, self.from_tick)
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
        spent = self.old.spent_on_records(before, self.limits)
        for name, value in self.new.spent_on_records(after, self.limits).items():
            limit = getattr(self.limits, name)
            if limit is not None and value() > limit >= spent[name]():
                fits = f" ({as_text(self.new.fit_epsilon(after))} of it from private fits)"
                raise self._refusal(name, limit, value(), "" if name == "moment_limit" else fits)

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


def earlier_costs(
    old: DatasetAccount, last: DatasetState, last_tick: int, following: Plan, from_tick: int
) -> EarlierPlans:
    """What the releases under a plan, and under those before it, mean for limits on records under the next."""
    accountant, before, releases = old.accountant, last.earlier, last.releases
    group = accountant.group_level(releases) if releases else 0.0
    this_chain = accountant.slice_cost(last.stale) if releases else 0.0
    any_model = accountant.slice_cost(last.stale, any_model=True) if releases else 0.0
    newest = [last_tick - old.plan.min_age] if releases else []
    total, level = releases * old.plan.unit_level, old.plan.unit_level if releases else 0.0
    ages: list[int | None] = [old.plan.min_age, old.plan.max_age + last.stale] if releases else []
    if before is not None:
        releases += before.releases
        group += before.group
        this_chain = before.slice + this_chain if before.overlap else max(before.slice, this_chain)
        any_model = before.slice_any + any_model if before.overlap else max(before.slice_any, any_model)
        newest.append(before.newest)
        total += before.total
        level = max(level, before.level)
        ages += [before.youngest, before.oldest]
    known = [age for age in ages if age is not None]
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
        total=round_up(total),
        level=level,
        youngest=min(known) if len(known) == len(ages) else None,
        oldest=max(known) if len(known) == len(ages) else None,
    )
