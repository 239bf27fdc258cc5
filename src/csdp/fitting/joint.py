"""A joint chain from counted joint transitions: any movement together, for few sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError, TooLargeError
from csdp.fitting.sample import Sample, normalise_rows, snapshot_numbers

Floats = npt.NDArray[np.float64]

#: Joint states up to which transitions are counted.
JOINT_STATES = 1024


def check_size(readings: Sample) -> int:
    """The number of joint states, where there are not too many."""
    size = readings.m**readings.sequences
    if size > JOINT_STATES:
        raise TooLargeError(
            f"joint: {readings.m}**{readings.sequences} joint states; at most {JOINT_STATES:,} are counted. "
            "Fit fewer sequences or states, or method='em'",
            needed=float(min(size, 10**300)),
            limit=JOINT_STATES,
        )
    return int(size)


def joint_moves(readings: Sample) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Cell number (present * N + next) of every step, and which steps have no missing reading."""
    size = check_size(readings)
    code = snapshot_numbers(readings.states, readings.m)
    seen = np.asarray((readings.states >= 0).all(axis=1))
    return code[:-1] * size + code[1:], seen[:-1] & seen[1:]


def joint_counts(readings: Sample, often: Floats | None = None) -> Floats:
    """How often each snapshot was followed by each, (N, N)."""
    size = check_size(readings)
    cells, complete = joint_moves(readings)
    if not complete.any():
        raise InputError("joint: no step at which every sequence was read at both ends; fill the gaps")
    weights = None if often is None else often[complete]
    counts: Any = np.bincount(cells[complete], weights, minlength=size * size)
    return np.asarray(counts.reshape(size, size), dtype=np.float64)


def smoothed_kernel(counts: Floats, prior: Floats, smoothing: float) -> Floats:
    """Rows `(counts + N smoothing prior) / (their sum)`: snapshots hardly ever seen move as the prior says."""
    raised = np.maximum(counts, 0.0) + smoothing * counts.shape[0] * prior
    return normalise_rows(raised, 0.0)


def independent_kernel(counts: Floats, sequences: int, states: int, smoothing: float) -> Floats:
    """The kernel of independent chains with the same own transitions: the prior where only joint counts are known."""
    kernel: Floats = np.ones((1, 1))
    table = counts.reshape((states,) * (2 * sequences))
    for i in range(sequences):
        away = tuple(axis for axis in range(2 * sequences) if axis not in {i, sequences + i})
        own = normalise_rows(np.maximum(table.sum(axis=away), 0.0), max(smoothing, 1e-9))
        kernel = np.asarray(np.kron(kernel, own))
    return kernel
