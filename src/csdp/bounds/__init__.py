"""How much an aged, noisy release reveals about the present, exactly and by bounds. Start at `leakage.py`."""
