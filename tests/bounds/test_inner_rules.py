"""Rules of `slice` that enumeration of small systems could miss: the worst of several chains, and rounding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import csdp
from csdp.bounds.dependence import Boxes, LocalNumbers, SharedForm
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


def test_the_states_that_are_named_are_those_that_give_the_range() -> None:
    """Of four states, some of which moved farther than their box is wide."""
    rng = np.random.default_rng(2)
    low = 0.05 + 0.1 * rng.random((50, 4))
    boxes = Boxes(low, low + 0.2, 0.2 * rng.random((50, 4)))
    moved = 0.2 * rng.random((50, 4))
    named = (np.arange(4) == boxes.worst_states(moved)[:, :, None]).any(axis=1)
    assert boxes.spread(np.where(named, moved, 0.0)) == pytest.approx(boxes.spread(moved))
