"""Grow a model until the data accept it: the class of processes that a fit certifies.

Every sequence starts by following its own next state, at a level by environment and by the clock. If a test
of predictive residuals rejects on the first part of the public past, what it names is added: an environment, an
edge to that sequence, shorter blocks for slow levels, or limits that hold in every stretch. It stays if the
model becomes more plausible by it. What has grown is judged once, on a later part that growing never saw: the
largest of all statistics against that of simulated series (a parametric bootstrap at one joint level). The class
is what the limits of the law leave possible, with an allowance for slow levels (`csdp.fitting.class_limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

import numpy as np

from csdp.chain import InfluenceGraph, Model
from csdp.chain.graph import LIMIT_STATES, LONGEST_MEMORY
from csdp.fitting.additive import Law, Newest, Reading, first_law, fit_law, hidden_law, own_parents
from csdp.fitting.class_limits import (
    CONFIDENCE,
    ClassLimits,
    has_windows,
    limit_class,
    limit_effects,
    make_forward,
    make_windows,
    swing_of,
)
from csdp.fitting.residuals import BLOCKS, Comparison, Finding, Group, compare, run_tests, tested_sequences
from csdp.fitting.sample import GROWING, Progress, Sample, ignore_progress
from csdp.numbers import Indices

#: Chance that a right model is rejected when it is judged, and series that are simulated for it.
LEVEL, SERIES = 0.01, 199
#: Series that are simulated in a round of growing, and chance of the largest statistic at which it goes on.
GROWING_SERIES, GROW_CHANCE = 59, LEVEL
#: Ticks of the gap before the part that it is judged on.
GAP = 60
#: Ticks below which the tests have too little power.
FEWEST = 200
#: Chance among those of its kind below which a statistic names an edge.
NAMED = 0.05
#: Chance of the largest statistic below which growing alone rejects a model that nothing helps.
CERTAIN = 1e-6
#: Answers that growing tries, parents that a sequence may follow, and combinations of their states.
ROUNDS, PARENTS, CONTEXTS = 10, 4, 64
#: Hidden environments that growing tries, and starts of a fit of them.
ENVIRONMENTS, STARTS = 12, 6
#: Iterations of a fit.
_ITERATIONS = 300
#: Readings that are tested at most: of fewer sequences, evenly spread, and then of the newest ticks only.
READINGS = 150_000
#: Sequences up to which each is compared with each, and down to which their number gives way to more ticks.
TESTED, FEW_TESTED = 128, 32
#: Sequences that are fitted at once.
_CHUNK = 256


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
        clock: the phase of every tick, and their number.
        progress: called with (what, done, total).
    """
    if sample.m > LIMIT_STATES:
        return _not_grown(f"{sample.m} states a sequence are too many for limits; at most {LIMIT_STATES}")
    ticks = sample.states.shape[0]
    if ticks < FEWEST:
        return _not_grown(f"{ticks} ticks are too few to grow and to judge a model; {FEWEST} are needed")
    most = min(sample.sequences, TESTED, max(FEW_TESTED, READINGS // ticks))
    used = min(ticks, READINGS // most)
    whole = _newest_first(sample, clock).part(0, used)
    chosen = tested_sequences(sample.sequences, most)
    growth = _Growth(whole.of(chosen), tuple(np.array(sample.labels)[chosen].tolist()), hidden, progress)
    growth.run()
    if used < ticks:
        growth.path.append(f"fitted, tested and limited on the newest {used:,} of {ticks:,} ticks")
    law, information = fit_law(growth.model.law, growth.whole, _ITERATIONS)
    failure = growth.failure
    if failure is None:
        judged = growth.judge(law)
        p = judged.p
        if not any(group.information.any() for group in judged.groups if group.test == "order"):
            return _not_grown("states hardly change in the part that the model is judged on: there is nothing to test")
        growth.path.append(f"judged on the last {growth.later.states.shape[0]:,} ticks: p = {p:.3g}")
        if p <= LEVEL:
            growth.worst = judged.worst()
            seen = _describe(growth.worst, growth.labels)
            failure = f"{seen} on the part that it was judged on (p = {p:.3g})"
    if not has_windows(law.parents):
        failure = (
            failure or "sequences follow each other and remember more than one step, for which there are no limits"
        )
        return Grown(None, "rejected", f"{failure}. {_remedy(growth.worst)}", "", tuple(growth.path), growth.power())
    progress("limits", 0, 1)
    random = np.random.default_rng([1, 31])
    model = growth.model
    limits = limit_class(law, growth.whole, information, model.block, model.changing, random)
    if chosen.size < sample.sequences:
        limits = _limit_others(limits, law, growth, whole, chosen)
        growth.path.append(f"tested on {chosen.size} of {sample.sequences:,} sequences, evenly spread")
    words = _assumes(limits, law, sample.labels)
    graph = InfluenceGraph.of_odds(
        point,
        make_windows(limits, sample.m),
        forward=make_forward(limits, sample.m),
        swing=swing_of(limits),
        confidence=CONFIDENCE,
        claims=(words,),
    )
    reason = "" if failure is None else f"{failure}. {_remedy(growth.worst)}"
    status: Literal["accepted", "rejected"] = "accepted" if failure is None else "rejected"
    return Grown(graph, status, reason, words, tuple(growth.path), growth.power())


def _not_grown(reason: str) -> Grown:
    return Grown(None, "untested", reason, "", (), "")


def _newest_first(sample: Sample, clock: tuple[Indices, int] | None) -> Newest:
    labels, phases = (np.zeros(sample.states.shape[0], dtype=np.intp), 1) if clock is None else clock
    return Newest(np.ascontiguousarray(sample.states[::-1]), sample.m, np.ascontiguousarray(labels[::-1]), phases)


@dataclass(frozen=True, eq=False)
class _Model:
    """What growing changes: the law, ticks of a block with a level of its own, by what effects may differ."""

    law: Law
    block: int = BLOCKS[0]
    changing: frozenset[str] = frozenset()


#: What an answer adds, in words, and how to make the model that has it.
_Answer = tuple[str, Callable[[], _Model]]


class _Growth:
    """A model that grows on the first part of the past."""

    def __init__(self, whole: Newest, labels: Sequence[str], hidden: int, progress: Progress) -> None:
        ticks = whole.states.shape[0]
        cut = round(ticks * GROWING)
        self.whole, self.labels, self.progress = whole, labels, progress
        self.first = whole.part(ticks - cut, ticks)
        self.later = whole.part(0, ticks - cut - min(GAP, ticks // 20))
        self.failure: str | None = None
        self.worst: Finding | None = None
        self.statistics: Comparison
        self.path: list[str] = []
        self.seed = list(sha256(whole.states.tobytes()).digest())
        self.hidden = hidden
        self.model = _Model(first_law(whole, own_parents(whole.states.shape[1])))

    def run(self) -> None:
        """Add what tests name until none rejects, or nothing helps."""
        start = "every sequence follows its own next state"
        if self.hidden:
            start = f"{start}, in {self.hidden} hidden environments"
            self.model = self._in_environments(self.hidden)
        self.path.append(start)
        self._measure(self.model)
        answers = self._answers()
        for number in range(ROUNDS):
            self.progress("growing", number, ROUNDS)
            if self.statistics.chance > GROW_CHANCE:
                return
            words, make = next(answers, ("", None))
            if make is None:
                break
            model = self.model
            statistics = self.statistics
            self._measure(make())
            if self.statistics.excess < statistics.excess:
                answers = self._answers()
            else:
                self.model = model
                self.statistics = statistics
                words += ", which did not help"
            self.path.append(words)
        if self.statistics.chance <= CERTAIN:
            self.worst = self.statistics.worst()
            self.failure = f"{_describe(self.worst, self.labels)} (z = {abs(self.worst.z):.1f})"

    def judge(self, law: Law) -> Comparison:
        """The statistics on the later part, which is opened here, once."""
        return self._compare(replace(self.model, law=law), self.later, SERIES)

    def _measure(self, model: _Model) -> None:
        """Take a model, fitted, and its statistics."""
        law, _ = fit_law(model.law, self.first, _ITERATIONS)
        self.model = replace(model, law=law)
        self.statistics = self._compare(self.model, self.first, GROWING_SERIES)

    def _compare(self, model: _Model, data: Newest, series: int) -> Comparison:
        """The statistics of readings beside those of simulated ones, which are the same for the same law."""
        law = model.law
        seen = run_tests(Reading(law, data), model.block, model.changing)
        simulated: list[list[Group]] = []
        for states in law.simulate(data, series, np.random.default_rng(self.seed)):
            simulated.append(run_tests(Reading(law, data.showing(states)), model.block, model.changing))
            self.progress("simulated series", len(simulated), series)
        return compare(seen, simulated)

    # ---- answers to tests ------------------------------------------------------------------------------------------

    def _answers(self) -> Iterator[_Answer]:
        """Answers to the tests that reject, the most surprising first."""
        found = self.statistics.above(NAMED)
        tried = set()
        for test in dict.fromkeys(one.test for one in found):
            named = [one for one in found if one.test == test]
            for words, make in self._answers_to(test, named):
                if words not in tried:
                    tried.add(words)
                    yield f"{words}: {_describe(named[0], self.labels)}", make

    def _answers_to(self, test: str, found: Sequence[Finding]) -> Iterator[_Answer]:
        """What may be added for a test, the likeliest first."""
        model = self.model
        if test in _STRETCHES:
            changing = model.changing | {test}
            yield f"limits in every {_STRETCHES[test]}", lambda: replace(model, changing=changing)
            return
        common = not found[0].who
        if common:
            yield from self._more_environments()
        if test in {"level", "drift"} and model.block > BLOCKS[-1]:
            block = BLOCKS[BLOCKS.index(model.block) + 1]
            yield f"levels of {block} ticks are their own", lambda: replace(model, block=block)
        yield from self._more_edges(self._named_edges(test, found))
        if not common:
            yield from self._more_environments()

    def _more_environments(self) -> Iterator[_Answer]:
        """More hidden environments, if there are some."""
        count = self.model.law.environments
        more = min(count + max(1, count // 2), ENVIRONMENTS)
        if self.hidden and more > count:
            yield f"{more} hidden environments", lambda: self._in_environments(more)

    def _in_environments(self, count: int) -> _Model:
        """The model with so many hidden environments."""
        random = np.random.default_rng([count, 1])
        return replace(self.model, law=hidden_law(self.first, self.model.law.parents, count, STARTS, random))

    def _more_edges(self, edges: Sequence[tuple[int, tuple[int, int]]]) -> Iterator[_Answer]:
        """Edges that there is room for."""
        model = self.model
        parents = [list(own) for own in model.law.parents]
        added = []
        for j, edge in edges:
            room = self.whole.m ** (len(parents[j]) + 1) <= CONTEXTS and len(parents[j]) < PARENTS
            if edge not in parents[j] and edge[1] <= LONGEST_MEMORY and room:
                parents[j].append(edge)
                added.append((j, edge))
        if added:
            law = model.law.with_parents(tuple(map(tuple, parents)))
            yield _edges_in_words(added, self.labels), lambda: replace(model, law=law)

    def _named_edges(self, test: str, found: Sequence[Finding]) -> list[tuple[int, tuple[int, int]]]:
        """(Sequence, (whom it also follows, lag)) that a test asks for."""
        parents = self.model.law.parents
        if test in {"order", "level"}:
            named = sorted({one.who[0] for one in found if one.who}) or range(len(parents))
            return [(j, (j, 1 + max(lag for i, lag in parents[j] if i == j))) for j in named]
        if test not in {"others", "together"}:
            return []
        pairs = [one for one in found if len(one.who) == 2]
        if len(pairs) > 2 * len(parents):  # not an edge here and there
            return []
        return [(one.who[0], (one.who[1], int(test == "others"))) for one in pairs]

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


# ---- sequences that were not tested ----------------------------------------------------------------------------------


def _limit_others(limits: ClassLimits, law: Law, growth: _Growth, whole: Newest, chosen: Indices) -> ClassLimits:
    """The limits of all sequences, of which some were tested: the others remember what each of these does.

    The environments are those that the tested ones show. The allowance for slow levels is the largest of theirs.
    """
    s, m = whole.states.shape[1], whole.m
    depth = min(sum(i == j for i, _ in own) for j, own in enumerate(law.parents))
    weights, _ = Reading(law, growth.whole).smoothed()
    odds, point = np.zeros((2, s, law.places))
    chance = (1.0 - CONFIDENCE) / 4.0 / -(-s // _CHUNK)
    parents = [tuple((j, lag) for lag in range(1, depth + 1)) for j in range(s)]
    for start in range(0, s, _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, s))
        own = tuple(tuple((n, lag) for lag in range(1, depth + 1)) for n in range(rows.size))
        part = whole.of(rows)
        fitted = first_law(part, own, law.environments)
        fitted, information = fitted.climb(Reading(fitted, part).counts(weights), 50)
        odds[rows, :depth], point[rows, :depth] = limit_effects(fitted, information, chance, limits.factor)
    for n, j in enumerate(chosen.tolist()):
        parents[j] = tuple((int(chosen[i]), lag) for i, lag in law.parents[n])
    odds[chosen], point[chosen] = limits.odds, limits.point
    swing = np.broadcast_to(limits.swing.max(axis=0), (s, m)).copy()
    swing[chosen] = limits.swing
    return replace(limits, parents=tuple(parents), odds=odds, point=point, swing=swing)


# ---- in words --------------------------------------------------------------------------------------------------------

_STRETCHES = {"environment": "environment", "clock": "phase of the clock", "block": "block"}


def _edges_in_words(edges: Sequence[tuple[int, tuple[int, int]]], labels: Sequence[str]) -> str:
    words = []
    for j, (i, lag) in edges[:4]:
        if i == j:
            words.append(f"{labels[j]} also on the one {'before' if lag == 2 else f'{lag} ticks before'}")
        else:
            words.append(f"{labels[j]} also on {labels[i]}{' in the same tick' if lag == 0 else ''}")
    more = f" and {len(edges) - 4} more" if len(edges) > 4 else ""
    return ", ".join(words) + more


def _assumes(limits: ClassLimits, law: Law, labels: Sequence[str]) -> str:
    """What the class assumes, in one sentence."""
    parents = limits.parents
    common = min(sum(i == j for i, _ in own) for j, own in enumerate(parents))
    extra = [(j, edge) for j, own in enumerate(parents) for edge in own[common:]]
    ticks = "own last tick" if common == 1 else f"own last {common} ticks"
    given = f" given {law.environments} hidden environments" if law.environments > 1 else ""
    clock = " and the clock" if law.phases > 1 and given else " given the clock" if law.phases > 1 else ""
    words = [f"every sequence depends on its {ticks}{given}{clock}"]
    if extra:
        words.append(_edges_in_words(extra, labels))
    words.append(f"no influence above {np.tanh(float(limits.odds.max()) / 4.0):.2f}")
    words.append(f"slow levels add {float(limits.swing.max()):.2g}")
    return "; ".join(words)


def _describe(found: Finding | None, labels: Sequence[str]) -> str:
    if found is None:
        return ""
    who = f" ({', '.join(labels[j] for j in found.who)})" if found.who else " (all sequences together)"
    what = {
        "order": f"the state {found.detail} ticks further away adds to what the model knows",
        "level": f"the mean of {found.detail} ticks adds to what the model knows",
        "others": "other sequences add to what the model knows",
        "environment": "influences differ between environments",
        "clock": "influences differ with the clock",
        "block": "influences change over time",
        "together": "sequences move together within a tick or in a row",
        "drift": "levels drift within a block",
        "calibration": "probabilities are not as often right as they say",
    }[found.test]
    return what + who


def _remedy(found: Finding | None) -> str:
    test = "" if found is None else found.test
    if test in {"together", "calibration", "others"}:
        return "Fit with environment='hidden' (with more environments if it has some), or publish under plain numbers"
    if test in {"environment", "clock", "block", "drift", "level"}:
        return "Fit on a shorter, recent stretch or with environment='hidden', or publish under plain numbers"
    return "Use a longer step or finer states, or publish under plain numbers (event, window)"
