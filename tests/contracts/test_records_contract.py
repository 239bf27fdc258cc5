"""Records are frozen: what was checked or certified is what is used."""

import pkgutil
from dataclasses import FrozenInstanceError, fields, is_dataclass
from importlib import import_module

import pytest


def records(room):
    """The dataclasses that the modules of a room define."""
    package = import_module(f"csdp.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"csdp.{room}."):
        for value in vars(import_module(found.name)).values():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == found.name:
                yield value


@pytest.mark.parametrize("room", ["noise", "chain", "bounds", "accountant", "planning", "ledger", "publisher"])
def test_no_field_of_a_record_can_be_set(room):
    found = list(records(room))
    assert found
    for record in found:
        blank = object.__new__(record)
        for field in fields(record):
            with pytest.raises(FrozenInstanceError):
                setattr(blank, field.name, None)
