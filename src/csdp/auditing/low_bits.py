"""The floating-point attack: which low bits can an output have?

Adding floating-point noise to an answer leaves gaps: which numbers are reached at all depends on the answer (Mironov,
2012). The attack sorts outputs by their exponent and the place of their lowest bit that is set, and asks whether
such a class is far more likely under one answer than under another than the noise allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.auditing.events import lower_bound
from csdp.bounds.result import as_text
from csdp.errors import InputError

Floats = npt.NDArray[np.float64]
Sampler = Callable[[Floats, np.random.Generator], npt.ArrayLike]


@dataclass(frozen=True)
class LowBits:
    """What the low bits of a sampler give away: with probability `confidence`, at least `lower`, allowed `epsilon`."""

    lower: float
    epsilon: float
    confidence: float
    answers: tuple[float, float]
    classes: int
    hits: tuple[int, int]
    samples: int

    @property
    def violated(self) -> bool:
        """Whether the low bits are proven to tell more than the noise allows."""
        return self.lower > self.epsilon

    @property
    def verdict(self) -> str:
        """The result in words."""
        found = "violated: low bits tell at least" if self.violated else "no violation found: low bits tell at least"
        return f"{found} {max(self.lower, 0.0):.3g}, allowed {as_text(self.epsilon)}"

    def __repr__(self) -> str:
        return f"LowBits({self.verdict})"


def low_bits(
    sampler: Sampler,
    *,
    answers: tuple[float, float] = (0.0, 1.0),
    epsilon: float,
    samples: int = 200_000,
    confidence: float = 1 - 1e-9,
    seed: int | None = None,
) -> LowBits:
    """Attack a noise sampler through the low bits of its outputs.

    `sampler(exact, generator)` adds noise to an array of equal exact answers (n,). Outputs are classed by
    (exponent, exponent of the lowest bit set). One half of the samples finds the set of classes that is likelier under
    one answer; on the other half its Clopper-Pearson bound must stay at or below `epsilon`, what noise of this scale
    allows between the two answers: `|a - b| / scale`.

    Reference: Mironov, "On significance of the least significant bits for differential privacy" (2012).

    >>> low_bits(lambda exact, generator: exact + generator.laplace(size=exact.size), epsilon=1.0, seed=1).violated
    True
    >>> def on_a_lattice(exact, generator):  # geometric noise in steps of 1/1024
    ...     steps = generator.geometric(1 - np.exp(-1 / 1024), size=(2, exact.size))
    ...     return exact + (steps[0] - steps[1]) / 1024
    >>> low_bits(on_a_lattice, epsilon=1.0, seed=1).violated
    False
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < np.inf:
        raise InputError(f"epsilon: {epsilon!r} given; what the noise allows between the answers, positive and finite")
    if len(answers) != 2 or not np.isfinite(answers).all() or answers[0] == answers[1]:
        raise InputError(f"answers: {answers!r} given; two different numbers expected")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence: {confidence!r} given; a number from 0.5 to below 1")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 200:
        raise InputError(f"samples: {samples!r} given; a whole number, 200 or more")
    random = np.random.default_rng(seed)
    drawn = [_classes(sampler(np.full(samples, answer), random), samples) for answer in answers]
    keys, numbers = np.unique(np.concatenate(drawn), return_inverse=True)
    half, alarm = samples // 2, 1.0 - confidence
    sides = (numbers[:samples], numbers[samples:])
    seen = [np.bincount(side[:half], minlength=keys.size) for side in sides]
    kept = [np.bincount(side[half:], minlength=keys.size) for side in sides]
    chosen, against = _likelier(seen, half, alarm)
    rest = samples - half
    hits = (int(kept[against ^ 1][chosen].sum()), int(kept[against][chosen].sum()))
    lower = float(lower_bound(hits[0], rest, hits[1], rest, alarm=alarm))
    return LowBits(
        lower, float(epsilon), confidence, (float(answers[0]), float(answers[1])), int(keys.size), hits, rest
    )


def _likelier(seen: list[npt.NDArray[np.int64]], count: int, alarm: float) -> tuple[npt.NDArray[np.intp], int]:
    """The set of classes that speaks most for one answer, and the number of the answer it speaks against."""
    ratio = np.log(seen[0] + 0.5) - np.log(seen[1] + 0.5)
    best, chosen = -np.inf, (np.zeros(0, dtype=np.intp), 1)
    for side, order in ((0, np.argsort(-ratio)), (1, np.argsort(ratio))):
        inside, against = np.cumsum(seen[side][order]), np.cumsum(seen[1 - side][order])
        bounds = lower_bound(inside, count, against, count, alarm=alarm)
        at = int(bounds.argmax())
        if bounds[at] > best:
            best, chosen = float(bounds[at]), (order[: at + 1], 1 - side)
    return chosen


def _classes(outputs: Any, count: int) -> npt.NDArray[np.int64]:
    """Exponent and exponent of the lowest bit set, as one number; the sign does not matter."""
    values = np.asarray(outputs, dtype=np.float64).ravel()
    if values.size != count or not np.isfinite(values).all():
        raise InputError(f"sampler: {values.size} outputs for {count} answers; one finite number for each expected")
    mantissa, exponent = np.frexp(np.abs(values))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1]
    return np.where(digits == 0, -(10**9), exponent.astype(np.int64) * 64 + lowest)
