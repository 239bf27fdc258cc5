"""The noise has the law it claims: tests accept the true law and, with as many samples, reject a wrong one.

Seeds are fixed, so the tests are deterministic; ALARM is the false alarm rate each would have with fresh
randomness.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import exp, log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from csdp.errors import UnsafeRandomnessWarning
from csdp.noise import Randomness, geometric, two_sided_geometric, variance

ALARM = 1e-10
COUNT = 4_000_000
WRONG = (0.97, 1.03)
"""A scale 3 % too small or too large must be found out."""

SCALES = [0.3, 1.0, 7.3, 1000.0, 2.0**20, 1e9]


def sample(scale: float, seed: int, count: int = COUNT) -> NDArray[np.int64]:
    with pytest.warns(UnsafeRandomnessWarning):
        randomness = Randomness.unsafe_seed(seed)
    return two_sided_geometric(scale, count, randomness)


def at_least(k: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Pr(n >= k) of the two-sided geometric law."""
    q = exp(-1 / scale)
    return np.where(k > 0, np.exp(-np.abs(k) / scale) / (1 + q), 1 - np.exp(-(np.abs(k) + 1) / scale) / (1 + q))


def chi_square(noise: NDArray[np.int64], scale: float) -> float:
    """Return the p-value of the counts in cells an eighth of a scale wide, rare cells put together."""
    width = max(1, round(scale / 8))
    edges = np.arange(-80, 81) * width
    above = np.concatenate([[1.0], at_least(edges.astype(float), scale), [0.0]])
    expected = -np.diff(above) * noise.size
    observed = np.bincount(np.searchsorted(edges, noise, side="right"), minlength=edges.size + 1)
    rare = expected < 20
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    return float(stats.chi2.sf(statistic, expected.size - 1))


def tail_count(noise: NDArray[np.int64], scale: float) -> float:
    """Return the p-value of how often the noise is beyond the point passed with probability about 1e-3."""
    point = max(1, round(scale * log(1000)))
    p = 2 * float(at_least(np.array([float(point)]), scale)[0])
    hits = int((np.abs(noise) >= point).sum())
    return float(2 * min(stats.binom.cdf(hits, noise.size, p), stats.binom.sf(hits - 1, noise.size, p), 0.5))


def spread(noise: NDArray[np.int64], scale: float) -> float:
    """Return the p-value of the mean of squares, against the variance formula."""
    squares = noise.astype(float) ** 2
    z = (squares.mean() - variance(scale)) / (squares.std() / noise.size**0.5)
    return float(2 * stats.norm.sf(abs(z)))


@pytest.mark.parametrize("scale", SCALES)
def test_the_true_scale_is_accepted_and_three_percent_off_is_rejected(scale: float) -> None:
    """Three tests look at the same samples: the false alarm rate of all of them is at most 3 ALARM < 1e-9."""
    tests = (chi_square, tail_count, spread)
    noise = sample(scale, seed=11)
    for test in tests:
        assert test(noise, scale) > ALARM, test.__name__
    for factor in WRONG:
        if scale * factor > 1e9:  # no such scale is allowed
            continue
        noise = sample(scale * factor, seed=12)
        for test in tests:
            assert test(noise, scale) < ALARM, test.__name__


def balance(noise: NDArray[np.int64]) -> float:
    """Return the p-value of positive values being as frequent as negative ones."""
    positive, negative = int((noise > 0).sum()), int((noise < 0).sum())
    return float(stats.binomtest(positive, positive + negative).pvalue)


@pytest.mark.parametrize("scale", [0.3, 7.3, 100.0])
def test_both_sides_are_alike_and_a_fair_sign_would_be_found(scale: float) -> None:
    """The negative side is -1-G, so its sign has odds q, not 1."""
    noise = sample(scale, seed=13)
    assert balance(noise) > ALARM
    fair = np.random.default_rng(13).integers(-1, 1, noise.size)
    assert balance(noise ^ (noise >> 63) ^ fair) < ALARM


def test_what_lies_above_the_table_is_drawn_as_often_as_it_should() -> None:
    """At this scale one value in 163,000 passes the digits of the table, the most there can be."""
    scale = 1024 / 12
    noise = sample(scale, seed=14, count=40_000_000)
    assert geometric.threshold_table(Fraction(scale)).digits == 10
    counts = noise ^ (noise >> 63)
    beyond = int((counts >= 1024).sum())
    assert stats.poisson.sf(beyond - 1, noise.size * exp(-12)) > ALARM
    assert stats.poisson.cdf(beyond, noise.size * exp(-12)) > ALARM
    assert stats.poisson.cdf(0, noise.size * exp(-12)) < ALARM  # a sampler without the tail would be found


# ---------------------------------------------------------------- digits


def dependence(numbers: NDArray[np.int64], digits: int) -> float:
    """Return the smallest p-value, times their number, of all pairs of binary digits being independent."""
    columns = [(numbers >> i & 1).astype(bool) for i in range(digits)]
    p_values = []
    for a, b in combinations(columns, 2):
        p, r = a.mean(), b.mean()
        z = ((a & b).mean() - p * r) / (p * (1 - p) * r * (1 - r) / numbers.size) ** 0.5
        p_values.append(2 * stats.norm.sf(abs(z)))
    return float(min(p_values) * len(p_values))


@pytest.mark.parametrize("scale", [4.0, 1000.0])
def test_digits_are_independent_and_as_frequent_as_they_should(scale: float) -> None:
    noise = sample(scale, seed=15)
    geometric = noise ^ (noise >> 63)
    digits = int(2 * scale).bit_length()
    with_sign = geometric << 1 | (noise < 0)
    assert dependence(with_sign, digits + 1) > ALARM
    for i in range(digits):
        hits = int((geometric >> i & 1).sum())
        assert stats.binomtest(hits, noise.size, 1 / (1 + exp(2**i / scale))).pvalue > ALARM


def test_the_independence_test_finds_dependent_digits() -> None:
    """The digits of |n|, unlike those of G, are not independent: zero is too rare by half."""
    assert dependence(np.abs(sample(4.0, seed=15)), 4) < ALARM


def test_neighbouring_samples_are_uncorrelated() -> None:
    """Lanes of one word and words of one block share planes, but no bits."""
    noise = sample(1000.0, seed=16).astype(float)
    for lag in (1, 8, 16, 32, 64, 512, 64 * 512):
        z = float((noise[:-lag] * noise[lag:]).mean()) / variance(1000.0) * (noise.size - lag) ** 0.5
        assert 2 * stats.norm.sf(abs(z)) > ALARM


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 0.02])
def test_tiny_scales_give_zeros(scale: float) -> None:
    """At 0.02 a value differs from zero with probability 4e-22."""
    assert not sample(scale, seed=17).any()


def test_the_largest_scale_reaches_as_far_as_it_should() -> None:
    """The largest of N values lies near scale ln N, and its own law is known."""
    noise = sample(1e9, seed=18)
    largest = float(np.abs(noise).max())
    below = -COUNT * exp(-largest / 1e9)  # ln Pr(no value beyond)
    assert ALARM < exp(below) < 1 - ALARM
    assert np.unique(noise & 0xFF).size == 256  # no digit is stuck
