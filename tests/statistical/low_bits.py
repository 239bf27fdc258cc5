"""The floating-point attack: which numbers a sampler can reach depends on the answer (Mironov 2012).

Floating-point noise leaves gaps. The attack chooses among classes of outputs by their low bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.audit.black_box import lower_bound
from csdp.numbers import Floats, Indices, Ints

#: How often a sampler that is as it should be would fail, with fresh randomness.
ALARM = 1e-9

Sampler = Callable[[Floats, np.random.Generator], npt.ArrayLike]


def low_bits(
    sampler: Sampler,
    *,
    answers: tuple[float, float] = (0.0, 1.0),
    samples: int = 200_000,
    seed: int,
) -> float:
    """How much the low bits of outputs leak at least: with noise as it should be not above `|a - b| / scale`.

    Outputs are classed by (exponent, exponent of the lowest bit set). One half of the samples finds the set of classes
    that is likelier under one answer; on the other half its Clopper-Pearson bound is taken.

    Args:
        sampler: adds noise to an array of equal exact answers (n,), as `sampler(exact, generator)`.
        answers: the two exact answers a and b.
        samples: outputs drawn for each answer.
        seed: to repeat an attack.

    Reference: Mironov, "On significance of the least significant bits for differential privacy" (2012).
    """
    random = np.random.default_rng(seed)
    classes = [_classes(sampler(np.full(samples, answer), random), samples) for answer in answers]
    keys, numbers = np.unique(np.concatenate(classes), return_inverse=True)
    half = samples // 2
    sides = (numbers[:samples], numbers[samples:])
    first = [np.bincount(side[:half], minlength=keys.size) for side in sides]
    second = [np.bincount(side[half:], minlength=keys.size) for side in sides]
    chosen, against = _choose_classes(first, half)
    rest = samples - half
    hits = (int(second[against ^ 1][chosen].sum()), int(second[against][chosen].sum()))
    return float(lower_bound(hits[0], rest, hits[1], rest, alarm=ALARM))


def _choose_classes(counts: list[Ints], count: int) -> tuple[Indices, int]:
    """The set of classes with the largest bound for one answer against the other, and the number of the other."""
    ratio = np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5)
    best, chosen = -np.inf, (np.zeros(0, dtype=np.intp), 1)
    for side, order in ((0, np.argsort(-ratio)), (1, np.argsort(ratio))):
        inside, against = np.cumsum(counts[side][order]), np.cumsum(counts[1 - side][order])
        bounds = lower_bound(inside, count, against, count, alarm=ALARM)
        at = int(bounds.argmax())
        if bounds[at] > best:
            best, chosen = float(bounds[at]), (order[: at + 1], 1 - side)
    return chosen


def _classes(outputs: Any, count: int) -> Ints:
    """Exponent and exponent of the lowest bit set, as one number; the sign does not matter."""
    values = np.asarray(outputs, dtype=np.float64).ravel()
    assert values.size == count
    assert np.isfinite(values).all()
    mantissa, exponent = np.frexp(np.abs(values))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1]
    return np.where(digits == 0, -(10**9), exponent.astype(np.int64) * 64 + lowest)
