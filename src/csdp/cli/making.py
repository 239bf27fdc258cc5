"""A coupled chain from a few numbers: how strongly sequences follow each other, and how they move."""

from __future__ import annotations

from typing import Any

import numpy as np

from csdp.errors import InputError

#: Sequences up to which everybody may follow everybody: the file has one line per pair.
ALL_TO_ALL = 2000


def shared_coupling(sequences: int, self_coupling: float, *, ring: bool) -> Any:
    """Every sequence follows itself with one weight; the rest is shared by all others, or by both neighbours on a ring.

    >>> shared_coupling(3, 0.5, ring=False).toarray().tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    >>> shared_coupling(4, 0.5, ring=True).toarray()[0].tolist()
    [0.5, 0.25, 0.0, 0.25]
    """
    from scipy.sparse import coo_array

    if sequences < 1:
        raise InputError(f"sequences: {sequences} given; at least 1")
    if not 0 <= self_coupling <= 1:
        raise InputError(f"self-coupling: {self_coupling:g} given; a weight lies in [0, 1]")
    if sequences == 1 and self_coupling != 1:
        raise InputError("self-coupling: one sequence has nobody else to follow; leave it out, or give 1")
    if not ring and sequences > ALL_TO_ALL:
        raise InputError(
            f"sequences: {sequences:,} given; at most {ALL_TO_ALL:,} where everybody follows everybody. "
            "Use --ring, or --coupling with edges"
        )
    here = np.arange(sequences)
    wanted = [1, sequences - 1] if ring else list(range(1, sequences))
    steps = [step for step in wanted if step % sequences]
    targets = np.tile(here, len(steps) + 1)
    sources = np.concatenate([here, *((here + step) % sequences for step in steps)])
    weights = np.full(targets.size, (1.0 - self_coupling) / max(len(steps), 1))
    weights[:sequences] = self_coupling
    matrix = coo_array((weights, (targets, sources)), shape=(sequences, sequences)).tocsr()
    matrix.sum_duplicates()
    return matrix


def given_coupling(content: Any) -> Any:
    """A coupling from JSON: the matrix, or `{"edges": [[target, source, weight], ...]}` where most pairs have none.

    >>> given_coupling({"edges": [[0, 0, 1.0]]})
    {(0, 0): 1.0}
    """
    if not isinstance(content, dict):
        return content
    try:
        return {(int(j), int(k)): float(weight) for j, k, weight in content["edges"]}
    except (KeyError, TypeError, ValueError):
        raise InputError('coupling: a matrix, or {"edges": [[target, source, weight], ...]} expected') from None


def simple_transitions(states: int, p: float, q: float | None) -> Any:
    """Two states: 0 -> 1 with p, 1 -> 0 with q. More states: leave with p, to all others alike.

    >>> simple_transitions(2, 0.25, 0.5).tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    >>> simple_transitions(3, 0.5, None).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    if states < 2:
        raise InputError(f"states: {states} given; at least 2")
    if states > 2 and q is not None:
        raise InputError(f"q: meant for two states, {states} given; give --p alone, or --transitions")
    for name, chance in (("p", p), ("q", q)):
        if chance is not None and not 0 <= chance <= 1:
            raise InputError(f"{name}: {chance:g} given; a probability lies in [0, 1]")
    if states == 2:
        back = p if q is None else q
        return np.array([[1 - p, p], [back, 1 - back]])
    matrix = np.full((states, states), p / (states - 1))
    np.fill_diagonal(matrix, 1 - p)
    return matrix
