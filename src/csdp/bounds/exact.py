"""Exact leakage: the largest log ratio of the output density, over all outputs and all pairs of presents.

Between neighbouring values of f, in each coordinate, the ratio of two output densities is a Moebius function of
`exp(2 y epsilon_c / Delta_f)`, hence monotone. So the supremum over all outputs is a maximum over the product of the
sets of values of each output coordinate, and the leakage is exact, with a witness.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from csdp.aging import Adversary, AgedLaw, Progress, known_subsets, marginal
from csdp.errors import TooLargeError
from csdp.numbers import Floats, Indices

#: Combinations of output values that are searched at most.
OUTPUT_LIMIT = 2**22
#: Entries of one block of work.
_BLOCK = 2**22
#: Relative slack of the deviation form above which the mass form is computed too.
_SLACK = 1e-9
_LARGE_SLACK = 1e-6
LARGE_STATES = 2**14


@dataclass(frozen=True)
class WorstCase:
    """The largest log ratio and the case that attains it (states within the component)."""

    value: float
    sequence: int = 0
    known: tuple[int, ...] = ()
    present: tuple[int, ...] = ()
    alternative: int = 0
    output: tuple[float, ...] = ()  # before the division by the query's denominator


def find_widest_case(ranges: Floats, pairs: Indices) -> WorstCase:
    """The sequence with the widest of some ranges (s,), with its two most distinguishable states (s, 2)."""
    i = int(np.argmax(ranges))
    return WorstCase(float(ranges[i]), i, (i,), (int(pairs[i, 1]),), int(pairs[i, 0]))


def find_worst_case(
    aged: AgedLaw,
    answers: Floats,
    *,
    rate: float,
    adversary: Adversary,
    progress: Progress | None = None,
) -> WorstCase:
    """Exact leakage of one component.

    Formal guarantee: not below the log ratio at any output; rounding is on the safe side.

    Args:
        aged: the law of what is read given the present.
        answers: (C, d) the query's values for the classes of `aged`.
        rate: epsilon_c / Delta_f in the units of `answers`.
        adversary: as for `csdp.leakage`.
        progress: called with a stage, what is done and what there is to do.
    """
    outputs = output_grid(answers)
    subsets = known_subsets(adversary, aged.model.sequences)
    # If the joint law is large a second pass would buy digits that are not needed.
    tolerance = _SLACK if aged.model.size <= LARGE_STATES else _LARGE_SLACK
    nominal, best = _by_deviation(aged, answers, outputs, rate, subsets, progress, tolerance=tolerance)
    if np.isfinite(best.value) and (best.value <= nominal * (1.0 + tolerance) or best.value < 1e-300):
        return best
    wide = rate * float(np.ptp(answers, axis=0).sum()) >= 600.0
    exact = _by_mass(aged, answers, outputs, rate, subsets, progress, logs=wide)
    return exact if exact.value < best.value else best


def output_grid(answers: Floats) -> Floats:
    """The product over output coordinates of the sets of values of that coordinate."""
    axes = [np.unique(column) for column in answers.T]
    count = float(np.prod([float(axis.size) for axis in axes]))
    if count > OUTPUT_LIMIT:
        raise TooLargeError(
            f"the query has {count:.3g} combinations of output values; at most {OUTPUT_LIMIT:,} are searched. "
            "Use bound='profile' (any query), or a query with fewer outputs",
            needed=count,
            limit=OUTPUT_LIMIT,
        )
    return np.array(list(itertools.product(*axes))).reshape(-1, len(axes))


def blocks(outputs: Floats, answers: Floats, rows: int, rate: float) -> Iterator[tuple[Floats, Floats]]:
    """Blocks of outputs with the log density of every class, up to a constant."""
    height = max(1, _BLOCK // max(rows, answers.shape[0]))
    for start in range(0, outputs.shape[0], height):
        block = outputs[start : start + height]
        far = np.zeros((block.shape[0], answers.shape[0]))
        for column in range(block.shape[1]):
            far += np.abs(block[:, column, None] - answers[None, :, column])
        yield block, -rate * far


def _by_deviation(
    aged: AgedLaw,
    answers: Floats,
    outputs: Floats,
    rate: float,
    subsets: Sequence[tuple[int, ...]],
    progress: Progress | None,
    *,
    tolerance: float,
) -> tuple[float, WorstCase]:
    """Log ratios from differences to independence; the value includes the bound on rounding errors."""
    model, form = aged.model, aged.deviation
    nominal, best = 0.0, WorstCase(0.0)
    for number, known in enumerate(subsets):
        law = marginal(form.law, known, model.sequences, model.states)
        with np.errstate(invalid="ignore", divide="ignore"):
            shift = marginal(form.measure, known, model.sequences, model.states) / law[:, None]
        holes = bool((law <= 0).any())
        shift[law <= 0] = np.nan
        with np.errstate(divide="ignore"):
            log_base = np.log(form.base)
        for block, logs in blocks(outputs, answers, law.size, rate):
            tilt, level, slack = tilt_weights(logs, form.base, log_base, form.error)
            spread = tilt @ shift.T
            for row in range(block.shape[0]):
                for axis in range(len(known)):
                    cube = spread[row].reshape(model.states**axis, model.states, -1)
                    if holes and np.isnan(cube).all():
                        continue  # none of these presents can occur
                    plain, upper, at = _widest(
                        cube, float(level[row]), float(slack[row]), form.exponent, tolerance, holes=holes
                    )
                    nominal = max(nominal, plain)
                    if upper > best.value * (1 + 1e-12):
                        best = _witness(upper, at, cube, known, axis, block[row])
                    elif upper > best.value:
                        best = replace(best, value=upper)  # a tie up to rounding: the first witness stays
        if progress is not None:
            progress("comparing", number + 1, len(subsets))
    return nominal, best


def _widest(
    cube: Floats, level: float, slack: float, exponent: int, tolerance: float, *, holes: bool
) -> tuple[float, float, int]:
    """The largest log ratio at one output, the same with rounding on the safe side, and its place.

    Args:
        cube: deviations (before, states of the secret, after): what the present state of the secret changes.
        level: mean weight of the classes at this output.
        slack: bound on the rounding error of the deviations.
        exponent: deviations and slack are times 2**exponent.
        tolerance: relative slack above which rounding is bounded entry by entry.
        holes: whether some presents cannot occur; these are NaN and are passed over.
    """
    larger, smaller = (np.fmax, np.fmin) if holes else (np.maximum, np.minimum)
    high, low = larger(cube[:, 0], cube[:, 1]), smaller(cube[:, 0], cube[:, 1])
    for state in range(2, cube.shape[1]):
        larger(high, cube[:, state], out=high)
        smaller(low, cube[:, state], out=low)
    gap = high - low
    under = (low if exponent == 0 else np.ldexp(low, exponent)) + level
    least = float(np.nanmin(under) if holes else under.min())
    if least <= 0:
        under = np.maximum(under, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = gap / under
    if holes or least <= 0:
        ratio = np.nan_to_num(ratio, nan=0.0, posinf=np.inf)
    at = int(ratio.argmax())
    worst = float(ratio.ravel()[at])
    plain = float(log_one_plus(worst, exponent))
    # With sigma = slack / least under, (gap + 2 slack) / (under - slack) <= (ratio + 2 sigma) / (1 - sigma).
    error = slack if exponent == 0 else float(np.ldexp(slack, exponent))
    sigma, moved = (error / least, slack / least) if least > 0 else (np.inf, np.inf)
    upper = float(log_one_plus((worst + 2.0 * moved) / (1.0 - sigma), exponent)) if sigma < 0.5 else np.inf
    if upper > plain * (1.0 + tolerance):
        with np.errstate(invalid="ignore", divide="ignore"):
            safe = log_one_plus((gap + 2.0 * slack) / np.maximum(under - error, 0.0), exponent)
        at = int(np.nanargmax(safe))
        upper = min(upper, float(safe.ravel()[at]))
    return plain, upper, at


def _witness(value: float, at: int, cube: Floats, known: tuple[int, ...], axis: int, output: Floats) -> WorstCase:
    """The worst case: which sequence, which present against which, at which output."""
    m = cube.shape[1]
    before, after = divmod(at, cube.shape[2])
    column = cube[before, :, after]
    high, low = int(np.nanargmax(column)), int(np.nanargmin(column))
    number = (before * m + high) * cube.shape[2] + after
    present = tuple(int(v) for v in np.unravel_index(number, (m,) * len(known)))
    return WorstCase(value, known[axis], known, present, low, tuple(float(v) for v in output))


def tilt_weights(logs: Floats, base: Floats, log_base: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights of the classes at every output, scaled so that their mean `level` is at least 1, and their slack.

    Deviations sum to 0 over the classes, so a constant may be taken off the weights. Taking off the largest possible
    weight keeps the digits when the noise hides almost everything; taking off nothing keeps them in the tails.
    """
    top = (logs + log_base).max(axis=1, keepdims=True)
    plain = np.exp(np.minimum(logs - top, 700.0))
    with np.errstate(over="ignore"):  # with an error beyond the largest float the mass form decides
        level, slack = plain @ base, plain @ error
    near = top[:, 0] > -600.0
    if near.any():
        gentle = np.expm1(logs[near]) * np.exp(-top[near])
        with np.errstate(over="ignore"):
            less = np.abs(gentle) @ error
        chosen = np.flatnonzero(near)[less < slack[near]]
        plain[chosen] = gentle[less < slack[near]]
        slack[chosen] = less[less < slack[near]]
    return plain, level, slack


def log_one_plus(ratio: Floats | float, exponent: int) -> Floats:
    """log(1 + ratio 2^exponent); for tiny ratios the ratio itself, which is never below it."""
    return np.asarray(np.log1p(ratio) if exponent == 0 else np.ldexp(ratio, exponent))


def _by_mass(
    aged: AgedLaw,
    answers: Floats,
    outputs: Floats,
    rate: float,
    subsets: Sequence[tuple[int, ...]],
    progress: Progress | None,
    *,
    logs: bool,
) -> WorstCase:
    """Log ratios from non-negative numbers only: every one is accurate, however rare the reading."""
    model, form = aged.model, aged.mass
    best = WorstCase(0.0)
    for number, known in enumerate(subsets):
        law = marginal(form.law, known, model.sequences, model.states)
        with np.errstate(invalid="ignore", divide="ignore"):
            laws = marginal(form.measure, known, model.sequences, model.states) / law[:, None]
        laws[law <= 0] = np.nan
        for block, weights in blocks(outputs, answers, law.size * (answers.shape[0] if logs else 1), rate):
            with np.errstate(divide="ignore"):
                density = _log_mix(laws, weights) if logs else np.log(laws @ np.exp(weights).T)
            tensor = density.reshape((model.states,) * len(known) + (block.shape[0],))
            for axis in range(len(known)):
                # Among presents that can occur; the others are NaN.
                gaps = np.fmax.reduce(tensor, axis=axis) - np.fmin.reduce(tensor, axis=axis) + 2.0 * form.relative
                best = _larger(best, gaps, tensor, axis, known, block)
        if progress is not None:
            progress("comparing", number + 1, len(subsets))
    return best


def _log_mix(laws: Floats, weights: Floats) -> Floats:
    """log(laws @ exp(weights).T) without underflow."""
    terms = np.log(laws)[:, None, :] + weights[None]
    top = terms.max(axis=2, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(terms - top).sum(axis=2)))


def _larger(
    best: WorstCase, values: Floats, tensor: Floats, axis: int, known: tuple[int, ...], block: Floats
) -> WorstCase:
    if np.isnan(values).all():
        return best
    at = tuple(int(v) for v in np.unravel_index(int(np.nanargmax(values)), values.shape))
    value = float(values[at])
    if value <= best.value * (1 + 1e-12):
        # A tie up to rounding: the first witness stays, the larger number counts.
        return replace(best, value=max(value, best.value))
    column = np.moveaxis(tensor, axis, -1)[at]
    high, low = int(np.nanargmax(column)), int(np.nanargmin(column))
    rest = at[:-1]
    present = (*rest[:axis], high, *rest[axis:])
    output = tuple(float(v) for v in block[at[-1]])
    return WorstCase(value, known[axis], known, present, low, output)
