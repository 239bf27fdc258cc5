"""Laws that change from tick to tick, or run backwards in time. Imports numpy and nothing of the library.

A backward kernel says what came before: given the snapshot at a tick, that of the tick before. A process that is given
by backward kernels from some last slice on is turned round by Bayes' rule, slice by slice, so that one filter serves
every law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from oracle import Array, Changing, World, digits_of, stationary

Random = np.random.Generator


def turned(kernel: Array, law: Array) -> tuple[Array, Array]:
    """The same two slices seen from the other end: the kernel there, and the law of that end.

    Where the law is zero there is nothing to condition on; such a row leads to wherever the law lies.
    """
    joint = law[:, None] * kernel
    total = joint.sum(axis=0)
    rows = np.divide(joint.T, total[:, None], out=np.tile(law, (len(law), 1)), where=total[:, None] > 0)
    return rows, total


def ahead(into: Callable[[int], Array], start: Array, first: int, last: int, s: int, m: int) -> World:
    """The law that starts at a slice and follows `into(n)`, the kernel of the step that leads to n."""
    kernels = tuple(into(n) for n in range(first + 1, last + 1))
    return Changing(kernels[0], s, m, start, first, kernels)


def back(out_of: Callable[[int], Array], end: Array, first: int, last: int, s: int, m: int) -> World:
    """The law that ends at a slice and follows `out_of(n)`, the kernel of the step that leads back from n."""
    law, kernels = end, []
    for n in range(last, first, -1):
        kernel, law = turned(out_of(n), law)
        kernels.append(kernel)
    return Changing(kernels[-1], s, m, law, first, tuple(reversed(kernels)))


def backward_world(kernel: Array, s: int, m: int) -> World:
    """The stationary law of one backward kernel."""
    law = stationary(kernel)
    return World(turned(kernel, law)[0], s, m, law)


def periodic_world(kernels: Sequence[Array], *, backward: bool, first: int, last: int, s: int, m: int) -> World:
    """The periodic law of a clock: `kernels[t mod H]` leads to the slice t, or back from it."""
    count = len(kernels)
    whole = np.eye(m**s)
    if backward:
        for n in range(last, last - count, -1):
            whole = whole @ kernels[n % count]
        return back(lambda n: kernels[n % count], stationary(whole), first, last, s, m)
    for n in range(first + 1, first + 1 + count):
        whole = whole @ kernels[n % count]
    return ahead(lambda n: kernels[n % count], stationary(whole), first, last, s, m)


# ---- a family at once ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Limits:
    """Processes whose previous states are independent given the present, and depend on it within limits.

    `laws[k]` (m**s, m): the previous state of k given every present snapshot, of the process that they lie around.
    With x' the snapshot x where the state a of i is replaced by b, for all such snapshots
    `rho_k(c|x') - rho_k(c|x) <= gains[k, i, a, b, c]` and `rho_k(c|x) >= bases[k, i, a, c]`; k depends on i only where
    `graph[k, i]`.
    """

    laws: Array
    graph: NDArray[np.bool_]
    margin: float

    @property
    def s(self) -> int:
        return len(self.laws)

    @property
    def m(self) -> int:
        return self.laws.shape[-1]

    @cached_property
    def gains(self) -> Array:
        out = np.zeros((self.s, self.s, self.m, self.m, self.m))
        for k, i, a, b in self._places():
            here, there = self._changed(i, a, b)
            out[k, i, a, b] = np.minimum((self.laws[k][there] - self.laws[k][here]).max(axis=0) + self.margin, 1.0)
        return out

    @cached_property
    def bases(self) -> Array:
        out = np.zeros((self.s, self.s, self.m, self.m))
        for k, i, a, _ in self._places():
            here = self._changed(i, a, a)[0]
            out[k, i, a] = np.maximum(self.laws[k][here].min(axis=0) - self.margin, 0.0)
        return out

    def _places(self) -> list[tuple[int, int, int, int]]:
        s, states = range(self.s), range(self.m)
        return [(k, i, a, b) for k, i, a, b in product(s, s, states, states) if self.graph[k, i]]

    def _changed(self, i: int, a: int, b: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The snapshots in which i is at a, and the same ones with i at b."""
        here = np.flatnonzero(digits_of(self.s, self.m)[:, i] == a)
        return here, here + (b - a) * self.m ** (self.s - 1 - i)

    def excess(self, laws: Array) -> float:
        """By how much a process (s, m**s, m) leaves the limits, by their definition."""
        worst = max(float(-laws.min()), float(np.abs(laws.sum(axis=2) - 1).max()))
        for k, i, a, b in product(range(self.s), range(self.s), range(self.m), range(self.m)):
            here, there = self._changed(i, a, b)
            moved = laws[k][there] - laws[k][here]
            if not self.graph[k, i]:
                worst = max(worst, float(np.abs(moved).max()))
            elif a == b:
                worst = max(worst, float((self.bases[k, i, a] - laws[k][here]).max()))
            else:
                worst = max(worst, float((moved - self.gains[k, i, a, b]).max()))
        return worst

    def member(self, random: Random, moves: int = 3) -> Array:
        """The laws of a random member, as far from the middle as some random directions lead within the limits."""
        laws = self.laws.copy()
        for k in range(self.s):
            for _ in range(moves):
                way = self._way(random, k)
                laws[k] = laws[k] + way * self._room(laws[k], way, k) * (1 - 1e-12)
        laws = np.maximum(laws, 0.0)
        return np.asarray(laws / laws.sum(axis=2, keepdims=True))

    def _way(self, random: Random, k: int) -> Array:
        """A direction in which the law of k may move: by one of those it depends on, or by all of them together."""
        digits, sources = digits_of(self.s, self.m), np.flatnonzero(self.graph[k])
        chosen = sources if random.random() < 0.4 else random.choice(sources, size=1) if len(sources) else sources
        place = (self.m ** np.arange(len(chosen))).astype(np.intp)
        codes = np.asarray(digits[:, chosen] @ place, dtype=np.intp) if len(chosen) else np.zeros(len(digits), np.intp)
        way = random.choice([-1.0, 0.0, 1.0], size=(int(codes.max()) + 1, self.m)) + random.normal(size=self.m) / 8
        way -= way.mean(axis=1, keepdims=True)
        return np.asarray(way[codes])

    def _room(self, law: Array, way: Array, k: int) -> float:
        """How far a law may move in a direction: every limit is linear in it."""
        room = 1.0

        def until(value: Array, speed: Array) -> None:
            nonlocal room
            if (speed > 1e-12).any():
                room = min(room, float((np.maximum(value, 0.0)[speed > 1e-12] / speed[speed > 1e-12]).min()))

        until(law, -way)
        for i, a, b in product(range(self.s), range(self.m), range(self.m)):
            if not self.graph[k, i]:
                continue
            here, there = self._changed(i, a, b)
            until(law[here] - self.bases[k, i, a], -way[here])
            if a != b:
                until(self.gains[k, i, a, b] - (law[there] - law[here]), way[there] - way[here])
        return room


def product_kernel(laws: Array) -> Array:
    """Kernel (m**s, m**s) of sequences that are independent given the snapshot: `laws[k]` (m**s, m)."""
    digits = digits_of(len(laws), laws.shape[-1])
    kernel = np.ones((len(digits), len(digits)))
    for k, law in enumerate(laws):
        kernel *= law[:, digits[:, k]]
    return kernel


def coupled_laws(coupling: Array, transitions: Array) -> Array:
    """(s, m**s, m) the law of every sequence in a coupled chain, given every snapshot."""
    s, m = len(coupling), transitions.shape[-1]
    digits = digits_of(s, m)
    return np.array([sum(coupling[k, i] * transitions[k, i][digits[:, i]] for i in range(s)) for k in range(s)])
