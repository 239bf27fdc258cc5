"""Exact log ratios of mixtures of Laplace densities, in logarithms: nothing overflows, however large the rate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from csdp.errors import TooLargeError

Floats = npt.NDArray[np.float64]

#: Products of output values that are looked at, times the numbers compared at each of them.
WORK_LIMIT = 2**27


def output_grid(answers: Floats) -> Floats:
    """The product over output coordinates of the sets of values of that coordinate, where a supremum must lie."""
    axes = [np.unique(column) for column in answers.T]
    return np.array(list(itertools.product(*axes))).reshape(-1, len(axes))


def grid_size(answers: Floats) -> float:
    """How many outputs `output_grid` has."""
    return float(np.prod([float(np.unique(column).size) for column in answers.T]))


def log_densities(log_rows: Floats, answers: Floats, outputs: Floats, rate: float) -> Floats:
    """[row, output]: ln sum_c rows[row, c] exp(-rate |y - answers[c]|_1); -inf where a row is empty."""
    far = np.zeros((outputs.shape[0], answers.shape[0]))
    for column in range(answers.shape[1]):
        far += np.abs(outputs[:, column, None] - answers[None, :, column])
    terms = log_rows[:, None, :] - rate * far[None]
    top = terms.max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = top[..., 0] + np.log(np.exp(terms - top).sum(axis=2))
    return np.asarray(np.where(np.isneginf(top[..., 0]), -np.inf, mixed))


def widest(log_rows: Floats, answers: Floats, groups: Sequence[npt.NDArray[np.intp]], *, rate: float) -> float:
    """The largest log ratio, over all outputs, of two rows of one group.

    Between neighbouring values, in each coordinate, a ratio of two such densities is monotone, so the supremum is a
    maximum over the product of the values of each coordinate.
    """
    needed = grid_size(answers) * log_rows.size
    if needed > WORK_LIMIT:
        raise TooLargeError(
            f"{needed:.3g} comparisons of outputs would be needed; at most {WORK_LIMIT:.3g} are made. "
            "Use a shorter window, fewer outputs or a smaller chain",
            needed=needed,
            limit=WORK_LIMIT,
        )
    density = log_densities(log_rows, answers, output_grid(answers), rate)
    best = 0.0
    for rows in groups:
        if len(rows) > 1:
            best = max(best, float(np.ptp(density[rows], axis=0).max()))
    return best


def logs(probabilities: Floats) -> Floats:
    """ln p, with ln 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))
