"""The loops of fitting environment chains that numba compiles; import it where it is used.

`mix[k, a, b, e]` is the coupling of edge k under environment e times its transition from a to b.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_jit = njit(cache=True, nogil=True)


def _move_chances(states: Any, step: int, target: int, indptr: Any, sources: Any, mix: Any, chances: Any) -> bool:
    """Fill `chances` with the probability of a target's move under each environment; False where one is missing."""
    b = states[step + 1, target]
    if b < 0:
        return False
    chances[:] = 0.0
    for k in range(indptr[target], indptr[target + 1]):
        a = states[step, sources[k]]
        if a < 0:
            return False
        for e in range(chances.size):
            chances[e] += mix[k, a, b, e]
    return True


_chances = _jit(_move_chances)


def _score_steps(states: Any, indptr: Any, sources: Any, mix: Any, first: int, last: int, out: Any) -> None:
    """Add to out[t, e] the log-probability of step t of the targets from `first` to `last` under environment e."""
    count = mix.shape[3]
    chances, product = np.empty(count), np.empty(count)
    for t in range(out.shape[0]):
        product[:] = 1.0
        for j in range(first, last):
            k, b = indptr[j], states[t + 1, j]
            if indptr[j + 1] - k == 1:  # one edge: its own numbers, without a sum
                a = states[t, sources[k]]
                if a < 0 or b < 0:
                    continue
                for e in range(count):
                    chances[e] = mix[k, a, b, e]
            elif not _chances(states, t, j, indptr, sources, mix, chances):
                continue
            for e in range(count):
                product[e] *= chances[e]
                if product[e] < 1e-200:  # a logarithm now and then, not for every sequence
                    out[t, e] += np.log(product[e])
                    product[e] = 1.0
        for e in range(count):
            out[t, e] += np.log(product[e])


def _assign_steps(
    states: Any, indptr: Any, sources: Any, mix: Any, weights: Any, first: int, last: int, expected: Any
) -> None:
    """Add to expected[k, a, b, e] the transitions laid to each edge and environment; weights (steps, environments)."""
    count = mix.shape[3]
    chances = np.empty(count)
    for t in range(weights.shape[0]):
        for j in range(first, last):
            k, b = indptr[j], states[t + 1, j]
            if indptr[j + 1] - k == 1:  # one edge: all of its target's transitions are laid to it
                a = states[t, sources[k]]
                if a >= 0 and b >= 0:
                    for e in range(count):
                        if mix[k, a, b, e] > 0.0:
                            expected[k, a, b, e] += weights[t, e]
                continue
            if not _chances(states, t, j, indptr, sources, mix, chances):
                continue
            for k in range(indptr[j], indptr[j + 1]):
                a = states[t, sources[k]]
                for e in range(count):
                    if chances[e] > 0.0:
                        expected[k, a, b, e] += weights[t, e] * mix[k, a, b, e] / chances[e]


def _filter_steps(scores: Any, start: Any, switching: Any, forward: Any, gains: Any) -> None:
    """forward[t] = Pr(environment | steps up to t); gains[t] = ln Pr(step t | steps before)."""
    steps, count = scores.shape
    before = start.copy()
    for t in range(steps):
        top = scores[t].max()
        total = 0.0
        for e in range(count):
            forward[t, e] = before[e] * np.exp(scores[t, e] - top)
            total += forward[t, e]
        for e in range(count):
            forward[t, e] /= total
        gains[t] = top + np.log(total)
        for f in range(count):
            before[f] = 0.0
            for e in range(count):
                before[f] += forward[t, e] * switching[e, f]


def _smooth_steps(scores: Any, forward: Any, switching: Any, posterior: Any, switches: Any) -> None:
    """posterior[t] = Pr(environment | all steps); switches[e, f] = expected number of switches from e to f."""
    steps, count = scores.shape
    later, weighted = np.ones(count), np.empty(count)
    posterior[steps - 1] = forward[steps - 1]
    for t in range(steps - 2, -1, -1):
        top = scores[t + 1].max()
        for f in range(count):
            weighted[f] = later[f] * np.exp(scores[t + 1, f] - top)
        total = 0.0
        for e in range(count):
            later[e] = 0.0
            for f in range(count):
                later[e] += switching[e, f] * weighted[f]
            total += forward[t, e] * later[e]
        for e in range(count):
            posterior[t, e] = forward[t, e] * later[e] / total
            for f in range(count):
                switches[e, f] += forward[t, e] * switching[e, f] * weighted[f] / total
        later /= later.max()


score_steps, assign_steps, filter_steps, smooth_steps = (
    _jit(_score_steps),
    _jit(_assign_steps),
    _jit(_filter_steps),
    _jit(_smooth_steps),
)
