"""Tests on residuals: what a chain leaves unexplained, and how likely that is if the chain is right.

If the chain is right, a residual r with variance v stays uncorrelated with anything known before. So `sum h r` has
mean zero and variance `sum h^2 v` for every h that looks only back: the square of their quotient is about chi-square
(martingale central limit theorem). Cells with variance below 5 are left out, as in the usual rule for such tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.fitting.environment_prediction import EnvironmentPrediction
from csdp.fitting.sample import Prediction

#: Variance, or count, that a cell needs for the normal approximation.
LEAST_VARIANCE = LEAST_COUNT = 5.0
#: Columns of residuals (sequences, by present and by next state) that are compared with each other.
TOGETHER_COLUMNS = 2000
AnyPrediction = Prediction | EnvironmentPrediction


def chi_square_tail(statistic: Any, freedom: Any) -> Floats:
    """Chance that chi-square with so many degrees of freedom is larger; 1 where there are none."""
    from scipy.special import gammaincc

    some = np.asarray(freedom) > 0
    return np.where(some, gammaincc(np.where(some, freedom, 1) / 2.0, np.asarray(statistic) / 2.0), 1.0)


def _chi_square(sums: Floats, variances: Floats) -> tuple[float, int]:
    kept = variances >= LEAST_VARIANCE
    return float((np.square(sums[kept]) / variances[kept]).sum()), int(kept.sum())


def order_p(prediction: AnyPrediction, target: int, left: Floats, variance: Floats) -> float:
    """Does the state before the present one say more than the chain has it?"""
    before = prediction.sample.states[:-2, target]
    m = prediction.chain.states
    back = (before[:, None] == np.arange(m)).astype(np.float64)
    return float(chi_square_tail(*_chi_square(back.T @ left[1:], back.T @ variance[1:])))


def homogeneity_p(prediction: AnyPrediction, target: int, left: Floats, variance: Floats) -> float:
    """Does a sequence move in the second half as in the first, from each of its states?"""
    present = prediction.sample.states[:-1, target]
    back = (present[:, None] == np.arange(prediction.chain.states)).astype(np.float64)
    half = present.size // 2
    s1, v1 = back[:half].T @ left[:half], back[:half].T @ variance[:half]
    s2, v2 = back[half:].T @ left[half:], back[half:].T @ variance[half:]
    kept = (v1 >= LEAST_VARIANCE) & (v2 >= LEAST_VARIANCE)
    whole = np.where(kept, v1 + v2, 1.0)
    # What the fit has already set to zero is the sum of both halves; the difference is what is left.
    difference = s2 - v2 / whole * (s1 + s2)
    statistic = (np.square(difference) * whole / np.where(kept, v1 * v2, 1.0))[kept].sum()
    return float(chi_square_tail(statistic, kept.sum()))


def together_ps(left: Floats, variance: Floats, present: npt.NDArray[Any], *, in_turn: bool = False) -> Floats:
    """Chance (k, k), for every pair of sequences, of residuals that agree so well if they move apart.

    left, variance (steps, k, m - 1), present (steps, k). Two questions, the sharper answer counts twice: do the
    residuals agree overall, and do they agree from each pair of present states (a shock that makes both change moves
    them up or down, depending on where they are)? With `in_turn` a residual is given those of the sequences before it
    in the same step, and the variance of their product depends on them.
    """
    m = left.shape[2] + 1
    at = (present[:, :, None] == np.arange(m)).astype(np.float64)
    finer, finer_variance = (
        (at[:, :, :, None] * part[:, :, None, :]).reshape(*part.shape[:2], -1) for part in (left, variance)
    )
    sharper = np.minimum(_pairwise(left, variance, in_turn), _pairwise(finer, finer_variance, in_turn))
    return np.minimum(1.0, 2.0 * sharper)


def _pairwise(left: Floats, variance: Floats, in_turn: bool) -> Floats:
    n, k, cells = left.shape
    sums = (left.reshape(n, -1).T @ left.reshape(n, -1)).reshape(k, cells, k, cells)
    first = np.square(left) if in_turn else variance
    spread = (first.reshape(n, -1).T @ variance.reshape(n, -1)).reshape(k, cells, k, cells)
    kept = spread >= LEAST_VARIANCE
    each = np.where(kept, np.square(sums) / np.where(kept, spread, 1.0), 0.0)
    ps = np.triu(chi_square_tail(each.sum(axis=(1, 3)), kept.sum(axis=(1, 3))), 1)
    return np.asarray(ps + ps.T + np.eye(k))


def compared_sequences(sequences: int, states: int) -> Indices:
    """The sequences that are compared with each other: all, or as many as fit, evenly spaced."""
    most = max(2, TOGETHER_COLUMNS // (states * (states - 1)))
    return np.arange(sequences) if sequences <= most else np.linspace(0, sequences - 1, most).astype(np.intp)
