"""Attacks that know the correlations (`csdp.audit()`, in `audit.py`), and the replay of a ledger."""
