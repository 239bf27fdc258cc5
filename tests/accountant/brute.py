"""Brute force over all output histories, for any adversary, any ages per release, gaps and several queries at once.

Independent of the library. Every path of the chain is enumerated; the worst output of each release lies on the product
of the sets of values of its coordinates (as `oracle.worst_output` does, applied to one release with the others fixed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from oracle import product_outputs, snapshots, stationary

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Told:
    """One output: at which tick, the age of every sequence's reading, f of every snapshot, epsilon_c / Delta_f."""

    tick: int
    ages: tuple[int, ...]
    fvals: tuple[tuple[float, ...], ...]
    rate: float

    def likelihoods(self) -> Array:
        """[y, z] = exp(-rate |y - f(z)|_1) for the outputs that can be worst."""
        grid, f = np.array(product_outputs(self.fvals)), np.array(self.fvals)
        return np.exp(-self.rate * np.abs(grid[:, None, :] - f[None, :, :]).sum(axis=2))


def joint(kernel: Array, s: int, m: int, outputs: Sequence[Told], moment: int) -> tuple[Array, Array]:
    """[snapshot at `moment`, history] = Pr(snapshot, density of the history), and the law of the snapshot.

    `moment` may also lie in the past of some outputs: then it is a record's
    lifetime that is looked at.
    """
    size = len(kernel)
    slices = [o.tick - age for o in outputs for age in o.ages]
    first, last = min([*slices, moment]), max([*slices, moment])
    law = stationary(kernel)
    steps = last - first
    assert size ** (steps + 1) <= 600_000, "too many paths"
    paths = np.indices((size,) * (steps + 1)).reshape(steps + 1, -1)
    weight = law[paths[0]].copy()
    for n in range(steps):
        weight *= kernel[paths[n], paths[n + 1]]
    paths, weight = paths[:, weight > 0], weight[weight > 0]
    digits = np.array(snapshots(s, m))
    place = m ** np.arange(s - 1, -1, -1)
    read = [sum(digits[paths[o.tick - o.ages[i] - first], i] * place[i] for i in range(s)) for o in outputs]
    # Paths that agree in the snapshot and in all that was read are one from here on.
    shape = (size,) * (1 + len(outputs))
    found, which = np.unique(np.ravel_multi_index((paths[moment - first], *read), shape), return_inverse=True)
    mass = np.bincount(which, weights=weight)
    key = np.unravel_index(found, shape)
    table = np.ones((1, len(found)))
    for number, output in enumerate(outputs, start=1):
        table = (table[:, None, :] * output.likelihoods()[None, :, key[number]]).reshape(-1, len(found))
    seen = [key[0] == x for x in range(size)]
    return np.array([table[:, at] @ mass[at] for at in seen]), np.array([mass[at].sum() for at in seen])


def history_leakage(
    kernel: Array,
    s: int,
    m: int,
    outputs: Sequence[Told],
    moment: int,
    *,
    adversary: str = "informed",
) -> float:
    """Worst log ratio of the history given two values of one sequence at `moment`, for one adversary."""
    told, law = joint(kernel, s, m, outputs, moment)
    snaps = snapshots(s, m)
    sizes = {"informed": [s - 1], "uninformed": [0], "any": list(range(s))}[adversary]
    worst = 0.0
    for i in range(s):
        others = [j for j in range(s) if j != i]
        for known in (c for n in sizes for c in combinations(others, n)):
            for seen in product(range(m), repeat=len(known)):
                logs = []
                for a in range(m):
                    fixed = dict(zip(known, seen, strict=True)) | {i: a}
                    match = [n for n, x in enumerate(snaps) if all(x[j] == c for j, c in fixed.items())]
                    if law[match].sum() > 0:
                        logs.append(np.log(told[match].sum(axis=0)) - np.log(law[match].sum()))
                if logs:
                    worst = max(worst, float(np.ptp(np.array(logs), axis=0).max()))
    return worst


def snapshot_leakage(kernel: Array, s: int, m: int, outputs: Sequence[Told], moment: int) -> float:
    """Worst log ratio of the history given any two snapshots at `moment`."""
    told, law = joint(kernel, s, m, outputs, moment)
    seen = law > 0
    return float(np.ptp(np.log(told[seen]) - np.log(law[seen, None]), axis=0).max())
