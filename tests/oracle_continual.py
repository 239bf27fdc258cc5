"""Brute-force oracle for releases over time. Independent of the library; imports nothing of it."""

from collections.abc import Sequence
from itertools import pairwise, permutations, product

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.special import logsumexp

from oracle import (
    Array,
    Pairs,
    Values,
    aged_law,
    all_pairs,
    freshness,
    l1,
    neighbour_pairs,
    product_outputs,
    profile_sorted,
    safe_log,
    snapshots,
    stationary,
)


def release_ages(age: int | Sequence[int] | Sequence[Sequence[int]], s: int, releases: int) -> list[list[int]]:
    """The age vector of every release, oldest first, from a number, one vector, or one vector a release."""
    if isinstance(age, int):
        return [[age] * s for _ in range(releases)]
    if all(isinstance(a, int) for a in age):
        return [list(age) for _ in range(releases)]  # type: ignore[arg-type]
    if len(age) != releases:
        raise ValueError("one age vector a release")
    return [list(a) for a in age]  # type: ignore[arg-type]


def history_leakage(
    kernel: ArrayLike,
    s: int,
    m: int,
    age: int | Sequence[int] | Sequence[Sequence[int]],
    epsilon_c: float,
    fvals: Values,
    delta_f: float,
    releases: int,
    initial: ArrayLike | None = None,
) -> float:
    """Worst log ratio over all output histories at ticks t-releases+1..t, given x_t against a neighbour x'_t.

    The output of tick tau reads coordinate i of slice tau - age_i. Every path of the chain is enumerated.
    `initial` is the law at the oldest slice read (stationary unless given).
    """
    k = np.asarray(kernel, dtype=float)
    snaps = snapshots(s, m)
    number = {x: n for n, x in enumerate(snaps)}
    ages = release_ages(age, s, releases)
    back = [[releases - 1 - n + a for a in ages[n]] for n in range(releases)]  # slices counted back from t
    horizon = max(max(row) for row in back)
    start = stationary(k) if initial is None else np.asarray(initial, dtype=float)

    # mass[x_t][the values f of all releases] = Pr(both), over all paths (x_{t-horizon}, ..., x_t)
    mass: dict[int, dict[tuple[int, ...], float]] = {}
    for path in product(range(len(k)), repeat=horizon + 1):
        prob = start[path[0]]
        for here, there in pairwise(path):
            prob *= k[here, there]
        if prob > 0:
            read = tuple(
                number[tuple(snaps[path[-1 - row[i]]][i] for i in range(s))] for row in back
            )  # the aged snapshot of each release
            table = mass.setdefault(path[-1], {})
            table[read] = table.get(read, 0.0) + prob

    # cost[y][z] = -|y - f(z)|_1 eps_c / Delta_f
    cost = np.array([[-l1(y, f) * epsilon_c / delta_f for f in fvals] for y in product_outputs(fvals)])
    histories = list(product(range(len(cost)), repeat=releases))
    loglik: dict[int, Array] = {}
    for x, table in mass.items():
        reads = np.array(list(table))
        weights = safe_log(list(table.values()))
        loglik[x] = np.array(
            [logsumexp(weights + sum(cost[y[n], reads[:, n]] for n in range(releases))) for y in histories]
        ) - logsumexp(weights)
    present = [float(x in loglik) for x in range(len(k))]
    return max((float((loglik[x] - loglik[y]).max()) for x, y in neighbour_pairs(s, m, present)), default=0.0)


def scalar_accountant(kernel: ArrayLike, s: int, m: int, age: int, alpha: float, releases: int) -> list[float]:
    """Scalar rule: leakage after 1..releases releases, one a tick; alpha = d(k) eps_c."""
    back, law = aged_law(kernel, s, m, [1] * s)
    aged, _ = aged_law(kernel, s, m, [age] * s)
    neighbours = neighbour_pairs(s, m, law)
    cap = freshness(aged, neighbours)
    b, out = 0.0, []
    for _ in range(releases):
        b = alpha + profile_sorted(back, all_pairs(law), b)
        out.append(min(profile_sorted(aged, neighbours, b), cap))
    return out


def metric_profile(rows: Array, pairs: Pairs, b: Array) -> Array:
    """Per pair (x, x'): max ln sum p g / sum q g over g(w) <= e^{b(w,w')} g(w'), by a linear programme."""
    n = rows.shape[1]
    limits = []
    for w, v in permutations(range(n), 2):
        row = np.zeros(n)
        row[w], row[v] = 1.0, -np.exp(b[w, v])
        limits.append(row)
    out = np.zeros((len(rows), len(rows)))
    for x, y in pairs:
        solution = linprog(-rows[x], A_ub=limits, b_ub=np.zeros(len(limits)), A_eq=[rows[y]], b_eq=[1.0])
        out[x, y] = np.log(-solution.fun)
    return out


def metric_accountant(
    kernel: ArrayLike,
    s: int,
    m: int,
    age: int,
    epsilon_c: float,
    fvals: Values,
    delta_f: float,
    releases: int,
) -> list[float]:
    """Metric state, one common age, every snapshot possible: leakage after 1..releases."""
    back, law = aged_law(kernel, s, m, [1] * s)
    aged, _ = aged_law(kernel, s, m, [age] * s)
    step = np.array([[epsilon_c * l1(f, g) / delta_f for g in fvals] for f in fvals])
    state, out = step, []
    for _ in range(releases):
        out.append(float(metric_profile(aged, neighbour_pairs(s, m, law), state).max()))
        state = step + metric_profile(back, all_pairs(law), state)
    return out


def temporal_leakage(P: ArrayLike, epsilons: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """BPL, FPL and TPL at every time, for one stationary chain P (Cao et al. 2017)."""
    p = np.asarray(P, dtype=float)
    law = stationary(p)
    keep = np.flatnonzero(law > 0)
    p, law = p[np.ix_(keep, keep)], law[keep]
    backward = (law[:, None] * p).T / law[:, None]  # backward[x, z] = Pr(before = z | now = x)
    pairs = all_pairs(law)

    def run(rows: Array, budget: Sequence[float]) -> list[float]:
        out: list[float] = []
        for eps in budget:
            out.append(eps + (profile_sorted(rows, pairs, out[-1]) if out else 0.0))
        return out

    bpl = run(backward, epsilons)
    fpl = run(p, list(epsilons)[::-1])[::-1]
    return bpl, fpl, [x + y - e for x, y, e in zip(bpl, fpl, epsilons, strict=True)]
