"""Mechanisms to audit: right ones, and wrong ones that an auditor must catch. Noise is drawn by numpy."""

from __future__ import annotations

import numpy as np

from csdp import CoupledChain

ONE = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
SURE = 1 - 1e-10  # so that a test is wrong about a right mechanism less than once in a billion runs


def noise(scale, shape, generator):
    """Laplace on a lattice of 2^-12: what numpy's own leaves in the low bits is not what these tests are about."""
    steps = generator.geometric(-np.expm1(-1 / (scale * 4096)), size=(2, *np.atleast_1d(shape)))
    return (steps[0] - steps[1]) / 4096


def mean_with(scale):
    """The mean of aged snapshots (..., s) plus noise of a scale."""

    def run(readings, generator):
        return readings.mean(axis=-1) + noise(scale, readings.shape[:-1], generator)

    return run


def nothing(readings, generator):
    """Tells nothing at all."""
    return generator.normal(size=len(readings))


def same_noise_twice(scale):
    """Two releases that share one draw of the noise."""

    def run(readings, generator):
        return readings.mean(axis=-1) + noise(scale, (len(readings), 1), generator)

    return run
