"""Our own mechanism as a black box: the noise of FRAN on many aged snapshots at once, and no ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.fran import lattice_answer
from csdp.noise import Randomness, two_sided_geometric
from csdp.plan import Plan

Floats = npt.NDArray[np.float64]


def plan_mechanism(plan: Plan) -> Callable[[npt.NDArray[Any], np.random.Generator], Floats]:
    """The mechanism of a plan, for readings (n, s) or (n, releases, s) of state numbers.

    What it gives is for an audit only: nothing is charged, and the generator knows the noise.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> plan_mechanism(plan)(np.array([[0], [1]]), np.random.default_rng(1)).shape
    (2, 1)
    """
    plan.check_noise()

    def run(readings: npt.NDArray[Any], random: np.random.Generator) -> Floats:
        flat = readings.reshape(-1, readings.shape[-1])
        # Many samples are few snapshots: each is asked once.
        distinct, place = np.unique(flat, axis=0, return_inverse=True)
        answer = lattice_answer(plan, distinct)[place.ravel()]
        noise = two_sided_geometric(plan.scale, answer.shape, Randomness.from_key(random.bytes(32)))
        outputs = (answer + noise * plan.step) / plan.divisor
        return np.asarray(outputs.reshape(*readings.shape[:-1], answer.shape[-1]))

    return run
