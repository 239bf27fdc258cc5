"""The leakage of the present reading if what a reading is made of beside its state is dependent over time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from csdp.accountant.accountant import Accountant
from csdp.accountant.kernels import fixed_point_above
from csdp.bounds.result import Leakage, round_up
from csdp.computation import ReadingsComputation
from csdp.errors import InputError
from csdp.plan import Plan

#: Comparisons of levels up to which the largest change inside a state is searched for.
_COMPARED = 50_000_000


def reading_leakage(plan: Plan, *, persistence: float, width: float, releases: int | None = None) -> Leakage:
    """How much releases of readings tell of a present *reading*, whose disturbance is a chain of its own.

    A reading is made of its state x and of a disturbance u. Its certificate needs disturbances that are independent
    over time; where they are not (`csdp.check_readings` says "states"), this one holds if they are a Markov chain:

        b_u <- ln(1 + persistence (e^b_u - 1)) from tick to tick,   b_u <- b_u + epsilon_c (share of the range)

    at every release, the share being how far a reading can move inside a state; of the reading no more is told than of
    its state (`Accountant`) and b_u together.

    Formal guarantee: for present readings of one sequence, any two of them, all other present readings known, if states
    and disturbances can be read off a reading, disturbances are independent of all states and between sequences, and
    each is a Markov chain, seen from now into the past.

    Args:
        plan: what is released at every tick: a query of readings.
        persistence: the largest total variation between the laws of the disturbance one tick before, given two present
            ones; 0 where disturbances are independent over time, 1 where one never forgets.
        width: the range of readings inside the widest state.
        releases: how many times; without end by default.

    >>> from csdp import CoupledChain, Mean, ReadingRange
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    >>> plan = Plan(chain, Mean(of=ReadingRange(0, 1, 0.01)), ages=1, epsilon_c=1.0)
    >>> [round(reading_leakage(plan, persistence=p, width=0.2).epsilon, 3) for p in (0.0, 0.5, 0.7)]
    [0.526, 0.792, 1.314]
    """
    query = plan.query
    if not isinstance(query, ReadingsComputation):
        raise InputError(f"reading_leakage: {query.name} is not a query of readings; give a plan of such a query")
    if plan.readings_check == "failed":
        raise InputError(
            "reading_leakage: on the public past the disturbance tells of states, so that it is no chain of its own; "
            "use finer states"
        )
    for name, value, most in (("persistence", persistence, 1.0), ("width", width, math.inf)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise InputError(f"{name}: {value!r} given; a number from 0 to {most:g}")

    cost = plan.epsilon_c * _share_inside(query, width) * (1 + 1e-13)
    if releases is None:
        told = math.inf
        if persistence < 1:
            told = fixed_point_above(lambda b: cost + _later(b, persistence), cost, ticks=5000)
    else:
        told = 0.0
        for _ in range(releases):
            told = cost + _later(told, persistence)
    for _ in range(plan.min_age):
        told = _later(told, persistence)
    accountant = Accountant(plan)
    state = accountant.limit() if releases is None else accountant.after(releases)
    words = (
        f"for the present reading: disturbances are independent of all states and between sequences, and are Markov "
        f"chains with persistence {persistence:g}, inside states at most {width:g} wide"
    )
    return replace(
        state,
        epsilon=round_up(accountant.ceiling(releases) + told),
        assumptions=(*state.assumptions, query.assumption, words),
    )


def _later(b: float, persistence: float) -> float:
    """ln(1 + persistence (e^b - 1)), rounded up."""
    if persistence in {0.0, 1.0} or b == 0:
        return b * persistence
    if b < 1:
        return math.log1p(persistence * math.expm1(b)) * (1 + 1e-14)
    return float(np.logaddexp(math.log1p(-persistence), math.log(persistence) + b)) * (1 + 1e-14) + 1e-15


def _share_inside(query: ReadingsComputation, width: float) -> float:
    """How far a reading can move the answer inside a state, as a share of how far it can move it at all."""
    parts = query.parts.astype(np.float64)
    # A tie may be rounded either way; and 0.3 is three steps of 0.1, although the quotient of the floats is below 3.
    reach = min(math.floor(width / query.of.resolution * (1 + 1e-9)) + 1, len(parts) - 1)
    whole = query.undivided_sensitivity(1) / float(np.abs(query.shares).max())
    if reach * parts.size > _COMPARED:
        return 1.0
    inside = max(float(np.abs(parts[n:] - parts[:-n]).sum(axis=1).max()) for n in range(1, reach + 1))
    return min(1.0, inside / whole)
