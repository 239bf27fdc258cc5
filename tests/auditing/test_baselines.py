"""Other methods as black boxes: what they say they leak is not refuted; plain noise does not protect correlations."""

from __future__ import annotations

import pytest

from csdp import CoupledChain, Mean, audit, baselines
from csdp.noise import Randomness

from auditing.mechanisms import PAIR, SURE  # isort: skip

ONE_SNAPSHOT = ["laplace", "group", "ddp-liu", "ddp-exact", "correlated", "bayesian", "inferential", "wasserstein"]
TIED = CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.95, 0.05], [0.05, 0.95]])


def black_box(name, chain):
    """A baseline that reads one fresh snapshot, on many of them at once."""
    calibrated = baselines.get(name).calibrate(chain, Mean(), epsilon=1.0)

    def run(readings, generator):
        return calibrated.release(readings, Randomness.from_key(generator.bytes(32)))

    return calibrated, run


@pytest.mark.parametrize("name", ONE_SNAPSHOT)
def test_what_a_baseline_says_it_leaks_is_not_refuted(name):
    calibrated, run = black_box(name, PAIR)
    claim = calibrated.leakage("uninformed").value
    result = audit(
        run, PAIR, Mean(), ages=0, claim=claim, adversary="uninformed", samples=20_000, confidence=SURE, seed=1
    )
    assert not result.violated
    assert result.lower > 0.4 * claim


def test_plain_noise_tells_more_than_its_epsilon_where_sequences_are_tied():
    """Epsilon 1 of a record is not epsilon 1 of a state that its neighbours give away too."""
    settings = {"ages": 0, "claim": 1.0, "adversary": "uninformed", "samples": 200_000, "confidence": SURE, "seed": 2}
    assert audit(black_box("laplace", TIED)[1], TIED, Mean(), **settings).violated
    assert not audit(black_box("ddp-exact", TIED)[1], TIED, Mean(), **settings).violated
