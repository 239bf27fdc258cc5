"""First and second moments of the aged and the present answer.

Pairs of sequences of a coupled chain evolve among themselves, so moments of additive queries need pair laws only:
with M the (s m) x (s m) matrix of pair laws, `M = Q M Q^T` between different sequences, and
`Pr(x_j(n) = a, x_l(n + h) = b) = (M (Q^h)^T)[(j, a), (l, b)]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from csdp.aging import AgedLaw, index_parts
from csdp.chain import CoupledChain, Model
from csdp.chain.environment import long_run_views
from csdp.errors import CsdpError
from csdp.numbers import Floats
from csdp.query import QueryTable, on_values, tabulate
from csdp.query_table import FoldTable, Query, all_snapshots

#: Sequences times states of a component up to which pair laws are kept.
PAIR_SIZE = 4000
#: Snapshots of the simulation that stands in if neither pair laws nor the joint law fit.
SIMULATED_STEPS = 4000
#: Readings that a simulation makes at most, so that giant systems take fewer steps (1,000 at least).
SIMULATED_READINGS = 150_000_000


@dataclass(frozen=True)
class Moments:
    """Means and covariances of the aged answer f(z) and the present answer f(x), and the method that gave them.

    Under a clock, covariances are around the mean of the phase (`now_by_phase`, `aged_by_phase`, by the phase of the
    present), averaged over the phases: what is usual at a time of day needs no data.
    """

    mean_aged: Floats  # (d,)
    mean_now: Floats  # (d,)
    cov_aged: Floats  # (d, d)
    cov_now: Floats  # (d, d)
    cross: Floats  # (d, d), Cov(f(z), f(x))
    how: str
    samples: int = 0  #: nearly independent snapshots behind a simulation
    now_by_phase: Floats | None = None  # (H, d)
    aged_by_phase: Floats | None = None  # (H, d)

    @property
    def usual(self) -> tuple[Floats, Floats]:
        """Means of the aged and of the present answer (H, d), by phase of the present; one row without a clock."""
        if self.now_by_phase is None or self.aged_by_phase is None:
            return self.mean_aged[None], self.mean_now[None]
        return self.aged_by_phase, self.now_by_phase

    @property
    def aging(self) -> float:
        """`E|f(z) - f(x)|^2`: how far the answer moves while it ages."""
        aged, now = self.usual
        inside = np.trace(self.cov_aged + self.cov_now - self.cross - self.cross.T)
        return float(inside + ((aged - now) ** 2).sum(axis=1).mean())

    def linear_estimate(self, noise_variance: float) -> tuple[Floats, Floats, Floats]:
        """(offset, gain, standard error) of the best linear estimate `offset + gain @ y` of the present answer.

        `gain = Cov(f(x), f(z)) (Cov f(z) + noise)^-1`; its error is never above that of publishing the mean.
        """
        d = self.mean_aged.size
        spread = self.cov_aged + noise_variance * np.eye(d)
        # Outputs may determine each other (counts of all states) and the noise be next to none: no inverse.
        gain = (np.linalg.pinv(spread, rcond=1e-13, hermitian=True) @ self.cross).T
        offset = self.mean_now - gain @ self.mean_aged
        left = np.diag(self.cov_now - gain @ self.cross)
        return offset, np.asarray(gain, dtype=np.float64), np.sqrt(np.maximum(left, 0.0))

    def of_time_read(self) -> Moments:
        """The moments with the answer of the time of the readings in the place of the present one."""
        return replace(
            self,
            mean_now=self.mean_aged,
            cov_now=self.cov_aged,
            cross=self.cov_aged,
            now_by_phase=self.aged_by_phase,
        )


def moments(model: Model, query: Query | str, *, ages: Sequence[int]) -> Moments:
    """Means and covariances of what a release reads and of the present answer, in the long run.

    >>> from csdp import Mean
    >>> chain = CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.7, 0.3], [0.3, 0.7]])
    >>> m = moments(chain, Mean(), ages=(2, 2))
    >>> round(float(m.cov_now[0, 0]), 4), round(float(m.cross[0, 0]), 5)
    (0.1359, 0.02174)
    """
    query = on_values(tabulate(query, model))
    if isinstance(query, FoldTable) and query.fold == "sum" and isinstance(model, CoupledChain):
        largest = max(map(len, model.components()))
        if largest * model.states <= PAIR_SIZE:
            # Sequences with equal labels add equally; outputs of their own are all different.
            kinds = model.distinct_components(np.arange(model.sequences) if query.per_sequence else query.labels(ages))
            # Pair laws of a chain that hardly mixes may not settle; the joint law is then solved for.
            with suppress(CsdpError):
                return _by_pairs(model, query, ages, kinds)
    long_run_views(model)  # refuse what has no long run
    try:
        if isinstance(query, FoldTable) and query.fold == "sum" and _is_divided_by_clock(model):
            each = [_by_components(model, query, ages, phase) for phase in range(model.phases)]
            return _mean_over_phases(each, "joint law")
        return _by_joint_law(model, query, ages)
    except CsdpError:
        return _by_simulation(model, query, ages)


def _by_pairs(
    model: CoupledChain, query: FoldTable, ages: Sequence[int], kinds: list[tuple[tuple[int, ...], int]]
) -> Moments:
    """Sum over components of moments from pair laws."""
    outputs = len(query.outputs)
    total = [
        np.zeros(outputs),
        np.zeros((outputs, outputs)),
        np.zeros((outputs, outputs)),
        np.zeros((outputs, outputs)),
    ]
    for members, copies in kinds:
        sub = model if len(members) == model.sequences else model.subchain(members)
        parts = query.contributions(members) / query.denominator
        place = query.columns(members)
        mean, now, aged, cross = _component_moments(sub, parts, [ages[i] for i in members])
        total[0][place] += copies * mean
        for target, covariance in zip(total[1:], (now, aged, cross), strict=True):
            target[np.ix_(place, place)] += copies * covariance
    return Moments(total[0], total[0], total[2], total[1], total[3], "pair laws")


def _component_moments(model: CoupledChain, parts: Floats, ages: list[int]) -> tuple[Floats, Floats, Floats, Floats]:
    s, m = model.sequences, model.states
    margins = model.marginals()
    weights = parts.reshape(s * m, -1) - np.repeat(np.einsum("ia,iad->id", margins, parts), m, axis=0)
    mean = np.einsum("ia,iad->d", margins, parts)
    pairs = pair_laws(model)
    q_transposed = model.q_matrix().T.tocsr()

    def lagged_moment(earlier: Floats, later: Floats, lag: int) -> Floats:
        """E of weights on states and weights on states `lag` steps later: the chain leads from one to the other."""
        moved, fixed = (later, earlier) if model.direction == "forward" else (earlier, later)
        for _ in range(lag):
            moved = q_transposed @ moved  # (Q^T)^h w: a weight on states h steps on, seen from here
        return np.asarray(fixed.T @ pairs @ moved if model.direction == "forward" else moved.T @ pairs @ fixed)

    old = np.repeat(ages, m)
    d = weights.shape[1]
    aged, cross = np.zeros((d, d)), np.zeros((d, d))
    distinct = sorted(set(ages))
    masked = {age: np.where((old == age)[:, None], weights, 0.0) for age in distinct}
    for age in distinct:
        cross += lagged_moment(masked[age], weights, age)
        for other in distinct:
            if other > age:
                continue
            both = lagged_moment(masked[age], masked[other], age - other)
            aged += both if other == age else both + both.T
    return mean, weights.T @ pairs @ weights, aged, cross


@lru_cache(maxsize=4)
def pair_laws(model: CoupledChain) -> Floats:
    """M[(j, a), (l, b)] = Pr(x_j = a, x_l = b) under the stationary law, (s m, s m)."""
    s, m = model.sequences, model.states
    margins = model.marginals()
    q = model.q_matrix()
    flat = margins.ravel()
    pairs = np.multiply.outer(flat, flat)
    same = np.kron(np.eye(s), np.ones((m, m))) > 0
    diagonal = np.diag(flat)
    pairs[same] = diagonal[same]
    for _ in range(20_000):
        fresh = np.asarray(q @ np.asarray(q @ pairs).T)
        fresh[same] = diagonal[same]
        change = float(np.abs(fresh - pairs).max())
        pairs = fresh
        if change < 1e-15:
            return pairs
    raise CsdpError("pair laws did not settle; the chain mixes too slowly")


def _by_joint_law(model: Model, query: QueryTable, ages: Sequence[int]) -> Moments:
    s, m = model.sequences, model.states
    table = model.value_table
    views = long_run_views(model)
    if isinstance(query, FoldTable):
        laws = [AgedLaw(view, query.contributions(), ages=ages, fold=query.fold) for view in views]
        read = laws[0].classes / query.denominator
    else:
        laws = [AgedLaw(view, index_parts(s, m), ages=ages) for view in views]
        read = query.evaluate(all_snapshots(s, m)[laws[0].classes[:, 0].astype(np.intp)], table)
    now = query.evaluate(all_snapshots(s, m), table)
    return _mean_over_phases([_joint_moments(_measure(aged, model), read, now) for aged in laws], "joint law")


def _joint_moments(measure: Floats, read: Floats, now: Floats) -> tuple[Floats, ...]:
    """Mean aged and now, covariance aged, now and between, of (classes, d) and (snapshots, d) under their joint law."""
    law, base = measure.sum(axis=1), measure.sum(axis=0)
    mean_now, mean_aged = law @ now, base @ read
    off_now, off_read = now - mean_now, read - mean_aged
    spread = (off_read.T * base) @ off_read, (off_now.T * law) @ off_now
    return mean_aged, mean_now, *spread, off_read.T @ measure.T @ off_now


def _is_divided_by_clock(model: Model) -> bool:
    """Whether components are independent given a phase of the clock alone."""
    return model.phases > 1 and len(model.step_chains) == 1 and len(model.components()) > 1


def _by_components(model: Model, query: FoldTable, ages: Sequence[int], phase: int) -> tuple[Floats, ...]:
    """The same at one phase of a clock, if components are independent: sums over them."""
    labels = np.arange(model.sequences) if query.per_sequence else query.labels(ages)
    outputs = len(query.outputs)
    means, covariances = np.zeros((2, outputs)), np.zeros((3, outputs, outputs))
    for members, copies in model.distinct_components(labels):
        part = model.subchain(members)
        parts, place = query.contributions(members) / query.denominator, query.columns(members)
        aged = AgedLaw(long_run_views(part)[phase], parts, ages=[ages[i] for i in members])
        now = parts[np.arange(len(members)), all_snapshots(part.sequences, part.states)].sum(axis=1)
        known = _joint_moments(aged.mass.measure, aged.classes, now)
        means[:, place] += copies * np.array(known[:2])
        covariances[:, place[:, None], place] += copies * np.array(known[2:])
    return *means, *covariances


def _mean_over_phases(known: Sequence[tuple[Floats, ...]], how: str, samples: int = 0) -> Moments:
    """Moments from those of every phase: (mean aged, mean now, covariance aged, now, cross) each."""
    means = [np.mean(each, axis=0) for each in zip(*known, strict=True)]
    if len(known) == 1:
        return Moments(means[0], means[1], means[2], means[3], means[4], how, samples)
    aged, now = (np.array([phase[n] for phase in known]) for n in (0, 1))
    return Moments(means[0], means[1], means[2], means[3], means[4], how, samples, now, aged)


def _measure(aged: AgedLaw, model: Model) -> Floats:
    """Law of (present, read), summed over a hidden environment."""
    measure = aged.mass.measure.reshape(aged.model.copies, model.size, -1).sum(axis=0)
    return np.asarray(measure / measure.sum())


def _by_simulation(model: Model, query: QueryTable, ages: Sequence[int]) -> Moments:
    """Moments from one long simulated path; for estimates only, never for a certificate."""
    if len(set(ages)) == 1:
        # One path serves all common ages of a search: an aged answer is an earlier answer.
        answers = _answers_along_a_path(model, query, max(64, -(-ages[0] // 64) * 64))
        now, read = answers[ages[0] :], answers[: answers.shape[0] - ages[0]]
    else:
        oldest, table, lag = max(ages), model.value_table, np.asarray(ages)
        path = model.simulate(_steps(model) + oldest, seed=0)
        now = np.array([query.evaluate(row, table) for row in path[oldest:].astype(np.intp)])
        aged = (path[t - lag, np.arange(model.sequences)] for t in range(oldest, path.shape[0]))
        read = np.array([query.evaluate(row.astype(np.intp), table) for row in aged])
    known = []
    for phase in range(model.phases):  # a path begins at phase 0
        rows = slice((phase - max(ages)) % model.phases, None, model.phases)
        own, old = now[rows], read[rows]
        off_now, off_read = own - own.mean(axis=0), old - old.mean(axis=0)
        spread = off_read.T @ off_read, off_now.T @ off_now, off_read.T @ off_now
        known.append((old.mean(axis=0), own.mean(axis=0), *(summed / len(own) for summed in spread)))
    return _mean_over_phases(known, "simulation", max(50, now.shape[0] // 20))


@lru_cache(maxsize=2)
def _answers_along_a_path(model: Model, query: QueryTable, extra: int) -> Floats:
    """The query at every tick of a simulated path, (ticks, d)."""
    path = model.simulate(_steps(model) + extra, seed=0)
    return np.array([query.evaluate(row.astype(np.intp), model.value_table) for row in path])


def _steps(model: Model) -> int:
    return min(SIMULATED_STEPS, max(1000, SIMULATED_READINGS // model.sequences))
