"""What streams that decide by hidden noise tell at most: the recursion for any mechanism, and each of them by itself.

Nothing here is sampled: probabilities of outputs are added up over all paths, and integrated over hidden noise.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from study.baselines.temporal import newest_bound

import csdp
import oracle
from study import baselines

SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
CYCLE = csdp.CoupledChain([[1.0]], [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
SLOW = csdp.CoupledChain([[1.0]], [[0.95, 0.05], [0.05, 0.95]])
SLOW_PAIR = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.95, 0.05], [0.05, 0.95]])
CHAINS = {"symmetric": SYMMETRIC, "skewed": SKEWED, "cycle": CYCLE, "slow": SLOW}


def paths(chain, ticks):
    """All paths of joint states, and the probability of each in the long run."""
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    found = np.array(list(itertools.product(range(len(law)), repeat=ticks)))
    mass = law[found[:, 0]] * np.prod([kernel[a, b] for a, b in itertools.pairwise(found.T)], axis=0)
    return found, mass


def given(chain, log_likelihood, tick):
    """ln Pr(output | joint state at a tick), for outputs (paths, outputs)."""
    walked, mass = paths(chain, round(math.log(len(log_likelihood), chain.size)))
    top = log_likelihood.max(axis=0)
    rows = []
    for x in range(chain.size):
        here = walked[:, tick] == x
        rows.append(np.log(mass[here] @ np.exp(log_likelihood[here] - top) / mass[here].sum()) + top)
    return np.array(rows)


def told(chain, log_likelihood, tick, adversary="any two"):
    """The largest log ratio of an output between two values of a tick's snapshot that the adversary compares."""
    rows = given(chain, log_likelihood, tick)
    snaps = oracle.snapshots(chain.sequences, chain.states)
    apart = [
        (a, b)
        for a, b in itertools.permutations(range(len(snaps)), 2)
        if adversary == "any two" or sum(u != v for u, v in zip(snaps[a], snaps[b], strict=True)) == 1
    ]
    return max(float((rows[a] - rows[b]).max()) for a, b in apart)


def block_cost(log_likelihood, size, ticks, window):
    """How far a log-probability moves when any `window` consecutive ticks of a path change, by looking at all."""
    cube = log_likelihood.reshape((size,) * ticks)
    worst = 0.0
    for first in range(ticks - window + 1):
        block = tuple(range(first, first + window))
        worst = max(worst, float((cube.max(axis=block) - cube.min(axis=block)).max()))
    return worst


def random_mechanism(rng, size, ticks):
    """ln Pr(one output | path): all ticks speak for the same states, more or less, and pairs of ticks add their own."""
    side, found = rng.uniform(-1, 1, size), np.zeros((size,) * ticks)
    for t in range(ticks):
        one = rng.uniform(0.5, 1) * side + rng.uniform(-0.3, 0.3, size)
        found = found + one.reshape([size if k == t else 1 for k in range(ticks)])
    for a, b in itertools.combinations(range(ticks), 2):
        pair = rng.uniform(-1, 1, (size, size)) * rng.uniform(0, 0.2)
        found = found + pair.reshape([size if k in {a, b} else 1 for k in range(ticks)])
    return (rng.uniform(0.1, 3) * found).reshape(-1, 1)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("window", [1, 3])
def test_any_mechanism_is_within_the_bound(name, window):
    """Also those that look at all ticks at once."""
    chain, ticks = CHAINS[name], 5 if CHAINS[name].size == 2 else 4
    rng = np.random.default_rng(window)
    for _ in range(25):
        mechanism = random_mechanism(rng, chain.size, ticks)
        cost = block_cost(mechanism, chain.size, ticks, window)
        assert told(chain, mechanism, ticks - 1) <= newest_bound(chain, cost, window=window)


def laplace_above(x, scale):
    """Pr(Laplace noise > x)."""
    return np.where(x > 0, 0.5 * np.exp(-np.abs(x) / scale), 1 - 0.5 * np.exp(-np.abs(x) / scale))


def budget(scheme, epsilon, window, flags):
    """What a publication may spend at the next tick, straight from the rules of both schemes."""
    t, half = len(flags), epsilon / 2
    if scheme == "w-event-bd":
        spent = {}
        for k, flag in enumerate(flags):
            left = half - sum(e for j, e in spent.items() if j > k - window)
            spent |= {k: left / 2} if flag else {}
        return (half - sum(e for j, e in spent.items() if j > t - window)) / 2
    share, free = half / window, 0  # the first tick whose share nobody has taken or must give back
    for k, flag in enumerate(flags):
        if flag:
            absorbed = min(k - free + 1, window)
            free = k + absorbed
    return 0.0 if t < free else share * min(t - free + 1, window)


def window_likelihood(scheme, chain, epsilon, window, ticks, grid):
    """ln Pr(which ticks are published, and at which values | path), for every such output on a grid of values."""
    answers = np.mean(oracle.snapshots(chain.sequences, chain.states), axis=1)
    walked, _ = paths(chain, ticks)
    delta = 1 / chain.sequences
    columns = []
    for flags in itertools.product((False, True), repeat=ticks):
        levels = [budget(scheme, epsilon, window, flags[:t]) for t in range(ticks)]
        if any(flag and level <= 0 for flag, level in zip(flags, levels, strict=True)):
            continue
        for shown in itertools.product(grid, repeat=sum(flags)):
            values, last, total = iter(shown), 0.0, np.zeros(len(walked))
            for t, (flag, level) in enumerate(zip(flags, levels, strict=True)):
                if level <= 0:
                    continue
                answer = answers[walked[:, t]]
                above = laplace_above(delta / level - np.abs(answer - last), 2 * window * delta / epsilon)
                total += np.log(above if flag else 1 - above)
                if flag:
                    last = next(values)
                    total -= np.abs(last - answer) * level / delta
            columns.append(total)
    return np.array(columns).T


@pytest.mark.parametrize("made", [baselines.WindowDistribution, baselines.WindowAbsorption], ids=["bd", "ba"])
@pytest.mark.parametrize(("chain", "window", "ticks"), [(SKEWED, 3, 4), (SLOW, 2, 4), (SLOW_PAIR, 2, 3)])
def test_w_event_streams_are_within_their_bound(made, chain, window, ticks):
    epsilon = 2.0
    mechanism = made(window=window).calibrate(chain, csdp.Mean(), epsilon=epsilon)
    grid = (-3.0, 0.0, 1.0, 4.0) if chain.sequences == 1 else (-3.0, 0.5, 4.0)
    outputs = window_likelihood(made.name, chain, epsilon, window, ticks, grid)
    assert 0 < told(chain, outputs, ticks - 1, "informed") <= mechanism.leakage().at_most
    for column in outputs.T:  # what w-event privacy itself promises, of all records of a component
        assert block_cost(column[:, None], chain.size, ticks, window) <= epsilon * chain.sequences * (1 + 1e-9)


def group_patterns(ticks):
    """All ways to cut a stream: for every tick whether its group ends there, tests at open groups only."""
    patterns = [()]
    for _ in range(ticks):
        patterns = [
            (*p, (start, verdict))
            for p in patterns
            for start, verdict in (
                [(True, None)] if not p or p[-1][1] is True else [(False, True), (False, False)]
            )
        ]  # fmt: skip
    return patterns


def pegasus_likelihood(mechanism, chain, ticks, grid):
    """ln Pr(perturbed values, where groups end | path); the hidden threshold of a group is integrated over."""
    answers = np.mean(oracle.snapshots(chain.sequences, chain.states), axis=1)
    walked, _ = paths(chain, ticks)
    own, threshold, wobble = mechanism.scales
    hidden = np.linspace(-30, 30, 6001) * threshold
    weight = np.exp(-np.abs(hidden) / threshold)
    weight /= weight.sum()
    cuts = []
    for pattern in group_patterns(ticks):
        logs = np.zeros(len(walked))
        for k, path in enumerate(walked):
            values, start, inside = answers[path], 0, weight
            for t, (opens, ends) in enumerate(pattern):
                if opens:
                    logs[k] += math.log(inside.sum())
                    start, inside = t, weight
                    continue
                part = values[start : t + 1]
                above = laplace_above(5 * own + hidden - np.abs(part - part.mean()).sum(), wobble)
                inside = inside * (above if ends else 1 - above)
            logs[k] += math.log(inside.sum())
        cuts.append(logs)
    columns = []
    for shown in itertools.product(grid, repeat=ticks):
        values = -np.abs(np.array(shown) - answers[walked]).sum(axis=1) / own
        columns += [values + cut for cut in cuts]
    return np.array(columns).T


@pytest.mark.parametrize(("chain", "ticks", "share"), [(SKEWED, 4, 0.2), (SLOW, 4, 0.8), (SLOW_PAIR, 3, 0.8)])
def test_pegasus_is_within_its_bound(chain, ticks, share):
    """Everything that it draws from, perturbed values and groups, tells at most that; medians of it tell no more."""
    epsilon = 1.5
    mechanism = baselines.Pegasus(share=share).calibrate(chain, csdp.Mean(), epsilon=epsilon)
    outputs = pegasus_likelihood(mechanism, chain, ticks, (0.0, 1.0))
    for column in outputs.T:  # event-level privacy, of all records of a tick; a thousandth for the integral
        assert block_cost(column[:, None], chain.size, ticks, 1) <= epsilon * chain.sequences * 1.001
    assert 0 < told(chain, outputs, ticks - 1, "informed") <= mechanism.leakage().at_most
    plain = csdp.Accountant(csdp.Plan(chain, csdp.Mean(), ages=0, epsilon_c=epsilon)).limit().epsilon
    assert told(chain, outputs, ticks - 1, "informed") <= plain  # as if the answer went out at every tick
    if chain is SLOW:  # its own epsilon is no bound
        assert told(chain, outputs, ticks - 1) > epsilon
