"""Raw readings of which any trace can be found, in whatever form it was left behind."""

from __future__ import annotations

import struct

#: Raw readings lie this close to one of two numbers.
BASES = (0.03141592653, 0.98765432101)


def raw(rng):
    return BASES[rng.integers(2)] * (1 + rng.random() * 1e-11)


def traces():
    """What a raw reading would look like: digits, or the bytes that all of them share as doubles."""
    for base in BASES:
        yield repr(base)[:9].encode()
        low, high = struct.pack(">d", base), struct.pack(">d", base * (1 + 1e-11))
        common = low[: next(i for i in range(8) if low[i] != high[i])]
        assert len(common) >= 4
        yield common
        yield common[::-1]


def has_trace(content):
    return any(trace in content for trace in traces())
