"""From readings to a chain: fitting, its quality, drift, and the families that uncertainty leaves."""

from csdp.fit.front import fit

__all__ = ["fit"]
