"""The loops of ordinal transition matrices that numba compiles; import it where it is used.

A point holds the m - 1 cuts, then the places of the states from the second on; the place of the first is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_jit = njit(cache=True, nogil=True)


def _logistic(z: float) -> float:
    """The logistic function, exact to its last digits for negative arguments."""
    small = np.exp(-abs(z))
    return small / (1.0 + small) if z < 0.0 else 1.0 / (1.0 + small)


_tail = _jit(_logistic)


def _score_point(counts: Any, point: Any, chances: Any) -> float:
    """Fill the transition matrix of a point; return the log-likelihood, -inf where cuts are out of order."""
    m = counts.shape[0]
    total = 0.0
    for a in range(m):
        place = 0.0 if a == 0 else point[m + a - 2]
        low = -np.inf
        for b in range(m):
            high = point[b] - place if b < m - 1 else np.inf
            # From the side on which both are small.
            chances[a, b] = _tail(-low) - _tail(-high) if low > 0.0 else _tail(high) - _tail(low)
            if not chances[a, b] > 0.0:
                return -np.inf
            total += counts[a, b] * np.log(chances[a, b])
            low = high
    return total


_score = _jit(_score_point)


def _newton_step(counts: Any, point: Any, chances: Any) -> Any:
    """The step to the top of the parabola through a point; places are apart, so only the cuts need a system."""
    m = counts.shape[0]
    h = m - 1
    slope, cuts = np.zeros(2 * h), np.zeros((h, h))
    across, down = np.zeros((h, h)), np.zeros(h)
    density, row = np.empty(h), np.empty(h)
    for a in range(m):
        place = 0.0 if a == 0 else point[h + a - 1]
        for b in range(h):
            z = point[b] - place
            below = _tail(z)
            density[b] = below * _tail(-z)
            left, right = counts[a, b] / chances[a, b], counts[a, b + 1] / chances[a, b + 1]
            by_z = density[b] * (left - right)
            slope[b] += by_z
            row[b] = by_z * (1.0 - 2.0 * below)
            row[b] -= density[b] ** 2 * (left / chances[a, b] + right / chances[a, b + 1])
            cuts[b, b] += row[b]
            if a > 0:
                slope[h + a - 1] -= by_z
        for b in range(h - 1):
            beside = density[b] * density[b + 1] * counts[a, b + 1] / chances[a, b + 1] ** 2
            cuts[b, b + 1] += beside
            cuts[b + 1, b] += beside
            row[b] += beside
            row[b + 1] += beside
        if a > 0:
            across[:, a - 1] = -row
            down[a - 1] = row.sum()
    return _solve(slope, cuts, across, down)


def _solve_blocks(slope: Any, cuts: Any, across: Any, down: Any) -> Any:
    """Minus the inverse of [[cuts, across], [across', diag(down)]] times the slope; a hair of the diagonal is added."""
    h = cuts.shape[0]
    least = 1e-300
    for b in range(h):
        least = max(least, 1e-12 * abs(cuts[b, b]))
    scaled = np.empty((h, h))
    for b in range(h):
        for a in range(h):
            scaled[b, a] = across[b, a] / (down[a] - least)
    system = cuts - scaled @ across.T
    for b in range(h):
        system[b, b] -= least
    step = np.empty(2 * h)
    step[:h] = np.linalg.solve(-system, slope[:h] - scaled @ slope[h:])
    step[h:] = (-slope[h:] - across.T @ step[:h]) / (down - least)
    return step


_solve = _jit(_solve_blocks)
_step = _jit(_newton_step)


def _climb_matrices(counts: Any, points: Any, limit: int, gain: float) -> None:
    """Newton's method for every matrix (n, m, m), each step halved until it does not go down; points are changed."""
    m = counts.shape[1]
    chances = np.empty((m, m))
    for n in range(counts.shape[0]):
        score = _score(counts[n], points[n], chances)
        for _ in range(limit):
            step, length = _step(counts[n], points[n], chances), 1.0
            value = -np.inf
            while length > 1e-12:
                value = _score(counts[n], points[n] + length * step, chances)
                if value >= score:
                    break
                length *= 0.5
            if not value > score:
                break
            points[n] += length * step
            rise, score = value - score, value
            if rise <= gain * counts[n].sum():
                break


def _fill_matrices(points: Any, out: Any) -> None:
    """The transition matrices of points."""
    nothing = np.zeros((out.shape[1], out.shape[2]))
    for n in range(points.shape[0]):
        _score(nothing, points[n], out[n])


climb_matrices, fill_matrices = _jit(_climb_matrices), _jit(_fill_matrices)
