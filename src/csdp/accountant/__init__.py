"""Continual leakage: what the whole published history tells about the present, tick by tick.

The accountant knows the plan and which ticks were released, never a value. Its state is the worst log ratio of the
published history given two values of the newest slice that it touches: one number for every pair of snapshots (metric),
or one number (scalar). A release adds its cost; a step in time shrinks it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.accountant.unit import Cost, Unit
from csdp.chain import Family, Model
from csdp.errors import CsdpError, InputError
from csdp.leakage import Leakage, Part, Setting, leakage, round_up
from csdp.plan import Plan
from csdp.queries import FoldQuery

Floats = npt.NDArray[np.float64]

__all__ = ["Accountant", "State"]

#: Ticks after which a history that has not settled is answered by the cap.
_LONGEST = 2000
#: A release whose reading is not finished: how many ticks ago, whether stale, its noise level as a share of the plan's.
Pending = tuple[int, bool, float]


@dataclass(frozen=True, eq=False)
class State:
    """What the accountant remembers after a tick.

    `slices[u]` is the state of unit u at the slice `tick - behind[u]`, the newest one that is finished there: `pending`
    releases (ticks ago, stale, share) still add to newer ones. `consecutive`: how many releases at consecutive ticks,
    all as planned, are the whole history (None where it is another), so that equal histories share their work.
    """

    tick: int
    behind: tuple[int, ...]
    slices: tuple[Floats, ...]
    pending: tuple[Pending, ...] = ()
    consecutive: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a ledger: a count where that says all, else the numbers."""
        if self.consecutive is not None:
            return {"tick": self.tick, "consecutive": self.consecutive}
        packed = [base64.b64encode(np.ascontiguousarray(s, dtype="<f8").tobytes()).decode() for s in self.slices]
        return {
            "tick": self.tick,
            "behind": list(self.behind),
            "sizes": [int(s.shape[0]) for s in self.slices],
            "slices": packed,
            "pending": [list(entry) for entry in self.pending],
        }


class Accountant:
    """Leakage of the present after any history of releases of a plan (or of several plans at the same ticks).

    Formal guarantee: `.leakage(state)` bounds, for every pair of presents that the adversary must not tell apart, the
    log ratio of the probabilities of everything published so far, under the model. Which readings were missing must not
    depend on values.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> accountant = Accountant(plan)
    >>> [round(accountant.after(n).epsilon, 4) for n in (1, 2, 3)], round(accountant.limit().epsilon, 3)
    ([0.1966, 0.2695, 0.2956], 0.31)
    """

    def __init__(self, plan: Plan, *, also: Sequence[Plan] = (), state: str = "auto") -> None:
        if state not in {"auto", "metric", "scalar"}:
            raise InputError(f"state: {state!r} given; 'auto', 'metric' or 'scalar'")
        for other in also:
            if other.chain != plan.chain or other.adversary != plan.adversary:
                raise InputError("accountant: plans released together must share the chain and the adversary")
        self.plans = (plan, *also)
        self.plan = plan
        self._kind = state
        self._consecutive: list[State] = []
        self._settled = False
        self._known: dict[int, Leakage] = {}
        self._peaks: dict[int, float] = {}

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The distinct components of the models."""
        models = self.plan.chain.members if isinstance(self.plan.chain, Family) else (self.plan.chain,)
        return tuple(unit for model in models for unit in _units(model, self.plans, self._kind))

    # ---- the rule ------------------------------------------------------------------------------------------------

    def start(self, tick: int = 0) -> State:
        """The state before any release."""
        return State(tick, tuple(unit.ages[-1] for unit in self.units), self._zeros, (), 0)

    def release(
        self, state: State, tick: int | None = None, *, stale: bool = False, epsilon_c: float | None = None
    ) -> State:
        """The state after one more release; `stale` where some reading was older than planned.

        `epsilon_c`: the noise level of this release where it is below the plan's; its cost shrinks in proportion.
        """
        tick = state.tick + 1 if tick is None else tick
        share = self._share(epsilon_c)
        if state.consecutive == 0:
            state = replace(state, tick=tick - 1)
        if tick <= state.tick:
            raise InputError(f"accountant: tick {tick} is not after tick {state.tick}")
        if state.consecutive is not None and tick == state.tick + 1 and not stale and share == 1.0:
            return replace(self._after_consecutive(state.consecutive + 1), tick=tick)
        return self._add(state, tick, stale, share)

    def _share(self, epsilon_c: float | None) -> float:
        """A noise level as a share of the plan's, rounded up."""
        if epsilon_c is None or epsilon_c == self.plan.epsilon_c:
            return 1.0
        if not 0 < epsilon_c < self.plan.epsilon_c or len(self.plans) > 1:
            raise InputError(
                f"accountant: epsilon_c {epsilon_c!r} given for one release; above 0, at most the plan's "
                f"{self.plan.epsilon_c:g}, and one plan only"
            )
        return min(1.0, math.nextafter(epsilon_c / self.plan.epsilon_c, math.inf))

    def _add(self, state: State, tick: int, stale: bool, share: float = 1.0) -> State:
        """Add the slices that no later release can read any more; the newer ones stay pending."""
        passed = tick - state.tick
        pending = (*((ago + passed, old, part) for ago, old, part in state.pending), (0, stale, share))
        slices, behind = [], []
        for unit, given, depth in zip(self.units, state.slices, state.behind, strict=True):
            oldest = unit.ages[-1]
            moved, here = _read(unit, given, depth + passed, pending, oldest, oldest + passed)
            slices.append(moved)
            behind.append(here)
        window = max(unit.ages[-1] - unit.ages[0] for unit in self.units)
        kept = tuple(entry for entry in pending if entry[0] < window)
        return State(tick, tuple(behind), tuple(slices), kept)

    def leakage(self, state: State, tick: int | None = None) -> Leakage:
        """Leakage of the present at a tick, given the state after the last release."""
        passed = 0 if tick is None else tick - state.tick
        if passed < 0:
            raise InputError(f"accountant: tick {tick} lies before tick {state.tick}, the newest that is charged")
        if state.consecutive is not None and passed == 0:
            return self._consecutive_leakage(state.consecutive)
        return self._leakage(state, passed)

    def peak(self, state: State) -> float:
        """The largest leakage of the present, now and at every later tick if nothing more is published.

        Quiet ticks may raise it for a while: a limit for every moment must be held against this.
        """
        if state.consecutive is None:
            return self._peak(state)
        self._after_consecutive(state.consecutive)
        at = min(state.consecutive, len(self._consecutive) - 1)
        if at not in self._peaks:
            self._peaks[at] = self._peak(self._consecutive[at])
        return self._peaks[at]

    def _peak(self, state: State) -> float:
        worst = 0.0
        for unit, given, depth in zip(self.units, state.slices, state.behind, strict=True):
            moved, here = _read(unit, given, depth, state.pending, 0, unit.ages[-1])
            worst = max(worst, unit.peak(moved, here))
        return round_up(worst)

    def _consecutive_leakage(self, count: int) -> Leakage:
        """Equal histories have equal leakage: computed once."""
        self._after_consecutive(count)
        at = min(count, len(self._consecutive) - 1)
        if at not in self._known:
            self._known[at] = self._leakage(self._consecutive[at], 0)
        return self._known[at]

    def _leakage(self, state: State, passed: int) -> Leakage:
        pending = tuple((ago + passed, old, share) for ago, old, share in state.pending)
        worst, why = 0.0, str(self.units[0].kind)
        for unit, given, depth in zip(self.units, state.slices, state.behind, strict=True):
            moved, here = _read(unit, given, depth + passed, pending, 0, unit.ages[-1] + passed)
            value, bound = unit.leakage(moved, here)
            if value > worst:
                worst, why = value, bound
        return self._answer(worst, why)

    def _answer(self, value: float, bound: str) -> Leakage:
        words = {
            "metric": "all releases so far; state kept for every pair of snapshots",
            "scalar": "all releases so far; one number for the whole history",
            "contraction": "all releases so far, any law of the past",
            "freshness": "any number of releases: all published data is at least this old",
            "lineage": "any number of releases, any law of the past",
            "none": "no bound: fresh data is published without end",
        }
        public = "which readings were missing must not depend on their values"
        return Leakage(
            epsilon=round_up(value),
            bound=bound if bound not in {"cap", "none"} else "lineage",
            sound=True,
            adversary=self.plan.adversary,
            assumptions=("the sequences follow the given model", words.get(bound, ""), public),
            reason="" if math.isfinite(value) else "infinite: no state and no cap applies",
        )

    # ---- questions -----------------------------------------------------------------------------------------------

    def after(self, releases: int, *, state: str | None = None) -> Leakage:
        """Leakage of the present after n releases at consecutive ticks, all as planned.

        `state`: "metric" or "scalar" asks for that rule alone; by default ("auto") the first release takes the smaller
        of the exact leakage and the state.
        """
        if isinstance(releases, bool) or not isinstance(releases, int) or releases < 1:
            raise InputError(f"after: {releases!r} releases given; a whole number, 1 or more")
        if state is not None and state != self._kind:
            return Accountant(self.plan, also=self.plans[1:], state=state).after(releases)
        answer = self.leakage(self._after_consecutive(releases))
        if releases > 1 or len(self.plans) > 1 or self._kind != "auto":
            return answer
        try:
            one = self._single_release
        except CsdpError:
            return answer
        return one if one.epsilon <= answer.epsilon else answer

    @cached_property
    def _single_release(self) -> Leakage:
        plan = self.plan
        return leakage(plan.chain, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary=plan.adversary)

    def _after_consecutive(self, releases: int) -> State:
        """The state after n consecutive releases; computed once, kept to its limit."""
        if not self._consecutive:
            self._consecutive.append(self.start(0))
        while len(self._consecutive) <= releases and not self._settled:
            last = self._consecutive[-1]
            fresh = self._add(replace(last, consecutive=None), last.tick + 1, stale=False)
            n = len(self._consecutive)
            self._consecutive.append(replace(fresh, consecutive=n))
            moved = _movement(last.slices, fresh.slices)
            if n > 1 + max(unit.ages[-1] for unit in self.units) and moved < 1e-6:
                self._settle(moved)
        at = min(releases, len(self._consecutive) - 1)
        found = self._consecutive[at]
        return replace(found, tick=releases, consecutive=releases)

    def _settle(self, moved: float) -> None:
        """Once the state hardly moves: raise it to one that a further release does not raise at all."""
        last = self._consecutive[-1]
        for factor in (4, 32, 256, 2048):
            excess = max(moved, 1e-11) * factor
            above = replace(last, slices=tuple(_raised(s, excess) for s in last.slices), consecutive=None)
            following = self._add(above, last.tick + 1, stale=False)
            if all((f <= a).all() for f, a in zip(following.slices, above.slices, strict=True)):
                self._consecutive.append(replace(above, tick=last.tick + 1, consecutive=len(self._consecutive)))
                self._settled = True
                return

    def limit(self) -> Leakage:
        """Leakage of the present in the long run, releasing at every tick for ever."""
        for n in range(1, _LONGEST):
            self._after_consecutive(n)
            if self._settled:
                return self.leakage(self._consecutive[-1])
            if all(unit.kind == "cap" for unit in self.units):
                break
        worst, why = max((unit.cap(unit.ages[0]) for unit in self.units), key=lambda cap: cap[0])
        return self._answer(worst, why)

    def lifetime(
        self, releases: int | None = None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after it, tell of one record: temporal privacy leakage, for ever by default.

        `earlier`: what releases under earlier plans add to one slice (`slice_cost`); `overlap`: whether this plan reads
        slices that they read.
        """
        found = (unit.lifetime(releases, stale=stale, earlier=earlier, overlap=overlap) for unit in self.units)
        return round_up(max(found))

    def slice_cost(self, stale: int = 0, *, any_model: bool = False) -> float:
        """What all releases together add to one slice, at most: under the chain, or under any model whatever."""
        if any_model:
            ages = [age for plan in self.plans for age in plan.ages]
            return self.history_cost() * (max(ages) - min(ages) + 1 + stale)
        return max(unit.alpha * (unit.ages[-1] - unit.ages[0] + 1 + stale) for unit in self.units)

    def event_level(self, stale: int = 0) -> float:
        """Plain epsilon-DP of one record: epsilon_c of every release that reads it (repeated readings count again)."""
        return round_up(sum(plan.epsilon_c for plan in self.plans) * (1 + stale))

    def group_level(self, releases: int = 1) -> float:
        """Plain DP of all records of all releases, of sequences that the model ties together, however tied."""
        return round_up(max(unit.alpha for unit in self.units) * releases)

    def history_cost(self) -> float:
        """What one release adds, at most, to the log ratio of the history under any model whatever."""
        return sum(
            plan.query.sensitivity(plan.model.sequences, plan.model.value_table) / plan.sensitivity * plan.epsilon_c
            for plan in self.plans
        )

    def newest_depth(self, state: State) -> int:
        """How many steps before the state's tick the newest reading lies that any release touched."""
        return min(unit.ages[0] for unit in self.units) if state.pending else min(state.behind)

    def largest(self, state: State) -> float:
        """The worst log ratio of the history given any two values of the newest slice it touches."""
        worst = 0.0
        for unit, given, depth in zip(self.units, state.slices, state.behind, strict=True):
            moved, _ = _read(unit, given, depth, state.pending, 0, unit.ages[-1])
            worst = max(worst, float(moved.max()))
        return worst

    def resume(self, cost: float, tick: int, depth: int) -> State:
        """A state for a history of which only its worst log ratio is known, `depth` before `tick`.

        Used when the plan or the chain of a live dataset changes: the old history counts whole between any two
        snapshots, at the newest slice it touched, and shrinks under the new chain from there.
        """
        slices = tuple(cost * (np.ones_like(zero) - np.eye(len(zero)) * (len(zero) > 1)) for zero in self._zeros)
        return State(tick, tuple(depth for _ in self.units), slices)

    @property
    def _zeros(self) -> tuple[Floats, ...]:
        return tuple(unit.nothing() for unit in self.units)

    def restore(self, content: dict[str, Any]) -> State:
        """A state from `State.to_dict`."""
        if "consecutive" in content:
            count = int(content["consecutive"])
            found = self._after_consecutive(count) if count else self.start()
            return replace(found, tick=int(content["tick"]), consecutive=count)
        slices = tuple(
            np.frombuffer(base64.b64decode(text), dtype="<f8").reshape(size, size).copy()
            for text, size in zip(content["slices"], content["sizes"], strict=True)
        )
        expected = [unit.nothing().shape for unit in self.units]
        if [s.shape for s in slices] != expected:
            raise InputError("accountant: the recorded state belongs to another chain or plan")
        pending = tuple((int(ago), bool(stale), float(share)) for ago, stale, share in content["pending"])
        return State(int(content["tick"]), tuple(int(d) for d in content["behind"]), slices, pending)


def _read(
    unit: Unit, given: Floats, behind: int, pending: Sequence[Pending], least: int, below: int
) -> tuple[Floats, int]:
    """Add what pending releases read at depths least <= depth < below, oldest first; a release `ago` ticks old read,
    at age a, the slice that is `ago + a` before now.
    """
    reads = [
        (ago + age, age, stale, share)
        for ago, stale, share in pending
        for age in unit.ages
        if least <= ago + age < below
    ]
    for depth, age, stale, share in sorted(reads, reverse=True):
        # Only after a change of plan can a release read behind the state; that part is then charged where the state is.
        back = depth > behind
        moved = unit.forward_in_time(given, 0 if back else behind - depth)
        given = unit.add(moved, age, stale=stale, behind=back, share=share)
        behind = min(behind, depth)
    return given, behind


def _raised(state: Floats, excess: float) -> Floats:
    """A little more between any two snapshots: what a step in time surely shrinks (a factor on each it may not)."""
    apart = 1.0 - np.eye(state.shape[0]) if state.shape[0] > 1 else np.ones((1, 1))
    return np.asarray(state + excess * float(state.max()) * apart)


def _movement(before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Largest change of a state, relative to its largest entry."""
    return max(float(np.abs(a - b).max() / max(b.max(), 1e-300)) for a, b in zip(before, after, strict=True))


def _units(model: Model, plans: Sequence[Plan], kind: str) -> list[Unit]:
    """The distinct components with their costs; components that are alike are counted once."""
    settings = [
        Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary=plan.adversary)
        for plan in plans
    ]
    labels = np.unique(np.column_stack([s.labels for s in settings]), axis=0, return_inverse=True)[1].ravel()
    units = []
    for members, _ in model.alike(labels):
        parts = [Part(setting, members) for setting in settings]
        ages = [plan.ages[i] for plan in plans for i in members]
        costs = [_cost(part) for part in parts]
        units.append(Unit(parts[0].model, ages=ages, costs=costs, adversary=plans[0].adversary, kind=kind))
    return units


def _cost(part: Part) -> Cost:
    """The cost of one plan in one component: whole, and per age where the query is a sum."""
    setting = part.setting
    query, table = setting.query, setting.model.value_table
    s, m = len(part.members), setting.model.states
    ages = [setting.ages[i] for i in part.members]
    if part.model.size > 1024:
        return Cost(part.alpha, {}, 0.0)
    states = np.array(np.unravel_index(np.arange(part.model.size), (m,) * s)).T
    if not isinstance(query, FoldQuery):
        if len(set(ages)) > 1:
            return Cost(part.alpha, {}, 0.0)
        return Cost(part.alpha, {ages[0]: tuple(part.custom_answers())}, setting.epsilon_c / setting.scale)
    parts = query.parts(table, part.members)
    chosen = parts[np.arange(s), states]  # (snapshots, s, d)
    rate = setting.epsilon_c / (setting.scale * query.divisor(table))
    if query.fold == "sum":
        old = np.asarray(ages)
        by_age: dict[int, tuple[Floats, ...]] = {a: (chosen[:, old == a].sum(axis=1),) for a in set(ages)}
        return Cost(part.alpha, by_age, rate)
    if len(set(ages)) > 1:
        return Cost(part.alpha, {}, 0.0)
    folded = chosen.max(axis=1) if query.fold == "max" else chosen.min(axis=1)
    return Cost(part.alpha, {ages[0]: tuple(part.variants(folded))}, rate)
