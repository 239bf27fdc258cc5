"""The mean squared error of a release, and the squared error of publishing nothing.

It is measured against the present answer f(x_t) (`about="now"`), or against the answer f(z) of the time of the readings
(`about="then"`): then the noise is all the error there is, and age costs nothing but delay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from csdp.aging import AgedLaw, check_ages, check_epsilon, index_parts
from csdp.arrays import Floats, Indices
from csdp.chain import Family, Model, certified_model, is_forward
from csdp.errors import InputError, TooLargeError
from csdp.estimate.history import HistoryEstimator, has_history, model_estimator
from csdp.estimate.result import BY_STATES, About, Error, Estimate, check_about
from csdp.estimate.second_order import Moments, moments
from csdp.estimate.single import PosteriorMean
from csdp.noise import simulate_noise
from csdp.query import tabulate, to_query
from csdp.query_table import FoldTable, FunctionTable, Query, all_snapshots

Law = Literal["joint", "independent-marginals"]

#: Joint states up to which the filter keeps its belief.
FILTER_STATES = 4096
#: Ticks of the simulation behind the filter's error, and the batches of its confidence interval.
FILTER_TICKS = 6000
_BATCHES = 30
#: Steps of a simulated noise scale where the answers are on no lattice.
_FINE = 1024


def mse(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    estimate: Estimate = "raw",
    given: Sequence[float] | None = None,
    law: Law = "joint",
    about: About = "now",
) -> Error:
    """`E|published - f(x_t)|^2` of a release, in closed form for additive queries (pair laws, no m^s).

    With `about="then"`, `E|published - f(z)|^2`: how well the time of the readings is told.

    Args:
        chain: the model; over a Family the largest error.
        query: what is published.
        ages: how old the published readings are, in steps: one age for all sequences, or one each.
        epsilon_c: the noise level.
        estimate: "raw", `E|f(z) - f(x_t)|^2 + noise variance`; "linear", the best linear estimate, never above the
            no-data error; "history", the best linear estimate from the last eight of a release at every tick, which
            is what a publisher puts out (the linear one where ages differ or the law of the start is given);
            "posterior", the posterior mean given one release, never above the linear one (one output, small
            systems); "filter", the Bayes filter of the whole released history, simulated.
        given: condition on these aged values, as the paper's figures do.
        law: with `given`, "independent-marginals" reproduces the paper's own numbers.
        about: "now" for the error against the present answer, "then" against that of the time of the readings.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> error = mse(chain, Mean(), ages=20, epsilon_c=1.49, given=[1, 1], law="independent-marginals")
    >>> round(error.aging, 3), round(error.mse, 3)
    (0.375, 0.6)
    """
    chain = certified_model(chain)
    if len(chain.members) > 1:
        errors = [
            mse(member, query, ages=ages, epsilon_c=epsilon_c, estimate=estimate, given=given, law=law, about=about)
            for member in chain.members
        ]
        return max(errors, key=lambda error: error.safe)
    model = chain.members[0].point
    query = tabulate(query, model)
    checked = check_ages(ages, model.sequences)
    level = check_epsilon(epsilon_c)
    if law not in {"joint", "independent-marginals"}:
        raise InputError(f"law: {law!r} given; 'joint' or 'independent-marginals'")
    if estimate not in {"raw", "linear", "posterior", "history", "filter"}:
        raise InputError(f"estimate: {estimate!r} given; 'raw', 'linear', 'posterior', 'history' or 'filter'")
    check_about(about, estimate)
    if given is not None:
        if about != "now":
            raise InputError("given: conditioning on the aged values is for about='now'")
        if estimate != "raw":
            raise InputError("given: conditioning on the aged values is for estimate='raw'")
        return _error_given_aged(model, query, checked, level, np.asarray(given, dtype=np.float64), law)
    if law != "joint":
        raise InputError("law='independent-marginals' needs given=, the aged values")
    return error_from_moments(model, query, moments(model, query, ages=checked), checked, level, estimate, about)


def noise_variance(model: Model, query: Query | str, epsilon_c: float) -> float:
    """Variance of the noise on one output: on the lattice of the answers, or Laplace's where they are on none."""
    computation = tabulate(query, model)
    if isinstance(computation, FunctionTable):
        return 2.0 * (computation.sensitivity(1, model.value_table) / epsilon_c) ** 2
    sensitivity = computation.undivided_sensitivity(1)
    if not sensitivity > 0:
        raise InputError(f"query: {computation.name} never changes with one record, so no noise is added to it")
    rate = computation.spacing * epsilon_c / sensitivity
    # 2q / (1 - q)^2 with q = e^-rate; beyond a rate of 1,400 a float holds 0
    return 0.5 * (computation.spacing / computation.denominator / math.sinh(min(rate, 1400.0) / 2)) ** 2


def error_from_moments(
    model: Model,
    query: Query,
    known: Moments,
    ages: Sequence[int],
    epsilon_c: float,
    estimate: Estimate,
    about: About = "now",
    estimator: HistoryEstimator | None = None,
) -> Error:
    """The error of one estimate, from moments that are already known; `estimator`: what "history" is made with."""
    query = tabulate(query, model)
    noise = noise_variance(model, query, epsilon_c)
    if about == "then":
        known = known.of_time_read()
    outputs = known.mean_now.size
    no_data = float(np.trace(known.cov_now))
    aging = known.aging
    total = outputs * noise
    how = known.how if query.of_states else BY_STATES
    if estimate == "posterior":
        value = PosteriorMean(model, query, ages=ages, epsilon_c=epsilon_c, then=about == "then").mse
        return Error(value, aging, total, no_data, estimate, "joint law", None, about)
    if estimate == "filter":
        return _filter_error(model, query, ages, epsilon_c, Error(0.0, aging, total, no_data, estimate, "simulation"))
    if estimate == "history" and has_history(model, ages):
        history = estimator or model_estimator(model, query, age=ages[0], about=about)
        value = history.expected(noise).mse
    else:
        value = aging + total if estimate == "raw" else float((known.linear_estimate(noise)[2] ** 2).sum())
    interval = None
    if known.how == "simulation" and (aging > 0 or estimate != "raw"):
        # Covariances of a path of n nearly independent snapshots are off by some of their own size over sqrt(n).
        slack = 3.3 * (no_data + float(np.trace(known.cov_aged))) / float(known.samples) ** 0.5
        interval = (max(0.0, value - slack), value + slack)
    return Error(value, aging, total, no_data, estimate, how, interval, about)


def _filter_error(model: Model, query: Query, ages: Sequence[int], epsilon_c: float, known: Error) -> Error:
    """The filter's error along a simulated path, with a confidence interval from batch means."""
    if len(set(ages)) > 1:
        raise InputError("estimate='filter' needs one common age; use 'linear' for unequal ages")
    scale = query.sensitivity(1, model.value_table) / epsilon_c
    observer = BayesFilter(model, query, age=ages[0], scale=scale)
    random = np.random.default_rng(0)
    path = model.simulate(FILTER_TICKS + ages[0], seed=1).astype(np.intp)
    truth = query.evaluate(path, model.value_table)
    step = query.spacing / query.denominator if isinstance(query, FoldTable) else scale / _FINE
    noisy = truth[:FILTER_TICKS] + step * simulate_noise(scale / step, truth[:FILTER_TICKS].shape, random)
    state, errors = observer.init(), np.empty(FILTER_TICKS)
    for t in range(FILTER_TICKS):
        state, _, deviation = observer.step(state, noisy[t])
        errors[t] = (deviation**2).sum()  # the posterior variance has the mean of the squared error and less spread
    batches = errors.reshape(_BATCHES, -1).mean(axis=1)
    half = 3.7 * float(batches.std(ddof=1)) / _BATCHES**0.5
    value = float(errors.mean())
    return Error(value, known.aging, known.noise, known.no_data, "filter", "simulation", (value - half, value + half))


def _error_given_aged(
    model: Model, query: Query, ages: tuple[int, ...], epsilon_c: float, values: Floats, law: Law
) -> Error:
    """The error given the aged values: what the paper's figures show."""
    states = _states_of(model, values)
    noise = noise_variance(model, query, epsilon_c)
    answer = query.evaluate(states, model.value_table)
    if law == "independent-marginals":
        noise = 2.0 * (query.sensitivity(1, model.value_table) / epsilon_c) ** 2  # the paper's noise is continuous
        mean, spread = _independent_moments(model, query, ages, states)
        aging = float(((answer - mean) ** 2).sum() + spread.sum())
    else:
        aging = _joint_aging_error(model, query, ages, states, answer)
    no_data = float(np.trace(moments(model, query, ages=ages).cov_now))
    how = "joint law" if law == "joint" else "independent marginals"
    total = noise * answer.size
    return Error(aging + total, aging, total, no_data, "raw", f"given aged values, {how}")


def _states_of(model: Model, values: Floats) -> Indices:
    if values.shape != (model.sequences,):
        raise InputError(f"given: {values.size} values for {model.sequences} sequences; give one each")
    table = model.value_table
    states = np.abs(table - values[:, None]).argmin(axis=1)
    if not np.allclose(table[np.arange(model.sequences), states], values, rtol=0, atol=1e-9):
        raise InputError("given: each value must be one of the values that the states carry")
    return np.asarray(states, dtype=np.intp)


def _independent_moments(model: Model, query: Query, ages: tuple[int, ...], states: Indices) -> tuple[Floats, Floats]:
    """Mean and variance of the present answer if sequences were independent with their true marginals."""
    if not is_forward(model) or not isinstance(query, FoldTable) or query.fold != "sum":
        raise InputError("law='independent-marginals' is for additive queries of a forward CoupledChain")
    margins = model.marginals()
    known = np.eye(model.states)[states]
    for age in range(max(ages), -1, -1):
        here = np.asarray(ages) == age
        margins = np.where(here[:, None], known, margins)
        if age:
            margins = model.evolve(margins, 1)
    parts = query.contributions() / query.denominator
    mean = np.einsum("ia,iad->id", margins, parts)
    second = np.einsum("ia,iad->id", margins, parts**2)
    return mean.sum(axis=0), (second - mean**2).sum(axis=0)


def _joint_aging_error(model: Model, query: Query, ages: tuple[int, ...], states: Indices, answer: Floats) -> float:
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
    now = query.evaluate(all_snapshots(s, m), model.value_table)
    return float((column / column.sum()) @ ((now - answer) ** 2).sum(axis=1))


@dataclass(frozen=True, eq=False)
class FilterState:
    """The belief about the newest aged snapshot, given everything released so far."""

    belief: Floats  # (N,)


class BayesFilter:
    """Posterior mean and standard error of the present answer from all releases at one common age.

    Post-processing of what is published: it costs no privacy. `init`, then `step(state, output)` at every tick, or
    `step(state, None)` where nothing was released.

    Args:
        model: the model.
        query: what is released.
        age: the age of the released readings, in steps.
        scale: the scale of the Laplace noise, Delta_f / epsilon_c.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> observer = BayesFilter(chain, Mean(), age=1, scale=0.5)
    >>> state, estimate, error = observer.step(observer.init(), [1.0])
    >>> round(float(estimate[0]), 3), round(float(error[0]), 3)
    (0.652, 0.476)
    """

    def __init__(self, model: Model, query: Query | str, *, age: int, scale: float) -> None:
        if model.size > FILTER_STATES:
            raise TooLargeError(
                f"filter: {model.states}**{model.sequences} joint states; at most {FILTER_STATES:,}. "
                "Use estimate='linear'",
                needed=float(min(model.size, 10**300)),
                limit=FILTER_STATES,
            )
        if age < 0 or not scale > 0:
            raise InputError(f"filter: age {age}, scale {scale} given; an age of 0 or more and a positive noise scale")
        self._model = model
        self._age = age
        self._scale = scale
        self._answers = to_query(query).evaluate(
            all_snapshots(model.sequences, model.states), model.value_table
        )  # (N, d)

    def init(self) -> FilterState:
        """The belief before any release."""
        return FilterState(self._model.stationary())

    def step(self, state: FilterState, output: Sequence[float] | Floats | None) -> tuple[FilterState, Floats, Floats]:
        """One tick later: take in an output (or none), and estimate the present answer with its standard error."""
        belief = self._model.step.push(state.belief[:, None])[:, 0]
        if output is not None:
            far = np.abs(self._answers - np.asarray(output, dtype=np.float64)).sum(axis=1) / self._scale
            belief = belief * np.exp(far.min() - far)
        belief = belief / belief.sum()
        now = belief[:, None]
        for _ in range(self._age):
            now = self._model.step.push(now)
        mean = now[:, 0] @ self._answers
        spread = now[:, 0] @ (self._answers - mean) ** 2
        return FilterState(belief), mean, np.sqrt(spread)
