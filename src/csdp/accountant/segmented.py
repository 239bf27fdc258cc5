"""The continual leakage of one group of a segmented component, with the charge of the cut at every step.

Formal guarantee: everything that the groups publish, and even the whole path of the others up to the present, tells
about a sequence of this group at most `leakage`. Proof in docs/proofs-networks.md, "Segments".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from csdp.accountant.component import SCALAR_STATES, Before, JointComponent, Kind, stands_for_others, sum_rounded_up
from csdp.accountant.kernels import BackwardKernel, fixed_point_above
from csdp.aging import Adversary
from csdp.arrays import Floats
from csdp.bounds.closed_forms import AgedPairs
from csdp.chain import Model
from csdp.errors import CsdpError
from csdp.segments import Cut

_STEPS = 20_000


class SegmentComponent:
    """One group: the scalar rule on the group's own chain, `b <- L(b) + charge` at every step, and its cost.

    `whole` is the component that it was cut from: what bounds that as a whole bounds each group.
    """

    alike: bytes | None = None

    def __init__(
        self,
        cut: Cut,
        whole: JointComponent,
        *,
        members: Sequence[int],
        ages: Sequence[int],
        alpha: float,
        adversary: Adversary,
    ) -> None:
        self.model: Model = cut.chain
        self.members = frozenset(members)  # of the whole model, where the cut numbers those of the component
        self.ages = tuple(sorted(set(ages)))
        self.adversary = adversary
        self.alpha = whole.alpha  # group-level figures are those of the component
        self.kind: Kind = "scalar"
        self._own = alpha
        self._cut = cut
        self.whole = whole

    @cached_property
    def _backward(self) -> BackwardKernel | None:
        """The group backwards in time; None where it is too large or its chain alone has no single long run."""
        if self.model.size > SCALAR_STATES or not math.isfinite(self._cut.charge):
            return None
        try:
            return BackwardKernel(self.model)
        except CsdpError:
            return None

    @cached_property
    def _state_without_releases(self) -> float:
        """What the path of the others alone tells: the state that a step does not change, from above."""
        if self._cut.charge == 0 and self._backward is not None:
            # Nothing crosses the cut, but a group that never forgets its start may keep step with others for ever.
            forgotten = self._backward.profile_table(self._backward.settling_steps).largest(1.0) < 1.0
            return 0.0 if forgotten else math.inf
        return fixed_point_above(self._step, self._cut.charge, ticks=_STEPS)

    def _step(self, b: float) -> float:
        if b <= 0:
            return self._cut.charge
        if self._backward is None:
            return math.inf
        return self._backward.profile_table(1).largest(b) + self._cut.charge

    def initial_state(self) -> Floats:
        """The state before any release: the others' path counts as known from the start."""
        return np.array([[self._state_without_releases]])

    finds_rest = False

    def state_at_rest(self) -> None:
        """No state at rest is found directly."""

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots of the component that differ in this group only.

        The state covers the history together with the path of the others; given only the others at this slice, the
        normalising constant varies by what that path tells by itself.
        """
        return float(state.max()) + self._state_without_releases

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan; `before` empty: under another chain.

        It must hold together with the whole path of the others. A state of this very group does. Where groups of the
        plan before make up this one, they are changed one after the other. Else (a component that was not cut, a group
        that lies across, components that are alike now but were not under the plan before) only `cost` is sure, which
        holds however much of the rest is known.
        """
        any_model = self._state_without_releases + cost
        inside = {
            segment.members: (segment, state)
            for segment, state in before
            if isinstance(segment, SegmentComponent) and segment.members <= self.members
        }
        if any(stands_for_others(self.alike, segment.alike) for segment, _ in inside.values()):
            level = any_model
        elif self.members in inside:
            level = float(inside[self.members][1].max())
        elif frozenset().union(*inside) == self.members:
            ratios = [segment.worst_log_ratio(state) for segment, state in inside.values()]
            level = self._state_without_releases + sum_rounded_up(ratios)
        else:
            level = any_model
        return np.array([[min(any_model, level)]])

    def add(self, state: Floats, age: int, *, stale: bool, behind: bool = False, share: float = 1.0) -> Floats:
        """Add what a release costs, at the newest slice that it reads, whatever else it reads."""
        return np.asarray(state + (self._own * share if age == self.ages[0] else 0.0))

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        b = float(state.max())
        for _ in range(steps):
            following = self._step(b)
            if following == b:
                break
            b = following
        return np.array([[b]])

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        cap, why = self.cap(steps)
        value = float(state.max()) if steps == 0 else self._last_step(float(self.advance(state, steps - 1).max()))
        value += self._known_others
        return (value, "segments") if value <= cap else (cap, why)

    @cached_property
    def _known_others(self) -> float:
        """What the path of the others alone tells: the normalising constant of a present varies by no more."""
        return self._last_step(self._state_without_releases)

    def _last_step(self, b: float) -> float:
        """From the slice before the present to the present itself."""
        own = self._cut.inward
        if b <= 0 and not own.any():
            return 0.0
        if self._backward is None or math.isinf(b):
            return math.inf
        if self.adversary != "informed":
            return self._backward.profile_table(1).largest(b) + float(own.sum())
        # Only the sequence's own factor touches its present; those of the known ones touch the slice before.
        return self._present.profile(b + float(own.sum())) * (1 + 1e-12) + float(own.max())

    @cached_property
    def _present(self) -> AgedPairs:
        return AgedPairs(self.model, ages=[1] * self.model.sequences, adversary=self.adversary)

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage from now on: the state only falls towards the quiet one while nothing is published.

        At the slice of a fresh release the known others are not charged yet; they are a step later.
        """
        now = self.leakage(state, steps)[0]
        return max(now, self.leakage(state, 1)[0]) if steps == 0 else now

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What a state tells; never grows with `steps`."""
        return self.leakage(state, steps)[0]

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases can pass when all that was read of this group is at least `steps` old.

        Other groups may have been read at smaller ages, and the cap of the component holds from the newest of them on.
        """
        return self.whole.cap(max(0, steps - (self.ages[0] - self.whole.ages[0])))

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases tell of one record: that of the component as a whole."""
        return self.whole.lifetime(releases, stale=stale, earlier=earlier, overlap=overlap)
