"""Tests of predictive residuals: does anything that was newer tell more of a value than its law says?

The residual r of a state has mean zero given everything newer and variance p (1 - p), so for any function h of newer
values `sum r h` has mean zero and variance `sum p (1 - p) h^2` under a right law. Each h is freed of what a change of
the law's own coefficients, or of the level of a block, would do to the sum: estimates and slow levels do not matter
then. What is left, such as the small bias that levels by blocks bring, is measured on series that are simulated from
the law (`compare`): a statistic counts by how far it lies from theirs, and so does the largest of all statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from csdp.fitting.additive import Reading, lagged
from csdp.numbers import Floats, Indices

#: Ticks whose mean a level test looks at.
LEVELS = (5, 20, 60)
#: Sequences up to which each is compared with each; of more, some evenly spread are tested.
TESTED = 128
#: Groups of blocks for which what a parent adds is tested apart, and bins of calibration.
_GROUPS, _BINS = 6, 4
#: Variance, in units of the largest single term, that a statistic needs.
_LEAST = 4.0
#: Share of the variance of a function below which what the law leaves of it counts as nothing.
_NOTHING_NEW = 0.02
#: Variance that a pair needs.
_PAIR = 1.0


@dataclass(frozen=True)
class Finding:
    """One statistic, standardised by simulated ones. `who`: the sequences it names, none if all count together."""

    test: str
    z: float
    who: tuple[int, ...] = ()
    detail: int = 0
    surprise: float = 0.0  #: -ln of its chance among those of its kind


@dataclass(frozen=True, eq=False)
class Group:
    """Statistics of one kind, flat; `who` (size, k) the sequences that each names, none for all together.

    `information` is what an effect of one log odds would move each by, squared; 0 if that means nothing.
    """

    test: str
    z: Floats
    who: Indices
    detail: Indices
    information: Floats


@dataclass(frozen=True, eq=False)
class Comparison:
    """Statistics of readings, standardised by those of simulated series."""

    groups: tuple[Group, ...]
    surprise: tuple[Floats, ...]
    p: float  #: share of all series, the readings among them, whose largest statistic is as large
    scale: tuple[Floats, ...] = field(repr=False)  #: standard deviations of the statistics of the series

    @property
    def largest(self) -> float:
        """The most surprising statistic: -ln of its chance among those of its kind."""
        return max(float(each.max(initial=-np.inf)) for each in self.surprise)

    def above(self, chance: float) -> list[Finding]:
        """What has a smaller chance among those of its kind, the most surprising first."""
        found = []
        for group, surprise in zip(self.groups, self.surprise, strict=True):
            for at in np.flatnonzero(surprise > -np.log(chance)):
                who = tuple(group.who[at].tolist())
                found.append(Finding(group.test, float(group.z[at]), who, int(group.detail[at]), float(surprise[at])))
        return sorted(found, key=lambda one: -one.surprise)

    def worst(self) -> Finding:
        """The most surprising statistic."""
        return self.above(float(np.exp(-self.largest)) * (1.0 + 1e-9))[0]

    def least_effect(self, test: str, *, pooled: bool) -> float | None:
        """The effect in log odds that a test notices nine times in ten at 1 %, in the median; None if there is none."""
        from scipy.special import ndtri

        effects = []
        for group, scale in zip(self.groups, self.scale, strict=True):
            kept = group.information > 0
            if group.test == test and (group.who.shape[1] == 0) == pooled and kept.any():
                needed = 1.2816 - float(ndtri(0.005 / kept.sum()))
                effects.append(needed * scale[kept] / np.sqrt(group.information[kept]))
        return float(np.median(np.concatenate(effects))) if effects else None


def block_edges(ticks: int, length: int) -> Indices:
    """Where blocks of about a length begin; at least two."""
    count = max(2, round(ticks / length))
    return np.linspace(0, ticks, count + 1).astype(np.intp)[:-1]


def tested_sequences(s: int) -> Indices:
    """The sequences that are tested: all, or as many as can be compared with each other, evenly spread."""
    return np.unique(np.linspace(0, s - 1, min(s, TESTED)).round().astype(np.intp))


def compare(seen: Sequence[Group], simulated: Sequence[Sequence[Group]]) -> Comparison:
    """Standardise statistics by those of simulated series, with the readings as one of them: all are exchangeable."""
    from scipy.special import log_ndtr

    largest = np.full(1 + len(simulated), -np.inf)
    groups, surprises, scales = [], [], []
    for number, group in enumerate(seen):
        values = np.stack([group.z, *(each[number].z for each in simulated)])
        middle, spread = values.mean(axis=0), values.std(axis=0)
        live = ((values != 0).mean(axis=0) > 0.5) & (spread > 1e-9)
        z = np.where(live, (values - middle) / np.where(live, spread, 1.0), 0.0)
        surprise = -log_ndtr(-np.abs(z)) - np.log(2.0 * max(int(live.sum()), 1))
        surprise = np.where(live, surprise, -np.inf)
        largest = np.maximum(largest, surprise.max(axis=1, initial=-np.inf))
        groups.append(Group(group.test, z[0], group.who, group.detail, np.where(live, group.information, 0.0)))
        surprises.append(surprise[0])
        scales.append(spread)
    return Comparison(tuple(groups), tuple(surprises), float((largest >= largest[0]).mean()), tuple(scales))


# ---- statistics ------------------------------------------------------------------------------------------------------


def run_tests(reading: Reading, block: int, changing: frozenset[str]) -> list[Group]:
    """The statistics of readings under a law.

    Args:
        reading: the readings beside the law.
        block: ticks of a block whose level is its own.
        changing: by what the effect of a parent may differ: "environment", "clock", "block".
    """
    groups: list[Group] = []
    for c in range(1 if reading.data.m == 2 else 0, reading.data.m):
        groups += _StateTests(reading, c, block, changing).groups()
    return groups


@dataclass(frozen=True, eq=False)
class _StateTests:
    """The tests of one state, for all sequences at once; arrays are (n, s) or (s, n, functions)."""

    reading: Reading
    c: int
    block: int
    changing: frozenset[str]

    def groups(self) -> list[Group]:
        s = self.left.shape[1]
        names, functions = self._functions()
        known = functions.shape[2]
        others = np.broadcast_to(self._newer.T[None].swapaxes(1, 2), (s, *self.left.shape)).copy()
        for j, own in enumerate(self.reading.law.parents):
            others[j, :, [i for i, lag in own if lag == 1]] = 0.0
        z, information = self._standardised(np.concatenate([functions, others, self._trends()], axis=2))
        groups: list[Group] = []
        for name in dict.fromkeys(test for test, _ in names):
            columns = [n for n, (test, _) in enumerate(names) if test == name]
            details = np.array([names[n][1] for n in columns])
            groups += self._by_sequence(name, details, z[:, columns], information[:, columns])
        if s > 1:
            groups += self._pairs("others", z[:, known : known + s], information[:, known : known + s])
            groups += self._together()
        drift = np.square(z[:, known + s :])
        groups.append(_plain("drift", _root(drift), np.arange(s)[:, None]))
        groups.append(_plain("drift", _root(drift.sum(axis=0, keepdims=True))))
        return groups

    # ---- residuals and what they are tested against ----------------------------------------------------------------

    @cached_property
    def left(self) -> Floats:
        """Residuals."""
        return np.asarray(np.where(self.reading.known, (self.reading.data.states == self.c) - self._chance, 0.0))

    @cached_property
    def spread(self) -> Floats:
        """Their variances."""
        return np.asarray(np.where(self.reading.known, self._chance * (1.0 - self._chance), 0.0))

    @cached_property
    def _chance(self) -> Floats:
        return np.clip(self.reading.predicted[:, :, self.c], 1e-9, 1.0 - 1e-9)

    @cached_property
    def _edges(self) -> Indices:
        return block_edges(self.left.shape[0], self.block)

    @cached_property
    def _length(self) -> Indices:
        return np.diff(np.append(self._edges, self.left.shape[0]))

    @cached_property
    def _place(self) -> Indices:
        return np.repeat(np.arange(self._edges.size), self._length)

    @cached_property
    def _centred(self) -> Floats:
        """Whether each sequence was in the state, less its mean."""
        states = self.reading.data.states
        known = states >= 0
        shown = (states == self.c) & known
        return np.where(known, shown - shown.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)

    @cached_property
    def _newer(self) -> Floats:
        return lagged(self._centred, 1, 0.0)

    def _functions(self) -> tuple[list[tuple[str, int]], Floats]:
        """Functions of newer values, (s, n, k), with the test and detail of each."""
        law, n, s = self.reading.law, *self.left.shape
        names: list[tuple[str, int]] = []
        columns: list[Floats] = []
        deep = np.array([max(lag for i, lag in own if i == j) for j, own in enumerate(law.parents)])
        running = np.vstack([np.zeros((1, s)), np.cumsum(self._centred, axis=0)])
        sequence = np.arange(s)
        tick = np.arange(n)[:, None]
        for extra in (1, 2):
            at = tick - deep - extra
            names.append(("order", extra))
            columns.append(np.where(at >= 0, self._centred[np.maximum(at, 0), sequence], 0.0))
        for width in LEVELS:
            if 3 * width <= n:
                at = np.maximum(tick - deep, 0)
                names.append(("level", width))
                columns.append((running[at, sequence] - running[np.maximum(at - width, 0), sequence]) / width)
        if s > 1:
            mean = (self._centred.sum(axis=1, keepdims=True) - self._centred) / (s - 1)
            names += [("others", lag) for lag in (1, 2)]
            columns += [lagged(mean, lag, 0.0) for lag in (1, 2)]
        for kind, group in self._stretches():
            names.append((kind, len([1 for name, _ in names if name == kind])))
            columns.append(group)
        bins = np.searchsorted(np.quantile(self._chance, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]), self._chance)
        names += [("calibration", b) for b in range(_BINS)]
        columns += [(bins == b).astype(np.float64) for b in range(_BINS)]
        return names, np.stack(columns, axis=2).swapaxes(0, 1)

    def _stretches(self, *, free: bool = False) -> list[tuple[str, Floats]]:
        """The own newer value in each environment, phase, and group of blocks; those in which it may differ if free."""
        law, data = self.reading.law, self.reading.data
        found: list[tuple[str, Floats]] = []
        if law.environments > 1:
            found += [("environment", self.reading.shares[:, :, e]) for e in range(law.environments)]
        if law.phases > 1:
            found += [("clock", (data.phase == f)[:, None].astype(np.float64)) for f in range(law.phases)]
        group = self._place * min(_GROUPS, self._edges.size) // self._edges.size
        found += [("block", (group == g)[:, None].astype(np.float64)) for g in range(int(group[-1]) + 1)]
        return [(kind, self._newer * part) for kind, part in found if (kind in self.changing) == free]

    def _trends(self) -> Floats:
        """A line in each block, (s, n, blocks)."""
        middle = np.repeat(self._edges + (self._length - 1) / 2.0, self._length)
        line = (np.arange(self._place.size) - middle) / np.repeat(self._length, self._length)
        trends = np.eye(self._edges.size)[self._place] * line[:, None]
        return np.broadcast_to(trends, (self.left.shape[1], *trends.shape))

    def _free(self) -> Floats:
        """What changes of the law's coefficients and of block levels do to chances, in log odds: (s, n, q)."""
        law, data = self.reading.law, self.reading.data
        each = self.reading.by_environment[..., self.c]
        slopes = np.einsum("nse,ens->nse", self.reading.shares, each * (1.0 - each))
        weight = np.where(self.spread > 0, 1.0 / np.maximum(self.spread, 1e-9), 0.0)
        rise = slopes.sum(axis=2) * weight
        parts = [np.swapaxes(slopes * weight[:, :, None], 0, 1)]
        if law.phases > 1:
            parts.append(rise.T[:, :, None] * np.eye(law.phases)[data.phase])
        s, n = self.left.shape[1], self.left.shape[0]
        parts.append(np.broadcast_to(np.eye(self._edges.size)[self._place], (s, n, self._edges.size)))
        followed = np.zeros((s, n, law.places * (data.m - 1)))
        for j, own in enumerate(law.parents):
            for place, (i, lag) in enumerate(own):
                seen = lagged(data.states[:, i], lag, -1)
                for a in range(1, data.m):
                    followed[j, :, place * (data.m - 1) + a - 1] = (seen == a) * rise[:, j]
        parts.append(followed)
        changing = self._stretches(free=True)
        if changing:
            parts.append(np.stack([part for _, part in changing], axis=2).swapaxes(0, 1))
        return np.concatenate(parts, axis=2)

    def _standardised(self, functions: Floats) -> tuple[Floats, Floats]:
        """Statistics of functions (s, n, k) freed of the law's own coefficients, (s, k), and their information."""
        spread = self.spread.T[:, :, None]
        free = self._free()
        free = free / np.maximum(np.sqrt((spread * free**2).sum(axis=1)), 1e-9)[:, None]
        weighted = np.swapaxes(spread * free, 1, 2)
        inner = weighted @ free + 1e-6 * np.eye(free.shape[2])
        tested = functions - free @ np.linalg.solve(inner, weighted @ functions)
        sums = np.einsum("ns,snk->sk", self.left, tested)
        information = (spread * np.square(tested)).sum(axis=1)
        weak = information < _LEAST * np.maximum(0.25 * np.square(tested).max(axis=1), 1e-12)
        weak |= information < _NOTHING_NEW * (spread * np.square(functions)).sum(axis=1)  # the law knows it already
        information = np.where(weak, 0.0, information)
        return np.where(weak, 0.0, sums / np.sqrt(np.where(weak, 1.0, information))), information

    # ---- groups ----------------------------------------------------------------------------------------------------

    def _by_sequence(self, test: str, details: Indices, z: Floats, information: Floats) -> list[Group]:
        """Statistics of each sequence, of all sequences' sums, and of their scatter."""
        s, k = z.shape
        whole = information.sum(axis=0)
        pooled = (z * np.sqrt(information)).sum(axis=0) / np.sqrt(np.maximum(whole, 1e-9))
        nobody = np.zeros((k, 0), dtype=np.intp)
        who = np.repeat(np.arange(s), k)[:, None]
        groups = [Group(test, z.ravel(), who, np.tile(details, s), information.ravel())]
        if s > 1:
            groups.append(Group(test, pooled, nobody, details, whole))
            groups.append(Group(test, _root(np.square(z).T), nobody, details, np.zeros(k)))
        return groups

    def _pairs(self, test: str, z: Floats, information: Floats) -> list[Group]:
        """Statistics of every sequence against every other one."""
        rows, columns = np.nonzero(~np.eye(z.shape[0], dtype=bool))
        values, kept = z[rows, columns], information[rows, columns]
        who = np.column_stack([rows, columns])
        groups = [Group(test, values, who, np.zeros(rows.size, dtype=np.intp), kept)]
        return [*groups, _plain(test, _root(np.square(values)[None]))]

    def _together(self) -> list[Group]:
        """Do residuals of a tick agree, by pairs, all together, and from one tick to the next?"""
        left, spread = self.left, self.spread
        level = np.add.reduceat(left, self._edges, axis=0)
        whole = np.maximum(np.add.reduceat(spread, self._edges, axis=0), 1e-9)
        left = left - spread * np.repeat(level / whole, self._length, axis=0)
        sums, due = left.T @ left, spread.T @ spread
        columns, rows = np.triu_indices(left.shape[1], 1)
        kept = due[rows, columns] > _PAIR
        z = np.where(kept, sums[rows, columns] / np.sqrt(np.where(kept, due[rows, columns], 1.0)), 0.0)
        all_left, all_spread = left.sum(axis=1), spread.sum(axis=1)
        noise = np.sqrt(max(float(2.0 * np.square(all_spread).sum()), 1e-12))
        carried = np.sqrt(max(float((all_spread[1:] * all_spread[:-1]).sum()), 1e-12))
        common = np.array(
            [(np.square(all_left) - all_spread).sum() / noise, (all_left[1:] * all_left[:-1]).sum() / carried]
        )
        return [
            _plain("together", z, np.column_stack([rows, columns])),
            _plain("together", _root(np.square(z)[None])),
            _plain("together", common),
        ]


def _plain(test: str, z: Floats, who: Indices | None = None) -> Group:
    """A group without details or information."""
    nothing = np.zeros(z.size, dtype=np.intp)
    return Group(test, z, np.zeros((z.size, 0), dtype=np.intp) if who is None else who, nothing, np.zeros(z.size))


def _root(squares: Floats) -> Floats:
    """Sums of squares by row, nearly normal: their cube roots (Wilson and Hilferty 1931)."""
    return np.asarray(np.cbrt(squares.sum(axis=1)))
