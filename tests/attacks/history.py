"""One history through publishers and a ledger, every certificate compared with the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attacks.cases import Case, PlanSpec, Step
from attacks.library import NAMES, CrashError, Tap, follow_sequences, make_plan
from attacks.plain import Truth, answers, leaves_out
from csdp.errors import CsdpError, InputError
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Publisher, Release, plan_estimator
from csdp.report.certificate import certify
from oracle import TooManyError

#: Worst histories beyond which nothing more is published: the truth takes too long.
MANY = 3_000
#: What a float of the truth may be off by.
RELATIVE, ABSOLUTE = 1e-9, 1e-11


@dataclass
class Finding:
    """A number that is below the truth, or something else that must not be."""

    what: str
    certified: float
    true: float
    tick: int
    seed: int = 0

    def __str__(self) -> str:
        return f"seed {self.seed}, tick {self.tick}: {self.what}: {self.certified!r}, true {self.true!r}"


@dataclass
class Outcome:
    """What came of one history."""

    findings: list[Finding] = field(default_factory=list)
    checks: int = 0
    releases: int = 0
    least: float = math.inf  #: smallest certified / true
    least_by: dict[str, float] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    refused: str = ""  #: why the library took none of it

    def compare(self, what: str, certified: float, true: float, tick: int) -> None:
        """A certificate is never below the truth."""
        self.checks += 1
        if math.isnan(certified) or certified < true * (1 - RELATIVE) - ABSOLUTE:
            self.findings.append(Finding(what, certified, true, tick))
        if true > 1e-6:
            self.least_by[what] = min(self.least_by.get(what, math.inf), certified / true)
            self.least = min(self.least, certified / true)

    def expect(self, what: str, found: bool, tick: int, *, seen: float = 0.0, wanted: float = 0.0) -> None:
        """Something that holds or does not."""
        self.checks += 1
        if not found:
            self.findings.append(Finding(what, seen, wanted, tick))


@dataclass
class Opened:
    """A publisher, the plan it runs under, and the rows that it took in."""

    publisher: Publisher
    spec: PlanSpec
    plan: Plan
    ledger: Ledger
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)


def states_of(publisher: Publisher) -> set[str]:
    """How the accountant follows the components of a plan, as tags; it is made here at the latest."""
    return {f"state {component.kind}" for component in publisher.accountant.components}


class Drive:
    """Carries out the steps of a case."""

    def __init__(self, case: Case, where: Path, tap: Tap, *, report: bool = False) -> None:
        self.case, self.where, self.tap = case, where, tap
        self.name = f"case-{case.seed}"
        self.out = Outcome()
        self.truth = Truth(case.s, case.m)
        random = np.random.default_rng([15, case.seed])
        self.data = random.integers(0, case.m, (64, case.s))
        self.seen: dict[int, tuple[int, ...]] = {}
        self.open: list[Opened | None] = [None, None]
        self.live = case.plans[0]
        self.limits = dict(case.limits)
        self.after = 0
        self.changed = 0
        self.report = report

    def run(self) -> Outcome:
        """The whole history; what the library refuses as a whole is no finding."""
        try:
            self.open[0] = self._opened(self.live, self.limits)
        except CsdpError as error:
            self.out.refused = f"{type(error).__name__}: {error}"
            return self.out
        self.truth.pay(self.live)
        self.ledger = Ledger.open(self.where)
        try:
            for step in self.case.steps:
                if self.truth.histories() > MANY:
                    break
                self._step(step)
            self._question(self.case.steps[-1].tick if self.case.steps else 0)
        except TooManyError:
            self.out.tags.add("cut short")
        finally:
            self.ledger.close()
            for place in (0, 1):
                gone, self.open[place] = self.open[place], None
                self._closed(gone)
        return self.out

    def _opened(self, spec: PlanSpec, limits: dict[str, float | None]) -> Opened:
        plan = make_plan(spec)
        with follow_sequences(spec.large):
            ledger = Ledger.open(self.where)
            try:
                publisher = Publisher(plan, dataset=self.name, ledger=ledger, on_refusal="skip", **limits)
                self.out.tags |= states_of(publisher)
            except BaseException:
                ledger.close()
                raise
        return Opened(publisher, spec, plan, ledger)

    def _closed(self, one: Opened | None) -> None:
        """End a publisher; one that took over from it by a change of plan goes on with its ledger."""
        if one is not None:
            one.publisher.close()
            if not any(other is not None and other is not one and other.ledger is one.ledger for other in self.open):
                one.ledger.close()

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        act = getattr(self, f"_{step.action}")
        self.tap.draws.clear()
        try:
            act(step)
        except CrashError:
            self.out.tags.add("lost ticks")
            self._settle(step.tick, [])
        except CsdpError as error:
            self.out.tags.add(f"refused: {type(error).__name__}")
            self._settle(step.tick, [])  # nothing came out, so nothing was drawn
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.out.expect(f"{type(error).__name__} at {step.action}", False, step.tick)
            self.tap.draws.clear()
            self._settle(step.tick, [])
        finally:
            self.tap.crash = False

    def _who(self, step: Step) -> Opened:
        chosen = self.open[step.who] or self.open[0]
        assert chosen is not None
        return chosen

    def _row(self, step: Step) -> tuple[int, ...]:
        row = tuple(-1 if i in step.missing else int(a) for i, a in enumerate(self.data[step.tick]))
        return self.seen.setdefault(step.tick, row)

    def _push(self, step: Step) -> None:
        one = self._who(step)
        row = self._row(step)
        if step.tick > max(one.rows, default=-1):
            one.rows[step.tick] = row
        released = one.publisher.push(list(row), time=step.tick)
        self._settle(step.tick, [(released, one, dict(one.rows))])

    def _crash(self, step: Step) -> None:
        self.tap.crash = True
        self._push(step)

    def _batch(self, step: Step) -> None:
        one = self._who(step)
        self._row(step)
        first = min(self.seen)
        gap = (-1,) * self.case.s
        rows = {t: self.seen.get(t, gap) for t in range(first, step.tick + 1)}
        order = list(range(self.case.s))
        if step.tick % 2 and self.case.s > 1:
            order.reverse()  # columns in another order, under their names
        table = np.array([[row[i] for i in order] for row in rows.values()])
        panel = Panel.from_states(table, names=[NAMES[i] for i in order], first_tick=first)
        batch = one.publisher.publish(panel)
        self._settle(step.tick, [(release, one, rows) for release in batch.releases])

    def _restart(self, step: Step) -> None:
        old = self._who(step)
        place = 0 if old is self.open[0] else 1
        spec = self.live if place == 0 else old.spec
        self._closed(old)
        self.open[place] = None
        again = self._opened(spec, self.limits)
        self._refill(again, step)
        self.open[place] = again
        self.out.tags.add("restart")

    def _refill(self, one: Opened, step: Step) -> None:
        """A restarted process reads the newest rows again, without publishing."""
        if not step.refill:
            return
        depth = one.plan.max_age + one.plan.stale_limit + 2
        for tick in sorted(t for t in self.seen if step.tick - depth <= t < step.tick):
            one.publisher.observe(list(self.seen[tick]), time=tick)
            one.rows[tick] = self.seen[tick]

    def _open(self, step: Step) -> None:
        self._closed(self.open[1])
        self.open[1] = None
        self.open[1] = self._opened(self.live, self.limits)
        self._refill(self.open[1], step)
        self.out.tags.add("several publishers")

    def _intrude(self, step: Step) -> None:
        """Somebody opens the dataset under a plan that it was not changed to; where this works, they publish."""
        spec = self.case.plans[step.plan]
        if spec is self.live:
            return
        self.out.tags.add("intruder")
        found = self._opened(spec, self.limits)
        self._refill(found, step)
        self._closed(self.open[1])
        self.open[1] = found

    def _change(self, step: Step) -> None:
        spec, before = self.case.plans[step.plan], self.live
        self._change_to(step, spec, None)
        self.out.tags.add("change of plan")
        if spec.models != before.models:
            self.out.tags.add("change of chain")
        if {model.direction for model in spec.models} != {model.direction for model in before.models}:
            self.out.tags.add("change of direction")

    def _tighten(self, step: Step) -> None:
        """The same plan under a lower budget: a change that holds for publishers that are open, too."""
        lower = (self.limits.get("budget") or 1.0) / 2
        self._change_to(step, self.live, lower)
        self.out.tags.add("lowered budget")

    def _change_to(self, step: Step, spec: PlanSpec, budget: float | None) -> None:
        old = self.open[0]
        assert old is not None
        plan = make_plan(spec)
        self._keep_estimator(old, plan, step.tick)
        with follow_sequences(spec.large):
            publisher = old.publisher.change_plan(plan, from_tick=step.tick, budget=budget)
            states = states_of(publisher)
        self.out.tags |= states
        for word, here, there in (("to", states, states_of(old.publisher)), ("from", states_of(old.publisher), states)):
            if "state vector" in here - there:
                self.out.tags.add(f"change {word} a vector state")
        fresh = Opened(publisher, spec, plan, old.ledger)
        publisher._on_refusal = "skip"
        self._closed(self.open[1])
        self.open = [fresh, old]  # the old one stays open, as in another process
        self.live, self.changed = spec, step.tick
        self.truth.pay(spec)
        if budget is not None:
            self.limits["budget"] = budget
        self._settle(step.tick, [])
        self._refill(fresh, step)

    def _keep_estimator(self, old: Opened, plan: Plan, tick: int) -> None:
        """The estimator of the plan before is given to the next one, whose numbers are not what it knows."""
        given = plan_estimator(old.plan)
        if given is None or plan.digest == old.plan.digest:
            return
        self.out.tags.add("estimator of another plan")
        try:
            old.publisher.change_plan(plan, from_tick=tick, estimator=given)
        except InputError:
            changed = any(entry.kind == "change" for entry in self.ledger.entries(self.name, after=self.after))
        else:
            changed = True
        self.out.expect("an estimator of another plan was taken", not changed, tick)

    # ---- what was recorded -------------------------------------------------------------------------------------------

    def _settle(self, tick: int, came: list[tuple[Any, Opened, dict[int, tuple[int, ...]]]]) -> None:
        """Compare what the ledger recorded since the last step with the truth after each of its lines."""
        by_tick = {r.tick: (r, one, rows) for r, one, rows in came if isinstance(r, Release)}
        draws = list(self.tap.draws)
        for entry in self.ledger.entries(self.name, after=self.after):
            self.after = entry.seq
            if entry.kind == "change":
                self.out.compare(
                    "present at a change", entry.data()["charge"]["present"], self._now(entry.tick - 1), tick
                )
            if entry.kind != "reserve":
                continue
            assert entry.tick is not None
            found = by_tick.get(entry.tick)
            if found is not None:
                release, one, rows = found
                self._published(release, one, rows, draws.pop(0))
                self.out.expect(
                    "the release says another leakage than the ledger",
                    release.epsilon_s == entry.data()["charge"]["present"],
                    tick,
                )
            self._charged(entry.tick, entry.data()["charge"])
        self.out.expect("noise was drawn without a charge", not draws, tick, seen=len(draws))

    def _published(self, release: Release, one: Opened, rows: dict[int, tuple[int, ...]], draw: Any) -> None:
        """Where its readings were, what it answered, and how noisy: from the tap and the rows that were given."""
        spec, plan, tick = one.spec, one.plan, release.tick
        first = min(rows)
        reads, used = [], []
        for i, age in enumerate(spec.ages):
            oldest = max(first, tick - age - spec.stale_limit)
            known = [t for t, row in rows.items() if oldest <= t <= tick - age and row[i] >= 0]
            used += [i] if known else []
            reads.append(max(known, default=tick - age))
        self.out.expect(
            "a sequence without a reading was published", leaves_out(spec.ask) or len(used) == len(reads), tick
        )
        self.out.expect("nothing was read", bool(used), tick)
        if leaves_out(spec.ask):
            self.out.expect("another count", release.count == len(used), tick, seen=release.count, wanted=len(used))
        late = max((tick - age - n for n, age in zip(reads, spec.ages, strict=True)), default=0)
        self.out.expect("another staleness", late == release.stale, tick, seen=release.stale, wanted=late)
        if late:
            self.out.tags.add("stale readings")
        if len(used) < len(reads):
            self.out.tags.add("missing sequences")
        scale, steps = draw
        level = plan.at(plan.level(tick))
        table = answers(spec.ask, spec.models[0].values, self.case.s, self.case.m, used)
        divisor = len(used) if spec.ask.name == "mean" else plan.divisor
        number = 0
        for i, n in enumerate(reads):
            number = number * self.case.m + (max(0, rows[n][i]) if i in used else 0)
        answer = np.asarray(release.values) - np.asarray(steps, dtype=float) * level.step / divisor
        error = float(np.abs(answer - table[number]).max())
        self.out.expect("the answer is not that of the query", error < 1e-6, tick, seen=error)
        self.truth.add(tuple(reads), table, float(divisor / (float(scale) * level.step)))
        self.out.releases += 1

    def _now(self, tick: int) -> float:
        return self.truth.present(self.live, self._from(tick))[0]

    def _from(self, tick: int) -> int:
        """The truth is asked at a tick by which everything has been read."""
        return max([tick, *(n for o in self.truth.outputs for n in o.reads)])

    def _charged(self, tick: int, charge: dict[str, Any]) -> None:
        truth = self.truth.present(self.live, self._from(tick))
        self.out.compare("present", charge["present"], truth[0], tick)
        self.out.compare("peak", charge["peak"], max(truth), tick)
        self.out.compare("event", charge["event"], self.truth.event(), tick)
        limit = self.limits.get("budget")
        if limit is not None:
            self.out.compare("budget", limit, max(truth), tick)
        if self.limits.get("event_limit") is not None:
            self.out.compare("event limit", self.limits["event_limit"], self.truth.event(), tick)  # type: ignore
        self.out.compare("every moment", charge["every_moment"], self.truth.every_moment(self.live), tick)
        if self.limits.get("moment_limit") is not None:
            self.out.compare("moment limit", self.limits["moment_limit"], self.truth.every_moment(self.live), tick)  # type: ignore
        if self.limits.get("window") is not None:
            window = self.truth.window(int(self.limits["window"]))  # type: ignore
            self.out.compare("window", charge["window"], window, tick)
            if self.limits["window_limit"] is not None:
                self.out.compare("window limit", self.limits["window_limit"], window, tick)

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _question(self, tick: int) -> None:
        """What the publishers say in the end, and one that is opened only now."""
        fresh = self._opened(self.live, self.limits)
        try:
            self._asked("", fresh, tick)
        finally:
            self._closed(fresh)
        for place, one in enumerate(self.open):
            if one is not None and (place or self.report):
                try:
                    self._asked(" of a live publisher" if place == 0 else " of a stale publisher", one, tick)
                except CsdpError as error:
                    self.out.tags.add(f"refused: {type(error).__name__}")

    def _asked(self, who: str, one: Opened, tick: int) -> None:
        newest = self.ledger.summary(self.name).newest_tick
        if newest is None:
            return
        newest = max(newest, self.changed - 1)  # a change of plan moves the state to the tick before it
        later = self.case.seed % 4
        summary = one.publisher.summary(time=newest + later if later else None)
        truth = self.truth.present(self.live, self._from(newest))
        compare = self.out.compare
        compare(f"summary present{who}", summary["present"], truth[later], newest + later)
        compare(f"summary event{who}", summary["event_level"], self.truth.event(), newest)
        compare(f"summary group{who}", summary["group_level"], self.truth.group(self.live), newest)
        compare(f"summary every moment{who}", summary["every_moment"], self.truth.every_moment(self.live), newest)
        left = one.publisher.remaining(time=newest + 1)
        limits = one.publisher.limits
        window = 0.0 if limits["window"] is None else self.truth.window(int(limits["window"]))
        if limits["window"] is not None:
            compare(f"summary window{who}", summary["window_level"], window, newest)
        if "budget" in left:
            compare(f"remaining budget{who}", limits["budget"] - left["budget"], min(truth[1], limits["budget"]), tick)
        records = {"event_limit": self.truth.event(), "moment_limit": self.truth.every_moment(self.live)}
        for name, used in {**records, "window_limit": window}.items():
            if name in left:
                compare(f"remaining {name}{who}", limits[name] - left[name], min(used, limits[name]), tick)
        compare(f"guarantee of one release{who}", summary["guarantee"]["one_release"], self._one(one), tick)
        if self.report and not who:
            self._certificate(one, truth, newest)
            self.out.expect("the ledger does not verify", self.ledger.verify(self.name) == [], tick)

    def _one(self, one: Opened) -> float:
        """What a single release of a plan, as planned, tells."""
        spec, plan = one.spec, one.plan
        table = answers(spec.ask, spec.models[0].values, self.case.s, self.case.m)
        alone, tick = Truth(self.case.s, self.case.m), 20
        rate = float(plan.divisor / (float(plan.scale) * plan.step))
        alone.add(tuple(tick - age for age in spec.ages), table, rate)
        return alone.present(spec, tick)[0]

    def _certificate(self, one: Opened, truth: list[float], newest: int) -> None:
        """The promises of the report: the number now, and the one that is never passed."""
        certificate = certify(one.publisher, self.ledger)
        now = {
            "present": (truth[0], max(truth)),
            "event": (self.truth.event(),) * 2,
            "group": (self.truth.group(self.live),) * 2,
            "every_moment": (self.truth.every_moment(self.live),) * 2,
        }
        if self.limits.get("window") is not None:
            now["window"] = (self.truth.window(int(self.limits["window"])),) * 2  # type: ignore
        for name, (here, ever) in now.items():
            self.out.compare(f"report {name}", certificate[name].epsilon, here, newest)
            if certificate[name].ceiling is not None:
                self.out.compare(f"report ceiling {name}", certificate[name].ceiling, ever, newest)
