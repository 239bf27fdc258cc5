"""Laws of snapshots as arrays: products, margins, kernels read in the other direction of time."""

from __future__ import annotations

from typing import Any

import numpy as np

from csdp.arrays import Floats


def sort_eigenvalues(values: Any) -> tuple[complex, ...]:
    """Eigenvalues by modulus, then by real and imaginary part, the largest first."""
    return tuple(complex(v) for v in sorted(values, key=lambda v: (-abs(v), -v.real, -v.imag)))


def reverse_kernel(kernel: Floats, law: Floats) -> Floats:
    """The kernel of a stationary chain in the other direction of time; snapshots that never occur lead to the law."""
    joint = (kernel * law[:, None]).T
    total = joint.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, joint / total, law[None, :])


def product_law(margins: Floats) -> Floats:
    """Joint law of independent sequences."""
    joint = np.ones(1)
    for row in margins:
        joint = np.multiply.outer(joint, row).ravel()
    return joint


def margins(joint: Floats) -> Floats:
    """Law of every sequence (s, m) under a joint law with one axis for each."""
    axes = range(joint.ndim)
    return np.array([joint.sum(axis=tuple(a for a in axes if a != i)) for i in axes])
