"""Tests on predictive residuals: what is left of readings once everything newer has predicted them.

Readings are taken the newest first. If the law is right, a residual r = 1(x = c) - Pr(x = c | everything newer) with
variance v has mean zero given everything newer, so for any function h of newer values `sum r h` has mean zero and
variance `sum v h^2`. Each h is first freed of what the law leaves open: the rows themselves, and the level of each
block of ticks, which limits and the allowance for slow levels cover. So a law that is fitted anew, or levels that
change slowly, do not raise an alarm, and what is left is a wrong structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from csdp.fitting.parents import Reading, lagged
from csdp.numbers import Floats, Indices

#: Ticks whose mean is compared with what follows.
LEVELS = (5, 20, 60)
#: Sequences up to which each is compared with each; of more, some evenly spread are tested.
TESTED = 128
#: Groups of blocks for which the lag is tested apart, bins of calibration.
_GROUPS, _BINS = 8, 4
#: Variance, in units of the largest single term, that the normal approximation needs.
_LEAST = 5.0
#: Ticks at the end of a block of which no level is taken.
_LAST = 10
#: Chance among those of its kind below which a statistic names an edge.
GROW_CHANCE = 0.01
#: Share of the variance of a function below which what the law leaves of it counts as nothing.
_NOTHING_NEW = 0.01


@dataclass(frozen=True)
class Finding:
    """One standardised statistic. `who`: the sequences it names, none if it is pooled over all of them."""

    test: str
    z: float
    who: tuple[int, ...] = ()
    detail: int = 0
    surprise: float = 0.0  #: -ln of its chance among those of its kind


@dataclass(frozen=True, eq=False)
class _Group:
    """Statistics of one kind: z and scale of any shape, and how an index is read."""

    test: str
    z: Floats
    scale: Floats
    who: tuple[Indices, ...] = ()
    detail: Indices | None = None

    @property
    def surprise(self) -> Floats:
        """-ln of the chance of so large a statistic among those of this kind."""
        from scipy.special import log_ndtr

        return np.asarray(-log_ndtr(-np.abs(self.z)) - np.log(2.0 * max(self.z.size, 1)))

    def findings(self, least: float) -> Iterator[Finding]:
        surprise = self.surprise
        for at in np.argwhere(surprise > least):
            key = tuple(at)
            named = tuple(int(part[key]) for part in self.who)
            detail = 0 if self.detail is None else int(self.detail[key])
            yield Finding(self.test, float(self.z[key]), named, detail, float(surprise[key]))


@dataclass(frozen=True, eq=False)
class Statistics:
    """All statistics of one set of readings."""

    groups: tuple[_Group, ...]

    @property
    def largest(self) -> float:
        """The most surprising statistic: -ln of its chance among those of its kind."""
        return max(float(group.surprise.max(initial=-np.inf)) for group in self.groups)

    def above(self, chance: float) -> list[Finding]:
        """What has a smaller chance among those of its kind, the most surprising first."""
        found = [one for group in self.groups for one in group.findings(-np.log(chance))]
        return sorted(found, key=lambda one: -one.surprise)

    def least_effect(self, test: str, *, pooled: bool) -> float | None:
        """The effect in log odds that a test notices nine times in ten, in the median; None if there is none.

        An effect a moves a statistic by a times the root of its information.
        """
        from scipy.special import ndtri

        found = [g for g in self.groups if g.test == test and (not g.who) == pooled and (g.scale > 0).any()]
        effects = [
            (1.2816 - float(ndtri(GROW_CHANCE / (2.0 * g.z.size)))) / np.sqrt(g.scale[g.scale > 0]) for g in found
        ]
        return float(np.median(np.concatenate(effects))) if effects else None


def block_edges(ticks: int, length: int) -> Indices:
    """Where blocks of about a length begin; at least two."""
    count = max(2, round(ticks / length))
    return np.linspace(0, ticks, count + 1).astype(np.intp)[:-1]


def tested_sequences(s: int) -> Indices:
    """The sequences that are tested: all, or as many as can be compared with each other, evenly spread."""
    return np.unique(np.linspace(0, s - 1, min(s, TESTED)).round().astype(np.intp))


def run_tests(reading: Reading, block: int, *, changing: bool = False) -> Statistics:
    """The statistics of readings under a law.

    Args:
        reading: the readings beside the law.
        block: ticks of a block whose level is its own.
        changing: influences may differ from stretch to stretch.
    """
    states, m = reading.data.states, reading.data.m
    some = tested_sequences(states.shape[1])
    newer = {c: _Newer(reading, some, c, block, changing) for c in range(1 if m == 2 else 0, m)}
    parts = [_Column(reading, int(j), c, newer[c]) for c in newer for j in some]
    own = [part.own() for part in parts]
    who = np.array([part.j for part in parts])
    names, details = own[0].names, own[0].details
    sums, spread = np.array([each.sums for each in own]), np.array([each.spread for each in own])
    z, groups = _standard(sums, spread), []
    for name in dict.fromkeys(names):
        columns = np.array([n for n, other in enumerate(names) if other == name])
        kept = np.where(z[:, columns] != 0, spread[:, columns], 0.0)
        whole = kept.sum(axis=0)
        pooled = np.where(kept > 0, sums[:, columns], 0.0).sum(axis=0) / np.sqrt(np.maximum(whole, 1e-300))
        detail = np.broadcast_to(np.array(details)[columns], kept.shape)
        groups.append(_Group(name, z[:, columns], kept, (np.repeat(who[:, None], columns.size, axis=1),), detail))
        groups.append(_Group(name, pooled, whole, (), detail[0]))
        groups.append(_Group(name, _spread_z(z[:, columns]), np.zeros(columns.size), (), detail[0]))
    if len(some) > 1:
        others = np.array([each.other_sums for each in own]), np.array([each.other_spread for each in own])
        pairs = np.broadcast_to(who[:, None], others[0].shape), np.broadcast_to(some, others[0].shape)
        groups.append(_Group("others", _standard(*others), others[1], pairs))
        groups += _together(parts, who)
    groups.append(_drift(parts, who))
    return Statistics(tuple(groups))


@dataclass(frozen=True, eq=False)
class _Own:
    """Sums of a column's residuals with functions of newer values, and their variances."""

    names: tuple[str, ...]
    details: tuple[int, ...]
    sums: Floats
    spread: Floats
    other_sums: Floats
    other_spread: Floats


class _Newer:
    """What was newer: whether each tested sequence was in a state, centred, and the blocks of the ticks."""

    def __init__(self, reading: Reading, some: Indices, c: int, block: int, changing: bool) -> None:
        states = reading.data.states[:, some]
        known = states >= 0
        shown = (states == c) & known
        self.some, self.changing = some, changing
        self.centred = np.where(known, shown - shown.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)
        self.running = np.vstack([np.zeros(some.size), np.cumsum(self.centred, axis=0)])
        self.one_newer = lagged(self.centred, 1, 0.0)
        ticks = states.shape[0]
        self.edges = block_edges(ticks, block)
        self.length = np.diff(np.append(self.edges, ticks))
        place = np.repeat(np.arange(self.edges.size), self.length)
        self.left_in_block = np.repeat(self.edges + self.length, self.length) - 1 - np.arange(ticks)
        self.group = place * min(_GROUPS, self.edges.size) // self.edges.size

    def since_block(self, table: Floats) -> Floats:
        """Sums over the newer ticks of the block."""
        sums = np.cumsum(table, axis=0)
        before = np.vstack([np.zeros(table.shape[1]), sums[:-1]])
        return np.asarray(before - np.repeat(before[self.edges], self.length, axis=0))


class _Column:
    """Residuals of one state of one sequence."""

    def __init__(self, reading: Reading, j: int, c: int, newer: _Newer) -> None:
        self.reading, self.j, self.c, self.newer = reading, j, c, newer
        self.known = reading.known[:, j]
        self.chance = np.clip(reading.predicted[:, j, c], 1e-9, 1.0 - 1e-9)
        self.left = np.where(self.known, (reading.data.states[:, j] == c) - self.chance, 0.0)
        self.spread = np.where(self.known, self.chance * (1.0 - self.chance), 0.0)

    def own(self) -> _Own:
        """The tests of this column alone, and against every other sequence."""
        newer, ticks = self.newer, self.left.size
        me = int(np.searchsorted(newer.some, self.j))
        mine, running = newer.centred[:, me], newer.running[:, me]
        deep = max(lag for i, lag in self.reading.law.parents[self.j] if i == self.j)
        at = np.maximum(np.arange(ticks) - deep, 0)
        found: list[tuple[str, int, Floats]] = [("order", lag, lagged(mine, lag, 0.0)) for lag in (deep + 1, deep + 2)]
        found += [("level", w, (running[at] - running[np.maximum(at - w, 0)]) / w) for w in LEVELS]
        if newer.some.size > 1:
            mean = (newer.centred.sum(axis=1) - mine) / (newer.some.size - 1)
            found += [("others", lag, lagged(mean, lag, 0.0)) for lag in (1, 2)]
        for e in range(self.reading.law.environments - 1):
            found += [("environment", lag, self._environment(e, lag)) for lag in self._environment_lags]
        bins = np.searchsorted(np.quantile(self.chance, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]), self.chance)
        found += [("calibration", b, (bins == b).astype(np.float64)) for b in range(_BINS)]
        one = newer.one_newer[:, me]
        stretches = [np.where(newer.group == g, one, 0.0) for g in range(int(newer.group[-1]) + 1)]
        if not newer.changing:
            found += [("lag by block", g, column) for g, column in enumerate(stretches)]
        names, details, columns = zip(*found, strict=True)
        others = newer.one_newer.copy()
        others[:, np.isin(newer.some, [i for i, lag in self.reading.law.parents[self.j] if lag == 1])] = 0.0
        functions = np.column_stack([*columns, others])
        tested = self._freed(functions, np.column_stack(stretches) if newer.changing else None)
        sums, squares = self.left @ tested, np.square(tested)
        spread = self.spread @ squares
        weak = spread < _LEAST * np.maximum(squares.max(axis=0, initial=0.0) * 0.25, 1e-12)
        known = spread < _NOTHING_NEW * (self.spread @ np.square(functions))  # to the law already
        spread = np.where(weak | known, 0.0, spread)
        k = len(columns)
        return _Own(names, details, sums[:k], spread[:k], sums[k:], spread[k:])

    @property
    def _environment_lags(self) -> tuple[int, ...]:
        """Steps to the environments that might matter too; an older one shows only if it is public."""
        return (1, -1) if self.reading.data.path is not None else (1,)

    def _environment(self, e: int, lag: int) -> Floats:
        share = self.reading.filtered[0][:, e]
        return np.asarray(lagged(share, 1, 0.0) if lag == 1 else np.append(share[1:], 0.0))

    def _freed(self, functions: Floats, others: Floats | None) -> Floats:
        """Functions without what a change of the rows, or of the level of a block, would do to the sums.

        From each residual the mean of the older ones of its block is taken, never of newer ones: the function of newer
        values beside it knows these, and the sum would no longer have mean zero (Arellano and Bover 1995).
        """
        weights, codes = self.reading.shares[:, self.j], self.reading.codes[:, self.j]
        size = self.reading.data.m ** len(self.reading.law.parents[self.j])
        rows = np.zeros((codes.size, size, weights.shape[1]))
        rows[np.arange(codes.size), np.maximum(codes, 0)] = np.where(self.known[:, None], weights, 0.0)
        spread = self.spread[:, None]
        rows = rows.reshape(codes.size, -1) / np.maximum(spread, 1e-9)
        if others is not None:
            rows = np.column_stack([rows, others])
        scale = np.sqrt((spread * rows**2).sum(axis=0))
        rows = rows[:, scale > 1e-6] / scale[scale > 1e-6]
        total = max(float(spread.sum()), 1e-12)
        rows -= (spread * rows).sum(axis=0) / total
        mean = total / max(int(self.known.sum()), 1)
        older = self.newer.left_in_block[:, None]
        share = np.where(older >= _LAST, spread / (mean * np.maximum(older, 1)), 0.0)
        both = np.where(older >= _LAST, np.column_stack([functions, rows]), 0.0)
        both = both - self.newer.since_block(both * share)
        both = np.where(self.known[:, None], both, 0.0)
        functions, bent = both[:, : functions.shape[1]], both[:, functions.shape[1] :]
        inner = (spread * rows).T
        return np.asarray(functions - bent @ np.linalg.lstsq(inner @ bent, inner @ functions, rcond=1e-3)[0])


def _standard(sums: Floats, spread: Floats) -> Floats:
    return np.where(spread > 0, sums / np.sqrt(np.where(spread > 0, spread, 1.0)), 0.0)


def _spread_z(z: Floats) -> Floats:
    """Whether the squares of many statistics are too large together (Wilson and Hilferty 1931); by column."""
    freedom = np.maximum((z != 0).sum(axis=0), 1)
    root = np.cbrt(np.square(z).sum(axis=0) / freedom)
    return np.where(freedom > 1, (root - (1.0 - 2.0 / (9.0 * freedom))) / np.sqrt(2.0 / (9.0 * freedom)), 0.0)


def _together(parts: list[_Column], who: Indices) -> list[_Group]:
    """Do residuals of a tick agree, by pairs or all together?"""
    left = np.column_stack([part.left for part in parts])
    spread = np.column_stack([part.spread for part in parts])
    sums, due = left.T @ left, np.square(left).T @ spread
    due = np.minimum(due, due.T)
    rows, columns = np.triu_indices(len(parts), 1)
    apart = who[rows] != who[columns]
    rows, columns = rows[apart], columns[apart]
    due = np.where(due < _LEAST / 16.0, 0.0, due)[rows, columns]
    pairs = _Group("together", _standard(sums[rows, columns], due), due, (who[columns], who[rows]))
    one = [n for n, part in enumerate(parts) if part.c == parts[0].c]  # a state for each sequence
    left, spread = left[:, one], spread[:, one]
    all_left, all_spread = left.sum(axis=1), spread.sum(axis=1)
    squares = (np.square(spread)).sum(axis=1)
    noise = 2.0 * (np.square(all_spread) - squares) + (spread * (1.0 - 4.0 * spread)).sum(axis=1)
    excess = (np.square(all_left) - all_spread).sum() / np.sqrt(max(float(noise.sum()), 1e-12))
    due = float((all_spread[1:] * all_spread[:-1]).sum())
    carried = (all_left[1:] * all_left[:-1]).sum() / np.sqrt(max(due, 1e-12))
    whole = float(np.square(all_spread).sum())
    return [pairs, _Group("together", np.array([excess, carried]), np.array([whole, whole]))]


def _drift(parts: list[_Column], who: Indices) -> _Group:
    """Do residuals drift inside a block? The largest cumulative sum against a Brownian bridge."""
    from scipy.special import ndtri

    edges = parts[0].newer.edges
    ends = edges + parts[0].newer.length
    z = np.zeros((len(parts), len(edges)))
    for n, part in enumerate(parts):
        for b, (start, stop) in enumerate(zip(edges, ends, strict=True)):
            spread = np.cumsum(part.spread[start:stop])
            if spread[-1] < _LEAST:
                continue
            walk = np.cumsum(part.left[start:stop])
            bridge = np.abs(walk - walk[-1] * spread / spread[-1]).max() / np.sqrt(spread[-1])
            z[n, b] = -ndtri(np.clip(np.exp(-2.0 * bridge**2), 1e-15, 0.5))
    index = np.repeat(who[:, None], len(edges), axis=1)
    detail = np.broadcast_to(np.arange(len(edges)), z.shape)
    return _Group("drift", z, np.zeros_like(z), (index,), detail)
