"""One suite over every baseline: what each must keep, whatever it promises."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pytest

import csdp
from csdp import baselines
from csdp.errors import CsdpError, InputError, UnsafeRandomnessWarning
from csdp.noise import Randomness
from csdp.report.files import json_text

PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.99, 0.01], [0.3, 0.7]])
ONE = csdp.CoupledChain([[1.0]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
INDEPENDENT = csdp.CoupledChain(np.eye(3), [[0.7, 0.3], [0.3, 0.7]])
CHAINS = {"paper": PAPER, "skewed": SKEWED, "one": ONE, "independent": INDEPENDENT}

#: Baselines that are meant to run on 24 ticks here.
MADE = {
    "markov-quilt": baselines.MarkovQuilt(length=24),
    "markov-quilt-approx": baselines.ApproximateMarkovQuilt(length=24),
    "temporal-budgets": baselines.TemporalBudgets(length=24),
    "w-event-bd": baselines.WindowDistribution(window=3),
    "w-event-ba": baselines.WindowAbsorption(window=3),
}


def baseline(name):
    return MADE.get(name) or baselines.get(name)


def seeded(seed=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsafeRandomnessWarning)
        return Randomness.unsafe_seed(seed)


@pytest.fixture(params=baselines.names())
def name(request):
    return request.param


@pytest.fixture(params=CHAINS)
def chain(request):
    return CHAINS[request.param]


def calibrated(name, chain, epsilon, query=None):
    """None where the baseline refuses this chain, which it must do in words."""
    try:
        return baseline(name).calibrate(chain, query or csdp.Mean(), epsilon=epsilon)
    except CsdpError:
        if name != "inferential":  # the one whose theorem may not apply
            raise
        return None


def test_it_is_a_baseline_with_words(name):
    made = baseline(name)
    assert isinstance(made, baselines.Baseline)
    assert made.name == name
    assert made.name in baselines.names()
    for text in (made.title, made.guarantee, made.label, type(made).__doc__):
        assert len(text) > 8
    if not made.inferential:
        assert any(word in made.guarantee for word in ("no inferential", "NO", "IF"))


def test_noise_falls_as_epsilon_grows(name, chain):
    scales = []
    for epsilon in (0.3, 0.6, 1.2):
        mechanism = calibrated(name, chain, epsilon)
        if mechanism is None:
            return
        assert mechanism.epsilon <= epsilon * (1 + 1e-12)
        assert mechanism.epsilon >= epsilon * (1 - 2e-3)
        scales.append(mechanism.scales)
    for more, less in itertools.pairwise(scales):
        assert all(a > b > 0 for a, b in zip(more, less, strict=True))


def test_release_and_record(name, chain):
    mechanism = calibrated(name, chain, 0.8)
    if mechanism is None:
        return
    assert isinstance(mechanism, baselines.Mechanism)
    age = getattr(mechanism, "age", 0)
    out = mechanism.release(chain.simulate(24 + age, seed=2), Randomness.secure())
    assert out.shape == (24, 1)
    assert np.isfinite(out).all()
    record = json.loads(json_text(mechanism.to_dict()))
    assert record["baseline"] == name
    assert record["guarantee"] == mechanism.guarantee
    assert record["epsilon"] == pytest.approx(mechanism.epsilon)
    assert record["scales"]
    same = [mechanism.release(chain.simulate(24 + age, seed=2), seeded(5)) for _ in range(2)]
    assert (same[0] == same[1]).all()


def test_quantities_are_numbers_or_say_why_not(name, chain):
    mechanism = calibrated(name, chain, 0.8)
    if mechanism is None:
        return
    for found in (mechanism.leakage(), mechanism.leakage("uninformed"), mechanism.lifetime(3)):
        assert found.how
        if found.value is None:
            assert found.how.startswith("not computed")
        else:
            assert found.value > 0  # fresh or little aged data always tells something; an unknown is never 0
    errors = mechanism.errors()
    assert 0 < errors.linear <= errors.no_data * (1 + 1e-9)
    assert errors.raw > 0


def standard_noise(name, ticks=24 * 200):
    """Noise over its scale, as it is drawn, and the step of its lattice over its scale."""
    made = baseline(name)
    chain = SKEWED if name.startswith("w-event") else PAPER
    if name == "temporal-budgets":
        made = baselines.TemporalBudgets(length=24)
        mechanism = made.calibrate(chain, csdp.Mean(), epsilon=0.8)
        runs = [mechanism.trace(chain.simulate(24, seed=k), seeded(k)) for k in range(60)]
    else:
        epsilon = 6.0 if name == "w-event-bd" else 0.8
        mechanism = made.calibrate(chain, csdp.Mean(), epsilon=epsilon)
        age = getattr(mechanism, "age", 0)
        runs = [mechanism.trace(chain.simulate(ticks + age, seed=3), seeded())]
    step = getattr(mechanism, "step", 0.5)  # a mean of two readings of 0 and 1 moves by halves
    scales = np.concatenate([np.broadcast_to(run.scales, run.noisy.shape).ravel() for run in runs])
    return np.concatenate([(run.noisy - run.exact).ravel() for run in runs]) / scales, step / scales


def test_noise_has_the_scale_it_claims(name):
    """|noise| has the mean of its geometric law (fixed seed, six standard errors); scales off by 0.3 are rejected."""
    drawn, rate = standard_noise(name)
    assert drawn.size > 1000
    size = np.abs(drawn) * np.sinh(rate) / rate
    slack = 6 * size.std() / np.sqrt(size.size)
    assert slack < 0.25
    assert abs(size.mean() - 1) < slack
    for wrong in (0.7, 1.3):
        assert abs(wrong * size.mean() - 1) > slack
    zero = np.abs(drawn) < rate / 2
    assert abs(zero.mean() - np.tanh(rate / 2).mean()) < 3 / np.sqrt(drawn.size)  # not another law of that mean


BAD = {
    "neither": ({}, "neither of epsilon and scale given"),
    "both": ({"epsilon": 1.0, "scale": 1.0}, "both of epsilon and scale given"),
    "zero": ({"epsilon": 0.0}, "epsilon: 0.0 given; it must be positive and finite"),
    "negative": ({"epsilon": -1.0}, "must be positive"),
    "nan": ({"epsilon": float("nan")}, "must be positive"),
    "infinite": ({"epsilon": float("inf")}, "must be positive"),
    "text": ({"epsilon": "1"}, "a positive number expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_targets_are_refused(name, case):
    given, message = BAD[case]
    with pytest.raises(InputError, match=message):
        baseline(name).calibrate(PAPER, csdp.Mean(), **given)


def test_bad_models_and_queries_are_refused(name):
    made = baseline(name)
    past = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], initial=[0.5, 0.5])
    for chain, query, message in (
        (csdp.Family([PAPER, SKEWED]), csdp.Mean(), "chain: Family given"),
        (past, csdp.Mean(), "initial law"),
        (PAPER, csdp.Mean, "query: .* expected an instance"),
        (PAPER, "average", "query: 'average' given"),
    ):
        with pytest.raises(InputError, match=message):
            made.calibrate(chain, query, epsilon=1.0)


def test_bad_states_are_refused(name):
    mechanism = calibrated(name, PAPER, 1.0)
    for states, message in (
        (np.zeros((24, 3), dtype=int), r"states: shape \(24, 3\) given"),
        (np.zeros(24, dtype=int), "states: shape"),
        (np.zeros((0, 2), dtype=int), "states: shape"),
        (np.zeros((24, 2)), "states: float64 given"),
        (np.full((24, 2), 2), "unknown or missing state"),
        (np.full((24, 2), -1), "no gaps"),
    ):
        with pytest.raises(InputError, match=message):
            mechanism.release(states, Randomness.secure())
    with pytest.raises(InputError, match="releases"):
        mechanism.lifetime(0)


@pytest.mark.parametrize("query", [csdp.Sum(), csdp.Max(), csdp.Count(1), csdp.Linear([2, -1])])
def test_other_queries(name, query):
    mechanism = calibrated(name, PAPER, 1.0, query)
    age = getattr(mechanism, "age", 0)
    assert mechanism.release(PAPER.simulate(24 + age, seed=4), Randomness.secure()).shape == (24, 1)
    assert mechanism.errors().linear > 0


def test_many_outputs_or_a_refusal(name):
    made = baseline(name)
    if name == "wasserstein":
        with pytest.raises(InputError, match="several outputs"):
            made.calibrate(PAPER, csdp.Histogram(), epsilon=1.0)
        return
    mechanism = made.calibrate(PAPER, csdp.Histogram(), epsilon=1.0)
    age = getattr(mechanism, "age", 0)
    assert mechanism.release(PAPER.simulate(24 + age, seed=4), Randomness.secure()).shape == (24, 2)


def test_a_huge_epsilon_does_not_overflow(name):
    if name == "inferential":
        made = baseline(name).calibrate(PAPER, csdp.Mean(), epsilon=1e4)
    elif name == "adp":
        made = baseline(name).calibrate(PAPER, csdp.Mean(), epsilon=1e3)
    else:
        made = baseline(name).calibrate(PAPER, csdp.Mean(), epsilon=1e4)
    assert all(np.isfinite(scale) and scale > 0 for scale in made.scales)


def test_unknown_names():
    with pytest.raises(InputError, match="baseline: 'lapalce' given; use one of laplace, group"):
        baselines.get("lapalce")
    assert len(set(baselines.names())) == len(baselines.names()) == 20
