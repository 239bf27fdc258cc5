"""The three loops of the sampler that numba compiles: the same words in, the same integers out as numpy.

They are plain functions here, so that importing them costs nothing; `bitslice.compiled_engine` compiles them
when a draw is large enough to repay it. Each has its twin in `bitslice`, and the tests hold the twins equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from csdp.numbers import Ints

WHOLE = 7
"""Planes compared for every word before only the undecided ones go on; after 7 about 40 % are left."""

_CHUNK = 8  # words transposed side by side: one cache line, one or two vector registers


def compare(
    words: NDArray[np.uint64],
    first: NDArray[np.uint64],
    undecided: NDArray[np.uint64],
    ones: NDArray[np.uint64],
    index: Ints,
) -> int:
    """Compare WHOLE planes for every word; list in `index` those with undecided lanes, return how many."""
    rows, width = ones.shape
    count = 0
    for row in range(rows):
        equal = undecided[row]
        one = ones[row]
        for w in range(width):
            equal[w] = np.uint64(0xFFFFFFFFFFFFFFFF)
            one[w] = np.uint64(0)
        for plane in range(WHOLE):
            start = (plane * rows + row) * width
            random = words[start : start + width]
            if (first[row] >> np.uint64(63 - plane)) & np.uint64(1):
                for w in range(width):  # a zero below a one: smaller, decided, the answer is 1
                    one[w] |= equal[w] & ~random[w]
                    equal[w] &= random[w]
            else:
                for w in range(width):  # a one above a zero: larger, decided, the answer is 0
                    equal[w] &= ~random[w]
        for w in range(width):
            index[count] = row * width + w
            count += equal[w] != 0
    return count


def narrow(
    words: NDArray[np.uint64],
    at: int,
    plane: int,
    first: NDArray[np.uint64],
    undecided: NDArray[np.uint64],
    ones: NDArray[np.uint64],
    index: Ints,
    count: int,
) -> tuple[int, int, int]:
    """Compare further planes, for undecided words only, while a whole plane fits into `words`."""
    width = ones.shape[1]
    equal = undecided.reshape(-1)
    one = ones.reshape(-1)
    while count > 0 and plane < 64 and at + count <= words.size:
        shift = np.uint64(63 - plane)
        row, end = 0, width
        wanted = ~((first[0] >> shift) & np.uint64(1)) + np.uint64(1)
        left = 0
        for k in range(count):
            i = index[k]
            while i >= end:
                row += 1
                end += width
                wanted = ~((first[row] >> shift) & np.uint64(1)) + np.uint64(1)
            decided = (words[at + k] ^ wanted) & equal[i]
            one[i] |= decided & wanted
            equal[i] ^= decided
            index[left] = i
            left += equal[i] != 0
        at += count
        plane += 1
        count = left
    return at, plane, count


def assemble(  # noqa: PLR0912 - parts of a loop nest would have to be compiled one by one
    ones: NDArray[np.uint64], digits: int, out: Ints
) -> None:
    """Turn digit planes into integers: with the sign in every higher digit they are two's complement.

    Sixteen rows at a time, from the top, are transposed as 16 x 16 bit matrices (Warren, Hacker's Delight,
    7-3); then each word holds sixteen digits of four samples.
    """
    width = ones.shape[1]
    board = np.empty((16, _CHUNK), np.uint64)
    for start in range(0, width, _CHUNK):
        span = min(_CHUNK, width - start)
        for top in range(digits // 16 * 16, -1, -16):
            for k in range(16):
                for c in range(span):
                    sign = ones[digits, start + c]
                    board[k, c] = ones[top + k, start + c] ^ sign if top + k < digits else sign
            step, mask = 8, np.uint64(0x00FF00FF00FF00FF)
            while step:
                for k in range(16):
                    if not k & step:
                        for c in range(_CHUNK):
                            high, low = board[k, c], board[k + step, c]
                            swap = ((high >> np.uint64(step)) ^ low) & mask
                            board[k, c] = high ^ (swap << np.uint64(step))
                            board[k + step, c] = low ^ swap
                step >>= 1
                mask ^= mask << np.uint64(step)
            for c in range(span):
                for field in range(4):
                    first = (start + c) * 64 + field * 16
                    samples = out[first : first + 16]
                    up = np.uint64(48 - 16 * field)
                    if top + 16 > digits:
                        for k in range(16):
                            samples[k] = np.int64(board[k, c] << up) >> 48
                    else:
                        for k in range(16):
                            samples[k] = samples[k] << 16 | np.int64(board[k, c] << up >> np.uint64(48))
