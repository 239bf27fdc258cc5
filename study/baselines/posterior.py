"""The posterior mean given one release: no estimate from it has a smaller mean squared error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from csdp.aging import AgedLaw
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats
from csdp.query import tabulate
from csdp.query_table import FoldTable, Query, all_snapshots

#: Points of the lattice between the least and the largest answer up to which outputs are listed.
LARGEST_RANGE = 1_000_000


class PosteriorMean:
    """`E[f(x_t) | y]` for one release y of one output: no estimate has a smaller mean squared error.

    Beyond the least and the largest answer the law of geometric noise shrinks by the same factor for all answers, so
    all outputs there tell the same: finitely many outputs have to be listed.

    Args:
        model: the model.
        query: what is released, with one output.
        ages: how old the released readings are, one age each.
        epsilon_c: the noise level.
        then: whether the answer of the time of the readings is estimated, instead of the present one.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> posterior = PosteriorMean(chain, Mean(), ages=[0], epsilon_c=1.0)
    >>> [round(posterior.estimate(y), 4) for y in (-5.0, 0.0, 1.0, 2.0)], round(posterior.mse, 4)
    ([0.2689, 0.2689, 0.7311, 0.7311], 0.1966)
    """

    def __init__(
        self, model: Model, query: Query | str, *, ages: Sequence[int], epsilon_c: float, then: bool = False
    ) -> None:
        computation = tabulate(query, model)
        if not isinstance(computation, FoldTable) or len(computation.outputs) != 1:
            raise InputError(
                f"estimate='posterior' needs one output of a query made of parts; {computation.name} has "
                f"{len(computation.outputs)}. Use estimate='linear'"
            )
        read, law, moment, squares = _joint_moments(model, computation, ages, then)
        step = computation.spacing / computation.denominator
        self._low, self._step = float(read.min()), step
        places = np.rint((read - self._low) / step)
        span = int(places.max())
        if span * read.size > LARGEST_RANGE:
            raise TooLargeError(
                f"estimate='posterior': {span:,} lattice points for {read.size:,} answers; at most {LARGEST_RANGE:,} "
                "pairs. Use estimate='linear'",
                needed=float(span * read.size),
                limit=LARGEST_RANGE,
            )
        rate = computation.spacing * epsilon_c / computation.undivided_sensitivity(1)
        likelihood = np.exp(-rate * np.abs(np.arange(span + 1)[:, None] - places[None, :]))
        inner = np.full(span + 1, math.tanh(rate / 2))  # (1 - q) / (1 + q), and 1 / (1 + q) beyond the ends
        inner[[0, -1]] = 1.0 if span == 0 else 1.0 / (1.0 + math.exp(-rate))
        mass, first = likelihood @ law, likelihood @ moment
        self._means = np.divide(first, mass, out=np.zeros_like(mass), where=mass > 0)
        #: the mean squared error of the estimate
        self.mse = max(0.0, float(squares.sum()) - float((inner * first * self._means).sum()))

    def estimate(self, output: float) -> float:
        """The posterior mean given an output."""
        return float(self._means[min(max(round((output - self._low) / self._step), 0), self._means.size - 1)])


def _joint_moments(
    model: Model, query: FoldTable, ages: Sequence[int], then: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """The answers that may be read, their law, and E[f(x_t); read] and E[f(x_t)^2; read] for each."""
    aged = AgedLaw(model, query.contributions(), ages=ages, fold=query.fold)
    read = aged.classes[:, 0] / query.denominator
    law = aged.mass.measure.sum(axis=0)
    if then:
        return read, law, law * read, law * read**2
    now = query.evaluate(all_snapshots(model.sequences, model.states), model.value_table)[:, 0]
    return read, law, now @ aged.mass.measure, now**2 @ aged.mass.measure
