"""The floating-point attack: naive samplers fail it, every sampler of ours passes. Seeds are fixed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from csdp import CoupledChain, Histogram, Identity, Linear, Mean, Sum, fran
from csdp.audit.black_box import plan_mechanism
from csdp.noise import Randomness, two_sided_geometric
from csdp.plan import Plan

from statistical.low_bits import low_bits  # isort: skip


def numpy_laplace(exact, generator):
    return exact + generator.laplace(size=exact.size)


def inverse_law(exact, generator):
    return exact + np.sign(generator.random(exact.size) - 0.5) * np.log(generator.random(exact.size))


def difference(exact, generator):
    return exact + generator.exponential(size=exact.size) - generator.exponential(size=exact.size)


def in_single_precision(exact, generator):
    return (exact + generator.laplace(size=exact.size).astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("naive", [numpy_laplace, inverse_law, difference], ids=lambda f: f.__name__)
@pytest.mark.parametrize("answers", [(0.0, 1.0), (1.0, 2.0)], ids=str)
def test_noise_in_floating_point_fails(naive, answers):
    assert low_bits(naive, answers=answers, seed=1) > 4  # the noise allows 1


def test_rounding_the_noise_before_adding_it_fails_too():
    assert low_bits(in_single_precision, seed=2) > 1


@pytest.mark.parametrize("step", [1.0, 2.0**-10], ids=["coarse", "fine"])
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 1000.0], ids=str)
def test_our_integers_pass(scale, step):

    def ours(exact, generator):
        noise = two_sided_geometric(
            Fraction(scale) / Fraction(step), exact.size, Randomness.from_key(generator.bytes(32))
        )
        return exact + noise * step

    assert low_bits(ours, samples=100_000, seed=3) <= 1 / scale


@pytest.mark.parametrize(
    "query", [Mean(), Sum(), Histogram(), Identity(), Linear([0.125, 0.75, 0.25])], ids=lambda q: q.name
)
def test_our_plans_pass_also_after_the_division(query):
    """Values that are no binary fractions, and a division by three: the low bits follow from the lattice alone."""
    chain = CoupledChain(np.full((3, 3), 1 / 3), [[0.7, 0.3], [0.3, 0.7]], values=[0.1, 0.4])
    plan = Plan(chain, query, 1, 1.0)
    mechanism = plan_mechanism(plan)
    answers = query.evaluate(np.array([[0, 1, 0], [1, 1, 0]]), chain.value_table)[:, 0]

    def ours(exact, generator):
        row = [0, 1, 0] if exact[0] == answers[0] else [1, 1, 0]
        return mechanism(np.tile(np.array(row, dtype=np.int8), (exact.size, 1)), generator)[:, 0]

    assert low_bits(ours, answers=tuple(answers), samples=100_000, seed=4) <= 1


def test_the_release_itself_passes():
    """The very function that publishes, draw by draw."""
    plan = Plan(CoupledChain(np.full((3, 3), 1 / 3), [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 1.0)
    source = Randomness.from_key(bytes(32))

    def ours(exact, generator):
        answer = np.array([round(exact[0] * 3.0)], dtype=float)
        return [fran.add_noise(plan, answer, 0, source).values[0] for _ in range(exact.size)]

    assert low_bits(ours, answers=(0.0, 1 / 3), samples=4000, seed=5) <= 1
