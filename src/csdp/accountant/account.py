"""The accountant: how much the whole published history reveals about the present, tick by tick.

It knows the plan and which ticks were released, never a value. Its state is the worst log ratio of the published
history given two values of the newest slice that the history touches: one number for every pair of snapshots (metric),
one number (scalar), or numbers for every sequence (vector, slice). A release adds its cost; a step in time shrinks it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from csdp.accountant.build import Built, build_components
from csdp.accountant.component import PEAK_STEPS, Component, worst_component
from csdp.accountant.fixed_point import Consecutive
from csdp.accountant.record import Lateness, Pending, Stale, State, simplify_stale
from csdp.aging import find_vantages
from csdp.bounds.result import Leakage, round_up
from csdp.bounds.units import tie
from csdp.chain.steps import MAX_STATES, joint_states
from csdp.errors import CsdpError, InputError
from csdp.numbers import Floats
from csdp.plan import Plan

#: Ticks after which a history that has not settled is answered by the cap.
_LONGEST = 2000
#: Releases for which a metric state is followed one by one: at least, and pairs of snapshots over all of them.
_FOLLOWED, _METRIC_WORK = 24, 4096
#: Joint states up to which the exact leakage of a first release is followed while it ages.
EXACT_LATER = 1024
#: Numbers of a state up to which missing sequences are followed: such a state is recorded with every release.
FOLLOWED_NUMBERS = 16_384
#: What each bound of an answer holds for.
_HOLDS_FOR = {
    "metric": "all releases so far; state kept for every pair of snapshots",
    "scalar": "all releases so far; one number for the whole history",
    "contraction": "all releases so far, any law of the past",
    "freshness": "any number of releases: all published data is at least this old",
    "slice": "any number of releases, any law of the past, whatever others are known",
    "influence": "all releases so far; what each sequence reveals is followed by itself",
    "group": "all releases so far, however the sequences are tied",
    "none": "no bound: fresh data is published continually",
}


class Moment(NamedTuple):
    """A component, its state at the newest slice that the history touches, and how far back that slice lies."""

    component: Component
    state: Floats
    depth: int


class Presence(NamedTuple):
    """What a history reveals of the present: now, and at most at any later tick if nothing more is published."""

    now: float
    peak: float


@dataclass(frozen=True)
class _Answer:
    """A leakage, rounded up; the bound that gives it, or the certificate of a first release; each component's own."""

    epsilon: float
    why: str | Leakage
    each: tuple[float, ...] = ()


class Accountant:
    """Leakage of the present after any history of releases of a plan.

    Formal guarantee: `.leakage(state)` bounds, for every pair of presents that differ in one sequence, the log ratio of
    the probabilities of everything published so far, under the model. Which readings were missing must not depend on
    values.

    Args:
        plan: the plan that is released.
        components: its components, if they are built already (`build_components`); then a first release has no sharper
            bound than theirs. By default those with the sharpest states that fit.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> accountant = Accountant(plan)
    >>> [round(accountant.after(n).epsilon, 4) for n in (1, 2, 3)], round(accountant.limit().epsilon, 3)
    ([0.1966, 0.2695, 0.2956], 0.31)
    """

    def __init__(self, plan: Plan, components: Built | None = None) -> None:
        self.plan = plan
        self._given = components
        self._known: dict[int, _Answer] = {}  # by place in the consecutive history
        self._peaks: dict[int, float] = {}
        self._single: dict[int, Leakage | None] = {}  # by age of a first release

    @cached_property
    def _built(self) -> Built:
        return build_components(self.plan) if self._given is None else self._given

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The distinct components of the models."""
        return tuple(component for _, component in self._built)

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
                (`Lateness`): these cost nothing.
            epsilon_c: the noise level of this release if it is below the plan's; its cost shrinks in proportion.
        """
        tick = state.tick + 1 if tick is None else tick
        share = 1.0 if epsilon_c is None else _level_share(self.plan, epsilon_c)
        if state.consecutive == 0:
            state = replace(state, tick=tick - 1)
        if tick <= state.tick:
            raise InputError(f"accountant: tick {tick} is not after tick {state.tick}")
        if isinstance(stale, Lateness):
            stale = simplify_stale(stale, delays=self.follows_delays, missing=self.counts_missing)
        if state.consecutive is not None and tick == state.tick + 1 and not stale and share == 1.0:
            return replace(self.history(state.consecutive + 1), tick=tick)
        return add_release(self.components, state, tick, stale=stale, share=share)

    @cached_property
    def follows_delays(self) -> bool:
        """Whether it matters which readings were late: some component is followed sequence by sequence."""
        return any(component.follows_delays for component in self.components)

    @cached_property
    def follows_missing(self) -> bool:
        """Whether missing readings cost nothing: sequences are followed one by one, none takes a programme for every
        tick that is not as planned, and the numbers are not too many to record.
        """
        numbers = [each.initial_state().size for each in self.components if each.follows_missing]
        return 0 < sum(numbers) <= FOLLOWED_NUMBERS and all(each.kind != "metric" for each in self.components)

    @cached_property
    def counts_missing(self) -> bool:
        """Whether a release from which sequences are missing costs something else than one as planned.

        It may cost more where contributions of sequences that depend on each other cancel: a missing one ends that.
        Components too large for an exact leakage never count on it.
        """
        query = self.plan.query
        cancels = query.of_states and any(
            len(members) > 1 and joint_states(len(members), model.states) <= MAX_STATES
            for model in self.plan.chain.members
            for members in model.components()
        )
        return not query.needs_all and (cancels or self.follows_missing)

    # ---- leakage of the present ----------------------------------------------------------------------------------

    def leakage(self, state: State, tick: int | None = None) -> Leakage:
        """Leakage of the present at a tick, given the state after the last release."""
        answer = self._answer(state, tick)
        return answer.why if isinstance(answer.why, Leakage) else _describe(self.plan, answer.epsilon, answer.why)

    def epsilon(self, state: State, tick: int | None = None) -> float:
        """The number of `leakage` alone, without its words."""
        return self._answer(state, tick).epsilon

    def peak(self, state: State) -> float:
        """The largest leakage of the present, now and at every later tick if nothing more is published.

        Ticks without a release may raise it for a while: a limit for every moment must be compared with this.
        """
        return self._peak(state, None)

    def charge(self, state: State) -> Presence:
        """The leakage of the present at the state's tick, and its peak: what a limit is compared with at every tick."""
        now = self._answer(state, None)
        return Presence(now.epsilon, self._peak(state, now))

    def _answer(self, state: State, tick: int | None) -> _Answer:
        passed = 0 if tick is None else tick - state.tick
        if passed < 0:
            raise InputError(f"accountant: tick {tick} lies before tick {state.tick}, the newest that is charged")
        if state.consecutive is not None and passed == 0:
            answer = self._answer_at(self._history.place(state.consecutive))
        else:
            answer = self._follow(state, passed)
            answer = self._sharpen(answer, passed) if state.consecutive == 1 else answer
        whole = self._whole_cost(state)
        return answer if answer.epsilon <= whole else replace(answer, epsilon=whole, why="group")

    def _answer_at(self, place: int) -> _Answer:
        """Equal histories have equal leakage: computed once."""
        if place not in self._known:
            answer = self._follow(self._history.states[place], 0)
            self._known[place] = self._sharpen(answer, 0) if place == 1 else answer
        return self._known[place]

    def _follow(self, state: State, passed: int) -> _Answer:
        """The largest over the components, by their states."""
        found = [each.component.leakage(each.state, each.depth) for each in newest(self.components, state, passed)]
        worst, why = max(found, key=itemgetter(0))
        why = why if worst > 0 else self.components[0].kind
        return _Answer(round_up(max(worst, 0.0)), why, tuple(value for value, _ in found))

    def _sharpen(self, answer: _Answer, passed: int) -> _Answer:
        """After a first release, as planned, its exact leakage some ticks later, if that is smaller and quick."""
        large = passed and any(component.model.size > EXACT_LATER for component in self.components)
        if self._given is not None or large:
            return answer
        if passed not in self._single:
            self._single[passed] = None
            with suppress(CsdpError):
                self._single[passed] = self.plan.one_release(passed)
        one = self._single[passed]
        return answer if one is None or one.epsilon > answer.epsilon else replace(answer, epsilon=one.epsilon, why=one)

    def _whole_cost(self, state: State) -> float:
        """What all releases together reveal, however the sequences are tied; infinite if their number is not known."""
        return self.group_level(state.consecutive) if state.consecutive else math.inf

    def _peak(self, state: State, now: _Answer | None) -> float:
        if state.consecutive is None:
            return self._peak_of(state, now)
        place = self._history.place(state.consecutive)
        if place not in self._peaks:
            known = self._known.get(place)
            self._peaks[place] = self._peak_of(self._history.states[place], known)
        return min(self._peaks[place], self._whole_cost(state))

    def _peak_of(self, state: State, now: _Answer | None) -> float:
        """The peak; `now`: the answer at the state's own tick, if it is known."""
        if state.consecutive == 1 and self._given is None:
            worst = self.epsilon(state)
            for later in range(1, PEAK_STEPS + 1):
                if self._decaying_bound(state, later) <= worst:
                    return worst
                worst = max(worst, self.epsilon(state, state.tick + later))
            return max(worst, self._decaying_bound(state, PEAK_STEPS + 1))
        moments = newest(self.components, state)
        values: Sequence[float | None] = now.each if now else [None] * len(moments)
        peaks = [at.component.peak(at.state, at.depth, value) for at, value in zip(moments, values, strict=True)]
        return round_up(max(peaks))

    def _decaying_bound(self, state: State, later: int) -> float:
        """What the largest entry of a state reveals some ticks later; never grows from there on."""
        moments = newest(self.components, state)
        return round_up(max(at.component.decaying_bound(at.state, at.depth + later) for at in moments))

    # ---- releases at consecutive ticks ---------------------------------------------------------------------------

    def after(self, releases: int) -> Leakage:
        """Leakage of the present after n releases at consecutive ticks, all as planned."""
        if isinstance(releases, bool) or not isinstance(releases, int) or releases < 1:
            raise InputError(f"after: {releases!r} releases given; a whole number, 1 or more")
        return self.leakage(self.history(releases))

    def history(self, releases: int) -> State:
        """The state after n releases at consecutive ticks; computed once, up to a state at rest."""
        history = self._history
        return replace(history.states[history.extend(releases)], tick=releases, consecutive=releases)

    @cached_property
    def _history(self) -> Consecutive:
        sizes = [component.model.size for component in self.components if component.kind == "metric"]
        followed = max(_FOLLOWED, _METRIC_WORK // max(sizes) ** 2) if sizes else _LONGEST
        return Consecutive(
            self.start(0),
            lambda state: add_release(self.components, state, state.tick + 1),
            lambda: self._direct_rest,
            oldest=max(component.oldest for component in self.components),
            followed=followed,
        )

    def limit(self) -> Leakage:
        """Leakage of the present in the long run, releasing at every tick."""
        if self._settled is not None:
            _, answer = self._settled
            return answer.why if isinstance(answer.why, Leakage) else _describe(self.plan, answer.epsilon, answer.why)
        worst, why = max((component.cap(component.ages[0]) for component in self.components), key=itemgetter(0))
        return _describe(self.plan, worst, why)

    @cached_property
    def _settled(self) -> tuple[State, _Answer] | None:
        """The state in the long run and what it reveals, if it was found."""
        settled = self.long_run()
        return None if settled is None else (settled, self._answer(settled, None))

    def long_run(self) -> State | None:
        """A state that one more release at the next tick does not raise; None if none was found.

        It stands for histories of any length, so no number of releases belongs to it.
        """
        if self._direct_rest is not None:
            return self._direct_rest
        for n in range(1, _LONGEST):
            self._history.extend(n)
            if self._history.at_rest:
                return self._history.states[-1]
            if all(component.kind == "cap" for component in self.components):
                break
        return None

    @cached_property
    def _direct_rest(self) -> State | None:
        """The state at rest if every component finds its own directly."""
        if not all(component.finds_rest for component in self.components):
            return None
        slices = [component.state_at_rest() for component in self.components]
        at_rest = tuple(state for state in slices if state is not None)
        pending = tuple((ago, False, 1.0) for ago in range(_window(self.components)))
        rested = replace(self.start(), slices=at_rest, pending=pending, consecutive=None)
        return rested if len(at_rest) == len(slices) else None

    def ceiling(self, releases: int | None = None) -> float:
        """The largest leakage of the present at any moment, of n releases at consecutive ticks or of any number.

        This is what a budget has to allow: quiet ticks after the last release may raise the leakage before it falls.
        """
        if releases is not None:
            return max(self.after(releases).epsilon, self.peak(self.history(releases)))
        if self._settled is None:
            return self.limit().epsilon
        settled, now = self._settled
        return max(now.epsilon, self._peak(settled, now))

    # ---- other guarantees ----------------------------------------------------------------------------------------

    def every_moment(
        self, releases: int | None = None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after it, reveal of one record: temporal privacy leakage.

        Args:
            releases: number of releases at consecutive ticks; any number by default.
            stale: by how many ticks a reading may be older than planned.
            earlier: what releases under earlier plans add to one slice (`slice_cost`).
            overlap: whether this plan reads slices that they read.
        """
        each = (one.every_moment(releases, stale=stale, earlier=earlier, overlap=overlap) for one in self.components)
        return round_up(max(each))

    def slice_cost(self, stale: int = 0, *, any_model: bool = False) -> float:
        """What all releases together add to one slice, at most: under the chain, or under any model."""
        if any_model:
            return self.history_cost() * (max(self.plan.ages) - min(self.plan.ages) + 1 + stale)
        return max(each.record_cost(stale, 0.0, overlap=False) for each in self.components)

    def event_level(self, stale: int = 0) -> float:
        """Plain epsilon-DP of one record: epsilon_c of every release that reads it (repeated readings count again).

        With units, of the readings of a unit at one tick.
        """
        return round_up(self.plan.unit_level * (1 + stale))

    def window_level(self, length: int, stale: int = 0) -> float:
        """Plain epsilon-DP of any `length` consecutive readings of one sequence, from any number of releases.

        Proof. A release at tick T reads one reading of a sequence of age a: that of tick T - a - d, where its delay d
        is at most `stale`. If it lies in the window n, ..., n + length - 1, then n + a <= T <= n + length - 1 + a +
        stale: T is one of length + stale consecutive ticks, and there is at most one release at each. All other
        readings known, a release depends on the window through the one reading that it reads of it, and reveals at most
        epsilon_c of it. (length (1 + stale), which counts every reading by itself, is never smaller.) With units, so do
        the sequences of each age, and their sum is the level of a unit.

        Args:
            length: consecutive ticks.
            stale: by how many ticks a reading may be older than planned.
        """
        return round_up(self.plan.unit_level * (length + stale))

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
        """Sequences that the model, or some member of a family, ties together, or that belong to one unit."""
        parts = (tie(model.components(), self.plan.units) for model in self.plan.chain.members)
        return max(len(component) for components in parts for component in components)

    def history_cost(self) -> float:
        """What one release adds, at most, to the log ratio of the history under any model."""
        return self._history_cost

    @cached_property
    def _history_cost(self) -> float:
        plan = self.plan
        whole = plan.query.sensitivity(plan.model.sequences, plan.model.value_table)
        return whole / plan.sensitivity * plan.epsilon_c

    # ---- a change of plan ----------------------------------------------------------------------------------------

    def newest_depth(self, state: State) -> int:
        """How many steps before the state's tick the newest reading lies that any release touched."""
        return min(at.depth for at in newest(self.components, state))

    def largest(self, state: State) -> float:
        """The worst log ratio of the history between any two snapshots of a component at the newest slice touched."""
        return max(worst_component(before) for before in self._carried_states(state).values())

    def _carried_states(self, state: State) -> dict[str, list[tuple[Component, Floats]]]:
        """The components of every model with their states at the newest slice that any touches, by model digest."""
        moments = newest(self.components, state)
        least = min(at.depth for at in moments)
        before: dict[str, list[tuple[Component, Floats]]] = {}
        for (model, component), at in zip(self._built, moments, strict=True):
            before.setdefault(model, []).append((component, component.advance(at.state, at.depth - least)))
        return before

    def resume(self, cost: float, tick: int, depth: int) -> State:
        """A state for a history of which only its worst log ratio under any model is known, `depth` before `tick`."""
        slices = tuple(component.carry((), cost) for component in self.components)
        return State(tick, tuple(depth for _ in slices), slices)

    def take_over(self, old: Accountant, state: State, *, tick: int, cost: float) -> State:
        """The state after `tick` for a history under another plan of the same dataset.

        It is placed at the newest slice that any release touched, which raises no state: a state only falls from the
        slice of a component to a newer one. Under the same chain the old states count if they are smaller.

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
        slices = tuple(component.carry(before[model], cost) for model, component in self._built)
        return State(tick, tuple(depth for _ in slices), slices)

    def restore(self, content: dict[str, Any], *, cost: float | None = None) -> State:
        """A state from `State.to_dict`.

        `cost`: the worst log ratio of the history under any model. It counts if the state was recorded by a version
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


# ---- steps of a state: free functions of components and states -------------------------------------------------------


def add_release(
    components: Sequence[Component], state: State, tick: int, *, stale: Stale = False, share: float = 1.0
) -> State:
    """The state after a release, with the slices that no later release can read; newer ones stay pending.

    Args:
        components: the components of the plan.
        state: the state before the release.
        tick: the tick of the release.
        stale: how it was read.
        share: its noise level as a share of the plan's.
    """
    passed = tick - state.tick
    pending = (*state.pending_after(passed), (0, stale, share))
    slices, behind = [], []
    for component, before, depth in zip(components, state.slices, state.behind, strict=True):
        oldest = component.oldest
        after, newest_slice = add_pending(
            component, before, depth + passed, pending, least=oldest, below=oldest + passed, is_new=True
        )
        slices.append(after)
        behind.append(newest_slice)
    window = _window(components)
    return State(tick, tuple(behind), tuple(slices), tuple(entry for entry in pending if entry[0] < window))


def newest(components: Sequence[Component], state: State, passed: int = 0) -> list[Moment]:
    """Every component with its state at the newest slice touched, and how far back that lies `passed` ticks later."""
    pending = state.pending_after(passed)
    moments = []
    for component, before, depth in zip(components, state.slices, state.behind, strict=True):
        below = component.oldest + passed
        after, slice_depth = add_pending(component, before, depth + passed, pending, least=0, below=below)
        moments.append(Moment(component, after, slice_depth))
    return moments


def add_pending(
    component: Component,
    state: Floats,
    behind: int,
    pending: Sequence[Pending],
    *,
    least: int,
    below: int,
    is_new: bool = False,
) -> tuple[Floats, int]:
    """Add what pending releases read at depths least <= depth < below, oldest first: the new state and its depth.

    A release `ago` ticks old read, at age a, the slice that is `ago + a` before now, or further back what was late.

    Args:
        component: whose state it is.
        state: the state at depth `behind`.
        behind: how many slices before now the state lies.
        pending: the releases.
        least: the newest depth to add.
        below: one more than the oldest depth to add.
        is_new: whether the last release was not added before, so that whatever it read further back is to be added too.
    """
    new = len(pending) - 1 if is_new else -1
    reads = [
        (ago + read.age + read.delay, read, share)
        for n, (ago, stale, share) in enumerate(pending)
        for read in component.reads(stale)
        if least <= ago + read.age + read.delay and (ago + read.age + read.delay < below or n == new)
    ]
    for depth, read, share in sorted(reads, key=itemgetter(0), reverse=True):
        # Behind the state lie readings later than it waits for, and after a change of plan others: they are charged
        # at the state's own slice.
        if depth < behind:
            state = component.advance(state, behind - depth)
        state = component.add(state, read, behind=max(depth - behind, 0), share=share)
        behind = min(behind, depth)
    return state, behind


def _window(components: Sequence[Component]) -> int:
    """Ticks for which some reading of a release lies at a slice that later ones read too."""
    return max(component.oldest - component.ages[0] for component in components)


def _level_share(plan: Plan, epsilon_c: float) -> float:
    """The noise level of one release as a share of the plan's, rounded up."""
    if epsilon_c == plan.epsilon_c:
        return 1.0
    if not 0 < epsilon_c < plan.epsilon_c:
        raise InputError(
            f"accountant: epsilon_c {epsilon_c!r} given for one release; above 0, at most the plan's {plan.epsilon_c:g}"
        )
    return min(1.0, math.nextafter(epsilon_c / plan.epsilon_c, math.inf))


# ---- words -----------------------------------------------------------------------------------------------------------


def _describe(plan: Plan, value: float, bound: str) -> Leakage:
    """The leakage of the present under a plan, rounded up, with its assumptions."""
    return Leakage(
        epsilon=round_up(value),
        bound="group" if bound in {"cap", "none"} else bound,
        adversary="informed",
        environment="given" if find_vantages(plan.model)[0][1].given else None,
        assumptions=(
            plan.chain.members[0].assumption,
            *_environment_words(plan),
            _HOLDS_FOR.get(bound, ""),
            "which readings were missing must not depend on their values",
        ),
        model=plan.verdict,
        reason="" if math.isfinite(value) else "infinite: no state and no cap applies",
    )


def _environment_words(plan: Plan) -> tuple[str, ...]:
    """What is assumed of the environment; of a clock every phase is accounted for, and the largest counts."""
    vantage, phases = find_vantages(plan.model)[0][1], plan.model.phases
    clock = f"given the clock: the largest over its {phases} phases"
    words = (clock, *replace(vantage, phase=None).assumptions)
    return vantage.assumptions if phases == 1 else tuple(text for text in words if text)
