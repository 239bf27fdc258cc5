from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.chain.files import save_model

TRUE = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]])


@pytest.fixture
def fitted(tmp_path):
    """A chain that was fitted privately, in a file."""
    chain = csdp.fit(TRUE.simulate(2000, seed=1), states=2, epsilon=2.0)
    save_model(chain, tmp_path / "chain.json")
    return tmp_path / "chain.json"


def test_sequences_follow_the_chain_and_their_promise_is_the_cost_of_the_fit(run, fitted, tmp_path):
    result = run("synth", fitted, "--steps", 4000, "--as", "states", "-o", tmp_path / "synthetic.npy")
    assert "epsilon 2 (a 50 % guess becomes at most 89 %) for every single reading" in result.stderr
    rows = np.load(tmp_path / "synthetic.npy")
    assert rows.shape == (4000, 2)
    assert abs(rows.mean() - TRUE.simulate(4000, seed=2).mean()) < 0.1


def test_the_same_seed_gives_the_same_sequences(run, fitted):
    first, again, other = (run("synth", fitted, "--steps", 50, "--seed", seed).stdout for seed in (1, 1, 2))
    assert first == again != other


def test_a_chain_without_a_private_fit_is_refused_unless_it_is_public(run, fails, tmp_path):
    save_model(TRUE, tmp_path / "true.json")
    assert "--epsilon" in fails("synth", tmp_path / "true.json", "--steps", 5)
    assert "declared public" in run("synth", tmp_path / "true.json", "--steps", 5, "--public").stderr
