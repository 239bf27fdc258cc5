"""`JointComponent`: a component that keeps a state for its joint snapshots.

The state is a matrix for few snapshots (metric), one number for more (scalar), and a cap beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from csdp.accountant.kernels import BackwardKernel, step_back
from csdp.accountant.lateness import Stale, was_late
from csdp.accountant.protocol import Before, Kind, Read, worst_component
from csdp.accountant.rest import accelerate_to_rest
from csdp.arrays import Floats, Indices
from csdp.bounds.adversary import Adversary
from csdp.bounds.closed_forms import PAIR_STATES, AgedPairs
from csdp.bounds.environment import PLAIN, Vantage, find_vantages, has_law_of_past, longest_paths
from csdp.bounds.influence import Recursion, has_influence, influence_rule
from csdp.bounds.lineage import has_lineage, lineage
from csdp.bounds.metric import FlowSolver, answer_distances
from csdp.bounds.slice.bound import slice_bound
from csdp.chain import Model
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError, TooLargeError

#: Joint states of a component up to which the scalar state is kept.
SCALAR_STATES = 256
#: Slices between the newest and the oldest age over which a metric state is replayed.
METRIC_SPREAD = 8
#: Ticks after a release for which the leakage of a metric state is computed one by one.
PEAK_STEPS = 24
#: Steps over which the caps of a large component are followed; they do not grow after that.
CAP_STEPS = 64
#: Laws of the aged snapshot that are cached, and states at rest.
_CACHED_LAWS, _CACHED_RESTS = 48, 256
#: States at rest of components with one age, by model, kind and cost: the oldest is dropped first.
_RESTS: dict[tuple[str, str, bytes], Floats | None] = {}


class Caps:
    """What no number of releases exceeds when all that was read is old enough: freshness, lineage, slice, influence.

    The least of them at every number of steps, each computed once.
    """

    def __init__(self, model: Model, adversary: Adversary) -> None:
        self._model = model
        self._adversary = adversary
        self._known: dict[int, tuple[float, str]] = {}
        self._pairs: dict[tuple[int, Vantage], AgedPairs] = {}

    def pairs(self, steps: int, vantage: Vantage = PLAIN) -> AgedPairs:
        """The laws of the snapshot `steps` ago given presents that the adversary must not tell apart."""
        if (steps, vantage) not in self._pairs:
            if len(self._pairs) > _CACHED_LAWS:
                self._pairs.clear()
            self._pairs[steps, vantage] = AgedPairs(
                self._model,
                ages=[steps] * self._model.sequences,
                adversary=self._adversary,
                vantage=vantage,
            )
        return self._pairs[steps, vantage]

    def _freshness(self, steps: int) -> float:
        """The largest log ratio, over the phases of a clock or the paths of a given environment."""
        counted = min(steps, longest_paths(self._model))  # it never grows with more of them
        vantages = [vantage for _, vantage in find_vantages(self._model)]
        return max(self.pairs(counted, vantage).log_ratio for vantage in vantages)

    def at(self, steps: int) -> tuple[float, str]:
        """The cap `steps` after the newest reading, and the bound that gives it; infinite for a fresh reading."""
        if steps not in self._known:
            self._known[steps] = self._compute(steps)
        return self._known[steps]

    @cached_property
    def _influence(self) -> Recursion:
        return influence_rule(self._model)

    def _compute(self, steps: int) -> tuple[float, str]:
        model = self._model
        caps: list[tuple[float, str]] = [(math.inf, "none")]
        if steps == 0:
            return caps[0]
        if has_law_of_past(model) and model.size <= PAIR_STATES:
            with suppress(InputError):  # an adversary for whom a given environment leaves the law of the present open
                caps.append((self._freshness(steps) * (1 + 1e-13), "freshness"))
        if has_influence(model) and self._adversary == "informed":
            caps.append((float(self._influence.cap(min(steps, CAP_STEPS)).max()), "influence"))
        if has_lineage(model):
            lag = steps if self._adversary == "uninformed" else 1
            caps.append((float(lineage(model, lag).ranges.max()), "lineage"))
            if len(caps) < 3 and steps > 1:  # no freshness: slice decays with age for every adversary, and never grows
                caps.append((float(slice_bound(model, min(steps, CAP_STEPS)).ranges.max()), "slice"))
        return min(caps)


@dataclass(frozen=True)
class Cost:
    """What one release costs in a component, by the age at which its readings are taken.

    `alpha` is the whole cost, d(k) epsilon_c; `answers[a]` are the query's answers on what is read at age a. Where they
    cannot be separated (max, min, custom at unequal ages) `answers` is empty and the scalar state is used.
    """

    alpha: float
    answers: dict[int, tuple[Floats, ...]]  # age -> answers (snapshots, d) for what the others may contribute
    rate: float

    def distances(self, age: int, seen: Indices) -> Floats:
        """epsilon_c |f(z) - f(z')| / Delta_f of what is read at one age, between snapshots that can occur."""
        return answer_distances([table[seen] for table in self.answers[age]], self.rate)


class JointComponent:
    """One component of one model under a plan."""

    alike: bytes | None = None
    follows_delays = follows_missing = False
    #: the kinds of state of which ticks without a release may raise what they tell
    _rising: ClassVar[frozenset[Kind]] = frozenset({"metric"})

    def __init__(
        self,
        model: Model,
        *,
        ages: Sequence[int],
        cost: Cost,
        adversary: Adversary,
        kind: str = "auto",
    ) -> None:
        self.model = model
        self.ages = tuple(sorted(set(ages)))
        self.oldest = self.ages[-1]
        self.adversary = adversary
        self.alpha = cost.alpha
        self._cost = cost
        self.kind: Kind = self._choose(kind)
        self.finds_rest = self.kind in {"metric", "scalar"}
        self._caps = Caps(model, adversary)
        self._last: tuple[Floats, int, tuple[float, str]] | None = None

    def _choose(self, kind: str) -> Kind:
        spread = self.ages[-1] - self.ages[0]
        separable = bool(self._cost.answers)
        if not self.model.has_law:
            if kind not in {"auto", "cap"}:
                raise InputError(f"state={kind!r} needs one law; a family at once has state='vector' or 'auto'")
            return "cap"
        if kind == "metric" and (self.model.size > SCALAR_STATES or not separable or spread > METRIC_SPREAD):
            raise TooLargeError(
                f"metric state: {self.model.size} joint states, ages spread over {spread} steps; at most "
                f"{SCALAR_STATES} states, {METRIC_SPREAD} steps, and unequal ages only for additive queries. "
                "Use state='scalar'",
                needed=self.model.size,
                limit=METRIC_STATES,
            )
        if self.model.size > SCALAR_STATES:
            return "cap"
        if kind == "metric" or (
            kind == "auto" and self.model.size <= METRIC_STATES and separable and spread <= METRIC_SPREAD
        ):
            return "metric"
        return "scalar"

    @cached_property
    def backward(self) -> BackwardKernel:
        """The backward kernel of the component."""
        return BackwardKernel(self.model)

    # ---- states: one number, or a matrix of distances between snapshots ------------------------------------------

    def initial_state(self) -> Floats:
        """The state before any release."""
        n = self.backward.size if self.kind == "metric" else 1
        return np.zeros((n, n))

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise, at the oldest age; None where none is found."""
        cost = self.initial_state()
        for read in self.reads(False):
            cost = self.add(cost, read)
        # It does not depend on a common age: a frontier, a search and other settings ask for it again.
        known = (self.model.digest, self.kind, cost.tobytes())
        reusable = len(self.ages) == 1 and self.model.has_one_kernel
        if reusable and known in _RESTS:
            return _RESTS[known]
        apart = np.asarray(1.0 - np.eye(cost.shape[-1]) * (cost.shape[-1] > 1))
        at_rest = accelerate_to_rest(lambda state: self.advance(state, 1), cost, apart, self._guess_rest(cost))
        if reusable:
            while len(_RESTS) >= _CACHED_RESTS:
                _RESTS.pop(next(iter(_RESTS)), None)
            if at_rest is not None:
                at_rest.setflags(write=False)
            _RESTS[known] = at_rest
        return at_rest

    def _guess_rest(self, cost: Floats) -> Floats:
        """Where the search begins: the cost, raised to what the scalar rule comes to where that is finite."""
        largest = float(cost.max())
        if self.kind != "metric" or largest <= 0 or not self.model.has_one_kernel:
            return cost
        limit = self.backward.profile_table(1).limit(largest)
        return cost * (limit / largest) if math.isfinite(limit) else cost

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots, all other components' paths known."""
        return float(state.max())

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan; `before` empty: under another chain.

        `cost`: its worst log ratio under any model whatever. The old states count between any two snapshots.
        """
        level = min(cost, worst_component(before)) if before else cost
        state = self.initial_state()
        return np.asarray(state + level * (1.0 - np.eye(state.shape[-1]) * (state.shape[-1] > 1)))

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, by age; whole, at its newest age, where something was late."""
        late = stale and was_late(stale)
        return [Read(self.ages[0], whole=True)] if late else [Read(age) for age in self.ages]

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice; a release that counts whole does so between any two snapshots."""
        if self.kind != "metric":
            # Charging an output at or after its newest slice costs at most alpha, whatever slices it reads.
            return state + (self.alpha * share if read.age == self.ages[0] else 0.0)
        apart = 1.0 - np.eye(state.shape[-1])
        if read.whole:
            return np.asarray(state + self.alpha * share * apart)
        if behind:
            return np.asarray(state + share * self._distances[read.age].max() * apart)
        return np.asarray(state + share * self._distances[read.age])

    @cached_property
    def _distances(self) -> dict[int, Floats]:
        return {age: self._cost.distances(age, self.backward.seen) for age in self.ages}

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        largest = float(state.max())
        if steps == 0 or largest <= 0:
            return state
        if self.kind == "cap":
            return state
        counted = min(steps, self.backward.settling_steps)  # the largest entry never grows with more of them
        table = self.backward.profile_table(counted)
        if self.kind == "scalar":
            return np.array([[table.largest(largest)]])
        if counted < steps:
            return table.largest(largest) * (1.0 - np.eye(state.shape[0]))
        return step_back(
            state, self.backward.power(steps), table.pairs(largest), relative=self.backward.relative(steps)
        )

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        if self._last is None or self._last[0] is not state or self._last[1] != steps:
            self._last = state, steps, self._leakage(state, steps)  # a peak begins with the last question
        return self._last[2]

    def _leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        largest = float(state.max())
        if largest <= 0:
            return 0.0, self.kind
        cap, why = self._caps.at(steps)
        if self.kind == "cap":
            # The state has added up what all releases cost, however the sequences are tied.
            return (largest, "group") if largest < cap else (cap, why)
        if steps == 0:
            value = self._neighbour_distance(state) if self.kind == "metric" else largest
        else:
            pairs, backward = self._caps.pairs(steps), self.backward
            value = pairs.profile(largest) * (1 + 1e-12)
            if self.kind == "metric":
                rows = pairs if backward.is_full else (each.restrict(backward.seen) for each in pairs)
                bounds = FlowSolver(state).bounds_of_all(rows)
                value = min(value, max((float(each.max()) for each in bounds), default=0.0))
        return (value, self.kind) if value <= cap else (cap, why)

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage of the present from now on if nothing more is published.

        Aging may raise what a metric state tells between neighbours (docs/errata.md). What the largest entry alone
        tells never grows with age, so the search ends where that falls below the largest so far.
        """
        worst = self.leakage(state, steps)[0]
        if self.kind not in self._rising:
            return worst
        for later in range(1, 1 + PEAK_STEPS):
            ceiling = self.decaying_bound(state, steps + later)
            if ceiling <= worst:
                return worst
            worst = max(worst, self.leakage(state, steps + later)[0])
        return max(worst, self.decaying_bound(state, steps + 1 + PEAK_STEPS))

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What the largest entry of a state tells; never grows with `steps`."""
        if self.kind == "cap" or steps == 0 or state.max() <= 0:
            return self.leakage(state, steps)[0]
        return min(self._caps.pairs(steps).profile(float(state.max())) * (1 + 1e-12), self._caps.at(steps)[0])

    @property
    def _possible(self) -> Indices:
        """The snapshots that a metric state is about: those that can occur."""
        return self.backward.seen

    def _neighbour_distance(self, state: Floats) -> float:
        """At age 0 the state itself is the leakage, between snapshots that differ in one sequence."""
        s, m = self.model.sequences, self.model.states
        if self.adversary != "informed":
            return float(state.max())
        digits = np.array(np.unravel_index(self._possible, (m,) * s)).T
        differ = digits[:, None, :] != digits[None, :, :]
        return float(state[differ.sum(axis=2) == 1].max(initial=0.0))

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases passes when all that was read is `steps` old."""
        return self._caps.at(steps)

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases, before and after, tell of one record (temporal privacy leakage, Cao et al. 2017).

        `releases` None: for ever. Unequal ages and stale readings: each output adds its whole cost at every slice that
        it may read. `earlier`: what outputs under earlier plans add to one slice, and whether the present plan reads
        slices that they read.
        """
        width = self.ages[-1] - self.ages[0] + 1 + stale
        cost = self.alpha * width
        cost = cost + earlier if overlap else max(cost, earlier)
        whole = math.inf if releases is None else cost * releases
        if self.kind == "cap":
            return whole
        tables = self.backward.profile_table(1), self.backward.forward_table
        if releases is None or releases > 2000 or width > 1 or earlier > 0:
            # An output read at several slices: gaps between releases may be worse than none, so only the ends are sure.
            return min(whole, sum(table.limit(cost) for table in tables) - cost)
        back, ahead = (table.follow(cost, releases) for table in tables)
        return max(b + a - cost for b, a in zip(back, ahead[::-1], strict=True))
