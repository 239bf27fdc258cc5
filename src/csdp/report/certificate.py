"""Certificates: what the releases of a dataset guarantee and what they do not, in numbers and in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from csdp.bounds.result import as_text, in_words
from csdp.chain import Verdict
from csdp.estimate.result import Error, about_words

if TYPE_CHECKING:
    from csdp.accountant.record import State
    from csdp.bounds.result import Leakage
    from csdp.ledger import Ledger, LedgerSummary
    from csdp.plan import Plan
    from csdp.publisher import Skipped, Standing

SCHEMA = "csdp/certificate/1"
#: The guarantees in words, in the order of a report whose model may be relied on.
TITLES = {
    "present": "the present",
    "every_moment": "any moment",
    "event": "event",
    "window": "window",
    "group": "group",
}
#: Newest releases whose estimates say what the releases of a dataset are worth.
_NEWEST = 20
#: The promises that need a model.
_OF_THE_MODEL = frozenset({"present", "every_moment"})
#: What the adversary of every plan knows.
INFORMED = "who knows the model and every other present value"

#: What is said first if a chain was fitted to private readings without noise.
UNPAID_WORDS = (
    "The model was fitted to private readings without noise, and its digest, estimates and figures reveal them without "
    "limit: nothing is promised about a single reading, and no event limit can be kept. Fit public readings, or pay "
    "for the fit (csdp fit --epsilon)."
)


@dataclass(frozen=True)
class Promise:
    """One guarantee: its name, epsilon now, the largest epsilon in the long run (None: it grows), and its meaning."""

    name: str
    epsilon: float
    ceiling: float | None
    protects: str
    holds: str

    @property
    def title(self) -> str:
        """Its name in words."""
        return TITLES[self.name]

    @property
    def grows(self) -> bool:
        """Whether no number is known that it stays below."""
        return self.ceiling is None or (math.isinf(self.ceiling) and math.isfinite(self.epsilon))


@dataclass(frozen=True)
class Certificate:
    """What the releases of a dataset are worth, their guarantees, and the assumptions of these.

    `model`: whether the data accept the model (status, reason, words). If they do not, the guarantees that hold under
    any model come first.
    `worth`: what the newest estimates are about and the expected share of the squared error of guessing the usual value
    that they remove, in numbers and words; None if there are none.
    `protects`: what the plan protects in the long run: every moment, the present only, or single readings.
    """

    dataset: str
    model: dict[str, str]
    worth: dict[str, Any] | None
    plan: dict[str, Any]
    protects: dict[str, str]
    promises: tuple[Promise, ...]
    not_promised: tuple[str, ...]
    sentence: str
    assumptions: tuple[str, ...]
    limits: dict[str, float | None]
    counts: dict[str, Any]
    ledger: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, which depends on the ledger only, not on time or place."""
        content = asdict(self)
        by_name = {promise.pop("name"): promise for promise in content.pop("promises")}
        return {"schema": SCHEMA, **content, "guarantees": by_name}

    def __getitem__(self, name: str) -> Promise:
        return next(promise for promise in self.promises if promise.name == name)


def _earlier_version(version: object) -> tuple[str, ...]:
    """What a certificate says of terms that an earlier version of the algorithm recorded; nothing of its own."""
    from csdp.plan import ALGORITHM

    if version in (None, ALGORITHM):
        return ()
    return (
        f"the terms were recorded by version {version} of the algorithm; the numbers here are computed by version "
        f"{ALGORITHM} from the recorded history, and `csdp audit --ledger` recomputes every charge",
    )


def certify(publisher: Standing, ledger: Ledger, *, skipped: Sequence[Skipped] = ()) -> Certificate:
    """Make the certificate of a publisher's dataset as its ledger stands now."""
    from csdp.publisher.tick_times import AGE_WORDS

    spent, entry = publisher.summary(), ledger.summary(publisher.dataset)
    plan, accountant = publisher.plan, publisher.accountant
    state = None if entry.state is None else accountant.restore(entry.state.accountant, cost=entry.state.cost)
    now = None if state is None else accountant.leakage(state)
    promises = _make_promises(publisher, spent, entry, now_state=state)
    times = () if entry.state is None else entry.state.times
    assumptions = (
        *(words for words in plan.certified.assumptions if "law" in words),
        *(() if now is None else now.assumptions),
        *plan.assumptions,
        *_earlier_version(entry.terms.guarantee.get("algorithm")),
        "everything that was published of these readings is in this ledger, under this dataset",
        *(AGE_WORDS[kind] for kind in times),
    )
    return Certificate(
        dataset=publisher.dataset,
        model=plan.verdict.to_dict(),
        worth=_worth(ledger, publisher.dataset, plan),
        plan=_describe_plan(plan, now),
        protects=_describe_protection(plan, promises, spent["limits"]),
        promises=promises,
        not_promised=(
            *((UNPAID_WORDS,) if math.isinf(publisher.fit_epsilon) else ()),
            *not_promised(promises),
            *(AGE_WORDS[kind] for kind in times if kind != "wall"),
            *plan.model.not_protected,
        ),
        sentence=sentence(
            publisher.dataset,
            promises,
            verdict=plan.verdict,
            newest=entry.newest_tick,
            given=plan.model.given,
        ),
        assumptions=tuple(dict.fromkeys(assumptions)),
        limits=dict(spent["limits"]),
        counts={
            "published": entry.committed,
            "lost": entry.lost,
            "refused": entry.refused,
            "newest_tick": entry.newest_tick,
            "without_output": dict(sorted(Counter(_reason_kind(skip) for skip in skipped).items())),
        },
        ledger={"head_seq": entry.head_seq, "head_hash": entry.head_hash},
    )


def _make_promises(
    publisher: Standing, spent: Mapping[str, Any], recorded: LedgerSummary, *, now_state: State | None
) -> tuple[Promise, ...]:
    """The guarantees, from what is spent so far; those of records are given for any number of further releases too."""
    from csdp.ledger import DatasetState

    plan, limits = publisher.plan, publisher.account.check_terms(recorded.terms)
    state = recorded.state or DatasetState()
    later = replace(state, stale=max(state.stale, plan.stale_limit), releases=state.releases + 1)
    ever = {name: value() for name, value in publisher.account.spent_on_records(later, limits, ever=True).items()}
    # A published reading may rest on several states; its neighbours then reveal more about it than about any of them.
    record = "reading" if plan.query.of_states else "state"
    whose = "unit of sequences" if plan.units else "sequence"
    has_model = plan.verdict.status != "none"
    tied = "the sequences that depend on each other in the model, however strongly" if has_model else "all sequences"
    promises = [
        Promise(
            "present",
            spent["present"],
            _ceiling(publisher, now_state, limits.budget, changed=recorded.changes > 0),
            f"the present state of each {whose}, from everything published so far",
            f"against an adversary {INFORMED}, {_if_model(plan)}{plan.model.given}",
        ),
        Promise(
            "every_moment",
            spent["every_moment"],
            ever["moment_limit"],
            f"one {record} of each {whose} at any one tick, past or present, from everything ever published",
            f"against an adversary who knows the model and every other {record} of that tick, {_if_model(plan)}",
        ),
        Promise(
            "event",
            spent["event_level"],
            ever["event_limit"],
            f"one reading of one {whose}, from every release that reads it and every private fit of a chain",
            "plain differential privacy, under any model: against an adversary who knows every other reading",
        ),
        Promise(
            "group",
            spent["group_level"],
            None,
            "all readings of all dependent sequences together, from everything published so far",
            f"plain differential privacy of {tied}; grows with every release",
        ),
    ]
    if limits.window is not None:
        window = Promise(
            "window",
            spent["window_level"],
            ever["window_limit"],
            f"any {limits.window} consecutive readings of one {whose} together, from every release that reads any of "
            "them and every private fit",
            "plain differential privacy, under any model: against an adversary who knows every other reading",
        )
        promises.insert(3, window)
    if not has_model:
        return tuple(promise for promise in promises if promise.name not in _OF_THE_MODEL)
    if not plan.verdict.reliable:  # what holds under any model first: it is the number to rely on
        promises.sort(key=lambda promise: promise.name in _OF_THE_MODEL)
    return tuple(promises)


def _if_model(plan: Plan) -> str:
    """What a guarantee under the model is conditional on, with the verdict of the data."""
    return f"{'if' if plan.verdict.reliable else 'ONLY IF'} the sequences follow the model ({plan.verdict.brief})"


def _describe_plan(plan: Plan, now: Leakage | None) -> dict[str, Any]:
    """The plan in a certificate, with the leakage of one release and the bound of the present state."""
    from csdp.plan import ALGORITHM

    return {
        "digest": plan.digest,
        "chain_digest": plan.chain.digest,
        "algorithm": ALGORITHM,
        "query": plan.query.name,
        "ages": plan.ages[0] if len(set(plan.ages)) == 1 else list(plan.ages),
        "epsilon_c": plan.epsilon_c,
        "adversary": "informed",
        "stale_limit": plan.stale_limit,
        "one_release": {"epsilon": plan.certified.epsilon, "bound": plan.certified.bound},
        "state": None if now is None else now.bound,
    }


def _describe_protection(plan: Plan, promises: Sequence[Promise], limits: Mapping[str, float | None]) -> dict[str, str]:
    """What the plan protects in the long run, as the guarantees of its dataset have it."""
    from csdp.planning.protection import protection

    ceilings = {promise.name: promise.ceiling for promise in promises}
    limit = limits.get("moment_limit")
    if limit is not None:  # no release is made that passes it; it may have been lowered
        spent = next((promise.epsilon for promise in promises if promise.name == "every_moment"), 0.0)
        ceilings["every_moment"] = min(ceilings.get("every_moment") or math.inf, max(limit, spent))
    return protection(
        plan,
        ceilings.get("present"),
        ceilings.get("every_moment"),
        budget=limits.get("budget"),
        moment_limit=limit,
    ).to_dict()


def _worth(ledger: Ledger, dataset: str, plan: Plan) -> dict[str, Any] | None:
    """What the newest releases are worth, as they are recorded."""
    from csdp.publisher import Release

    newest = ledger.outputs(dataset, query=plan.query.name, limit=_NEWEST)
    releases = [release for release in map(Release.of, newest) if release.usefulness is not None]
    if not releases:
        return None
    last = releases[-1]
    mse = [sum(error**2 for error in release.standard_error) for release in releases if release.about == last.about]
    error = Error(sum(mse) / len(mse), 0.0, 0.0, last.no_data or 0.0, "recorded", "ledger", None, last.about)
    return {
        "usefulness": error.usefulness,
        "about": last.about,
        "level": last.level,
        "words": f"The estimate {error.in_words} ({about_words(last.about, plan.max_age)}).",
    }


def _ceiling(publisher: Standing, state: State | None, budget: float | None, *, changed: bool) -> float | None:
    """The largest leakage of the present at any moment from now on; None if none is proven.

    A budget that was lowered does not take back what was published before: that may still rise above it.
    """
    accountant = publisher.accountant
    if budget is not None:
        return budget if state is None else max(budget, accountant.peak(state))
    if changed:
        return None  # releases under an earlier plan may have read newer data than this plan does
    if publisher.plan.stale_limit:
        # Late readings leak more than planned ones, but no reading is newer than the smallest age.
        return max(component.cap(component.ages[0])[0] for component in accountant.components)
    return accountant.ceiling()


def _reason_kind(skip: Skipped) -> str:
    """The kind of reason why a tick has no output, for counting."""
    kinds = {
        "snapshots read so far": "not enough old readings yet",
        "needs all of them": "a reading was missing or too old",
        "no sequence was read": "no sequence was read",
        "above its limit": "refused by a limit",
        "is reserved but not committed": "lost: charged before, never published",
        "out of order": "older than the newest charged tick",
        "not over by the wall clock": "its time is not over by the wall clock",
    }
    return next((kind for words, kind in kinds.items() if words in skip.reason), "other reasons")


def not_promised(promises: Sequence[Promise]) -> tuple[str, ...]:
    """What the numbers do not promise."""
    from csdp.publisher.charge import GROWS

    always = (
        "A person who is in the data for a long time is not protected as a whole: the group epsilon bounds this, and "
        "grows with every release.",
        "Which readings are missing, when something is published, and that it is published are not hidden.",
        "Releases of the same readings outside of this dataset of this ledger are not counted.",
    )
    moment = next((promise for promise in promises if promise.name == "every_moment"), None)
    if moment is None:
        return ("Without a model nothing is promised about the present beyond the group epsilon.", *always)
    now = f"epsilon {as_text(moment.epsilon)} ({in_words(moment.epsilon)})"
    past = (
        f"What everything published reveals about any past state {GROWS}. So far it is {now}."
        if moment.grows
        else f"A past state is protected with {now}, as any moment is, and not like the present. Several moments of "
        "one sequence together are not covered by it, but by the window epsilon, if a window is named."
    )
    return (
        past,
        always[0],
        "The epsilons of the present and of any moment hold under the model. Sequences that depend on each other more "
        "strongly, or change more slowly, than the model says can leak more. The event epsilon holds regardless of the "
        "model; the group epsilon holds if sequences that are independent in the model really are.",
        *always[1:],
    )


def sentence(
    dataset: str,
    promises: Sequence[Promise],
    *,
    verdict: Verdict,
    newest: int | None,
    given: str = "",
) -> str:
    """One sentence to quote, which states what is proven and nothing more; `given`: what it is conditional on.

    If the data do not accept the model, it is about what holds under any model.
    """
    if newest is None:
        return f"Nothing has been published of {dataset} yet."
    by_name = {promise.name: promise.epsilon for promise in promises}
    event = by_name["event"]
    if verdict.status == "none" or not verdict.reliable:
        return (
            f"{verdict.brief}: of everything published of {dataset} up to tick {newest}, only the plain numbers may be "
            f"relied on. A single reading has plain differential privacy with epsilon {as_text(event)} "
            f"({in_words(event)}), under any model; nothing is certified about the present."
        )
    now = by_name["present"]
    moment = by_name["every_moment"]
    return (
        f"Everything published of {dataset} up to tick {newest} changes the odds between any two present states of any "
        f"one sequence by a factor of at most {odds_factor(now)} (epsilon {as_text(now)}: {in_words(now)}), for "
        f"an adversary {INFORMED}, if the sequences follow the model ({verdict.brief}){given}; between "
        f"any two states of it at any one tick, past or present, epsilon is at most {as_text(moment)} "
        f"({in_words(moment)}); a single reading has plain differential privacy with epsilon {as_text(event)}."
    )


def odds_factor(epsilon: float) -> str:
    """Format e to the power epsilon, rounded up.

    >>> odds_factor(0.2), odds_factor(math.inf)
    ('1.222', 'infinity')
    """
    return "infinity" if epsilon > 700 else as_text(math.exp(epsilon), 4)
