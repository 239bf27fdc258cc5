"""Pufferfish mechanisms (Song, Wang and Chaudhuri 2017): Wasserstein for one snapshot, Markov Quilt for a series."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from csdp.aging import AgedLaw, index_parts, marginal
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats
from csdp.query import QueryTable, tabulate
from csdp.query_table import FoldTable, Query
from study.baselines.laplace import LaplaceBaseline, safe_log
from study.baselines.protocol import check_stationary

#: Steps of a quantile function below this are attributed to rounding.
QUANTILE_SLACK = 1e-14
#: Product of squared joint states and squared ticks up to which Markov Quilts are searched.
QUILT_WORK = 1e9
#: Ticks of a series up to which Markov Quilts are searched.
QUILT_LENGTH = 1000


@dataclass(frozen=True)
class Wasserstein(LaplaceBaseline):
    """The Wasserstein mechanism: scale W_inf / epsilon. Age lowers W_inf only where the laws' supports overlap."""

    name: ClassVar[str] = "wasserstein"
    title: ClassVar[str] = "Wasserstein (Song et al. 2017)"
    guarantee: ClassVar[str] = "epsilon-Pufferfish: one release tells two values of a record apart by at most epsilon"

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """W_inf / scale."""
        return wasserstein(chain, query, self.age) / scale


def wasserstein(chain: Model, query: Query, age: int) -> float:
    """Return the largest W_inf between the laws of the answer given two present values of one sequence."""
    return _wasserstein(chain, tabulate(query, chain), age)


@lru_cache(maxsize=32)
def _wasserstein(chain: Model, query: QueryTable, age: int) -> float:
    s, m = chain.sequences, chain.states
    table = chain.value_table
    if len(query.outputs) > 1:
        raise InputError(f"wasserstein: {query.name} has several outputs; the mechanism is for one")
    if isinstance(query, FoldTable):
        aged = AgedLaw(chain, query.contributions(), ages=[age] * s, fold=query.fold)
        answers = aged.classes[:, 0] / query.denominator
    else:
        aged = AgedLaw(chain, index_parts(s, m), ages=[age] * s)
        states = np.array(np.unravel_index(aged.classes[:, 0].astype(np.intp), (m,) * s)).T
        answers = query.evaluate(states, table)[:, 0]
    order = np.argsort(answers)
    worst = 0.0
    for i in range(s):
        joint = marginal(aged.mass.measure, (i,), s, m)[:, order]
        law = joint.sum(axis=1)
        rows = joint[law > 0] / law[law > 0, None]
        for a in range(len(rows)):
            for b in range(a):
                worst = max(worst, quantile_gap(answers[order], rows[a], rows[b]))
    if worst <= 0:
        raise InputError("wasserstein: no record's present value changes the law of the answer; no noise is needed")
    return worst


def quantile_gap(values: Floats, p: Floats, q: Floats) -> float:
    """Return W_inf of two laws on sorted values: the largest gap between their quantile functions.

    >>> quantile_gap(np.array([0.0, 1.0, 3.0]), np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.25, 0.25]))
    2.0
    """
    first, second = np.cumsum(p), np.cumsum(q)
    first[-1] = second[-1] = 1.0
    cuts = np.unique(np.concatenate([[0.0], first, second]))
    steps = np.flatnonzero(np.diff(cuts) > QUANTILE_SLACK)
    middle = (cuts[steps] + cuts[steps + 1]) / 2
    gap = values[np.searchsorted(first, middle)] - values[np.searchsorted(second, middle)]
    return float(np.abs(gap).max())


# ---- Markov Quilt --------------------------------------------------------------------------------------------------


def markov_quilt_scale(
    chain: Model, *, length: int = 100, epsilon: float = 1.0, method: Literal["exact", "approx"] = "exact"
) -> float:
    """Return sigma of the Markov Quilt Mechanism for a series of one sequence: the noise scale per unit of sensitivity.

    `sigma = max_i min over quilts card / (epsilon - e)`; quilts {i-a, i+b} with a+b-1 records inside, {i-a}, {i+b} and
    none. "exact" takes the largest influence e from powers of the kernel, "approx" from the eigengap. Guarantee:
    epsilon-Pufferfish of every tick's state given the whole series. Reference: Song, Wang and Chaudhuri (2017).

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(markov_quilt_scale(chain), 4), round(markov_quilt_scale(chain, method="approx"), 3)
    (6.7236, 15.572)
    """
    check_stationary(chain)
    if chain.sequences != 1:
        raise InputError(
            f"chain: {chain.sequences} sequences given; one expected. study.baselines.MarkovQuilt takes several, "
            "with the whole snapshot as the secret"
        )
    quilts = Quilts.of(chain, length=length, method=method)
    return quilts.scale(epsilon)


@dataclass(frozen=True, eq=False)
class Quilts:
    """Influences of every quilt of a stationary chain."""

    length: int
    influence: Floats  #: (T + 1, T + 1): e of {i-a, i+b}; row or column 0: that side is open

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, chain: Model, *, length: int, method: str) -> Quilts:
        """Compute the influences of one component, its snapshots as the nodes of one chain."""
        work = float(chain.size) ** 2 * length * max(length, 100)
        if length > QUILT_LENGTH or work > QUILT_WORK:
            raise TooLargeError(
                f"markov quilt: {chain.states}**{chain.sequences} joint states over {length} ticks; at most "
                f"{QUILT_LENGTH:,} ticks, and states^2 ticks^2 up to {QUILT_WORK:.0e}",
                needed=work,
                limit=QUILT_WORK,
            )
        law = chain.stationary()
        seen = np.flatnonzero(law > 0)
        kernel = chain.kernel()[np.ix_(seen, seen)]
        influence = _exact_influence if method == "exact" else _approximate_influence
        return cls(length, influence(kernel / kernel.sum(axis=1, keepdims=True), law[seen], length))

    def scale(self, epsilon: float) -> float:
        """Return the least sigma for an epsilon: max_i min over quilts card / (epsilon - e)."""

        def cost(card: Floats, influence: Floats) -> Floats:
            room = np.maximum(epsilon - influence, 0.0)
            return np.asarray(np.divide(card, room, out=np.full(np.shape(card), np.inf), where=room > 0))

        return self._worst_node(cost)

    def epsilon(self, scale: float) -> float:
        """Return the epsilon of noise of one sigma: max_i min over quilts e + card / sigma."""
        return self._worst_node(lambda card, influence: np.asarray(influence + card / scale))

    def _worst_node(self, cost: Callable[[Floats, Floats], Floats]) -> float:
        """The largest over nodes of the least cost over their quilts; two-sided quilts are shared by all nodes."""
        T = self.length
        node = np.arange(1, T + 1)[:, None]
        side = np.arange(1, T + 1)[None, :]
        shape = (T, T)
        left = cost((T - node + side).astype(float), np.broadcast_to(self.influence[1:, 0], shape))
        right = cost((node + side - 1).astype(float), np.broadcast_to(self.influence[0, 1:], shape))
        best = np.minimum(
            np.where(side < node, left, np.inf).min(axis=1),
            np.where(side <= T - node, right, np.inf).min(axis=1),
        )
        best = np.minimum(best, cost(np.array([float(T)]), np.zeros(1)))
        both = cost((node + side - 1).astype(float), self.influence[1:, 1:])
        both = np.minimum.accumulate(np.minimum.accumulate(both, axis=0), axis=1)  # quilts a <= row, b <= column
        inner = np.arange(1, T - 1)  # node i = inner + 1 has i - 1 ticks before it and T - i after
        best[inner] = np.minimum(best[inner], both[inner - 1, T - inner - 2])
        return float(best.max())


def _exact_influence(kernel: Floats, law: Floats, length: int) -> Floats:
    """e of all quilts, from powers of the kernel."""
    n = law.size
    prior = safe_log(law)[None, :] - safe_log(law)[:, None]  # ln P(x') / P(x)
    back, ahead = [np.zeros((n, n))], [np.zeros((n, n))]
    power = np.eye(n)
    for _ in range(length):
        power = power @ kernel
        log_power = safe_log(power)
        with np.errstate(invalid="ignore"):
            # Pairs of states that are both unreachable from a state give NaN, which `_entrywise_max` ignores.
            back.append(prior + _entrywise_max([row[:, None] - row[None, :] for row in log_power]))
            ahead.append(_entrywise_max([column[:, None] - column[None, :] for column in log_power.T]))
    stacked, flat = np.array(back).reshape(length + 1, -1), np.array(ahead).reshape(length + 1, -1)
    out = np.empty((length + 1, length + 1))
    for a in range(length + 1):
        out[a] = (stacked[a][None, :] + flat).max(axis=1)
    return np.maximum(out, 0.0)


def _entrywise_max(spreads: list[Floats]) -> Floats:
    """Entrywise maximum of tables, ignoring NaN."""
    out = np.full_like(spreads[0], -np.inf)
    for spread in spreads:
        np.fmax(out, spread, out=out)
    return out


def _approximate_influence(kernel: Floats, law: Floats, length: int) -> Floats:
    """Bounds on e from the eigengap: 2 ln((1+D_a)/(1-D_a)) + ln((1+D_b)/(1-D_b)), D_t = e^(-g t/2) / pi_min."""
    gap = eigengap(kernel, law)
    away = np.exp(-gap * np.arange(1, length + 1) / 2.0) / law.min()
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(away < 1.0, np.log1p(away) - np.log1p(-np.minimum(away, 1.0)), np.inf)
    side = np.concatenate([[0.0], one])
    return np.asarray(2.0 * side[:, None] + side[None, :])


def eigengap(kernel: Floats, law: Floats) -> float:
    """Return g = 2 (1 - |lambda_2|) of a reversible kernel, else 1 - lambda_2 of the kernel times its reversal."""
    if law.size == 1:
        return math.inf
    root = np.sqrt(law)
    reversal = (kernel * law[:, None]).T / law[:, None]
    if np.allclose(kernel, reversal, rtol=1e-10, atol=1e-14):
        symmetric = root[:, None] * kernel / root[None, :]
        values = np.sort(np.abs(np.linalg.eigvalsh((symmetric + symmetric.T) / 2)))
        return max(0.0, 2.0 * (1.0 - float(values[-2])))
    both = root[:, None] * (kernel @ reversal) / root[None, :]
    values = np.sort(np.linalg.eigvalsh((both + both.T) / 2))
    return max(0.0, 1.0 - float(values[-2]))


def quilt_epsilon(chain: Model, query: Query, scale: float, *, length: int, method: str) -> float:
    """Return the largest over components of max_i min over quilts e + card s_k / scale."""
    table = chain.value_table
    worst = 0.0
    for members in chain.components():
        component = chain if len(members) == chain.sequences else chain.subchain(members)
        sensitivity = query.sensitivity(len(members), table, members=members)
        if sensitivity > 0:
            worst = max(worst, Quilts.of(component, length=length, method=method).epsilon(scale / sensitivity))
    return worst


@dataclass(frozen=True)
class MarkovQuilt(LaplaceBaseline):
    """The Markov Quilt Mechanism on the stream of answers; the secret is a component's whole snapshot of one tick."""

    length: int = 100

    name: ClassVar[str] = "markov-quilt"
    title: ClassVar[str] = "Markov Quilt exact (Song et al. 2017)"
    guarantee: ClassVar[str] = (
        "epsilon-Pufferfish of every tick's snapshot given the whole published series of `length` ticks"
    )
    method: ClassVar[str] = "exact"

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """Epsilon from influences by powers of the kernel ("exact") or by the eigengap ("approx")."""
        return quilt_epsilon(chain, query, scale, length=self.length, method=self.method)


@dataclass(frozen=True)
class ApproximateMarkovQuilt(MarkovQuilt):
    """The Markov Quilt Mechanism with influences bounded by the eigengap: cheaper, and never less noise."""

    name: ClassVar[str] = "markov-quilt-approx"
    title: ClassVar[str] = "Markov Quilt approximate (Song et al. 2017)"
    method: ClassVar[str] = "approx"
