"""Drift: does a chain still describe what comes in?

A rival learns, from the rows so far, by how much each transition happens more or less often than the chain says, and
bets on the next row. If the chain is right, the ratio L of the rival's probability of a row to the chain's has mean 1
given the past, so `R <- (R + 1) L` has mean n after n rows, whatever the rival does. Hence

- the mean time to a false alarm at `R >= c` is at least c rows (Shiryaev 1963, Roberts 1966; Pollak 1985), and
- within n rows `R >= n / a` has probability at most a (Doob).

Neither is an approximation. R is the average of two kinds of bet: on all sequences at once, and on each by itself.
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
from csdp.arrays import Bools, Floats, Indices, fill_masked
from csdp.chain import CoupledChain, EnvironmentChain, Family, JointChain
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.prediction import known_environments, shares_of_logs
from csdp.fitting.progress import show_progress
from csdp.fitting.sample import Chain, Progress, check_chain, match_chain, read_sample
from csdp.panel import Panel

#: Transitions that the rival must see before it believes half of what it sees.
_DOUBT = 10.0
#: What a backward chain's content says otherwise once its rows are read in reverse order.
_FORWARD = {"schema": CoupledChain.schema, "direction": "forward"}


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

    `log_likelihood` and `expected` are nats per transition: what the chain gives these readings, and what it would
    give its own. Under the chain an alarm has at most the chance `false_alarm`.
    """

    drifted: bool
    at: int | None
    evidence: float
    threshold: float
    false_alarm: float
    sequences: tuple[str, ...]
    log_likelihood: float
    expected: float
    verdict: str


class _NextLaw:
    """Next-state laws of a chain, row by row, with the edges that a rival may bet on."""

    def __init__(self, chain: CoupledChain | JointChain) -> None:
        if chain.direction == "backward":
            # A bet is made before a row is seen, so it needs the law of the next snapshot, not of the previous one.
            chain = JointChain(chain.kernel(), states=chain.states, sequences=chain.sequences, names=chain.names)
        self.chain = chain
        s = chain.sequences
        if isinstance(chain, CoupledChain):
            self.sources, self.targets = chain.edge_sources, chain.edge_targets
            table, which = chain.transition_table
            self._mixed = chain.edge_weights[:, None, None] * table[which]
        else:
            self.sources = self.targets = np.arange(s)
        self.starts: Indices = np.searchsorted(self.targets, np.arange(s))

    def __call__(self, present: Indices, following: Indices, environment: int | None) -> tuple[Floats, Bools]:
        """Laws (s, m) and which of them are known, given a snapshot with -1 for missing readings."""
        at = np.maximum(present, 0)
        if isinstance(self.chain, JointChain):
            m, s = self.chain.states, self.chain.sequences
            row = self.chain.kernel()[np.ravel_multi_index(tuple(at), (m,) * s)].reshape((m,) * s)
            law = np.array([row.sum(axis=tuple(i for i in range(s) if i != j)) for j in range(s)])
            return law, np.full(s, bool((present >= 0).all()))
        law = np.add.reduceat(self._mixed[np.arange(self.sources.size), at[self.sources]], self.starts, axis=0)
        return law, np.logical_and.reduceat(present[self.sources] >= 0, self.starts)


class _EnvironmentLaw:
    """Next-state laws of a chain with environments, row by row; bets are on each sequence from its own state."""

    def __init__(self, chain: EnvironmentChain) -> None:
        if chain.direction == "backward":
            raise InputError(
                "chain: a backward chain with environments given; a watch row by row needs the law of the next "
                "snapshot: use csdp.drift, which reads the rows from the last one back, or fit one with "
                "direction='forward' to watch with"
            )
        self.chain = chain
        self._members = [_NextLaw(member) for member in chain.environments]
        self.sources = self.targets = self.starts = np.arange(chain.sequences)
        self._law = None if chain.switching is None else np.asarray(chain.environment_law)

    def __call__(self, present: Indices, following: Indices, environment: int | None) -> tuple[Floats, Bools]:
        """Laws (s, m) given the past and the sequences before in the same row, and which of them are known."""
        each = [member(present, following, None) for member in self._members]
        laws = np.array([law for law, _ in each])
        known = np.logical_and.reduce([is_known for _, is_known in each])
        chance = laws[:, np.arange(following.size), np.maximum(following, 0)]
        held = np.eye(len(each))[environment] if self._law is None else self._law
        with np.errstate(divide="ignore"):
            scores = np.log(np.where(known & (following >= 0), chance, 1.0))
            before = np.log(held)
        totals = before[:, None] + np.cumsum(np.column_stack([np.zeros(len(each)), scores]), axis=1)
        weights = shares_of_logs(totals.T)
        if self.chain.switching is not None:
            self._law = weights[-1] @ self.chain.switching
        return np.asarray(np.einsum("se,esm->sm", weights[:-1], laws)), known


def _next_law(chain: Chain) -> _NextLaw | _EnvironmentLaw:
    return _EnvironmentLaw(chain) if isinstance(chain, EnvironmentChain) else _NextLaw(chain)


class DriftCheck:
    """Watches a stream row by row: does the chain still describe it?

    Formal guarantee: if the rows follow the chain, the mean number of rows before a false alarm is at least
    `rows_between_false_alarms`. A fitted chain is never exactly right; a bet must therefore win more than an allowance
    for the error of the fit, which is read off the family (or the number of parameters), before it counts.

    The answer depends on the readings, so acting on it in public reveals something about them: it warns unless they
    are declared `public`.

    Args:
        chain: the chain in use.
        rows_between_false_alarms: the least mean number of rows before a false alarm.
        half_life: rows after which a transition counts half in the counts that the chain is compared with.
        first_tick: the tick of the first row, for a chain with a clock; every row is one tick.
        public: declare that the rows are public.

    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> check = DriftCheck(chain, public=True)
    >>> any(check.update(row).alarm for row in chain.simulate(500, seed=1))
    False
    >>> any(check.update([n % 2]).alarm for n in range(100))
    True
    """

    def __init__(
        self,
        chain: Chain,
        *,
        rows_between_false_alarms: float = 1_000_000,
        half_life: float = 500,
        first_tick: int = 0,
        public: bool = False,
    ) -> None:
        check_chain(chain)
        limit = check.number("rows_between_false_alarms", rows_between_false_alarms, above=1)
        fading = check.number("half_life", half_life, above=1)
        if not public:
            _warn_of_leak()
        self.chain = chain
        self.threshold = math.log(limit)
        self._fade = 0.5 ** (1.0 / fading)
        self._first_tick, self._ticks = first_tick, 0
        self._allowance = _allowance(chain)
        self.reset()

    def reset(self) -> None:
        """Forget everything, as after an alarm that has been dealt with."""
        self._law: _NextLaw | _EnvironmentLaw = _next_law(self.chain)
        edges, m, s = self._law.sources.size, self.chain.states, self.chain.sequences
        self.rows = 0
        self.alarmed_at: int | None = None
        self._before: Indices | None = None
        self._seen = np.zeros((edges, m, m))
        self._due = np.zeros((edges, m, m))
        self._trust = np.zeros(edges)
        self._each = np.full(s, -np.inf)
        self._all = -np.inf
        self.score = self.expected = 0.0
        self.transitions = 0

    @property
    def evidence(self) -> float:
        """ln R: the evidence against the chain."""
        by_one = float(np.logaddexp.reduce(self._each)) - math.log(self._each.size)
        if isinstance(self.chain, JointChain):
            return by_one  # what a joint chain says of the sequences does not multiply
        return float(np.logaddexp(self._all, by_one)) - math.log(2.0)

    def suspects(self, most: int = 3) -> tuple[str, ...]:
        """The sequences with the most evidence against the chain."""
        return tuple(self.chain.names[i] for i in np.argsort(-self._each, kind="stable")[:most])

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
        known = self._environment()
        if self._before is not None:
            self._bet(self._before, following, known)
        self._before = following
        self.rows += 1
        self._ticks += 1
        alarm = self.evidence >= self.threshold
        if alarm and self.alarmed_at is None:
            self.alarmed_at = self.rows - 1
        return DriftStatus(self.rows, self.evidence, self.threshold, alarm)

    def _environment(self) -> int | None:
        """The environment of the coming row, if the chain knows it."""
        if not isinstance(self.chain, EnvironmentChain):
            return None
        path = known_environments(self.chain, np.array([self._first_tick + self._ticks]))
        return None if path is None else int(path[0])

    def _bet(self, present: Indices, following: Indices, environment: int | None) -> None:
        law, known = self._law(present, following, environment)
        known = known & (following >= 0)
        sources, targets, starts = self._law.sources, self._law.targets, self._law.starts
        at, to, edges = np.maximum(present, 0)[sources], np.maximum(following, 0)[targets], np.arange(sources.size)
        ratio = (self._seen[edges, at] + _DOUBT) / (self._due[edges, at] + _DOUBT)
        whole = (law[targets] * ratio).sum(axis=1)
        bet = ratio[edges, to] / whole
        trust = np.exp(self._trust - np.maximum.reduceat(self._trust, starts)[targets])
        won = np.add.reduceat(trust * bet, starts) / np.add.reduceat(trust, starts)
        chance = law[np.arange(law.shape[0]), np.maximum(following, 0)]
        with np.errstate(divide="ignore"):
            gains = np.where(known, np.where(chance > 0, np.log(won) - self._allowance, np.inf), 0.0)
            self._each = np.logaddexp(self._each, 0.0) + gains
            self._all = float(np.logaddexp(self._all, 0.0) + gains.sum())
            scores, entropy = np.log(chance[known]), law[known] * np.log(np.where(law[known] > 0, law[known], 1.0))
        self.score += float(scores.sum())
        self.expected += float(entropy.sum())
        self.transitions += int(known.sum())
        live = known[targets]
        self._seen *= self._fade
        self._due *= self._fade
        self._seen[edges[live], at[live], to[live]] += 1.0
        self._due[edges[live], at[live]] += law[targets[live]]
        self._trust = np.where(live, self._fade * (self._trust + np.log(bet)), self._trust)


def _warn_of_leak() -> None:
    warnings.warn(
        "whether a chain has drifted reveals something about the readings; do not act on it in public, or declare "
        "them public (public=True)",
        PrivacyLeakWarning,
        stacklevel=3,
    )


def _allowance(chain: Chain) -> Floats:
    """Nats per transition that each sequence of a fitted chain may be off: twice the mean divergence in its family."""
    s = chain.sequences
    if chain.family is not None and len(chain.family.members) > 1:
        rows, path = _typical_rows(chain)
        own = _laws_along(chain, rows, path)
        total = np.zeros(s)
        for member in chain.family.members[1:]:
            check_chain(member)
            theirs = _laws_along(member, rows, path)  # type: ignore[arg-type] # as just checked
            both = (theirs > 0) & (own > 0)
            ratio = np.where(both, theirs / np.where(own > 0, own, 1.0), 1.0)
            total += (theirs * np.log(ratio)).sum(axis=(0, 2))
        return np.asarray(2.0 * total / (own.shape[0] * (len(chain.family.members) - 1)))
    record = chain.fitted
    off = 0.0 if record is None else min(0.1, record.parameters / max(record.observations, 1))
    return np.full(s, off)


def _typical_rows(chain: Chain) -> tuple[Indices, Indices]:
    """Rows that a chain would show, and their environments (0 without environments)."""
    if not isinstance(chain, EnvironmentChain):
        return chain.simulate(201, seed=0).astype(np.intp), np.zeros(201, dtype=np.intp)
    rows, path = chain.simulate_with_environments(201, seed=0)
    return rows.astype(np.intp), path


def _laws_along(chain: Chain, rows: Indices, path: Indices) -> Floats:
    """Laws (rows - 1, s, m) of each row given those before."""
    law: _NextLaw | _EnvironmentLaw = _next_law(chain)
    known: list[int | None] = [None] * (len(rows) - 1)
    if isinstance(chain, EnvironmentChain) and chain.kind != "hidden":
        known = path[1:].tolist()
    pairs = zip(rows[:-1], rows[1:], known, strict=True)
    return np.array([law(present, following, environment)[0] for present, following, environment in pairs])


def _turn_round(chain: EnvironmentChain, last: int) -> EnvironmentChain:
    """A backward chain as a forward one of the rows in reverse order, the last tick first, counted from 0.

    The step back from tick t happens under e_t. In reverse order it leads into the next row, number r = last - t + 1,
    which therefore has the environment of the tick last + 1 - r.
    """
    members = [CoupledChain.from_dict({**member.to_dict(), **_FORWARD}) for member in chain.environments]
    how: dict[str, Any] = {}
    if chain.cycle is not None:
        how["cycle"] = [chain.cycle[(last + 1 - r) % len(chain.cycle)] for r in range(len(chain.cycle))]
    if chain.switching is not None:
        how["switching"] = chain.own_switching
    turned = EnvironmentChain(members, **how)
    family = chain.family
    if family is not None:
        others = [_turn_round(each, last) for each in family.members if isinstance(each, EnvironmentChain)]
        family = Family(others) if len(others) == len(family.members) else None
    return turned.carrying(fitted=chain.fitted, family=family)


def drift(
    chain: Chain,
    data: Any,
    *,
    false_alarm: float = 0.001,
    half_life: float = 500,
    public: bool = False,
    progress: Progress | bool | None = None,
) -> Drift:
    """Does the chain still describe new readings? If they follow it, it says no with chance at most `false_alarm`.

    The same test as `DriftCheck`, with the alarm at `R >= rows / false_alarm`. A backward chain with environments is
    watched from the last row back, with the same guarantee: `at` is then the first row of the
    stretch that contradicts the chain.

    Args:
        chain: the chain in use.
        data: state numbers or a panel, newer than what the chain was fitted to.
        false_alarm: the largest probability of an alarm if the readings follow the chain.
        half_life: ticks after which a transition counts half in the counts that the chain is compared with.
        public: declare that the readings are public; otherwise it warns, because the answer reveals something.
        progress: called with what is done, how much, and the total; True shows a bar.

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
    ticks = readings.states.shape[0]
    first = int(data.ticks[0]) if isinstance(data, Panel) else 0
    states, watched = readings.states, chain
    backwards = isinstance(chain, EnvironmentChain) and chain.direction == "backward"
    if isinstance(chain, EnvironmentChain) and backwards:
        watched, states = _turn_round(chain, first + ticks - 1), states[::-1]
        first = 0
    watch = DriftCheck(
        watched, rows_between_false_alarms=ticks / false_alarm, half_life=half_life, first_tick=first, public=True
    )
    highest, suspects = -math.inf, watch.suspects()
    with show_progress(progress) as report:
        for n, row in enumerate(states):
            status = watch.update(row)
            if status.alarm and watch.alarmed_at == n:
                suspects = watch.suspects()
            highest = max(highest, status.evidence)
            if n % 256 == 0:
                report("watching", n, ticks)
    drifted = watch.alarmed_at is not None
    at = None if watch.alarmed_at is None else ticks - 1 - watch.alarmed_at if backwards else watch.alarmed_at
    verdict = "The chain describes these data: no evidence against it."
    if drifted:
        where = f"in the rows from row {at} on" if backwards else f"from row {at} at the latest"
        verdict = (
            f"The chain no longer describes these data, {where} (most: {', '.join(suspects)}). Fit again before "
            "relying on its leakage"
            + (
                "."
                if isinstance(chain, EnvironmentChain)
                else "; if such times come and go, with environment='hidden'."
            )
        )
    if not watch.transitions:
        raise InputError("data: no transition was read at both ends; nothing can be said")
    return Drift(
        drifted,
        at,
        highest,
        watch.threshold,
        float(false_alarm),
        suspects if drifted else (),
        watch.score / watch.transitions,
        watch.expected / watch.transitions,
        verdict,
    )
