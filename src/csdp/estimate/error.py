"""The mean squared error of a release against the present answer, and the error of publishing nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.aging import AgedLaw, check_ages, check_epsilon, index_parts
from csdp.chain import Family, Model, certified_model, is_forward
from csdp.computation import FoldComputation, verify_query
from csdp.errors import InputError, TooLargeError
from csdp.estimate.bayes import BayesFilter
from csdp.estimate.second_order import Moments, moments
from csdp.noise import lattice_step, variance
from csdp.queries import Query

Floats = npt.NDArray[np.float64]
Estimate = Literal["raw", "linear", "filter"]
Law = Literal["joint", "independent-marginals"]

#: Ticks of the simulation behind the filter's error, and the batches of its confidence interval.
FILTER_TICKS = 6000
_BATCHES = 30


@dataclass(frozen=True)
class Error:
    """Mean squared error of an estimate of the present answer, summed over outputs.

    `aging`: what the age alone costs (raw). `noise`: variance of the noise. `no_data`: the error of publishing nothing
    but the stationary expectation. `interval`: a 99.9 % confidence interval where the figure is simulated; a plan
    uses its upper end.
    """

    mse: float
    aging: float
    noise: float
    no_data: float
    estimate: Estimate
    how: str
    interval: tuple[float, float] | None = None

    def __float__(self) -> float:
        return self.mse

    @property
    def safe(self) -> float:
        """What a plan may count on."""
        return self.mse if self.interval is None else self.interval[1]


def mse(
    chain: Model | Family,
    query: Query,
    *,
    ages: Any,
    epsilon_c: float,
    estimate: Estimate = "raw",
    given: Sequence[float] | None = None,
    law: Law = "joint",
) -> Error:
    """`E|published - f(x_t)|^2` of a release, in closed form for additive queries (pair laws, no m^s).

    Raw: `E|f(z) - f(x_t)|^2 + noise variance`. Linear: the best linear estimate, never above the no-data error.
    Filter: the Bayes filter of the whole released history, simulated. `given`: condition on the aged values, as the
    paper's figures do; `law="independent-marginals"` with it reproduces the paper's own numbers. Over a Family: the
    largest.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> error = mse(chain, Mean(), ages=20, epsilon_c=1.49, given=[1, 1], law="independent-marginals")
    >>> round(error.aging, 3), round(error.mse, 3)
    (0.375, 0.6)
    """
    chain = certified_model(chain)
    if len(chain.members) > 1:
        errors = [
            mse(member, query, ages=ages, epsilon_c=epsilon_c, estimate=estimate, given=given, law=law)
            for member in chain.members
        ]
        return max(errors, key=lambda error: error.safe)
    model = chain.members[0]
    query = verify_query(query, model)
    checked = check_ages(ages, model.sequences)
    level = check_epsilon(epsilon_c)
    if law not in {"joint", "independent-marginals"}:
        raise InputError(f"law: {law!r} given; 'joint' or 'independent-marginals'")
    if estimate not in {"raw", "linear", "filter"}:
        raise InputError(f"estimate: {estimate!r} given; 'raw', 'linear' or 'filter'")
    if given is not None:
        if estimate != "raw":
            raise InputError("given: conditioning on the aged values is for estimate='raw'")
        return _given(model, query, checked, level, np.asarray(given, dtype=np.float64), law)
    if law != "joint":
        raise InputError("law='independent-marginals' needs given=, the aged values")
    return error_of(model, query, moments(model, query, ages=checked), checked, level, estimate)


def noise_variance(model: Model, query: Query, epsilon_c: float) -> float:
    """Variance of the noise on one output, about 2 (Delta_f / epsilon_c)^2: that of the lattice noise."""
    scale = verify_query(query, model).sensitivity(1, model.value_table) / epsilon_c
    step = lattice_step(1.0, scale)  # any step this fine has the same variance to one part in ten million
    return variance(scale / step) * step * step


def error_of(
    model: Model, query: Query, found: Moments, ages: Sequence[int], epsilon_c: float, estimate: Estimate
) -> Error:
    """The error of one estimate, from moments that are already known."""
    query = verify_query(query, model)
    noise = noise_variance(model, query, epsilon_c)
    outputs = found.mean_now.size
    no_data = float(np.trace(found.cov_now))
    aging = float(np.trace(found.cov_aged + found.cov_now - found.cross - found.cross.T))
    aging += float(((found.mean_aged - found.mean_now) ** 2).sum())
    total = outputs * noise
    if estimate == "filter":
        return _filtered(model, query, ages, epsilon_c, Error(0.0, aging, total, no_data, estimate, "simulation"))
    value = aging + total if estimate == "raw" else float((found.linear_estimate(noise)[2] ** 2).sum())
    interval = None
    if found.how == "simulation":
        # Covariances of a path of n nearly independent snapshots are off by some of their own size over sqrt(n).
        slack = 3.3 * (no_data + float(np.trace(found.cov_aged))) / float(found.samples) ** 0.5
        interval = (max(0.0, value - slack), value + slack)
    return Error(value, aging, total, no_data, estimate, found.how, interval)


def _filtered(model: Model, query: Query, ages: Sequence[int], epsilon_c: float, parts: Error) -> Error:
    """The filter's error along a simulated path, with a confidence interval from batch means."""
    if len(set(ages)) > 1:
        raise InputError("estimate='filter' needs one common age; use 'linear' for unequal ages")
    scale = query.sensitivity(1, model.value_table) / epsilon_c
    observer = BayesFilter(model, query, age=ages[0], scale=scale)
    random = np.random.default_rng(0)
    path = model.simulate(FILTER_TICKS + ages[0], seed=1).astype(np.intp)
    truth = query.evaluate(path, model.value_table)
    state, errors = observer.init(), np.empty(FILTER_TICKS)
    for t in range(FILTER_TICKS):
        noisy = truth[t] + random.laplace(0.0, scale, truth.shape[1])  # a simulation: nothing is published
        state, _, deviation = observer.step(state, noisy)
        errors[t] = (deviation**2).sum()  # the posterior variance has the mean of the squared error and less spread
    batches = errors.reshape(_BATCHES, -1).mean(axis=1)
    half = 3.7 * float(batches.std(ddof=1)) / _BATCHES**0.5
    value = float(errors.mean())
    return Error(value, parts.aging, parts.noise, parts.no_data, "filter", "simulation", (value - half, value + half))


def _given(model: Model, query: Query, ages: tuple[int, ...], epsilon_c: float, values: Floats, law: Law) -> Error:
    """The error given the aged values: what the paper's figures show."""
    states = _states_of(model, values)
    noise = noise_variance(model, query, epsilon_c)
    answer = query.evaluate(states, model.value_table)
    if law == "independent-marginals":
        mean, spread = _independent(model, query, ages, states)
        aging = float(((answer - mean) ** 2).sum() + spread.sum())
    else:
        aging = _joint_given(model, query, ages, states, answer)
    no_data = float(np.trace(moments(model, query, ages=ages).cov_now))
    how = "joint law" if law == "joint" else "independent marginals"
    total = noise * answer.size
    return Error(aging + total, aging, total, no_data, "raw", f"given aged values, {how}")


def _states_of(model: Model, values: Floats) -> npt.NDArray[np.intp]:
    if values.shape != (model.sequences,):
        raise InputError(f"given: {values.size} values for {model.sequences} sequences; give one each")
    table = model.value_table
    states = np.abs(table - values[:, None]).argmin(axis=1)
    if not np.allclose(table[np.arange(model.sequences), states], values, rtol=0, atol=1e-9):
        raise InputError("given: each value must be one of the values that the states carry")
    return np.asarray(states, dtype=np.intp)


def _independent(
    model: Model, query: Query, ages: tuple[int, ...], states: npt.NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """Mean and variance of the present answer if sequences were independent with their true marginals."""
    if not is_forward(model) or not isinstance(query, FoldComputation) or query.fold != "sum":
        raise InputError("law='independent-marginals' is for additive queries of a forward CoupledChain")
    margins = model.marginals()
    known = np.eye(model.states)[states]
    for age in range(max(ages), -1, -1):
        here = np.asarray(ages) == age
        margins = np.where(here[:, None], known, margins)
        if age:
            margins = model.evolve(margins, 1)
    parts = query.parts(model.value_table) / query.divisor(model.value_table)
    mean = np.einsum("ia,iad->id", margins, parts)
    second = np.einsum("ia,iad->id", margins, parts**2)
    return mean.sum(axis=0), (second - mean**2).sum(axis=0)


def _joint_given(
    model: Model, query: Query, ages: tuple[int, ...], states: npt.NDArray[np.intp], answer: Floats
) -> float:
    if model.size > 4096:
        raise TooLargeError(
            f"given: {model.states}**{model.sequences} joint states; at most 4,096 to condition on aged values",
            needed=float(min(model.size, 10**300)),
            limit=4096,
        )
    s, m = model.sequences, model.states
    aged = AgedLaw(model, index_parts(s, m), ages=ages)
    number = int(np.ravel_multi_index(tuple(states), (m,) * s))
    column = aged.mass.measure[:, int(np.flatnonzero(aged.classes[:, 0] == number)[0])]
    if column.sum() <= 0:
        raise InputError("given: these aged values cannot occur together")
    now = query.evaluate(np.array(np.unravel_index(np.arange(model.size), (m,) * s)).T, model.value_table)
    return float((column / column.sum()) @ ((now - answer) ** 2).sum(axis=1))
