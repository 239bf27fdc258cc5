"""Continual leakage: how much the whole published history reveals about the present, tick by tick."""

from csdp.accountant.accountant import Accountant
from csdp.accountant.lateness import Lateness
from csdp.accountant.state import State

__all__ = ["Accountant", "Lateness", "State"]
