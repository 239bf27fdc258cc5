"""What the bounds do inside: the worst of several chains, what is refused, kept or left as it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import csdp
from csdp.bounds import dependence, loops
from csdp.bounds.dependence import SharedForm
from csdp.bounds.influence import InfluenceRule
from csdp.bounds.intervals import LocalNumbers, MixtureCells, _tilt_two, first_boxes
from csdp.bounds.metric import _range
from csdp.bounds.slice import _walk


def ring(size: int, own: float, p: float, q: float) -> csdp.CoupledChain:
    coupling = {
        (i, (i + d) % size): w for i in range(size) for d, w in ((0, own), (1, (1 - own) / 2), (-1, (1 - own) / 2))
    }
    return csdp.CoupledChain({(i, j % size): w for (i, j), w in coupling.items()}, [[1 - p, p], [q, 1 - q]])


@pytest.mark.parametrize("form", ["matrix", "shared", "row-sum"])
def test_a_step_under_any_of_several_chains_starts_from_the_worst_dependence_of_all(form: str) -> None:
    """The path may have followed either chain so far, so both carry on from what the worse one left behind."""
    chains = [ring(6, 0.95, 0.4, 0.4), ring(6, 0.6, 0.3, 0.2)]
    alone = [list(_walk([chain], 3, form))[-1].forms[0] for chain in chains]
    both = list(_walk(chains, 3, form))[-1].forms

    def known(one: object) -> np.ndarray:
        kept = getattr(one, "_gamma", None)
        rows = 0.0 if kept is None else kept.sum(axis=1)
        return np.asarray(getattr(one, "_slack", 0.0) + rows)

    assert known(both[0]) == pytest.approx(known(both[1]))
    assert (known(both[0]) >= np.maximum(known(alone[0]), known(alone[1])) * (1 - 1e-9)).all()
    assert known(alone[0]).max() < 0.5 * known(alone[1]).max()


@pytest.mark.parametrize("first", [True, False])
def test_log_odds_near_minus_infinity_are_not_sharpened(first: bool) -> None:
    """Where the error is as large as what is left of a probability, only the plain difference holds."""
    near, usual = np.array([[-0.95, 0.0]]), np.zeros((1, 2))
    fine = (near, usual) if first else (usual, near)
    assert _range(np.array([[0.0, 50.0]]), np.zeros((1, 2)), *fine, 0.0, 0.09) == 50.0


def test_the_shared_form_keeps_no_entry_that_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependence, "_KEPT", 0.2)
    rng, size = np.random.default_rng(2), 12
    coupling = 0.7 * np.eye(size) + 0.3 * rng.dirichlet(np.full(size, 0.3), size)
    kept = list(_walk([csdp.CoupledChain(coupling, [[0.7, 0.3], [0.3, 0.7]])], 3, "shared"))[-1].forms[0]._gamma
    assert 0 < kept.nnz < size * (size - 1)
    assert kept.data.min() >= 0.2 * kept.data.max()


def test_what_is_not_tilted_keeps_its_box() -> None:
    """One sequence alone: no child tells anything else of its past, so its box stays as it is, to the last digit."""
    local = LocalNumbers.of(csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.2, 0.8]]))
    cells, boxes = MixtureCells.by_edge(local), first_boxes(local)
    low, apart = _tilt_two(boxes, cells)
    assert cells.tilt.tolist() == [0.0]
    assert np.array_equal(low, boxes.low)
    assert np.array_equal(apart, boxes.width[:, 0])


def test_iterates_stay_above_what_they_approach() -> None:
    """A dense matrix, whose sums round most: never below the solution in extended precision."""
    rng, size = np.random.default_rng(5), 400
    weights = rng.dirichlet(np.ones(size), size) * 0.5
    cause = rng.uniform(0.5, 1.0, size)
    form = SharedForm(LocalNumbers.of(ring(6, 0.8, 0.3, 0.3)))
    found = form._iterate(csr_array(weights), np.zeros(size), cause, float(cause.max() / 0.4))
    exact, wide = cause.astype(np.longdouble), weights.astype(np.longdouble)
    for _ in range(80):
        exact = wide @ exact + cause
    assert (found >= exact).all()
    assert found == pytest.approx(exact.astype(float), rel=1e-11)


def test_nine_states_count_what_the_other_sequences_surely_add() -> None:
    """One step by hand: prefixes of the states by gain over base, each base with the least of the other source."""
    rng, m, level = np.random.default_rng(7), 9, 0.7
    rows = rng.dirichlet(np.ones(m), (2, 2, m))
    coupling = np.array([[0.6, 0.4], [0.3, 0.7]])
    chain = csdp.CoupledChain(coupling, rows, direction="backward")
    state = level * (1 - np.eye(m)) + np.zeros((2, 1, 1))
    found = InfluenceRule(chain).advance(state)
    for i, (a, b) in ((0, (2, 5)), (1, (8, 0)), (1, (3, 4))):
        total = 0.0
        for k in range(2):
            own, other = coupling[k, i] * rows[k, i], coupling[k, 1 - i] * rows[k, 1 - i]
            delta, base = own[b] - own[a], own[a] + other.min(axis=0)
            order = sorted(np.flatnonzero(delta > 0), key=lambda c: -delta[c] / base[c])
            inverse = 1 / np.expm1(level)
            best = max(delta[order[: n + 1]].sum() / (inverse + base[order[: n + 1]].sum()) for n in range(len(order)))
            total += np.log1p(best)
        assert found[i, a, b] == pytest.approx(total, rel=1e-12)


def test_loops_are_compiled_once_and_the_longest_for_all_cores() -> None:
    """What numba compiled is kept for the next process; without it every command would wait for seconds."""
    compiled = [loops.advance_two_states, loops.step_all_sets, loops.step_prefixes]
    for loop in (*compiled, loops.step_two_states_on_all_cores):
        assert type(loop._cache).__name__ == "FunctionCache"
    assert loops.step_two_states_on_all_cores.targetoptions["parallel"]
