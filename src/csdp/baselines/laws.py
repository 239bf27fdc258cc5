"""Laws of snapshots, pairs of records, and a record and its past; exact log ratios of mixtures of Laplace densities.

Mixtures are computed in logarithms, so nothing overflows however large the rate.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain import CoupledChain, Model
from csdp.errors import CsdpError, TooLargeError
from csdp.estimate.second_order import pair_laws

#: Joint states up to which a law of whole snapshots is computed.
LAW_STATES = 4096
#: Largest number of output values in a grid, times the numbers compared at each of them.
WORK_LIMIT = 2**27
#: Sequences times states up to which all pairs of records are computed.
PAIR_SIZE = 512


def present_law(chain: Model) -> Floats:
    """Return the stationary law of the snapshot, (m**s,); raise TooLargeError for large chains."""
    if chain.size > LAW_STATES:
        raise TooLargeError(
            f"{chain.states}**{chain.sequences} joint states; at most {LAW_STATES:,} for this baseline",
            needed=float(min(chain.size, 10**300)),
            limit=LAW_STATES,
        )
    return chain.stationary()


@lru_cache(maxsize=16)
def record_pairs(chain: Model) -> Floats:
    """Pr(x_i = a, x_j = b) of the present, (s, m, s, m)."""
    s, m = chain.sequences, chain.states
    if s * m > PAIR_SIZE:
        raise TooLargeError(
            f"{s} sequences of {m} states; pairs of records are computed for sequences times states up to {PAIR_SIZE}",
            needed=float(s * m),
            limit=PAIR_SIZE,
        )
    if isinstance(chain, CoupledChain):
        with suppress(CsdpError):  # pair laws may not converge if the chain hardly mixes; then use the joint law
            return pair_laws(chain).reshape(s, m, s, m)
    joint = present_law(chain).reshape((m,) * s)
    out = np.zeros((s, m, s, m))
    for i, j in itertools.product(range(s), repeat=2):
        away = tuple(k for k in range(s) if k not in {i, j})
        both = joint.sum(axis=away)
        out[i, :, j, :] = np.diag(both) if i == j else both if i < j else both.T
    return out


def own_pairs(chain: Model, age: int) -> Floats:
    """Pr(present state is a, state `age` steps ago was c) of every sequence, (s, m, m)."""
    s, m = chain.sequences, chain.states
    if isinstance(chain, CoupledChain) and s * m <= LAW_STATES:
        with suppress(CsdpError):  # as above
            pairs, q = pair_laws(chain), chain.q_matrix()
            for _ in range(age):
                pairs = np.asarray(q @ pairs)
            if chain.direction == "backward":  # the chain led from the present to the old state
                pairs = pairs.T
            cube = pairs.reshape(s, m, s, m)
            return np.asarray(cube[np.arange(s), :, np.arange(s), :])
    law = present_law(chain)
    power = np.linalg.matrix_power(chain.kernel(), age)
    digits = np.array(np.unravel_index(np.arange(chain.size), (m,) * s))
    out = np.zeros((s, m, m))
    joint = law[:, None] * power  # [old, new]
    for i, c, a in itertools.product(range(s), range(m), range(m)):
        out[i, a, c] = joint[np.ix_(digits[i] == c, digits[i] == a)].sum()
    return out


@lru_cache(maxsize=64)
def own_variation(chain: Model, age: int) -> float:
    """The largest total variation, over sequences, of its own state `age` steps ago given two present states."""
    worst = 0.0
    for joint in own_pairs(chain, age):
        law = joint.sum(axis=1)
        rows = joint[law > 0] / law[law > 0, None]
        for row in rows:
            worst = max(worst, float(np.abs(rows - row).sum(axis=1).max()) / 2)
    return min(1.0, worst)


# ---- mixtures of Laplace densities -----------------------------------------------------------------------------------


def output_grid(answers: Floats) -> Floats:
    """Return the product of the sets of values of each output coordinate: a supremum of ratios is attained there."""
    axes = [np.unique(column) for column in answers.T]
    return np.array(list(itertools.product(*axes))).reshape(-1, len(axes))


def grid_size(answers: Floats) -> float:
    """Number of outputs of `output_grid`."""
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


def largest_log_ratio(log_rows: Floats, answers: Floats, groups: Sequence[Indices], *, rate: float) -> float:
    """Return the largest log ratio, over all outputs, of two rows of one group.

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


def safe_log(probabilities: Floats) -> Floats:
    """ln p, with ln 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))
