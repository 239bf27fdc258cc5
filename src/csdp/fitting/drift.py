"""Drift: does a chain still describe what comes in?

A rival learns, from the rows so far, by how much each transition happens more or less often than the chain says, and
bets on the next row. If the chain is right, the ratio L of the rival's probability of a row to the chain's has mean 1
given the past, so `R <- (R + 1) L` has mean n after n rows, whatever the rival does. Hence

- the mean time to a false alarm at `R >= c` is at least c rows (Shiryaev 1963, Roberts 1966; Pollak 1985), and
- within n rows an alarm has probability at most n / c (Doob).

Neither is an approximation. Each sequence is bet on by itself, from its own state; R is the average over sequences.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import CoupledChain, JointChain
from csdp.chain.stationary import margins
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.sample import check_chain
from csdp.numbers import Bools, Floats, Indices, fill_masked

#: Transitions that the rival must see before it believes half of what it sees.
_DOUBT = 10.0
#: Factor by which the counts that the chain is compared with fade in a row: after 500 rows a transition counts half.
_FADE = 0.5 ** (1.0 / 500)


class _NextLaw:
    """Next-state laws of a chain, row by row."""

    def __init__(self, chain: CoupledChain | JointChain) -> None:
        if chain.direction == "backward":
            # A bet is made before a row is seen, so it needs the law of the next snapshot, not of the previous one.
            chain = JointChain(chain.kernel(), states=chain.states, sequences=chain.sequences, names=chain.names)
        self._chain = chain
        if isinstance(chain, CoupledChain):
            table, which = chain.transition_table
            self._mixed = chain.edge_weights[:, None, None] * table[which]

    def __call__(self, present: Indices) -> tuple[Floats, Bools]:
        """Laws (s, m) and which of them are known, given a snapshot with -1 for missing readings."""
        chain, at = self._chain, np.maximum(present, 0)
        if isinstance(chain, JointChain):
            shape = (chain.states,) * chain.sequences
            row = chain.kernel()[np.ravel_multi_index(tuple(at), shape)]
            return margins(row.reshape(shape)), np.full(chain.sequences, bool((present >= 0).all()))
        sources, starts = chain.edge_sources, chain.edge_starts[:-1]
        law = np.add.reduceat(self._mixed[np.arange(sources.size), at[sources]], starts, axis=0)
        return law, np.logical_and.reduceat(present[sources] >= 0, starts)


class DriftCheck:
    """Watches a stream row by row: does the chain still describe it?

    Formal guarantee: if the rows follow the chain, the mean number of rows before a false alarm is at least
    `rows_between_false_alarms`. A fitted chain is never exactly right; a bet must therefore win more than an allowance
    for the error of the fit, its number of parameters per transition, before it counts.

    The answer depends on the readings, so acting on it in public reveals something about them: it warns unless they
    are declared `public`.

    Args:
        chain: the chain in use, without environments.
        rows_between_false_alarms: the least mean number of rows before a false alarm.
        public: declare that the rows are public.

    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> check = DriftCheck(chain, public=True)
    >>> any(check.update(row) for row in chain.simulate(500, seed=1))
    False
    >>> any(check.update([n % 2]) for n in range(100))
    True
    """

    def __init__(
        self, chain: CoupledChain | JointChain, *, rows_between_false_alarms: float = 1_000_000, public: bool = False
    ) -> None:
        check_chain(chain)
        chain.require_one_kernel()
        limit = check.number("rows_between_false_alarms", rows_between_false_alarms, above=1)
        if not public:
            warnings.warn(
                "whether a chain has drifted reveals something about the readings; do not act on it in public, or "
                "declare them public (public=True)",
                PrivacyLeakWarning,
                stacklevel=2,
            )
        self._threshold = math.log(limit)
        record = chain.fitted
        self._allowance = 0.0 if record is None else min(0.1, record.parameters / max(record.observations, 1))
        self._law = _NextLaw(chain)
        self._seen = np.zeros((chain.sequences, chain.states, chain.states))
        self._due = np.zeros_like(self._seen)
        self._each = np.full(chain.sequences, -np.inf)
        self._before: Indices | None = None

    @property
    def evidence(self) -> float:
        """ln R: the evidence against the chain."""
        return float(np.logaddexp.reduce(self._each)) - math.log(self._each.size)

    def update(self, snapshot: npt.ArrayLike) -> bool:
        """Take one row of states, -1 if missing; whether there is an alarm: the chain no longer holds."""
        row = np.asarray(fill_masked(snapshot, -1))
        sequences, states = self._seen.shape[:2]
        if row.shape != (sequences,) or not np.issubdtype(row.dtype, np.integer):
            raise InputError(
                f"snapshot: {row.dtype} of shape {row.shape} given; {sequences} whole-number states expected"
            )
        if (row < -1).any() or (row >= states).any():
            raise InputError(f"snapshot: states lie between 0 and {states - 1}; -1 marks a missing reading")
        following = row.astype(np.intp)
        if self._before is not None:
            self._bet(self._before, following)
        self._before = following
        return self.evidence >= self._threshold

    def _bet(self, present: Indices, following: Indices) -> None:
        """Bet on the next row, and learn from it."""
        law, known = self._law(present)
        known = known & (present >= 0) & (following >= 0)
        each, at, to = np.arange(law.shape[0]), np.maximum(present, 0), np.maximum(following, 0)
        ratio = (self._seen[each, at] + _DOUBT) / (self._due[each, at] + _DOUBT)
        won = ratio[each, to] / (law * ratio).sum(axis=1)
        gains = np.where(law[each, to] > 0, np.log(won) - self._allowance, np.inf)
        self._each = np.logaddexp(self._each, 0.0) + np.where(known, gains, 0.0)
        self._seen *= _FADE
        self._due *= _FADE
        self._seen[each[known], at[known], to[known]] += 1.0
        self._due[each[known], at[known]] += law[known]
