"""Limits of the class that a fit certifies: how far parents move the odds of a value, and what slow levels add.

A certificate rests on log odds ratios alone, so levels need no limits: whatever the environment, the clock and slow
levels are, a parent adds the same to the log odds. Every limit is one of a log odds with a standard error; simulated
series, fitted again, say by how much the errors of a fit are too small.

Sequences that are alike share what they know: their values scatter about a common one, normally and by a spread that
is estimated with them. A value lies where its own readings and that scatter leave it; one limit for all of them is
exceeded by any with the stated chance. A sequence that stands out from the others counts with its own readings alone.
All limits of a class hold together with its confidence.

The odds ratio of two neighbouring values is the same read forwards and backwards, whatever their levels, so the class
of sequences that follow themselves alone holds in both directions of time (docs/proofs.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from csdp.chain.graph import Odds
from csdp.errors import InputError
from csdp.fitting.additive import EFFECT_PRIOR, Law, Newest, Parents, Reading, fit_law
from csdp.fitting.residuals import BLOCKS, block_edges, run_tests
from csdp.numbers import Floats, Indices, freeze

#: Confidence with which all limits of a class hold together.
CONFIDENCE = 0.99
#: Ticks of the blocks whose levels are compared with the whole, unless tests found levels that change faster.
LEVEL_BLOCK = 150
#: Series that are simulated, and iterations of a fit to each, to learn how far estimates scatter.
_SIMULATED, _AGAIN = 24, 20
#: Log odds beyond which no limit is taken, and the spreads between sequences that are tried.
_LARGEST = 30.0
_SPREADS = np.concatenate([[0.0], np.geomspace(0.01, _LARGEST, 80)])
#: Information of an effect of which nothing was seen.
_SEEN = 1e-6
#: Readings of a block that its level needs.
_FEWEST = 10
#: Ends of the factor by which errors may be too small.
_LEAST_FACTOR, _MOST_FACTOR = 1.0, 3.0


def shared_limit(values: Floats, errors: Floats, chance: float) -> float:
    """What no true value (k, columns) exceeds in size, all of them together.

    The true values of a column scatter normally about a common one. Every spread is weighted by how likely it makes
    the estimates (restricted likelihood); the chances of all values to lie beyond the limit add up to what is given,
    less a third, since the weights are of a spread that may be anything beforehand. Estimates far beyond the others
    count by themselves.

    Args:
        values: estimates, one row for each sequence.
        errors: their standard errors; infinite for what was never seen.
        chance: that the limit fails.

    >>> values = np.random.default_rng(0).normal(0.0, 0.1, (50, 1))
    >>> round(shared_limit(values, np.full((50, 1), 0.1), 0.01), 3)
    0.196
    """
    from scipy.special import ndtr, ndtri

    kept = np.isfinite(errors)
    values = np.where(kept, values, 0.0)
    variance = np.where(kept, np.square(np.maximum(errors, 1e-6)), 1.0)  # of what was never seen: not used
    scatter = np.square(_SPREADS)[:, None, None]
    far = float(-ndtri(chance / (4.0 * values.size)))
    outside = np.zeros_like(kept)
    for _ in range(10):
        weight = np.where(kept & ~outside, 1.0 / (variance + scatter), 0.0)
        total = np.maximum(weight.sum(axis=1), 1e-12)
        mean = (weight * values).sum(axis=1) / total
        off = np.square(values - mean[:, None]) * weight
        logs = (
            np.log(np.where(weight > 0, weight, 1.0)).sum(axis=(1, 2))
            - np.log(total).sum(axis=1)
            - off.sum(axis=(1, 2))
        )
        likely = np.exp((logs - logs.max()) / 2.0) * np.gradient(_SPREADS)
        likely /= likely.sum()
        largest = int((likely.cumsum() > 1.0 - chance / 4.0).argmax())
        reach = np.square(values - mean[largest]) > far**2 * (variance + scatter[largest])
        if ((reach & kept) == outside).all():
            break
        outside = reach & kept
    # A value lies between its own estimate and the common one, by the share of its error in what makes it differ.
    share = np.where(kept, variance / (variance + scatter), 1.0) * ~outside
    middle = (1.0 - share) * values + share * mean[:, None]
    error = np.where(kept, (1.0 - share) * variance, scatter) + np.square(share) / total[:, None]
    error = np.sqrt(np.maximum(error, 1e-18))

    def beyond(limit: float) -> float:
        each = ndtr(-(limit - middle) / error) + ndtr(-(limit + middle) / error)
        return float(likely @ each.sum(axis=(1, 2)))

    low, high = 0.0, _LARGEST
    for _ in range(40):
        limit = 0.5 * (low + high)
        low, high = (limit, high) if beyond(limit) > chance / 1.5 else (low, limit)
    return high


# ---- the limits of a class -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassLimits:
    """What limits a class: (s, places) log odds by which each parent moves a value, (s, m) of slow levels.

    `point` are the estimates of the former, and `factor` is by how much their errors were too small.
    """

    parents: Parents
    odds: Floats
    point: Floats
    swing: Floats
    factor: float


def limit_class(
    law: Law, data: Newest, information: Floats, block: int, changing: frozenset[str], random: np.random.Generator
) -> ClassLimits:
    """The limits of a law that was fitted to readings.

    Args:
        law: the law.
        data: the readings.
        information: of its coefficients.
        block: ticks of a block whose level is its own.
        changing: by what the effect of a parent may differ.
        random: for simulated series, which decide nothing but by how much errors are too small.
    """
    chance = 1.0 - CONFIDENCE
    length = LEVEL_BLOCK if block == BLOCKS[0] else block
    edges = block_edges(data.states.shape[0], min(length, data.states.shape[0] // 3))
    again = []
    for states in law.simulate(data, _SIMULATED, random):
        other = data.showing(states)
        again.append((fit_law(law, other, _AGAIN)[0], other))
    parts = 2.0 if changing else 1.0
    factor = _error_factor(law, information, [fitted for fitted, _ in again])
    high, point = limit_effects(law, information, chance / (2.0 * parts), factor)
    if changing:
        high = high + _limit_changes(law, data, block, changing, chance / 4.0)
    own = Reading(law, data)
    others = [Reading(fitted, other) for fitted, other in again]
    return ClassLimits(law.parents, high, point, _limit_swing(own, others, edges, chance / 2.0), factor)


def limit_effects(law: Law, information: Floats, chance: float, factor: float) -> tuple[Floats, Floats]:
    """(s, places) upper limits of the log odds by which parents move a value, and estimates.

    `factor`: by how much the errors that follow from the information are too small.
    """
    high, point = np.zeros((2, len(law.parents), law.places))
    kinds, corners = _kinds(law.parents), _corners(law, information)
    chance = chance / (len(kinds) * len(corners))
    for values, errors in corners:
        for place, rows in kinds:
            column = rows[:, None], place
            limit = shared_limit(values[column], factor * errors[column], chance)
            high[rows, place] = np.maximum(high[rows, place], limit)
            point[rows, place] = np.maximum(point[rows, place], np.abs(values[rows, place]))
    return high, point


def _error_factor(law: Law, information: Floats, again: Sequence[Law]) -> float:
    """By how much estimates from simulated series scatter more than the information says."""
    kinds, found = _kinds(law.parents), []
    simulated = [_corners(each, information) for each in again]
    for corner, (values, errors) in enumerate(_corners(law, information)):
        for each in simulated:
            off = (each[corner][0] - values) / errors
            found += [off[rows, place] for place, rows in kinds]
    spread = np.square(np.concatenate(found)).mean()
    return float(np.clip(np.sqrt(spread), _LEAST_FACTOR, _MOST_FACTOR))


def _corners(law: Law, information: Floats) -> list[tuple[Floats, Floats]]:
    """Log odds ratios (s, places) and their standard errors: one of two states, one for each two of the parent's states
    and of the value's otherwise.
    """
    m, s, q = law.m, len(law.parents), information.shape[2]
    seen = information.copy()  # by the readings alone: what the prior of a fit says of effects limits nothing
    effects = np.arange(law.first_effect, q)
    for c in range(m - 1):
        seen[:, c, effects, c, effects] += _SEEN - EFFECT_PRIOR
    covariance = np.linalg.inv(seen.reshape(s, (m - 1) * q, -1)).reshape(information.shape)
    found = []
    for (a, b), (c, d) in itertools.product(itertools.combinations(range(m), 2), repeat=2):
        weights = np.zeros((law.places, m - 1, q))
        for place in range(law.places):
            for parent, state, sign in ((a, c, 1.0), (a, d, -1.0), (b, c, -1.0), (b, d, 1.0)):
                if parent and state:
                    weights[place, state - 1, law.first_effect + place * (m - 1) + parent - 1] = sign
        errors = np.sqrt(np.einsum("pcq,scqdr,pdr->sp", weights, covariance, weights))
        found.append((np.einsum("pcq,sqc->sp", weights, law.coefficients[:, :, 1:]), errors))
    return found


def _kinds(parents: Parents) -> list[tuple[int, Indices]]:
    """Places of parents, with the sequences whose parents there are alike: themselves at a lag, or others."""
    kinds: dict[tuple[int, bool, int], list[int]] = {}
    for j, own in enumerate(parents):
        for place, (i, lag) in enumerate(own):
            kinds.setdefault((place, i == j, lag), []).append(j)
    return [(place, np.array(rows)) for (place, _, _), rows in sorted(kinds.items())]


def _limit_changes(law: Law, data: Newest, block: int, changing: frozenset[str], chance: float) -> float:
    """By how much the effect of a parent may differ from its mean, between environments, phases or blocks."""
    most = 0.0
    groups = run_tests(Reading(law, data), block, frozenset())
    tested = [group for group in groups if group.test in changing and group.who.shape[1] == 1]
    for group in tested:
        shape = (len(law.parents), -1)
        information = group.information.reshape(shape)
        seen = information > 0
        root = np.sqrt(np.where(seen, information, 1.0))
        errors = np.where(seen, 1.0 / root, np.inf)
        most = max(most, shared_limit(group.z.reshape(shape) / root, errors, chance / len(tested)))
    return 2.0 * most if data.m > 2 else most  # of one state against the rest


# ---- slow levels -----------------------------------------------------------------------------------------------------


def _limit_swing(own: Reading, again: Sequence[Reading], edges: Indices, chance: float) -> Floats:
    """(s, m) upper limits of how far the log odds of a state may lie from the whole in a block."""
    m = own.data.m
    out = np.zeros((own.data.states.shape[1], m))
    shown = range(1, 2) if m == 2 else range(m)
    for c in shown:
        values, errors = _block_levels(own, c, edges)
        ratios = [
            np.square(level / error)[np.isfinite(error)] for level, error in (_block_levels(r, c, edges) for r in again)
        ]
        factor = float(np.sqrt(np.concatenate(ratios).mean())) if sum(map(len, ratios)) else 1.0
        errors = np.clip(factor, _LEAST_FACTOR, _MOST_FACTOR) * errors
        out[:, c] = shared_limit(values.reshape(-1, 1), errors.reshape(-1, 1), chance / len(shown))
    return np.repeat(out[:, 1:], 2, axis=1) if m == 2 else out


def _block_levels(reading: Reading, c: int, edges: Indices) -> tuple[Floats, Floats]:
    """By sequence and block, the change of log odds of a state given environment and phase, and its standard error."""
    weights, _ = reading.smoothed()
    law, data = reading.law, reading.data
    known = data.states >= 0
    shown = (data.states == c) & known
    usual = np.empty((law.environments, law.phases, data.states.shape[1]))
    for f in range(law.phases):
        here = (data.phase == f)[:, None]
        usual[:, f] = (weights.T @ (shown & here) + 0.5) / (weights.T @ (known & here) + 1.0)
    due = np.where(known, np.einsum("ne,ens->ns", weights, usual[:, data.phase]), 0.0)
    length = np.diff(np.append(edges, due.shape[0]))
    got = np.add.reduceat(shown.astype(np.float64), edges, axis=0)
    here_known = np.add.reduceat(known.astype(np.float64), edges, axis=0)
    got = (got + 0.5 * due.sum(axis=0) / np.maximum(known.sum(axis=0), 1)) * here_known / (here_known + 0.5)
    odds = _logit(np.where(known, due, 0.5))
    level = np.zeros_like(got)
    for _ in range(4):
        chance = np.where(known, 1.0 / (1.0 + np.exp(-odds - np.repeat(level, length, axis=0))), 0.0)
        slope = np.add.reduceat(chance * (1.0 - chance) * known, edges, axis=0)
        level = np.clip(level + (got - np.add.reduceat(chance, edges, axis=0)) / np.maximum(slope, 0.1), -6.0, 6.0)
    effect = np.abs(law.effects).max(axis=(1, 2, 3))
    moved = np.tanh(effect / 4.0)  # neighbouring values say the same: fewer count
    inflation = np.sqrt((1.0 + moved) / (1.0 - moved))
    errors = inflation / np.sqrt(np.maximum(slope, 0.1))
    return level.T, np.where((here_known >= _FEWEST).T, errors.T, np.inf)


def _logit(p: Floats) -> Floats:
    return np.asarray(np.log(np.clip(p, 1e-9, 1.0)) - np.log(np.clip(1.0 - p, 1e-9, 1.0)))


# ---- windows ---------------------------------------------------------------------------------------------------------


def make_windows(limits: ClassLimits, m: int) -> tuple[Odds, ...]:
    """The limits at every distance from the present, up to the memory.

    Near the present the newest parents do not exist yet. A law is then a mixture of those for all values of the missing
    ones, which any present value may move too: by no more than these move the odds.

    A sequence that follows one with a longer memory reveals the missing values, so there is no window for it.
    """
    if not has_windows(limits.parents):
        raise InputError("limits: sequences that follow each other and remember more than one step have no windows")
    windows = []
    for distance in range(1, max(lag for own in limits.parents for _, lag in own) + 1):
        edges = []
        for j, own in enumerate(limits.parents):
            if _follows_itself(limits.parents, j):
                found = [(j, j, lag, _near(limits, j, distance, lag)) for lag in range(1, distance + 1)]
                edges += [edge for edge in found if edge[3] > 0]
            else:
                edges += [(j, i, lag, float(limits.odds[j, place])) for place, (i, lag) in enumerate(own)]
        windows.append(_window(edges, len(limits.parents), m))
    return tuple(windows)


def has_windows(parents: Parents) -> bool:
    """Whether no sequence that follows others, or is followed by them, remembers more than one step."""
    tied = {k for j, own in enumerate(parents) for i, _ in own if i != j for k in (i, j)}
    return all(lag <= 1 for j in tied for _, lag in parents[j])


def make_forward(limits: ClassLimits, m: int) -> Odds | None:
    """The limits given everything older, if all sequences follow themselves alone; None otherwise.

    A value and an older one at lag i are tied by the law of the older one given newer values, whose odds ratio counts
    both ways, and by the laws of still older values that follow both: how much one of the two changes what the other
    does there is at most twice the smaller limit.
    """
    edges = []
    for j, own in enumerate(limits.parents):
        if not _follows_itself(limits.parents, j):
            return None
        memory = max(lag for _, lag in own)
        for lag in range(1, memory + 1):
            both = [2.0 * min(_near(limits, j, w, w), _near(limits, j, w, w - lag)) for w in range(lag + 1, memory + 1)]
            edges.append((j, j, lag, _near(limits, j, lag, lag) + sum(both)))
    return _window(edges, len(limits.parents), m)


def _follows_itself(parents: Parents, j: int) -> bool:
    return all(i == j for i, _ in parents[j])


def _near(limits: ClassLimits, j: int, distance: int, lag: int) -> float:
    """The limit of a parent at a lag, if only parents up to a distance exist yet."""
    odds = {other: float(limits.odds[j, place]) for place, (_, other) in enumerate(limits.parents[j])}
    return odds.get(lag, 0.0) + sum(size for other, size in odds.items() if other > distance)


def _window(edges: Sequence[tuple[int, int, int, float]], sequences: int, m: int) -> Odds:
    columns = np.array(sorted(edges)).reshape(-1, 4).T
    targets, sources, lags = (freeze(column.astype(np.intp)) for column in columns[:3])
    return Odds(sequences, m, targets, sources, lags, freeze(columns[3].copy()))


def swing_of(limits: ClassLimits) -> NDArray[np.float64]:
    """(s, m, m): what slow levels add to the log odds of each state against each other."""
    m = limits.swing.shape[1]
    both = limits.swing[:, :1, None] if m == 2 else limits.swing[:, :, None] + limits.swing[:, None, :]
    return np.asarray(both * (1.0 - np.eye(m)))
