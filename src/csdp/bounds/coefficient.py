"""The paper's CMC leakage coefficient: the worst aged correlation over all couplings up to a given strength."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from csdp.bounds.paper import aged_correlation
from csdp.chain import CoupledChain
from csdp.errors import InputError


@dataclass(frozen=True)
class LeakageCoefficient:
    """Phi(lambda, A) as found by a sweep, and the coupling where it was found. A sweep proves nothing: never a
    certificate.
    """

    value: float
    strength: float
    coupling: tuple[tuple[float, ...], ...]
    evaluations: int

    def __float__(self) -> float:
        return self.value


def cmc_leakage_coefficient(
    transitions: Any, *, strength: float, ages: Any, sequences: int = 2, points: int = 5
) -> LeakageCoefficient:
    """The paper's Phi(lambda, A) (its Definition 7): largest Delta_k over chains whose coupling is at most lambda.

    Sequence j gives weight c_j <= lambda to each other sequence; the c_j run over a grid of `points` values in
    [0, lambda] (each sequence on its own up to 3 sequences, all together beyond).

    >>> flat = cmc_leakage_coefficient([[0.7, 0.3], [0.3, 0.7]], strength=0.5, ages=1)
    >>> round(flat.value, 3), flat.coupling[0]
    (0.4, (1.0, 0.0))
    """
    if not 0 <= strength * (sequences - 1) <= 1:
        raise InputError(
            f"strength: {strength} given; the weights on {sequences - 1} other sequences must sum to at most 1"
        )
    if points < 2 or sequences < 2:
        raise InputError("cmc_leakage_coefficient: at least 2 points and 2 sequences")
    levels = np.linspace(0.0, strength, points)
    choices = itertools.product(levels, repeat=sequences) if sequences <= 3 else ((c,) * sequences for c in levels)
    best: LeakageCoefficient | None = None
    count = 0
    for chosen in choices:
        weights = np.broadcast_to(np.array(chosen)[:, None], (sequences, sequences)).copy()
        np.fill_diagonal(weights, 1.0 - np.array(chosen) * (sequences - 1))
        value = aged_correlation(CoupledChain(weights, transitions), ages=ages)
        count += 1
        if best is None or value > best.value + 1e-12:
            best = LeakageCoefficient(value, strength, tuple(map(tuple, weights.tolist())), count)
    assert best is not None
    return LeakageCoefficient(best.value, strength, best.coupling, count)
