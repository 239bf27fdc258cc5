"""One step of the joint law, without ever storing the joint kernel.

`push(h)` takes the columns of h, each a (signed) measure on the N = m^s snapshots, one step forward in time:
`push(h)[y, f] = sum_x K(x, y) h[x, f]`. Three ways, the cheapest is chosen:

- `KernelStep`: a stored N x N kernel (joint chains, and the reference for the others).
- `SplitStep`: given x the next states are independent, so `K(x, (a, b)) = L(x, a) R(x, b)` for the two halves of the
  sequences; a push is then one product of an m^(s/2) x N with an N x m^(s/2) matrix per column.
- `TensorStep`: sparse coupling. The next states are brought in group by group, and a present state is summed out
  as soon as no later group needs it: small matrix products on a tensor little larger than the law.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from csdp.errors import TooLargeError
from csdp.numbers import Floats, Indices

#: Bytes that the work arrays of one push may take; more columns are pushed in turns.
WORK_BYTES = 400_000_000
#: The same for the buffers of a sparse push, which gain nothing from more.
TENSOR_BYTES = 200_000_000
#: Joint states above which no joint law is made.
MAX_STATES = 2**22
#: Joint states up to which a push by two halves is the cheaper one: its 2 N^2 operations are fewer than the 30 N that a
#: sparse push spends on what comes out alone.
SPLIT_STATES = 15
#: Joint states above which no joint kernel is made.
KERNEL_STATES = 4096
#: Joint states of a component up to which the accountant keeps a state for every pair of snapshots.
METRIC_STATES = 32
#: Predicted floating-point operations above which a single push of one column is refused.
MAX_PUSH_OPERATIONS = 4e11


class Step(Protocol):
    """One step forward of measures on snapshots."""

    #: additions in a row per step: the rounding error of a push is at most `depth` units in the last place
    depth: int

    def push(self, h: Floats) -> Floats:
        """Take every column of h (N, F) one step forward: `sum_x K(x, y) h[x]`."""

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g (N, F) after one step, from each snapshot: `sum_y K(x, y) g[y]`."""


class KernelStep:
    """A stored kernel."""

    def __init__(self, kernel: Floats) -> None:
        self._kernel = kernel
        self._transposed = np.ascontiguousarray(kernel.T)
        self.depth = kernel.shape[0] + 2

    def push(self, h: Floats) -> Floats:
        """Take every column of h one step forward."""
        return self._transposed @ h

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each snapshot."""
        return self._kernel @ g


class ReversedStep:
    """One step forward in time of a chain whose kernel leads from the present into the past.

    Bayes: with R that kernel and pi the law, `Pr(next = x | now = w) = pi(x) R(x, w) / pi(w)`. So a push is a pull of R
    between a division and a multiplication by pi, and the other way round. `before` is the law one step earlier, if
    it differs.
    """

    def __init__(self, past: Step, law: Floats, before: Floats | None = None) -> None:
        self._past = past
        self._law = law[:, None]
        earlier = self._law if before is None else before[:, None]
        # To divide by, not its inverse: the inverse of a tiny probability overflows.
        self._earlier = np.where(earlier > 0, earlier, np.inf)
        self.depth = past.depth + 3

    def push(self, h: Floats) -> Floats:
        """Take every column of h one step forward in time."""
        return np.asarray(self._law * self._past.pull(h / self._earlier))

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each snapshot that can occur."""
        return np.asarray(self._past.push(g * self._law) / self._earlier)


class ComposedStep:
    """Several steps one after the other, as one: a round of the clock."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self.depth = sum(step.depth for step in steps)

    def push(self, h: Floats) -> Floats:
        """Take every column of h through all steps, the first one first."""
        for step in self._steps:
            h = step.push(h)
        return h

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after all steps, from each snapshot."""
        for step in self._steps[::-1]:
            g = step.pull(g)
        return g


class SwitchedStep:
    """One step of the joint law of (environment, snapshot), environment first.

    With `environment_first` the environment moves before the snapshot, which follows the new one (forward chains);
    otherwise the snapshot moves under the present environment, and then the environment moves (backward chains, whose
    step leads from the present into the past).
    """

    def __init__(self, switching: Floats, steps: Sequence[Step], *, environment_first: bool) -> None:
        self._switching = switching
        self._steps = tuple(steps)
        self._environment_first = environment_first
        self.depth = max(step.depth for step in steps) + len(steps) + 1

    def push(self, h: Floats) -> Floats:
        """Take every column of h (E N, F) one step on."""
        if self._environment_first:
            return self._each(self._mix(h, self._switching.T), push=True)
        return self._mix(self._each(h, push=True), self._switching.T)

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each joint state."""
        if self._environment_first:
            return self._mix(self._each(g, push=False), self._switching)
        return self._each(self._mix(g, self._switching), push=False)

    def _mix(self, h: Floats, weights: Floats) -> Floats:
        count = len(self._steps)
        return np.asarray((weights @ h.reshape(count, -1)).reshape(h.shape))

    def _each(self, h: Floats, *, push: bool) -> Floats:
        parts = np.split(h, len(self._steps))
        moved = [(step.push if push else step.pull)(part) for step, part in zip(self._steps, parts, strict=True)]
        return np.concatenate(moved)


@dataclass(frozen=True)
class LocalLaw:
    """Who each sequence follows: sources, weights and matrices (from -> to) of every target."""

    states: int
    sources: tuple[Indices, ...]
    matrices: tuple[Floats, ...]  # (degree, m, m), already multiplied by the coupling

    def table(self, target: int, over: Sequence[int]) -> Floats:
        """`Pr(next_target = b | x_over)` as a tensor with one axis per sequence in `over`, and b last."""
        m = self.states
        out = np.zeros((1,) * len(over) + (m,))
        for source, matrix in zip(self.sources[target], self.matrices[target], strict=True):
            shape = [1] * len(over) + [m]
            shape[list(over).index(int(source))] = m
            out = out + matrix.reshape(shape)
        return np.broadcast_to(out, (m,) * len(over) + (m,))

    def product(self, targets: Iterable[int], over: Sequence[int]) -> Floats:
        """`Pr(next_targets | x_over)` as a matrix: given the present, next states are independent."""
        m = self.states
        size = m ** len(over)
        joint = np.ones((size, 1))
        for target in targets:
            law = self.table(target, over).reshape(size, m)
            joint = (joint[:, :, None] * law[:, None, :]).reshape(size, -1)
        return joint

    def kernel(self) -> Floats:
        """The joint kernel K[x, y], for small chains."""
        everyone = range(len(self.sources))
        return self.product(everyone, everyone)


class SplitStep:
    """All-to-all coupling: the kernel as a product of two halves."""

    def __init__(self, local: LocalLaw) -> None:
        s, m = len(local.sources), local.states
        self._size = m**s
        self._left = local.product(range(s // 2), range(s))
        self._right = local.product(range(s // 2, s), range(s))
        self.depth = self._size + 2 * s

    def push(self, h: Floats) -> Floats:
        """Take every column of h one step forward."""
        a, b, columns = self._left.shape[1], self._right.shape[1], h.shape[1]
        out = np.zeros((a, b * columns))
        rows = max(1, WORK_BYTES // (8 * b * columns))
        for start in range(0, self._size, rows):
            part = slice(start, start + rows)
            tilted = (self._right[part, :, None] * h[part, None, :]).reshape(-1, b * columns)
            out += self._left[part].T @ tilted
        return out.reshape(a * b, columns)

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each snapshot."""
        a, b, columns = self._left.shape[1], self._right.shape[1], g.shape[1]
        shaped = np.ascontiguousarray(g).reshape(a, b * columns)
        out = np.empty((self._size, columns))
        rows = max(1, WORK_BYTES // (8 * b * columns))
        for start in range(0, self._size, rows):
            part = slice(start, start + rows)
            halfway = (self._left[part] @ shaped).reshape(-1, b, columns)
            out[part] = np.einsum("rb,rbc->rc", self._right[part], halfway)
        return out


@dataclass(frozen=True)
class _Contraction:
    """Bring in the next states of `group`, sum out the present states `gone`, keep the present states `kept`."""

    kept: tuple[int, ...]
    gone: tuple[int, ...]
    group: tuple[int, ...]
    factor: Floats  # (m^kept, m^group, m^gone)


class TensorStep:
    """Sparse coupling: a sequence of small contractions."""

    def __init__(self, local: LocalLaw) -> None:
        self._s, self._m = len(local.sources), local.states
        self._children: list[set[int]] = [set() for _ in range(self._s)]
        for target, sources in enumerate(local.sources):
            for source in sources:
                self._children[int(source)].add(target)
        # A present state that no sequence follows does not affect the next snapshot: it is summed out first.
        self._unfollowed = tuple(k for k in range(self._s) if not self._children[k])
        self._parents = [frozenset(int(k) for k in sources) for sources in local.sources]
        best: tuple[float, list[list[int]], int] | None = None
        for start in range(self._s):
            plan = self._segment(self._order(start))
            if best is None or plan[0] < best[0]:
                best = plan
        assert best is not None
        self.operations, segments, self._peak = best
        self._stages = self._build(local, segments)
        self.depth = sum(stage.factor.shape[2] + 1 + len(stage.group) for stage in self._stages)
        self.depth += self._m ** len(self._unfollowed)

    def _order(self, start: int) -> list[int]:
        """Targets in an order that keeps few present states waiting."""
        order, done, seen = [start], {start}, set(self._parents[start])
        while len(order) < self._s:
            left = [j for j in range(self._s) if j not in done]
            order.append(min(left, key=lambda j: self._price(j, done, seen)))
            done.add(order[-1])
            seen |= self._parents[order[-1]]
        return order

    def _price(self, j: int, done: set[int], seen: set[int]) -> tuple[int, int, int]:
        freed = sum(1 for k in self._parents[j] if self._children[k] <= done | {j})
        return (-freed, len(self._parents[j] - seen), j)

    def _roles(self, done: set[int], group: Sequence[int]) -> tuple[list[int], list[int]]:
        after = done | set(group)
        parents = sorted(set().union(*(self._parents[j] for j in group)))
        gone = [k for k in parents if self._children[k] <= after]
        return [k for k in parents if k not in gone], gone

    def _segment(self, order: list[int]) -> tuple[float, list[list[int]], int]:
        """Cut the order into groups: least predicted work (shortest path over cut points)."""
        m, s = self._m, self._s
        alive_at, best = [s - len(self._unfollowed)], [0.0]
        peak_at, cut = [s], [0]
        for end in range(1, s + 1):
            choices = []
            for begin in range(end):
                group = order[begin:end]
                kept, gone = self._roles(set(order[:begin]), group)
                if len(kept) + len(gone) + len(group) > 24 and begin < end - 1:
                    continue
                alive = alive_at[begin] + len(group) - len(gone)
                work = float(m) ** alive_at[begin] * (2.0 * float(m) ** len(group) + 60.0)
                peak = max(peak_at[begin], alive_at[begin], alive)
                choices.append((best[begin] + work + 30.0 * float(m) ** alive, begin, alive, peak))
            price, begin, alive, peak = min(choices)
            best.append(price)
            cut.append(begin)
            alive_at.append(alive)
            peak_at.append(peak)
        segments, end = [], s
        while end:
            segments.append(order[cut[end] : end])
            end = cut[end]
        return best[s], segments[::-1], peak_at[s]

    def _build(self, local: LocalLaw, segments: list[list[int]]) -> list[_Contraction]:
        m, done, stages = self._m, set[int](), []
        for group in segments:
            kept, gone = self._roles(done, group)
            factor = local.product(group, kept + gone)
            shaped = factor.reshape(m ** len(kept), m ** len(gone), -1).transpose(0, 2, 1)
            stages.append(_Contraction(tuple(kept), tuple(gone), tuple(group), np.ascontiguousarray(shaped)))
            done |= set(group)
        return stages

    def push(self, h: Floats) -> Floats:
        """Take every column of h one step forward."""
        columns = h.shape[1]
        size = self._m**self._peak
        fits = columns <= TENSOR_BYTES // (16.0 * size)
        # Two buffers serve every stage and column: fresh memory would cost more than the arithmetic. Columns that do
        # not fit together go one by one, each in one piece of memory.
        room = np.empty(size * (columns if fits else 1)), np.empty(size * (columns if fits else 1))
        if fits:
            out = np.empty(h.shape)
            self._push(h, out, room)
            return out
        h, out = np.asfortranarray(h), np.empty(h.shape, order="F")
        for n in range(columns):
            self._push(h[:, n : n + 1], out[:, n : n + 1], room)
        return out

    def _push(self, h: Floats, out: Floats, room: tuple[Floats, Floats]) -> None:
        m, s, columns = self._m, self._s, h.shape[1]
        # labels: 0..s-1 present states, s..2s-1 next states
        labels = [k for k in range(s) if k not in self._unfollowed]
        tensor = h.reshape((m,) * s + (columns,)).sum(axis=self._unfollowed) if self._unfollowed else h
        for stage in self._stages:
            front = [*stage.kept, *stage.gone]
            rest = [label for label in labels if label not in front]
            axes = [labels.index(label) for label in [*front, *rest]]
            shaped = tensor.reshape((m,) * len(labels) + (columns,)).transpose([*axes, len(labels)])
            moved = room[0][: shaped.size].reshape(shaped.shape)
            np.copyto(moved, shaped)
            kept, gone = m ** len(stage.kept), m ** len(stage.gone)
            grown = room[1][: shaped.size // gone * stage.factor.shape[1]].reshape(kept, stage.factor.shape[1], -1)
            tensor = np.matmul(stage.factor, moved.reshape(kept, gone, -1), out=grown)
            labels = [*stage.kept, *(s + j for j in stage.group), *rest]
        back = [labels.index(s + j) for j in range(s)]
        out.reshape((m,) * s + (columns,))[...] = tensor.reshape((m,) * s + (columns,)).transpose([*back, s])

    def pull(self, g: Floats) -> Floats:
        """The mean of every column of g after one step, from each snapshot: the contractions, undone in reverse."""
        columns = g.shape[1]
        together = max(1, int(TENSOR_BYTES // (16.0 * self._m**self._peak)))
        out = np.empty(g.shape)
        for start in range(0, columns, together):
            out[:, start : start + together] = self._pull(g[:, start : start + together])
        return out

    def _pull(self, g: Floats) -> Floats:
        m, s, columns = self._m, self._s, g.shape[1]
        before = [k for k in range(s) if k not in self._unfollowed]
        orders = []
        for stage in self._stages:
            rest = [label for label in before if label not in (*stage.kept, *stage.gone)]
            orders.append((before, rest))
            before = [*stage.kept, *(s + j for j in stage.group), *rest]
        back = [s + j for j in range(s)]
        tensor = g.reshape((m,) * s + (columns,)).transpose([*(back.index(label) for label in before), s])
        for stage, (labels, rest) in zip(self._stages[::-1], orders[::-1], strict=True):
            kept, group = m ** len(stage.kept), m ** len(stage.group)
            shaped = np.ascontiguousarray(tensor).reshape(kept, group, -1)
            pulled = np.matmul(stage.factor.transpose(0, 2, 1), shaped)
            here = [*stage.kept, *stage.gone, *rest]
            axes = [here.index(label) for label in labels]
            tensor = pulled.reshape((m,) * len(here) + (columns,)).transpose([*axes, len(here)])
        shape = tuple(1 if k in self._unfollowed else m for k in range(s))
        spread = np.broadcast_to(tensor.reshape((*shape, columns)), (m,) * s + (columns,))
        return np.asarray(spread.reshape(m**s, columns))


def joint_states(sequences: int, states: int) -> float:
    """m**s as a float; infinite if no float holds it."""
    return math.inf if sequences * math.log2(states) > 1000 else float(states) ** sequences


def choose_step(local: LocalLaw) -> Step:
    """The cheapest way to push the joint law of a coupled chain, or TooLargeError with the figures."""
    s, m = len(local.sources), local.states
    size = joint_states(s, m)
    if size > MAX_STATES:
        raise TooLargeError(
            f"{s} sequences of {m} states have {m}**{s} joint states; at most {MAX_STATES:,} are handled exactly. "
            "Use bound='auto', which has bounds for any number of sequences",
            needed=size,
            limit=MAX_STATES,
        )
    if size <= 2:
        return KernelStep(local.kernel())
    if size <= SPLIT_STATES:
        return SplitStep(local)
    tensor = TensorStep(local)
    split = 2.0 * size * size
    operations = min(tensor.operations, split)
    if operations > MAX_PUSH_OPERATIONS:
        raise TooLargeError(
            f"one step of {s} sequences of {m} states would take {operations:.3g} operations; "
            f"at most {MAX_PUSH_OPERATIONS:.3g} are spent on one. Use bound='auto', which has bounds for any "
            "number of sequences",
            needed=operations,
            limit=MAX_PUSH_OPERATIONS,
        )
    return tensor if tensor.operations < split else SplitStep(local)
