"""w-event privacy (Kellaris et al. 2014): budget distribution (BD) and budget absorption (BA)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from csdp.baselines.protocol import Floats, Ints, Trace, checked, one_target, positive, snapshots, whole
from csdp.baselines.streams import Source, Stream, StreamRelease
from csdp.chain import Model
from csdp.errors import InputError
from csdp.queries import Query

Scheme = Literal["distribution", "absorption"]


@dataclass(frozen=True, eq=False)
class WindowRelease(StreamRelease):
    """A calibrated w-event stream: publish anew where the answer has moved enough, else repeat the last output.

    Of its trace, `noisy`, `exact` and `scales` are of the ticks that were published anew. Its own `scales`: that of the
    dissimilarity, and that of a publication with the whole window's budget.
    """

    not_computed: ClassVar[str] = (
        "not computed: whether a tick is published depends on hidden noise and on earlier outputs, and its guarantee "
        "says nothing about what correlations give away"
    )

    window: int
    scheme: Scheme

    def _run(self, states: Ints, source: Source) -> Trace:
        answers = self._stream.answers(snapshots(states, self.chain))
        ticks, d = answers.shape
        # Mean absolute change per output: one record moves it by Delta_f / d; epsilon / 2w a tick.
        unlike = self._stream.noise(2.0 * self.window / self.epsilon, (ticks,), source) / d
        last = np.zeros(d)
        values, published = np.empty_like(answers), []
        spend = _BUDGETS[self.scheme](self.epsilon, self.window)
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

    def settings(self) -> dict[str, Any]:
        """The window, and how its budget is shared out."""
        return {"window": self.window, "scheme": self.scheme}

    @property
    def protected_ticks(self) -> int:
        """The window."""
        return self.window


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


_BUDGETS: dict[Scheme, type[_Distribution | _Absorption]] = {"distribution": _Distribution, "absorption": _Absorption}


def budgets_spent(scheme: Scheme, *, epsilon: float, window: int, ticks: int, publish: Callable[[int], bool]) -> Floats:
    """What every tick spends on publication if `publish(tick)` says where the answer moved: for study of the rule.

    >>> budgets_spent("distribution", epsilon=2.0, window=3, ticks=4, publish=lambda t: True).tolist()
    [0.5, 0.25, 0.125, 0.3125]
    >>> budgets_spent("absorption", epsilon=6.0, window=3, ticks=6, publish=lambda t: t >= 2).tolist()
    [0.0, 0.0, 3.0, 0.0, 0.0, 1.0]
    """
    spend = _BUDGETS[scheme](epsilon, window)
    out = np.zeros(ticks)
    for t in range(ticks):
        level = spend.offer(t)
        if level > 0 and publish(t):
            spend.take(t, level)
            out[t] = level
    return out


@dataclass(frozen=True)
class WindowBaseline:
    """Shared by both: w-event privacy, calibrated to an epsilon for every window."""

    window: int = 10

    name: ClassVar[str]
    label: ClassVar[str] = "w-event DP"
    title: ClassVar[str]
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record in each of any w consecutive ticks (w-event); no inferential guarantee"
    )
    inferential: ClassVar[bool] = False
    scheme: ClassVar[Scheme]

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> WindowRelease:
        """The stream mechanism for an epsilon per window."""
        one_target(epsilon, scale)
        if epsilon is None:
            raise InputError(f"{self.name}: its noise changes from tick to tick, so it has no one scale; give epsilon=")
        query = checked(chain, query)
        level, window = positive("epsilon", epsilon), whole("window", self.window)
        stream = Stream(chain, query)
        scales = (2.0 * window * stream.sensitivity / (level * stream.outputs), 2.0 * stream.sensitivity / level)
        if not all(map(math.isfinite, scales)):
            raise InputError(f"epsilon: {level:g} given; the noise would be infinite. Give a larger one")
        return WindowRelease(self.name, self.guarantee, chain, query, level, scales, window, self.scheme)


@dataclass(frozen=True)
class WindowDistribution(WindowBaseline):
    """w-event privacy by budget distribution."""

    name: ClassVar[str] = "w-event-bd"
    title: ClassVar[str] = "w-event, budget distribution (Kellaris et al. 2014)"
    scheme: ClassVar[Scheme] = "distribution"


@dataclass(frozen=True)
class WindowAbsorption(WindowBaseline):
    """w-event privacy by budget absorption."""

    name: ClassVar[str] = "w-event-ba"
    title: ClassVar[str] = "w-event, budget absorption (Kellaris et al. 2014)"
    scheme: ClassVar[Scheme] = "absorption"
