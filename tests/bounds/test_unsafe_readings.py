"""Readings of the recursion that are unsafe: each falls below brute force where the engine, as documented, does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
from csdp.accountant.moment import every_moment
from csdp.bounds.graph import GraphRule
from csdp.errors import InputError
from oracle import Changing, Output, Rooted, World, conditional_law, digits_of, joint_kernel, mixture_law, reverse
from oracle import stationary as stationary_law

from bounds.graphs import certified, graph_of, limits_of, limits_window, mixture_window, stationary_pairs, truth  # isort: skip

BIT = np.array([[0.0], [1.0]])
SUM = digits_of(2, 2).sum(axis=1, keepdims=True).astype(float)
KEEP, ANYTHING = np.eye(2), np.full((2, 2), 0.5)
APART = 1.0 - np.eye(2)


def flip(p):
    return np.array([[1 - p, p], [p, 1 - p]])


def without(window, unwanted):
    """A window without some edges."""
    kept = [n for n, edge in enumerate(window["edges"]) if tuple(edge) not in unwanted]
    return {name: [rows[n] for n in kept] for name, rows in window.items()}


def check(*, told, sound, unsafe, numbers):
    """The truth and the unsafe number, as they are known; the engine is not below the truth, the other one is."""
    assert (told, unsafe) == pytest.approx(numbers, abs=6e-4)
    assert unsafe < told - 1e-3
    assert sound >= told * (1 - 1e-9)


# ---- one tick --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("completion", [(1, 0, 0, 1.0, KEEP), (1, 0, 1, 1.0, KEEP)], ids=["the copy", "the root"])
def test_what_never_occurs_is_completed_by_one_law_for_all_edges(completion):
    """Two values of a tick are both x: given one of them, x never changes the other, and the other way round."""
    edges = [(0, 0, 1, 1.0, KEEP), completion]
    check(
        told=truth(mixture_law([edges], 2), 2, 2, f=SUM, rate=1.0, ages=1),
        sound=certified(csdp.InfluenceGraph(2, (0, 1), [edges]), csdp.Sum(), ages=1, epsilon_c=1.0),
        unsafe=certified(graph_of(2, 2, [[limits_window([(0, [(0, 1)], KEEP)])]]), csdp.Sum(), ages=1, epsilon_c=1.0),
        numbers=(2.0, 1.0),
    )


def test_a_law_inside_a_tick_is_given_the_values_before_it_not_all_others():
    edges = [(0, 0, 1, 1.0, flip(0.1)), (1, 0, 0, 1.0, flip(0.05))]
    both = np.einsum("xu,uv->xvu", flip(0.1), flip(0.05))
    both /= both.sum(axis=-1, keepdims=True)
    regressions = limits_window([(0, [(0, 1), (1, 0)], both), (1, [(0, 0)], flip(0.05))])
    with pytest.raises(InputError, match="at lag 0 a parent must have a smaller number"):
        graph_of(2, 2, [[regressions]])
    check(
        told=truth(mixture_law([edges], 2), 2, 2, f=SUM, rate=1.0, ages=1),
        sound=certified(csdp.InfluenceGraph(2, (0, 1), [edges]), csdp.Sum(), ages=1, epsilon_c=1.0),
        unsafe=certified(graph_of(2, 2, [[without(regressions, {(0, 1, 0)})]]), csdp.Sum(), ages=1, epsilon_c=1.0),
        numbers=(1.352802, 0.996407),
    )


def parents_of_one(table):
    """A previous value of the first sequence with two parents, the other one a coin: its law and its tables."""
    tables = [(0, [(0, 1), (1, 1)], np.asarray(table)), (1, [], np.array([0.5, 0.5]))]

    def law(i, tick):
        return ((), np.array([0.5, 0.5])) if tick == 0 or i else ([(0, tick + 1), (1, tick + 1)], tables[0][2])

    return law, tables


def test_parents_are_not_found_pairwise():
    law, tables = parents_of_one([KEEP, KEEP[::-1]])  # exclusive or
    pairwise = [(0, [(0, 1)], tables[0][2].mean(axis=1)), (0, [(1, 1)], tables[0][2].mean(axis=0))]
    check(
        told=truth(law, 2, 2, f=SUM, rate=1.0, ages=1),
        sound=certified(graph_of(2, 2, [[limits_window(tables)]]), csdp.Sum(), ages=1, epsilon_c=1.0),
        unsafe=certified(graph_of(2, 2, [[limits_window(pairwise)]]), csdp.Sum(), ages=1, epsilon_c=1.0),
        numbers=(1.0, 0.0),
    )


def test_a_base_is_the_least_probability_not_an_average():
    law, tables = parents_of_one([[[0.99, 0.01], [0.3, 0.7]], [[0.84, 0.16], [0.3, 0.7]]])
    least = limits_window(tables)
    average = {**least, "bases": [tables[0][2].mean(axis=1 - n).tolist() for n in range(2)]}
    check(
        told=truth(law, 2, 2, f=SUM, rate=4.0, ages=1),
        sound=certified(graph_of(2, 2, [[least]]), csdp.Sum(), ages=1, epsilon_c=4.0),
        unsafe=certified(graph_of(2, 2, [[average]]), csdp.Sum(), ages=1, epsilon_c=4.0),
        numbers=(3.222, 2.035),
    )


# ---- readings and caps -----------------------------------------------------------------------------------------------


def test_a_missing_reading_takes_away_the_cost_and_not_the_value():
    edges = [(0, 0, 1, 1.0, flip(0.1))]
    plan = csdp.Plan(csdp.InfluenceGraph(1, (0, 1), [edges]), csdp.Sum(), 1, 1.0)
    accountant = csdp.Accountant(plan)
    once = accountant.release(accountant.start(), 1)
    rule = GraphRule([graph_of(1, 2, [[mixture_window(edges)]]).worlds[0]])
    told = Rooted(mixture_law([edges], 2), 1, 2).told([Output((0,), BIT, 1.0)], 2)
    deleted = rule.present(rule.advance(rule.start()))  # nothing hands on what is older than the value that is gone
    check(told=told, sound=accountant.epsilon(once, 2), unsafe=float(deleted.max()), numbers=(0.610, 0.0))


def test_a_cap_is_infinite_at_all_slices_that_may_have_been_read():
    windows = [[(0, 0, 1, 1.0, flip(0.1))], [(0, 0, 2, 1.0, flip(0.1))]]
    graph = csdp.InfluenceGraph(1, (0, 1), windows)
    rule = GraphRule(graph.worlds)
    newest_alone = rule.start()
    newest_alone[0] = np.where(APART > 0, np.inf, 0.0)
    check(
        told=truth(mixture_law(windows, 2), 1, 2, f=BIT, rate=6.0, ages=2, releases=5),
        sound=float(rule.cap(2).max()),
        unsafe=float(rule.present(rule.advance(newest_alone, 2)).max()),
        numbers=(3.710, 2.197),
    )
    accountant = csdp.Accountant(csdp.Plan(graph, csdp.Sum(), 2, 6.0))
    assert accountant.after(5).epsilon <= accountant.limit().epsilon <= float(rule.cap(2).max())


# ---- windows near the present ----------------------------------------------------------------------------------------


def order_two(weight, first, second, before=6, after=0):
    """A stationary process that follows its last value or the one before it: its law, and the last window's edges."""
    kernel = weight * np.asarray(first)[None] + (1 - weight) * np.asarray(second)[:, None]
    law = conditional_law(stationary_pairs(kernel, 2, 1, before + after + 1), 1, -before, 2)
    return law, limits_of(law, 1, 2, memory=2, depth=before, ahead=after)


def test_the_newest_past_value_has_a_law_of_its_own():
    """Not the law given two newer values, nor that law without its edges of lag 2."""
    edges = [(0, 0, 1, 0.1, flip(0.01)), (0, 0, 2, 0.9, flip(0.01))]
    with pytest.raises(InputError, match="lag 2 given at distance 1"):
        csdp.InfluenceGraph(1, (0, 1), [edges, edges])
    law, graph = order_two(0.1, flip(0.01), flip(0.01))
    last = limits_window([(0, [(0, 1), (0, 2)], mixture_law([edges], 2)(0, -2)[1])])
    check(
        told=truth(law, 1, 2, f=BIT, rate=1.0, ages=1),
        sound=certified(graph, csdp.Sum(), ages=1, epsilon_c=1.0),
        unsafe=certified(graph_of(1, 2, [[without(last, {(0, 0, 2)}), last]]), csdp.Sum(), ages=1, epsilon_c=1.0),
        numbers=(0.809, 0.153),
    )


def test_edges_of_lag_two_do_not_move_to_lag_one():
    law, graph = order_two(0.5, flip(0.9), flip(0.1))
    moved = [[(0, 0, 1, 1.0, 0.5 * flip(0.9) + 0.5 * flip(0.1))]]
    check(
        told=truth(law, 1, 2, f=BIT, rate=1.0, ages=1),
        sound=certified(graph, csdp.Sum(), ages=1, epsilon_c=1.0),
        unsafe=certified(csdp.InfluenceGraph(1, (0, 1), moved), csdp.Sum(), ages=1, epsilon_c=1.0),
        numbers=(0.637, 0.0),
    )


def test_the_window_of_the_newest_value_does_not_hold_for_older_ones():
    law, graph = order_two(0.5, flip(0.1), flip(0.1))
    everywhere = csdp.InfluenceGraph(1, (0, 1), [[(0, 0, 1, 1.0, law(0, -1)[1])]])
    check(
        told=truth(law, 1, 2, f=BIT, rate=2.0, ages=3, releases=3),
        sound=certified(graph, csdp.Sum(), ages=3, epsilon_c=2.0, releases=3),
        unsafe=certified(everywhere, csdp.Sum(), ages=3, epsilon_c=2.0, releases=3),
        numbers=(1.334, 0.570),
    )


@pytest.mark.parametrize(("followers", "numbers"), [(4, (1.303, 0.330)), (32, (3.435, 0.352))])
def test_a_newer_value_that_is_not_known_yet_ties_its_followers_together(followers, numbers):
    """They copy it two ticks back, each by itself; one tick before the present nobody knows it."""
    chance, epsilon_c = (0.05, 1.0) if followers == 4 else (0.05, 0.2)
    rare = np.array([[1.0, 0.0], [1 - chance, chance]])
    first = [(0, 0, 1, 1.0, ANYTHING), (1, 0, 1, 1.0, rare)]
    tied = [*first, *((k, k - 1, 0, 1.0, KEEP) for k in range(2, followers + 1))]
    apart = [*first, *((k, 0, 1, 1.0, rare) for k in range(2, followers + 1))]
    last = [first[0], *((k, 0, 2, 1.0, KEEP) for k in range(1, followers + 1))]
    told = math.log(1 + chance * math.expm1(followers * epsilon_c))
    if followers == 4:
        f = digits_of(5, 2).sum(axis=1, keepdims=True)
        assert truth(mixture_law([tied, last], 2), 5, 2, f=f, rate=epsilon_c, ages=1) == pytest.approx(told)
    sound, unsafe = (
        certified(csdp.InfluenceGraph(followers + 1, (0, 1), [near, last]), csdp.Sum(), ages=1, epsilon_c=epsilon_c)
        for near in (tied, apart)
    )
    check(told=told, sound=sound, unsafe=unsafe, numbers=numbers)


# ---- other adversaries -----------------------------------------------------------------------------------------------


def test_present_values_that_are_not_known_are_no_roots():
    """The second present value copies the first with .95; both are published at age 0."""
    graph = csdp.InfluenceGraph(2, (0, 1), [[(0, 0, 1, 1.0, ANYTHING), (1, 1, 1, 1.0, ANYTHING)]])
    laws = {0: ((), np.array([0.5, 0.5])), 1: ([(0, 0)], flip(0.05))}
    told = [
        Rooted(lambda i, tick: laws[i], 2, 2).told([Output((0, 0), SUM, 1.0)], 0, adversary)
        for adversary in ("informed", "uninformed")
    ]
    sound = certified(graph, csdp.Sum(), ages=0, epsilon_c=1.0)
    assert told[0] == pytest.approx(sound)
    assert told[1] == pytest.approx(1 + math.log((0.95 * math.e + 0.05) / (0.05 * math.e + 0.95)))  # 1.888
    with pytest.raises(InputError, match="'informed' only"):
        csdp.leakage(graph, csdp.Sum(), ages=0, epsilon_c=1.0, bound="influence", adversary="uninformed")


# ---- every moment ----------------------------------------------------------------------------------------------------


def test_the_past_of_a_moment_counts_at_its_full_cost_whatever_the_age():
    """What the plan reveals of the present at age 8 is not what the past reveals of a moment."""
    graph = csdp.InfluenceGraph.from_chain(csdp.CoupledChain([[1.0]], flip(0.1)))
    accountant = csdp.Accountant(csdp.Plan(graph, csdp.Sum(), 8, 0.5))
    edges = [(0, 0, 1, 1.0, flip(0.1))]
    outputs = [Output((n,), BIT, 0.5) for n in range(-7, 8)]
    told = Rooted(mixture_law([edges], 2, edges), 1, 2).told(outputs, 0)
    unsafe = 2 * accountant.limit().epsilon + 0.5
    check(told=told, sound=accountant.every_moment(), unsafe=unsafe, numbers=(3.017, 0.985))
    assert accountant.every_moment() == pytest.approx(3.119, abs=6e-4)  # with any number of releases


def test_under_longer_memory_past_and_future_do_not_add_up():
    """Two sequences copy the first one two ticks later: the next tick follows the tick before the moment."""
    newest = [(k, 0, 1, 1.0, flip(0.1) if k == 0 else ANYTHING) for k in range(3)]
    older = [(k, 0, 1, 1.0, ANYTHING) for k in range(3)]
    future = [(0, 0, 1, 1.0, ANYTHING), *((k, 0, 2, 1.0, flip(0.1)) for k in (1, 2))]
    graph = graph_of(3, 2, [[mixture_window(newest), mixture_window(older)]], [mixture_window(future)])
    cost = np.tile(APART, (3, 1, 1))
    past = csdp.Accountant(csdp.Plan(graph, csdp.Sum(), 0, 1.0)).limit().epsilon  # with the moment itself
    ahead = GraphRule([(graph.forward[0],) * 2]).pull(cost, 2, 2)
    f = digits_of(3, 2).sum(axis=1, keepdims=True)
    outputs = [Output((n,) * 3, f, 1.0) for n in range(-1, 3)]
    check(
        told=Rooted(mixture_law([newest, older], 2, future), 3, 2).told(outputs, 0),
        sound=float(every_moment(graph, cost).max()),
        unsafe=past + float(ahead.max()),
        numbers=(4.227, 3.328),
    )


def test_the_forward_law_of_a_coupled_backward_chain_is_no_product():
    coupling = [[0.8, 0.2], [0.8, 0.2]]
    kernel = joint_kernel(coupling, flip(0.05))
    ahead = reverse(kernel, stationary_law(kernel)).reshape(2, 2, 2, 2)
    joint = np.einsum("x,xyab->xyab", stationary_law(kernel), ahead.reshape(4, 1, 2, 2)).reshape(2, 2, 2, 2)
    law = conditional_law(joint, 2, 0, 1)
    parents = [(0, 1), (1, 1)]
    product = limits_window([(0, parents, ahead.sum(axis=3)), (1, parents, ahead.sum(axis=2))])
    exact = limits_window([(i, [(k, 1 - n) for k, n in law(i, 1)[0]], law(i, 1)[1]) for i in range(2)])
    told = Rooted(law, 2, 2).told([Output((1, 1), SUM, 1.0)], 0)
    cost = np.tile(APART, (2, 1, 1))
    sound, unsafe = (
        float(rule.present(rule.advance(rule.add(rule.start(), cost))).max())
        for rule in (GraphRule(graph_of(2, 2, [[window]]).worlds) for window in (exact, product))
    )
    check(told=told, sound=sound, unsafe=unsafe, numbers=(1.1358, 1.0793))
    chain = csdp.CoupledChain(coupling, flip(0.05), direction="backward")
    assert csdp.InfluenceGraph.from_chain(chain).forward is None  # never the backward one


def test_given_the_path_of_an_environment_limits_hold_for_every_path():
    """One environment nearly resets, and it nearly always holds; the other one remembers."""
    reset, remember = np.array([[0.95, 0.05], [0.95, 0.05]]), flip(0.2)
    usual = stationary_law(0.9 * reset + 0.1 * remember)
    average = (0, [(0, 1)], reverse(remember, usual))
    told, tables = 0.0, []
    for n in range(1, 8):
        path = [reset] * (8 - n) + [remember] * n
        world = Changing(reset, 1, 2, usual, 0, tuple(path))
        told = max(told, world.told([Output((7,), BIT, 2.0)], 8, "informed", begin=0))
        tables.append((0, [(0, 1)], reverse(remember, world.law_at(7))))
    check(
        told=told,
        sound=certified(graph_of(1, 2, [[limits_window(tables)]]), csdp.Sum(), ages=1, epsilon_c=2.0),
        unsafe=certified(graph_of(1, 2, [[limits_window([average])]]), csdp.Sum(), ages=1, epsilon_c=2.0),
        numbers=(1.132, 0.791),
    )


# ---- slow levels -----------------------------------------------------------------------------------------------------


def of_the_value(joint, law):
    """The most that a history reveals of a value whose hidden level nobody knows; axes (level, value)."""
    given = joint.reshape(2, 2, -1).sum(axis=0) / law.reshape(2, 2).sum(axis=0)[:, None]
    return float(np.abs(np.log(given[1] / given[0])).max())


def test_a_slow_level_needs_the_allowance_for_it():
    """A hidden level that changes once in a thousand ticks; given it, the values are independent."""
    rates, level = np.array([[0.6, 0.4], [0.4, 0.6]]), flip(0.001)
    kernel = np.einsum("lk,kx->lkx", level, rates).reshape(2, 1, 4).repeat(2, axis=1).reshape(4, 4)
    answers = np.array([[0.0], [1.0], [0.0], [1.0]])
    outputs = [Output((n, n), answers, 2.0) for n in range(-8, -16, -1)]
    told = of_the_value(*World(kernel, 2, 2).joint(outputs, 0))
    window = limits_window([(0, [(0, 1)], ANYTHING)])
    swing = math.log(0.6 / 0.4) * APART
    sound, unsafe = (
        certified(graph_of(1, 2, [[window]], swing=added), csdp.Sum(), ages=8, epsilon_c=2.0, releases=8)
        for added in (swing[None].tolist(), None)
    )
    check(told=told, sound=sound, unsafe=unsafe, numbers=(0.333, 0.0))
    assert sound == pytest.approx(0.405, abs=6e-4)


def under_a_level(change, share, back, present, *, age, releases, epsilon_c):
    """The truth, and what is certified with an allowance in the direction of each change, against it, and without.

    Given the path of the level the past lies within the limits, and the present value follows the level, too.

    Args:
        change: how often the level is drawn anew.
        share: of the second level.
        back: law of the previous value, by its level and the value.
        present: law of the present value by its level.
    """
    levels = np.array([1 - share, share])
    level = (1 - change) * np.eye(2) + change * levels
    start = levels[:, None] * present
    kernel = np.einsum("lk,kxy->lxky", level, back).reshape(4, 4)
    answers = np.array([[0.0], [1.0], [0.0], [1.0]])
    outputs = [Output((n, n), answers, epsilon_c) for n in range(age, age + releases)]
    told = of_the_value(*World(kernel, 2, 2, start.reshape(-1)).joint(outputs, 0, begin=0))
    odds = np.log(present[:, 1] / present[:, 0]) - np.log(start[:, 1].sum() / start[:, 0].sum())
    swing = np.array([[[0.0, odds.max()], [-odds.min(), 0.0]]])
    window = limits_window([(0, [(0, 1)], rows) for rows in back])
    graphs = [graph_of(1, 2, [[window]], swing=s) for s in (swing.tolist(), swing.swapaxes(1, 2).tolist(), None)]
    return told, *(certified(g, csdp.Sum(), ages=age, epsilon_c=epsilon_c, releases=releases) for g in graphs)


def test_an_allowance_from_a_to_b_is_what_the_level_adds_to_the_odds_of_b():
    back = np.array([[[0.99, 0.01], [0.99, 0.01]], [[0.99, 0.01], [0.5, 0.5]]])
    told, sound, against, _ = under_a_level(0.001, 0.1, back, flip(0.1), age=1, releases=3, epsilon_c=4.0)
    check(told=told, sound=sound, unsafe=against, numbers=(7.057, 4.554))


def test_random_slow_levels_stay_within_the_allowance():
    below = 0
    for seed in range(60):
        random = np.random.default_rng([22, seed])
        rare = 10 ** random.uniform(-3, -0.3, size=(6, 1))
        rows = np.where(random.random((6, 1)) < 0.5, np.hstack([rare, 1 - rare]), np.hstack([1 - rare, rare]))
        change, share = random.choice([0.001, 0.01, 0.1]), random.choice([0.02, 0.1, 0.5])
        asked = {"age": int(random.integers(0, 4)), "releases": int(random.integers(1, 6))}
        told, sound, _, without_it = under_a_level(
            change, share, rows[:4].reshape(2, 2, 2), rows[4:], epsilon_c=float(random.choice([1.0, 4.0])), **asked
        )
        assert sound >= told * (1 - 1e-9)
        below += without_it < told * (1 - 1e-6)
    assert below > 10
