"""Chains that tests of several baselines use, and what a noisy series tells of one tick, by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import logsumexp

import csdp
import oracle

SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
CYCLE = csdp.CoupledChain([[1.0]], [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
PERIODIC = csdp.CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]])
PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
THREE = csdp.CoupledChain(
    [[0.6, 0.4], [0.3, 0.7]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], values=[0, 1, 3]
)


def series_leakage(chain, scale, length, tick):
    """Exact log ratio of a whole noisy series given the state of one tick: every path, every corner output."""
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    values = chain.values
    n = len(law)
    rows = []
    outputs = np.array(list(itertools.product(values, repeat=length)))
    for x in range(n):
        terms = []
        for path in itertools.product(range(n), repeat=length):
            if path[tick] != x:
                continue
            mass = oracle.safe_log(law[path[0]]) + sum(
                oracle.safe_log(kernel[a, b]) for a, b in itertools.pairwise(path)
            )
            terms.append(mass - np.abs(outputs - values[list(path)]).sum(axis=1) / scale)
        rows.append(logsumexp(terms, axis=0) - math.log(law[x]))
    return max(float((a - b).max()) for a, b in itertools.permutations(rows, 2))
