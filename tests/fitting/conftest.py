"""For tests of the chain that a fit finds, of its record and of its checks: they need no class."""

import pytest


@pytest.fixture
def ungrown(monkeypatch):
    """Fits find their chain, and grow no class around it."""
    monkeypatch.setattr("csdp.fitting.grow.FEWEST", 10**9)
