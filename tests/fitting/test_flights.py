"""Delays of flights: hidden environments describe them, independent chains do not."""

from __future__ import annotations

import csdp
from csdp import datasets


def test_hidden_environments_beat_independent_chains_on_flights():
    dataset = datasets.load("flights")
    panel = dataset.discretiser().apply(dataset.readings)
    assert panel.states.shape == (1825, 33)
    chain = csdp.fit(panel, public=True, environment="hidden", environments=4, ensemble=0, progress=False)
    ((name, gain, error),) = chain.fitted.gains
    assert name == "hidden 4, forward"
    assert gain >= 2.5
    assert gain > 10 * error
    assert chain.fitted.converged
