"""Records behind the figures: leakage against age, and against coupling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from csdp.aging import Progress
from csdp.chain import CoupledChain, Model
from csdp.leakage import Leakage, aged_correlation, cmc_leakage_coefficient, leakage, leakage_table
from csdp.queries import Query


@dataclass(frozen=True)
class AgeRecord:
    """The leakage of a release at one common age, by one bound."""

    bound: str
    age: int
    epsilon: float
    sound: bool


@dataclass(frozen=True)
class CouplingRecord:
    """Two binary-coupled sequences that follow each other with one weight, published at one common age.

    `coefficient` is the paper's Phi(lambda, A), the worst aged correlation over couplings up to this weight;
    `correlation` is the aged correlation at this weight; `epsilon` is the exact leakage.
    """

    weight: float
    age: int
    coefficient: float
    correlation: float
    epsilon: float


@dataclass(frozen=True)
class Counterexample:
    """A chain on which a printed formula is below the exact leakage."""

    words: str
    printed: Leakage
    exact: Leakage


def leakage_by_age(
    model: Model, query: Query, *, ages: Sequence[int], epsilon_c: float, progress: Progress | None = None
) -> list[AgeRecord]:
    """Every bound at every age, for the informed adversary; bounds that do not apply are left out.

    >>> from csdp import Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> records = leakage_by_age(chain, Mean(), ages=[2], epsilon_c=1.0)
    >>> records[0].bound, round(records[0].epsilon, 6)
    ('exact', 0.153046)
    """
    records = []
    for done, age in enumerate(ages, start=1):
        table = leakage_table(model, query, ages=age, epsilon_c=epsilon_c)
        records += [AgeRecord(row.bound, age, row.epsilon, row.sound) for row in table.rows]
        if progress is not None:
            progress("leakage by age", done, len(ages))
    return records


def leakage_by_coupling(
    transitions: Any,
    query: Query,
    *,
    weights: Sequence[float],
    ages: Sequence[int],
    epsilon_c: float,
    progress: Progress | None = None,
) -> list[CouplingRecord]:
    """Phi(lambda, A) and the exact leakage of two sequences, against the weight that each gives to the other.

    >>> from csdp import Mean
    >>> [record] = leakage_by_coupling([[0.7, 0.3], [0.3, 0.7]], Mean(), weights=[0.25], ages=[2], epsilon_c=1.0)
    >>> round(record.coefficient, 3), round(record.correlation, 3), round(record.epsilon, 6)
    (0.16, 0.1, 0.153046)
    """
    records = []
    for done, weight in enumerate(weights, start=1):
        chain = CoupledChain(np.array([[1 - weight, weight], [weight, 1 - weight]]), transitions)
        for age in ages:
            coefficient = cmc_leakage_coefficient(transitions, strength=weight, ages=age).value
            exact = leakage(chain, query, ages=age, epsilon_c=epsilon_c, bound="exact").epsilon
            records.append(CouplingRecord(weight, age, coefficient, aged_correlation(chain, ages=age), exact))
        if progress is not None:
            progress("leakage by coupling", done, len(weights))
    return records


def printed_below_truth() -> Counterexample:
    """A skewed chain on which the paper's Theorem 1, as printed, is below the exact leakage.

    >>> found = printed_below_truth()
    >>> round(found.printed.epsilon, 3), round(found.exact.epsilon, 4)
    (0.69, 0.7727)
    """
    from csdp.queries import Mean

    chain = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
    printed, exact = (
        leakage(chain, Mean(), ages=1, epsilon_c=1.0, bound=bound) for bound in ("printed-loose", "exact")
    )
    words = "one sequence with two states, 0 to 1 with probability 0.01, 1 to 0 with 0.3, published at age 1"
    return Counterexample(words, printed, exact)
