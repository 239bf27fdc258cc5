"""Delays of flights: hidden environments describe them, independent chains do not."""

from __future__ import annotations

import pytest

import csdp
from csdp import datasets


@pytest.mark.parametrize(("direction", "told"), [("forward", (2.77, 0.21)), ("backward", (2.80, 0.26))])
def test_hidden_environments_beat_independent_chains_on_flights(direction, told):
    """`told`: gain and standard error as docs/fitting.md has them."""
    dataset = datasets.load("flights")
    panel = dataset.discretiser().apply(dataset.readings)
    assert panel.states.shape == (1825, 33)
    chain = csdp.fit(
        panel, public=True, environment="hidden", environments=4, ensemble=0, progress=False, direction=direction
    )
    ((name, gain, error),) = chain.fitted.gains
    assert name == f"hidden 4, {direction}"
    assert (gain, error) == pytest.approx(told, abs=0.02)
    assert gain >= 2.5
    assert gain > 10 * error
    assert chain.fitted.converged
