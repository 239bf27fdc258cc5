from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from csdp.ledger import Ledger


@pytest.fixture
def open_ledger(where: str) -> Iterator[Callable[[], Ledger]]:
    opened = []

    def open_it() -> Ledger:
        opened.append(Ledger.open(where, timeout=10))
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
