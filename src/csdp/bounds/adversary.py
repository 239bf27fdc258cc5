"""What an adversary knows besides the model, and which presents must not be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from csdp.arrays import Floats
from csdp.errors import InputError

#: Every other present value ("informed"), or nothing ("uninformed").
Adversary = Literal["informed", "uninformed"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    if adversary == "informed":
        return [everyone]
    if adversary == "uninformed":
        return [(i,) for i in everyone]
    raise InputError(f"adversary: {adversary!r} given; 'informed' or 'uninformed'")


def marginal(measure: Floats, known: Sequence[int], sequences: int, states: int) -> Floats:
    """Sum a measure on snapshots (N, ...) over the sequences that are not known."""
    tensor = measure.reshape((states,) * sequences + measure.shape[1:])
    away = tuple(i for i in range(sequences) if i not in known)
    return np.asarray(tensor.sum(axis=away)).reshape((states ** len(known), *measure.shape[1:]))
