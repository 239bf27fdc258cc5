"""Leakage over the whole range of noise and age: finite, monotone, never 0, accurate when tiny."""

import itertools
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import csdp
import oracle as o
from csdp.bounds.leakage import Setting
from csdp.bounds.result import round_up
from csdp.errors import NoStationaryLawError
from csdp.paper import loose
from oracle import precise_leakage

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
BACKWARD = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
EPSILONS = (1e-6, 1.0, 1e3)
AGES = (0, 1, 2, 5, 10, 39, 40, 100, 400, 420, 1000, 2000)
BOUNDS = ("exact", "profile", "freshness", "slice", "influence")
SMALLEST = math.ulp(0.0)


def ask(age, epsilon_c, bound="exact", adversary="informed", chain=CHAIN, query=None):
    return csdp.leakage(
        chain, query or csdp.Mean(), ages=age, epsilon_c=epsilon_c, bound=bound, adversary=adversary
    ).epsilon


def ask_at_levels(age, epsilons, bound, adversary, chain):
    """The same at several noise levels; the law of what is read does not depend on them."""
    setting, told = Setting.make(chain, csdp.Mean(), ages=age, epsilon_c=1.0, adversary=adversary), []
    for epsilon_c in epsilons:
        setting = setting.at(epsilon_c)  # keeps what the level before has found
        told.append(setting.answer(bound).epsilon)
    return told


@pytest.mark.parametrize(
    ("bound", "adversary"),
    [
        (bound, adversary)
        for bound in BOUNDS
        for adversary in ("informed", "uninformed")
        if bound != "influence" or adversary == "informed"
    ],
)
def test_finite_positive_and_monotone_everywhere(bound, adversary):
    epsilons = EPSILONS if bound not in {"freshness", "slice"} else EPSILONS[::2]
    backward = bound == "influence"
    chain = BACKWARD if backward else CHAIN
    grid = np.array([ask_at_levels(age, epsilons, bound, adversary, chain) for age in AGES]).T
    assert grid[-1, 2] == ask(AGES[2], epsilons[-1], bound, adversary, chain=chain)
    assert (grid >= SMALLEST).all()
    infinite = np.zeros(grid.shape, dtype=bool)
    infinite[:, 0] = bound in {"freshness", "slice"}  # age 0: the reading is the present
    assert (np.isinf(grid) == infinite).all()
    assert (np.isfinite(grid) | infinite).all()
    for less_noise, more in pairwise(grid):
        assert (less_noise <= more * (1 + 1e-9)).all()
    for young, old in pairwise(grid.T):
        assert (old <= young * (1 + 1e-9)).all()  # on this chain exact too


def test_underflow_is_the_smallest_float_never_zero():
    assert ask(10_000, 1.0) == SMALLEST


def test_slow_chains_are_not_lost():
    chain = csdp.CoupledChain([[1.0]], [[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]])
    # total variation of the backward step is 1 - 2e-6, so leakage is close to that of the plain release
    got = ask(1000, 1.0, chain=chain)
    tv = (1 - 2e-6) ** 1000
    half = Fraction(1, 2)
    high, low = (float(half) * (1 + tv), float(half) * (1 - tv))
    want = math.log((high * math.e + low) / (low * math.e + high))
    assert got == pytest.approx(want, rel=1e-9)


def test_large_alpha_meets_the_limits():
    """With little noise exact and profile tend to freshness, `paper.loose` to alpha + ln Delta; nothing overflows."""
    fresh = ask(2, 1.0, "freshness")
    for epsilon_c in (200.0, 400.0, 1e3):
        assert ask(2, epsilon_c) == pytest.approx(fresh, rel=1e-9)
        assert ask(2, epsilon_c, "profile") == pytest.approx(fresh, rel=1e-9)
        wide = loose(CHAIN, "mean", ages=2, epsilon_c=epsilon_c)
        assert wide == pytest.approx(2 * epsilon_c + math.log(0.1), rel=1e-12)
    wide = csdp.CoupledChain([[1.0]], [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], values=[0, 1, 1000])
    B, law = o.aged_law(wide.kernel(), 1, 3, (2,))
    want = o.exact_leakage(B, [(0.0,), (1.0,), (1000.0,)], 1, 3, 1e3, 1000.0, "informed", law)
    assert ask(2, 1e3, chain=wide) == pytest.approx(want, rel=1e-9)


def test_round_up_never_rounds_down():
    rng = np.random.default_rng(1)
    for value in np.concatenate([10.0 ** rng.uniform(-320, 300, 2000), rng.random(2000), [0.1, 1.0, 2.0**-1074]]):
        raised = round_up(float(value))
        assert value <= raised <= value * (1 + 2.0**-42) + SMALLEST
    assert round_up(0.0) == SMALLEST
    assert round_up(-1.0) == SMALLEST
    assert round_up(math.inf) == math.inf
    assert round_up(round_up(0.3)) == round_up(0.3)
    for value in (0.1, 0.7, 1 / 3, 5e-9, 123.4):  # 44 binary digits and no more: the same on every machine
        assert (math.frexp(round_up(value))[0] * 2**44).is_integer()
        assert round_up(value) <= value * (1 + 2.0**-43)
    with pytest.raises(FloatingPointError, match="NaN"):
        round_up(math.nan)


@pytest.mark.parametrize("s", [8, 9])
def test_tiny_leakages_of_larger_systems_are_never_below_the_truth(s):
    """256 and 512 joint states: at age 60 the truth is about 1e-24; the answer may be larger, never smaller."""
    coupling = 0.8 * np.eye(s) + 0.1 * (np.roll(np.eye(s), 1, axis=1) + np.roll(np.eye(s), -1, axis=1))
    chain = csdp.CoupledChain(coupling, [[0.7, 0.3], [0.3, 0.7]])
    got = [ask(age, 1.0, chain=chain) for age in (5, 10, 20, 60)]
    floor = [0.0094 * 0.4 ** (age - 5) for age in (5, 10, 20, 60)]
    assert all(value >= low for value, low in zip(got, floor, strict=True))
    assert got[2] == pytest.approx(floor[2], rel=0.1)
    if s == 8:
        assert got[3] == pytest.approx(floor[3], rel=0.1)


def rare_system(seed):
    """One to three sequences with entries down to the smallest floats: rare presents, rows next to equal."""
    random = np.random.default_rng(seed)
    s, m = ((1, 2), (1, 3), (2, 2), (1, 4), (3, 2))[random.integers(5)]
    lowest = (-8, -30, -120, -200, -300)[random.integers(5)]
    rows = random.dirichlet(np.ones(m), size=(s, s, m))
    rows = np.where(random.random(rows.shape) < random.random(), 10.0 ** random.uniform(lowest, 0, rows.shape), rows)
    coupling = random.dirichlet(np.ones(s), size=s)
    coupling = np.where(random.random((s, s)) < 0.3, 10.0 ** random.uniform(max(lowest, -200), 0, (s, s)), coupling)
    return coupling / coupling.sum(axis=1, keepdims=True), rows / rows.sum(axis=-1, keepdims=True)


#: Numbers below the truth were once given for these: by `loose`, by `slice`, by `influence`.
ONCE_BELOW = [
    [[0.45, 2.8e-300, 0.55], [5.5e-300, 1.0, 5.5e-300], [1.7e-300, 1.0, 1.7e-300]],
    [[1.0, 3.2e-88], [1.0, 8.2e-22]],
    [[1.0, 1e-75], [1.0, 3e-33]],
]


def test_presents_rarer_than_any_float_are_refused():
    """Their law was no number; left out they would not be protected."""
    chain = csdp.CoupledChain([[1.0]], [[0.5, 0.5, 0.0], [1e-200, 0.5, 0.5], [0.0, 1e-200, 1.0]])
    for bound in (*BOUNDS[:3], "auto"):
        with pytest.raises(NoStationaryLawError, match="rarer than any number"):
            ask(1, 1.0, bound, chain=chain)
    assert ask(1, 1.0, "group", chain=chain) == 1.0


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("ages", [(1, 2, 7), (8, 9, 40)])
@pytest.mark.parametrize(
    "system", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 200)), *ONCE_BELOW], ids=str
)
def test_presents_next_to_impossible(system, ages, backward):
    """No bound is below the truth, and none is no number, although states occur once in 1e300 ticks."""
    coupling, rows = rare_system(system) if isinstance(system, int) else (np.eye(1), np.array(system)[None, None])
    chain = csdp.CoupledChain(coupling, rows, direction="backward" if backward else "forward")
    s, m = coupling.shape[0], rows.shape[-1]
    for age in ages:
        truth = precise_leakage(
            coupling, rows, fvals=[sum(x) for x in itertools.product(range(m), repeat=s)], delta_f=m - 1, age=age,
            epsilon_c=1.0, digits=700, backward=backward,
        )  # fmt: skip
        for bound in (*BOUNDS, "auto"):
            if (bound == "influence") != backward and bound in {"influence", "slice"}:
                continue
            told = ask(age, 1.0, bound, chain=chain, query=csdp.Sum())
            assert told >= truth * (1 - 1e-9), (age, bound, told, truth)
