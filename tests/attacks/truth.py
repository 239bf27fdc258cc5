"""The truth about a history of releases on a small system. Imports numpy and nothing of the library.

A snapshot is a number in `range(m**s)`, the first sequence the most significant digit. An output reads one slice (tick)
of each sequence, answers with a vector and adds Laplace (or geometric) noise, so its density is proportional to
`exp(-rate |y - answer|_1)`. Given everything else, the density of a history is, in each coordinate of each output and
between two neighbouring answers, a Moebius function of `exp(2 rate y)`: the largest ratio lies on the product of the
answers' coordinates, and the supremum over all histories is a finite maximum.

The law of (snapshot at some moment, all outputs) is filtered forward in time. An output whose slices differ keeps what
it has read so far as an axis of its own until it has read everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


#: Numbers that the filter holds at once, at most.
LARGEST = 4_000_000


class TooManyError(Exception):
    """The truth of a history would take too long."""


@lru_cache(maxsize=64)
def digits_of(s: int, m: int) -> NDArray[np.intp]:
    """The states (m**s, s) of every snapshot."""
    return np.array(list(product(range(m), repeat=s)), dtype=np.intp)


def coupled_kernel(coupling: Array, transitions: Array) -> Array:
    """K[x, y]: every sequence picks whom to follow, independently of the others."""
    s, m = len(coupling), transitions.shape[-1]
    digits = digits_of(s, m)
    kernel = np.ones((len(digits), len(digits)))
    for j in range(s):
        following = sum(coupling[j, k] * transitions[j, k][digits[:, k]] for k in range(s))  # (N, m)
        kernel *= following[:, digits[:, j]]
    return kernel


def closed_classes(kernel: Array) -> list[list[int]]:
    """Sets of snapshots that reach one another and nothing else."""
    reach = np.eye(len(kernel), dtype=bool) | (kernel > 0)
    for middle in range(len(kernel)):
        reach |= np.outer(reach[:, middle], reach[middle])
    closed = [x for x in range(len(kernel)) if (reach[:, x] | ~reach[x]).all()]
    return sorted({tuple(np.flatnonzero(reach[x]).tolist()) for x in closed})  # type: ignore[arg-type]


def stationary_law(kernel: Array) -> Array:
    """The one stationary law, by elimination of states without a subtraction."""
    classes = closed_classes(kernel)
    if len(classes) != 1:
        raise ValueError("several stationary laws")
    keep = list(classes[0])
    work = kernel[np.ix_(keep, keep)].copy()
    for last in range(len(keep) - 1, 0, -1):
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    weight = np.ones(len(keep))
    for n in range(1, len(keep)):
        weight[n] = weight[:n] @ work[:n, n]
    law = np.zeros(len(kernel))
    law[keep] = weight / weight.sum()
    return law


@dataclass(frozen=True, eq=False)
class Output:
    """One output: the slice that each sequence was read from, the answer of every snapshot (N, d), the noise rate."""

    reads: tuple[int, ...]
    answers: Array
    rate: float

    @cached_property
    def likelihoods(self) -> Array:
        """[y, z] for the outputs that can be the worst."""
        axes = [np.unique(column) for column in self.answers.T]
        grid = np.array(list(product(*axes)))
        return np.exp(-self.rate * np.abs(grid[:, None, :] - self.answers[None, :, :]).sum(axis=2))

    @cached_property
    def distances(self) -> Array:
        """How far the log density can differ between any two snapshots."""
        return np.asarray(self.rate * np.abs(self.answers[:, None, :] - self.answers[None, :, :]).sum(axis=2))


@dataclass(frozen=True, eq=False)
class World:
    """A Markov law of s sequences with m states; `start` is the law of its first slice, else it is stationary.

    Where the law changes from tick to tick, see `attacks.processes`.
    """

    kernel: Array
    s: int
    m: int
    start: Array | None = None

    @cached_property
    def origin(self) -> Array:
        return stationary_law(self.kernel) if self.start is None else self.start

    def into(self, slice_: int) -> Array:
        """The kernel of the step that leads to a slice."""
        return self.kernel

    def law_at(self, first: int) -> Array:
        """The law of the first slice that is looked at."""
        return self.origin

    def joint(self, outputs: Sequence[Output], watched: int, *, begin: int | None = None) -> tuple[Array, Array]:
        """(Pr(snapshot at the slice `watched`, density of the history) (N, histories), Pr(snapshot)).

        The slice may lie before some that are read. `begin`: the slice whose law is `start`; none that is read may lie
        before it.
        """
        digits = digits_of(self.s, self.m)
        size = len(digits)
        slices = [n for output in outputs for n in output.reads]
        first, last = min([*slices, watched]), max([*slices, watched])
        if begin is not None:
            assert begin <= first
            first = begin
        # Axes: present snapshot, what each open output has read (in `waiting`), all finished histories, and the
        # watched snapshot once it is past.
        law = seen = self.law_at(first)
        weight = law.reshape(size, 1, 1)
        waiting: list[tuple[Output, list[int]]] = []
        for now in range(first, last + 1):
            if now > first:
                weight = np.tensordot(self.into(now).T, weight, axes=1)
                law = law @ self.into(now)
            if now == watched:
                seen = law
                if now < last:
                    apart = np.zeros((*weight.shape[:-1], size))
                    at = np.arange(size)
                    apart[at, ..., at] = weight[..., 0]
                    weight = apart
            for output in outputs:
                here = [i for i, n in enumerate(output.reads) if n == now]
                if not here:
                    continue
                place = next((k for k, (other, _) in enumerate(waiting) if other is output), None)
                if place is None:
                    waiting.insert(0, (output, []))
                    weight = weight[:, None]
                    place = 0
                weight = _collect(weight, place + 1, _codes(digits[:, here], self.m), self.m ** len(here))
                waiting[place][1].extend(here)
                if len(waiting[place][1]) == self.s:
                    weight = _finish(weight, place + 1, output.likelihoods, self._order(waiting[place][1]))
                    del waiting[place]
        assert not waiting
        if watched == last:
            return weight[..., 0], seen
        return weight.sum(axis=0).T, seen

    def _order(self, collected: list[int]) -> NDArray[np.intp]:
        """The snapshot that a code of states, collected in some order of sequences, stands for."""
        digits = digits_of(self.s, self.m)
        place = self.m ** np.arange(self.s - 1, -1, -1)
        found = np.empty(len(digits), dtype=np.intp)
        found[_codes(digits[:, collected], self.m)] = digits @ place
        return found

    # ---- what an adversary learns ------------------------------------------------------------------------------------

    def told(self, outputs: Sequence[Output], watched: int, adversary: str, *, begin: int | None = None) -> float:
        """Largest log ratio of the history given two values of one sequence at the slice `watched`."""
        return worst_ratio(*self.joint(outputs, watched, begin=begin), self.s, self.m, adversary)

    def told_from(
        self,
        outputs: Sequence[Output],
        moment: int,
        quiet: int,
        adversary: str,
        *,
        begin: int | None = None,
        close: NDArray[np.bool_] | None = None,
    ) -> list[float]:
        """What the history tells of the present at `moment`, by when all was read, and at some quiet ticks after it."""
        joint, law = self.joint(outputs, moment, begin=begin)
        found = [worst_ratio(joint, law, self.s, self.m, adversary, close)]
        for later in range(moment + 1, moment + 1 + quiet):
            joint, law = self.into(later).T @ joint, law @ self.into(later)
            found.append(worst_ratio(joint, law, self.s, self.m, adversary, close))
        return found


def _codes(states: NDArray[np.intp], m: int) -> NDArray[np.intp]:
    """Rows of states as numbers to the base m."""
    return np.asarray(states @ (m ** np.arange(states.shape[1] - 1, -1, -1)), dtype=np.intp)


def _collect(weight: Array, axis: int, code: NDArray[np.intp], base: int) -> Array:
    """Append the states that are read now (they depend on axis 0 alone) to what an axis holds."""
    if weight.size * base > LARGEST:
        raise TooManyError
    moved = np.moveaxis(weight, axis, 1)
    out = np.zeros((*moved.shape[:2], base, *moved.shape[2:]))
    at = np.arange(len(code))
    out[at, :, code] = moved
    return np.moveaxis(out.reshape(moved.shape[0], -1, *moved.shape[2:]), 1, axis)


def _finish(weight: Array, axis: int, likelihoods: Array, order: NDArray[np.intp]) -> Array:
    """Everything is read: sum over it with the density of every worst output, which joins the finished histories."""
    if weight.size // weight.shape[axis] * len(likelihoods) > LARGEST:
        raise TooManyError
    summed = np.tensordot(weight, likelihoods[:, order], axes=([axis], [1]))  # (..., histories, watched, y)
    summed = np.moveaxis(summed, -1, -2)
    return summed.reshape(*summed.shape[:-3], -1, summed.shape[-1])


def worst_ratio(
    joint: Array, law: Array, s: int, m: int, adversary: str, close: NDArray[np.bool_] | None = None
) -> float:
    """Largest log ratio over histories and over two states of one sequence, whatever of the others is known.

    `close` (s, m, m): the pairs of states that are compared; all by default.
    """
    shape = (m,) * s
    mass, present = joint.reshape(*shape, -1), law.reshape(shape)
    worst = 0.0
    for i in range(s):
        others = [j for j in range(s) if j != i]
        sizes = {"informed": [s - 1], "uninformed": [0], "any": range(s)}[adversary]
        for known in (c for size in sizes for c in combinations(others, size)):
            hidden = tuple(j for j in others if j not in known)
            above, below = mass.sum(axis=hidden), present.sum(axis=hidden)[..., None]
            axis = i - sum(j < i for j in hidden)
            there = below > 0
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(above) - np.log(below)
            high, low = (np.moveaxis(np.where(there, logs, end), axis, 0) for end in (-np.inf, np.inf))
            some = np.moveaxis(there & np.ones(logs.shape, dtype=bool), axis, 0)
            for a in range(m):
                near = low if close is None else low[close[i, a]]
                if some[a].any():
                    worst = max(worst, float((high[a] - near.min(axis=0))[some[a]].max()))
    return worst


# ---- plain differential privacy, under any model ---------------------------------------------------------------------


def record_loss(outputs: Sequence[Output], s: int, m: int) -> float:
    """Plain epsilon-DP of the record that was read most: what each output that reads it can move, added up."""
    digits = digits_of(s, m)
    spent: dict[tuple[int, int], float] = {}
    for output in outputs:
        for i, n in enumerate(output.reads):
            alone = ((digits[:, None, :] != digits[None, :, :]) == (np.arange(s) == i)).all(axis=2)
            spent[i, n] = spent.get((i, n), 0.0) + float(output.distances[alone].max(initial=0.0))
    return max(spent.values(), default=0.0)


def group_loss(outputs: Sequence[Output], members: Sequence[int], s: int, m: int) -> float:
    """Plain DP of all records of some sequences in all outputs."""
    digits = digits_of(s, m)
    outside = [i for i in range(s) if i not in members]
    same = (digits[:, None, outside] == digits[None, :, outside]).all(axis=2)
    return float(sum(output.distances[same].max() for output in outputs))


def connected(coupling: Array) -> list[list[int]]:
    """Sets of sequences that no coupling connects with others."""
    tied = (np.asarray(coupling) > 0) | (np.asarray(coupling) > 0).T | np.eye(len(coupling), dtype=bool)
    for middle in range(len(tied)):
        tied |= np.outer(tied[:, middle], tied[middle])
    return [list(part) for part in sorted({tuple(np.flatnonzero(row).tolist()) for row in tied})]


def factorises(law: Array, parts: Sequence[Sequence[int]], s: int, m: int) -> bool:
    """Whether a law of snapshots is the product of its margins over some sets of sequences."""
    joint = np.asarray(law).reshape((m,) * s)
    product = np.ones_like(joint)
    for part in parts:
        others = tuple(i for i in range(s) if i not in part)
        product = product * joint.sum(axis=others, keepdims=True)
    return bool(np.abs(joint - product).max() < 1e-12)


# ---- the same by another way, for tiny systems -----------------------------------------------------------------------


def told_by_paths(
    world: World, outputs: Sequence[Output], moment: int, adversary: str, *, begin: int | None = None
) -> float:
    """`World.told` by enumeration of every path and every history, in plain loops."""
    digits = digits_of(world.s, world.m)
    slices = [n for output in outputs for n in output.reads]
    first = min([*slices, moment]) if begin is None else begin
    last = max([*slices, moment])
    mass: dict[tuple[int, tuple[int, ...]], float] = {}
    for path in product(range(len(digits)), repeat=last - first + 1):
        chance = world.law_at(first)[path[0]]
        for now, (here, there) in enumerate(pairwise(path), start=first + 1):
            chance *= world.into(now)[here, there]
        if chance > 0:
            read = tuple(
                int(sum(digits[path[n - first]][i] * world.m ** (world.s - 1 - i) for i, n in enumerate(o.reads)))
                for o in outputs
            )
            key = (path[moment - first], read)
            mass[key] = mass.get(key, 0.0) + chance
    law = np.zeros(len(digits))
    for (x, _), chance in mass.items():
        law[x] += chance
    histories = list(product(*(range(len(o.likelihoods)) for o in outputs)))
    joint = np.zeros((len(digits), len(histories)))
    for column, history in enumerate(histories):
        for (x, read), chance in mass.items():
            density = 1.0
            for output, y, z in zip(outputs, history, read, strict=True):
                density *= output.likelihoods[y, z]
            joint[x, column] += chance * density
    worst = 0.0
    for i in range(world.s):
        others = [j for j in range(world.s) if j != i]
        sizes = {"informed": [world.s - 1], "uninformed": [0], "any": range(world.s)}[adversary]
        for known in (c for size in sizes for c in combinations(others, size)):
            for seen in product(range(world.m), repeat=len(known)):
                rows = []
                for a in range(world.m):
                    fixed = dict(zip(known, seen, strict=True)) | {i: a}
                    match = [n for n, x in enumerate(digits) if all(x[j] == c for j, c in fixed.items())]
                    if law[match].sum() > 0:
                        rows.append(joint[match].sum(axis=0) / law[match].sum())
                for p, q in product(rows, repeat=2):
                    worst = max(worst, float(np.log(p / q).max()))
    return worst
