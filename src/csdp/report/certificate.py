"""What a release promises, to whom, and what it does not: in numbers, in words, and as a record to keep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from csdp.bounds.result import Leakage
from csdp.bounds.rounding import round_up, shown
from csdp.ledger import Ledger
from csdp.plan import ALGORITHM
from csdp.publisher import Publisher, Skipped, Standing
from csdp.publisher.terms import AGE_WORDS
from csdp.report.words import KNOWS

SCHEMA = "csdp/certificate/1"


@dataclass(frozen=True)
class Promise:
    """One guarantee: its name, the number now, the number that is never passed (None: it grows), and its meaning."""

    name: str
    epsilon: float
    ceiling: float | None
    protects: str
    holds: str


@dataclass(frozen=True)
class Certificate:
    """The guarantees of a dataset after a release, and what they rest on."""

    dataset: str
    plan: dict[str, Any]
    promises: tuple[Promise, ...]
    not_promised: tuple[str, ...]
    sentence: str
    assumptions: tuple[str, ...]
    limits: dict[str, float | None]
    counts: dict[str, Any]
    ledger: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the same for the same ledger: nothing in it depends on when or where it was made."""
        content = asdict(self)
        by_name = {promise.pop("name"): promise for promise in content.pop("promises")}
        return {"schema": SCHEMA, **content, "guarantees": by_name}

    def __getitem__(self, name: str) -> Promise:
        return next(promise for promise in self.promises if promise.name == name)


def certify(publisher: Publisher | Standing, ledger: Ledger, *, skipped: Sequence[Skipped] = ()) -> Certificate:
    """The certificate of a publisher's dataset as its ledger stands now."""
    found = publisher.summary()
    entry = ledger.summary(publisher.dataset)
    plan, accountant = publisher.plan, publisher.accountant
    changed = entry.changes > 0
    now = None if entry.state is None else accountant.leakage(accountant.restore(entry.state.accountant))
    times = () if entry.state is None else entry.state.times
    promises = (
        Promise(
            "present",
            found["present"],
            _ceiling(publisher, changed=changed),
            "the present state of each sequence, from everything published so far",
            f"against an adversary {KNOWS[plan.adversary]}, if the sequences follow the model",
        ),
        Promise(
            "event",
            found["event_level"],
            None if changed else round_up(accountant.event_level(plan.stale_limit) + publisher.fit_epsilon),
            "one reading of one sequence, from every release that reads it and every private fit of a chain",
            "plain differential privacy, under any model: against an adversary who knows every other reading",
        ),
        Promise(
            "group",
            found["group_level"],
            None,
            "all readings of all tied sequences together, from everything published so far",
            "plain differential privacy of the sequences that the model ties together, whatever ties them; grows with "
            "every release",
        ),
        Promise(
            "lifetime",
            found["lifetime"],
            None if changed else accountant.lifetime(stale=plan.stale_limit),
            "one reading, from all releases before and after it",
            "against an adversary who knows the model and every other reading of that tick, if the model holds",
        ),
    )
    return Certificate(
        dataset=publisher.dataset,
        plan={
            "digest": plan.digest,
            "chain_digest": plan.chain.digest,
            "algorithm": ALGORITHM,
            "query": plan.query.name,
            "ages": plan.ages[0] if len(set(plan.ages)) == 1 else list(plan.ages),
            "epsilon_c": plan.epsilon_c,
            "adversary": plan.adversary,
            "stale_limit": plan.stale_limit,
            "one_release": {"epsilon": plan.certified.epsilon, "bound": plan.certified.bound},
            "state": None if now is None else now.bound,
        },
        promises=promises,
        not_promised=not_promised(plan.epsilon_c, times),
        sentence=sentence(publisher.dataset, promises, adversary=plan.adversary, newest=entry.newest_tick),
        assumptions=_assumptions(publisher, now, times),
        limits=dict(publisher.limits),
        counts={
            "published": entry.committed,
            "lost": entry.lost,
            "refused": entry.refused,
            "newest_tick": entry.newest_tick,
            "without_output": dict(sorted(Counter(_kind(skip) for skip in skipped).items())),
        },
        ledger={"head_seq": entry.head_seq, "head_hash": entry.head_hash},
    )


def _ceiling(publisher: Publisher | Standing, *, changed: bool) -> float | None:
    """What the leakage of the present never passes, at any moment; None where nothing is proven without a limit."""
    budget = publisher.limits["budget"]
    if budget is not None:
        return budget
    if changed:
        return None  # releases under an earlier plan may have read newer data than this plan does
    accountant = publisher.accountant
    if publisher.plan.stale_limit:
        # Late readings cost more than planned ones, but nothing that was read is newer than the smallest age.
        return max(unit.cap(unit.ages[0])[0] for unit in accountant.units)
    return accountant.ceiling()


def _assumptions(publisher: Publisher | Standing, now: Leakage | None, times: Sequence[str]) -> tuple[str, ...]:
    """What the numbers rest on: the law of the past, the state that the accountant keeps, what must be public."""
    past = [words for words in publisher.plan.certified.assumptions if "law" in words]
    state = () if now is None else now.assumptions
    alone = "everything that was published of these readings is in this ledger, under this dataset"
    ages = (AGE_WORDS[kind] for kind in times)
    return tuple(dict.fromkeys((*past, *state, *publisher.plan.beliefs, alone, *ages)))


def _kind(skip: Skipped) -> str:
    """Why a tick has no output, in a few words that many ticks share."""
    kinds = {
        "snapshots read so far": "not enough old readings yet",
        "has not been read yet": "a sequence was never read",
        "older than planned": "a reading was too old",
        "above its limit": "refused by a limit",
        "is held": "held by another process, or lost with it",
        "is lost": "lost: charged before, never published",
        "out of order": "older than the newest charged tick",
        "not over by the wall clock": "its time is not over by the wall clock",
    }
    return next((kind for words, kind in kinds.items() if words in skip.reason), "other reasons")


def not_promised(epsilon_c: float, times: Sequence[str] = ()) -> tuple[str, ...]:
    """What no number above promises, said to whoever relies on them; `times`: what the times of the releases were."""
    return (
        f"Old readings are not protected like the present: each is exposed with noise epsilon_c = {epsilon_c:g} by "
        "every release that reads it.",
        "Someone who appears in the data for a long time is not protected as a whole; the group number says how little "
        "is left, and it grows with every release.",
        "The present and the lifetime number hold under the model. Sequences that are tied more strongly, or move more "
        "slowly, than the model says can leak more. The event number holds all the same; the group number does as long "
        "as sequences that the model does not tie are independent.",
        "Which readings are missing, when something is published and that it is published at all are not hidden.",
        "Releases of the same readings outside of this dataset of this ledger are not counted.",
        *(AGE_WORDS[kind] for kind in times if kind != "wall"),
    )


def sentence(dataset: str, promises: Sequence[Promise], *, adversary: str, newest: int | None) -> str:
    """One sentence to quote, that promises what was proven and nothing more."""
    if newest is None:
        return f"Nothing has been published of {dataset} yet."
    by_name = {promise.name: promise for promise in promises}
    now, event = by_name["present"].epsilon, by_name["event"].epsilon
    return (
        f"Everything published of {dataset} up to tick {newest} changes the odds between any two present states of any "
        f"one sequence by a factor of at most {factor(now)} (epsilon {shown(now)}), for an adversary "
        f"{KNOWS[adversary]}, if the sequences follow the model; a single past reading has plain differential privacy "
        f"with epsilon {shown(event)}."
    )


def factor(epsilon: float) -> str:
    """e to the power epsilon, rounded up.

    >>> factor(0.2), factor(math.inf)
    ('1.222', 'infinity')
    """
    return "infinity" if epsilon > 700 else shown(math.exp(epsilon), 4)
