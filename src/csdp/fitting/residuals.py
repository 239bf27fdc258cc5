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
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from csdp.fitting.additive import Reading
from csdp.numbers import Bools, Floats, Indices

#: Ticks of a block whose level is its own, the longest first; those of the next are tried if levels change faster.
BLOCKS = (100, 50, 25)
#: Ticks whose mean a level test looks at.
LEVELS = (5, 20, 60)
#: Groups of blocks for which what a parent adds is tested apart, and bins of calibration.
_GROUPS, _BINS = 6, 4
#: Variance, in units of the largest single term, that a statistic needs.
_LEAST = 4.0
#: Share of the variance of a function below which what the law leaves of it counts as nothing.
_NOTHING_NEW = 0.02
#: Chance below which surprise is not measured.
_LEAST_CHANCE = 1e-300
#: Variance that a pair needs.
_PAIR = 1.0
#: Added to the information of coefficients, in units of what each has alone: some cannot be separated.
_RIDGE = 1e-6

_Kind = TypeVar("_Kind", bound=np.generic)


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
    excess: float  #: by how many scales the largest lies above the mode of that of simulated series
    scale: tuple[Floats, ...] = field(repr=False)  #: standard deviations of the statistics of the series

    @property
    def largest(self) -> float:
        """The most surprising statistic: -ln of its chance among those of its kind."""
        return max(float(each.max(initial=-np.inf)) for each in self.surprise)

    @property
    def chance(self) -> float:
        """Chance that the largest statistic is as surprising, by the Gumbel law of that of simulated series."""
        return float(-np.expm1(-np.exp(-self.excess)))

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


def tested_sequences(s: int, most: int) -> Indices:
    """The sequences that are tested: all, or some evenly spread."""
    return np.unique(np.linspace(0, s - 1, min(s, most)).round().astype(np.intp))


def compare(seen: Sequence[Group], simulated: Sequence[Sequence[Group]]) -> Comparison:
    """Standardise statistics by those of simulated series, with the readings as one of them: all are exchangeable."""
    from scipy.special import betainc

    count = len(simulated)
    largest = np.full(1 + count, -np.inf)
    groups, surprises, scales = [], [], []
    for number, group in enumerate(seen):
        values = np.stack([group.z, *(each[number].z for each in simulated)])
        middle, spread = values.mean(axis=0), values.std(axis=0)
        live = ((values != 0).mean(axis=0) > 0.5) & (spread > 1e-9)
        z = np.where(live, (values - middle) / np.where(live, spread, 1.0), 0.0)
        within = np.clip(1.0 - np.square(z) / count, 0.0, 1.0)  # of one among all (Thompson 1935)
        chance = np.maximum(betainc(0.5 * (count - 1), 0.5, within), _LEAST_CHANCE)
        surprise = np.where(live, -np.log(chance) - np.log(max(int(live.sum()), 1)), -np.inf)
        largest = np.maximum(largest, surprise.max(axis=1, initial=-np.inf))
        groups.append(Group(group.test, z[0], group.who, group.detail, np.where(live, group.information, 0.0)))
        surprises.append(surprise[0])
        scales.append(spread)
    p = float((largest >= largest[0]).mean())
    return Comparison(tuple(groups), tuple(surprises), p, _excess(largest), tuple(scales))


def _excess(largest: Floats) -> float:
    """By how many scales of their Gumbel law the first of numbers lies above the mode of the others.

    The scale is 1 if statistics are normal, and more if their tails are heavier.
    """
    others = largest[1:]
    scale = max(1.0, float(others.std()) * np.sqrt(6.0) / np.pi)
    return float((largest[0] - others.mean()) / scale + np.euler_gamma)


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
    """The tests of one state, for all sequences at once; tables are (s, n), sequences by ticks.

    A function h of newer values is never freed itself: there is one for every pair of sequences and for every
    block. Its sum is taken with residuals that are free (`_free_left`). The variance that freeing takes away
    follows from the products of h with block levels and with the few coefficients of a sequence (Frisch and
    Waugh 1933), so the work is linear in ticks.
    """

    reading: Reading
    c: int
    block: int
    changing: frozenset[str]

    def groups(self) -> list[Group]:
        s = self.left.shape[0]
        names, functions = self._functions()
        z, information = self._of_own(functions)
        groups: list[Group] = []
        for name in dict.fromkeys(test for test, _ in names):
            columns = [n for n, (test, _) in enumerate(names) if test == name]
            details = np.array([names[n][1] for n in columns])
            groups += self._by_sequence(name, details, z[:, columns], information[:, columns])
        if s > 1:
            groups += self._pairs("others", *self._of_others())
            groups += self._together()
        drift = np.square(self._of_trends()[0])
        groups.append(_plain("drift", _root(drift), np.arange(s)[:, None]))
        groups.append(_plain("drift", _root(drift.sum(axis=0, keepdims=True))))
        return groups

    # ---- residuals and what they are tested against ----------------------------------------------------------------

    @cached_property
    def left(self) -> Floats:
        """Residuals."""
        return np.asarray(np.where(self._known, (self._states == self.c) - self._chance, 0.0))

    @cached_property
    def spread(self) -> Floats:
        """Their variances."""
        return np.asarray(np.where(self._known, self._chance * (1.0 - self._chance), 0.0))

    @cached_property
    def _known(self) -> Bools:
        return np.ascontiguousarray(self.reading.known.T)

    @cached_property
    def _states(self) -> npt.NDArray[np.int16]:
        return np.ascontiguousarray(self.reading.data.states.T)

    @cached_property
    def _chance(self) -> Floats:
        return np.ascontiguousarray(np.clip(self.reading.predicted[:, :, self.c].T, 1e-9, 1.0 - 1e-9))

    @cached_property
    def _edges(self) -> Indices:
        return block_edges(self.left.shape[1], self.block)

    @cached_property
    def _length(self) -> Indices:
        return np.diff(np.append(self._edges, self.left.shape[1]))

    @cached_property
    def _centred(self) -> Floats:
        """Whether each sequence was in the state, less its mean."""
        known = self._states >= 0
        shown = (self._states == self.c) & known
        mean = shown.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
        return np.where(known, shown - mean, 0.0)

    @cached_property
    def _newer(self) -> Floats:
        return _shift(self._centred, 1)

    def _functions(self) -> tuple[list[tuple[str, int]], Floats]:
        """Functions of newer values, (s, k, n), with the test and detail of each."""
        law = self.reading.law
        s, n = self.left.shape
        deep = np.array([max(lag for i, lag in own if i == j) for j, own in enumerate(law.parents)])
        names = [("order", extra) for extra in (1, 2)]
        tables = [_shift(self._centred, deep + extra) for extra in (1, 2)]
        running = np.cumsum(self._centred, axis=1)
        for width in LEVELS:
            if 3 * width <= n:
                names.append(("level", width))
                tables.append(_shift(running - _shift(running, width), deep + 1) / width)
        if s > 1:
            mean = (self._centred.sum(axis=0) - self._centred) / (s - 1)
            names += [("others", lag) for lag in (1, 2)]
            tables += [_shift(mean, lag) for lag in (1, 2)]
        for kind, table in self._stretches():
            names.append((kind, len([1 for name, _ in names if name == kind])))
            tables.append(table)
        bins = np.searchsorted(np.quantile(self._chance, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]), self._chance)
        names += [("calibration", b) for b in range(_BINS)]
        tables += [(bins == b).astype(np.float64) for b in range(_BINS)]
        return names, np.stack(tables, axis=1)

    def _stretches(self, *, free: bool = False) -> list[tuple[str, Floats]]:
        """The own newer value in each environment, phase, and group of blocks; those in which it may differ if free."""
        law = self.reading.law
        found: list[tuple[str, Floats]] = []
        if law.environments > 1:
            found += [("environment", share) for share in self.reading.shares.T]
        if law.phases > 1:
            found += [("clock", one) for one in _one_hot(self.reading.data.phase, law.phases)]
        place = np.repeat(np.arange(self._edges.size), self._length)
        group = place * min(_GROUPS, self._edges.size) // self._edges.size
        found += [("block", one) for one in _one_hot(group, int(group[-1]) + 1)]
        return [(kind, self._newer * part) for kind, part in found if (kind in self.changing) == free]

    # ---- what the law already knows ----------------------------------------------------------------------------

    def _by_block(self, table: Floats) -> Floats:
        """Sums by block."""
        return np.add.reduceat(table, self._edges, axis=-1)

    @cached_property
    def _spread_by_block(self) -> Floats:
        return np.maximum(self._by_block(self.spread), 1e-9)

    def _without_levels(self, table: Floats) -> Floats:
        """Tables (s, ..., n) less the share of the variance that makes their sum in each block 0."""
        middle = (slice(None), *[None] * (table.ndim - 2))
        level = np.repeat(self._by_block(table) / self._spread_by_block[middle], self._length, axis=-1)
        return table - level * self.spread[middle]

    @cached_property
    def _level_left(self) -> Floats:
        """Residuals freed of block levels."""
        return self._without_levels(self.left)

    @cached_property
    def _due(self) -> Floats:
        """By how much coefficients of the law move what is expected, freed of block levels: (s, q, n)."""
        law, data = self.reading.law, self.reading.data
        each = self.reading.by_environment[..., self.c].swapaxes(1, 2)
        slopes = np.where(self._known, self.reading.shares.T * each * (1.0 - each), 0.0)
        slope = slopes.sum(axis=0)
        tables = list(slopes) if law.environments > 1 else []
        if law.phases > 1:
            tables += [slope * one for one in _one_hot(data.phase, law.phases)]
        for place in range(law.places):
            some = [(j, *own[place]) for j, own in enumerate(law.parents) if len(own) > place]
            rows, sources, lags = np.array(some).T
            seen = np.full(self._states.shape, -1)
            seen[rows] = _shift(self._states[sources] + 1, lags) - 1
            tables += [slope * (seen == a) for a in range(1, data.m)]
        tables += [self.spread * part for _, part in self._stretches(free=True)]
        due = np.stack(tables, axis=1)
        size = np.sqrt((np.square(due) * self._weight).sum(axis=2, keepdims=True))
        return self._without_levels(due / np.maximum(size, 1e-9))

    @cached_property
    def _weight(self) -> Floats:
        """Inverse variances, (s, 1, n)."""
        return np.where(self.spread > 0, 1.0 / np.maximum(self.spread, 1e-9), 0.0)[:, None]

    @cached_property
    def _inverse(self) -> Floats:
        """That of the information of the coefficients, (s, q, q)."""
        inner = (self._due * self._weight) @ self._due.swapaxes(1, 2)
        return np.asarray(np.linalg.inv(inner + _RIDGE * np.eye(inner.shape[1])))

    @cached_property
    def _free_left(self) -> Floats:
        """Residuals freed of block levels and of the coefficients, (s, n)."""
        steps = self._inverse @ (self._due @ (self.left[:, None] * self._weight).swapaxes(1, 2))
        return np.asarray(self._level_left - (self._due * steps).sum(axis=1))

    def _of_own(self, functions: Floats) -> tuple[Floats, Floats]:
        """Statistics and information (s, k) of functions (s, k, n)."""
        sums = (functions @ self._free_left[:, :, None])[:, :, 0]
        weighted = functions * self.spread[:, None]
        total = np.einsum("skn,skn->sk", weighted, functions)
        levels = (np.square(self._by_block(weighted)) / self._spread_by_block[:, None]).sum(axis=2)
        largest = np.maximum(functions.max(axis=2), -functions.min(axis=2))
        return self._standardised(sums, total, levels, self._due @ functions.swapaxes(1, 2), largest)

    def _of_others(self) -> tuple[Floats, Floats]:
        """Those (s, s) of every other sequence's newer value that a sequence does not follow."""
        newer = self._newer
        levels = np.zeros((newer.shape[0], newer.shape[0]))
        for b, (start, length) in enumerate(zip(self._edges, self._length, strict=True)):
            at = slice(start, start + length)
            levels += np.square(self.spread[:, at] @ newer[:, at].T) / self._spread_by_block[:, b, None]
        sums = self._free_left @ newer.T
        total = self.spread @ np.square(newer).T
        largest = np.abs(newer).max(axis=1)
        z, information = self._standardised(sums, total, levels, self._due @ newer.T, largest)
        for j, own in enumerate(self.reading.law.parents):
            followed = [i for i, lag in own if lag == 1]
            z[j, followed] = 0.0
            information[j, followed] = 0.0
        return z, information

    def _of_trends(self) -> tuple[Floats, Floats]:
        """Those (s, blocks) of a line in each block."""
        middle = np.repeat(self._edges + (self._length - 1) / 2.0, self._length)
        line = (np.arange(middle.size) - middle) / np.repeat(self._length, self._length)
        total = self._by_block(self.spread * line**2)
        levels = np.square(self._by_block(self.spread * line)) / self._spread_by_block
        crossed = self._by_block(self._due * line)
        return self._standardised(self._by_block(self._free_left * line), total, levels, crossed, 0.5)

    def _standardised(
        self, sums: Floats, total: Floats, levels: Floats, crossed: Floats, largest: Floats | float
    ) -> tuple[Floats, Floats]:
        """Statistics (s, k) in standard deviations, and their information, 0 if there is too little.

        Args:
            sums: of functions with free residuals.
            total: variance of the functions.
            levels: what block levels know of it.
            crossed: products of functions with what coefficients move, (s, q, k).
            largest: values of the functions.
        """
        information = total - levels - ((self._inverse @ crossed) * crossed).sum(axis=1)
        weak = information < _LEAST * np.maximum(0.25 * np.square(largest), 1e-12)
        weak |= information < _NOTHING_NEW * total  # the law knows it already
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
        left, spread = self._level_left, self.spread
        sums, due = left @ left.T, spread @ spread.T
        columns, rows = np.triu_indices(left.shape[0], 1)
        kept = due[rows, columns] > _PAIR
        z = np.where(kept, sums[rows, columns] / np.sqrt(np.where(kept, due[rows, columns], 1.0)), 0.0)
        all_left, all_spread = left.sum(axis=0), spread.sum(axis=0)
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


def _shift(table: npt.NDArray[_Kind], lags: int | Indices) -> npt.NDArray[_Kind]:
    """Rows (s, n) as they were some ticks newer, 0 before the newest; a lag of all rows, or of each."""
    out = np.zeros_like(table)
    each = np.broadcast_to(lags, table.shape[:1])
    for lag in np.unique(each).tolist():
        rows = each == lag
        out[rows, lag:] = table[rows, : table.shape[1] - lag]
    return out


def _one_hot(labels: Indices, count: int) -> Floats:
    """Whether each label is 0, 1, ...: (count, size)."""
    return np.asarray(np.arange(count)[:, None] == labels, dtype=np.float64)


def _plain(test: str, z: Floats, who: Indices | None = None) -> Group:
    """A group without details or information."""
    nothing = np.zeros(z.size, dtype=np.intp)
    return Group(test, z, np.zeros((z.size, 0), dtype=np.intp) if who is None else who, nothing, np.zeros(z.size))


def _root(squares: Floats) -> Floats:
    """Sums of squares by row, nearly normal: their cube roots (Wilson and Hilferty 1931)."""
    return np.asarray(np.cbrt(squares.sum(axis=1)))
