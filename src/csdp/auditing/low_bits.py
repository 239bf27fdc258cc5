"""The floating-point attack: which low bits can an output have?

Adding floating-point noise to an answer leaves gaps: which numbers can occur depends on the answer (Mironov, 2012). The
attack classes outputs by their exponent and the place of their lowest set bit, and tests whether a set of classes is
more likely under one answer than under another by a larger factor than the noise allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, Ints
from csdp.auditing.events import lower_bound
from csdp.bounds.result import as_text
from csdp.errors import InputError

Sampler = Callable[[Floats, np.random.Generator], npt.ArrayLike]


@dataclass(frozen=True)
class LowBits:
    """Result: with probability `confidence`, low bits leak at least `lower`; the noise allows `epsilon`."""

    lower: float
    epsilon: float
    confidence: float
    answers: tuple[float, float]
    classes: int
    hits: tuple[int, int]
    samples: int

    @property
    def violated(self) -> bool:
        """Whether the low bits are proven to leak more than the noise allows."""
        return self.lower > self.epsilon

    @property
    def verdict(self) -> str:
        """The result in words."""
        result = "violated" if self.violated else "no violation found"
        return f"{result}: low bits tell at least {max(self.lower, 0.0):.3g}, allowed {as_text(self.epsilon)}"

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

    Outputs are classed by (exponent, exponent of the lowest bit set). One half of the samples finds the set of classes
    that is likelier under one answer; on the other half its Clopper-Pearson bound must not exceed `epsilon`.

    Args:
        sampler: adds noise to an array of equal exact answers (n,), as `sampler(exact, generator)`.
        answers: the two exact answers a and b.
        epsilon: what noise of this scale allows between the two answers, `|a - b| / scale`.
        samples: outputs drawn for each answer.
        confidence: of the bound.
        seed: to repeat an attack.

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
    classes = [_classes(sampler(np.full(samples, answer), random), samples) for answer in answers]
    keys, numbers = np.unique(np.concatenate(classes), return_inverse=True)
    half, alarm = samples // 2, 1.0 - confidence
    sides = (numbers[:samples], numbers[samples:])
    first = [np.bincount(side[:half], minlength=keys.size) for side in sides]
    second = [np.bincount(side[half:], minlength=keys.size) for side in sides]
    chosen, against = _choose_classes(first, half, alarm)
    rest = samples - half
    hits = (int(second[against ^ 1][chosen].sum()), int(second[against][chosen].sum()))
    lower = float(lower_bound(hits[0], rest, hits[1], rest, alarm=alarm))
    return LowBits(
        lower, float(epsilon), confidence, (float(answers[0]), float(answers[1])), int(keys.size), hits, rest
    )


def _choose_classes(counts: list[Ints], count: int, alarm: float) -> tuple[Indices, int]:
    """The set of classes with the largest bound for one answer against the other, and the number of the other."""
    ratio = np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5)
    best, chosen = -np.inf, (np.zeros(0, dtype=np.intp), 1)
    for side, order in ((0, np.argsort(-ratio)), (1, np.argsort(ratio))):
        inside, against = np.cumsum(counts[side][order]), np.cumsum(counts[1 - side][order])
        bounds = lower_bound(inside, count, against, count, alarm=alarm)
        at = int(bounds.argmax())
        if bounds[at] > best:
            best, chosen = float(bounds[at]), (order[: at + 1], 1 - side)
    return chosen


def _classes(outputs: Any, count: int) -> Ints:
    """Exponent and exponent of the lowest bit set, as one number; the sign does not matter."""
    values = np.asarray(outputs, dtype=np.float64).ravel()
    if values.size != count or not np.isfinite(values).all():
        raise InputError(f"sampler: {values.size} outputs for {count} answers; one finite number for each expected")
    mantissa, exponent = np.frexp(np.abs(values))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1]
    return np.where(digits == 0, -(10**9), exponent.astype(np.int64) * 64 + lowest)
