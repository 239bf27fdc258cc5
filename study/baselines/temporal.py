"""Temporal privacy leakage (Cao et al. 2017): leakage of one record by a stream of releases.

`BPL_t = L_B(BPL_{t-1}) + eps_t`, `FPL_t = L_F(FPL_{t+1}) + eps_t`, `TPL = BPL + FPL - eps_t`, with L the loss function
of the backward and of the forward kernel over all pairs of snapshots, in logarithms.

The recursion holds for any mechanism. Let G(x_1..x_t) be the probability of the outputs, and let it change by a factor
of at most e^E when one component's snapshots of any w consecutive ticks change. Over the newest w ticks the largest and
the least G differ by at most e^E for every past, and the least is again such a function of the past. So
`b <- E + L_w(b)`, L_w the loss of w steps back, bounds the log ratio of the probabilities of all outputs under two
values of the newest snapshot, also if hidden noise and earlier outputs decide what is published. `newest_bound` is its
limit; docs/proofs.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from csdp.accountant.kernels import BackwardKernel, ProfileTable
from csdp.bounds.metric import AgedPairs
from csdp.chain import Model
from csdp.errors import TooLargeError
from csdp.numbers import Floats
from csdp.query_table import Query
from study.baselines.protocol import check_stationary

#: Joint states of a component up to which its loss functions are tabulated.
LOSS_STATES = 256
#: A limit is searched up to this many times its cost (or 1); beyond, it counts as infinite.
HIGHEST = 1e4


@dataclass(frozen=True, eq=False)
class TemporalLeakage:
    """Backward, forward and temporal privacy leakage of every tick."""

    bpl: Floats
    fpl: Floats
    tpl: Floats


def temporal_leakage(chain: Model, epsilons: npt.ArrayLike) -> TemporalLeakage:
    """Compute BPL, FPL and TPL per tick of releases that cost `epsilons[t]` between any two snapshots of tick t.

    Several components: the largest of each. Reference: Cao, Yoshikawa, Xiao and Xiong, "Quantifying differential
    privacy under temporal correlations" (2017).

    >>> from csdp import CoupledChain
    >>> leakage = temporal_leakage(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), [1.0] * 100)
    >>> round(float(leakage.bpl.max()), 4), round(float(leakage.tpl.max()), 4)
    (1.5261, 2.0522)
    """
    check_stationary(chain)
    costs = np.asarray(epsilons, dtype=np.float64)
    bpl, fpl, tpl = (np.zeros(costs.size) for _ in range(3))
    for backward, forward in loss_tables(chain):
        back = _recursion(costs, backward.largest)
        ahead = _recursion(costs[::-1], forward.largest)[::-1]
        bpl, fpl, tpl = np.maximum(bpl, back), np.maximum(fpl, ahead), np.maximum(tpl, back + ahead - costs)
    return TemporalLeakage(bpl, fpl, tpl)


def group_sensitivity(chain: Model, query: Query) -> float:
    """Return the largest change of the answer when all records of one component change."""
    table = chain.value_table
    return max(query.sensitivity(len(members), table, members=members) for members in chain.components())


@lru_cache(maxsize=8)
def loss_tables(chain: Model, steps: int = 1) -> tuple[tuple[ProfileTable, ProfileTable], ...]:
    """Return loss functions of this many steps back and ahead, for each distinct component."""
    tables = []
    for component in _distinct_components(chain):
        backward = BackwardKernel(component)
        ahead = ProfileTable(np.linalg.matrix_power(backward.forward, steps), relative=backward.relative(steps))
        tables.append((backward.profile_table(steps), ahead))
    return tuple(tables)


def _distinct_components(chain: Model) -> list[Model]:
    """One of each set of equal components; raises TooLargeError if its loss functions cannot be tabulated."""
    components = []
    for members, _ in chain.distinct_components(np.zeros(chain.sequences, dtype=np.intp)):
        component = chain if len(members) == chain.sequences else chain.subchain(members)
        if component.size > LOSS_STATES:
            raise TooLargeError(
                f"temporal leakage: a component has {component.states}**{component.sequences} joint states; "
                f"at most {LOSS_STATES}",
                needed=float(min(component.size, 10**300)),
                limit=LOSS_STATES,
            )
        components.append(component)
    return components


def _recursion(costs: Floats, loss: Callable[[float], float]) -> Floats:
    out = np.empty(costs.size)
    last = 0.0
    for t, cost in enumerate(costs):
        last = float(cost) + loss(last)
        out[t] = last
    return out


# ---- streams that decide by hidden noise ----------------------------------------------------------------------------


def newest_bound(chain: Model, cost: float, *, window: int = 1, one: float | None = None) -> float:
    """Bound the leakage of the newest snapshot by all outputs up to now, after any number of ticks.

    It is the limit of `b <- cost + L_window(b)`, rounded up; infinite where there is none. It compares all pairs of
    snapshots, so it holds for every adversary. Against an informed one it is also at most `one + L'(b)`, L' the loss of
    one step over presents that differ in one sequence.

    Args:
        chain: the model.
        cost: the largest change of the log-probability of the outputs when one component's snapshots of any `window`
            consecutive ticks change.
        window: ticks that `cost` covers.
        one: the same for a change of one record of one tick; only for an informed adversary.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(newest_bound(chain, 1.0), 4), round(newest_bound(chain, 1.0, window=5), 4)
    (1.5261, 1.0095)
    """
    worst = 0.0
    for (back, _), neighbours in zip(loss_tables(chain, window), _neighbours(chain), strict=True):
        bound = recursion_limit(back.largest, cost)
        if one is not None and math.isfinite(bound):
            bound = min(bound, one + neighbours.profile(bound) * (1 + 1e-12))
        worst = max(worst, bound)
    return worst


@lru_cache(maxsize=8)
def _neighbours(chain: Model) -> tuple[AgedPairs, ...]:
    """One step back from presents that differ in one sequence, for each distinct component."""
    return tuple(
        AgedPairs(component, ages=[1] * component.sequences, adversary="informed")
        for component in _distinct_components(chain)
    )


def recursion_limit(loss: Callable[[float], float], cost: float) -> float:
    """Return the limit of b <- cost + L(b), rounded up; infinite where there is none."""
    fixed_point = invert_loss(loss, cost, HIGHEST * max(cost, 1.0))
    return math.inf if fixed_point is None else fixed_point


def invert_loss(loss: Callable[[float], float], cost: float, ceiling: float) -> float | None:
    """Return the least b with b - L(b) >= cost; None where it lies above the ceiling.

    b - L(b) is non-decreasing: clipping a function whose logarithm ranges over b + c to a range of b changes it by a
    factor of at most e^c, so L(b + c) <= L(b) + c.
    """
    if ceiling - loss(ceiling) < cost:
        return None
    low, high = 0.0, ceiling
    for _ in range(60):
        middle = (low + high) / 2
        if middle - loss(middle) < cost:
            low = middle
        else:
            high = middle
    return high
