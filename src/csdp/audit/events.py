"""Choose the event that best distinguishes two presents, and bound the leakage from its counts.

A score maps an output to a number that is large where the first present is likelier. A quarter of the samples fits the
scores, a quarter chooses an event {score >= t} (or, for the second present, {score <= t}); the other half, independent
of the choice, gives the bound. Scores are learned from samples; where the mechanism is declared, its likelihood ratio
is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.aging import AgedLaw, index_parts
from csdp.arrays import Bools, Floats
from csdp.chain import Model
from csdp.errors import CsdpError

if TYPE_CHECKING:
    from csdp.plan import Plan

#: Cells of the histogram of one feature of the outputs.
CELLS = 64
#: Thresholds that are tried for one score.
THRESHOLDS = 128
#: Joint states up to which the likelihood is computed.
LIKELIHOOD_STATES = 256
#: Entries of an array of densities in memory.
_BLOCK = 4_000_000
#: Number of outputs above which only the outputs themselves are features, not their differences.
MOST_FEATURES = 128


@dataclass(frozen=True, eq=False)
class Score:
    """A number for every output, and the text for an event above or below a threshold."""

    of: Callable[[Floats], Floats]
    describe: Callable[[float, bool], str]


@dataclass(frozen=True, eq=False)
class Event:
    """A set of outputs; `forward` where it is likelier under the first present."""

    score: Score
    threshold: float
    forward: bool

    def hits(self, outputs: Floats) -> Bools:
        """Which outputs lie in the set."""
        values = self.score.of(outputs)
        return np.asarray(values >= self.threshold if self.forward else values <= self.threshold)

    def __str__(self) -> str:
        return self.score.describe(self.threshold, self.forward)


def lower_bound(inside: Any, of: Any, against: Any, of_against: Any, *, alarm: float) -> Floats:
    """Lower bound of `ln p / p'` that fails with probability at most `alarm` (Clopper and Pearson 1934).

    `ln( Beta^-1(a/2; k, n-k+1) / Beta^-1(1-a/2; k'+1, n'-k') )`; -inf where no sample is inside.

    >>> round(float(lower_bound(900, 1000, 450, 1000, alarm=0.05)), 4)
    0.6028
    """
    from scipy.stats import beta

    k1, n1 = np.asarray(inside, dtype=np.float64), np.asarray(of, dtype=np.float64)
    k0, n0 = np.asarray(against, dtype=np.float64), np.asarray(of_against, dtype=np.float64)
    with np.errstate(divide="ignore"):
        low = np.where(k1 > 0, beta.ppf(alarm / 2, np.maximum(k1, 1), n1 - k1 + 1), 0.0)
        high = np.where(k0 < n0, beta.isf(alarm / 2, k0 + 1, np.maximum(n0 - k0, 1)), 1.0)
        return np.asarray(np.log(low) - np.log(high))


def choose_event(first: Floats, second: Floats, scores: Sequence[Score], *, alarm: float) -> Event:
    """Return the event with the largest bound on these samples, over all scores, thresholds and both directions."""
    best, chosen = -np.inf, Event(scores[0], np.inf, True)
    for score in scores:
        of_first, of_second = np.sort(score.of(first)), np.sort(score.of(second))
        pooled = np.concatenate([of_first, of_second])
        cuts = np.unique(np.quantile(pooled, np.linspace(0, 1, THRESHOLDS), method="nearest"))
        for forward in (True, False):
            if forward:
                k1, k0 = (v.size - np.searchsorted(v, cuts, side="left") for v in (of_first, of_second))
                bounds = lower_bound(k1, first.shape[0], k0, second.shape[0], alarm=alarm)
            else:
                k1, k0 = (np.searchsorted(v, cuts, side="right") for v in (of_first, of_second))
                bounds = lower_bound(k0, second.shape[0], k1, first.shape[0], alarm=alarm)
            at = int(bounds.argmax())
            if bounds[at] > best:
                best, chosen = float(bounds[at]), Event(score, float(cuts[at]), forward)
    return chosen


# ---- scores learned from samples -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feature:
    """One number of an output: a coordinate of one release, or the difference of two."""

    name: str
    plus: tuple[int, int]
    minus: tuple[int, int] | None = None

    def of(self, outputs: Floats) -> Floats:
        """The number, for outputs (n, releases, d)."""
        column = outputs[:, self.plus[0], self.plus[1]]
        return column if self.minus is None else column - outputs[:, self.minus[0], self.minus[1]]


def output_features(releases: int, outputs: int) -> list[Feature]:
    """Return every output and, unless they are many, differences of neighbouring outputs and successive releases.

    Where noise is used twice, the difference has none.
    """
    cells = [(r, c) for r in range(releases) for c in range(outputs)]
    named = [Feature(_name(r, c, releases, outputs), (r, c)) for r, c in cells[:MOST_FEATURES]]
    if len(cells) > MOST_FEATURES:
        return named
    for r, c in cells:
        for before in ((r - 1, c), (r, c - 1)):
            if min(before) >= 0:
                name = f"{_name(r, c, releases, outputs)} minus {_name(*before, releases, outputs)}"
                named.append(Feature(name, (r, c), before))
    return named


def _name(release: int, output: int, releases: int, outputs: int) -> str:
    which = f"output {output + 1}" if outputs > 1 else "the output"
    return f"{which} of release {release + 1}" if releases > 1 else which


def learned_scores(first: Floats, second: Floats) -> list[Score]:
    """Return scores for every feature: itself, its negative, and its log ratio by histogram.

    One more is the sum of the log ratios of all outputs, as if they were independent.
    """
    features = output_features(first.shape[1], first.shape[2])
    histograms = [_Histogram.fit(feature, first, second) for feature in features]
    scores = [score for feature in features for score in _end_scores(feature)]
    scores += [Score(h.score, h.describe) for h in histograms]
    plain = [h for h in histograms if h.feature.minus is None]
    if len(plain) > 1:
        scores.append(
            Score(
                lambda outputs: np.asarray(sum(h.score(outputs) for h in plain)),
                lambda t, forward: f"sum of the log ratios of all outputs {_side(forward)} {t:.4g}",
            )
        )
    return scores


def _end_scores(feature: Feature) -> tuple[Score, Score]:
    """Scores of large values and of small values."""

    def small(outputs: Floats) -> Floats:
        return -feature.of(outputs)

    return (
        Score(feature.of, lambda t, forward: f"{feature.name} {_side(forward)} {t:.4g}"),
        Score(small, lambda t, forward: f"{feature.name} {_side(not forward)} {-t:.4g}"),
    )


def _side(forward: bool) -> str:
    return "at least" if forward else "at most"


@dataclass(frozen=True, eq=False)
class _Histogram:
    """The log ratio of two laws of one feature, cell by cell."""

    feature: Feature
    edges: Floats
    ratios: Floats

    @classmethod
    def fit(cls, feature: Feature, first: Floats, second: Floats) -> _Histogram:
        one, two = feature.of(first), feature.of(second)
        pooled = np.concatenate([one, two])
        values = np.unique(pooled)
        if values.size <= CELLS:
            edges = values[:-1] + np.diff(values) / 2
        else:
            edges = np.unique(np.quantile(pooled, np.linspace(0, 1, CELLS + 1)[1:-1], method="nearest"))
        counts = [np.bincount(np.searchsorted(edges, v, side="right"), minlength=edges.size + 1) for v in (one, two)]
        # Half a sample in every cell, so that an empty cell does not give an infinite ratio.
        ratios = np.log((counts[0] + 0.5) / (one.size + 1)) - np.log((counts[1] + 0.5) / (two.size + 1))
        return cls(feature, edges, ratios)

    def score(self, outputs: Floats) -> Floats:
        """The log ratio of the cell of each output."""
        return np.asarray(self.ratios[np.searchsorted(self.edges, self.feature.of(outputs), side="right")])

    def describe(self, threshold: float, forward: bool) -> str:
        """Return the cells above (or below) a threshold as intervals."""
        inside = self.ratios >= threshold if forward else self.ratios <= threshold
        ends = np.concatenate([[-np.inf], self.edges, [np.inf]])
        moves = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(int)))
        pairs = zip(moves[::2], moves[1::2], strict=True)
        spans = list(dict.fromkeys(_interval(float(ends[a]), float(ends[b])) for a, b in pairs))
        more = f" or {len(spans) - 3} more intervals" if len(spans) > 3 else ""
        return f"{self.feature.name} {' or '.join(spans[:3])}{more}"


def _interval(low: float, high: float) -> str:
    if np.isinf(low) and np.isinf(high):
        return "anything"
    if np.isinf(low):
        return f"below {high:.4g}"
    if np.isinf(high):
        return f"from {low:.4g} up"
    return f"about {low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"from {low:.4g} to {high:.4g}"


# ---- the likelihood of the declared mechanism ------------------------------------------------------------------------


def likelihood_score(
    plan: Plan, model: Model, presents: Sequence[Sequence[int]], *, releases: int, outputs: int
) -> Score | None:
    """Return the log likelihood ratio of the declared mechanism as a score; None where it is not computed.

    It covers one release at any ages, or successive releases at one common age, of a query plus noise of scale
    `Delta_f / epsilon_c`. A mechanism that does something else can be audited with it too: the score only chooses an
    event.
    """
    if model.size > LIKELIHOOD_STATES or (releases > 1 and len(set(plan.ages)) > 1):
        return None
    states = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
    answers = plan.query.evaluate(states, model.value_table)
    if answers.shape[1] != outputs:
        return None
    rate = plan.epsilon_c / plan.sensitivity
    try:
        if releases == 1:
            ratio = _OneReleaseLikelihood(plan, model, presents, answers, rate).ratio
        else:
            ratio = _HistoryLikelihood(plan, model, presents, answers, rate, releases).ratio
    except CsdpError:  # for example no unique stationary law: the learned scores remain
        return None

    def blockwise(samples: Floats) -> Floats:
        rows = max(1, _BLOCK // model.size)
        return np.concatenate([ratio(samples[at : at + rows]) for at in range(0, samples.shape[0], rows)])

    def describe(threshold: float, forward: bool) -> str:
        return f"log likelihood ratio of the declared mechanism {_side(forward)} {threshold:.4g}"

    return Score(blockwise, describe)


def present_weights(law: Floats, present: Sequence[int], model: Model) -> Floats:
    """Return `Pr(present snapshot | known states) / Pr(present snapshot)`, which makes joint laws conditional."""
    states = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
    known = np.asarray(present)
    fits = ((known < 0) | (states == known)).all(axis=1) & (law > 0)
    return np.asarray(fits / law[fits].sum())


def _output_density(outputs: Floats, answers: Floats, rate: float) -> Floats:
    """Density (n, answers) of every output, up to a factor for each output."""
    far = np.zeros((outputs.shape[0], answers.shape[0]))
    for column in range(answers.shape[1]):
        far += np.abs(outputs[:, column, None] - answers[None, :, column])
    return np.asarray(np.exp(-rate * (far - far.min(axis=1, keepdims=True))))


class _OneReleaseLikelihood:
    """Likelihood ratio of one release, from the aged law."""

    def __init__(
        self, plan: Plan, model: Model, presents: Sequence[Sequence[int]], answers: Floats, rate: float
    ) -> None:
        aged = AgedLaw(model, index_parts(model.sequences, model.states), ages=plan.ages).mass
        self._laws = [present_weights(aged.law, present, model) @ aged.measure for present in presents]
        self._answers, self._rate = answers, rate

    def ratio(self, outputs: Floats) -> Floats:
        weights = _output_density(outputs[:, 0], self._answers, self._rate)
        return _log_ratio(weights @ self._laws[0], weights @ self._laws[1])


class _HistoryLikelihood:
    """Likelihood ratio of successive releases: forward over the slices they read, then on to the present."""

    def __init__(
        self,
        plan: Plan,
        model: Model,
        presents: Sequence[Sequence[int]],
        answers: Floats,
        rate: float,
        releases: int,
    ) -> None:
        self._model, self._age, self._answers, self._rate = model, plan.ages[0], answers, rate
        self._start = model.stationary()
        law = self._start[:, None]
        for _ in range(releases - 1 + self._age):
            law = model.step.push(law)
        self._conditions = [present_weights(law[:, 0], present, model) for present in presents]

    def ratio(self, outputs: Floats) -> Floats:
        measure = np.repeat(self._start[:, None], outputs.shape[0], axis=1)
        for release in range(outputs.shape[1]):
            if release:
                measure = self._model.step.push(measure)
            measure = measure * _output_density(outputs[:, release], self._answers, self._rate).T
            measure /= measure.sum(axis=0)
        for _ in range(self._age):
            measure = self._model.step.push(measure)
        return _log_ratio(self._conditions[0] @ measure, self._conditions[1] @ measure)


def _log_ratio(one: Floats, two: Floats) -> Floats:
    """`ln one - ln two`; 0 where neither present can produce the output."""
    neither = (one <= 0) & (two <= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(neither, 0.0, np.clip(np.log(one) - np.log(two), -1e6, 1e6))
    # Beyond the largest answer the ratio is constant; unrounded, its low bits would depend on those of the outputs and
    # could become an event. Low bits are the subject of tests/statistical/low_bits.py, not of this score.
    return np.asarray(np.round(ratio, 9))
