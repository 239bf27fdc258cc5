"""How much an aged, noisy release reveals about the present: exactly, by sound bounds, and as the paper prints it.

Start at `leakage.py`, which has `csdp.leakage()`; `component.py` computes one component by every bound.
"""
