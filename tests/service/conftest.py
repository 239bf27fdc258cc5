from __future__ import annotations

import pytest

from service.parts import OTHER, WARD, serving, settings_of, write_spec


@pytest.fixture
def served(tmp_path):
    """A service with two datasets, new for one test."""
    with serving(settings_of(tmp_path, specs=specs(tmp_path))) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The same for all tests of a module that leave it as it is."""
    folder = tmp_path_factory.mktemp("service")
    with serving(settings_of(folder, specs=specs(folder), work_seconds=8)) as found:
        yield found


def specs(folder):
    return [write_spec(folder, dataset=WARD), write_spec(folder, dataset=OTHER, ledger="other.db")]
