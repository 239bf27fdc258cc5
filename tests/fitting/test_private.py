"""Fitting on private readings: what one reading can change, what is drawn, and that nothing else is looked at."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting import private
from csdp.fitting.sample import Graph, complete_graph, graph_of_pairs, pair_counts, read_sample
from csdp.noise import variance
from fitting.systems import random_chain

pytestmark = pytest.mark.usefixtures("ungrown")


def test_private_data_warns_unless_public_or_paid_for():
    states = random_chain(1, 2, 2).simulate(200, seed=1)
    with pytest.warns(PrivacyLeakWarning, match="public=True"):
        csdp.fit(states)
    csdp.fit(states, public=True)  # warnings are errors here
    csdp.fit(states, states=2, epsilon=1.0)


def _changes(states, m):
    """Every panel that differs in one reading."""
    for t, i in np.ndindex(states.shape):
        for value in range(m):
            if value != states[t, i]:
                other = states.copy()
                other[t, i] = value
                yield other


@pytest.mark.parametrize(
    "graph", [complete_graph(3), graph_of_pairs([[0, 1]], 3), graph_of_pairs(np.empty((0, 2), int), 3)]
)
def test_one_reading_moves_no_more_counts_than_stated(graph):
    """By brute force over all neighbouring panels; the stated number is reached where the graph is complete."""
    m, largest = 3, 0
    for seed in range(4):
        states = np.random.default_rng(seed).integers(0, m, (5, 3))
        counts = pair_counts(read_sample(states, states=m), graph)
        for other in _changes(states, m):
            moved = int(np.abs(pair_counts(read_sample(other, states=m), graph) - counts).sum())
            largest = max(largest, moved)
    assert largest <= private.pair_sensitivity(graph)
    assert largest == private.pair_sensitivity(graph)  # so a smaller number would be wrong


def test_the_sensitivity_of_all_pairs_is_four_s():
    assert [private.pair_sensitivity(complete_graph(s)) for s in (1, 2, 10)] == [4, 8, 40]
    star = graph_of_pairs([[j, 0] for j in range(1, 10)], 10)  # all follow the first
    assert private.pair_sensitivity(star) == 2 * (1 + 10)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"epsilon": 0.5}, Fraction(12) / Fraction(0.5)),
        ({"epsilon": 2.0, "neighbours": 1}, Fraction(12) / 2),  # a choice from the data looks at all pairs
        ({"epsilon": 1.0, "neighbours": 0}, Fraction(4)),
    ],
)
def test_the_noise_that_is_drawn(monkeypatch, settings, scale):
    drawn = []

    def watched(given_scale, shape, randomness):
        drawn.append((given_scale, randomness.unsafe))
        return original(given_scale, shape, randomness)

    original = private.two_sided_geometric
    monkeypatch.setattr(private, "two_sided_geometric", watched)
    chain = csdp.fit(random_chain(2, 3, 2).simulate(300, seed=1), states=2, **settings)
    assert drawn == [(scale, False)]
    assert chain.fit_cost["epsilon"] == settings["epsilon"]
    assert Fraction(chain.fit_cost["sensitivity"]) / Fraction(settings["epsilon"]) == scale


@pytest.mark.parametrize("settings", [{}, {"neighbours": 2}])
def test_nothing_but_the_noised_counts_is_looked_at(monkeypatch, settings):
    """With the noised counts held fixed, two quite different panels give the same chain, record and family."""

    def fixed(counts, scale):
        return np.random.default_rng(0).integers(0, 50, counts.shape).astype(np.float64)

    monkeypatch.setattr(private, "add_count_noise", fixed)
    monkeypatch.setattr(private.secrets, "token_hex", lambda size: "the same draw")
    one, other = (random_chain(seed, 4, 2).simulate(400, seed=seed).astype(int) for seed in (1, 2))
    other[:] = 1 - other  # and one that never changes
    same = np.zeros_like(one)
    gaps = np.random.default_rng(3).random(one.shape) < 0.05
    chains = []
    for states in (one, other, same):
        states[gaps] = -1
        chains.append(csdp.fit(states, states=2, epsilon=1.0, **settings))
    for chain in chains[1:]:
        assert chain == chains[0]
        assert chain.fitted == chains[0].fitted
        assert chain.family == chains[0].family


def test_the_noise_has_the_stated_law():
    """Variance within 6 % of the law's, eight standard errors at this size; a scale 1.3 times as large fails."""
    counts = np.zeros(400_000, dtype=np.int64)
    scale = private.noise_scale(20, 0.5)
    right, wrong = private.add_count_noise(counts, scale).var(), private.add_count_noise(counts, scale * 13 / 10).var()
    assert abs(right / variance(scale) - 1) < 0.06
    assert abs(wrong / variance(scale) - 1) > 0.06


@pytest.mark.parametrize("wrong", [0, float("nan"), "1"])
def test_a_wrong_epsilon_is_refused(wrong):
    with pytest.raises(InputError, match="epsilon"):
        csdp.fit(np.zeros((9, 2), int), states=2, epsilon=wrong)


def test_the_number_of_states_must_be_declared():
    with pytest.raises(InputError, match="states: with epsilon"):
        csdp.fit(np.zeros((9, 2), int), epsilon=1.0)
    declared = csdp.Panel.from_states(np.zeros((9, 2), int), values=[0.0, 1.0])
    assert csdp.fit(declared, epsilon=1.0).states == 2


def test_too_many_for_moments_is_refused():
    with pytest.raises(InputError, match="moments"):
        csdp.fit(np.zeros((5, 1600), int), states=2, epsilon=1.0, neighbours=0)
    assert isinstance(complete_graph(2), Graph)


NUMBERS = np.random.default_rng(5).normal(20.0, 3.0, (300, 2))


def private_panel(**settings):
    with pytest.warns(PrivacyLeakWarning):
        return csdp.Discretiser.fit(NUMBERS, **settings).apply(NUMBERS)


@pytest.mark.parametrize(
    ("settings", "paid"),
    [({"states": 3, "bounds": (0, 40)}, {"epsilon": 0.1}), ({"strategy": "uniform", "states": 2}, {"public": True})],
)
def test_states_learned_from_private_readings_cannot_be_paid_for(settings, paid):
    """The chain publishes edges and values, and one changed reading moves them with certainty."""
    panel = private_panel(**settings)
    for part in (panel, panel.between(0, 200), panel.arrange(panel.names[::-1])):
        assert part.source == "private"
        with pytest.raises(InputError, match=r"come from private readings.*Declare edges"):
            csdp.fit(part, **paid)


def test_states_that_are_declared_or_public_can_be_paid_for():
    declared = csdp.Discretiser.declared(["x1", "x2"], states=2, bounds=(0, 40))
    known = csdp.Discretiser.fit(NUMBERS[:150], states=2, public=True)
    for discretiser, source in ((declared, "declared"), (known, "public")):
        panel = discretiser.apply(NUMBERS[150:])
        assert panel.source == source
        assert csdp.fit(panel, epsilon=1.0).fit_cost["epsilon"] == 1.0


def test_states_learned_from_private_readings_are_not_released_under_a_finite_event_level(tmp_path):
    """One reading moves the edges, and so the states of other ticks, which the noise of a release does not cover."""
    panel = private_panel(states=2)
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    with (
        csdp.Publisher(csdp.Plan(chain, csdp.Mean(), 1, 1.0), dataset="d", ledger=tmp_path / "l.db") as publisher,
        pytest.raises(InputError, match="discretiser: its edges and values come from private readings"),
    ):
        publisher.publish(panel)
