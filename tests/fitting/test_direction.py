"""Fits in both directions of time: each finds the kernel of its own direction, and quality follows it."""

import numpy as np
import pytest

import csdp
from csdp.chain import FitRecord
from csdp.errors import InputError

pytestmark = pytest.mark.usefixtures("ungrown")

COUPLING = [[0.55, 0.45, 0.0], [0.05, 0.5, 0.45], [0.4, 0.0, 0.6]]
MOVES = [[[0.95, 0.05], [0.1, 0.9]], [[0.85, 0.15], [0.05, 0.95]], [[0.9, 0.1], [0.3, 0.7]]]


def chain_of(direction):
    return csdp.CoupledChain(COUPLING, np.stack([MOVES] * 3), direction=direction)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_fit_finds_the_kernel_of_its_direction(direction):
    truth = chain_of(direction)
    fitted = csdp.fit(truth.simulate(30_000, seed=4), public=True, direction=direction)
    assert fitted.direction == direction
    own = (lambda chain: chain.kernel()) if direction == "forward" else (lambda chain: chain.backward_kernel())
    assert np.abs(own(fitted) - own(truth)).max() < 0.05
    assert FitRecord.from_dict(fitted.fitted.to_dict()) == fitted.fitted
    assert csdp.CoupledChain.from_json(fitted.to_json()) == fitted


def test_quality_follows_the_direction_of_the_chain():
    truth = chain_of("backward")
    states = truth.simulate(8000, seed=2)
    fitted = csdp.fit(states, public=True, direction="backward")
    found = csdp.fit_quality(fitted, states, public=True)
    assert found.explains
    assert found.gain > 3 * found.gain_error


def test_private_fits_run_in_either_direction():
    states = chain_of("backward").simulate(4000, seed=1)
    fitted = csdp.fit(states, states=2, epsilon=5.0, direction="backward", neighbours=1)
    assert (fitted.direction, fitted.fit_cost["epsilon"]) == ("backward", 5.0)


def test_bad_directions_are_refused():
    states = chain_of("forward").simulate(100, seed=1)
    with pytest.raises(InputError, match="direction: 'both' given; one of 'forward', 'backward' is allowed"):
        csdp.fit(states, public=True, direction="both")
    with pytest.raises(InputError, match="a joint chain is the same process"):
        csdp.fit(states, public=True, direction="backward", method="joint")
