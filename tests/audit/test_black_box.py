"""The auditor: about 0 on nothing, never above the truth, and wrong mechanisms are caught.

Seeds are fixed; `SURE` is the confidence a verdict would have with fresh randomness.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import csdp
from csdp import CoupledChain, Custom, Family, Histogram, Identity, JointChain, Max, Mean, audit, leakage, paper
from csdp.accountant import Accountant
from csdp.audit.black_box import PastSampler, lower_bound
from csdp.errors import InputError, TooLargeError
from csdp.plan import Plan
from csdp.schedule import Schedule
from oracle import aged_law, joint_kernel, repeated_leakage

from audit.mechanisms import ONE, PAIR, SKEWED, SURE, mean_with, nothing, same_noise_twice  # isort: skip

# ---- what must be caught


def test_the_printed_formula_is_no_certificate_on_a_skewed_chain():
    printed = paper.printed_loose(SKEWED, Mean(), ages=1, epsilon_c=1.0)
    plan = Plan(SKEWED, Mean(), 1, 1.0)
    result = audit(plan, claim=printed, samples=500_000, confidence=SURE, seed=1)
    assert result.violated
    assert 0.69 < result.lower <= plan.certified.epsilon
    assert result.verdict.startswith("violated: leaks at least 0.7")
    assert result.verdict.endswith("claimed 0.69")
    assert not replace(result, claim=plan.certified.epsilon).violated


@pytest.mark.parametrize("chain", [ONE, PAIR, SKEWED], ids=["one", "pair", "skewed"])
def test_half_the_noise_is_caught_and_all_of_it_passes(chain):
    scale = 1.0 / chain.sequences
    declared, options = Plan(chain, Mean(), 1, 1.0), {"samples": 400_000, "confidence": SURE, "seed": 2}
    assert audit(mean_with(scale / 2), declared, **options).violated
    assert not audit(mean_with(scale), declared, **options).violated


def test_noise_used_for_two_ticks_is_caught_in_the_history_and_nowhere_else():
    declared, options = Plan(ONE, Mean(), 1, 0.5), {"samples": 400_000, "confidence": SURE, "seed": 4}
    two = audit(same_noise_twice(2.0), declared, releases=2, **options)
    assert two.violated
    assert "minus" in two.event  # the difference of the two outputs has no noise at all
    assert two.claim == pytest.approx(0.2695, abs=1e-4)
    assert not audit(mean_with(2.0), declared, releases=2, **options).violated
    assert not audit(mean_with(2.0), declared, **options).violated


# ---- what must pass


@pytest.mark.parametrize(
    ("query", "ages", "releases"),
    [(Mean(), 1, 1), (Max(), (1, 3), 1), (Histogram(), 2, 2), (Identity(), (1, 2), 2)],
    ids=lambda given: getattr(given, "name", None),
)
def test_ours_passes(query, ages, releases):
    plan = Plan(PAIR, query, ages, 1.0)
    result = audit(plan, releases=releases, samples=40_000, confidence=SURE, seed=5)
    assert not result.violated
    assert result.claim == pytest.approx(Accountant(plan).after(releases).epsilon)


def test_a_mechanism_that_reveals_nothing_has_a_bound_of_about_0():
    plan = Plan(PAIR, Mean(), 1, 1.0)
    assert max(audit(nothing, plan, samples=20_000, seed=seed).lower for seed in range(20)) < 0.01


def test_false_alarms_are_as_rare_as_stated():
    """At confidence 0.9, held against the exact truth; the false-alarm rate of the test itself is 1e-10."""
    runs, alarm = 150, 0.1
    plan = Plan(ONE, Mean(), 1, 1.0)
    result = [audit(plan, samples=2000, confidence=1 - alarm, seed=seed) for seed in range(runs)]
    plain = [np.log(one.hits[0] / max(one.hits[1], 1)) > plan.certified.epsilon for one in result]
    assert stats.binom.sf(sum(one.violated for one in result) - 1, runs, alarm) > 1e-10
    # As many audits find out an auditor that reports the ratio it saw, without the interval.
    assert stats.binom.sf(sum(plain) - 1, runs, alarm) < 1e-10


CHAINS = {
    "skewed": SKEWED,
    "deterministic": CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]]),
    "periodic": CoupledChain([[0, 1], [1, 0]], [[0.2, 0.8], [0.9, 0.1]]),
    "many states": CoupledChain([[1.0]], np.full((12, 12), 0.04) + 0.52 * np.eye(12)),
    "three": CoupledChain([[0.6, 0.4, 0], [0, 0.6, 0.4], [0.4, 0, 0.6]], [[0.9, 0.1], [0.2, 0.8]]),
    "exchangeable": CoupledChain(np.full((4, 4), 0.25), [[0.9, 0.1], [0.2, 0.8]]),
    "two components": CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]]),
    "joint": JointChain(0.1 + 0.6 * np.eye(4), states=2, sequences=2),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("age", [1, 2])
def test_the_bound_is_never_above_the_exact_leakage_and_not_far_below(name, age):
    chain = CHAINS[name]
    plan = Plan(chain, Mean(), age, 1.0)
    result = audit(plan, samples=100_000, confidence=SURE, seed=6)
    assert result.lower <= plan.certified.epsilon
    exact = leakage(chain, Mean(), ages=age, epsilon_c=1.0).epsilon
    assert result.lower <= exact
    if exact > 0.3 and chain.sequences == 1:
        assert result.lower > 0.5 * exact


def random_plan(seed):
    """A chain, query, ages and noise level, drawn from a seed."""
    random = np.random.default_rng(seed)
    s, m = (int(random.integers(1, 4)), 2) if seed % 2 else (int(random.integers(1, 3)), 3)
    coupling = random.dirichlet(np.full(s, 0.7), size=s)
    transitions = random.dirichlet(np.full(m, random.choice([0.3, 1.0])), size=(s, s, m))
    query = [Mean(), Max(), Histogram(), Identity()][seed % 4]
    ages = random.integers(0, 4, size=s).tolist()
    return Plan(CoupledChain(coupling, transitions), query, ages, float(random.uniform(0.2, 3)))


def never_above_the_truth(seed, samples):
    plan = random_plan(seed)
    result = audit(plan, samples=samples, confidence=SURE, seed=seed)
    assert result.lower <= plan.certified.epsilon, seed
    return result.lower, plan.certified.epsilon


def test_random_chains():
    pairs = [never_above_the_truth(seed, 10_000) for seed in range(24)]
    assert sum(lower > 0 for lower, _ in pairs) >= 8


@pytest.mark.slow
def test_random_chains_at_full_size():
    for seed in range(100, 1100):
        never_above_the_truth(seed, 100_000)


def test_several_releases_against_brute_force_over_all_histories():
    """The bound lies below the true leakage of the history, and above what one release leaks."""
    brute = repeated_leakage(ONE.kernel(), 1, 2, 1, 2.0, [(0.0,), (1.0,)], 1.0, releases=3)
    result = audit(Plan(ONE, Mean(), 1, 2.0), releases=3, samples=300_000, confidence=0.9999, seed=7)
    assert result.lower <= brute
    assert result.lower > leakage(ONE, Mean(), ages=1, epsilon_c=2.0).epsilon


def test_families_are_audited_under_the_member_that_leaks_most():
    mild, strong = CoupledChain([[1.0]], [[0.6, 0.4], [0.4, 0.6]]), CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    plan = Plan(Family([mild, strong]), Mean(), 1, 1.0)
    result = audit(plan, samples=200_000, confidence=SURE, seed=8)
    assert leakage(mild, Mean(), ages=1, epsilon_c=1.0).epsilon < result.lower <= plan.certified.epsilon


def test_a_custom_query_and_a_mechanism_without_noise():
    plan = Plan(PAIR, Custom(lambda values: values[0] * values[1], name="both"), 1, 1.0)
    assert not audit(plan, samples=50_000, seed=9).violated
    free = audit(lambda readings, _: readings, plan, samples=50_000, seed=9)
    assert free.violated
    assert 0.8 < free.lower <= leakage(PAIR, Identity(), ages=1, epsilon_c=50.0).epsilon


# ---- pasts are drawn from the model: against the law that the oracle finds by walking forward

T3 = [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
PASTS = {
    "skewed": ([[1.0]], [[0.99, 0.01], [0.3, 0.7]], (2,)),
    "pair": ([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], (1, 3)),
    "three states": ([[0.6, 0.4], [0.3, 0.7]], T3, (2, 1)),
    "periodic": ([[0.0, 1.0], [1.0, 0.0]], [[0.2, 0.8], [0.9, 0.1]], (3, 1)),
    "independent": ([[1.0, 0.0], [0.0, 1.0]], [[0.7, 0.3], [0.1, 0.9]], (1, 2)),
}


def drawn(chain, ages, number, seed):
    present = [int(v) for v in np.unravel_index(number, (chain.states,) * chain.sequences)]
    depths = sorted(set(ages))
    slices = PastSampler(chain, depths).draw(present, 40_000, np.random.default_rng(seed))
    return np.stack([slices[:, depths.index(age), i] for i, age in enumerate(ages)], axis=1)


def p_value(readings, law, states):
    """Of a chi-squared test; 0 if something impossible was drawn."""
    numbers = np.ravel_multi_index(tuple(readings.T), (states,) * readings.shape[1])
    counts, expected = np.bincount(numbers, minlength=law.size), law * len(readings)
    seen = law > 0
    if counts[~seen].any():
        return 0.0
    statistic = ((counts[seen] - expected[seen]) ** 2 / expected[seen]).sum()
    return float(stats.chi2.sf(statistic, max(seen.sum() - 1, 1)))


@pytest.mark.parametrize("name", PASTS)
def test_the_law_of_what_is_read_given_the_present(name):
    coupling, transitions, ages = PASTS[name]
    chain = CoupledChain(coupling, transitions)
    rows, law = aged_law(joint_kernel(coupling, transitions), chain.sequences, chain.states, ages)
    possible = np.flatnonzero(law > 0)
    for number in possible:
        assert p_value(drawn(chain, ages, number, seed=int(number)), rows[number], chain.states) > 1e-10
    # As many samples find out a past that belongs to another present.
    apart = [n for n in possible if np.abs(rows[n] - rows[possible[0]]).sum() > 0.1]
    assert apart
    assert p_value(drawn(chain, ages, apart[-1], seed=99), rows[possible[0]], chain.states) < 1e-10


def test_slices_of_one_past_hang_together():
    """Successive slices follow the chain: a permutation leaves no freedom at all."""
    turning = CoupledChain([[1.0]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    slices = PastSampler(turning, range(5)).draw([2], 50, np.random.default_rng(1))
    assert slices[:, :, 0].tolist() == [[2, 1, 0, 2, 1]] * 50


# ---- the record


def test_the_record_says_which_presents_were_compared_and_how():
    result = audit(Plan(SKEWED, Mean(), 1, 1.0), samples=20_001, seed=10)
    assert str(result.pair) == "x1 = 1 against 0"
    assert result.chosen + result.reported == 20_001
    assert 0 <= result.hits[1] < result.hits[0] <= result.reported
    assert float(lower_bound(*_each(result), alarm=1 - result.confidence)) == result.lower
    content = result.to_dict()
    assert content["verdict"] == result.verdict
    assert content["violated"] is False
    assert repr(result) == f"Audit({result.verdict})"


def _each(result):
    return result.hits[0], result.reported, result.hits[1], result.reported


def test_a_seed_repeats_an_audit_and_another_does_not():
    plan = Plan(ONE, Mean(), 1, 1.0)
    first, again, other = (audit(plan, samples=5000, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.hits != other.hits


def test_clopper_and_pearson():
    """Against the definition: at the bound, so few (so many) samples have probability a/2."""
    for k, n in ((5, 100), (99, 100), (1, 1000)):
        low = float(np.exp(lower_bound(k, n, n, n, alarm=0.02)))
        assert stats.binom.sf(k - 1, n, low) == pytest.approx(0.01)
    high = 1 / float(np.exp(lower_bound(100, 100, 3, 50, alarm=0.02)) / stats.beta.ppf(0.01, 100, 1))
    assert stats.binom.cdf(3, 50, high) == pytest.approx(0.01)
    assert lower_bound(0, 10, 5, 10, alarm=0.1) == -np.inf


# ---- the name, and bad input


def test_the_name_is_a_function_also_after_the_package_is_imported():
    code = "import csdp\nfrom csdp.audit import black_box as room\nassert csdp.audit is room.audit"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import csdp.audit.replay, csdp\nassert callable(csdp.audit) and csdp.attack"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert csdp.audit is audit


BAD = [
    ({"mechanism": 3}, "int and Plan given"),
    ({"plan": None}, "function and NoneType given"),
    ({"mechanism": Plan(PAIR, Mean(), 1, 1.0)}, "Plan and Plan given"),
    ({"claim": -1.0}, "claim: -1.0 given"),
    ({"claim": float("nan")}, "claim: nan given"),
    ({"confidence": 1.0}, "confidence: 1.0 given"),
    ({"samples": 10}, "samples: 10 given"),
    ({"releases": 0}, "releases: 0 given"),
    ({"mechanism": lambda r, g: "words"}, "not an array of numbers"),
    ({"mechanism": lambda r, g: np.zeros(3)}, "outputs of shape"),
    ({"mechanism": lambda r, g: np.full(len(r), np.nan)}, "not finite"),
    ({"plan": Plan(PAIR, Mean(), 1, 1.0, schedule=Schedule((1.0, 0.5)))}, "schedule"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_is_refused(given, message):
    settings = {"mechanism": mean_with(1.0), "plan": Plan(PAIR, Mean(), 1, 1.0), "samples": 1000} | given
    with pytest.raises(InputError, match=message):
        audit(settings.pop("mechanism"), settings.pop("plan"), **settings)


def test_components_too_large_and_releases_that_show_nothing_are_refused():
    large = Plan(CoupledChain(np.full((12, 12), 1 / 12), [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 1.0)
    with pytest.raises(TooLargeError, match="at most 2,048"):
        audit(mean_with(1.0), large, samples=1000)
    with pytest.raises(InputError, match="nothing to attack"):
        audit(Plan(CoupledChain([[1.0]], [[0.5, 0.5], [0.5, 0.5]]), Mean(), 1, 1.0), samples=1000)
