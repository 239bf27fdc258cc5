"""`spectral`, the paper's Theorem 1 repaired: leakage is at most a factor times epsilon_c, at any size."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from csdp.arrays import UNIT, Floats
from csdp.bounds.influence import require_backward
from csdp.chain import Model
from csdp.errors import InputError

#: Steps after which iterating towards a limit is given up, and a sum of powers that counts as endless.
_LONGEST = 10_000
_ENDLESS = 1e100


def spectral_matrix(model: Model) -> Any:
    """U[i, k] = tanh(theta / 4), theta how far a change of i moves the log odds of k's previous state; sparse.

    Row: the sequence that changes; column: the one influenced. Two states: exact; more: both states of k at their own
    worst, which is never smaller.
    """
    from scipy.sparse import coo_array

    chains = require_backward("spectral", model)
    if len(chains) > 1:
        raise InputError(
            "spectral: one chain at every step needed; use influence where the environment is not a clock's"
        )
    chain = chains[0]
    table, which = chain.transition_table
    targets, weights = chain.edge_targets, chain.edge_weights
    ends = []
    for end in (table.min(axis=1), table.max(axis=1)):
        total = np.zeros((chain.sequences, chain.states))
        np.add.at(total, targets, weights[:, None] * end[which])
        ends.append(total[targets] - weights[:, None] * end[which])
    slack = 8.0 * UNIT * (int(np.bincount(targets).max()) + 16)
    low, high = np.maximum(ends[0] - slack, 0.0), ends[1] + slack
    theta = np.zeros(chain.edges)
    own = weights[:, None, None] * table[which]
    for a, b in itertools.permutations(range(chain.states), 2):
        theta = np.maximum(theta, _odds_range(own[:, a], own[:, b], low, high))
    values = np.where(np.isfinite(theta), np.tanh(theta / 4.0) * (1 + 16 * UNIT), 1.0)
    shape = (chain.sequences, chain.sequences)
    return coo_array((np.minimum(values, 1.0), (chain.edge_sources, targets)), shape=shape).tocsr()


def _odds_range(before: Floats, after: Floats, low: Floats, high: Floats) -> Floats:
    """Largest change of ln p(c) / p(c') between two laws; p is the own part plus a rest between low and high."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if before.shape[1] == 2:
            # The two rests sum to a constant and the change is convex in them: worst at an end.
            left = 1.0 - before.sum(axis=1)
            best = np.zeros(before.shape[0])
            for rest in (low[:, 1], high[:, 1]):
                one, zero = np.log((after[:, 1] + rest) / (before[:, 1] + rest)), left - rest
                other = np.log((before[:, 0] + np.maximum(zero, 0)) / (after[:, 0] + np.maximum(zero, 0)))
                best = np.fmax(best, np.abs(one + other))
            return np.asarray(best * (1 + 1e-13))
        up = np.maximum(np.log((after + low) / (before + low)), np.log((after + high) / (before + high)))
        down = np.maximum(np.log((before + low) / (after + low)), np.log((before + high) / (after + high)))
        both = np.where(np.isnan(up), 0.0, up)[:, :, None] + np.where(np.isnan(down), 0.0, down)[:, None, :]
    both[:, np.arange(before.shape[1]), np.arange(before.shape[1])] = 0.0
    return np.asarray(both.max(axis=(1, 2)) * (1 + 1e-13))


def spectral_factor(chain: Model, age: int, *, for_ever: bool = False) -> float:
    """|| U^A ||_inf, or || U^A (I - U)^-1 ||_inf for a release at every tick: leakage is at most this times epsilon_c.

    The paper's Theorem 1, repaired: linear in epsilon_c, any number of sequences. Infinite where the spectral radius of
    U is 1 or more and releases never end.

    >>> from csdp import CoupledChain
    >>> ring = {(i, (i + d) % 6): w for i in range(6) for d, w in ((0, 0.8), (1, 0.1), (5, 0.1))}
    >>> chain = CoupledChain(ring, [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    >>> [round(0.1 * spectral_factor(chain, age, for_ever=True), 5) for age in (0, 1, 3)]
    [0.17072, 0.07072, 0.01213]
    """
    matrix = spectral_matrix(chain)
    total: Floats = np.ones(matrix.shape[0])
    if for_ever:
        total = _sum_of_powers(matrix, total)
    if math.isinf(total.max()):
        return math.inf
    for _ in range(age):
        total = matrix @ total
    return float(total.max()) * (1 + 1e-12 * (age + 1))


def _sum_of_powers(matrix: Any, start: Floats) -> Floats:
    """A vector that is not below sum_n U^n start; infinite where the powers do not fade."""
    total = start
    for _ in range(_LONGEST):
        following = start + matrix @ total
        moved = float((following / total).max())
        total = following
        if moved < 1 + 1e-13 or total.max() > _ENDLESS:
            break
    for excess in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
        above = total * (1 + excess)
        if (start + matrix @ above <= above).all():
            return above
    return np.full_like(start, np.inf)
