"""The paper's numerical set-up: two binary sequences that change state with probability 0.3, and their mean."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import csdp
from csdp import paper

MEAN = csdp.Mean()
#: The paper's names for the weight of a sequence on itself.
COUPLINGS = {"no coupling": 1.0, "medium": 0.75, "full": 0.5}
#: d(2) of the mean, which the paper uses at every coupling.
D2 = 2.0
#: What the two aged values are in its utility figures.
EQUAL, MIXED = (1.0, 1.0), (1.0, 0.0)
#: Formulas of the paper, by the names of their lines in figures.
FORMULAS = {"printed-loose": paper.printed_loose, "printed-tight": paper.printed_tight, "loose": paper.loose}


@lru_cache(maxsize=256)
def pair(own: float, p: float = 0.3, q: float = 0.3) -> csdp.CoupledChain:
    """Two binary sequences, 0 to 1 with p and back with q, each with weight `own` on itself."""
    return csdp.CoupledChain([[own, 1 - own], [1 - own, own]], [[1 - p, p], [q, 1 - q]])


def ring(sequences: int, own: float = 0.8) -> csdp.CoupledChain:
    """Return a chain in which every sequence follows itself and its two neighbours."""
    weights = np.zeros((sequences, sequences))
    for i in range(sequences):
        weights[i, i] += own
        for j in (i - 1, i + 1):
            weights[i, j % sequences] += (1 - own) / 2
    return csdp.CoupledChain(weights, [[0.7, 0.3], [0.3, 0.7]])


def all_to_all(sequences: int, own: float = 0.8) -> csdp.CoupledChain:
    """Return a chain in which every sequence follows itself and all others equally."""
    weights = np.full((sequences, sequences), (1 - own) / (sequences - 1))
    np.fill_diagonal(weights, own)
    return csdp.CoupledChain(weights, [[0.7, 0.3], [0.3, 0.7]])


@lru_cache(maxsize=4096)
def leak(chain: csdp.CoupledChain, age: int, epsilon_c: float, bound: str = "exact") -> float:
    """Leakage of the present by one bound, or by a formula of the paper; "exact" is the truth."""
    if bound in FORMULAS:
        return FORMULAS[bound](chain, MEAN, ages=age, epsilon_c=epsilon_c)
    return csdp.leakage(chain, MEAN, ages=age, epsilon_c=epsilon_c, bound=bound).epsilon


@lru_cache(maxsize=1024)
def correlation(own: float, age: int) -> float:
    """The paper's Delta_k in its set-up."""
    return paper.aged_correlation(pair(own), ages=age)


def printed_leakage(own: float, age: int, epsilon_c: float) -> float:
    """Theorem 1 as the paper evaluates it: d(2) Delta_k epsilon_c, with d(2) = 2 at every coupling."""
    return D2 * correlation(own, age) * epsilon_c


def level_for(target: float, aging: float) -> float:
    """The epsilon_c at which aging error and noise add up to the target: 2 (Delta_f / epsilon_c)^2 = target - aging.

    >>> round(level_for(0.6, 0.375), 2), round(level_for(0.6, 0.125), 2)
    (1.49, 1.03)
    """
    return float((0.5 / (target - aging)) ** 0.5)
