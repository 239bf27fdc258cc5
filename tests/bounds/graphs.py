"""Graphs of influences from laws: mixtures as they are declared, and the least limits that hold for given tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

import csdp
from oracle import Array, Edge, Law, Output, Rooted

#: Sequences, parents and lags of a table, and the table.
Table = tuple[int, Sequence[tuple[int, int]], Array]
#: The noise of brute force itself.
ROUNDING = 1e-11


def mixture_window(edges: Sequence[Edge]) -> dict:
    """A window of edges (child, parent, lag, weight, matrix), as plain data."""
    matrices = [np.asarray(edge[4]).tolist() for edge in edges]
    return {"matrices": matrices, "edges": [[*edge[:4], n] for n, edge in enumerate(edges)]}


def limits_window(tables: Iterable[Table]) -> dict:
    """The least limits that some tables keep: over all values of the other parents, also those that never occur."""
    found: dict[tuple[int, int, int], tuple[Array, Array, float]] = {}
    for child, parents, table in tables:
        for n, (parent, lag) in enumerate(parents):
            m = table.shape[-1]
            rows = np.moveaxis(table, n, 0).reshape(m, -1, m)
            change = rows[None] - rows[:, None]  # from a to b, others, next state
            one = (change.max(axis=2), rows.min(axis=1), float(np.abs(change).sum(axis=-1).max() / 2))
            known = found.get((child, parent, lag), one)
            found[child, parent, lag] = (
                np.maximum(one[0], known[0]),
                np.minimum(one[1], known[1]),
                max(one[2], known[2]),
            )
    edges = sorted(found)
    gains, bases, most = zip(*(found[edge] for edge in edges), strict=True) if edges else ((), (), ())
    return {
        "edges": [list(edge) for edge in edges],
        "gains": np.reshape([gain.clip(-1, 1) for gain in gains], (len(edges), *gains[0].shape)).tolist(),
        "bases": np.reshape(bases, (len(edges), *bases[0].shape)).clip(0, 1).tolist(),
        "most": list(most),
    }


def graph_of(s: int, m: int, worlds: Sequence, forward: Sequence | None = None, swing: object = None):
    """A graph from windows as plain data, by environment."""
    return csdp.InfluenceGraph.from_dict(
        {
            "schema": csdp.InfluenceGraph.schema,
            "sequences": s,
            "values": list(range(m)),
            "states": m,
            "windows": worlds,
            "forward": forward,
            "swing": swing,
        }
    )


def limits_of(law: Law, s: int, m: int, *, memory: int, depth: int, ahead: int = 0):
    """The graph of the least limits that a law keeps, over so many slices before and after the roots."""

    def window(ticks: Iterable[int]) -> dict:
        tables = [(i, tick, *law(i, tick)) for tick in ticks for i in range(s)]
        return limits_window((i, [(k, abs(n - tick)) for k, n in parents], table) for i, tick, parents, table in tables)

    last = max(depth, memory)
    slices = [range(-n, -n - 1, -1) for n in range(1, memory)] + [range(-memory, -last - 1, -1)]
    return graph_of(s, m, [[window(ticks) for ticks in slices]], [window(range(1, ahead + 1))] if ahead else None)


def certified(graph, query, *, ages, epsilon_c, releases=1, **options) -> float:
    """What an accountant certifies after releases at consecutive ticks."""
    return csdp.Accountant(csdp.Plan(graph, query, ages, epsilon_c, **options)).after(releases).epsilon


def truth(law: Law, s: int, m: int, *, f, rate, ages, releases=1, watched=0, adversary="informed") -> float:
    """The same by brute force: the newest of the releases at tick 0, watched at tick 0 or at another one."""
    ages = np.broadcast_to(ages, s).tolist()
    outputs = [Output(tuple(-n - age for age in ages), np.asarray(f, float), rate) for n in range(releases)]
    return Rooted(law, s, m).told(outputs, watched, adversary)


def stationary_pairs(kernel: Array, m: int, s: int, ticks: int) -> Array:
    """Joint law (m,) * (s * ticks) of a stationary process of order two: kernel[x, y, z] = Pr(z | x, then y)."""
    size = m**s
    step = np.einsum("xyz,yw->xywz", kernel, np.eye(size)).reshape(size**2, size**2)
    law = np.full(size**2, 1.0 / size**2)
    for _ in range(12):
        step = step @ step
        law = law @ step
    joint = law.reshape(size, size)
    for _ in range(ticks - 2):
        joint = np.einsum("...xy,xyz->...xyz", joint, kernel)
    return np.asarray(joint / joint.sum()).reshape((m,) * (s * ticks))
