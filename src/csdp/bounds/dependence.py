"""Three ways to carry, from slice to slice, how much sequences of one slice depend on each other; used by `slice`.

All rest on Dobrushin's comparison of two laws: let C[k, l] be at least the total variation by which a change of w_l
moves the law of w_k given the rest, and b[k] at least the one by which the two laws differ there. The vector a = 1
estimates their distance (|E f - E' f| <= sum_k osc_k(f) a_k), and if a does, so does C a + b. So every iterate from
a = 1 holds, whatever C is; if the row sums of C are below 1, the iterates fall to sum_n C^n b.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from csdp.bounds.intervals import Boxes, LocalNumbers, MixtureCells
from csdp.numbers import UNIT, Floats

#: Iterations after which an estimate is taken as it is.
_LONGEST = 200
#: Powers of the dependence that are followed one by one when a history is carried; the rest is bounded together.
_SHIFT_STEPS = 40
#: Positive total variations below this count as this, so that nothing underflows unseen.
_LEAST = 1e-250
#: Dependences kept one by one in the shared form, relative to the largest; the others count by row sums.
_KEPT = 3e-3


class Form(Protocol):
    """What is known of the dependence within a slice, and how it moves to the next one."""

    name: str
    cells: MixtureCells

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """(s, m) how far a change of the past moves the laws of the next slice, whose boxes are given."""
        ...

    def shift(self, cause: Floats) -> Floats:
        """(s, m) how far laws of this slice that differ by `cause` (s,) in each sequence move those of the next."""
        ...

    def take_worst(self, others: Sequence[Any]) -> None:
        """Carry the worst of what forms of the same kind, of other chains, know of the dependence in this slice."""
        ...


def distance(ranges: Floats) -> Floats:
    """tanh(G / 4): a log-odds range G moves total variation by at most this."""
    moved = np.minimum(np.tanh(ranges / 4.0) * (1.0 + 8 * UNIT), 1.0)
    return np.where(ranges > 0, np.maximum(moved, _LEAST), 0.0)


class MatrixForm:
    """One matrix C for every target, its own likelihood left out: the sharpest, O(s^3) a slice."""

    name = "matrix"

    def __init__(self, local: LocalNumbers) -> None:
        self.cells = MixtureCells.by_edge(local)
        self._local = local
        chain = local.chain
        s = chain.sequences
        self._evidence = np.zeros((s, s))  # [j, k]: what x_j reveals of w_k
        self._evidence[chain.edge_targets, chain.edge_sources] = distance(local.theta)
        # kappa summed over children: the finite ones, how many are infinite, how many positive
        self._finite, self._endless, self._number = np.zeros((s, s)), np.zeros((s, s)), np.zeros((s, s))
        for target in range(s):
            grid, kappa = self._kappa(target)
            self._finite[grid] += np.where(np.isfinite(kappa), kappa, 0.0)
            self._endless[grid] += np.isinf(kappa)
            self._number[grid] += kappa > 0
        self._gamma = np.zeros((s, s))
        self._reached: tuple[Floats, Floats] | None = None
        self._row_sum = 0.0

    def _kappa(self, target: int) -> tuple[Any, Floats]:
        chain = self._local.chain
        edges = np.arange(chain.edge_starts[target], chain.edge_starts[target + 1])
        excess = self._local.excess(np.array([target]), edges[None])[0]
        parents = chain.edge_sources[edges]
        return np.ix_(parents, parents), np.asarray(np.log1p(excess) * (1.0 + 8 * UNIT))

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        s, shared = self._gamma.shape[0], self._shared()
        causes = np.column_stack([distance(ranges), self._evidence.T])
        estimates = _estimates(shared, causes)
        moved, gamma = np.zeros_like(boxes.low), np.zeros((s, s))
        for target in range(s):
            shifts = _shifts(self._first_reach(target), self._without_target(target, shared), causes, estimates)
            moved[target] = shifts[:, 0]
            gamma[target] = boxes.spread(np.broadcast_to(shifts[:, 1:].T, (s, boxes.low.shape[1])), target)
        np.fill_diagonal(gamma, 0.0)
        self._gamma, self._reached = gamma, None
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        rows, tails = self._reach()
        ceiling = _ceiling(cause, self._row_sum, 1.0)
        moved = (rows @ cause + tails * ceiling) * (1.0 + 4 * UNIT * (cause.size + 8))
        return np.broadcast_to(moved.T, (cause.size, self._local.chain.states))

    def take_worst(self, others: Sequence[MatrixForm]) -> None:
        """As in the protocol."""
        self._gamma, self._reached = np.maximum.reduce([form._gamma for form in others]), None

    def _reach(self) -> tuple[Floats, Floats]:
        """osc D of every target, (m or 1, s, s), cut off when the rest, (m or 1, s), is small; once per slice."""
        if self._reached is None:
            s, shared = self._gamma.shape[0], self._shared()
            self._row_sum = float(shared.sum(axis=1).max()) * (1.0 + 4 * UNIT * s)
            kinds = 1 if self._local.chain.states == 2 else self._local.chain.states
            rows, tails = np.zeros((kinds, s, s)), np.zeros((kinds, s))
            for target in range(s):
                influence, now = self._without_target(target, shared), self._first_reach(target)
                for _ in range(_SHIFT_STEPS):
                    rows[:, target] += now
                    now = now @ influence
                    if float(now.sum()) <= 1e-15 * float(rows[:, target].sum()):
                        break
                tails[:, target] = now.sum(axis=1)
            self._reached = rows * (1.0 + 4 * UNIT * s * 8), tails * (1.0 + 4 * UNIT * s * 8)
        return self._reached

    def _shared(self) -> Floats:
        """C with the likelihoods of all targets."""
        shared = distance(np.where(self._endless > 0, np.inf, self._gamma + self._finite * self._local.outward))
        np.fill_diagonal(shared, 0.0)
        return shared

    def _first_reach(self, target: int) -> Floats:
        """osc of p_target(a | .) in every coordinate: one row for two states (they mirror each other), else m."""
        chain, osc = self._local.chain, self._local.osc
        edges = slice(chain.edge_starts[target], chain.edge_starts[target + 1])
        values = osc[edges].max(axis=1, keepdims=True) if chain.states == 2 else osc[edges]
        out = np.zeros((values.shape[1], chain.sequences))
        out[:, chain.edge_sources[edges]] = values.T
        return out

    def _without_target(self, target: int, shared: Floats) -> Floats:
        """C without the likelihood of the target itself: only pairs of its parents change."""
        grid, kappa = self._kappa(target)
        if kappa.shape[0] == 1:
            return shared
        whole = self._finite[grid]
        rest = np.maximum(whole - np.where(np.isfinite(kappa), kappa, 0.0), 0.0) + whole * (self._local.outward - 1.0)
        rest = np.where(self._number[grid] - (kappa > 0) > 0, rest, 0.0)
        rest = np.where(self._endless[grid] - np.isinf(kappa) > 0, np.inf, rest)
        block = distance(self._gamma[grid] + rest)
        np.fill_diagonal(block, 0.0)
        out = shared.copy()
        out[grid] = np.minimum(block, out[grid])
        return out


def _estimates(influence: Floats, causes: Floats) -> Floats:
    """D b from above for the columns b of causes: iterates of a <- C a + b from an estimate, never above 1."""
    s = influence.shape[0]
    row_sum = float(influence.sum(axis=1).max()) * (1.0 + 4 * UNIT * s)
    grown = 1.0 + 4 * UNIT * (s + 8)
    estimate: Floats = np.tile([_ceiling(column, row_sum, 1.0) for column in causes.T], (s, 1))
    for _ in range(_LONGEST):
        following = np.minimum((influence @ estimate + causes) * grown, estimate)
        settled = bool((estimate - following <= 1e-9 * estimate.max(axis=0)).all())
        estimate = following
        if settled:
            break
    return estimate


def _shifts(reach: Floats, influence: Floats, causes: Floats, estimates: Floats) -> Floats:
    """At least osc D b for the columns b of causes: the least of sum_{n<N} osc C^n b + osc C^N (an estimate)."""
    s = influence.shape[0]
    total, now = np.zeros_like(reach), reach
    best: Floats = reach @ estimates * (1.0 + 4 * UNIT * (s + 8))
    enough = 1e-15 * float(reach.sum())
    for n in range(1, _LONGEST + 1):
        total = total + now
        now = now @ influence
        last = float(now.sum()) <= enough or n == _LONGEST
        if last or n & (n - 1) == 0:
            shift = (total @ causes + now @ estimates) * (1.0 + 4 * UNIT * (s + 8) * (n + 2))
            best = np.minimum(best, shift)
        if last:
            break
    return best


class RowSumForm:
    """Only what all others of a slice together reveal of each sequence: any number of sequences, O(edges) per slice."""

    name = "row-sum"

    def __init__(self, local: LocalNumbers) -> None:
        self.cells = MixtureCells.by_source(local)
        self._local = local
        self._kappa = local.kappa_row_sums()
        self._evidence = _evidence_sums(local)
        self._slack = np.zeros(local.chain.sequences)  # at least sum_l gamma(k, l)

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        moved = self.shift(distance(ranges))
        rows = self._rows()
        evidence = self._evidence + _product(rows, _ceiling(self._evidence, float(rows.max()), np.inf))
        self._slack = _steep_sums(self._local, boxes, evidence)
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        rows = self._rows()
        reach = np.minimum(cause + _product(rows, _ceiling(cause, float(rows.max()), 1.0)), 1.0)
        return _shift_laws(self._local, reach * self._local.outward)

    def take_worst(self, others: Sequence[RowSumForm]) -> None:
        """As in the protocol."""
        self._slack = np.maximum.reduce([form._slack for form in others])

    def _rows(self) -> Floats:
        """Row sums of C."""
        return np.asarray((self._kappa + self._slack / 4.0) * self._local.outward)


class SharedForm:
    """One sparse matrix C for all targets, no likelihood left out; what is too small to keep counts by row sums."""

    name = "shared"

    def __init__(self, local: LocalNumbers) -> None:
        from scipy.sparse import csr_array

        self.cells = MixtureCells.by_source(local)
        self._local = local
        chain = local.chain
        shape = (chain.sequences, chain.sequences)
        self._kappa = local.kappa_matrix()
        evidence = csr_array((distance(local.theta), chain.edge_sources, chain.edge_starts), shape=shape)
        self._evidence = evidence.T.tocsr()  # [k, j]: what x_j reveals of w_k
        self._evidence_sums = _evidence_sums(local)
        self._gamma = csr_array(shape)
        self._slack = np.zeros(chain.sequences)

    def step(self, ranges: Floats, boxes: Boxes) -> Floats:
        """As in the protocol."""
        moved = self.shift(distance(ranges))
        influence, rest, worst = self._influence()
        evidence = self._iterate(influence, rest, self._evidence_sums, _ceiling(self._evidence_sums, worst, np.inf))
        self._carry(influence, evidence, boxes)
        return moved

    def shift(self, cause: Floats) -> Floats:
        """As in the protocol."""
        influence, rest, worst = self._influence()
        reach = self._iterate(influence, rest, cause, _ceiling(cause, worst, 1.0))
        return _shift_laws(self._local, np.minimum(reach, 1.0))

    def take_worst(self, others: Sequence[SharedForm]) -> None:
        """As in the protocol."""
        self._slack = np.maximum.reduce([form._slack for form in others])
        self._gamma = reduce(lambda one, other: one.maximum(other), [form._gamma for form in others]).tocsr()

    def _influence(self) -> tuple[Any, Floats, float]:
        """The entries of C that are kept, what row sums count besides, and the largest row sum."""
        influence = (self._gamma + self._kappa).tocsr()
        influence.data = distance(influence.data)
        rest = self._slack / 4.0
        return influence, rest, float((influence.sum(axis=1) + rest).max()) * self._local.outward

    def _iterate(self, influence: Any, rest: Floats, cause: Floats, ceiling: float) -> Floats:
        """D cause from above: iterates of a <- C a + (what row sums count) max a + cause, from an estimate."""
        estimate = np.full(cause.size, ceiling)
        if np.isinf(ceiling) or ceiling == 0:
            return estimate
        grown = 1.0 + 4 * UNIT * (int(np.diff(influence.indptr).max()) + 8)
        for _ in range(_LONGEST):
            following = np.minimum((influence @ estimate + rest * estimate.max() + cause) * grown, estimate)
            settled = bool((estimate - following).max() <= 1e-13 * estimate.max())
            estimate = following
            if settled:
                break
        return estimate

    def _carry(self, influence: Any, evidence: Floats, boxes: Boxes) -> None:
        """gamma of the next slice: large entries one by one, the rest by row sums."""
        from scipy.sparse import csr_array

        local = self._local
        if np.isinf(evidence).any():
            self._gamma = csr_array(self._gamma.shape)
            self._slack = _steep_sums(local, boxes, evidence)
            return
        followed = now = self._evidence
        for _ in range(_LONGEST):
            now = _drop_small(influence @ now, _KEPT * float(self._evidence_sums.max()))
            if not now.nnz:
                break
            followed = followed + now
        missed = np.maximum(evidence - followed.sum(axis=1), 0.0) + evidence * (local.outward - 1.0)
        gamma = _sparse(local, _steepness(local, boxes) if local.chain.states > 2 else local.largest) @ followed
        rows = np.repeat(np.arange(local.chain.sequences), np.diff(gamma.indptr))
        moved = gamma.data * local.outward
        if local.chain.states == 2:
            gamma.data = boxes.spread(np.column_stack([moved, moved]), rows)
        else:
            full = boxes.spread(np.full_like(boxes.low, np.inf))
            gamma.data = np.minimum(moved, full[rows])
        gamma.data[rows == gamma.indices] = 0.0
        finite = gamma.data[np.isfinite(gamma.data)]
        small = gamma.data < _KEPT * float(finite.max(initial=0.0))
        dropped = np.bincount(rows[small], weights=gamma.data[small], minlength=local.chain.sequences)
        gamma.data[small] = 0.0
        gamma.eliminate_zeros()
        self._gamma = gamma
        self._slack = _steep_sums(local, boxes, missed) + dropped * local.outward


def _evidence_sums(local: LocalNumbers) -> Floats:
    """h_k = sum_j tanh(theta_jk / 4)."""
    chain = local.chain
    sums = np.bincount(chain.edge_sources, weights=distance(local.theta), minlength=chain.sequences)
    return np.asarray(sums * local.outward)


def _ceiling(cause: Floats, row_sum: float, otherwise: float) -> float:
    """An upper limit of all entries of D cause."""
    if cause.max() == 0:
        return 0.0
    return min(float(cause.max()) / (1.0 - row_sum) * (1.0 + 8 * UNIT), otherwise) if row_sum < 1 else otherwise


def _product(vector: Floats, number: float) -> Floats:
    """The product with 0 times infinity = 0: what does not depend on others is not moved by them."""
    with np.errstate(invalid="ignore"):
        return np.where((vector > 0) & (number > 0), vector * number, 0.0)


def _steepness(local: LocalNumbers, boxes: Boxes) -> Floats:
    """(edges,) more than two states: what a unit of distance at the source adds to the range of the target, at most."""
    with np.errstate(invalid="ignore"):
        each = np.where(local.osc > 0, local.osc * boxes.slopes()[local.chain.edge_targets], 0.0)
    return np.asarray(np.sort(each, axis=1)[:, -2:].sum(axis=1) * (1.0 + 8 * UNIT))


def _steep_sums(local: LocalNumbers, boxes: Boxes, vector: Floats) -> Floats:
    """(s,) what distances `vector` at the sources add to the log-odds ranges of the targets, at most."""
    if local.chain.states > 2:
        return _apply(local, _steepness(local, boxes), vector)
    moved = _apply(local, local.largest, vector)
    with np.errstate(invalid="ignore"):
        return np.where(moved > 0, moved * boxes.slopes()[:, 0] * (1.0 + 8 * UNIT), 0.0)


def _sparse(local: LocalNumbers, values: Floats) -> Any:
    from scipy.sparse import csr_array

    chain = local.chain
    return csr_array((values, chain.edge_sources, chain.edge_starts), shape=(chain.sequences, chain.sequences))


def _apply(local: LocalNumbers, values: Floats, vector: Floats) -> Floats:
    """(s,) sum over the sources of values times vector, with 0 times infinity = 0."""
    if np.isfinite(vector).all() and np.isfinite(values).all():
        return np.asarray(_sparse(local, values) @ vector * local.outward)
    with np.errstate(invalid="ignore"):
        each = values * vector[local.chain.edge_sources]
    each = np.where((values > 0) & (vector[local.chain.edge_sources] > 0), each, 0.0)
    return np.asarray(np.add.reduceat(each, local.chain.edge_starts[:-1]) * local.outward)


def _shift_laws(local: LocalNumbers, reach: Floats) -> Floats:
    """(s, m) sum_k osc_k(p_i(a | .)) reach_k."""
    if local.chain.states == 2:
        one = _apply(local, local.largest, reach)
        return np.column_stack([one, one])
    return np.column_stack([_apply(local, local.osc[:, a], reach) for a in range(local.chain.states)])


def _drop_small(matrix: Any, least: float) -> Any:
    matrix.data[matrix.data < least] = 0.0
    matrix.eliminate_zeros()
    return matrix
