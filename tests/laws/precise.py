"""Exact leakage of tiny systems in 60 decimal digits: the truth where floating point cannot be its own judge."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

DIGITS = 60


def _decimals(numbers: ArrayLike) -> Any:
    array = np.asarray(numbers, dtype=np.float64)
    flat = np.array([Decimal(float(v)) for v in array.ravel()] + [None], dtype=object)[:-1]
    return flat.reshape(array.shape)


def _kernel(coupling: ArrayLike, transitions: ArrayLike) -> Any:
    lam, t = _decimals(coupling), _decimals(transitions)
    s, m = lam.shape[0], t.shape[-1]
    snaps = list(product(range(m), repeat=s))
    out = np.empty((len(snaps), len(snaps)), dtype=object)
    for row, x in enumerate(snaps):
        laws = []
        for j in range(s):
            law = [sum(lam[j, k] * (t if t.ndim == 2 else t[j, k])[x[k], b] for k in range(s)) for b in range(m)]
            total = sum(law)
            laws.append([p / total for p in law])
        for col, y in enumerate(snaps):
            prob = Decimal(1)
            for j in range(s):
                prob *= laws[j][y[j]]
            out[row, col] = prob
    return out


def _stationary(kernel: Any) -> Any:
    work = kernel.copy()
    size = len(work)
    for n in range(size - 1, 0, -1):
        work[:n, n] = work[:n, n] / sum(work[n, :n])
        work[:n, :n] = work[:n, :n] + np.multiply.outer(work[:n, n], work[n, :n])
    weight = [Decimal(1)]
    for n in range(1, size):
        weight.append(sum(weight[i] * work[i, n] for i in range(n)))
    total = sum(weight)
    return np.array([w / total for w in weight], dtype=object)


def informed_leakage(
    coupling: ArrayLike,
    transitions: ArrayLike,
    *,
    fvals: Sequence[float],
    delta_f: float,
    age: int,
    epsilon_c: float,
    digits: int = DIGITS,
    backward: bool = False,
) -> float:
    """Exact leakage for the informed adversary, one common age, one output; all transitions positive."""
    with localcontext() as context:
        context.prec = digits
        kernel = _kernel(coupling, transitions)
        # Pr(z, x); of a backward chain Pr(z | x), whatever the law of x.
        joint = np.diag([Decimal(1)] * len(kernel) if backward else _stationary(kernel))
        for _ in range(age):
            joint = (kernel if backward else joint) @ (joint if backward else kernel)
        joint = joint.T if backward else joint
        s = len(np.asarray(coupling))
        m = np.asarray(transitions).shape[-1]
        snaps = list(product(range(m), repeat=s))
        rate = Decimal(float(epsilon_c)) / Decimal(float(delta_f))
        values = [Decimal(float(f)) for f in fvals]
        best = Decimal(0)
        for y in set(values):
            weight = np.array([(-abs(y - f) * rate).exp() for f in values], dtype=object)
            density = (weight @ joint) / joint.sum(axis=0)
            for (n, x), (other, w) in product(enumerate(snaps), repeat=2):
                if sum(a != b for a, b in zip(x, w, strict=True)) == 1 and density[n] > density[other]:
                    best = max(best, (density[n] / density[other]).ln())
        return float(best)
