"""Exact leakage: the largest log ratio of the output density, over all outputs and all presents to be told apart.

Between neighbouring values of f, in each coordinate, the ratio of two output densities is a Moebius function of
`exp(2 y epsilon_c / Delta_f)`, hence monotone. So the supremum over all outputs is a maximum over the product of the
sets of values of each output coordinate, and the leakage is exact, with a witness.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, AgedLaw, Progress, known_subsets, marginal
from csdp.errors import TooLargeError

Floats = npt.NDArray[np.float64]

#: Products of output values that are looked at.
OUTPUT_LIMIT = 2**22
#: Entries of one block of work.
_BLOCK = 2**22
#: Relative slack of the deviation form above which the mass form is computed too.
_SLACK = 1e-9


@dataclass(frozen=True)
class Worst:
    """The largest log ratio and where it is attained (states within the component)."""

    value: float
    sequence: int = 0
    known: tuple[int, ...] = ()
    present: tuple[int, ...] = ()
    alternative: int = 0
    output: tuple[float, ...] = ()


def worst_output(
    aged: AgedLaw,
    answers: Floats,
    *,
    rate: float,
    adversary: Adversary,
    progress: Progress | None = None,
) -> Worst:
    """Exact leakage of one component.

    `answers` (C, d) are the query's values for the classes of `aged`, `rate` = epsilon_c / Delta_f in their units.
    """
    outputs = output_grid(answers)
    subsets = known_subsets(adversary, aged.model.sequences)
    nominal, best = _by_deviation(aged, answers, outputs, rate, subsets, progress)
    if np.isfinite(best.value) and (best.value <= nominal * (1.0 + _SLACK) or best.value < 1e-300):
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
) -> tuple[float, Worst]:
    """Log ratios from differences to independence; the value includes the bound on rounding errors."""
    model, form = aged.model, aged.deviation
    nominal, best = 0.0, Worst(0.0)
    for number, known in enumerate(subsets):
        law = marginal(form.law, known, model.sequences, model.states)
        with np.errstate(invalid="ignore", divide="ignore"):
            shift = marginal(form.measure, known, model.sequences, model.states) / law[:, None]
        shift[law <= 0] = np.nan
        with np.errstate(divide="ignore"):
            log_base = np.log(form.base)
        for block, logs in blocks(outputs, answers, law.size, rate):
            tilt, level, slack = tilted(logs, form.base, log_base, form.error)
            spread = shift @ tilt.T
            tensor = spread.reshape((model.states,) * len(known) + (block.shape[0],))
            for axis in range(len(known)):
                high, low = _extent(tensor, axis)
                under = level + np.ldexp(low, form.exponent)
                safe = np.maximum(under - np.ldexp(slack, form.exponent), 0.0)
                with np.errstate(invalid="ignore", divide="ignore"):
                    plain = log_ratio(high - low, np.maximum(under, 0.0), form.exponent)
                    upper = log_ratio(high - low + 2.0 * slack, safe, form.exponent)
                nominal = max(nominal, float(np.nanmax(plain, initial=0.0)))
                best = _better(best, upper, tensor, axis, known, block)
        _tell(progress, number, len(subsets))
    return nominal, best


def tilted(logs: Floats, base: Floats, log_base: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights of the classes at every output, scaled so that their mean `level` is at least 1, and their slack.

    Deviations sum to 0 over the classes, so a constant may be taken off the weights. Taking off the largest possible
    weight keeps the digits where the noise hides almost everything; taking off nothing keeps them in the tails.
    """
    top = (logs + log_base).max(axis=1, keepdims=True)
    plain = np.exp(np.minimum(logs - top, 700.0))
    with np.errstate(over="ignore"):  # an error beyond the largest float says nothing: the mass form decides
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


def log_ratio(gap: Floats, under: Floats, exponent: int) -> Floats:
    """log(1 + gap 2^exponent / under); for tiny gaps the gap itself, which is never below it."""
    ratio = gap / under
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
) -> Worst:
    """Log ratios from non-negative numbers only: every one is accurate, however rare the reading."""
    model, form = aged.model, aged.mass
    best = Worst(0.0)
    for number, known in enumerate(subsets):
        law = marginal(form.law, known, model.sequences, model.states)
        with np.errstate(invalid="ignore", divide="ignore"):
            given = marginal(form.measure, known, model.sequences, model.states) / law[:, None]
        given[law <= 0] = np.nan
        for block, weights in blocks(outputs, answers, law.size * (answers.shape[0] if logs else 1), rate):
            with np.errstate(divide="ignore"):
                density = _log_mix(given, weights) if logs else np.log(given @ np.exp(weights).T)
            tensor = density.reshape((model.states,) * len(known) + (block.shape[0],))
            for axis in range(len(known)):
                high, low = _extent(tensor, axis)
                best = _better(best, high - low + 2.0 * form.relative, tensor, axis, known, block)
        _tell(progress, number, len(subsets))
    return best


def _log_mix(given: Floats, weights: Floats) -> Floats:
    """log(given @ exp(weights).T) without underflow."""
    terms = np.log(given)[:, None, :] + weights[None]
    top = terms.max(axis=2, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(terms - top).sum(axis=2)))


def _extent(tensor: Floats, axis: int) -> tuple[Floats, Floats]:
    """Largest and smallest along the secret's axis, among presents that can occur."""
    return np.fmax.reduce(tensor, axis=axis), np.fmin.reduce(tensor, axis=axis)


def _better(
    best: Worst,
    values: Floats,
    tensor: Floats,
    axis: int,
    known: tuple[int, ...],
    block: Floats,
) -> Worst:
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
    return Worst(value, known[axis], known, present, low, output)


def _tell(progress: Progress | None, number: int, count: int) -> None:
    if progress is not None:
        progress("comparing", number + 1, count)
