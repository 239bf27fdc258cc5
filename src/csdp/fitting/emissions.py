"""Do readings reveal more than their states? The test that thresholding a persistent signal must fail.

If means of readings are published, a certificate of the present state assumes that a reading is made of its state
and of something independent of all states. Then, given the states, readings may change places with those of the same
state. So the rank of a reading among those of its state

- is unrelated to the state before and after it (Kruskal and Wallis 1952, by state of the neighbouring tick), and
- if readings are independent given the states, unrelated to the rank of the neighbouring tick (Wald and Wolfowitz
  1943, with the tail of Bernstein's inequality).

Neither uses the chain, so a wrong chain raises no alarm here, and none is raised by sequences that move together. If
the environment of every tick is public (a clock), places are changed within the same environment only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.numbers import Floats, Indices
from csdp.panel import Panel

#: Count that a cell needs for the normal approximation.
LEAST_COUNT = 5.0
#: Ticks between a reading and what it may reveal.
LAGS = (1, 2)
#: Sequences whose readings are checked; of more, as many spread evenly.
CHECKED = 2000
#: False-alarm rate of the check that publishing readings rests on.
LEVEL = 0.001


def chi_square_tail(statistic: Any, freedom: Any) -> Floats:
    """Chance that chi-square with `freedom` degrees of freedom is larger than `statistic`; 1 if `freedom` is 0."""
    from scipy.special import gammaincc

    some = np.asarray(freedom) > 0
    return np.where(some, gammaincc(np.where(some, freedom, 1) / 2.0, np.asarray(statistic) / 2.0), 1.0)


def inside_scores(readings: Floats, states: npt.NDArray[Any]) -> Floats:
    """Rank of each reading among those of its state, with mean 0 and variance 1; 0 if missing or if all are equal.

    >>> inside_scores(np.array([5.0, 1.0, 9.0, 7.0]), np.array([1, 0, 1, 0])).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """
    scores = np.zeros(readings.size)
    known = np.flatnonzero((states >= 0) & ~np.isnan(readings))
    if not known.size:
        return scores
    value, state = readings[known], states[known].astype(np.intp)
    order = np.lexsort((value, state))
    value, state = value[order], state[order]
    new = np.concatenate([[True], (np.diff(value) != 0) | (np.diff(state) != 0)])
    run = np.cumsum(new) - 1
    ends = np.cumsum(np.bincount(run))
    middle = (ends - (np.bincount(run) - 1) / 2.0)[run]  # equal readings share the mean of their ranks
    size = np.bincount(state)
    rank = middle - (np.cumsum(size) - size)[state] - (size[state] + 1) / 2.0
    spread = np.sqrt(np.bincount(state, rank**2) / np.maximum(size, 1))
    scores[known[order]] = np.where(spread[state] > 0, rank / np.where(spread > 0, spread, 1.0)[state], 0.0)
    return scores


def state_p(scores: Floats, groups: npt.NDArray[Any], states: npt.NDArray[Any], m: int) -> float:
    """Chance of such ranks if the reading reveals nothing more about the states around it, corrected for the lags.

    `groups` are the states, each split by environment if that is public.
    """
    ps = [_kruskal_p(scores, groups, states, lag, m) for lag in (*LAGS, *(-lag for lag in LAGS))]
    return min(1.0, len(ps) * min(ps))


def _kruskal_p(scores: Floats, groups: npt.NDArray[Any], states: npt.NDArray[Any], lag: int, m: int) -> float:
    """Do ranks inside a group differ by the state `lag` ticks later (earlier, below 0)?"""
    now, then = (slice(None, -lag), slice(lag, None)) if lag > 0 else (slice(-lag, None), slice(None, lag))
    rows = (groups[now] >= 0) & (states[then] >= 0)
    score, at, to = scores[now][rows], groups[now][rows].astype(np.intp), states[then][rows].astype(np.intp)
    kinds = int(at.max(initial=0)) + 1
    cell = at * m + to
    counts: Floats = np.bincount(cell, minlength=kinds * m).reshape(kinds, m).astype(np.float64)
    sums = np.asarray(np.bincount(cell, score, kinds * m), dtype=np.float64).reshape(kinds, m)
    size, total = counts.sum(axis=1), sums.sum(axis=1)
    squares = np.bincount(at, score**2, kinds) - total**2 / np.maximum(size, 1)
    largest = np.zeros(kinds)
    np.maximum.at(largest, at, score**2)
    # Evenly spread ranks reach a square of 3; if many readings are equal, the few others need larger groups.
    _pool_small(counts, sums, LEAST_COUNT * np.maximum(1.0, (largest / 3.0) ** 2))
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=1) - total**2 / np.maximum(size, 1)
    varies = squares > 1e-9 * size  # more than the rounding of equal ranks
    statistic = np.where(varies, (size - 1) * between / np.where(varies, squares, 1.0), 0.0).sum()
    freedom = np.where(varies, (counts > 0).sum(axis=1) - 1, 0).sum()
    return float(chi_square_tail(statistic, freedom))


def _pool_small(counts: Floats, sums: Floats, least: Floats) -> None:
    """Add groups too small for the normal approximation to the largest group of their row, in place."""
    rows = np.arange(counts.shape[0])
    largest = counts.argmax(axis=1)
    small = counts < least[:, None]
    small[rows, largest] = False
    for table in (counts, sums):
        table[rows, largest] += np.where(small, table, 0.0).sum(axis=1)
        table[small] = 0.0


def reading_p(scores: Floats, states: npt.NDArray[Any]) -> float:
    """Chance of such ranks if, given the states, readings at different ticks are independent; for all lags."""
    ps = [_serial_p(scores, states, lag) for lag in LAGS]
    return min(1.0, len(ps) * min(ps))


def _serial_p(scores: Floats, states: npt.NDArray[Any], lag: int) -> float:
    first, second = scores[:-lag], scores[lag:]
    pairs = (first != 0) & (second != 0)
    same = pairs & (states[:-lag] == states[lag:])
    size = np.bincount(np.maximum(states, 0), scores != 0)
    # Two ranks of one state cannot be the same, which makes them differ a little.
    due = -(np.bincount(np.maximum(states[:-lag], 0), same, size.size) / np.maximum(size - 1, 1)).sum()
    off = abs(float((first * second)[pairs].sum()) - due)
    variance, most = float(pairs.sum()), float(np.square(scores).max(initial=0.0))
    if off <= 0 or variance < LEAST_COUNT:
        return 1.0
    return float(min(1.0, 2.0 * np.exp(-(off**2) / (2.0 * (variance + most * off / 3.0)))))


def emission_ps(readings: Floats, states: npt.NDArray[Any], m: int, environments: Indices | None = None) -> Floats:
    """For each sequence (s, 2): chances of `state_p` and `reading_p`; `environments` (T,) if they are public."""
    ps = np.ones((states.shape[1], 2))
    for j in range(states.shape[1]):
        own = states[:, j].astype(np.intp)
        groups = own if environments is None else np.where(own >= 0, environments * m + own, -1)
        scores = inside_scores(readings[:, j], groups)
        ps[j] = state_p(scores, groups, own, m), reading_p(scores, groups)
    return ps


@dataclass(frozen=True)
class ReadingsCheck:
    """Whether the public past of the readings allows to publish readings under a certificate of their states.

    `states_p`, `readings_p`: chance of such readings if, given its state, a reading reveals no more of the states
    (readings) around it, corrected for the number of sequences.
    """

    states_p: float
    readings_p: float

    @property
    def verdict(self) -> Literal["passed", "states", "failed"]:
        """What certificates may say: of the present state and reading, of the state only, or nothing."""
        if self.states_p < LEVEL:
            return "failed"
        return "passed" if self.readings_p >= LEVEL else "states"


def check_readings(
    panel: Panel,
    *,
    states: int | None = None,
    environments: Indices | None = None,
) -> ReadingsCheck:
    """Do public readings reveal more than their states? If they do, a certificate of the states can be too low.

    Args:
        panel: states with the readings behind them (`Panel.readings`), as `read_panel` and `Discretiser.apply` give.
        states: number of states; that of the panel by default.
        environments: the environment of every tick, if it is public: readings are then compared within it.

    >>> import csdp
    >>> signal = np.sin(np.arange(400.0) / 20)[:, None]
    >>> check_readings(csdp.Discretiser.declared(["a"], states=2, bounds=(-1, 1)).apply(signal)).verdict
    'failed'
    """
    if panel.readings is None:
        raise InputError("panel: it holds states only; read it from readings (read_panel, Discretiser.apply)")
    m = panel.state_count if states is None else states
    count = len(panel.names)
    some = np.unique(np.linspace(0, count - 1, min(count, CHECKED)).round().astype(np.intp))
    readings, own = panel.readings[:, some], panel.states[:, some]
    ps = emission_ps(readings, own, m, environments)
    lowest = np.minimum(1.0, ps.min(axis=0) * some.size)
    return ReadingsCheck(float(lowest[0]), float(lowest[1]))
