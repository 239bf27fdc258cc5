"""Fits of a clock and a hidden environment at once: found again, scored, checked and watched."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from csdp.fitting.environment_em import pick_classes, spread_classes
from csdp.fitting.environment_prediction import EnvironmentPrediction, add_environments, start_cycle
from csdp.fitting.sample import read_sample
from csdp.fitting.scores import chain_scores

SWITCHING = [[0.9, 0.1], [0.2, 0.8]]
CYCLE = (0, 1, 1)
#: 0 to 1 and back: quiet and busy in class 0, quiet and busy in class 1
LAWS = ((0.05, 0.5), (0.5, 0.2), (0.3, 0.3), (0.8, 0.05))


def both(direction="forward", s=6, laws=LAWS) -> csdp.EnvironmentChain:
    members = [csdp.CoupledChain(np.eye(s), [[1 - p, p], [q, 1 - q]], direction=direction) for p, q in laws]
    return csdp.EnvironmentChain(members, cycle=CYCLE, switching=SWITCHING)


def fit(states, **settings):
    how = {"environment": "both", "cycle": CYCLE, "environments": 2, "ensemble": 0, "public": True, "progress": False}
    return csdp.fit(states, **(how | settings))


def _mean_matrix(chain: csdp.CoupledChain):
    """The matrix that all sequences share, from each of their own."""
    table, which = chain.transition_table
    return table[which].mean(axis=0)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_it_is_found_again_and_gains_over_each_alone(direction):
    true = both(direction)
    states = true.simulate(3000, seed=1)
    found = fit(states, direction=direction, tolerance=1e-5)
    assert (found.kind, found.cycle, found.regimes, found.direction) == ("hidden", CYCLE, 2, direction)
    errors = []
    for order in ((0, 1), (1, 0)):
        error = abs(found.switching[np.ix_(order, order)] - true.switching).max()
        for number, member in enumerate(true.environments):
            same = found.environments[number // 2 * 2 + order[number % 2]]
            error = max(error, abs(_mean_matrix(same) - _mean_matrix(member)).max())
        errors.append(error)
    assert min(errors) < 0.06
    assert max(errors) > 0.3
    assert found.fitted.converged
    assert found.fitted.monotone
    assert (found.fitted.environment, found.fitted.environments) == ("both", 2)
    ((name, gain, error),) = found.fitted.gains
    assert name == f"clock and hidden 2, {direction}"
    for alone in ({"environment": "clock", "environments": None}, {"environment": "hidden", "cycle": None}):
        ((_, less, _),) = fit(states, direction=direction, tolerance=1e-5, **alone).fitted.gains
        assert gain > less + 2 * error


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_score_is_the_law_by_enumeration(direction):
    chain = both(direction, s=2)
    states = chain.simulate(8, seed=1)[1:]  # from tick 1 on
    sample = add_environments(chain, read_sample(states, states=2), np.arange(1, 8), None)
    assert sample.environments.tolist() == [1, 1, 0, 1, 1, 0, 1]
    prediction = EnvironmentPrediction(chain, sample)
    told = sum(prediction.scores(j)[0].sum() for j in range(2))
    kernels = [member.kernel() if direction == "forward" else member.backward_kernel() for member in chain.environments]
    steps = list(itertools.pairwise(states @ [2, 1]))
    ends = steps if direction == "forward" else [(b, a) for a, b in steps]
    classes, law, total = sample.environments[1:], chain.environment_law, 0.0
    for path in itertools.product(range(2), repeat=6):
        chance = law[path[0]] * np.prod([SWITCHING[e][f] for e, f in itertools.pairwise(path)])
        members = [kernels[c * 2 + g] for c, g in zip(classes, path, strict=True)]
        total += chance * np.prod([kernel[a, b] for kernel, (a, b) in zip(members, ends, strict=True)])
    assert told == pytest.approx(np.log(total), rel=1e-12)
    scores = chain_scores(chain, read_sample(states, states=2), labels=sample.environments)
    assert scores.sum() == pytest.approx(np.log(total), rel=1e-12)
    with pytest.raises(InputError, match="labels: none given"):
        chain_scores(chain, read_sample(states, states=2))


def test_a_panel_keeps_its_clock_and_quality_fits_the_same_again():
    true = both()
    panel = csdp.Panel.from_states(true.simulate(1001, seed=2)[1:], first_tick=1)
    found = fit(panel, tolerance=1e-4, shrinkage=10.0)
    assert found.cycle == CYCLE
    quality = csdp.fit_quality(found, panel, public=True, progress=False)
    assert quality.refitted
    assert quality.explains
    ((_, gain, _),) = found.fitted.gains
    assert quality.gain == pytest.approx(gain, rel=0.02)
    late = csdp.fit_quality(true, csdp.Panel.from_states(panel.states, first_tick=2), public=True, progress=False)
    assert late.gain < csdp.fit_quality(true, panel, public=True, progress=False).gain
    assert start_cycle(true, np.array([1, 0, 1, 1])) == (1, 0, 1)


def test_classes_are_picked_and_spread():
    random = np.random.default_rng(0)
    scores, classes = random.random((5, 6)), np.array([0, 2, 1, 1, 0])
    picked = pick_classes(scores, classes, 2)
    assert picked.tolist() == [scores[n, 2 * c : 2 * c + 2].tolist() for n, c in enumerate(classes)]
    whole = spread_classes(picked, classes, 6)
    assert pick_classes(whole, classes, 2).tolist() == picked.tolist()
    assert whole.sum() == pytest.approx(picked.sum())
    assert pick_classes(scores, None, 6) is scores
    assert spread_classes(scores, None, 6) is scores


def test_the_number_of_environments_is_chosen_and_auto_tries_it():
    states = both().simulate(1000, seed=3)
    chosen = fit(states, environments=None, tolerance=1e-4)
    assert chosen.regimes >= 2
    auto = fit(states, environment="auto", environments=2, tolerance=1e-4)
    names = [name for name, _, _ in auto.fitted.gains]
    assert names[-1] == "clock and hidden 2, forward"
    assert auto.fitted.environment == "both"


def test_a_family_is_drawn_published_and_watched(tmp_path):
    true = both(s=2)
    states = true.simulate(900, seed=4)
    found = fit(states, ensemble=2, tolerance=1e-4, shrinkage=10.0)
    assert {(member.kind, member.cycle) for member in found.family.members} == {("hidden", CYCLE)}
    assert found.fitted.ensemble_method == "parametric"
    again = csdp.EnvironmentChain.from_json(found.to_json())
    assert again == found
    assert not csdp.drift(found, true.simulate(300, seed=5), public=True).drifted
    changed = both(s=2, laws=((0.5, 0.5),) * 4).simulate(600, seed=5)
    assert csdp.drift(found, changed, public=True).drifted
    plan = csdp.Plan(found, csdp.Mean(), 1, 0.3)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        assert len(publisher.publish(csdp.Panel.from_states(states[:20]))) == 19
        assert csdp.replay(publisher.ledger, dataset="d").ok


def test_it_explains_more_than_independent_chains():
    states = both(s=3).simulate(600, seed=6)
    settings = {"environment": "both", "cycle": CYCLE, "environments": 2, "tolerance": 1e-5}
    fitted = csdp.fit(states, public=True, ensemble=0, **settings)
    alone = csdp.fit(states, public=True, ensemble=0, neighbours=0)
    sample, labels = read_sample(states, states=2), np.resize(CYCLE, 600)
    assert chain_scores(fitted, sample, labels=labels).sum() > chain_scores(alone, sample).sum()


def test_a_clock_is_needed():
    with pytest.raises(InputError, match="cycle: none given"):
        fit(both(s=2).simulate(50, seed=7), cycle=None)
