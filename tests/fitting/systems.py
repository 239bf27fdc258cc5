"""Chains, readings and plain reference computations for the tests of fitting; no code of the library's fit."""

from __future__ import annotations

import bisect
import itertools

import numpy as np

from csdp import CoupledChain


def random_chain(seed: int, s: int, m: int, *, skew: float = 1.0) -> CoupledChain:
    random = np.random.default_rng(seed)
    return CoupledChain(random.dirichlet(np.ones(s), s), random.dirichlet(np.full(m, skew), (s, s, m)))


def long_run(chain, ticks: int, seed: int):
    """Readings of a small chain, drawn from its joint kernel: much faster than `simulate` for long runs."""
    random = np.random.default_rng(seed)
    rows = np.cumsum(chain.kernel(), axis=1)[:, :-1].tolist()
    numbers, number = [], int(random.integers(chain.size))
    for u in random.random(ticks + 100).tolist():
        number = bisect.bisect_right(rows[number], u)
        numbers.append(number)
    shape = (chain.states,) * chain.sequences
    return np.array(np.unravel_index(numbers[100:], shape)).T.copy()


def kernel_error(found, true) -> float:
    """Mean total variation between rows of two kernels."""
    return float(np.abs(found.kernel() - true.kernel()).sum(axis=1).mean() / 2)


def shocked(ticks: int, s: int, seed: int, *, shock: float = 0.1, own: float = 0.02):
    """Sequences of two states that now and then all change at once."""
    random = np.random.default_rng(seed)
    flips = (random.random((ticks, 1)) < shock) | (random.random((ticks, s)) < own)
    return (np.cumsum(flips, axis=0) % 2).astype(np.int64)


def plain_pair_counts(states, m):
    """counts[j, k, a, b], tick by tick; a missing end is skipped."""
    ticks, s = states.shape
    out = np.zeros((s, s, m, m), dtype=np.int64)
    for t in range(ticks - 1):
        for j in range(s):
            for k in range(s):
                a, b = states[t, k], states[t + 1, j]
                if a >= 0 and b >= 0:
                    out[j, k, a, b] += 1
    return out


def plain_log_likelihood(chain, states) -> float:
    """Straight from the definition, over transitions whose target and sources were all read."""
    coupling = chain.sparse_coupling.toarray()
    table, which = chain.transition_table
    moves = {(j, k): table[w] for j, k, w in zip(chain.edge_targets, chain.edge_sources, which, strict=True)}
    total = 0.0
    for now, after in itertools.pairwise(states):
        for j in range(chain.sequences):
            sources = np.flatnonzero(coupling[j])
            if after[j] < 0 or (now[sources] < 0).any():
                continue
            total += np.log(sum(coupling[j, k] * moves[j, k][now[k], after[j]] for k in sources))
    return float(total)
