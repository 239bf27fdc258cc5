"""Exact leakage of fully exchangeable chains: only how many sequences are in each state matters.

One transition matrix for all pairs, one self coupling, one coupling to everybody else, one common age and a query that
treats sequences alike: then the law of the aged answer depends on the present snapshot through its counts only. A
thousand binary sequences have 1,001 counts instead of 2^1000 snapshots. Counts of rare snapshots have probabilities far
below the smallest float, so the law of the counts is kept as logarithms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from csdp.aging import Progress
from csdp.arrays import UNIT, Bools, Floats, Indices
from csdp.bounds.adversary import Adversary
from csdp.bounds.exact import WorstCase, blocks, log_one_plus, output_grid, tilt_weights
from csdp.chain import CoupledChain, Model
from csdp.chain.stationary import eliminate
from csdp.computation import Computation, FoldComputation
from csdp.errors import TooLargeError

#: Count states up to which a chain is lumped.
COUNT_STATES = 4000


@dataclass(frozen=True)
class Lumped:
    """The chain of counts: log kernel, log stationary law, and the relative error of both."""

    counts: Indices  # (N, m)
    log_kernel: Floats  # (N, N)
    log_law: Floats  # (N,)
    relative: float
    backward: bool = False  # the kernel leads from the present into the past


def count_states(model: Model) -> int:
    """Number of ways to put s sequences into m states."""
    return math.comb(model.sequences + model.states - 1, model.states - 1)


def exchangeable_couplings(model: Model) -> tuple[float, float] | None:
    """(self coupling, coupling to each other sequence) where permuting sequences changes nothing, else None."""
    if not isinstance(model, CoupledChain) or model.sequences < 3 or model.initial is not None:
        return None
    s = model.sequences
    if model.transition_table[0].shape[0] != 1 or model.values.ndim != 1 or not model.is_positive:
        return None
    own = model.edge_sources == model.edge_targets
    others = model.edge_weights[~own]
    if others.size != s * (s - 1) or np.ptp(others) > 1e-15:
        return None
    selves = model.edge_weights[own]
    if selves.size not in {0, s} or (selves.size and np.ptp(selves) > 1e-15):
        return None
    return (float(selves[0]) if selves.size else 0.0), float(others[0])


def can_lump(model: Model, query: Computation, ages: Sequence[int], adversary: Adversary) -> bool:
    """Whether counts suffice, and are worth it."""
    if adversary == "any" or len(set(ages)) > 1 or ages[0] == 0 or not isinstance(query, FoldComputation):
        return False
    if model.size <= 512 or count_states(model) > COUNT_STATES or exchangeable_couplings(model) is None:
        return False
    return query.is_symmetric and query.width <= model.states


def lump(model: CoupledChain, progress: Progress | None = None) -> Lumped:
    """The law of the counts."""
    weights = exchangeable_couplings(model)
    assert weights is not None
    own, other = weights
    s, m = model.sequences, model.states
    matrix = model.transition_table[0][0]
    counts = np.array([c for c in itertools.product(range(s + 1), repeat=m - 1) if sum(c) <= s], dtype=np.intp)
    counts = np.column_stack([s - counts.sum(axis=1), counts])
    # law[n, a, b] = Pr(next = b | own state a, counts n)
    law = own * matrix[None] + other * ((counts @ matrix)[:, None, :] - matrix[None])
    law = np.maximum(law, 0.0)
    log_kernel = _binary_rows(counts, law, s) if m == 2 else _general_rows(counts, law, s)
    if progress is not None:
        progress("lumping", 1, 2)
    top = log_kernel.max(axis=1, keepdims=True)
    log_kernel = log_kernel - top - np.log(np.exp(log_kernel - top).sum(axis=1, keepdims=True))
    log_law, change = _log_stationary(log_kernel)
    if progress is not None:
        progress("lumping", 2, 2)
    return Lumped(counts, log_kernel, log_law, 1e-14 * s + 2.0 * change, model.direction == "backward")


def _binary_rows(counts: Indices, law: Floats, s: int) -> Floats:
    """Log law of the next count: the sum of two binomial counts, convolved under a few exponential tilts.

    A tilt by e^(theta k) commutes with convolution and moves any part of the tail to the centre, where it is accurate.
    """
    from scipy.special import gammaln, xlog1py, xlogy

    tilts = int(np.ceil(np.sqrt(s / 60.0))) + 1
    aims = (np.arange(tilts) + 0.5) / tilts
    factorial = gammaln(np.arange(s + 1) + 1.0)
    out = np.full((s + 1, s + 1), -np.inf)
    for row, (zeros, ones) in enumerate(counts):
        logs = []
        for n, p in ((ones, law[row, 1, 1]), (zeros, law[row, 0, 1])):
            k = np.arange(n + 1)
            choose = factorial[n] - factorial[k] - factorial[n - k]
            logs.append(choose + xlogy(k, p) + xlog1py(n - k, -p))
        middle = float((ones * law[row, 1, 1] + zeros * law[row, 0, 1]) / s)
        for aim in aims:
            theta = np.log(aim / (1 - aim)) - np.log(max(middle, 1e-300) / max(1 - middle, 1e-300))
            tilted = [values + theta * np.arange(values.size) for values in logs]
            tops = [values.max() for values in tilted]
            both = np.convolve(*(np.exp(values - top) for values, top in zip(tilted, tops, strict=True)))
            near = np.flatnonzero(both > 1e-250 * both.max())
            near = near[np.isneginf(out[row, near]) | (np.abs(near - aim * s) <= 0.5 * s / tilts + 1)]
            out[row, near] = np.log(both[near]) + sum(tops) - theta * near
    if np.isneginf(out).any():
        raise TooLargeError(
            "lumping: some counts are too rare for floating point; use fewer sequences or bound='lineage'",
            needed=s,
            limit=s - 1,
        )
    return out


def _general_rows(counts: Indices, law: Floats, s: int) -> Floats:
    """Log law of the next counts for m > 2 states: one sequence after the other is added."""
    m = counts.shape[1]
    grid = (s + 1,) * (m - 1)
    out = np.empty((counts.shape[0], counts.shape[0]))
    place = tuple(counts[:, a] for a in range(1, m))
    for row, present in enumerate(counts):
        total = np.zeros(grid)
        total[(0,) * (m - 1)] = 1.0
        for a in range(m):
            for _ in range(int(present[a])):
                grown = total * law[row, a, 0]
                for b in range(1, m):
                    grown += np.roll(total, 1, axis=b - 1) * law[row, a, b]
                total = grown
        out[row] = total[place]
    if out.min() < 1e-280:
        raise TooLargeError(
            "lumping: some counts are too rare for floating point; use fewer sequences or bound='lineage'",
            needed=s,
            limit=s - 1,
        )
    return np.log(out)


def _log_stationary(log_kernel: Floats) -> tuple[Floats, float]:
    with np.errstate(divide="ignore"):
        log_law = np.log(eliminate(np.exp(log_kernel)))
    change = np.inf
    for _ in range(5000):
        with np.errstate(invalid="ignore"):
            terms = log_law[:, None] + log_kernel
            top = terms.max(axis=0)
            fresh = top + np.log(np.exp(terms - top).sum(axis=0))
            last, change = change, float(np.abs(fresh - log_law).max())
        log_law = fresh
        if change < 1e-13 or (change < 1e-11 and change >= 0.9 * last):
            break
    return log_law, change


def find_lumped_worst_case(
    lumped: Lumped,
    answers: Floats,
    *,
    age: int,
    rate: float,
    adversary: Adversary,
    close: Bools,
) -> WorstCase:
    """Exact leakage from counts.

    Args:
        lumped: the chain of counts.
        answers: (N, d) the query's values on the counts.
        age: the common age of all sequences, in steps.
        rate: epsilon_c / Delta_f in the units of `answers`.
        adversary: "informed" or "uninformed".
        close: (m, m) which states must not be told apart.
    """
    law = np.exp(lumped.log_law)
    with np.errstate(under="ignore"):
        reverse = lumped.log_law[None, :] + lumped.log_kernel.T - lumped.log_law[:, None]
        backward = np.exp(lumped.log_kernel if lumped.backward else reverse)
    backward /= backward.sum(axis=1, keepdims=True)
    values, inverse = np.unique(answers, axis=0, return_inverse=True)
    chosen = np.zeros((law.size, values.shape[0]))
    chosen[np.arange(law.size), inverse.ravel()] = 1.0
    log_base = np.array([np.logaddexp.reduce(lumped.log_law[inverse.ravel() == v]) for v in range(values.shape[0])])
    base = np.exp(log_base)
    shift, error = _aged_shift(backward, chosen - base, age, law, lumped.relative)
    laws, relative = _aged_mass(backward, chosen, age, lumped.relative)
    rows, first, second = _comparisons(lumped.counts, adversary, law, close)
    if not first.size:
        return WorstCase(0.0)
    if rows is not None:
        shift, laws = rows @ shift, rows @ laws
    best = WorstCase(0.0)
    for block, logs in blocks(output_grid(values), values, shift.shape[0], rate):
        _refuse_underflow(logs, log_base)
        tilt, level, slack = tilt_weights(logs, base, log_base, error)
        spread = shift @ tilt.T
        one, two = spread[first], spread[second]
        with np.errstate(divide="ignore"):
            under = np.maximum(level + np.minimum(one, two) - slack, 0.0)
            fine = log_one_plus((np.abs(one - two) + 2.0 * slack) / under, 0)
            density = np.log(laws @ np.exp(np.minimum(logs - (logs + log_base).max(axis=1, keepdims=True), 700.0)).T)
        upper = np.fmin(fine, np.abs(density[first] - density[second]) + 2.0 * relative)
        at = np.unravel_index(int(np.argmax(upper)), upper.shape)
        if upper[at] > best.value:
            case = _witness(float(upper[at]), one[at] >= two[at], first[at[0]], second[at[0]], lumped.counts, rows)
            best = replace(case, output=tuple(block[at[1]].tolist()))
    return best


def _refuse_underflow(logs: Floats, log_base: Floats) -> None:
    """Answers rarer than the smallest float must not matter at any output."""
    rare = log_base < -690.0
    if not rare.any():
        return
    top = (logs + log_base).max(axis=1)
    if ((logs[:, rare] + log_base[rare]).max(axis=1) > top - 40.0).any():
        raise TooLargeError(
            "so many sequences with so little noise: answers rarer than the smallest float decide. "
            "Use a smaller epsilon_c, or bound='lineage'",
            needed=float(-log_base.min()),
            limit=690.0,
        )


def _aged_mass(backward: Floats, chosen: Floats, age: int, relative: float) -> tuple[Floats, float]:
    """Pr(answer | counts) from non-negative numbers only, and its relative error."""
    laws, power, left = chosen, backward, age
    while left:
        if left & 1:
            laws = power @ laws
        left >>= 1
        if left:
            power = power @ power
    return laws, age * (relative + 4.0 * backward.shape[0] * UNIT)


def _aged_shift(backward: Floats, shift: Floats, age: int, law: Floats, relative: float) -> tuple[Floats, Floats]:
    """Deviations after `age` steps back, and a bound on their error."""
    rounding = relative + 2.0 * backward.shape[0] * UNIT
    error = np.zeros(shift.shape[1])
    steps = min(age, 64)
    for _ in range(steps):
        error += rounding * np.abs(shift).max(axis=0)
        shift = backward @ shift
        shift = shift - law @ shift
    # Beyond that the deviations are below their own error, which averaging never lets grow.
    return shift, error + (np.abs(shift).max(axis=0) if age > steps else 0.0)


def _comparisons(
    counts: Indices, adversary: Adversary, law: Floats, close: Bools
) -> tuple[Floats | None, Indices, Indices]:
    """Which rows to compare: counts that differ by one sequence's state, or one sequence's state alone."""
    s, m = int(counts[0].sum()), counts.shape[1]
    if adversary == "uninformed":
        weight = law[:, None] * counts / s
        pairs = np.argwhere(np.triu(close, k=1))
        return (weight / weight.sum(axis=0)).T, pairs[:, 0], pairs[:, 1]
    number = {tuple(c): i for i, c in enumerate(counts.tolist())}
    first, second = [], []
    for i, present in enumerate(counts.tolist()):
        for a, b in itertools.permutations(range(m), 2):
            if present[a] and a < b and close[a, b]:
                moved = list(present)
                moved[a] -= 1
                moved[b] += 1
                first.append(i)
                second.append(number[tuple(moved)])
    return None, np.array(first, dtype=np.intp), np.array(second, dtype=np.intp)


def _witness(value: float, forward: bool, first: int, second: int, counts: Indices, rows: Floats | None) -> WorstCase:
    """The worst case as a snapshot: sequences sorted by state, the secret one first."""
    high, low = (first, second) if forward else (second, first)
    if rows is not None:
        return WorstCase(value, 0, (0,), (int(high),), int(low))
    move = counts[high] - counts[low]
    own, other = int(np.argmax(move)), int(np.argmin(move))
    rest = counts[high].copy()
    rest[own] -= 1
    present = (own, *np.repeat(np.arange(counts.shape[1]), rest).tolist())
    return WorstCase(value, 0, tuple(range(len(present))), present, other)
