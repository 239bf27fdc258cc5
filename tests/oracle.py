"""Brute force for tiny systems: every snapshot, every history of outputs. Imports nothing of the library.

Snapshots are numbered in the order of ``itertools.product(range(m), repeat=s)``. An output reads one slice (tick) of
each sequence, answers with a vector and adds Laplace (or geometric) noise, so its density is proportional to
`exp(-rate |y - answer|_1)`. Given everything else, the density of a history is, in each coordinate of each output and
between two neighbouring answers, a Moebius function of `exp(2 rate y)`: the largest ratio lies on the product of the
answers' coordinates, and the supremum over all histories is a finite maximum.

`World` filters the law of (snapshot at some moment, all outputs) forward in time; `told_by_paths` finds the same number
by enumerating every path in plain loops. `Rooted` generates values from one tick, the past and the future, by any laws.
Everything else asks one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache, cached_property, lru_cache
from itertools import combinations, pairwise, permutations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.special import logsumexp

Array = NDArray[np.float64]
Snapshot = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]
Values = Sequence[tuple[float, ...]]

#: Numbers that the filter holds at once, at most.
LARGEST = 4_000_000


class TooManyError(Exception):
    """The truth of a history would take too long."""


def snapshots(s: int, m: int) -> list[Snapshot]:
    """All m^s snapshots in their fixed order."""
    return list(product(range(m), repeat=s))


@lru_cache(maxsize=64)
def digits_of(s: int, m: int) -> NDArray[np.intp]:
    """The states (m**s, s) of every snapshot."""
    return np.array(snapshots(s, m), dtype=np.intp)


def safe_log(p: ArrayLike) -> Array:
    """Natural logarithm with ln 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(p, dtype=float))


# ---- chains ----------------------------------------------------------------------------------------------------------


def joint_kernel(coupling: ArrayLike, transitions: ArrayLike) -> Any:
    """K[x, y] = Pr(next = y | present = x); independent picks. One m x m matrix serves all pairs."""
    lam, t = np.asarray(coupling), np.asarray(transitions)
    s, m = len(lam), t.shape[-1]
    t = np.broadcast_to(t, (s, s, m, m))
    digits = digits_of(s, m)
    kernel: Any = 1
    for j in range(s):
        following = sum(lam[j, k] * t[j, k][digits[:, k]] for k in range(s))  # (N, m)
        kernel = kernel * following[:, digits[:, j]]
    return kernel


def closed_classes(kernel: ArrayLike) -> list[list[int]]:
    """Sets of snapshots that reach one another and nothing else."""
    k = np.asarray(kernel)
    reach = np.eye(len(k), dtype=bool) | (k > 0)
    for middle in range(len(k)):
        reach |= np.outer(reach[:, middle], reach[middle])
    closed = [x for x in range(len(k)) if (reach[:, x] | ~reach[x]).all()]
    return [list(found) for found in sorted({tuple(np.flatnonzero(reach[x]).tolist()) for x in closed})]


def recurrent_states(kernel: ArrayLike) -> list[int]:
    """The one closed class of communicating states; an error where there are several."""
    classes = closed_classes(kernel)
    if len(classes) != 1:
        raise ValueError("several stationary laws")
    return classes[0]


def stationary(kernel: ArrayLike) -> Any:
    """The stationary law by state elimination without subtractions; transient states get an exact 0."""
    k = np.asarray(kernel)
    keep = recurrent_states(k)
    work = k[np.ix_(keep, keep)].copy()
    for n in range(len(keep) - 1, 0, -1):
        work[:n, n] /= work[n, :n].sum()
        work[:n, :n] += np.outer(work[:n, n], work[n, :n])
    weight = np.ones(len(keep), dtype=int).astype(k.dtype)
    for n in range(1, len(keep)):
        weight[n] = weight[:n] @ work[:n, n]
    law = np.zeros(len(k), dtype=int).astype(k.dtype)
    law[keep] = weight / weight.sum()
    return law


def reverse(kernel: Array, before: Array) -> Array:
    """The kernel in the other direction of time, from the law where it starts."""
    joint = (before[:, None] * kernel).T
    total = joint.sum(axis=1, keepdims=True)
    return np.where(total > 0, joint / np.where(total > 0, total, 1.0), 0.0)


def connected(coupling: Array) -> list[list[int]]:
    """Sets of sequences that no coupling connects with others."""
    tied = (np.asarray(coupling) > 0) | (np.asarray(coupling) > 0).T | np.eye(len(coupling), dtype=bool)
    for middle in range(len(tied)):
        tied |= np.outer(tied[:, middle], tied[middle])
    return [list(part) for part in sorted({tuple(np.flatnonzero(row).tolist()) for row in tied})]


# ---- queries ---------------------------------------------------------------------------------------------------------


def query_values(
    name: str,
    s: int,
    m: int,
    values: Sequence[float],
    weights: Sequence[float] | None = None,
    state: int | None = None,
) -> list[tuple[float, ...]]:
    """The tuple f(z) of every snapshot z. `state` (an index) is for count, `weights` for linear."""
    answer: dict[str, Callable[[Snapshot, list[float]], tuple[float, ...]]] = {
        "mean": lambda z, v: (sum(v) / s,),
        "sum": lambda z, v: (sum(v),),
        "max": lambda z, v: (max(v),),
        "min": lambda z, v: (min(v),),
        "count": lambda z, v: (float(sum(a == state for a in z)),),
        "histogram": lambda z, v: tuple(float(z.count(a)) for a in range(m)),
        "identity": lambda z, v: tuple(v),
        "linear": lambda z, v: (sum(w * u for w, u in zip(weights or (), v, strict=True)),),
    }
    if name not in answer:
        raise ValueError(f"no query {name!r}")
    return [answer[name](z, [float(values[a]) for a in z]) for z in snapshots(s, m)]


def mean_answers(s: int, m: int) -> tuple[Array, float]:
    """Mean of the states of every snapshot, and its sensitivity."""
    return digits_of(s, m).mean(axis=1), (m - 1) / s


def l1(u: Iterable[float], v: Iterable[float]) -> float:
    """The l1 distance of two tuples."""
    return sum(abs(a - b) for a, b in zip(u, v, strict=True))


def sensitivity(fvals: Values, s: int, m: int, k: int) -> float:
    """s_k: the largest l1 change of f over pairs of snapshots that differ in at most k coordinates."""
    rows = list(zip(snapshots(s, m), fvals, strict=True))
    return max(l1(f, g) for x, f in rows for y, g in rows if sum(a != b for a, b in zip(x, y, strict=True)) <= k)


def product_outputs(fvals: Iterable[Sequence[float]]) -> list[tuple[float, ...]]:
    """The product over output coordinates of the sets of values of that coordinate."""
    return list(product(*(sorted(set(column)) for column in zip(*fvals, strict=True))))


# ---- histories -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Output:
    """One output: the slice that each sequence was read from, the answer of every snapshot (N, d), the noise rate."""

    reads: tuple[int, ...]
    answers: Array
    rate: float

    @cached_property
    def likelihoods(self) -> Array:
        """[y, z] for the outputs that can be the worst."""
        grid = np.array(product_outputs(self.answers.tolist()))
        return np.exp(-self.rate * np.abs(grid[:, None, :] - self.answers[None, :, :]).sum(axis=2))

    @cached_property
    def distances(self) -> Array:
        """How far the log density can differ between any two snapshots."""
        return np.asarray(self.rate * np.abs(self.answers[:, None, :] - self.answers[None, :, :]).sum(axis=2))


class Reading(Output):
    """An output that shows the aged snapshot itself."""

    @cached_property
    def likelihoods(self) -> Array:
        return np.eye(len(self.answers))


@dataclass(frozen=True, eq=False)
class World:
    """A Markov law of s sequences with m states; `start` is the law of its first slice, else it is stationary."""

    kernel: Array
    s: int
    m: int
    start: Array | None = None

    @cached_property
    def origin(self) -> Array:
        return np.asarray(stationary(self.kernel)) if self.start is None else self.start

    def into(self, slice_: int) -> Array:
        """The kernel of the step that leads to a slice."""
        return self.kernel

    def law_at(self, first: int) -> Array:
        """The law of the first slice that is looked at."""
        return self.origin

    def joint(self, outputs: Sequence[Output], watched: int, *, begin: int | None = None) -> tuple[Array, Array]:
        """(Pr(snapshot at the slice `watched`, density of the history) (N, histories), Pr(snapshot)).

        The slice may lie before some that are read. `begin`: the slice whose law is `start`; none that is read may lie
        before it. An output whose slices differ keeps what it has read so far as an axis of its own until it has read
        everything.
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
        found = np.empty(len(digits), dtype=np.intp)
        found[_codes(digits[:, collected], self.m)] = _codes(digits, self.m)
        return found

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
    ) -> list[float]:
        """What the history reveals of the present at `moment`, by when all was read, and at quiet ticks after it."""
        joint, law = self.joint(outputs, moment, begin=begin)
        found = [worst_ratio(joint, law, self.s, self.m, adversary)]
        for later in range(moment + 1, moment + 1 + quiet):
            joint, law = self.into(later).T @ joint, law @ self.into(later)
            found.append(worst_ratio(joint, law, self.s, self.m, adversary))
        return found


@dataclass(frozen=True, eq=False)
class Changing(World):
    """A law whose kernels are given slice by slice: `kernels[n]` leads to the slice `first + 1 + n`.

    `start` is the law of the slice `first`.
    """

    first: int = 0
    kernels: tuple[Array, ...] = ()

    def into(self, slice_: int) -> Array:
        return self.kernels[slice_ - self.first - 1]

    def law_at(self, first: int) -> Array:
        return self._laws[first - self.first]

    @cached_property
    def _laws(self) -> list[Array]:
        assert self.start is not None
        laws = [self.start]
        for kernel in self.kernels:
            laws.append(laws[-1] @ kernel)
        return laws


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


def known_sizes(adversary: str, s: int) -> Sequence[int]:
    """Of how many other sequences an adversary knows the state."""
    return {"informed": [s - 1], "uninformed": [0], "any": range(s)}[adversary]


def worst_ratio(joint: Array, law: Array, s: int, m: int, adversary: str) -> float:
    """Largest log ratio over histories and over two states of one sequence, whatever of the others is known."""
    shape = (m,) * s
    mass, present = joint.reshape(*shape, -1), law.reshape(shape)
    worst = 0.0
    for i in range(s):
        others = [j for j in range(s) if j != i]
        for known in (c for size in known_sizes(adversary, s) for c in combinations(others, size)):
            hidden = tuple(j for j in others if j not in known)
            above, below = mass.sum(axis=hidden), present.sum(axis=hidden)[..., None]
            axis = i - sum(j < i for j in hidden)
            there = below > 0
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(above) - np.log(below)
            high, low = (np.moveaxis(np.where(there, logs, end), axis, 0) for end in (-np.inf, np.inf))
            some = np.moveaxis(there & np.ones(logs.shape, dtype=bool), axis, 0)
            for a in range(m):
                if some[a].any():
                    worst = max(worst, float((high[a] - low.min(axis=0))[some[a]].max()))
    return worst


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
        for known in (c for size in known_sizes(adversary, world.s) for c in combinations(others, size)):
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


# ---- graphs: any order of generation ---------------------------------------------------------------------------------

Node = tuple[int, int]
#: Of a sequence, some ticks after the roots: its parents, generated before it, and its law given them, (m,) * parents
#: + (m,). Of the roots, their law given those before them.
Law = Callable[[int, int], tuple[Sequence[Node], Array]]
Edge = tuple[int, int, int, float, ArrayLike]


@dataclass(frozen=True, eq=False)
class Rooted:
    """Values generated from one tick, the roots: first the past, newest tick first, then the future, oldest tick first.

    Inside a tick the sequences come in order. `law` counts ticks from the roots, which are at the watched tick: every
    moment that is watched may have laws of its own.
    """

    law: Law
    s: int
    m: int

    def joint(self, outputs: Sequence[Output], watched: int) -> tuple[Array, Array]:
        """(Pr(roots, density of the history) (N, histories), Pr(roots)).

        A node is summed out as soon as no later one and no output needs it.
        """
        reads = [[(i, n - watched) for i, n in enumerate(output.reads)] for output in outputs]
        order = self._generated({node for nodes in reads for node in nodes})
        laws = [self.law(*node) for node in order]
        alive: list[Node] = []
        weight = law = np.ones(1)
        for place, (node, (parents, table)) in enumerate(zip(order, laws, strict=True)):
            last = len(alive)
            at = [alive.index(parent) for parent in parents]
            weight = np.einsum(weight, [*range(last), last + 1], table, [*at, last], [*range(last + 2)])
            alive.append(node)
            if node == (self.s - 1, 0):
                law = weight.reshape(-1)
            waiting = order[place + 1 :]
            for output, nodes in zip(outputs, reads, strict=True):
                if node in nodes and set(nodes).isdisjoint(waiting):
                    weight = self._read(weight, output, [alive.index(each) for each in nodes])
            needed = {(i, 0) for i in range(self.s)}.union(*(parents for parents, _ in laws[place + 1 :]))
            needed.update(*(nodes for nodes in reads if not set(nodes).isdisjoint(waiting)))
            weight = weight.sum(axis=tuple(n for n, each in enumerate(alive) if each not in needed))
            alive = [each for each in alive if each in needed]
        return weight.reshape(self.m**self.s, -1), law

    def _generated(self, read: set[Node]) -> list[Node]:
        """The roots and all nodes that something read depends on, in order."""
        found, new = {(i, 0) for i in range(self.s)}, set(read)
        while new:
            found |= new
            new = {parent for node in new for parent in self.law(*node)[0]} - found
        return sorted(found, key=_generation)

    def _read(self, weight: Array, output: Output, at: Sequence[int]) -> Array:
        """With an axis of histories that is longer by an output of the nodes in some places."""
        likely = output.likelihoods.reshape(-1, *(self.m,) * self.s)
        if weight.size * len(likely) > LARGEST:
            raise TooManyError
        last = weight.ndim - 1
        read = np.einsum(weight, [*range(last + 1)], likely, [last + 1, *at], [*range(last + 2)])
        return np.asarray(read.reshape(*weight.shape[:-1], -1))

    def told(self, outputs: Sequence[Output], watched: int, adversary: str = "informed") -> float:
        """Largest log ratio of the history given two values of one sequence at the slice `watched`."""
        return worst_ratio(*self.joint(outputs, watched), self.s, self.m, adversary)

    def told_from(self, outputs: Sequence[Output], moment: int, quiet: int, adversary: str) -> list[float]:
        """What the history reveals of the present at `moment`, and at quiet ticks after it."""
        return [self.told(outputs, now, adversary) for now in range(moment, moment + 1 + quiet)]


def _generation(node: Node) -> tuple[bool, int, int]:
    """In which order nodes are generated."""
    return node[1] > 0, abs(node[1]), node[0]


def mixture_law(windows: Sequence[Sequence[Edge]], m: int, forward: Sequence[Edge] = ()) -> Law:
    """Each value follows one parent, drawn by the weights of the edges (child, parent, lag, weight, matrix).

    Args:
        windows: by distance from the roots, the last one for all older values too.
        m: states.
        forward: edges of the future, whose lags lead to older ticks.
    """

    def law(i: int, tick: int) -> tuple[Sequence[Node], Array]:
        if tick == 0:
            return (), np.full(m, 1 / m)
        own = [edge for edge in (forward if tick > 0 else windows[min(-tick, len(windows)) - 1]) if edge[0] == i]
        table = np.zeros((m,) * (len(own) + 1))
        for n, (_, _, _, weight, matrix) in enumerate(own):
            table += weight * np.asarray(matrix).reshape((m,) + (1,) * (len(own) - 1 - n) + (m,))
        return [(parent, tick - lag if tick > 0 else tick + lag) for _, parent, lag, _, _ in own], table

    return law


def conditional_law(joint: Array, s: int, first: int, memory: int) -> Law:
    """The law of every value given all values before it at most `memory` ticks away, of a joint law (m,) * nodes.

    Its axes are the values at the slices first, first + 1, ..., those of one tick together. Where nothing occurs, the
    law is completed by the uniform one.
    """
    m = joint.shape[0]
    order = sorted(product(range(s), range(first, first + joint.ndim // s)), key=_generation)

    @cache
    def law(i: int, tick: int) -> tuple[Sequence[Node], Array]:
        before = [node for node in order[: order.index((i, tick))] if abs(node[1] - tick) <= memory]
        kept = [(n - first) * s + k for k, n in [*before, (i, tick)]]
        table = np.einsum(joint, list(range(joint.ndim)), kept)
        total = table.sum(axis=-1, keepdims=True)
        return before, np.where(total > 0, table / np.where(total > 0, total, 1.0), 1.0 / m)

    return law


@dataclass(frozen=True)
class Told:
    """One output: at which tick, the age of every sequence's reading, f of every snapshot, epsilon_c / Delta_f."""

    tick: int
    ages: tuple[int, ...]
    fvals: tuple[tuple[float, ...], ...]
    rate: float

    @property
    def output(self) -> Output:
        return Output(tuple(self.tick - age for age in self.ages), np.array(self.fvals), self.rate)


def history_leakage(
    kernel: Array, s: int, m: int, outputs: Sequence[Told], moment: int, *, adversary: str = "informed"
) -> float:
    """Worst log ratio of the history given two values of one sequence at `moment`, under the stationary law."""
    return World(kernel, s, m).told([one.output for one in outputs], moment, adversary)


def snapshot_leakage(kernel: Array, s: int, m: int, outputs: Sequence[Told], moment: int) -> float:
    """Worst log ratio of the history given any two snapshots at `moment`."""
    told, law = World(kernel, s, m).joint([one.output for one in outputs], moment)
    seen = law > 0
    return float(np.ptp(np.log(told[seen]) - np.log(law[seen, None]), axis=0).max())


def repeated_leakage(
    kernel: ArrayLike,
    s: int,
    m: int,
    age: int | Sequence[int] | Sequence[Sequence[int]],
    epsilon_c: float,
    fvals: Values,
    delta_f: float,
    releases: int,
) -> float:
    """The same for releases at ticks 0..releases-1: one age, one vector of ages, or one vector a release."""
    ages = np.broadcast_to(np.asarray(age), (releases, s)).tolist()
    outputs = [Told(n, tuple(row), tuple(fvals), epsilon_c / delta_f) for n, row in enumerate(ages)]
    return history_leakage(np.asarray(kernel, dtype=float), s, m, outputs, releases - 1)


# ---- plain differential privacy, under any model ---------------------------------------------------------------------


def record_loss(outputs: Sequence[Output], s: int, m: int, window: int = 1) -> float:
    """Plain epsilon-DP of the record that was read most, or of so many consecutive ones of a sequence.

    What each output that reads one of them can move, added up.
    """
    digits = digits_of(s, m)
    spent: dict[tuple[int, int], float] = {}
    for output in outputs:
        for i, n in enumerate(output.reads):
            alone = ((digits[:, None, :] != digits[None, :, :]) == (np.arange(s) == i)).all(axis=2)
            spent[i, n] = spent.get((i, n), 0.0) + float(output.distances[alone].max(initial=0.0))
    return max((sum(spent.get((i, n + k), 0.0) for k in range(window)) for i, n in spent), default=0.0)


def group_loss(outputs: Sequence[Output], members: Sequence[int], s: int, m: int) -> float:
    """Plain DP of all records of some sequences in all outputs."""
    digits = digits_of(s, m)
    outside = [i for i in range(s) if i not in members]
    same = (digits[:, None, outside] == digits[None, :, outside]).all(axis=2)
    return float(sum(output.distances[same].max() for output in outputs))


# ---- environments ----------------------------------------------------------------------------------------------------


def random_member(rng: np.random.Generator, s: int, m: int, kind: str) -> tuple[Array, Array]:
    """Coupling and transitions of one environment: plain, skewed, persistent, deterministic, hub or own chains."""
    coupling = rng.dirichlet(np.ones(s), size=s)
    rows = rng.dirichlet(np.ones(m) * (0.25 if kind == "skewed" else 1.0), size=(s, s, m))
    if kind == "persistent":
        rows = 0.85 * np.eye(m) + 0.15 * rows
    if kind == "deterministic":
        rows = np.eye(m)[rng.integers(m, size=(s, s, m))]
    if kind == "hub":
        coupling = np.full((s, s), 0.1 / s) + 0.9 * np.eye(s)[[0] * s]
    if kind == "own":
        coupling = np.eye(s)
    return coupling, rows


def member_kernel(member: tuple[Array, Array]) -> Array:
    """The joint kernel of one environment, in its own direction."""
    return np.asarray(joint_kernel(*member))


def periodic_laws(kernels: Sequence[Array], *, backward: bool) -> list[Array]:
    """Law of the snapshot at each phase; kernels[h] leads to phase h, or back from it."""
    count = len(kernels)
    round_trip = np.eye(len(kernels[0]))
    order = [-h % count for h in range(count)] if backward else [(h + 1) % count for h in range(count)]
    for h in order:
        round_trip = round_trip @ kernels[h]
    law, laws = stationary(round_trip), {}
    for h in order:
        law = law @ kernels[h]
        laws[(h - 1) % count if backward else h] = law
    return [laws[h] for h in range(count)]


def clock_backward_kernels(kernels: Sequence[Array], *, backward: bool) -> list[Array]:
    """R_h, back from phase h."""
    if backward:
        return list(kernels)
    laws = periodic_laws(kernels, backward=False)
    return [reverse(kernels[h], laws[h - 1]) for h in range(len(kernels))]


def hidden_law(switching: Array, kernels: Sequence[Array], *, backward: bool) -> tuple[Array, Array]:
    """Joint backward kernel on (e, x), environment first, and the law, from the definition."""
    count, n = len(kernels), len(kernels[0])
    share = stationary(switching)
    back = reverse(switching, share)
    own = np.zeros((count, n, count, n))
    for e, f in product(range(count), repeat=2):
        own[e, :, f, :] = back[e, f] * kernels[e] if backward else switching[e, f] * kernels[f]
    own = own.reshape(count * n, count * n)
    law = stationary(own)
    return (own if backward else reverse(own, law)), law


def hidden_leakage(switching: Array, kernels: Sequence[Array], s: int, m: int, *, epsilon_c: float, age: int) -> float:
    """What the mean of an old snapshot reveals to an adversary who knows no environment (forward members)."""
    joint, law = hidden_law(switching, kernels, backward=False)
    answers, delta = mean_answers(s, m)
    count = len(kernels)
    logs = likelihoods([joint] * age, np.tile(answers, count), epsilon_c / delta, age, 1)
    weight = law.reshape(count, -1)
    given = np.exp(logs).reshape(-1, count, m**s)
    return worst(np.log((given * weight).sum(axis=1) / weight.sum(axis=0)), s, m)


def likelihoods(back: Sequence[Array], answers: Array, rate: float, age: int, releases: int) -> Array:
    """Log likelihood (histories, presents) of every output history, whose newest release reads the slice `age` ago.

    `back[n]` leads from n steps ago to n + 1 steps ago. `World.joint` the other way round: from the oldest slice, whose
    law does not matter, to the present.
    """
    rows = np.ones((1, len(answers)))
    outputs = np.unique(answers)
    density = np.exp(-rate * np.abs(outputs[:, None] - answers))
    for slice_ago in range(age + releases - 1, -1, -1):
        if slice_ago >= age:
            rows = (rows[:, None] * density).reshape(-1, len(answers))
        if slice_ago > 0:
            rows = rows @ back[slice_ago - 1].T
    return safe_log(rows)


def worst(logs: Array, s: int, m: int, law: Array | None = None) -> float:
    """Largest difference between presents that differ in one sequence, among those that can occur."""
    possible = np.ones(m**s) if law is None else np.asarray(law > 0, dtype=float)
    return worst_ratio(np.exp(logs).T * possible[:, None], possible, s, m, "informed")


# ---- the law of the aged snapshot: rows and pairs --------------------------------------------------------------------


def aged_law(
    kernel: ArrayLike, s: int, m: int, ages: Sequence[int], initial: ArrayLike | None = None
) -> tuple[Array, Array]:
    """B[x, z] = Pr(z | x_t = x) and the law at t; rows of impossible x are NaN. `initial`: at the oldest slice."""
    start = None if initial is None else np.asarray(initial, dtype=float)
    world = World(np.asarray(kernel, dtype=float), s, m, start)
    reading = Reading(tuple(-age for age in ages), digits_of(s, m).astype(float), 0.0)
    joint, law = world.joint([reading], 0, begin=-max(ages))
    out = np.full_like(joint, np.nan)
    out[law > 0] = joint[law > 0] / law[law > 0, None]
    return out, law


def neighbour_pairs(s: int, m: int, law: ArrayLike | None = None) -> list[tuple[int, int]]:
    """Ordered pairs of possible snapshots that differ in exactly one coordinate."""
    snaps = snapshots(s, m)
    pi = np.ones(len(snaps)) if law is None else np.asarray(law)
    return [(n, o) for n, o in all_pairs(pi) if sum(a != b for a, b in zip(snaps[n], snaps[o], strict=True)) == 1]


def all_pairs(law: ArrayLike) -> list[tuple[int, int]]:
    """Ordered pairs of different possible snapshots."""
    return list(permutations(np.flatnonzero(np.asarray(law) > 0).tolist(), 2))


def adversary_rows(
    B: Array, law: ArrayLike, s: int, m: int, adversary: str
) -> tuple[Array, list[tuple[int, int]], list[tuple[int, dict[int, int]]]]:
    """Rows Pr(z | x_i, x_S), the pairs to compare, and of each row i and all that is known."""
    snaps = snapshots(s, m)
    joint = np.where(np.asarray(law)[:, None] > 0, np.asarray(law)[:, None] * np.nan_to_num(B), 0.0)
    rows: list[Array] = []
    labels: list[tuple[int, dict[int, int]]] = []
    pairs: list[tuple[int, int]] = []
    for i in range(s):
        others = [j for j in range(s) if j != i]
        for known in (c for size in known_sizes(adversary, s) for c in combinations(others, size)):
            for seen in product(range(m), repeat=len(known)):
                group = []
                for a in range(m):
                    fixed = dict(zip(known, seen, strict=True)) | {i: a}
                    match = [n for n, x in enumerate(snaps) if all(x[j] == c for j, c in fixed.items())]
                    mass = joint[match].sum(axis=0)
                    if mass.sum() > 0:
                        group.append(len(rows))
                        rows.append(mass / mass.sum())
                        labels.append((i, fixed))
                pairs += permutations(group, 2)
    return np.array(rows), pairs, labels


def log_likelihood(rows: Array, fvals: Values, outputs: Values, epsilon_c: float, delta_f: float) -> Array:
    """[row, output]: ln sum_z rows[row, z] exp(-|y - f(z)|_1 eps_c / Delta_f)."""
    f, y = np.array(fvals), np.array(outputs)
    expo = -np.abs(y[:, None, :] - f[None, :, :]).sum(axis=2) * (epsilon_c / delta_f)
    return np.array([logsumexp(safe_log(row)[None, :] + expo, axis=1) for row in rows])


def worst_output(
    rows: Array, pairs: Pairs, fvals: Values, outputs: Values, epsilon_c: float, delta_f: float
) -> tuple[float, tuple[int, int, tuple[float, ...]] | None]:
    """The largest log ratio over pairs of rows and the given outputs, and where it is (row, row', y)."""
    loglik = log_likelihood(rows, fvals, outputs, epsilon_c, delta_f)
    best, where = 0.0, None
    for n, o in pairs:
        ratio = loglik[n] - loglik[o]
        at = int(np.argmax(ratio))
        if ratio[at] > best:
            best, where = float(ratio[at]), (n, o, tuple(outputs[at]))
    return best, where


def exact_leakage(
    B: Array, fvals: Values, s: int, m: int, epsilon_c: float, delta_f: float, adversary: str, law: ArrayLike
) -> float:
    """The sup over all outputs as a maximum over finitely many."""
    rows, pairs, _ = adversary_rows(B, law, s, m, adversary)
    return worst_output(rows, pairs, fvals, product_outputs(fvals), epsilon_c, delta_f)[0]


def precise_leakage(
    coupling: ArrayLike,
    transitions: ArrayLike,
    *,
    fvals: Sequence[float],
    delta_f: float,
    age: int,
    epsilon_c: float,
    digits: int = 60,
    backward: bool = False,
) -> float:
    """Exact leakage of the informed adversary in decimals, where floating point cannot be its own judge.

    One common age, one output; all transitions positive.
    """
    decimal = np.frompyfunc(lambda v: Decimal(float(v)), 1, 1)
    with localcontext() as context:
        context.prec = digits
        lam, t = (np.asarray(decimal(np.asarray(a, dtype=float)), dtype=object) for a in (coupling, transitions))
        kernel = joint_kernel(lam / lam.sum(axis=1, keepdims=True), t / t.sum(axis=-1, keepdims=True))
        # Pr(z, x); of a backward chain Pr(z | x), whatever the law of x.
        joint = np.diag([Decimal(1)] * len(kernel) if backward else stationary(kernel))
        for _ in range(age):
            joint = (kernel if backward else joint) @ (joint if backward else kernel)
        joint = joint.T if backward else joint
        rate = Decimal(float(epsilon_c)) / Decimal(float(delta_f))
        values = [Decimal(float(f)) for f in fvals]
        best = Decimal(0)
        for y in set(values):
            density = (np.array([(-abs(y - f) * rate).exp() for f in values]) @ joint) / joint.sum(axis=0)
            best = max([best, *((density[n] / density[o]).ln() for n, o in neighbour_pairs(len(lam), t.shape[-1]))])
        return float(best)


# ---- bounds from the rows --------------------------------------------------------------------------------------------


def total_variation(rows: Array, pairs: Pairs) -> float:
    """Delta: the largest total variation between paired rows."""
    return min(1.0, max((float(np.abs(rows[n] - rows[o]).sum()) / 2 for n, o in pairs), default=0.0))


def log_mix(inside: ArrayLike, outside: ArrayLike, alpha: float) -> Array:
    """ln(outside + e^alpha inside) for probabilities of a set and of its complement."""
    return np.logaddexp(safe_log(outside), safe_log(inside) + alpha)


def profile(rows: Array, pairs: Pairs, alpha: float) -> float:
    """Max over pairs and sets S of ln (P(S^c) + e^a P(S)) / (Q(S^c) + e^a Q(S)); thresholds of P / Q are enough."""
    best = 0.0
    for n, o in pairs:
        p, q = rows[n], rows[o]
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.where(p > 0, p / q, 0.0), kind="stable")
        p, q = p[order], q[order]
        for size in range(1, len(p)):
            top = log_mix(p[:size].sum(), p[size:].sum(), alpha)
            best = max(best, float(top - log_mix(q[:size].sum(), q[size:].sum(), alpha)))
    return best


def freshness(rows: Array, pairs: Pairs) -> float:
    """r: the largest log ratio of paired rows (inf where one is zero and the other is not)."""
    with np.errstate(invalid="ignore"):
        gaps = [np.where(rows[n] > 0, safe_log(rows[n]) - safe_log(rows[o]), 0.0).max() for n, o in pairs]
    return float(max(gaps, default=0.0))


def loose(delta: float, alpha: float) -> float:
    """ln(1 + Delta (e^alpha - 1))."""
    return float(log_mix(delta, 1 - delta, alpha))


def lineage_uninformed(coupling: ArrayLike, transitions: ArrayLike, age: int) -> float:
    """Largest range over z of ln Pr(x_i=a | z) / Pr(x_i=b | z); states no past leads to are left out."""
    t = np.asarray(transitions, dtype=float)
    s, m = len(np.asarray(coupling)), t.shape[-1]
    power = np.linalg.matrix_power(joint_kernel(coupling, transitions), age)
    best = 0.0
    for i in range(s):
        law = power @ (digits_of(s, m)[:, i, None] == np.arange(m))  # law[z, a] = Pr(x_i = a | z)
        for a, b in permutations(range(m), 2):
            if law[:, a].max() == 0 or law[:, b].max() == 0:
                continue
            ratios = [safe_log(p[a]) - safe_log(p[b]) for p in law if p[a] > 0 or p[b] > 0]
            best = max(best, np.inf if not np.all(np.isfinite(ratios)) else float(max(ratios) - min(ratios)))
    return best


def scalar_accountant(kernel: ArrayLike, s: int, m: int, age: int, alpha: float, releases: int) -> list[float]:
    """Scalar rule: leakage after 1..releases releases, one a tick; alpha = d(k) eps_c."""
    back, law = aged_law(kernel, s, m, [1] * s)
    aged, _ = aged_law(kernel, s, m, [age] * s)
    neighbours = neighbour_pairs(s, m, law)
    cap = freshness(aged, neighbours)
    b, out = 0.0, []
    for _ in range(releases):
        b = alpha + profile(back, all_pairs(law), b)
        out.append(min(profile(aged, neighbours, b), cap))
    return out


def metric_profile(rows: Array, pairs: Pairs, b: Array) -> Array:
    """Per pair (x, x'): max ln sum p g / sum q g over g(w) <= e^{b(w,w')} g(w'), by a linear programme."""
    n = rows.shape[1]
    limits = []
    for w, v in permutations(range(n), 2):
        row = np.zeros(n)
        row[w], row[v] = 1.0, -np.exp(b[w, v])
        limits.append(row)
    out = np.zeros((len(rows), len(rows)))
    for x, y in pairs:
        found = linprog(-rows[x], A_ub=limits, b_ub=np.zeros(len(limits)), A_eq=[rows[y]], b_eq=[1.0])
        out[x, y] = np.log(-found.fun)
    return out


def metric_accountant(
    kernel: ArrayLike, s: int, m: int, age: int, epsilon_c: float, fvals: Values, delta_f: float, releases: int
) -> list[float]:
    """Metric state, one common age, every snapshot possible: leakage after 1..releases."""
    back, law = aged_law(kernel, s, m, [1] * s)
    aged, _ = aged_law(kernel, s, m, [age] * s)
    step = np.array([[epsilon_c * l1(f, g) / delta_f for g in fvals] for f in fvals])
    state, out = step, []
    for _ in range(releases):
        out.append(float(metric_profile(aged, neighbour_pairs(s, m, law), state).max()))
        state = step + metric_profile(back, all_pairs(law), state)
    return out


def temporal_leakage(P: ArrayLike, epsilons: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """BPL, FPL and TPL at every time, for one stationary chain P (Cao et al. 2017)."""
    p = np.asarray(P, dtype=float)
    law = stationary(p)
    keep = np.flatnonzero(law > 0)
    p, law = p[np.ix_(keep, keep)], law[keep]
    pairs = all_pairs(law)

    def run(rows: Array, budget: Sequence[float]) -> list[float]:
        out: list[float] = []
        for eps in budget:
            out.append(eps + (profile(rows, pairs, out[-1]) if out else 0.0))
        return out

    bpl = run(reverse(p, law), epsilons)
    fpl = run(p, list(epsilons)[::-1])[::-1]
    return bpl, fpl, [x + y - e for x, y, e in zip(bpl, fpl, epsilons, strict=True)]


# ---- the paper's own formulas ----------------------------------------------------------------------------------------


def printed_loose(rows: Array, pairs: Pairs, alpha: float) -> float:
    """Theorem 1 as printed: d(k) Delta_k eps_c, with alpha = d(k) eps_c. Not a bound."""
    return total_variation(rows, pairs) * alpha


def printed_tight(B: Array, law: ArrayLike, s: int, m: int, epsilon_c: float) -> float:
    """Definition 6 and Theorem 2 as printed. Not a bound."""
    snaps = snapshots(s, m)
    pi = np.asarray(law, dtype=float)
    prob = {(x, z): pi[n] * B[n, o] for n, x in enumerate(snaps) if pi[n] > 0 for o, z in enumerate(snaps)}

    def mass(x: dict[int, int], z: dict[int, int]) -> float:
        """Pr of the named present coordinates and the named aged coordinates."""
        return sum(
            p
            for (u, v), p in prob.items()
            if all(u[j] == a for j, a in x.items()) and all(v[j] == a for j, a in z.items())
        )

    def g_range(i: int, x: Snapshot) -> tuple[float, float]:
        """(max, min) over z of Pr[x_i|x_-i,z_-i] Pr[x_-i|x_i,z_i] / (Pr[x_i|x_-i] Pr[x_-i|x_i])."""
        own, whole = {i: x[i]}, dict(enumerate(x))
        rest = {j: a for j, a in whole.items() if j != i}
        below = (mass(whole, {}) / mass(rest, {})) * (mass(whole, {}) / mass(own, {}))
        first, second = [], []  # the two factors depend on z_-i and on z_i separately
        for z_rest in (dict(zip(rest, c, strict=True)) for c in product(range(m), repeat=s - 1)):
            if (base := mass(rest, z_rest)) > 0:
                first.append(mass(whole, z_rest) / base)
        for c in range(m):
            if (base := mass(own, {i: c})) > 0:
                second.append(mass(whole, {i: c}) / base)
        return max(first) * max(second) / below, min(first) * min(second) / below

    best = 0.0
    for i in range(s):
        given = {a: [mass({i: a}, {i: c}) for c in range(m)] for a in range(m)}  # Pr(z_i = c, x_i = a)
        for n, o in neighbour_pairs(s, m, pi):
            x, y = snaps[n], snaps[o]
            if x[i] == y[i]:
                continue
            high, low = g_range(i, x)[0], g_range(i, y)[1]
            gaps = [
                high * p / sum(given[x[i]]) - low * q / sum(given[y[i]])
                for p, q in zip(given[x[i]], given[y[i]], strict=True)
            ]
            sets = (abs(sum(c)) for size in range(m + 1) for c in combinations(gaps, size))
            best = max(best, *sets)
    return float(best * epsilon_c)
