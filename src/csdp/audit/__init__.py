"""Attacks that know the correlations, and the replay of a ledger: what the numbers of this software are tested by."""

from csdp.audit.front import Audit, audit

__all__ = ["Audit", "audit"]
