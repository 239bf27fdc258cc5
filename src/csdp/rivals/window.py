"""w-event privacy (Kellaris et al. 2014): budget distribution (BD) and budget absorption (BA)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from csdp.chain import Model
from csdp.errors import InputError
from csdp.queries import Query
from csdp.rivals.protocol import Floats, Ints, Trace, checked, one_target, positive, snapshots, whole
from csdp.rivals.streams import Source, Stream, StreamRelease

Scheme = Literal["distribution", "absorption"]


@dataclass(frozen=True, eq=False)
class WindowRelease(StreamRelease):
    """A calibrated w-event stream: publish anew where the answer has moved enough, else repeat the last output.

    Of its trace, `noisy`, `exact` and `scales` are of the ticks that were published anew.
    """

    not_computed: ClassVar[str] = (
        "not computed: whether a tick is published depends on hidden noise and on earlier outputs, and its guarantee "
        "says nothing about what correlations give away"
    )

    rival: str
    guarantee: str
    chain: Model
    query: Query
    epsilon: float
    scales: tuple[float, ...]  #: of the dissimilarity, and of a publication with the whole window's budget
    window: int
    scheme: Scheme

    def _run(self, states: Ints, source: Source) -> Trace:
        answers = self._stream.answers(snapshots(states, self.chain))
        ticks, d = answers.shape
        # Mean absolute change per output: one record moves it by Delta_f / d; epsilon / 2w a tick.
        unlike = self._stream.noise(2.0 * self.window / self.epsilon, (ticks,), source) / d
        last = np.zeros(d)
        values, published = np.empty_like(answers), []
        budget = _Distribution if self.scheme == "distribution" else _Absorption
        spend = budget(self.epsilon, self.window)
        for t, answer in enumerate(answers):
            level = spend.offer(t)
            if level > 0:
                scale = self._stream.sensitivity / level
                if np.abs(answer - last).mean() + unlike[t] > scale:
                    last = answer + self._stream.noise(1.0 / level, (d,), source)
                    published.append((last, answer, np.full(d, scale)))
                    spend.take(t, level)
            values[t] = last
        noisy, exact, scales = (np.array([p[k] for p in published]).reshape(-1, d) for k in range(3))
        return Trace(values, noisy, exact, scales)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {
            "rival": self.rival,
            "guarantee": self.guarantee,
            "epsilon": self.epsilon,
            "scales": list(self.scales),
            "window": self.window,
            "scheme": self.scheme,
            "query": self.query.name,
            "chain_digest": self.chain.digest,
        }


class _Distribution:
    """BD: a publication gets half of what the last w - 1 ticks have left of epsilon / 2."""

    def __init__(self, epsilon: float, window: int) -> None:
        self._half, self._window = epsilon / 2.0, window
        self._spent: dict[int, float] = {}

    def offer(self, tick: int) -> float:
        """What a publication at this tick may spend."""
        self._spent = {t: e for t, e in self._spent.items() if t > tick - self._window}
        return max(0.0, (self._half - sum(self._spent.values())) / 2.0)

    def take(self, tick: int, level: float) -> None:
        """Spend it."""
        self._spent[tick] = level


class _Absorption:
    """BA: epsilon / 2w a tick; a publication absorbs what skipped ticks left, and the ticks after it give it back."""

    def __init__(self, epsilon: float, window: int) -> None:
        self._share, self._window = epsilon / (2.0 * window), window
        self._last, self._silent = -1, 0

    def offer(self, tick: int) -> float:
        """What a publication at this tick may spend; 0 where the tick pays back."""
        if tick - self._last <= self._silent and self._last >= 0:
            return 0.0
        absorbed = min(tick - (self._last + self._silent), self._window)
        return self._share * absorbed

    def take(self, tick: int, level: float) -> None:
        """Spend it, and stay silent for as many further ticks as were absorbed."""
        self._last, self._silent = tick, round(level / self._share) - 1


def budgets_spent(scheme: Scheme, *, epsilon: float, window: int, ticks: int, publish: Callable[[int], bool]) -> Floats:
    """What every tick spends on publication if `publish(tick)` says where the answer moved: for study of the rule.

    >>> budgets_spent("distribution", epsilon=2.0, window=3, ticks=4, publish=lambda t: True).tolist()
    [0.5, 0.25, 0.125, 0.3125]
    >>> budgets_spent("absorption", epsilon=6.0, window=3, ticks=6, publish=lambda t: t >= 2).tolist()
    [0.0, 0.0, 3.0, 0.0, 0.0, 1.0]
    """
    spend = (_Distribution if scheme == "distribution" else _Absorption)(epsilon, window)
    out = np.zeros(ticks)
    for t in range(ticks):
        level = spend.offer(t)
        if level > 0 and publish(t):
            spend.take(t, level)
            out[t] = level
    return out


def _calibrated(
    rival: WindowDistribution | WindowAbsorption,
    chain: Model,
    query: Query,
    scheme: Scheme,
    epsilon: float | None,
    scale: float | None,
) -> WindowRelease:
    one_target(epsilon, scale)
    if epsilon is None:
        raise InputError(f"{rival.name}: its noise changes from tick to tick, so it has no one scale; give epsilon=")
    query = checked(chain, query)
    level, window = positive("epsilon", epsilon), whole("window", rival.window)
    stream = Stream(chain, query)
    scales = (2.0 * window * stream.sensitivity / (level * stream.outputs), 2.0 * stream.sensitivity / level)
    if not all(map(math.isfinite, scales)):
        raise InputError(f"epsilon: {level:g} given; the noise would be infinite")
    return WindowRelease(rival.name, rival.guarantee, chain, query, level, scales, window, scheme)


_WORDS = "epsilon-DP of all records of any w consecutive ticks (w-event); no inferential guarantee"


@dataclass(frozen=True)
class WindowDistribution:
    """w-event privacy by budget distribution."""

    window: int = 10

    name: ClassVar[str] = "w-event-bd"
    label: ClassVar[str] = "w-event DP"
    title: ClassVar[str] = "w-event, budget distribution (Kellaris et al. 2014)"
    guarantee: ClassVar[str] = _WORDS
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> WindowRelease:
        """The stream mechanism for an epsilon per window."""
        return _calibrated(self, chain, query, "distribution", epsilon, scale)


@dataclass(frozen=True)
class WindowAbsorption:
    """w-event privacy by budget absorption."""

    window: int = 10

    name: ClassVar[str] = "w-event-ba"
    label: ClassVar[str] = "w-event DP"
    title: ClassVar[str] = "w-event, budget absorption (Kellaris et al. 2014)"
    guarantee: ClassVar[str] = _WORDS
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> WindowRelease:
        """The stream mechanism for an epsilon per window."""
        return _calibrated(self, chain, query, "absorption", epsilon, scale)
