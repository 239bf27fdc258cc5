"""Pair counts, information and the choice of neighbours, against plain loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from csdp.fitting.checks import TOGETHER_COLUMNS
from csdp.fitting.sample import (
    complete_graph,
    pair_counts,
    read_neighbours,
    read_sample,
)
from fitting.systems import plain_pair_counts

pytestmark = pytest.mark.usefixtures("ungrown")


def ring(s, ticks, seed, m=2):
    coupling = {(j, j): 0.5 for j in range(s)} | {(j, (j - 1) % s): 0.5 for j in range(s)}
    moves = np.full((m, m), 0.1 / (m - 1))
    np.fill_diagonal(moves, 0.9)
    return csdp.CoupledChain(coupling, moves).simulate(ticks, seed=seed)


@pytest.mark.parametrize("ticks", [2, 63, 64, 65, 66, 129, 300])
@pytest.mark.parametrize("m", [2, 5])
def test_pair_counts_are_the_plain_ones(ticks, m):
    random = np.random.default_rng(ticks)
    states = random.integers(-1, m, (ticks, 4))
    states[0, 0] = m - 1
    counts = pair_counts(read_sample(states, states=m), complete_graph(4)).reshape(4, 4, m, m)
    assert (counts == plain_pair_counts(states, m)).all()


@pytest.mark.parametrize("wrong", [-1, 1.5, "some", True, [[0, 9]], [[0, -1]], [0, 1]])
def test_wrong_neighbours_are_refused(wrong):
    with pytest.raises(InputError, match="neighbours"):
        read_neighbours(wrong, 5)


@pytest.mark.parametrize("s", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_sequences(s):
    """Sparse throughout: nothing of size s x s x m x m is made."""
    import tracemalloc

    states = ring(s, 1000, 5)
    tracemalloc.start()
    chain = csdp.fit(states, states=2, public=True, neighbours=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chain.edges == s * 5
    found = sum((t - 1) % s == k for t, k in zip(chain.edge_targets.tolist(), chain.edge_sources.tolist(), strict=True))
    assert found > 0.99 * s
    assert peak < 60_000 * s + 64 * min(2 * s, TOGETHER_COLUMNS) ** 2  # pairs of sequences are tested, up to some size
    strongest = chain.sparse_coupling.toarray() if s < 1000 else None
    if strongest is not None:
        true = np.array([strongest[j, j] + strongest[j, (j - 1) % s] for j in range(s)])
        assert np.median(true) > 0.7
