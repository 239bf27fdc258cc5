"""The posterior mean of an answer given one output of a table, and what the best table is found from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from csdp.aging import AgedLaw
from csdp.arrays import Floats
from csdp.chain import Model
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.estimate.protocol import LEVEL, Bounds, Estimated, Observation, standard_errors_of, with_band
from csdp.estimate.result import About, Error
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
        """Of a release at some ages; wanted is the present answer, or that of the time of the readings (`then`)."""
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
        """The variance of the wanted answer: the error of guessing its mean."""
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


@dataclass(frozen=True)
class TableEstimator:
    """`E[f(x_t) | o]` for every output o of a table, from the newest release: no estimate from it has less error.

    Args:
        outputs: of the table.
        means: posterior mean of each output, after the division.
        spreads: its standard error.
        error: the whole error, and that of saying nothing.
        about: whether the present answer is estimated ("now"), or that of the time of the readings ("then").
        level: share of the truths that the band is to hold.
        bounds: least and largest possible answer.
    """

    outputs: tuple[float, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    error: Error
    about: About = "now"
    level: float = LEVEL
    bounds: Bounds | None = None
    plan_digest: str | None = None

    kind = "posterior"
    memory = 1

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """InputError where there is not one output."""
        if outputs != 1:
            raise InputError(f"estimator: {outputs} outputs given; a table has one")

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The posterior mean given the newest output."""
        place = self.outputs.index(releases[-1].values[0])
        mean, spread = np.array([self.means[place]]), np.array([self.spreads[place]])
        factor = standard_errors_of(self.level)
        return with_band(mean, spread, factor=factor, bounds=self.bounds, no_data=self.error.no_data)

    def expected(self, noise: float) -> Error:
        """The error of the table; no noise is added to it."""
        return self.error


def table_estimator(
    model: Model,
    query: FoldComputation,
    table: MechanismTable,
    *,
    ages: Sequence[int],
    about: About = "now",
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> TableEstimator:
    """The estimator of a table under a model.

    >>> from csdp import CoupledChain, Mean
    >>> from csdp.computation import verify_query
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = MechanismTable.from_probabilities([0.0, 1.0], [0.2, 0.8], np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> estimator = table_estimator(chain, verify_query(Mean(), chain), table, ages=[1])
    >>> [round(mean, 3) for mean in estimator.means], round(estimator.error.mse, 3)
    ([0.4, 0.6], 0.24)
    """
    known = AnswerMoments.of(model, query, ages=ages, then=about == "then")
    means, spreads, mse = known.estimates(table.probabilities)
    error = Error(mse, known.least, mse - known.least, known.no_data, "posterior", "joint law", None, about)
    return TableEstimator(table.outputs, tuple(means.tolist()), tuple(spreads.tolist()), error, about, level, bounds)
