"""Errors as the paper states them: given the aged values, with the sequences taken as independent; and as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from csdp.aging import AgedLaw, check_ages, index_parts
from csdp.chain import CoupledChain, Model
from csdp.errors import InputError
from csdp.estimate import Error
from csdp.estimate.error import noise_variance
from csdp.estimate.moments import moments
from csdp.numbers import Floats, Indices
from csdp.query import tabulate
from csdp.query_table import FoldTable, Query, all_snapshots

Law = Literal["joint", "independent-marginals"]


def error_given_aged(
    model: Model,
    query: Query | str,
    *,
    ages: int | Sequence[int],
    epsilon_c: float,
    given: Sequence[float],
    law: Law = "joint",
) -> Error:
    """Return the error given the aged values; law "independent-marginals" reproduces the paper's own numbers."""
    table = tabulate(query, model)
    return _error_given_aged(
        model, table, check_ages(ages, model.sequences), epsilon_c, np.asarray(given, dtype=np.float64), law
    )


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
    if (
        not isinstance(model, CoupledChain)
        or model.direction != "forward"
        or not isinstance(query, FoldTable)
        or query.fold != "sum"
    ):
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
    s, m = model.sequences, model.states
    aged = AgedLaw(model, index_parts(s, m), ages=ages)
    number = int(np.ravel_multi_index(tuple(states), (m,) * s))
    column = aged.mass.measure[:, int(np.flatnonzero(aged.classes[:, 0] == number)[0])]
    if column.sum() <= 0:
        raise InputError("given: these aged values cannot occur together")
    now = query.evaluate(all_snapshots(s, m), model.value_table)
    return float((column / column.sum()) @ ((now - answer) ** 2).sum(axis=1))
