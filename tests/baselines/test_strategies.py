"""Trees, wavelets and correlated noise: their matrices, their leakage by enumeration, their errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp

import csdp
import oracle
from csdp import baselines
from csdp.baselines.continual import compare_continual, history_errors
from csdp.baselines.strategies import StrategyRelease
from csdp.baselines.windows import ExpiringRelease, expiring_costs, root_coefficients
from csdp.errors import InfeasibleError, InputError
from csdp.noise import Randomness

from baselines.chains import CYCLE, PAPER, SKEWED, SYMMETRIC  # isort: skip

MADE = {
    "tree": baselines.BinaryTree(window=2),
    "wavelet": baselines.HaarWavelet(window=2),
    "toeplitz": baselines.ToeplitzNoise(window=3),
    "banded": baselines.ToeplitzNoise(window=3, bands=2),
}
#: One that hardly ever changes: old answers are told by new ones.
STILL = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.01, 0.99]])
CHAINS = {"symmetric": SYMMETRIC, "skewed": SKEWED, "cycle": CYCLE}


def test_a_record_is_in_as_many_coefficients_as_is_claimed() -> None:
    for made in (baselines.BinaryTree(window=16), baselines.HaarWavelet(window=16)):
        strategy, _ = made.rows()
        assert np.abs(strategy).sum(axis=0).tolist() == [5.0] * 16
        assert np.linalg.matrix_rank(strategy) == 16
    halves = baselines.HaarWavelet(window=8).rows()[0]
    assert (halves @ halves.T == np.diag(np.diag(halves @ halves.T))).all()


def test_the_square_of_the_toeplitz_matrix_sums_up() -> None:
    strategy, ready = baselines.ToeplitzNoise(window=12).rows()
    assert strategy @ strategy == pytest.approx(np.tril(np.ones((12, 12))), abs=1e-12)
    assert root_coefficients(12) == pytest.approx([math.comb(2 * k, k) / 4**k for k in range(12)], rel=1e-14)
    assert ready.tolist() == list(range(12))
    banded, _ = baselines.ToeplitzNoise(window=12, bands=3).rows()
    assert np.abs(banded).sum(axis=0).max() == pytest.approx(1.875)
    assert np.count_nonzero(banded[-1]) == 3


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_leakage_by_enumeration(made, chain) -> None:
    """All paths, outputs at the corners: the leakage is the largest over the ticks at which something is published."""
    mechanism = made.calibrate(chain, csdp.Mean(), epsilon=0.8)
    strategy, ready = made.rows()
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    window, values = strategy.shape[1], chain.values
    worst = 0.0
    for tick in sorted(set(ready.tolist())):
        rows = strategy[ready <= tick]
        logs, reads = {}, {}
        for path in itertools.product(range(chain.states), repeat=window):
            mass = law[path[0]] * math.prod(kernel[a, b] for a, b in itertools.pairwise(path)) / law[path[tick]]
            logs.setdefault(path[tick], []).append(math.log(mass))
            reads.setdefault(path[tick], []).append(rows @ values[list(path)])
        corners = [sorted({float(c[k]) for found in reads.values() for c in found}) for k in range(len(rows))]
        outputs = np.array(list(itertools.product(*corners)))
        density = [
            logsumexp(
                np.array(logs[x])[:, None]
                - np.abs(outputs[None] - np.array(reads[x])[:, None]).sum(axis=2) / mechanism.scales[0],
                axis=0,
            )
            for x in logs
        ]
        worst = max(worst, float(np.ptp(density, axis=0).max()))
    found = mechanism.leakage().value
    assert found is not None
    assert found == pytest.approx(worst, rel=1e-2 if mechanism.rounded else 1e-9)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("chain", [*CHAINS.values(), PAPER], ids=[*CHAINS, "paper"])
def test_the_accountant_of_noise_on_every_answer_covers_it(made, chain) -> None:
    """The certificate of a comparison without end; half of its epsilon would not be enough."""
    mechanism = made.calibrate(chain, csdp.Mean(), epsilon=0.8)
    told = mechanism.leakage().value
    assert told is not None
    assert told <= csdp.Accountant(csdp.Plan(chain, csdp.Mean(), 0, mechanism.epsilon)).after(made.window).epsilon
    if made.name == "tree":
        half = csdp.Plan(chain, csdp.Mean(), 0, mechanism.epsilon / 2)
        assert told > csdp.Accountant(half).after(made.window).epsilon


@pytest.fixture(scope="module")
def states():
    """Every fifth window of four ticks of one path: nearly independent."""
    return PAPER.simulate(80_000, seed=7).reshape(-1, 20, 2)[:, :4].reshape(-1, 2)


@pytest.mark.parametrize(
    "made", [baselines.BinaryTree(window=4), baselines.ToeplitzNoise(window=4), baselines.GradualExpiration(window=4)]
)
def test_errors_against_simulation(made, states) -> None:
    """Seeds are fixed; the errors of noise that is 0.7 or 1.4 times as wide are told apart."""
    run = made.calibrate(PAPER, csdp.Mean(), epsilon=4.0).trace(states, Randomness.from_key(bytes(32)))
    truth = PAPER.values[states].mean(axis=1)[3::4]
    raw = ((run.values[3::4, 0] - truth) ** 2).mean()
    seen = run.values.reshape(-1, 4).cumsum(axis=1) if made.name == "expiring" else run.noisy[:, :, 0]
    design = np.column_stack([np.ones(len(truth)), seen])
    linear = ((design @ np.linalg.lstsq(design, truth, rcond=None)[0] - truth) ** 2).mean()
    for epsilon, right in ((4.0, True), (4.0 / 0.7, False), (4.0 / 1.4, False)):
        errors = made.calibrate(PAPER, csdp.Mean(), epsilon=epsilon).errors()
        assert (raw == pytest.approx(errors.raw, rel=0.08)) == right
        assert (linear == pytest.approx(errors.linear, rel=0.05)) == right


def test_windows_and_bands_that_are_none_are_refused() -> None:
    for made, message in (
        (baselines.BinaryTree(window=6), "power of two"),
        (baselines.HaarWavelet(window=3), "power of two"),
        (baselines.BinaryTree(window=0), "window"),
        (baselines.ToeplitzNoise(bands=0), "bands"),
        (baselines.GradualExpiration(window=3), "power of two"),
    ):
        with pytest.raises(InputError, match=message):
            made.calibrate(PAPER, csdp.Mean(), epsilon=1.0)


# ---------------------------------------------------------------- gradual expiration


@pytest.mark.parametrize(
    "rates", [(1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0), (3.0, 1.0, 0.2, 0.7), (1.0, 9.0, 9.0, 9.0)]
)
def test_what_a_record_costs_is_the_cheapest_way_to_hide_it_in_noise(rates) -> None:
    """Beside it a linear programme: noise of intervals that moves totals of ticks j to t by one, and none before."""
    window = 8
    inside, _ = baselines.BinaryTree(window=window).rows()
    price = np.array([rates[int(np.log2(size))] for size in inside.sum(axis=1)])
    costs = np.zeros((window, window))
    for j, t in itertools.product(range(window), repeat=2):
        seen = np.hstack([inside.T[: t + 1], -inside.T[: t + 1]])
        wanted = (np.arange(t + 1) >= j).astype(float)
        costs[j, t] = linprog(np.tile(price, 2), A_eq=seen, b_eq=wanted).fun
    by_age = [max(costs[j, min(j + d, window - 1)] for j in range(window)) for d in range(window)]
    assert expiring_costs(window, rates) == pytest.approx(by_age, abs=1e-9)


def expiring_truth(chain: csdp.CoupledChain, mechanism: ExpiringRelease) -> float:
    """What a window of two ticks tells of its newest one, by adding up the noise of its three intervals."""
    kernel, law, span = chain.kernel(), oracle.stationary(chain.kernel()), np.arange(-220, 221)
    ticks, both = (np.exp(-np.abs(span) * mechanism.step / scale) for scale in mechanism.scales)
    shifted = np.array([np.interp(span - c, span, ticks, left=0, right=0) for c in range(-200, 201)])  # [c, total]
    joint = shifted.T @ (both[20:-20, None] * shifted)  # both totals, without the answers
    worst, seen = 0.0, range(-8, 12)
    first = [[joint[220 + y - a].sum() for y in seen] for a in range(chain.states)]
    worst = float(np.ptp(np.log(first), axis=0).max())
    told = np.zeros((chain.states, len(seen), len(seen)))
    for a, b in itertools.product(range(chain.states), repeat=2):
        rows, columns = (np.array(seen) + 220 - total for total in (a, a + b))
        told[b] += law[a] * kernel[a, b] / law[b] * joint[np.ix_(rows, columns)]
    return max(worst, float(np.ptp(np.log(told), axis=0).max()))


@pytest.mark.parametrize("power", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("chain", [*CHAINS.values(), STILL], ids=[*CHAINS, "still"])
def test_the_accountant_of_what_records_cost_at_each_age_covers_it(chain, power) -> None:
    """Every window of two ticks; as if a record cost what it did when young, it would not be."""
    mechanism = baselines.GradualExpiration(window=2, power=power).calibrate(chain, csdp.Sum(), epsilon=0.6)
    truth = expiring_truth(chain, mechanism)
    assert truth <= mechanism.certify()
    assert mechanism.losses[-1] == mechanism.epsilon == pytest.approx(0.6)
    young = csdp.Accountant(csdp.Plan(chain, csdp.Sum(), 0, mechanism.losses[0])).after(2).epsilon
    if power and chain is STILL:
        assert truth > young


def test_expiring_windows_of_noise_on_every_total() -> None:
    """Hardly any noise but that of single ticks, four of them: totals with noise each, by enumeration of all paths."""
    mechanism = baselines.GradualExpiration(window=4, power=40.0).calibrate(SYMMETRIC, csdp.Sum(), epsilon=1.2)
    assert np.diff(mechanism.losses) == pytest.approx([0.3] * 3)
    plain = StrategyRelease(
        "totals", "none", SYMMETRIC, mechanism.query, 1.2, (mechanism.scales[0],),
        np.tril(np.ones((4, 4))), np.arange(4), mechanism.step, False,
    )  # fmt: skip
    told = plain.leakage().value
    assert told is not None
    assert told <= mechanism.certify()
    assert told > csdp.Accountant(csdp.Plan(SYMMETRIC, csdp.Sum(), 0, 0.3)).limit().epsilon
    assert mechanism.certify(age=1) < mechanism.certify()


# ---------------------------------------------------------------- without end


def test_history_errors_against_simulation() -> None:
    """Of a Markov chain of two states, noise on every answer, age 1: estimates fitted on a long path do as well."""
    chain, noise, ticks = SYMMETRIC, 0.5, 4
    covariance, spread = 0.25 * 0.4 ** np.arange(3 * ticks), noise * np.eye(ticks)
    answer, total = history_errors(covariance, np.eye(ticks), np.arange(ticks) + 1, spread)
    path = chain.simulate(60_000, seed=1)[:, 0].astype(float)
    noisy = path + np.random.default_rng(2).normal(0.0, noise**0.5, path.size)
    windows = np.arange(2 * ticks, path.size - ticks, ticks)
    errors = []
    for tick in range(ticks):
        now = windows + tick
        design = np.column_stack([np.ones(now.size), *(noisy[now - lag] for lag in range(1, 2 * ticks))])
        for wanted in (path[now], sum(path[windows + t] for t in range(tick + 1))):
            errors.append(float(((wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0]) ** 2).mean()))
    assert np.mean(errors[::2]) == pytest.approx(answer, rel=0.03)
    assert np.mean(errors[1::2]) == pytest.approx(total, rel=0.03)
    assert answer < history_errors(covariance, np.eye(ticks), np.arange(ticks) + 2, spread)[0]


def test_the_table_without_end() -> None:
    table = csdp.compare(SYMMETRIC, csdp.Mean(), budget=0.5, max_age=1, releases="continual")
    ours = table["ours"]
    assert ours.leakage.value is not None
    assert ours.leakage.value <= 0.5
    assert {"laplace", "tree", "toeplitz", "expiring", "wavelet", "fourier", "pegasus", "w-event-bd", "no-data"} <= {
        row.name for row in table.rows
    }
    for row in table.rows:
        assert row.mse is not None
        if row.verdict == "ours":
            continue
        assert row.mse <= table.no_data * (1 + 1e-9)
        if row.name != "no-data":
            assert row.leakage.at_most is not None
            assert row.leakage.at_most <= 0.5
        better = row.mse < ours.mse * (1 - 0.01)
        assert not better or row.verdict == "BETTER"
    assert {row.name for row in table.better} == {row.name for row in table.rows if row.verdict == "BETTER"}
    assert table.to_dict()["releases"] == "continual"
    with pytest.raises(KeyError, match="no such row"):
        table["nobody"]


def test_where_others_win_the_table_says_so() -> None:
    """One value that hardly ever changes, fresh answers only: a sum of answers is told better by a tree."""
    table = compare_continual(SYMMETRIC, csdp.Mean(), budget=0.5, max_age=0, window=4)
    better = {row.name: row.total_mse for row in table.better_totals}
    for row in table.rows:
        if row.total_mse is not None and row.verdict != "ours":
            assert (row.name in better) == (row.total_mse < table["ours"].total_mse * (1 - 1e-6))
    assert ("NOT the best" in table.headline) == bool(table.better or table.better_totals)


def test_what_has_no_comparison_without_end_is_refused() -> None:
    for options, message in (
        ({"max_mse": 0.1, "releases": "continual"}, "give budget"),
        ({"budget": 0.1, "releases": 3}, "1 or 'continual'"),
    ):
        with pytest.raises(InputError, match=message):
            csdp.compare(SYMMETRIC, csdp.Mean(), **options)
    with pytest.raises(InputError, match="outputs"):
        csdp.compare(SYMMETRIC, csdp.Histogram(), budget=0.5, releases="continual")
    with pytest.raises(InfeasibleError, match="cannot be met for ever"):
        csdp.compare(SYMMETRIC, csdp.Mean(), budget=1e-9, max_age=0, releases="continual")
