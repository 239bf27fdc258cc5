from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postgres
from csdp.ledger import Ledger


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.cluster() as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where no ledger is yet: the contract holds for each."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
def open_ledger(where: str, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    opened = []

    def open_it() -> Ledger:
        opened.append(Ledger.open(where, timeout=10, outputs=tmp_path / "outputs"))
        return opened[-1]

    yield open_it
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: Callable[[], Ledger]) -> Ledger:
    return open_ledger()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"
