"""The law of the aged snapshot given the present, against the oracle; and what is refused before it is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import csdp
from csdp import aging
from csdp.aging import AgedLaw, check_ages, check_epsilon, index_parts, known_subsets
from csdp.errors import InputError, TooLargeError
from laws.reference import Reference
from laws.strategies import System, law_settings, systems

FLIP = [[0.7, 0.3], [0.3, 0.7]]


def aged(system: System, **more: Any) -> AgedLaw:
    """Every reading is a class of its own, so that the whole law is there to be compared."""
    return AgedLaw(system.model, index_parts(system.s, system.m), ages=system.ages, **more)


def joint(system: System) -> np.ndarray:
    """Pr(x, z) by the oracle; the readings in the order of their numbers."""
    rows, law = Reference(system).aged
    return np.where(law[:, None] > 0, np.nan_to_num(rows) * law[:, None], 0.0)


@law_settings(50)
@given(systems(ages=(0, 5)))
def test_both_forms_are_the_law_of_the_oracle(system: System) -> None:
    want, found = joint(system), aged(system)
    assert found.classes[:, 0].tolist() == list(range(system.m**system.s))
    mass = found.mass
    assert mass.measure == pytest.approx(want, rel=1e-10, abs=1e-14)
    assert mass.law == pytest.approx(want.sum(axis=1), rel=1e-10, abs=1e-14)
    assert 0 < mass.relative < 1e-10
    told = found.deviation
    shown = np.ldexp(told.measure, told.exponent)
    assert shown + told.law[:, None] * told.base == pytest.approx(want, rel=1e-9, abs=1e-13)
    seen = told.law > 0
    apart = (want - want.sum(axis=1, keepdims=True) * want.sum(axis=0))[seen] / told.law[seen, None]
    bound = np.ldexp(told.error, told.exponent)
    assert (np.abs(shown[seen] / told.law[seen, None] - apart) <= bound + 1e-11).all()


@pytest.mark.parametrize("age", [1, 300, 500, 800])
def test_tiny_deviations_keep_their_digits(age: int) -> None:
    """One symmetric sequence: Pr(z, x) - Pr(z) Pr(x) = +-0.4^age / 4, far below what differences of floats show."""
    told = AgedLaw(csdp.CoupledChain([[1.0]], FLIP), index_parts(1, 2), ages=[age]).deviation
    exponent = math.log2(told.measure[0, 0]) + told.exponent
    assert exponent == pytest.approx(age * math.log2(0.4) - 2, rel=1e-12)
    assert told.measure == pytest.approx(told.measure[0, 0] * np.array([[1, -1], [-1, 1]]), rel=1e-9)
    assert (told.error > 0).all()


def test_too_many_values_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aging, "MEMORY_LIMIT", 1000)
    with pytest.raises(TooLargeError, match=r"16 joint states times 16 query values .* bound='auto'") as refused:
        AgedLaw(csdp.CoupledChain(np.eye(4), FLIP), index_parts(4, 2), ages=[1] * 4)
    assert refused.value.needed == 8 * 16 * 16 * 3
    with pytest.raises(TooLargeError, match="joint law"):
        AgedLaw(csdp.CoupledChain(np.eye(40), FLIP), index_parts(4, 2), ages=[1] * 40)


def test_whom_an_adversary_knows() -> None:
    assert known_subsets("informed", 3) == [(0, 1, 2)]
    assert known_subsets("uninformed", 3) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("ages", "message"),
    [
        ("old", "whole numbers of steps expected"),
        (-1, "a whole number of steps, 0 or more"),
        ([1, 2, 3], "3 given for 2 sequences; give one for all, or one each"),
        (10**7, "10000000 given; at most 1,000,000 steps"),
    ],
)
def test_ages_that_are_none(ages: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_ages(ages, 2)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "much", None])
def test_noise_levels_that_are_none(epsilon: Any) -> None:
    with pytest.raises(InputError, match=r"epsilon_c: .* given; a finite number above 0"):
        check_epsilon(epsilon)
