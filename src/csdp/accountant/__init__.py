"""Continual leakage: how much the whole published history reveals about the present, tick by tick."""

from csdp.accountant.account import Accountant
from csdp.accountant.record import Lateness, State

__all__ = ["Accountant", "Lateness", "State"]
