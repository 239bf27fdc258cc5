"""How much an aged, noisy release tells about the present: exactly, by sound bounds, and as the paper prints it.

`csdp.leakage()` is the front door, in `leakage.py`.
"""
