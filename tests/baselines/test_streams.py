"""Stream baselines: Fourier by enumeration, the budgets of w-event privacy, groups of PeGaSus, and simulated errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

import csdp
import oracle
from csdp import baselines
from csdp.baselines.streams import budgets_spent
from csdp.errors import InputError
from csdp.noise import Randomness

from baselines.chains import PAPER, SKEWED, SYMMETRIC  # isort: skip


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED], ids=["symmetric", "skewed"])
def test_fourier_leakage_by_enumeration(chain, count):
    """All paths, and a fine grid of outputs: never above the corners, and met by them."""
    mechanism = baselines.Fourier(window=3, coefficients=count).calibrate(chain, csdp.Mean(), epsilon=1.2)
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    basis = np.array([[1.0, 1.0, 1.0] / np.sqrt(3), np.sqrt(2 / 3) * np.cos(2 * np.pi * np.arange(3) / 3)])[:count]
    points = [np.linspace(-2, 3, 101)] * count
    outputs = np.array(list(itertools.product(*points)))
    rows = {0: [], 1: []}
    for path in itertools.product((0, 1), repeat=3):
        mass = law[path[0]] * kernel[path[0], path[1]] * kernel[path[1], path[2]] / law[path[2]]
        rows[path[2]].append(
            math.log(mass) - np.abs(outputs - basis @ np.array(path)).sum(axis=1) / mechanism.scales[0]
        )
    densities = [logsumexp(rows[x], axis=0) for x in (0, 1)]
    grid = float(np.abs(densities[0] - densities[1]).max())
    leakage = mechanism.leakage().value
    assert grid <= leakage * (1 + 5e-3)  # coefficients are rounded to a thousandth of the noise
    assert leakage == pytest.approx(grid, rel=2e-2)


def test_fourier_errors_against_simulation():
    """Seeds are fixed; the errors of noise that is 0.7 or 1.4 times as wide are told apart."""

    def calibrated(epsilon):
        return baselines.Fourier(window=4, coefficients=2).calibrate(PAPER, csdp.Mean(), epsilon=epsilon)

    states = np.concatenate([PAPER.simulate(4, seed=seed) for seed in range(4000)])
    run = calibrated(2.0).trace(states, Randomness.from_key(bytes(32)))
    truth = PAPER.values[states].mean(axis=1)[3::4]
    raw = ((run.values[3::4, 0] - truth) ** 2).mean()
    design = np.column_stack([np.ones(len(truth)), run.noisy[:, :, 0]])
    fitted = design @ np.linalg.lstsq(design, truth, rcond=None)[0]
    linear = ((fitted - truth) ** 2).mean()
    for epsilon, right in ((2.0, True), (2.0 / 0.7, False), (2.0 / 1.4, False)):
        errors = calibrated(epsilon).errors()
        assert (raw == pytest.approx(errors.raw, rel=0.08)) == right
        assert (linear == pytest.approx(errors.linear, rel=0.05)) == right


def test_fourier_keeps_everything_with_all_coefficients():
    mechanism = baselines.Fourier(window=6, coefficients=6).calibrate(PAPER, csdp.Mean(), epsilon=1e6)
    states = PAPER.simulate(12, seed=1)
    out = mechanism.release(states, Randomness.secure())
    assert out[:, 0] == pytest.approx(PAPER.values[states].mean(axis=1), abs=1e-3)


def test_unknown_leakage_is_said():
    wide = baselines.Fourier(window=40, coefficients=3).calibrate(PAPER, csdp.Mean(), epsilon=1.0)
    assert wide.leakage().value is None
    assert "not computed" in wide.leakage().how
    assert wide.lifetime(40).value is None
    assert baselines.Pegasus().calibrate(PAPER, csdp.Mean(), epsilon=1.0).leakage().value is None


@pytest.mark.parametrize("scheme", ["distribution", "absorption"])
@pytest.mark.parametrize("window", [1, 3, 10])
def test_no_window_spends_more_than_half(scheme, window):
    """w-event: the other half goes to the dissimilarities, epsilon / 2w a tick."""
    rng = np.random.default_rng(window)
    sums = []
    for chance in (0.1, 0.5, 1.0):
        spent = budgets_spent(scheme, epsilon=1.0, window=window, ticks=200, publish=lambda t: rng.random() < chance)  # noqa: B023 - called at once
        sums += [spent[t : t + window].sum() for t in range(200 - window + 1)]
    assert 0.2 < max(sums) <= 0.5 * (1 + 1e-12)


def test_w_event_repeats_until_the_answer_moves():
    chain = csdp.CoupledChain(np.eye(2), [[0.99, 0.01], [0.01, 0.99]])
    states = np.zeros((30, 2), dtype=int)
    states[15:] = 1
    for baseline in (baselines.WindowDistribution(window=3), baselines.WindowAbsorption(window=3)):
        out = baseline.calibrate(chain, csdp.Mean(), epsilon=1e4).release(states, Randomness.from_key(bytes(32)))[:, 0]
        assert out[:15] == pytest.approx(np.zeros(15), abs=0.05)
        assert out[19:] == pytest.approx(np.ones(11), abs=0.05)


@pytest.mark.parametrize(
    ("name", "epsilon", "slack"), [("w-event-bd", 12.0, 0.15), ("w-event-ba", 12.0, 0.08), ("pegasus", 2.0, 0.08)]
)
def test_simulated_errors_are_those_of_real_releases(name, epsilon, slack):
    """Lattice noise from a release's own source, on other paths: the same error, raw and after a fitted line.

    Seeds are fixed; rare wide noise of a spent window dominates the raw error, so that it varies more. The errors of
    noise that is 0.7 or 1.4 times as wide are told apart.
    """
    chain = csdp.CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    made = baselines.Pegasus() if name == "pegasus" else type(baselines.get(name))(window=2)
    states = chain.simulate(6000, seed=5)
    mechanism = made.calibrate(chain, csdp.Mean(), epsilon=epsilon)
    out = mechanism.release(states, Randomness.from_key(bytes(range(32))))[:, 0]
    truth = chain.values[states[:, 0]]
    raw, share = ((out - truth) ** 2).mean(), 1 - np.corrcoef(out, truth)[0, 1] ** 2
    for factor, right in ((1.0, True), (0.7, False), (1.4, False)):
        errors = made.calibrate(chain, csdp.Mean(), epsilon=epsilon / factor).errors()
        assert (raw == pytest.approx(errors.raw, rel=0.2)) == right
        assert (share * errors.no_data == pytest.approx(errors.linear, rel=slack)) == right


ALARM = 6.4  # standard errors: a false alarm in 1e9 runs with fresh noise; seeds are fixed besides


def away(happened, chances):
    """How many standard errors the number of events is from what their chances, each given all before, add up to."""
    chances = np.array(chances)
    return abs(np.sum(happened) - chances.sum()) / math.sqrt((chances * (1 - chances)).sum())


@pytest.mark.parametrize(
    ("baseline", "level"), [(baselines.WindowDistribution(window=1), 0.25), (baselines.WindowAbsorption(window=1), 0.5)]
)
def test_hidden_noise_of_w_event_streams_has_the_scale_it_claims(baseline, level):
    """Whether a tick is published anew: its chance, given the last output, from the claimed scale of the dissimilarity.

    With a window of one tick every tick may spend the same, so that the chance is known for each.
    """
    states = SKEWED.simulate(6000, seed=3)
    mechanism = baseline.calibrate(SKEWED, csdp.Mean(), epsilon=1.0)
    run = mechanism.trace(states, Randomness.from_key(bytes(range(32))))
    before = np.concatenate([[0.0], run.values[:-1, 0]])
    missing = 1 / level - np.abs(SKEWED.values[states[:, 0]] - before)  # what the noise has to pass
    short = missing > 0  # where wider noise makes it likelier; elsewhere less likely
    published = (run.values[:, 0] != before)[short]

    off = np.abs(SKEWED.values[states[:, 0]] - before)[short]
    same = np.tanh(level / 2) * np.exp(-level * off)  # a new output may be the old one again

    def chances(scale):
        q = np.exp(-1 / scale)
        return q ** (np.floor(missing[short]) + 1) / (1 + q) * (1 - same)

    assert away(published, chances(mechanism.scales[0])) < ALARM
    for wrong in (0.7, 1.4):
        assert away(published, chances(wrong * mechanism.scales[0])) > ALARM


def test_hidden_noise_of_pegasus_has_the_scales_it_claims():
    """Whether a group ends at its second tick: the first test of a group, with noise that no other test has seen.

    Groups are read off the medians of many outputs: chance hardly ever makes all of them ambiguous.
    """
    chain = csdp.CoupledChain(np.eye(20), [[0.85, 0.15], [0.15, 0.85]])
    mechanism = baselines.Pegasus(share=0.2).calibrate(chain, csdp.Identity(), epsilon=4.0)
    states = chain.simulate(8000, seed=2)
    run = mechanism.trace(states, Randomness.from_key(bytes(range(1, 33))))
    ended, moved, start, closed = [], [], 0, True
    for t, (shown, noisy) in enumerate(zip(run.values, run.noisy, strict=True)):
        alone, together = (shown == noisy).all(), (shown == np.median(run.noisy[start : t + 1], axis=0)).all()
        assert alone or together
        if closed:
            start, closed = t, False
            continue
        if t == start + 1:
            ended.append(alone)
            moved.append(np.abs(run.exact[t] - run.exact[start]).sum())  # the sum of deviations from the mean of two
        if alone and not together:
            start, closed = t, True
    assert len(ended) > 1000

    def chances(scale):
        steps = np.arange(-400, 401)
        laws = [
            np.tanh(0.5 / (scale * width)) * np.exp(-np.abs(steps) / (scale * width)) for width in mechanism.scales[1:]
        ]
        both = np.convolve(*laws)  # the noise of the deviation less that of the threshold, from -800 on
        missing = np.ceil(5 * mechanism.scales[0] - np.array(moved)).astype(int)
        return np.cumsum(both[::-1])[::-1][missing + 800]

    assert away(ended, chances(1.0)) < ALARM
    for wrong in (0.7, 1.4):
        assert away(ended, chances(wrong)) > ALARM


def test_pegasus_groups_what_is_alike():
    chain = csdp.CoupledChain(np.eye(2), [[0.99, 0.01], [0.01, 0.99]])
    states = np.zeros((400, 2), dtype=int)
    states[200:] = 1
    mechanism = baselines.Pegasus(share=0.05).calibrate(chain, csdp.Mean(), epsilon=40.0)
    run = mechanism.trace(states, Randomness.from_key(bytes(32)))
    smooth, noisy = run.values[:, 0], run.noisy[:, 0]
    assert np.abs(smooth[50:200]).mean() < 0.3 * np.abs(noisy[50:200]).mean()
    assert smooth[260:].mean() == pytest.approx(1.0, abs=0.1)  # the step ends a group


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: baselines.Fourier(window=3, coefficients=4).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "has 3"),
        (lambda: baselines.Fourier(level="x").calibrate(PAPER, csdp.Mean(), epsilon=1.0), "level: 'x' given"),
        (lambda: baselines.Pegasus(share=1.0).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "share: 1.0 given"),
        (lambda: baselines.WindowAbsorption(window=0).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "window: 0 given"),
        (
            lambda: baselines.WindowAbsorption().calibrate(PAPER, csdp.Mean(), scale=1.0),
            "no scale; give epsilon=",
        ),
    ],
)
def test_bad_input(ask, message):
    with pytest.raises(InputError, match=message):
        ask()
