"""Wrong rules, planted in the library on purpose: histories that do not find them would find nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from csdp.accountant import Accountant
from csdp.accountant import accountant as accounting
from csdp.plan import Plan
from csdp.publisher import admission, standing

Patch = pytest.MonkeyPatch


def late_readings_cost_nothing(patch: Patch) -> None:
    """A reading that is older than planned is charged as if it were not."""
    real = Accountant._add

    def add(self: Any, state: Any, tick: int, stale: bool, share: float = 1.0) -> Any:
        return real(self, state, tick, False, share)

    patch.setattr(Accountant, "_add", add)


def repeated_readings_cost_nothing(patch: Patch) -> None:
    """A late reading was read before, and its record does not pay again."""
    real = Accountant.event_level
    patch.setattr(Accountant, "event_level", lambda self, stale=0: real(self))


def all_ages_are_the_smallest(patch: Patch) -> None:
    """Unequal ages are charged as if every sequence were read at the newest slice."""
    real = accounting.build_components

    def build_components(model: Any, plans: Any, kind: str) -> Any:
        younger = [Plan(p.chain, p.query, p.min_age, p.epsilon_c, adversary=p.adversary) for p in plans]
        return real(model, younger, kind)

    patch.setattr(accounting, "build_components", build_components)


def a_change_forgets(patch: Patch) -> None:
    """The history under the plan before counts for nothing."""
    patch.setattr(Accountant, "take_over", lambda self, old, state, *, tick, cost: self.start(tick))


def plans_never_read_the_same_records(patch: Patch) -> None:
    """Records that two plans read pay for the dearer one only."""
    real = admission._earlier_costs
    patch.setattr(admission, "_earlier_costs", lambda *given: replace(real(*given), overlap=False))


def fits_are_free(patch: Patch) -> None:
    """A private fit costs its records nothing."""
    patch.setattr(standing, "fits_epsilon", lambda fits: 0.0)


def the_peak_is_now(patch: Patch) -> None:
    """Quiet ticks are taken to lower the leakage, always."""
    patch.setattr(Accountant, "peak", lambda self, state: self.leakage(state).epsilon)


def a_schedule_counts_half(patch: Patch) -> None:
    """A noise level of its own costs half of what it should."""
    real = Accountant._share
    patch.setattr(Accountant, "_share", lambda self, level: real(self, level) * (0.5 if level else 1.0))


def half_the_noise(patch: Patch) -> None:
    """Noise of half the scale that is charged for."""
    real = Plan.scale.func  # type: ignore[attr-defined]
    scale = cached_property(lambda self: real(self) / 2)
    scale.__set_name__(Plan, "scale")
    patch.setattr(Plan, "scale", scale)


#: Seeds of histories that find each of them.
PLANTS: dict[Callable[[Patch], None], int] = {
    repeated_readings_cost_nothing: 5043,
    all_ages_are_the_smallest: 5264,
    a_change_forgets: 5264,
    plans_never_read_the_same_records: 5049,
    fits_are_free: 6080,
    a_schedule_counts_half: 6022,
    half_the_noise: 5043,
}
