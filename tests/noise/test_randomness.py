"""Words, keys and streams: never twice the same, in no process, thread or fork."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from csdp.errors import InputError
from csdp.noise import Randomness
from csdp.noise.randomness import Words

from noise.exact import seeded  # isort: skip


def test_words_are_the_key_stream_of_aes_256_ctr() -> None:
    """NIST SP 800-38A, F.5.5: plain text xor cipher text of the first block."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    start = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    block = int("6bc1bee22e409f96e93d7e117393172a", 16) ^ int("601ec313775789a5b7a7f504bbf3d228", 16)
    words = np.empty(2, np.uint64)
    Words(key, start).fill(words)
    assert words.tobytes() == block.to_bytes(16, "big")


def test_a_long_fill_equals_many_short_ones() -> None:
    whole, parts = np.empty(200_000, np.uint64), np.empty(200_000, np.uint64)
    Words(bytes(32)).fill(whole)
    source = Words(bytes(32))
    for part in np.array_split(parts, 777):
        source.fill(part)
    np.testing.assert_array_equal(whole, parts)


def test_seeds_warn_and_mark_what_they_give() -> None:
    assert seeded(1).unsafe
    assert not Randomness.secure().unsafe
    assert not Randomness.from_key(os.urandom(32)).unsafe
    assert "seed" in repr(seeded(1))
    assert "secure" in repr(Randomness.secure())
    key = os.urandom(32)
    assert key.hex() not in repr(Randomness.from_key(key))


@pytest.mark.parametrize("key", [b"", bytes(31), "x" * 32, None])
def test_bad_keys_are_refused(key: object) -> None:
    with pytest.raises(InputError):
        Randomness.from_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1.0, None, True, "1"])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(InputError):
        Randomness.unsafe_seed(seed)  # type: ignore[arg-type]


def test_sources_are_neither_pickled_nor_copied() -> None:
    for source in (Randomness.secure(), Randomness.from_key(bytes(32)), seeded(1)):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="repeat"):
                duplicate(source)


def head(source: Randomness) -> bytes:
    """Return the first words of the next draw; two of them agree by chance with probability 2^-256."""
    words = np.empty(4, np.uint64)
    source.words().fill(words)
    return words.tobytes()


def in_a_fork(work: Callable[[], bytes]) -> bytes:
    """Return what `work` gives in a forked child."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions warn of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_draws_of_a_key_are_disjoint() -> None:
    source = Randomness.from_key(bytes(32))
    assert len({head(source) for _ in range(150)}) == 150


def test_forks_never_repeat() -> None:
    source = Randomness.secure()
    heads = [head(source)]
    for _ in range(6):
        heads += [in_a_fork(lambda: head(source)), head(source)]
    heads.append(in_a_fork(lambda: in_a_fork(lambda: head(source))))
    assert all(len(h) == 32 for h in heads)
    assert len(set(heads)) == len(heads)


def test_a_keyed_source_is_refused_in_a_fork() -> None:
    source = Randomness.from_key(os.urandom(32))

    def work() -> bytes:
        try:
            return head(source)
        except InputError as error:
            return str(error).encode()

    assert b"another process" in in_a_fork(work)
    assert len(head(source)) == 32


@pytest.mark.parametrize("kind", ["secure", "key"])
def test_threads_never_repeat(kind: str) -> None:
    source = Randomness.secure() if kind == "secure" else Randomness.from_key(os.urandom(32))
    with ThreadPoolExecutor(8) as pool:
        heads = list(pool.map(lambda _: head(source), range(2000)))
    assert len(set(heads)) == len(heads)


def test_processes_never_repeat() -> None:
    code = (
        "import numpy as np; from csdp.noise import Randomness; w = np.empty(4, np.uint64);"
        "Randomness.secure().words().fill(w); print(w.tobytes().hex())"
    )
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    heads = [child.communicate()[0].strip() for child in children]
    assert all(len(h) == 64 for h in heads)
    assert len(set(heads)) == 3
