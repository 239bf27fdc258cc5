"""The paper's own formulas, as printed, so that its figures can be reproduced; none of them is a certificate.

`d(k) Delta_k epsilon_c` (its Theorem 1) rests on ln(1 + x(e^y - 1)) <= x y, which is false for every x in (0, 1);
Theorem 2 keeps that step and drops a factor. Both are violated by real chains: see docs/errata. Theorem 1 repaired is
beside them: `loose` before the wrong step, and `spectral_factor`, linear in epsilon_c.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from csdp import check
from csdp.bounds.influence import require_backward
from csdp.bounds.leakage import Setting
from csdp.bounds.metric import AgedPairs
from csdp.bounds.result import round_up
from csdp.chain import CoupledChain, EnvironmentChain, Model
from csdp.errors import InputError
from csdp.numbers import UNIT, Floats
from csdp.query_table import Query

#: Steps after which iterating towards a limit is given up, and a sum of powers that counts as endless.
_LONGEST = 10_000
_ENDLESS = 1e100


def printed_loose(chain: Model, query: Query | str, *, ages: Any, epsilon_c: float) -> float:
    """The paper's Theorem 1 as printed, d(k) Delta_k epsilon_c: it can be below the truth.

    >>> pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(printed_loose(pair, "mean", ages=2, epsilon_c=1.0), 6)
    0.2
    """
    return max(
        each.sensitivity_ratio(min(correlation_degree(each.model), len(each.members)))
        * each.pairs.total_variation
        * epsilon_c
        for each in _setting(chain, query, ages, epsilon_c).components
    )


def printed_tight(chain: Model, query: Query | str, *, ages: Any, epsilon_c: float) -> float:
    """The paper's Theorem 2 as printed, its bounded aged correlation times epsilon_c: it can be below the truth.

    >>> pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(printed_tight(pair, "mean", ages=2, epsilon_c=1.0), 6)
    0.269053
    """
    setting = _setting(chain, query, ages, epsilon_c)
    return epsilon_c * max(
        bounded_aged_correlation(each.model, ages=[setting.ages[i] for i in each.members], oldest=max(setting.ages))
        for each in setting.components
    )


def loose(chain: Model, query: Query | str, *, ages: Any, epsilon_c: float) -> float:
    """ln(1 + Delta (e^alpha - 1)), Theorem 1 before its wrong step: never below the truth, and never below `profile`.

    >>> pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(loose(pair, "mean", ages=2, epsilon_c=1.0), 6)
    0.494029
    """
    components = _setting(chain, query, ages, epsilon_c).components
    return round_up(max(loose_bound(each.pairs.total_variation, each.alpha) for each in components))


def _setting(chain: Model, query: Query | str, ages: Any, epsilon_c: float) -> Setting:
    if isinstance(chain, EnvironmentChain):
        raise InputError("paper: the paper has no environments; give a chain without them, or use csdp.leakage")
    return Setting.make(chain, query, ages=ages, epsilon_c=epsilon_c)


def loose_bound(delta: float, alpha: float) -> float:
    """ln(1 + Delta (e^alpha - 1)): the paper's Theorem 1 before its last, wrong step.

    >>> round(loose_bound(0.1, 2.0), 9)
    0.494028708
    """
    if delta <= 0 or alpha <= 0:
        return 0.0
    if alpha < 30:
        return math.log1p(delta * math.expm1(alpha))
    # In logarithms: a sum with alpha would lose the digits of a small answer.
    return float(np.logaddexp(0.0, math.log(delta) + alpha + math.log1p(-math.exp(-alpha))))


def correlation_degree(model: Model) -> int:
    """The paper's correlation degree k (its Definition 3): one more than the most direct neighbours of a sequence.

    Influence spreads further over several steps, so sound bounds use the size of the connected component instead.

    >>> correlation_degree(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]))
    2
    """
    model.require_one_kernel()
    if not isinstance(model, CoupledChain):
        return model.sequences
    coupling = model.sparse_coupling
    linked = ((coupling + coupling.T) != 0).astype(np.int64)
    linked.setdiag(0)
    linked.eliminate_zeros()
    return 1 + int(np.max(np.diff(linked.tocsr().indptr)))


def bounded_aged_correlation(model: Model, *, ages: Sequence[int], oldest: int | None = None) -> float:
    """The paper's bounded aged correlation (its Definition 6), over one component.

    Largest over (x_-i, x_i, x_i') of the distance between `g_max(x_-i, x_i) Pr[z_i | x_i]` and
    `g_min(x_-i, x_i') Pr[z_i | x_i']`, with g the extremes over z of
    `Pr[x_i | x_-i, z_-i] Pr[x_-i | x_i, z_i] / (Pr[x_i | x_-i] Pr[x_-i | x_i])`.
    """
    s, m = model.sequences, model.states
    pairs = AgedPairs(model, ages=ages, adversary="informed", oldest=oldest)
    joint = pairs.laws[0].mass.measure  # Pr(x, z)
    tensor = joint.reshape((m,) * (2 * s))
    best = 0.0
    for i in range(s):
        here, there = [j for j in range(s) if j != i], [s + j for j in range(s) if j != i]
        # axes: x_i, x_-i, z_i, z_-i
        law = tensor.transpose([i, *here, s + i, *there]).reshape(m, m ** (s - 1), m, m ** (s - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            x = law.sum(axis=(2, 3))
            with_rest = law.sum(axis=2)  # x_i, x_-i, z_-i
            first = (with_rest / with_rest.sum(axis=0)) / (x / x.sum(axis=0))[:, :, None]
            with_own = law.sum(axis=3)  # x_i, x_-i, z_i
            own = with_own.sum(axis=1)
            second = (with_own / own[:, None, :]) / (x / x.sum(axis=1)[:, None])[:, :, None]
            g_max = np.fmax.reduce(first, axis=2) * np.fmax.reduce(second, axis=2)
            g_min = np.fmin.reduce(first, axis=2) * np.fmin.reduce(second, axis=2)
            reading = own / own.sum(axis=1, keepdims=True)  # Pr[z_i | x_i]
        for a, b in itertools.permutations(range(m), 2):
            gap = g_max[a][:, None] * reading[a] - g_min[b][:, None] * reading[b]
            sides = np.fmax(np.maximum(gap, 0).sum(axis=1), np.maximum(-gap, 0).sum(axis=1))
            best = max(best, float(np.nanmax(sides, initial=0.0)))
    return best


def aged_correlation(chain: Model, *, ages: Any) -> float:
    """The paper's aged correlation distance Delta_k (its Definition 5): the largest total variation between the laws
    of the aged snapshot given two presents that differ in one sequence.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(aged_correlation(chain, ages=2), 9)
    0.1
    """
    return max(each.pairs.total_variation for each in _setting(chain, "identity", ages, 1.0).components)


@dataclass(frozen=True)
class LeakageCoefficient:
    """The largest Phi(lambda, A) of a sweep, and its coupling. A sweep proves nothing: it is never a certificate."""

    value: float
    coupling: tuple[tuple[float, ...], ...]


def cmc_leakage_coefficient(
    transitions: Any, *, strength: float, ages: Any, sequences: int = 2, points: int = 5
) -> LeakageCoefficient:
    """The paper's Phi(lambda, A) (its Definition 7): largest Delta_k over chains whose coupling is at most lambda.

    Sequence j gives weight c_j <= lambda to each other sequence; the c_j run over a grid (each sequence on its own up
    to 3 sequences, all together beyond).

    Args:
        transitions: one transition matrix for all pairs of sequences.
        strength: lambda, the largest coupling to another sequence.
        ages: one age for all sequences, or one each.
        sequences: number of sequences.
        points: number of values in [0, lambda] that each c_j takes.

    >>> flat = cmc_leakage_coefficient([[0.7, 0.3], [0.3, 0.7]], strength=0.5, ages=1)
    >>> round(flat.value, 3), flat.coupling[0]
    (0.4, (1.0, 0.0))
    """
    check.whole("points", points, least=2)
    check.whole("sequences", sequences, least=2)
    check.number("strength", strength, least=0, most=1 / (sequences - 1), hint="the weights on all others sum to 1")
    levels = np.linspace(0.0, strength, points)
    choices = itertools.product(levels, repeat=sequences) if sequences <= 3 else ((c,) * sequences for c in levels)
    best = LeakageCoefficient(-1.0, ())
    for chosen in choices:
        weights = np.broadcast_to(np.array(chosen)[:, None], (sequences, sequences)).copy()
        np.fill_diagonal(weights, 1.0 - np.array(chosen) * (sequences - 1))
        value = aged_correlation(CoupledChain(weights, transitions), ages=ages)
        if value > best.value + 1e-12:
            best = LeakageCoefficient(value, tuple(map(tuple, weights.tolist())))
    return best


# ---- Theorem 1, repaired ---------------------------------------------------------------------------------------------


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

    Formal guarantee: the paper's Theorem 1, repaired; linear in epsilon_c, any number of sequences. Infinite if the
    spectral radius of U is 1 or more and releases never end.

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
