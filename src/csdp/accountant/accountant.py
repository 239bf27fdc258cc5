"""The accountant: how much the whole published history reveals about the present, tick by tick.

It knows the plan and which ticks were released, never a value. Its state is the worst log ratio of the published
history given two values of the newest slice that the history touches: one number for every pair of snapshots (metric),
one number (scalar), or numbers for every sequence (vector, slice). A release adds its cost; a step in time shrinks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from csdp.accountant import answers
from csdp.accountant.answers import make_answer
from csdp.accountant.component import PEAK_STEPS
from csdp.accountant.components import build_components
from csdp.accountant.lateness import Lateness, Stale, simplify_stale
from csdp.accountant.protocol import AccountedComponent, can_follow_missing, worst_component
from csdp.accountant.state import ConsecutiveHistory, State, add_pending
from csdp.arrays import Floats
from csdp.bounds.result import Leakage, round_up
from csdp.errors import CsdpError, InputError
from csdp.plan import Plan

#: Ticks after which a history that has not settled is answered by the cap.
_LONGEST = 2000
#: Releases for which a metric state is followed one by one: at least, and pairs of snapshots over all of them.
_FOLLOWED, _METRIC_WORK = 24, 4096
#: Joint states up to which the exact leakage of a first release is followed while it ages.
EXACT_LATER = 1024
#: A leakage, rounded up, and the bound that gives it, or the answer that it comes from.
Told = tuple[float, str | Leakage]


class Accountant:
    """Leakage of the present after any history of releases of a plan.

    Formal guarantee: `.leakage(state)` bounds, for every pair of presents that the adversary must not tell apart, the
    log ratio of the probabilities of everything published so far, under the model. Which readings were missing must not
    depend on values.

    Args:
        plan: the plan that is released.
        state: "metric", "scalar" or "vector"; "auto" takes the sharpest that fits, component by component, and where
            neither of two always is, the smaller at every moment.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> accountant = Accountant(plan)
    >>> [round(accountant.after(n).epsilon, 4) for n in (1, 2, 3)], round(accountant.limit().epsilon, 3)
    ([0.1966, 0.2695, 0.2956], 0.31)
    """

    def __init__(self, plan: Plan, *, state: str = "auto") -> None:
        if state not in {"auto", "metric", "scalar", "vector"}:
            raise InputError(f"state: {state!r} given; 'auto', 'metric', 'scalar' or 'vector'")
        self.plan, self._kind = plan, state
        self._known: dict[int, Told] = {}
        self._peaks: dict[int, float] = {}
        self._single: dict[int, Leakage | None] = {}

    @cached_property
    def components(self) -> tuple[AccountedComponent, ...]:
        """The distinct components of the models."""
        return tuple(component for _, component in self._by_model)

    @cached_property
    def _by_model(self) -> list[tuple[str, AccountedComponent]]:
        """The distinct components of the models, each with the digest of its model."""
        return [
            (model.digest, component)
            for model in self.plan.chain.members
            for component in build_components(model.given_path(), self.plan, self._kind)
        ]

    # ---- the rule ------------------------------------------------------------------------------------------------

    def start(self, tick: int = 0) -> State:
        """The state before any release."""
        behind = tuple(component.oldest for component in self.components)
        return State(tick, behind, tuple(component.initial_state() for component in self.components), (), 0)

    def release(
        self,
        state: State,
        tick: int | None = None,
        *,
        stale: Stale = False,
        epsilon_c: float | None = None,
    ) -> State:
        """The state after one more release.

        Args:
            state: the state before it.
            tick: its tick, after that of the state; by default the next one.
            stale: whether some reading was older than planned; better, which and by how much, and which were missing
                (`Lateness`): where sequences are followed one by one, these cost nothing.
            epsilon_c: the noise level of this release where it is below the plan's; its cost shrinks in proportion.
        """
        tick = state.tick + 1 if tick is None else tick
        share = 1.0 if epsilon_c is None else answers.level_share(self.plan, epsilon_c)
        if state.consecutive == 0:
            state = replace(state, tick=tick - 1)
        if tick <= state.tick:
            raise InputError(f"accountant: tick {tick} is not after tick {state.tick}")
        if isinstance(stale, Lateness):
            stale = simplify_stale(stale, delays=self.follows_delays, missing=self.follows_missing)
        if state.consecutive is not None and tick == state.tick + 1 and not stale and share == 1.0:
            return replace(self.history(state.consecutive + 1), tick=tick)
        return self._add(state, tick, stale=stale, share=share)

    @cached_property
    def follows_delays(self) -> bool:
        """Whether it matters which readings were late: where some component is followed sequence by sequence."""
        return any(component.follows_delays for component in self.components)

    @cached_property
    def follows_missing(self) -> bool:
        """Whether missing readings cost nothing: where sequences are followed one by one, and states are not large."""
        return can_follow_missing(self.components)

    def _add(self, state: State, tick: int, *, stale: Stale, share: float = 1.0) -> State:
        """Add the slices that no later release can read any more; the newer ones stay pending."""
        passed = tick - state.tick
        pending = (*state.pending_after(passed), (0, stale, share))
        slices, behind = [], []
        for component, before, depth in zip(self.components, state.slices, state.behind, strict=True):
            oldest = component.oldest
            after, newest = add_pending(
                component, before, depth + passed, pending, least=oldest, below=oldest + passed, is_new=True
            )
            slices.append(after)
            behind.append(newest)
        unfinished = tuple(entry for entry in pending if entry[0] < self._window)
        return State(tick, tuple(behind), tuple(slices), unfinished)

    @cached_property
    def _window(self) -> int:
        """Ticks for which some reading of a release lies at a slice that later ones read too."""
        return max(component.oldest - component.ages[0] for component in self.components)

    def _newest(self, state: State, passed: int = 0) -> Iterator[tuple[AccountedComponent, Floats, int]]:
        """Every component, its state at the newest slice touched, and how far back that lies `passed` ticks later."""
        pending = state.pending_after(passed)
        for component, before, depth in zip(self.components, state.slices, state.behind, strict=True):
            below = component.oldest + passed
            after, newest = add_pending(component, before, depth + passed, pending, least=0, below=below)
            yield component, after, newest

    def leakage(self, state: State, tick: int | None = None) -> Leakage:
        """Leakage of the present at a tick, given the state after the last release."""
        told, why = self._tell(state, tick)
        return why if isinstance(why, Leakage) else make_answer(self.plan, told, why)

    def epsilon(self, state: State, tick: int | None = None) -> float:
        """The number of `leakage` alone, without its words: what a charge needs at every tick."""
        return self._tell(state, tick)[0]

    def _tell(self, state: State, tick: int | None) -> Told:
        passed = 0 if tick is None else tick - state.tick
        if passed < 0:
            raise InputError(f"accountant: tick {tick} lies before tick {state.tick}, the newest that is charged")
        if state.consecutive is not None and passed == 0:
            told = self._tell_consecutive(state.consecutive)
        else:
            told = self._tell_followed(state, passed)
            told = self._sharpen(told, passed) if state.consecutive == 1 else told
        whole = self._whole_cost(state)
        return told if told[0] <= whole else (whole, "group")

    def _whole_cost(self, state: State) -> float:
        """What all releases together reveal, however the sequences are tied; infinite if their number is not known."""
        return self.group_level(state.consecutive) if state.consecutive else math.inf

    def _sharpen(self, told: Told, passed: int) -> Told:
        """After a first release, as planned, its exact leakage some ticks after it, where that is smaller and quick."""
        large = passed and any(component.model.size > EXACT_LATER for component in self.components)
        if self._kind != "auto" or large:
            return told
        if passed not in self._single:
            self._single[passed] = None
            with suppress(CsdpError):
                self._single[passed] = self.plan.one_release(passed)
        one = self._single[passed]
        return (one.epsilon, one) if one is not None and one.epsilon <= told[0] else told

    def peak(self, state: State) -> float:
        """The largest leakage of the present, now and at every later tick if nothing more is published.

        Ticks without a release may raise it for a while: a limit for every moment must be compared with this.
        """
        if state.consecutive is None:
            return self._peak(state)
        at = self._history.place(state.consecutive)
        if at not in self._peaks:
            self._peaks[at] = self._peak(self._history.states[at])
        return min(self._peaks[at], self._whole_cost(state))

    def _peak(self, state: State) -> float:
        if state.consecutive == 1 and self._kind == "auto":
            worst = self.epsilon(state)
            for later in range(1, PEAK_STEPS + 1):
                if self._decaying_bound(state, later) <= worst:
                    return worst
                worst = max(worst, self.epsilon(state, state.tick + later))
            return max(worst, self._decaying_bound(state, PEAK_STEPS + 1))
        return round_up(max(component.peak(now, depth) for component, now, depth in self._newest(state)))

    def _decaying_bound(self, state: State, later: int) -> float:
        """What the largest entry of a state tells some ticks later; never grows from there on."""
        newest = self._newest(state)
        return round_up(max(component.decaying_bound(now, depth + later) for component, now, depth in newest))

    def _tell_consecutive(self, count: int) -> Told:
        """Equal histories have equal leakage: computed once."""
        at = self._history.place(count)
        if at not in self._known:
            told = self._tell_followed(self._history.states[at], 0)
            self._known[at] = self._sharpen(told, 0) if at == 1 else told
        return self._known[at]

    def _tell_followed(self, state: State, passed: int) -> Told:
        """The largest over the components, by their states."""
        worst, why = 0.0, str(self.components[0].kind)
        for component, now, depth in self._newest(state, passed):
            value, bound = component.leakage(now, depth)
            if value > worst:
                worst, why = value, bound
        return round_up(worst), why

    # ---- releases at consecutive ticks ---------------------------------------------------------------------------

    def after(self, releases: int, *, state: str | None = None) -> Leakage:
        """Leakage of the present after n releases at consecutive ticks, all as planned.

        `state`: "metric" or "scalar" asks for that rule alone; by default ("auto") the first release takes the smaller
        of the exact leakage and the state.
        """
        if isinstance(releases, bool) or not isinstance(releases, int) or releases < 1:
            raise InputError(f"after: {releases!r} releases given; a whole number, 1 or more")
        if state is not None and state != self._kind:
            return Accountant(self.plan, state=state).after(releases)
        return self.leakage(self.history(releases))

    def history(self, releases: int) -> State:
        """The state after n releases at consecutive ticks; computed once, up to a state at rest."""
        history = self._history
        return replace(history.states[history.extend(releases)], tick=releases, consecutive=releases)

    @cached_property
    def _history(self) -> ConsecutiveHistory:
        sizes = [component.model.size for component in self.components if component.kind == "metric"]
        followed = max(_FOLLOWED, _METRIC_WORK // max(sizes) ** 2) if sizes else _LONGEST
        return ConsecutiveHistory(
            self.start(0),
            lambda state: self._add(state, state.tick + 1, stale=False),
            lambda: self._direct_rest,
            oldest=max(component.oldest for component in self.components),
            followed=followed,
        )

    def limit(self) -> Leakage:
        """Leakage of the present in the long run, releasing at every tick for ever."""
        settled = self.long_run()
        if settled is not None:
            return self.leakage(settled)
        worst, why = max((component.cap(component.ages[0]) for component in self.components), key=lambda cap: cap[0])
        return make_answer(self.plan, worst, why)

    def long_run(self) -> State | None:
        """A state that one more release at the next tick does not raise; None where none was found.

        It stands for histories of any length, so no number of releases belongs to it.
        """
        if self._direct_rest is not None:
            return self._direct_rest
        for n in range(1, _LONGEST):
            self._history.extend(n)
            if self._history.at_rest:
                return replace(self._history.states[-1], consecutive=None)
            if all(component.kind == "cap" for component in self.components):
                break
        return None

    @cached_property
    def _direct_rest(self) -> State | None:
        """The state at rest where every component finds its own directly; None where one does not."""
        if not all(component.finds_rest for component in self.components):
            return None
        slices = [component.state_at_rest() for component in self.components]
        at_rest = tuple(state for state in slices if state is not None)
        pending = tuple((ago, False, 1.0) for ago in range(self._window))
        rested = replace(self.start(), slices=at_rest, pending=pending, consecutive=None)
        return rested if len(at_rest) == len(slices) else None

    def ceiling(self, releases: int | None = None) -> float:
        """The largest leakage of the present at any moment, of n releases at consecutive ticks or of no end of them.

        This is what a budget has to allow: quiet ticks after the last release may raise the leakage before it falls.
        """
        if releases is not None:
            return max(self.after(releases).epsilon, self.peak(self.history(releases)))
        settled = self.long_run()
        return self.limit().epsilon if settled is None else max(self.epsilon(settled), self.peak(settled))

    # ---- other guarantees ----------------------------------------------------------------------------------------

    def lifetime(
        self, releases: int | None = None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after it, reveal of one record: temporal privacy leakage.

        Args:
            releases: number of releases at consecutive ticks; without end by default.
            stale: by how many ticks a reading may be older than planned.
            earlier: what releases under earlier plans add to one slice (`slice_cost`).
            overlap: whether this plan reads slices that they read.
        """
        options: dict[str, Any] = {"stale": stale, "earlier": earlier, "overlap": overlap}
        return round_up(max(component.lifetime(releases, **options) for component in self.components))

    def slice_cost(self, stale: int = 0, *, any_model: bool = False) -> float:
        """What all releases together add to one slice, at most: under the chain, or under any model whatever."""
        if any_model:
            return self.history_cost() * (max(self.plan.ages) - min(self.plan.ages) + 1 + stale)
        return max(each.alpha * (each.ages[-1] - each.ages[0] + 1 + stale) for each in self.components)

    def event_level(self, stale: int = 0) -> float:
        """Plain epsilon-DP of one record: epsilon_c of every release that reads it (repeated readings count again)."""
        return round_up(self.plan.epsilon_c * (1 + stale))

    def group_level(self, releases: int = 1) -> float:
        """Plain DP of all records of all releases, of sequences that the model ties together, however tied."""
        return round_up(self._group_cost * releases)

    @cached_property
    def _group_cost(self) -> float:
        alpha = max(component.alpha for component in self.components)
        hidden = any(model.given_path() is not model for model in self.plan.chain.members)  # ties all sequences
        return max(alpha, self.history_cost()) if hidden else alpha

    @cached_property
    def largest_component(self) -> int:
        """Sequences that the model, or some member of a family, ties together."""
        return max(len(component) for model in self.plan.chain.members for component in model.components())

    def history_cost(self) -> float:
        """What one release adds, at most, to the log ratio of the history under any model whatever."""
        return self._history_cost

    @cached_property
    def _history_cost(self) -> float:
        plan = self.plan
        whole = plan.query.sensitivity(plan.model.sequences, plan.model.value_table)
        return whole / plan.sensitivity * plan.epsilon_c

    # ---- a change of plan ----------------------------------------------------------------------------------------

    def newest_depth(self, state: State) -> int:
        """How many steps before the state's tick the newest reading lies that any release touched."""
        return min(depth for _, _, depth in self._newest(state))

    def largest(self, state: State) -> float:
        """The worst log ratio of the history between any two snapshots of a component at the newest slice touched."""
        return max(worst_component(before) for before in self._carried_states(state).values())

    def _carried_states(self, state: State) -> dict[str, list[tuple[AccountedComponent, Floats]]]:
        """The components of every model with their states at the newest slice that any touches, by model digest."""
        newest = list(self._newest(state))
        least = min(depth for _, _, depth in newest)
        before: dict[str, list[tuple[AccountedComponent, Floats]]] = {}
        for (model, _), (component, now, depth) in zip(self._by_model, newest, strict=True):
            before.setdefault(model, []).append((component, component.advance(now, depth - least)))
        return before

    def resume(self, cost: float, tick: int, depth: int) -> State:
        """A state for a history of which only its worst log ratio under any model is known, `depth` before `tick`."""
        slices = tuple(component.carry((), cost) for component in self.components)
        return State(tick, tuple(depth for _ in slices), slices)

    def take_over(self, old: Accountant, state: State, *, tick: int, cost: float) -> State:
        """The state after `tick` for a history under another plan of the same dataset.

        It is placed at the newest slice that any release touched, which raises no state: a state only falls from the
        slice of a component to a newer one. Under the same chain the old states count where they are smaller.

        Args:
            old: the accountant of the other plan.
            state: its state.
            tick: the tick of the change.
            cost: the worst log ratio of the history under any model.
        """
        depth = old.newest_depth(state) + tick - state.tick
        if self.plan.chain != old.plan.chain:
            return self.resume(cost, tick, depth)
        # By digest: a family is the same in whatever order its members are given.
        before = old._carried_states(state)
        slices = tuple(component.carry(before[model], cost) for model, component in self._by_model)
        return State(tick, tuple(depth for _ in slices), slices)

    def restore(self, content: dict[str, Any], *, cost: float | None = None) -> State:
        """A state from `State.to_dict`.

        `cost`: the worst log ratio of the history under any model. It counts where the state was recorded by a version
        that followed this plan in another form; without it such a state is refused.
        """
        state = State.from_dict(content)
        if state.consecutive is not None:
            known = self.history(state.consecutive) if state.consecutive else self.start()
            return replace(known, tick=state.tick, consecutive=state.consecutive)
        if [s.shape for s in state.slices] != [each.initial_state().shape for each in self.components]:
            if cost is None:
                raise InputError("accountant: the recorded state belongs to another chain, plan or version; give cost=")
            return self.resume(cost, state.tick, min(self.plan.min_age, *state.behind))
        return state
