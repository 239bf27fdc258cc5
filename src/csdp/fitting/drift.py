"""Drift: does a chain still describe what comes in?

A rival learns, from the rows so far, by how much each transition happens more or less often than the chain says, and
bets on the next row. If the chain is right, the ratio L of the rival's probability of a row to the chain's has mean 1
given the past, so `R <- (R + 1) L` has mean n after n rows, whatever the rival does. Hence

- the mean time to a false alarm at `R >= c` is at least c rows (Shiryaev 1963, Roberts 1966; Pollak 1985), and
- within n rows `R >= n / a` has probability at most a (Doob).

Neither is an approximation. Each sequence is bet on by itself, from its own state; R is the average over sequences.
Under a hidden environment the chain's probability is filtered from the rows so far, and, within a row, from the
sequences that come before.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.chain.stationary import margins
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.prediction import add_environments, predict
from csdp.fitting.sample import Chain, Progress, check_chain, ignore_progress, match_chain, read_sample
from csdp.numbers import Bools, Floats, Indices, fill_masked
from csdp.panel import Panel

#: Transitions that the rival must see before it believes half of what it sees.
_DOUBT = 10.0
#: Factor by which the counts that the chain is compared with fade in a row: after 500 rows a transition counts half.
_FADE = 0.5 ** (1.0 / 500)


@dataclass(frozen=True)
class DriftStatus:
    """After one row: `evidence` is ln R against the chain, `alarm` whether it has reached `threshold`."""

    rows: int
    evidence: float
    threshold: float
    alarm: bool


@dataclass(frozen=True)
class Drift:
    """Whether a chain still describes readings: `at` is the row of the alarm, `sequences` those that show it most.

    Under the chain an alarm has at most the chance `false_alarm`.
    """

    drifted: bool
    at: int | None
    evidence: float
    threshold: float
    false_alarm: float
    sequences: tuple[str, ...]
    verdict: str


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


class _Bets:
    """Bets on each sequence, from its own state, against the laws of a chain."""

    def __init__(self, chain: Chain) -> None:
        record = chain.fitted
        self._allowance = 0.0 if record is None else min(0.1, record.parameters / max(record.observations, 1))
        self._names = chain.names
        self._seen = np.zeros((chain.sequences, chain.states, chain.states))
        self._due = np.zeros_like(self._seen)
        self._each = np.full(chain.sequences, -np.inf)

    @property
    def evidence(self) -> float:
        """ln R: the evidence against the chain."""
        return float(np.logaddexp.reduce(self._each)) - math.log(self._each.size)

    def suspects(self) -> tuple[str, ...]:
        """The three sequences with the most evidence against the chain."""
        return tuple(self._names[i] for i in np.argsort(-self._each, kind="stable")[:3])

    def take(self, law: Floats, known: Bools, present: Indices, following: Indices) -> None:
        """Bet on the next row, whose laws (s, m) are known or not, and learn from it."""
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
    >>> any(check.update(row).alarm for row in chain.simulate(500, seed=1))
    False
    >>> any(check.update([n % 2]).alarm for n in range(100))
    True
    """

    def __init__(
        self, chain: CoupledChain | JointChain, *, rows_between_false_alarms: float = 1_000_000, public: bool = False
    ) -> None:
        check_chain(chain)
        chain.require_one_kernel()
        limit = check.number("rows_between_false_alarms", rows_between_false_alarms, above=1)
        if not public:
            _warn_of_leak()
        self.chain = chain
        self.threshold = math.log(limit)
        self.rows = 0
        self.alarmed_at: int | None = None
        self._law, self._bets = _NextLaw(chain), _Bets(chain)
        self._before: Indices | None = None

    def update(self, snapshot: npt.ArrayLike) -> DriftStatus:
        """Take one row of states, -1 if missing, and report whether the chain still holds."""
        row = np.asarray(fill_masked(snapshot, -1))
        if row.shape != (self.chain.sequences,) or not np.issubdtype(row.dtype, np.integer):
            raise InputError(
                f"snapshot: {row.dtype} of shape {row.shape} given; {self.chain.sequences} whole-number states expected"
            )
        if (row < -1).any() or (row >= self.chain.states).any():
            raise InputError(f"snapshot: states lie between 0 and {self.chain.states - 1}; -1 marks a missing reading")
        following = row.astype(np.intp)
        if self._before is not None:
            self._bets.take(*self._law(self._before), self._before, following)
        self._before = following
        self.rows += 1
        evidence = self._bets.evidence
        alarm = evidence >= self.threshold
        if alarm and self.alarmed_at is None:
            self.alarmed_at = self.rows - 1
        return DriftStatus(self.rows, evidence, self.threshold, alarm)


def _warn_of_leak() -> None:
    warnings.warn(
        "whether a chain has drifted reveals something about the readings; do not act on it in public, or declare "
        "them public (public=True)",
        PrivacyLeakWarning,
        stacklevel=3,
    )


def drift(
    chain: Chain,
    data: Any,
    *,
    false_alarm: float = 0.001,
    public: bool = False,
    progress: Progress | None = None,
) -> Drift:
    """Does the chain still describe new readings? If they follow it, it says no with chance at most `false_alarm`.

    The same test as `DriftCheck`, with the alarm at `R >= rows / false_alarm`. A backward chain is watched from the
    last row back, with the same guarantee: `at` is then the first row of the stretch that contradicts the chain.

    Args:
        chain: the chain in use.
        data: state numbers or a panel, newer than what the chain was fitted to.
        false_alarm: the largest probability of an alarm if the readings follow the chain.
        public: declare that the readings are public; otherwise it warns, because the answer reveals something.
        progress: called with what is done, how much, and the total.

    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> drift(chain, chain.simulate(2000, seed=1), public=True).drifted
    False
    >>> other = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> print(drift(chain, other.simulate(2000, seed=1), public=True).verdict)
    The chain no longer describes these data, from row 83 at the latest (most: x1). Fit again before relying on its \
leakage; if such times come and go, with environment='hidden'.
    """
    check_chain(chain)
    check.number("false_alarm", false_alarm, above=0, below=1)
    if not public:
        _warn_of_leak()
    readings = match_chain(chain, read_sample(data, states=chain.states))
    rows = readings.states.shape[0]
    ticks = data.ticks if isinstance(data, Panel) else np.arange(rows)
    prediction = predict(chain, add_environments(chain, readings, ticks))
    found = [prediction.law(target) for target in range(chain.sequences)]
    laws, known = np.stack([law for law, _ in found], axis=1), np.stack([is_known for _, is_known in found], axis=1)
    if not known.any():
        raise InputError("data: no transition was read at both ends; nothing can be said")
    states, bets = prediction.sample.states.astype(np.intp), _Bets(chain)
    threshold = math.log(rows / false_alarm)
    highest, at, suspects = -math.inf, None, bets.suspects()
    report = progress or ignore_progress
    for n in range(1, rows):
        bets.take(laws[n - 1], known[n - 1], states[n - 1], states[n])
        highest = max(highest, bets.evidence)
        if at is None and highest >= threshold:
            at, suspects = n if chain.direction == "forward" else rows - 1 - n, bets.suspects()
        if n % 256 == 0:
            report("watching", n, rows)
    drifted = at is not None
    verdict = "The chain describes these data: no evidence against it."
    if drifted:
        advice = "" if isinstance(chain, EnvironmentChain) else "; if such times come and go, with environment='hidden'"
        where = f"from row {at} at the latest" if chain.direction == "forward" else f"in the rows from row {at} on"
        verdict = (
            f"The chain no longer describes these data, {where} (most: {', '.join(suspects)}). Fit again before "
            f"relying on its leakage{advice}."
        )
    return Drift(
        drifted,
        at,
        highest,
        threshold,
        float(false_alarm),
        suspects if drifted else (),
        verdict,
    )
