"""The Fourier perturbation algorithm (Rastogi and Nath 2010), on windows of a stream of answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from csdp.arrays import Floats
from csdp.baselines.protocol import check_inputs, check_one_target, check_whole
from csdp.baselines.strategies import StrategyRelease, calibrate_strategy
from csdp.baselines.streams import AnswerStream
from csdp.chain import Model
from csdp.errors import InputError
from csdp.queries import Query


def real_fourier(length: int, count: int) -> Floats:
    """Return the first `count` rows of the orthonormal real Fourier basis, slowest first.

    >>> (real_fourier(4, 4) @ real_fourier(4, 4).T).round(12).tolist() == np.eye(4).tolist()
    True
    """
    t = np.arange(length)
    rows = [np.full(length, 1.0 / math.sqrt(length))]
    for k in range(1, length // 2 + 1):
        if 2 * k == length:
            rows.append(np.where(t % 2 == 0, 1.0, -1.0) / math.sqrt(length))
        else:
            angle = 2.0 * math.pi * k * t / length
            rows += [math.sqrt(2.0 / length) * np.cos(angle), math.sqrt(2.0 / length) * np.sin(angle)]
    return np.array(rows[:count])


@dataclass(frozen=True)
class Fourier:
    """Publish k coefficients of the orthonormal real Fourier transform of a window, noise sqrt(k) Delta_2 / epsilon.

    `level`: "event" (a record of one tick changes) or "user" (a sequence's whole window changes).
    """

    window: int = 4
    coefficients: int = 2
    level: Literal["event", "user"] = "event"

    name: ClassVar[str] = "fourier"
    label: ClassVar[str] = "DP of one record in a window"
    title: ClassVar[str] = "Fourier perturbation (Rastogi and Nath 2010)"
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record of a window (event) or of one sequence's window (user); no inferential guarantee"
    )
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> StrategyRelease:
        """Return the mechanism with noise on the coefficients for an epsilon, or with noise of a scale."""
        check_one_target(epsilon, scale)
        query = check_inputs(chain, query)
        window, count = check_whole("window", self.window), check_whole("coefficients", self.coefficients)
        if count > window:
            raise InputError(f"coefficients: {count} given; a window of {window} ticks has {window}")
        if self.level not in {"event", "user"}:
            raise InputError(f"level: {self.level!r} given; 'event' or 'user'")
        stream = AnswerStream(chain, query)
        outputs = count * stream.outputs
        # Orthonormal rows keep l2; k d numbers of l2 norm Delta_2 have l1 norm at most sqrt(k d) Delta_2.
        unrounded = math.sqrt(outputs) * stream.sensitivity * (math.sqrt(window) if self.level == "user" else 1.0)
        return calibrate_strategy(
            self,
            stream,
            real_fourier(window, count),
            np.full(count, window - 1),
            unrounded=unrounded,
            epsilon=epsilon,
            scale=scale,
        )
