"""Grow a model until the data accept it: the class of processes that a fit certifies.

Every sequence starts by following its own next state. Where a test of predictive residuals rejects on the first part of
the public past, the edge that it names is added to that sequence, until nothing is rejected or nothing helps. Then the
law is judged once on a later part that growing never saw: the largest of all statistics against that of series which
are simulated from the law, fitted and tested in the same way (a parametric bootstrap at one joint level). The class is
what the limits of the law leave possible, with an allowance for slow levels (`csdp.fitting.class_limits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

import numpy as np

from csdp.chain import InfluenceGraph, Model
from csdp.chain.graph import LIMIT_STATES, Limits
from csdp.chain.stationary import connected_parts
from csdp.fitting.class_limits import (
    CONFIDENCE,
    Levels,
    limit_levels,
    limit_rows,
    make_forward,
    make_windows,
    widen_rows,
)
from csdp.fitting.em import Effort
from csdp.fitting.environment import ChainCandidate, fit_candidate
from csdp.fitting.parents import Law, Newest, Parents, Reading, first_law, fit_law
from csdp.fitting.residuals import GROW_CHANCE, Finding, Statistics, run_tests, tested_sequences
from csdp.fitting.sample import GROWING, Progress, Sample, ignore_progress
from csdp.numbers import Indices

#: Chance that a right model is rejected when it is judged, and series that are simulated for it.
LEVEL, SERIES = 0.01, 199
#: Ticks of the gap before the part that it is judged on.
GAP = 60
#: Ticks below which the tests have too little power, and readings beyond which nothing is grown.
FEWEST, MOST_READINGS = 200, 20_000_000
#: Chance of a pair among all of them below which it is added if pairs together are rejected.
LIKELY = 0.05
#: Chance of a statistic among those of its kind below which growing alone rejects a model that nothing helps.
CERTAIN = 1e-5
#: Ticks of a block whose level is its own, the longest first; those of the next are tried if levels change faster.
BLOCKS = (100, 50, 25)
#: Rounds of growing, combinations of parents that a sequence may follow, and parents.
ROUNDS, CONTEXTS, PARENTS = 8, 32, 4
#: Hidden environments that growing tries.
ENVIRONMENTS = 8
#: Iterations of a fit, and of one to a series that was simulated from where it starts.
_ITERATIONS, _AGAIN = 300, 12
#: Series that are simulated at once.
_BATCH = 10


@dataclass(frozen=True, eq=False)
class Grown:
    """The class that a past leaves, whether it accepts it, and how it came about, in words."""

    graph: InfluenceGraph | None
    status: Literal["accepted", "rejected", "untested"]
    reason: str
    assumes: str
    path: tuple[str, ...]
    power: str


def grow(
    sample: Sample,
    point: Model,
    *,
    hidden: int = 0,
    clock: tuple[Indices, int] | None = None,
    progress: Progress = ignore_progress,
) -> Grown:
    """Grow, judge and limit a class around a chain that was fitted to the same public readings.

    Args:
        sample: public readings in natural order.
        point: the chain.
        hidden: number of hidden environments, 0 for none.
        clock: the environment of every tick, and their number.
        progress: called with (what, done, total).
    """
    if sample.m > LIMIT_STATES:
        return _not_grown(f"{sample.m} states a sequence are too many for limits; at most {LIMIT_STATES}")
    ticks = sample.states.shape[0]
    if ticks < FEWEST:
        return _not_grown(f"{ticks} ticks are too few to grow and to judge a model; {FEWEST} are needed")
    if sample.states.size > MOST_READINGS:
        return _not_grown(f"{sample.states.size:,} readings are too many to grow a model; at most {MOST_READINGS:,}")
    whole = _newest_first(sample, clock)
    chosen = tested_sequences(sample.sequences)
    growth = _Growth(whole.of(chosen), sample.of(chosen), hidden, clock, progress)
    growth.run()
    p = growth.judge() if growth.failure is None else None
    law = fit_law(growth.law.spread(chosen, sample.sequences), whole, _ITERATIONS)
    graph, assumes = _make_graph(law, whole, point, growth.block, changing=growth.changing)
    failure = growth.failure
    if failure is None and p is not None and p <= LEVEL:
        failure = f"{_describe(growth.worst, growth.labels)} on the part that it was judged on (p = {p:.3g})"
    if failure is None and graph is None:
        failure = assumes
    reason = "" if failure is None else f"{failure}. {_remedy(growth.worst)}"
    if p is not None:
        growth.path.append(f"judged on the last {growth.later.states.shape[0]:,} ticks: p = {p:.3g}")
    return Grown(
        graph, "accepted" if failure is None else "rejected", reason, assumes, tuple(growth.path), growth.power()
    )


def _not_grown(reason: str) -> Grown:
    return Grown(None, "untested", reason, "", (), "")


def _newest_first(sample: Sample, clock: tuple[Indices, int] | None) -> Newest:
    path = None
    if clock is not None:
        labels = np.asarray(clock[0])[::-1]
        path = np.concatenate([labels[:1], labels[:-1]])  # a step back is under the environment of the newer tick
    return Newest(np.ascontiguousarray(sample.states[::-1]), sample.m, path)


class _Growth:
    """A law that grows on the first part of the past."""

    def __init__(
        self,
        whole: Newest,
        sample: Sample,
        hidden: int,
        clock: tuple[Indices, int] | None,
        progress: Progress,
    ) -> None:
        ticks = whole.states.shape[0]
        self.cut = round(ticks * GROWING)
        gap = min(GAP, ticks // 20)
        self.whole, self.progress, self.labels = whole, progress, sample.labels
        self.first = whole.part(ticks - self.cut, ticks)
        self.later = whole.part(0, ticks - self.cut - gap)
        self.block, self.changing = BLOCKS[0], False
        self.failure: str | None = None
        self.worst: Finding | None = None
        self.path: list[str] = []
        s, m = sample.sequences, sample.m
        self.law = first_law(s, m, 1 if clock is None else clock[1])
        self.hidden, self.sample = hidden > 0, sample.between(0, self.cut)
        if hidden:
            self.law = _hidden_law(self.sample, hidden, progress)

    def run(self) -> None:
        """Add what tests name until none rejects, or nothing helps."""
        self.path.append("every sequence follows its own next state")
        for number in range(ROUNDS):
            self.progress("growing", number, ROUNDS)
            self.law = fit_law(self.law, self.first, _ITERATIONS)
            self.statistics = self._test(self.law, self.first)
            found = self.statistics.above(GROW_CHANCE)
            if not found:
                self.worst = None
                return
            self.worst = found[0]
            if not self._extend(found):
                break
        if self.worst is not None and self.worst.surprise > -np.log(CERTAIN):
            self.failure = f"{_describe(self.worst, self.labels)} (z = {abs(self.worst.z):.1f})"

    def _test(self, law: Law, data: Newest) -> Statistics:
        return run_tests(Reading(law, data), self.block, changing=self.changing)

    def _extend(self, found: Sequence[Finding]) -> bool:
        """Add what the most surprising statistic names that anything helps against; whether anything was added."""
        return any(self._answer(test, [one for one in found if one.test == test]) for test in _tests(found))

    def _answer(self, test: str, found: Sequence[Finding]) -> bool:
        """Add what the statistics of a test name."""
        seen = _describe(found[0], self.labels)
        if test == "lag by block":
            self.changing = True
            self.path.append(f"limits over blocks: {seen}")
            return True
        if test in {"level", "drift"} and self.block > BLOCKS[-1]:
            self.block = BLOCKS[BLOCKS.index(self.block) + 1]
            self.path.append(f"levels of {self.block} ticks are their own: {seen}")
            return True
        common = not found[0].who
        if common and test != "order" and self._add_environment(seen):
            return True
        if self._add_edges(self._named_edges(test, found), seen):
            return True
        return not common and test != "order" and self._add_environment(seen)

    def _add_environment(self, seen: str) -> bool:
        """One more hidden environment."""
        if not self.hidden or self.law.environments >= ENVIRONMENTS:
            return False
        grown = _hidden_law(self.sample, self.law.environments + 1, self.progress)
        self.law = grown.with_parents(self.law.parents)
        self.path.append(f"{grown.environments} hidden environments: {seen}")
        return True

    def _add_edges(self, edges: Sequence[tuple[int, tuple[int, int]]], seen: str) -> bool:
        """Edges that there is room for."""
        parents = [list(own) for own in self.law.parents]
        added = []
        for j, edge in edges:
            room = self.whole.m ** (len(parents[j]) + 1) <= CONTEXTS and len(parents[j]) < PARENTS
            if edge not in parents[j] and room:
                parents[j].append(edge)
                added.append((j, edge))
        if not added:
            return False
        self.law = self.law.with_parents(tuple(map(tuple, parents)))
        self.path.append(f"{_edges_in_words(added, self.labels)}: {seen}")
        return True

    def _named_edges(self, test: str, found: Sequence[Finding]) -> list[tuple[int, tuple[int, int]]]:
        """(Sequence, (whom it also follows, lag)) that a test asks for."""
        parents = self.law.parents
        if test in {"order", "level"}:
            pooled = range(len(parents)) if test == "order" else ()
            named = sorted({one.who[0] for one in found if one.who}) or pooled
            return [(j, (j, 1 + max(lag for i, lag in parents[j] if i == j))) for j in named]
        if test not in {"others", "together"}:
            return []
        likely = [one for one in self.statistics.above(LIKELY) if one.test == test and len(one.who) == 2]
        if len(likely) > 2 * len(parents):  # not an edge here and there
            return []
        return [(one.who[0], (one.who[1], int(test == "others"))) for one in likely]

    def judge(self) -> float:
        """The chance of so large a statistic on the later part, at most; opened once."""
        law = self._judged_law(self.law, self.whole)
        statistics = self._test(law, self.later)
        seen = statistics.largest
        self.worst = statistics.above(np.exp(-seen) * (1.0 + 1e-9))[0]
        random = np.random.default_rng(list(sha256(self.whole.states.tobytes()).digest()))
        reached, done = 0, 0
        while done < SERIES:
            for states in law.simulate(self.whole, min(_BATCH, SERIES - done), random):
                again = Newest(states, self.whole.m, self.whole.path)
                fitted = self._judged_law(law, again, _AGAIN)
                later = again.part(0, self.later.states.shape[0])
                reached += self._test(fitted, later).largest >= seen
                done += 1
                if reached >= 2:  # whatever follows, it is not rejected (Besag and Clifford 1991)
                    return reached / done
            self.progress("judging", done, SERIES)
        return (1.0 + reached) / (1.0 + done)

    def _judged_law(self, law: Law, data: Newest, iterations: int = _ITERATIONS) -> Law:
        """The law as the growing part of some readings has it; of the later part if influences change."""
        ticks = data.states.shape[0]
        later = self.later.states.shape[0]
        part = data.part(0, later) if self.changing else data.part(ticks - self.cut, ticks)
        return _at_rest(fit_law(law, part, iterations))

    def power(self) -> str:
        """What the tests would notice nine times in ten, in words."""
        parts = []
        for test, what in (("order", "one more own state"), ("others", "another sequence")):
            sizes = (self.statistics.least_effect(test, pooled=pooled) for pooled in (False, True))
            words = [
                f"{size:.2f} in {where}" for size, where in zip(sizes, ("one sequence", "all"), strict=True) if size
            ]
            if words:
                parts.append(f"{what} {', '.join(words)}")
        return f"noticed nine times in ten, in log odds: {'; '.join(parts)}" if parts else ""


def _tests(found: Sequence[Finding]) -> list[str]:
    """The tests that reject, the most surprising first."""
    return list(dict.fromkeys(one.test for one in found))


def _at_rest(law: Law) -> Law:
    """The law that begins with the long-run shares of its environments."""
    if law.switching is None:
        return law
    start = np.linalg.matrix_power(law.switching, 4096)[0]
    return replace(law, start=np.ascontiguousarray(start / start.sum()))


def _hidden_law(sample: Sample, count: int, progress: Progress) -> Law:
    """Own chains in hidden environments."""
    readings = sample.in_direction("backward")
    chain = fit_candidate(ChainCandidate("hidden", 0, count=count), readings, effort=Effort(), progress=progress).chain
    rows = []
    for member in chain.environments:  # type: ignore[union-attr] # with hidden environments it has some
        table, which = member.transition_table
        rows.append(table[which][np.argsort(member.edge_targets)])
    law = first_law(sample.sequences, sample.m, count)
    start = np.asarray(chain.environment_law)  # type: ignore[union-attr]
    return replace(law, rows=np.array(rows), start=start, switching=np.array(chain.own_switching))  # type: ignore[union-attr]


def _make_graph(
    law: Law, data: Newest, point: Model, block: int, *, changing: bool
) -> tuple[InfluenceGraph | None, str]:
    """The class, and what it assumes in words; None and why if there are no sound limits."""
    if not _has_limits(law.parents):
        return None, "sequences follow each other and remember more than one step, for which there are no limits"
    chance = 1.0 - CONFIDENCE
    rows = limit_rows(law, data, chance / (4.0 if changing else 2.0))
    if changing:
        rows = widen_rows(rows, law, data, chance / 4.0)
    levels = limit_levels(law, data, chance / 2.0, np.random.default_rng([1, 31]), block)
    worlds = make_windows(rows, levels, data.m)
    forward = make_forward(rows, levels, data.m)
    apart = 1.0 - np.eye(data.m)
    added = levels.swing if data.m == 2 else None
    swing = apart * (added[:, :1, None] if added is not None else levels.swing[:, :, None] + levels.swing[:, None, :])
    words = _assumes(law.parents, worlds, levels, point.names)
    graph = InfluenceGraph.of_limits(
        point,
        worlds=worlds,
        forward=forward,
        swing=swing,
        confidence=CONFIDENCE,
        claims=(words,),
    )
    return graph, words


def _has_limits(parents: Parents) -> bool:
    """Whether sequences that follow each other remember one step only."""
    from scipy.sparse import coo_array

    ends = np.array([(j, i) for j, own in enumerate(parents) for i, _ in own])
    shape = (len(parents), len(parents))
    parts = connected_parts(coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=shape))
    return all(len(part) == 1 or all(lag <= 1 for j in part for _, lag in parents[j]) for part in parts)


# ---- in words --------------------------------------------------------------------------------------------------------


def _name(j: int, labels: Sequence[str]) -> str:
    return labels[j]


def _edges_in_words(edges: Sequence[tuple[int, tuple[int, int]]], labels: Sequence[str]) -> str:
    words = []
    for j, (i, lag) in edges[:4]:
        if i == j:
            words.append(f"{labels[j]} also on the one {'before' if lag == 2 else f'{lag} ticks before'}")
        else:
            words.append(f"{labels[j]} also on {labels[i]}{' in the same tick' if lag == 0 else ''}")
    more = f" and {len(edges) - 4} more" if len(edges) > 4 else ""
    return ", ".join(words) + more


def _assumes(parents: Parents, worlds: Sequence[Sequence[Limits]], levels: Levels, labels: Sequence[str]) -> str:
    """What the class assumes, in one sentence."""
    extra = [(j, edge) for j, own in enumerate(parents) for edge in own[1:]]
    words = ["every sequence depends on its own last tick"]
    deep = [j for j, own in enumerate(parents) if any(i == j and lag == 2 for i, lag in own)]
    if len(deep) == len(parents):
        words = ["every sequence depends on its own last two ticks"]
        extra = [(j, edge) for j, edge in extra if edge != (j, 2)]
    if extra:
        words.append(_edges_in_words(extra, labels))
    strongest = max(float(windows[-1].gains.max()) for windows in worlds)
    words.append(f"no influence above {strongest:.2f}")
    words.append(f"slow levels add {float(levels.swing.max()):.2g}")
    return "; ".join(words)


def _describe(found: Finding | None, labels: Sequence[str]) -> str:
    if found is None:
        return ""
    who = f" ({', '.join(labels[j] for j in found.who)})" if found.who else " (all sequences together)"
    what = {
        "order": f"the state {found.detail} ticks away adds to what the model knows",
        "level": f"the mean of {found.detail} ticks adds to what the model knows",
        "others": "other sequences add to what the model knows",
        "environment": "the environment of the tick beside it adds to what the model knows",
        "lag by block": "the past is not alike: influences change over time",
        "together": "sequences move together within a tick or in a row",
        "drift": "levels drift within a block",
        "calibration": "probabilities are not as often right as they say",
    }[found.test]
    return what + who


def _remedy(found: Finding | None) -> str:
    test = "" if found is None else found.test
    if test in {"together", "environment", "calibration", "others"}:
        return "Fit with environment='hidden' (with more environments if it has some), or publish under plain numbers"
    if test in {"lag by block", "drift", "level"}:
        return "Fit on a shorter, recent stretch or with environment='hidden', or publish under plain numbers"
    return "Use a longer step or finer states, or publish under plain numbers (event, window)"
