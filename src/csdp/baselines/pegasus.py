"""PeGaSus (Chen, Machanavajjhala, Hay and Miklau 2017): perturb, group, smooth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from csdp.baselines.protocol import Floats, Ints, Trace, checked, one_target, positive, snapshots
from csdp.baselines.streams import Source, Stream, StreamRelease
from csdp.chain import Model
from csdp.errors import InputError
from csdp.queries import Query


@dataclass(frozen=True, eq=False)
class PegasusRelease(StreamRelease):
    """A calibrated PeGaSus: noise on every answer, groups of ticks that deviate little, the median of a group.

    Of its trace, `noisy` and `exact` are what the perturber makes and gets. Its own `scales`: of the perturber, of the
    grouper's threshold, of its deviations.
    """

    not_computed: ClassVar[str] = (
        "not computed: groups depend on hidden noise and on the whole past, and its guarantee says nothing about what "
        "correlations give away"
    )

    share: float

    def _run(self, states: Ints, source: Source) -> Trace:
        stream = self._stream
        answers = stream.answers(snapshots(states, self.chain))
        ticks = len(answers)
        perturb, group = self.epsilon * self.share, self.epsilon * (1.0 - self.share)
        noisy = answers + stream.noise(1.0 / perturb, answers.shape, source)
        thresholds = 5.0 * self.scales[0] + stream.noise(4.0 / group, (ticks,), source)
        wobble = stream.noise(8.0 / group, (ticks,), source)
        values = np.empty_like(answers)
        start, closed, threshold = 0, True, 0.0
        for t in range(ticks):
            if closed:
                start, closed, threshold = t, False, thresholds[t]
            elif deviation(answers[start : t + 1]) + wobble[t] >= threshold:
                start, closed = t, True  # the group ends before this tick, which is a closed group of its own
            values[t] = np.median(noisy[start : t + 1], axis=0)
        return Trace(values, noisy, answers, np.full(noisy.shape, self.scales[0]))

    def settings(self) -> dict[str, Any]:
        """The perturber's part of epsilon."""
        return {"share": self.share}


def deviation(answers: Floats) -> float:
    """Sum of absolute deviations from the mean; one record moves it by at most 2 Delta_f.

    >>> deviation(np.array([[1.0], [2.0], [6.0]]))
    6.0
    """
    return float(np.abs(answers - answers.mean(axis=0)).sum())


@dataclass(frozen=True)
class Pegasus:
    """PeGaSus with a deviation-based grouper and the median smoother; `share` of epsilon goes to the perturber."""

    share: float = 0.8

    name: ClassVar[str] = "pegasus"
    label: ClassVar[str] = "DP of one record"
    title: ClassVar[str] = "PeGaSus (Chen et al. 2017)"
    guarantee: ClassVar[str] = "epsilon-DP of one record of one tick (event level); no inferential guarantee"
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> PegasusRelease:
        """The stream mechanism for an epsilon, or with the perturber's noise at a scale."""
        one_target(epsilon, scale)
        query = checked(chain, query)
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise InputError(f"share: {self.share!r} given; the perturber's part of epsilon, between 0 and 1")
        width = Stream(chain, query).sensitivity
        level = positive("epsilon", epsilon) if scale is None else width / (self.share * positive("scale", scale))
        group = level * (1.0 - self.share)
        scales = (width / (level * self.share), 4.0 * width / group, 8.0 * width / group)
        return PegasusRelease(self.name, self.guarantee, chain, query, level, scales, self.share)
