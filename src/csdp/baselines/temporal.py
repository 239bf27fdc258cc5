"""Temporal privacy leakage (Cao et al. 2017): what a stream of releases tells of one record.

`BPL_t = L_B(BPL_{t-1}) + eps_t`, `FPL_t = L_F(FPL_{t+1}) + eps_t`, `TPL = BPL + FPL - eps_t`, with L the loss function
of the backward and of the forward kernel over all pairs of snapshots. Everything is in logarithms.

The recursion does not ask how outputs come about. Let G(x_1..x_t) be the probability of what was published, and let it
change by a factor of at most e^E when one component's snapshots of any w consecutive ticks change. Take the newest w
ticks: the largest and the least G over them differ by at most e^E whatever was before, and the least is again such a
function, of what was before. So `b <- E + L_w(b)`, L_w the loss of w steps back, bounds how far the probability of all
outputs differs between two values of the newest snapshot, also where hidden noise and earlier outputs decide what is
published. `newest_bound` and `tick_bound` are its limits; docs/baselines.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.accountant.kernels import BackwardKernel, ProfileTable
from csdp.baselines.protocol import Floats, stationary_chain
from csdp.bounds.closed_forms import AgedPairs
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.queries import Query

#: Joint states of a component up to which its loss functions are tabled.
LOSS_STATES = 256
#: Above this many times its cost (or 1) a limit is not looked for: there is none, or it is of no use.
HIGHEST = 1e4


@dataclass(frozen=True, eq=False)
class TemporalLeakage:
    """Backward, forward and temporal privacy leakage of every tick."""

    bpl: Floats
    fpl: Floats
    tpl: Floats

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {"bpl": self.bpl.tolist(), "fpl": self.fpl.tolist(), "tpl": self.tpl.tolist()}


def temporal_leakage(chain: Model, epsilons: npt.ArrayLike) -> TemporalLeakage:
    """BPL, FPL and TPL per tick of releases that cost `epsilons[t]` between any two snapshots of tick t.

    Several components: the largest of each. Reference: Cao, Yoshikawa, Xiao and Xiong, "Quantifying differential
    privacy under temporal correlations" (2017).

    >>> from csdp import CoupledChain
    >>> found = temporal_leakage(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), [1.0] * 100)
    >>> round(float(found.bpl.max()), 4), round(float(found.tpl.max()), 4)
    (1.5261, 2.0522)
    """
    stationary_chain(chain)
    costs = _budgets(epsilons)
    bpl, fpl, tpl = (np.zeros(costs.size) for _ in range(3))
    for backward, forward in losses(chain):
        back = _recursion(costs, backward.largest)
        ahead = _recursion(costs[::-1], forward.largest)[::-1]
        bpl, fpl, tpl = np.maximum(bpl, back), np.maximum(fpl, ahead), np.maximum(tpl, back + ahead - costs)
    return TemporalLeakage(bpl, fpl, tpl)


def _budgets(epsilons: npt.ArrayLike) -> Floats:
    try:
        costs = np.asarray(epsilons, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("epsilons: one non-negative number per tick expected") from None
    if costs.ndim != 1 or not costs.size or not np.isfinite(costs).all() or (costs < 0).any():
        raise InputError("epsilons: a list of finite numbers, 0 or more, one per tick")
    return costs


def group_sensitivity(chain: Model, query: Query) -> float:
    """The largest change of the answer when all records of one component change."""
    table = chain.value_table
    return max(query.sensitivity(len(part), table, members=part) for part in chain.components())


@lru_cache(maxsize=8)
def losses(chain: Model, steps: int = 1) -> tuple[tuple[ProfileTable, ProfileTable], ...]:
    """Loss functions of so many steps back and ahead, of every kind of component."""
    found = []
    for part in _parts(chain):
        backward = BackwardKernel(part)
        ahead = ProfileTable(np.linalg.matrix_power(backward.forward, steps), relative=backward.relative(steps))
        found.append((backward.profile_table(steps), ahead))
    return tuple(found)


def _parts(chain: Model) -> list[Model]:
    """A component of every kind, none too large to be tabled."""
    found = []
    for members, _ in chain.alike(np.zeros(chain.sequences, dtype=np.intp)):
        part = chain if len(members) == chain.sequences else chain.subchain(members)
        if part.size > LOSS_STATES:
            raise TooLargeError(
                f"temporal leakage: a component has {part.states}**{part.sequences} joint states; "
                f"at most {LOSS_STATES}",
                needed=float(min(part.size, 10**300)),
                limit=LOSS_STATES,
            )
        found.append(part)
    return found


def _recursion(costs: Floats, loss: Callable[[float], float]) -> Floats:
    out = np.empty(costs.size)
    last = 0.0
    for t, cost in enumerate(costs):
        last = float(cost) + loss(last)
        out[t] = last
    return out


# ---- streams that decide by hidden noise ----------------------------------------------------------------------------


def newest_bound(chain: Model, cost: float, *, window: int = 1, one: float | None = None) -> float:
    """What all outputs up to now tell at most of the newest snapshot, after any number of ticks.

    `cost`: how far the log-probability of what is published moves when one component's snapshots of any `window`
    consecutive ticks change. The limit of `b <- cost + L_window(b)` from above; infinite where there is none. It
    compares all pairs of snapshots, so it holds for every adversary. Against one who knows all presents but one, and
    with `one` what a change of one record of one tick costs, it is also at most `one + L'(b)`, L' the loss of one step
    over presents that differ in one sequence.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> round(newest_bound(chain, 1.0), 4), round(newest_bound(chain, 1.0, window=5), 4)
    (1.5261, 1.0095)
    """
    worst = 0.0
    for (back, _), neighbours in zip(losses(chain, window), _neighbours(chain), strict=True):
        found = limit(back.largest, cost)
        if one is not None and math.isfinite(found):
            found = min(found, one + neighbours.profile(found) * (1 + 1e-12))
        worst = max(worst, found)
    return worst


@lru_cache(maxsize=8)
def _neighbours(chain: Model) -> tuple[AgedPairs, ...]:
    """One step back from presents that differ in one sequence, of every kind of component."""
    return tuple(AgedPairs(part, ages=[1] * part.sequences, adversary="informed") for part in _parts(chain))


def tick_bound(chain: Model, cost: float, *, window: int = 1) -> float:
    """What all outputs, before and after, tell at most of one tick's snapshot; see `newest_bound`.

    The block that ends (or begins) at the tick costs `cost`; what lies on its far side and what lies on the tick's
    other side add their losses.
    """
    found = []
    for (back, ahead), (one_back, one_ahead) in zip(losses(chain, window), losses(chain), strict=True):
        past, future = limit(back.largest, cost), limit(ahead.largest, cost)
        found.append(min(past + one_ahead.largest(future), future + one_back.largest(past)))
    return max(found)


def limit(loss: Callable[[float], float], cost: float) -> float:
    """The limit of b <- cost + L(b), from above: where it is not raised any more; infinite where it never stops."""
    found = inverse(loss, cost, HIGHEST * max(cost, 1.0))
    return math.inf if found is None else found


def inverse(loss: Callable[[float], float], cost: float, ceiling: float) -> float | None:
    """The least b with b - L(b) >= cost; None where it lies above the ceiling.

    b - L(b) never falls: of a function whose logarithm ranges over b + c, cutting the top off at b loses a factor of at
    most e^c, so L(b + c) <= L(b) + c.
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
