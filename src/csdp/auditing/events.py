"""Choosing the event that tells two presents apart best, and what its counts prove.

Scores turn an output into one number that is large where the first present is likelier. A quarter of the samples fits
them, a quarter chooses among them an event {score >= t} (or, for the second present, {score <= t}); the other half,
which no choice has seen, gives the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Cells into which one feature of the outputs is cut.
CELLS = 64
#: Thresholds that are tried for one score.
THRESHOLDS = 128
#: Features above which only the outputs themselves are looked at, not their differences.
MOST_FEATURES = 128


@dataclass(frozen=True, eq=False)
class Score:
    """A number for every output, and its words for an event above or below a threshold."""

    of: Callable[[Floats], Floats]
    words: Callable[[float, bool], str]


@dataclass(frozen=True, eq=False)
class Event:
    """A set of outputs; `forward` where it speaks for the first present."""

    score: Score
    threshold: float
    forward: bool

    def hits(self, outputs: Floats) -> npt.NDArray[np.bool_]:
        """Which outputs lie in the set."""
        values = self.score.of(outputs)
        return np.asarray(values >= self.threshold if self.forward else values <= self.threshold)

    def __str__(self) -> str:
        return self.score.words(self.threshold, self.forward)


def lower_bound(inside: Any, of: Any, against: Any, of_against: Any, *, alarm: float) -> Floats:
    """`ln p / p'` is at least this, except with probability `alarm`: Clopper and Pearson (1934), half of it each side.

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


def choose(first: Floats, second: Floats, scores: Sequence[Score], *, alarm: float) -> Event:
    """The event with the largest bound on these samples, among all scores, thresholds and both directions."""
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


# ---- scores that are learned --------------------------------------------------------------------------------------


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


def features(releases: int, outputs: int) -> list[Feature]:
    """Every output, and differences of neighbouring outputs and of successive releases: where noise is used twice, the
    difference has none.
    """
    cells = [(r, c) for r in range(releases) for c in range(outputs)]
    named = [Feature(_name(r, c, releases, outputs), (r, c)) for r, c in cells[:MOST_FEATURES]]
    if len(cells) > MOST_FEATURES:
        return named
    for r, c in cells:
        for before in ((r - 1, c), (r, c - 1)):
            if min(before) >= 0:
                words = f"{_name(r, c, releases, outputs)} minus {_name(*before, releases, outputs)}"
                named.append(Feature(words, (r, c), before))
    return named


def _name(release: int, output: int, releases: int, outputs: int) -> str:
    which = f"output {output + 1}" if outputs > 1 else "the output"
    return f"{which} of release {release + 1}" if releases > 1 else which


def learned(first: Floats, second: Floats) -> list[Score]:
    """Scores for every feature: itself, its negative, and its log ratio by histogram; and the sum of the log ratios of
    all outputs, as if they were independent.
    """
    found = features(first.shape[1], first.shape[2])
    histograms = [_Histogram.fit(feature, first, second) for feature in found]
    scores = [score for feature in found for score in _ends(feature)]
    scores += [Score(h.score, h.words) for h in histograms]
    plain = [h for h in histograms if h.feature.minus is None]
    if len(plain) > 1:
        scores.append(
            Score(
                lambda outputs: np.asarray(sum(h.score(outputs) for h in plain)),
                lambda t, forward: f"sum of the log ratios of all outputs {_side(forward)} {t:.4g}",
            )
        )
    return scores


def _ends(feature: Feature) -> tuple[Score, Score]:
    """Large values, and small ones."""

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
        # Half a sample in every cell: an empty one is no proof.
        ratios = np.log((counts[0] + 0.5) / (one.size + 1)) - np.log((counts[1] + 0.5) / (two.size + 1))
        return cls(feature, edges, ratios)

    def score(self, outputs: Floats) -> Floats:
        """The log ratio of the cell of each output."""
        return np.asarray(self.ratios[np.searchsorted(self.edges, self.feature.of(outputs), side="right")])

    def words(self, threshold: float, forward: bool) -> str:
        """The cells as intervals."""
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
