"""Components: sets of sequences that are independent of each other, and which of them are alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def connected_parts(graph: Any) -> list[tuple[int, ...]]:
    """The connected components of a sparse graph, whatever the direction of its edges."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph, directed=True, connection="weak")
    order = np.argsort(label, kind="stable")
    cuts = [0, *np.searchsorted(label[order], np.arange(1, count)).tolist(), order.size]
    members = order.tolist()
    return sorted(tuple(members[start:end]) for start, end in itertools.pairwise(cuts))


def count_kinds(
    components: Iterable[tuple[int, ...]], signature: Callable[[tuple[int, ...]], Any]
) -> list[tuple[tuple[int, ...], int]]:
    """One component of each kind with the number of its copies; large ones are not compared."""
    copies_by_kind: dict[Any, tuple[tuple[int, ...], int]] = {}
    for component in components:
        kind = signature(component) if len(component) <= 64 else component
        representative, count = copies_by_kind.get(kind, (component, 0))
        copies_by_kind[kind] = (representative, count + 1)
    return list(copies_by_kind.values())
