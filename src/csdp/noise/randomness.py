"""Where the random words of a release come from: AES-256 in counter mode under a key of the operating system.

secure()        a new key for every draw: no state, so nothing for forks, threads or processes to share
from_key()      a given key, the same words on every machine: for audits and tests
unsafe_seed()   a seed, for tests; warns, and marks what is drawn from it
"""

from __future__ import annotations

import hashlib
import itertools
import os
import warnings
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from csdp.errors import InputError, UnsafeRandomnessWarning

_ZEROS = bytes(1 << 19)  # encrypting zeros gives the key stream itself; half a megabyte stays in cache


class Words:
    """The words of one draw: the key stream of AES-256-CTR. Belongs to one thread, is thrown away after."""

    def __init__(self, key: bytes, start: int = 0) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(start.to_bytes(16, "big"))).encryptor()

    def fill(self, buffer: NDArray[np.uint64], /) -> None:
        """Overwrite the buffer with the next words of the stream."""
        view = buffer.data.cast("B")
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._cipher.update_into(memoryview(_ZEROS)[: len(part)], part)


class Randomness:
    """A source of random words for noise; made by `secure`, `from_key` or `unsafe_seed`.

    Guarantee of `secure()`: each draw has its own 256-bit key from `os.urandom`, so no two draws share words,
    whichever thread, fork or process makes them, and no state is kept from which past noise could be found.
    All sources may be used by several threads at once. None can be pickled or copied: a copy would repeat.

    >>> Randomness.secure().unsafe
    False
    """

    def __init__(self, key: bytes | None, unsafe: bool) -> None:
        self._key = key
        self._unsafe = unsafe
        self._draws = itertools.count()
        self._home = os.getpid()

    @classmethod
    def secure(cls) -> Randomness:
        """Return the source for releases: every draw under a fresh key from the operating system."""
        return cls(None, unsafe=False)

    @classmethod
    def from_key(cls, key: bytes) -> Randomness:
        """Return the deterministic stream of a 32-byte key.

        The noise is as secret as the key, and protects only if the key came from `os.urandom` and is not used
        for two different releases. A source crosses no fork: the child would repeat its parent's noise, so it
        is refused there; make it in the process that uses it.

        >>> key = bytes(range(32))  # for show: a real key comes from os.urandom
        >>> first, again = (Randomness.from_key(key) for _ in range(2))
        >>> words = np.empty((2, 3), np.uint64)
        >>> first.words().fill(words[0]); again.words().fill(words[1])
        >>> bool((words[0] == words[1]).all())
        True
        """
        if not isinstance(key, bytes) or len(key) != 32:
            raise InputError("a key is 32 bytes from os.urandom(32); the one given is not")
        return cls(key, unsafe=False)

    @classmethod
    def unsafe_seed(cls, seed: int) -> Randomness:
        """Return a source that repeats itself from a seed; for tests only, warns and marks what it gives."""
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InputError(f"seed is {seed!r}; allowed are integers")
        warnings.warn(
            "noise drawn from a seed gives no protection: use Randomness.secure() for releases",
            UnsafeRandomnessWarning,
            stacklevel=2,
        )
        return cls(hashlib.sha256(f"csdp unsafe seed {seed}".encode()).digest(), unsafe=True)

    @property
    def unsafe(self) -> bool:
        """Whether the words come from a seed; a release drawn from such a source must say so."""
        return self._unsafe

    def words(self) -> Words:
        """Return the words of the next draw: a fresh key, or the next part of the deterministic stream."""
        if self._key is None:
            return Words(os.urandom(32))
        if self._home != os.getpid():
            raise InputError(
                "this source was made in another process and would repeat its noise here; "
                "make it from its own key in the process that uses it"
            )
        draw = next(self._draws)  # atomic, so threads never get the same draw
        return Words(self._key, draw << 48)  # a draw takes fewer than 2^48 blocks

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a source of randomness is not copied: the copy would repeat its noise")

    def __repr__(self) -> str:
        kind = "secure" if self._key is None else "unsafe seed" if self._unsafe else "from a key"
        return f"<Randomness: {kind}>"
