"""What a plan protects: it follows from its numbers and from the limits that were asked."""

from __future__ import annotations

import math

import pytest

from csdp import Accountant, CoupledChain, NoModel, Plan
from csdp.chain.evidence import Evidence
from csdp.planning.protection import protection

CHAIN = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
NOW, LATE = Plan(CHAIN, "mean", 0, 0.5), Plan(CHAIN, "mean", 8, 5.0)


def of(plan, **limits):
    accountant = Accountant(plan)
    return protection(plan, accountant.ceiling(), accountant.every_moment(), **limits)


def test_noise_protects_every_moment_and_a_delay_the_present_only():
    assert of(NOW).what == "every_moment"
    late = of(LATE)
    assert late.what == "present"
    assert "by a delay of 8 ticks and nearly without noise" in late.words
    assert "up to 6.69 (99.9 %) of any moment" in late.words
    assert "nearly" not in of(Plan(CHAIN, "mean", 1, 2.5)).words


def test_a_limit_that_was_asked_counts():
    assert of(LATE, moment_limit=7.0).what == "every_moment"
    assert of(NOW, moment_limit=1.0).what == "present"
    assert of(NOW, budget=0.5, moment_limit=1.0).what == "nothing"


@pytest.mark.parametrize(
    ("numbers", "what", "words"),
    [
        ((8.0, 9.0), "nothing", "Hardly protects anything: in the long run all releases reveal up to 8 (100 %)"),
        ((0.5, math.inf), "present", "of the present, but of any moment more with every release"),
        ((None, 2.0), "every_moment", "all releases reveal at most 2 (89 %) of any moment"),
        ((None, None), "nothing", "nothing bounds what releases reveal"),
    ],
)
def test_numbers_that_are_large_or_not_known(numbers, what, words):
    found = protection(NOW, *numbers)
    assert found.what == what
    assert words in found.words


def test_a_rejected_model_is_a_condition():
    chain = CHAIN.carrying(evidence=Evidence("rejected", "order"))
    assert of(Plan(chain, "mean", 0, 0.5)).words.startswith("Only if the model holds, it protects every moment")


def test_without_a_model_single_readings_are_protected():
    found = of(Plan(NoModel(["a", "b"]), "mean", 0, 0.5, stale_limit=1))
    assert found.what == "readings"
    assert "epsilon 1 " in found.words  # a late reading may be read twice
    paid = CHAIN.carrying(fit_cost={"epsilon": 0.5, "fit": "a"})
    assert "epsilon 1 " in of(Plan(NoModel.of(paid), "mean", 0, 0.5)).words
