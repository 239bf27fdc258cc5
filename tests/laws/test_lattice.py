"""The coarsest lattice that holds the answers: which it is, and that noise on a finer one leaks the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given

import csdp
import oracle as o
from csdp.estimate.error import noise_variance
from csdp.query import tabulate
from csdp.query_table import Query
from laws.reference import Reference
from laws.strategies import System, law_settings, systems

FOLDS = ("mean", "sum", "max", "min", "count", "histogram", "linear")
FAST, SLOW = [[0.7, 0.3], [0.3, 0.7]], [[0.9, 0.1], [0.02, 0.98]]


def lattice_points(answers: np.ndarray, offset: np.ndarray, step: float) -> list[tuple[float, ...]]:
    """All points of a lattice from two steps below the least to two above the largest answer, output by output."""
    axes = []
    for column, start in zip(answers.T, offset, strict=True):
        low, high = (round((end - start) / step) for end in (column.min(), column.max()))
        axes.append(start + step * np.arange(low - 2, high + 3))
    return list(product(*axes))


@law_settings(300)
@given(systems(queries=(*FOLDS, "identity"), ages=(0, 0)))
def test_the_spacing_is_the_coarsest_that_holds_all_answers(system: System) -> None:
    query = tabulate(system.asked, system.model)
    answers = query.lattice_answers(np.array(o.snapshots(system.s, system.m)))
    steps = (answers - query.offset) / query.spacing
    assert np.array_equal(steps, np.rint(steps))
    if np.ptp(answers, axis=0).any():
        assert np.gcd.reduce(np.rint(steps).astype(int), axis=None) == 1


@law_settings(120)
@given(
    systems(queries=FOLDS, sizes=((1, 2), (1, 3), (2, 2), (2, 2), (2, 3), (3, 2)), epsilons=(0.1, 0.5, 1.0, 2.0, 4.0))
)
def test_a_finer_lattice_leaks_the_same(system: System) -> None:
    query, reference = tabulate(system.asked, system.model), Reference(system)
    answers = query.lattice_answers(np.array(o.snapshots(system.s, system.m)))
    assume(np.ptp(answers, axis=0).any())
    width = query.undivided_sensitivity(1)
    aged, law = o.aged_law(reference.kernel, system.s, system.m, system.ages)
    rows, pairs, _ = o.adversary_rows(aged, law, system.s, system.m, system.adversary)
    values = [tuple(row) for row in answers.tolist()]
    coarse, fine = (
        o.worst_output(rows, pairs, values, points, system.epsilon_c, width)[0]
        for points in (lattice_points(answers, query.offset, query.spacing / parts) for parts in (1, 3))
    )
    assert coarse == pytest.approx(fine, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("moves", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize(
    ("query", "values"),
    [(csdp.Mean(), [0, 1]), (csdp.Sum(), [2, 5]), (csdp.Linear([1, 3]), [0, 1]), (csdp.Max(), [[0, 4], [1, 2]])],
    ids=["mean", "values 2 and 5", "weights 1 and 3", "max"],
)
def test_two_releases_on_a_finer_lattice_leak_the_same(query: Query, values: list, moves: list) -> None:
    """Both outputs together, at ages 1 and 2: added up over the pairs of snapshots that they read."""
    chain = csdp.CoupledChain([[0.8, 0.2], [0.4, 0.6]], moves, values=values)
    asked = tabulate(query, chain)
    answers = asked.lattice_answers(np.array(o.snapshots(2, 2)))[:, 0]
    kernel, law = chain.kernel(), chain.stationary()
    path = law[:, None, None] * kernel[:, :, None] * kernel[None]  # older, newer, present
    path /= path.sum(axis=(0, 1))
    rate = 1.5 / asked.undivided_sensitivity(1)

    def leak(parts: int) -> float:
        (points,) = np.array(lattice_points(answers[:, None], asked.offset, asked.spacing / parts)).T
        weight = np.exp(-rate * np.abs(points[:, None] - answers))
        density = np.log(np.einsum("yo,wn,onx->ywx", weight, weight, path))
        return max(float((density[..., a] - density[..., b]).max()) for a, b in o.neighbour_pairs(2, 2))

    assert leak(1) == pytest.approx(leak(4), rel=1e-11)
    certified = csdp.Accountant(csdp.Plan(chain, query, 1, 1.5)).after(2).epsilon
    assert certified >= leak(1) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("query", "states", "shares"),
    [
        (csdp.Count(1), 2, (0.92, 0.72, 0.30)),
        (csdp.Mean(), 2, (0.92, 0.72, 0.30)),
        (csdp.Sum(), 3, (0.98, 0.92, 0.72)),
        (csdp.Histogram(), 2, (0.98, 0.92, 0.72)),
    ],
    ids=["count", "mean", "sum of three values", "histogram"],
)
def test_the_variance_against_laplace_s(query: Query, states: int, shares: tuple[float, ...]) -> None:
    chain = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], np.full((states, states), 1 / states))
    width = query.sensitivity(1, chain.value_table)
    for level, share in zip((1.0, 2.0, 4.0), shares, strict=True):
        plan = csdp.Plan(chain, query, 0, level)
        assert plan.noise_variance / (2 * (width / level) ** 2) == pytest.approx(share, abs=0.005)
        assert noise_variance(chain, query, level) == pytest.approx(plan.noise_variance, rel=1e-12)
