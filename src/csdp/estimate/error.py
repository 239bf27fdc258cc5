"""The mean squared error of a release, and the squared error of publishing nothing.

It is measured against the present answer f(x_t) (`about="now"`), or against the answer f(z) of the time of the readings
(`about="then"`): then the noise is all the error there is, and age costs nothing but delay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from csdp.aging import check_ages, check_epsilon
from csdp.chain import Family, Model, certified_model
from csdp.check import choice
from csdp.errors import InputError
from csdp.estimate.history import HistoryEstimator, has_history, model_estimator
from csdp.estimate.moments import Moments, moments
from csdp.estimate.result import BY_NOISE, BY_STATES, About, Error, Estimate, check_about
from csdp.query import tabulate
from csdp.query_table import FunctionTable, Query


def mse(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    estimate: Estimate = "raw",
    about: About = "now",
) -> Error:
    """`E|published - f(x_t)|^2` of a release, in closed form for additive queries (pair laws, no m^s).

    With `about="then"`, `E|published - f(z)|^2`: how far the answer of the time of the readings is off.

    Args:
        chain: the model; over a Family the largest error.
        query: what is published.
        ages: how old the published readings are, in steps: one age for all sequences, or one each.
        epsilon_c: the noise level.
        estimate: "raw", `E|f(z) - f(x_t)|^2 + noise variance`; "linear", the best linear estimate, never above the
            no-data error; "history", the best linear estimate from the last eight of a release at every tick, which
            is what a publisher puts out (the linear one if ages differ).
        about: "now" for the error against the present answer, "then" against that of the time of the readings.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> error = mse(chain, Mean(), ages=2, epsilon_c=2.0)
    >>> round(error.aging, 3), round(error.mse, 3), round(error.no_data, 3)
    (0.224, 0.315, 0.133)
    """
    chain = certified_model(chain)
    if len(chain.members) > 1:
        errors = [
            mse(member, query, ages=ages, epsilon_c=epsilon_c, estimate=estimate, about=about)
            for member in chain.members
        ]
        return max(errors, key=lambda error: error.safe)
    model = chain.members[0].point
    query = tabulate(query, model)
    checked = check_ages(ages, model.sequences)
    level = check_epsilon(epsilon_c)
    choice("estimate", estimate, ("raw", "linear", "history"))
    check_about(about)
    if not model.has_law:
        return error_of_noise(model, query, checked, level, about)
    return error_from_moments(model, query, moments(model, query, ages=checked), checked, level, estimate, about)


def noise_variance(model: Model, query: Query | str, epsilon_c: float) -> float:
    """Variance of the noise on one output: on the lattice of the answers, or Laplace's if they are on none."""
    computation = tabulate(query, model)
    if isinstance(computation, FunctionTable):
        return 2.0 * (computation.sensitivity(1, model.value_table) / epsilon_c) ** 2
    sensitivity = computation.undivided_sensitivity(1)
    if not sensitivity > 0:
        raise InputError(f"query: {computation.name} never changes with one record, so no noise is added to it")
    rate = computation.spacing * epsilon_c / sensitivity
    # 2q / (1 - q)^2 with q = e^-rate; beyond a rate of 1,400 a float holds 0
    return 0.5 * (computation.spacing / computation.denominator / math.sinh(min(rate, 1400.0) / 2)) ** 2


def error_of_noise(model: Model, query: Query, ages: Sequence[int], epsilon_c: float, about: About) -> Error:
    """The error if nothing but limits is known of the sequences, if no age lies between answer and question."""
    if about == "now" and max(ages) > 0:
        raise InputError(
            "error: what changes in the meantime is not known of a declared graph; ask for age 0, or for numbers about "
            "the time of the readings (about='then')"
        )
    query = tabulate(query, model)
    total = len(query.outputs) * noise_variance(model, query, epsilon_c)
    return Error(total, 0.0, total, 0.0, "raw", BY_NOISE, about=about)


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
