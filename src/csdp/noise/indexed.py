"""Noise that is a function of (key, index): workers that share a key agree, and a retried task draws the same again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csdp.errors import InputError
from csdp.noise.bitslice import draw
from csdp.noise.randomness import Randomness

#: Indices that share one stream of the cipher. A stream is always drawn whole, so what an index gets depends on nothing
#: but the key and itself: not on which others a worker holds, nor on their order.
TOGETHER = 4096


def indexed_noise(scale: Fraction, indices: NDArray[Any], key: bytes) -> NDArray[np.int64]:
    """Two-sided geometric integers, one for each index; index i gets place i % 4096 of stream i // 4096 of the key.

    Guarantee: over a uniform key the values of distinct indices are independent and exactly of the law of
    `two_sided_geometric`; a repeated index gets the same value. A key belongs to one release and is never stored.

    >>> key = bytes(range(32))  # for show: a real key comes from os.urandom
    >>> whole = indexed_noise(Fraction(1000), np.arange(10_000), key)
    >>> bool((indexed_noise(Fraction(1000), np.array([9_999, 5]), key) == whole[[9_999, 5]]).all())
    True
    """
    places = np.asarray(indices)
    if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer) or (places.size and places.min() < 0):
        raise InputError("noise: indices are whole numbers, 0 or more, in one row")
    blocks = places // TOGETHER
    out = np.empty(places.size, dtype=np.int64)
    order = np.argsort(blocks, kind="stable")
    distinct, starts = np.unique(blocks[order], return_index=True)
    for block, cells in zip(distinct.tolist(), np.split(order, starts)[1:], strict=True):
        words = Randomness.from_key(key, stream=block).words()
        out[cells] = draw(scale, TOGETHER, words)[places[cells] % TOGETHER]
    return out
