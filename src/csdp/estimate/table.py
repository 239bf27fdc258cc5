"""The posterior mean of an answer given one output of a table, and what the best table is found from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from csdp.aging import AgedLaw
from csdp.arrays import Floats
from csdp.chain import Model
from csdp.computation import FoldComputation
from csdp.noise.table import MechanismTable
from csdp.queries import all_snapshots


@dataclass(frozen=True)
class AnswerMoments:
    """The law of the answer that is read, and moments of the answer that is wanted together with it.

    `law[v] = Pr(read v)`, `first[v] = E[wanted; read v]`, `second[v] = E[wanted^2; read v]`; answers are divided.
    """

    law: Floats
    first: Floats
    second: Floats

    @classmethod
    def of(cls, model: Model, query: FoldComputation, *, ages: Sequence[int], then: bool = False) -> AnswerMoments:
        """Of a release at some ages; wanted is the present answer, or that of the time that was read (`then`)."""
        aged = AgedLaw(model, query.contributions(), ages=ages, fold=query.fold)
        measure = aged.mass.measure
        law = measure.sum(axis=0)
        if then:
            read = aged.classes[:, 0] / query.denominator
            return cls(law, law * read, law * read**2)
        now = query.evaluate(all_snapshots(model.sequences, model.states), model.value_table)[:, 0]
        return cls(law, now @ measure, now**2 @ measure)

    @property
    def no_data(self) -> float:
        """The variance of the wanted answer: the error of saying its mean."""
        return float(self.second.sum() - self.first.sum() ** 2)

    @property
    def least(self) -> float:
        """The error of the best estimate from the exact answer that is read: what the age alone costs."""
        told = np.divide(self.first**2, self.law, out=np.zeros_like(self.law), where=self.law > 0)
        return max(0.0, float((self.second - told).sum()))

    def estimates(self, probabilities: Floats) -> tuple[Floats, Floats, float]:
        """By output of a mechanism (answers, outputs): posterior mean and standard error; and the whole error."""
        mass, first, second = self.law @ probabilities, self.first @ probabilities, self.second @ probabilities
        occurs = mass > 0
        share = np.divide(1.0, mass, out=np.zeros_like(mass), where=occurs)
        means = first * share
        spread = np.sqrt(np.maximum(second * share - means**2, 0.0))
        return means, spread, max(0.0, float(self.second.sum() - (first * means).sum()))


class TablePosterior:
    """`E[f(x_t) | o]` and its standard error for every output o of a table: no estimate has a smaller squared error.

    Args:
        model: the model.
        query: what is released, with one output.
        table: the mechanism.
        ages: how old the released readings are, one age each.
        then: whether the answer of the time that was read is estimated, instead of the present one.

    >>> from csdp import CoupledChain, Mean
    >>> from csdp.computation import verify_query
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = MechanismTable.from_probabilities([0.0, 1.0], [0.2, 0.8], np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> posterior = TablePosterior(chain, verify_query(Mean(), chain), table, ages=[1])
    >>> round(posterior.estimate(0.8)[0], 3), round(posterior.mse, 3)
    (0.6, 0.24)
    """

    def __init__(
        self, model: Model, query: FoldComputation, table: MechanismTable, *, ages: Sequence[int], then: bool = False
    ) -> None:
        known = AnswerMoments.of(model, query, ages=ages, then=then)
        self._places = {output: place for place, output in enumerate(table.outputs)}
        self._means, self._spreads, self.mse = known.estimates(table.probabilities)

    def estimate(self, output: float) -> tuple[float, float]:
        """The posterior mean given an output, and its standard error."""
        place = self._places[output]
        return float(self._means[place]), float(self._spreads[place])
