"""What names a function of the snapshot: its answers, and what it says of its sensitivity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from csdp.computation.computation import FunctionComputation


def fingerprint_function(computation: FunctionComputation) -> str:
    """SHA-256 of the answers and of the sensitivity to one record and to all; and to others that do not follow."""
    s, m = computation.table.shape
    if computation.answers is not None:
        answers = computation.answers
    else:
        place = np.arange(64)[:, None] * 7919 + np.arange(s)[None, :] * (np.arange(64)[:, None] + 1)
        answers = computation.evaluate(place // 3 % m, computation.table)
    content = np.append(answers.ravel(), [computation.undivided_sensitivity(k) for k in (1, s)])
    declared = computation.plain.declared
    if declared is not None and computation.answers is None:
        some = [2**j for j in range(1, s.bit_length()) if 2**j < s]
        middle = {k: computation.plain(k) for k in some}
    else:
        middle = {} if declared is None else dict(enumerate(declared[1:-1], start=2))
    if any(value != k * computation.plain(1) for k, value in middle.items()):
        content = np.append(content, [number for pair in sorted(middle.items()) for number in pair])
    return hashlib.sha256(np.ascontiguousarray(content + 0.0, dtype="<f8").tobytes()).hexdigest()


def fingerprint_on(computation: FunctionComputation, sizes: Iterable[int]) -> str:
    """The same for a chain with components of these sizes: what is declared of so many records decides certificates.

    The fingerprint itself where that follows from the sensitivity to one record, or where all answers are tabled.
    """
    if computation.answers is not None:
        return computation.fingerprint
    told = sorted((k, computation.plain(k)) for k in {*sizes})
    apart = [pair for pair in told if pair[1] != pair[0] * computation.plain(1)]
    # Powers of two are part of the fingerprint, and so are all records.
    if all(k & (k - 1) == 0 or k == computation.table.shape[0] for k, _ in apart):
        return computation.fingerprint
    return hashlib.sha256(f"{computation.fingerprint}|{apart}".encode()).hexdigest()
