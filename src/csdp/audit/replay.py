"""Replay of a ledger: every leakage it records is recomputed from the plans, the charged ticks and the gaps.

The recorded states of the accountant are not trusted: the replay starts an accountant of its own. Its input is in the
ledger: the plans (with their chains), which ticks were charged, and which releases read older data than planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from csdp.accountant import Accountant, Lateness, State
from csdp.bounds.result import as_text
from csdp.chain import join_fits, recorded_fits
from csdp.errors import AlteredPlanError, InputError, LedgerError
from csdp.ledger import Charge, DatasetState, Entry, Ledger, PrivacyLimits, Terms
from csdp.plan import ALGORITHM, Plan, check_supported
from csdp.publisher.charge import LIMITED, DatasetAccount, earlier_costs

#: Relative difference allowed for another machine, and for the solver of another version, whose bounds hold as well.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Finding:
    """Something wrong in a ledger; `recorded` and `recomputed` if it is a number."""

    dataset: str | None
    seq: int | None
    tick: int | None
    what: str
    recorded: float | None = None
    recomputed: float | None = None

    def __str__(self) -> str:
        where = "" if self.dataset is None else f"dataset {self.dataset!r}: "
        entry = "" if self.seq is None else f"entry {self.seq}: "
        tick = "" if self.tick is None else f"tick {self.tick}: "
        return where + entry + tick + self.what


@dataclass(frozen=True)
class Replay:
    """Result of a replay: findings (none if `ok`), and notes on what could not be recomputed.

    `charges`: how many were replayed, by dataset. `left_out`: charges under plans that cannot be read back, which
    nothing is said about.
    """

    datasets: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    charges: dict[str, int] = field(repr=False)
    left_out: int = 0

    def __repr__(self) -> str:
        return f"Replay({self.verdict})"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """The result in words."""
        charges = sum(self.charges.values())
        datasets = "1 dataset" if len(self.datasets) == 1 else f"{len(self.datasets)} datasets"
        result = "no leakage is recorded too low" if self.ok else f"{len(self.findings)} findings"
        left = f"; {self.left_out:,} charges could NOT be replayed" if self.left_out else ""
        return f"{charges:,} charges of {datasets} replayed: {result}{left}"

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "datasets": list(self.datasets),
            "charges": self.charges,
            "findings": [{**vars(finding), "words": str(finding)} for finding in self.findings],
            "notes": list(self.notes),
            "left_out": self.left_out,
        }


def replay(
    ledger: Ledger,
    *,
    dataset: str | None = None,
    plans: Iterable[Plan] = (),
    head: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Replay:
    """Recompute every leakage that a ledger records, and verify its hash chain.

    Reported: a leakage of the present or of any moment, a peak or a plain level below the recomputed one; a recomputed
    value above a limit of the dataset; an output without its charge; whatever `Ledger.verify` finds.

    Args:
        ledger: the ledger.
        dataset: one dataset only; by default all.
        plans: plans to use if the ledger's own copy cannot be read back (custom queries); each must be recorded.
        head: head hash of the dataset, noted earlier.
        progress: called with (text, done, total).

    >>> import tempfile
    >>> from csdp import CoupledChain, Mean
    >>> from csdp.publisher import Publisher
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.db") as ledger:
    ...     publisher = Publisher(plan, dataset="ward-7", ledger=ledger, budget=0.3)
    ...     _ = [publisher.push([0], time=tick) for tick in range(4)]
    ...     replay(ledger).verdict
    '3 charges of 1 dataset replayed: no leakage is recorded too low'
    """
    own_plans = {plan.digest: plan for plan in plans}
    names = [ledger.dataset(dataset).name] if dataset is not None else [each.name for each in ledger.datasets()]
    problems = ledger.verify(dataset, head=head)
    findings = [Finding(problem.dataset, problem.seq, None, problem.what) for problem in problems]
    notes: list[str] = []
    charges: dict[str, int] = {}
    recorded: set[str] = set()
    left_out = 0
    for name in names:
        terms = ledger.history(name)
        recorded |= {one.plan_digest for one in terms}
        run = _DatasetReplay(name, {one.number: one for one in terms}, own_plans)
        total = ledger.summary(name).head_seq
        outputs = _read_outputs(ledger, name, run)
        for done, entry in enumerate(ledger.entries(name), start=1):
            run.replay_entry(entry, outputs.get(entry.seq))
            if progress is not None:
                progress(f"replaying {name}", done, total)
        findings += run.findings
        notes += run.notes
        charges[name] = run.charges
        left_out += run.left_out
    for digest in own_plans:
        if digest not in recorded:
            words = f"no dataset was published under the plan {digest[:12]} that was given"
            findings.append(Finding(None, None, None, words))
    return Replay(tuple(names), tuple(findings), tuple(notes), charges, left_out)


def _read_outputs(ledger: Ledger, name: str, run: _DatasetReplay) -> dict[int, dict[str, Any]]:
    """Every committed output, by the entry number of its commit and by that of its charge."""
    outputs: dict[int, dict[str, Any]] = {}
    for entry in ledger.entries(name, kind="commit"):
        try:
            payload = entry.data()
            output = payload.get("output") or next(ledger.published(name, after=entry.seq - 1)).output
            outputs[entry.seq] = outputs[int(payload["reserve"])] = output
        except (KeyError, TypeError, ValueError, LedgerError) as error:
            run.notes.append(f"dataset {name!r}: entry {entry.seq}: its output cannot be read ({error})")
    return outputs


class _DatasetReplay:
    """The replay of one dataset, entry by entry."""

    def __init__(self, name: str, terms: Mapping[int, Terms], plans: Mapping[str, Plan]) -> None:
        self.name = name
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.charges = 0
        self._terms, self._plans = terms, plans
        self._account: DatasetAccount | None = None
        self._state: State | None = None
        self._limits = PrivacyLimits()
        #: what records have cost so far; the state of the accountant stands beside it
        self._spent = DatasetState()
        #: epsilon of every private fit that the plans so far rest on
        self._fits: dict[str, float] = {}
        self._charged: dict[int, float] = {}
        self.left_out = 0

    def replay_entry(self, entry: Entry, published: dict[str, Any] | None) -> None:
        """Replay one entry, given the output that was committed for it."""
        try:
            if entry.kind in {"open", "change"}:
                self._set_plan(entry)
            elif entry.kind == "reserve" and self._account is None:
                self.left_out += 1
            elif entry.kind == "reserve":
                self._charge(entry, published)
            elif entry.kind == "commit" and published is not None:
                self._check_output(entry, published)
        except InputError as error:
            self._report(entry, f"cannot be replayed ({error})")
        except (AssertionError, KeyError, TypeError, ValueError):
            self._report(entry, "its payload cannot be read")

    # ---- plans -------------------------------------------------------------------------------------------------

    def _set_plan(self, entry: Entry) -> None:
        payload = entry.data()
        terms = self._terms[payload["number"]]
        before = self._account
        state = self._state
        self._account = None
        check_supported(terms.plan_json)
        self._limits = terms.limits
        self._fits = join_fits(self._fits, recorded_fits([terms.plan_json]))
        plan = self._plan(entry, terms)
        if plan is not None and not plan.verdict.reliable:
            self.notes.append(f"dataset {self.name!r}: {plan.verdict.words}")
        if plan is None:
            return
        if entry.kind == "change" and before is None:  # what a plan that cannot be read back has released is not known
            return
        self._account = DatasetAccount(self.name, grid=terms.grid, accountant=Accountant(plan), fits=self._fits)
        if before is None:
            self._state = self._account.accountant.start()
            return
        assert entry.tick is not None
        self._state = self._take_over(before, state, self._account, entry.tick)
        recomputed = self._account.accountant.leakage(self._state).epsilon if self._spent.cost > 0 else 0.0
        self._compare(entry, "the leakage of the present after the change", payload["charge"]["present"], recomputed)

    def _plan(self, entry: Entry, terms: Terms) -> Plan | None:
        """The plan of some terms: one of the caller's plans, or the recorded one."""
        try:
            plan = self._plans.get(terms.plan_digest) or Plan.from_json(terms.plan_json)
        except AlteredPlanError:
            self._report(entry, "the chain of the recorded plan does not have the recorded digest")
            return None
        except InputError as error:
            words = f"its plan cannot be read back ({error}); if its query is custom, give it with plans=[...]"
            self.notes.append(f"dataset {self.name!r}: entry {entry.seq}: {words}")
            return None
        if plan.digest != terms.plan_digest:
            self._report(entry, "the recorded plan does not have the recorded digest: altered, or of another version")
        if plan.chain.digest != terms.chain_digest:
            self._report(entry, "the chain of the recorded plan does not have the recorded digest")
        return plan

    def _take_over(self, old: DatasetAccount, state: State | None, new: DatasetAccount, from_tick: int) -> State:
        """Start the new plan's accountant from the leakage of the old history: its worst log ratio, at the newest
        slice that it read.
        """
        spent = self._spent
        if state is None or not spent.cost > 0:
            return new.accountant.start(from_tick - 1)
        earlier = earlier_costs(old, spent, state.tick, new.plan, from_tick)
        self._spent = DatasetState(cost=spent.cost, earlier=earlier)
        return new.accountant.take_over(old.accountant, state, tick=from_tick - 1, cost=spent.cost)

    # ---- charges -----------------------------------------------------------------------------------------------

    def _charge(self, entry: Entry, published: dict[str, Any] | None) -> None:
        assert self._account is not None
        assert entry.tick is not None
        account, accountant = self._account, self._account.accountant
        charge = Charge.from_record(entry.data()["charge"])
        if charge.algorithm not in {None, ALGORITHM}:
            self.notes.append(
                f"dataset {self.name!r}: entry {entry.seq}: charged by version {charge.algorithm} of the algorithm, "
                f"replayed by {ALGORITHM}"
            )
        plan = account.plan
        if plan.schedule is not None:
            assert charge.epsilon_c is not None
            recorded, scheduled = float(charge.epsilon_c), plan.level(entry.tick)
            if recorded != scheduled:
                words = f"charged at noise level {recorded:g}, the schedule says {scheduled:g}"
                self._report(entry, words, recorded, scheduled)
        stale, state = self.advance(entry, charge, published)
        self._state = state
        spent = self._spent = replace(
            self._spent,
            releases=self._spent.releases + 1,
            stale=max(self._spent.stale, stale),
            cost=self._spent.cost + accountant.history_cost(),
        )
        present, peak = accountant.charge(state)
        self._charged[entry.seq] = present
        self.charges += 1
        limits = self._limits
        self._compare(entry, "the leakage of the present", charge.present, present)
        self._compare(entry, "the largest leakage from here on", charge.peak, peak)
        self._compare(entry, LIMITED["event_limit"], charge.event, account.event(spent))
        if charge.every_moment is not None:  # until 0.2 it was recorded if it was limited
            self._compare(entry, LIMITED["moment_limit"], charge.every_moment, account.every_moment(spent))
        if charge.window is not None and limits.window is not None:
            self._compare(entry, LIMITED["window_limit"], charge.window, account.window(spent, limits.window))
        self._check_limit(entry, "budget", limits.budget, lambda: peak)
        for name, value in account.spent_on_records(spent, limits).items():
            self._check_limit(entry, name, getattr(limits, name), value)

    def advance(self, entry: Entry, charge: Charge, published: dict[str, Any] | None) -> tuple[int, State]:
        """Staleness of a charged tick and the state after it.

        The charge records which sequences were late, the output how late the latest was. A tick that was charged and
        lost has no output: without such a record it counts as stale only if the recorded charge is too large for a
        planned release.
        """
        assert self._account is not None
        assert entry.tick is not None
        sequences = self._account.plan.model.sequences
        if charge.late is not None:
            late = Lateness.from_record(charge.late)
            if published is not None and int(published["stale"]) != late.worst:
                words = "the readings that are recorded as late are not as late as the output says"
                self._report(entry, words, float(late.worst), float(published["stale"]))
                return int(published["stale"]), self._release(entry.tick, stale=True)
            count = sequences if published is None else published.get("count", sequences)
            if late.missing and published is not None and count != sequences - len(late.missing):
                words = "the readings that are recorded as missing are not as many as the output leaves out"
                self._report(entry, words, float(len(late.missing)), float(sequences - count))
                return late.worst, self._release(entry.tick, stale=Lateness(late.by_delay, unnamed=True))
            return late.worst, self._release(entry.tick, stale=late)
        recorded = float(charge.present)
        planned = self._release(entry.tick, stale=False)
        if published is not None:
            stale = int(published["stale"])
            unnamed = Lateness(unnamed=published.get("count", sequences) < sequences)
            return stale, self._release(entry.tick, stale=bool(stale) or unnamed)
        if recorded <= self._account.accountant.leakage(planned).epsilon * (1 + TOLERANCE):
            return 0, planned
        return 1, self._release(entry.tick, stale=True)

    def _release(self, tick: int, *, stale: bool | Lateness) -> State:
        assert self._account is not None
        assert self._state is not None
        level = self._account.plan.level(tick)
        return self._account.accountant.release(self._state, tick, stale=stale, epsilon_c=level)

    def _check_output(self, entry: Entry, output: dict[str, Any]) -> None:
        if output.get("unsafe"):
            self._report(entry, "published with noise from a seed, which gives no protection")
        present = self._charged.get(entry.data()["reserve"])
        if present is not None and "epsilon_s" in output:
            self._compare(entry, "the leakage published with the output", output["epsilon_s"], present)

    # ---- findings ----------------------------------------------------------------------------------------------

    def _compare(self, entry: Entry, what: str, recorded: Any, recomputed: float) -> None:
        value = float(recorded)
        if math.isnan(value) or value < recomputed * (1 - TOLERANCE):
            words = f"{what} is recorded as {value:.6g}, below {as_text(recomputed)}, which it is"
            self._report(entry, words, value, recomputed)

    def _check_limit(self, entry: Entry, limit: str, allowed: float | None, compute: Callable[[], float]) -> None:
        value = 0.0 if allowed is None else compute()
        if allowed is not None and value > float(allowed) * (1 + TOLERANCE):
            words = f"charged although {as_text(value)} is above the {limit} {float(allowed):g}"
            self._report(entry, words, float(allowed), value)

    def _report(self, entry: Entry, what: str, recorded: float | None = None, recomputed: float | None = None) -> None:
        self.findings.append(Finding(self.name, entry.seq, entry.tick, what, recorded, recomputed))
