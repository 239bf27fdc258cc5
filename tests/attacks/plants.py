"""Wrong rules, planted in the library on purpose: histories that do not find them would find nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from csdp.accountant import Accountant, account, build, influence
from csdp.accountant.influence import InfluenceComponent
from csdp.accountant.kernels import EnvironmentKernels
from csdp.bounds.graph import GraphRule
from csdp.bounds.influence import WorstRule
from csdp.chain import CoupledChain, InfluenceGraph, environment
from csdp.chain.graph import Mixture
from csdp.plan import Plan
from csdp.publisher import charge, gate

Patch = pytest.MonkeyPatch


def late_readings_cost_nothing(patch: Patch) -> None:
    """A reading that is older than planned is charged as if it were not."""
    real = account.add_release

    def add_release(components: Any, state: Any, tick: int, stale: Any = False, share: float = 1.0) -> Any:
        return real(components, state, tick, share=share)

    patch.setattr(account, "add_release", add_release)


def missing_sequences_are_charged_as_planned(patch: Patch) -> None:
    """A release from which a sequence is missing is charged as if its contribution could cancel others."""
    patch.setattr(Accountant, "counts_missing", False)


def repeated_readings_cost_nothing(patch: Patch) -> None:
    """A late reading was read before, and its record does not pay again."""
    real = Accountant.event_level
    patch.setattr(Accountant, "event_level", lambda self, stale=0: real(self))


def all_ages_are_the_smallest(patch: Patch) -> None:
    """Unequal ages are charged as if every sequence were read at the newest slice."""
    real = account.build_components

    def build_components(plan: Plan) -> Any:
        return real(Plan(plan.chain, plan.query, plan.min_age, plan.epsilon_c))

    patch.setattr(account, "build_components", build_components)


def a_change_forgets(patch: Patch) -> None:
    """The history under the plan before counts for nothing."""
    patch.setattr(Accountant, "take_over", lambda self, old, state, *, tick, cost: self.start(tick))


def plans_never_read_the_same_records(patch: Patch) -> None:
    """Records that two plans read pay for the dearer one only."""
    real = charge.earlier_costs
    patch.setattr(charge, "earlier_costs", lambda *given: replace(real(*given), overlap=False))


def an_estimator_fits_every_plan(patch: Patch) -> None:
    """An estimator is taken whichever plan it was made for."""
    patch.setattr(gate, "check_estimator", lambda plan, estimator: None)


def fits_are_free(patch: Patch) -> None:
    """A private fit costs its records nothing."""
    patch.setattr(charge, "fits_epsilon", lambda fits: 0.0)


def the_peak_is_now(patch: Patch) -> None:
    """Quiet ticks are taken to lower the leakage, always."""
    patch.setattr(Accountant, "_peak", lambda self, state, now: self.leakage(state).epsilon)


def a_schedule_counts_half(patch: Patch) -> None:
    """A noise level of its own costs half of what it should."""
    real = account._level_share
    patch.setattr(account, "_level_share", lambda plan, level: real(plan, level) * 0.5)


def half_the_noise(patch: Patch) -> None:
    """Noise of half the scale that is charged for."""
    real = Plan.scale.func  # type: ignore[attr-defined]
    scale = cached_property(lambda self: real(self) / 2)
    scale.__set_name__(Plan, "scale")
    patch.setattr(Plan, "scale", scale)


# ---- backward chains, families at once, environments -----------------------------------------------------------------


def a_vector_state_reads_all_at_the_smallest_age(patch: Patch) -> None:
    """Costs of every sequence are added at the newest slice: sound for one number, not for one a sequence."""
    real = build.costs_by_age

    def costs_by_age(query: Any, members: Any, *, ages: Any, epsilon_c: float) -> Any:
        return {min(ages): sum(real(query, members, ages=ages, epsilon_c=epsilon_c).values())}

    patch.setattr(build, "costs_by_age", costs_by_age)


def a_vector_state_tells_what_its_largest_sequence_tells(patch: Patch) -> None:
    """Between snapshots that differ in several sequences a history tells no more than in one."""
    patch.setattr(InfluenceComponent, "worst_log_ratio", lambda self, state: float(state.max()))


def a_backward_chain_is_read_forward(patch: Patch) -> None:
    """The law of the past is computed as if the numbers of a backward chain led ahead."""
    real = CoupledChain.backward_kernel

    def backward_kernel(self: CoupledChain) -> Any:
        return real(self) if self.direction == "forward" else self.kernel()

    patch.setattr(CoupledChain, "backward_kernel", backward_kernel)


def a_family_is_its_point(patch: Patch) -> None:
    """The limits of a family are those of the chain in its middle."""
    patch.setattr(InfluenceGraph, "around", classmethod(lambda cls, chain, margin: chain))


def a_clock_stands_still(patch: Patch) -> None:
    """Every step back in time happens at the phase of the present."""
    real = EnvironmentKernels.advance

    def advance(self: Any, state: Any, steps: int, *, is_metric: bool) -> Any:
        for _ in range(steps):
            state = real(
                self, state if self.model.cycle is None else np.roll(state, -1, axis=0), 1, is_metric=is_metric
            )
        return state

    patch.setattr(EnvironmentKernels, "advance", advance)


def a_clock_shows_its_first_phase(patch: Patch) -> None:
    """All ticks are taken for those of the first phase, whatever state is kept."""
    real = environment._unroll_clock
    patch.setattr(environment, "_unroll_clock", lambda members: real([members[0]] * len(members)))
    first = cached_property(lambda self: [[self.model.backward_kernel(phase=0)]] * self.model.period)
    first.__set_name__(EnvironmentKernels, "_kernels")
    patch.setattr(EnvironmentKernels, "_kernels", first)


def a_given_environment_is_the_first(patch: Patch) -> None:
    """Every step happens under the first of the environments that are possible."""
    real = WorstRule.__init__
    patch.setattr(WorstRule, "__init__", lambda self, rules: real(self, rules[:1]))
    move = EnvironmentKernels._move

    def move_by_the_first(self: Any, block: Any, phase: int, *, whole: bool) -> Any:
        self._kernels[phase] = self._kernels[phase][:1]
        self._tables[phase] = self._tables[phase][:1]
        return move(self, block, phase, whole=whole)

    patch.setattr(EnvironmentKernels, "_move", move_by_the_first)


# ---- graphs ----------------------------------------------------------------------------------------------------------


def the_last_window_holds_near_the_present(patch: Patch) -> None:
    """Values next to the present are taken to follow what older values follow."""
    real = GraphRule.pull
    patch.setattr(GraphRule, "pull", lambda self, children, distance, lag: real(self, children, self.memory, lag))


def later_values_reveal_nothing_of_a_moment(patch: Patch) -> None:
    """Every moment counts the past and the releases of the moment itself."""
    real = influence.every_moment

    def every_moment(graph: InfluenceGraph, cost: Any) -> Any:
        assert graph.forward is not None
        windows = []
        for window in graph.forward:
            assert isinstance(window, Mixture)
            table, which = window.transition_table
            windows.append(replace(window, transition_table=(np.full_like(table, 1 / window.states), which)))
        return real(graph._again(forward=tuple(windows)), cost)

    patch.setattr(influence, "every_moment", every_moment)


#: Seeds of histories that find each of them.
PLANTS: dict[Callable[[Patch], None], int] = {
    repeated_readings_cost_nothing: 5264,
    all_ages_are_the_smallest: 5264,
    a_change_forgets: 5043,
    plans_never_read_the_same_records: 5002,
    fits_are_free: 6080,
    a_schedule_counts_half: 5004,
    half_the_noise: 5043,
}
