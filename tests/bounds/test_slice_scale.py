"""Certificates for many sequences: giants, and the forms of what a slice carries."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

import csdp
from csdp.bounds import dependence
from csdp.bounds.dependence import LocalNumbers
from csdp.bounds.leakage import Setting
from csdp.bounds.slice import one_step, slice_bound

FORMS = ("matrix", "shared", "row-sum")
FLIP = [[0.7, 0.3], [0.3, 0.7]]
THREE = [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]


def giant(s, degree=8, own=0.8):
    steps = np.concatenate([[0], np.random.default_rng(0).choice(s - 1, degree, replace=False) + 1])
    target = np.repeat(np.arange(s), degree + 1)
    weight = np.tile([own, *[(1 - own) / degree] * degree], s)
    return csr_array((weight, (target, (target + np.tile(steps, s)) % s)), shape=(s, s))


# ---------------------------------------------------------------- giants


def test_twenty_thousand_sequences_by_row_sums():
    chain = csdp.CoupledChain(giant(20_000), FLIP)
    tracemalloc.start()
    answer = csdp.leakage(chain, csdp.Mean(), ages=6, epsilon_c=1.0, bound="slice")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6
    assert answer.reason == "row-sum form, age 6"
    # every sequence has the same surroundings: a small system of the same kind gives the same numbers
    small = slice_bound(csdp.CoupledChain(giant(1000), FLIP), 6, form="row-sum")
    assert answer.epsilon == pytest.approx(float(small.ranges.max()), rel=1e-3)
    assert answer.epsilon < 0.1 * csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, bound="slice").epsilon


@pytest.mark.parametrize("transitions", [FLIP, THREE])
def test_forms_are_ordered_where_all_fit(transitions):
    rng = np.random.default_rng(4)
    s = 60
    coupling = np.where(np.eye(s) > 0, 0.75, 0.0)
    for j in range(s):
        coupling[j, rng.choice(np.delete(np.arange(s), j), 3, replace=False)] += rng.dirichlet(np.ones(3)) * 0.25
    chain = csdp.CoupledChain(coupling, transitions)
    for age in (2, 4, 7):
        matrix, shared, row_sum = (
            slice_bound(chain, age, form=form).ranges for form in ("matrix", "shared", "row-sum")
        )
        assert (matrix <= shared * (1 + 1e-9)).all()
        assert (shared <= row_sum * (1 + 1e-9)).all()
        assert shared.max() < matrix.max() * 2


def test_what_the_shared_form_does_not_keep_still_counts(monkeypatch):
    chain = csdp.CoupledChain(giant(400, 4), FLIP)
    fine = slice_bound(chain, 5, form="shared").ranges
    monkeypatch.setattr(dependence, "_KEPT", 0.5)
    coarse = slice_bound(chain, 5, form="shared").ranges
    row_sum = slice_bound(chain, 5, form="row-sum").ranges
    assert (fine <= coarse * (1 + 1e-9)).all()
    assert (coarse <= row_sum * (1 + 1e-9)).all()
    assert fine.max() < coarse.max()


def test_row_sums_of_kappa_hold_in_every_way_they_are_made(monkeypatch):
    chain = csdp.CoupledChain(np.random.default_rng(1).dirichlet(np.ones(30), 30), FLIP)
    exact = LocalNumbers.of(chain).kappa_row_sums()
    monkeypatch.setattr(dependence, "SORTED_PAIRS", 0)
    by_child = LocalNumbers.of(chain).kappa_row_sums()
    monkeypatch.setattr(dependence, "_MANY_PARENTS", 2)
    together = LocalNumbers.of(chain).kappa_row_sums()
    assert (exact <= by_child * (1 + 1e-9)).all()
    assert (by_child <= together * (1 + 1e-9)).all()
    assert together.max() < exact.max() * 1.5


def test_row_sums_of_an_endless_kappa_hold_child_by_child_too(monkeypatch):
    """A state that some parents rule out tells without bound which of them it was."""
    moves = np.broadcast_to(np.array(FLIP), (3, 3, 2, 2)).copy()
    moves[0] = [[1.0, 0.0], [0.4, 0.6]]
    chain = csdp.CoupledChain(np.full((3, 3), 1 / 3), moves)
    exact = LocalNumbers.of(chain).kappa_row_sums()
    assert exact.max() >= 2  # of either of the two others, whole
    monkeypatch.setattr(dependence, "SORTED_PAIRS", 0)
    assert (exact <= LocalNumbers.of(chain).kappa_row_sums() * (1 + 1e-9)).all()


def test_a_matrix_per_edge():
    rng = np.random.default_rng(0)
    coupling = giant(300, 3)
    kinds = 0.3 * rng.dirichlet([2, 2], (4, 2)) + 0.35
    chain = csdp.CoupledChain(coupling, kinds[rng.integers(0, 4, coupling.nnz)])
    shared, row_sum = (slice_bound(chain, 4, form=form) for form in ("shared", "row-sum"))
    assert (shared.ranges <= row_sum.ranges * (1 + 1e-9)).all()
    assert row_sum.curve[-1] < 0.1 * row_sum.curve[0]


@pytest.mark.slow
def test_a_million_sequences():
    chain = csdp.CoupledChain(giant(1_000_000), FLIP)
    ranges, _ = one_step(chain)
    assert ranges.shape == (1_000_000,)
    # Every sequence has the same surroundings: a small system of the same kind gives the same numbers.
    assert float(ranges.max()) == pytest.approx(float(one_step(csdp.CoupledChain(giant(1000), FLIP))[0].max()))


def test_bounds_free_of_the_noise_are_kept():
    """Planning asks for many noise levels: slice is computed once."""
    setting = Setting.make(
        csdp.CoupledChain(giant(300), FLIP), csdp.Mean(), ages=3, epsilon_c=1.0, adversary="uninformed"
    )
    first = setting.answer("slice")
    moved = setting.at(0.5)
    assert moved.components[0]._slice_result is setting.components[0]._slice_result
    assert moved.answer("slice").epsilon == first.epsilon
