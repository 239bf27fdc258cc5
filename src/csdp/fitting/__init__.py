"""From readings to a chain: `csdp.fit()` (in `fit.py`), its quality, drift, and families for uncertain fits."""
