"""Records of the mathematics and the gate stay as they were made: what was checked or certified is what is used."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

ROOMS = ("noise", "chain", "bounds", "accountant", "planning", "ledger", "publisher")


def records(room: str) -> Iterator[type]:
    """The dataclasses that the modules of a room define."""
    package = importlib.import_module(f"csdp.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"csdp.{room}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == found.name:
                yield value


@pytest.mark.parametrize("room", ROOMS)
def test_no_field_of_a_record_can_be_set(room: str) -> None:
    found = list(records(room))
    assert found
    for record in found:
        blank = object.__new__(record)
        for field in fields(record):
            with pytest.raises(FrozenInstanceError):
                setattr(blank, field.name, None)
