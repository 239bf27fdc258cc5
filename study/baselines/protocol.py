"""What the baselines share: whom an adversary knows, a number and how it was computed, and which chains they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from csdp.chain import Model
from csdp.errors import InputError
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

#: Whose present an adversary knows: everyone else's, nobody's, or the worst subset's.
Adversary = Literal["informed", "uninformed", "any"]


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    if adversary == "informed":
        return [everyone]
    if adversary == "uninformed":
        return [(i,) for i in everyone]
    return [tuple(i for i in everyone if bits >> i & 1) for bits in range(1, 2**sequences)]


@dataclass(frozen=True)
class Quantity:
    """A number and how it was computed; `value` is None if it was not, and `how` says why.

    `at_most`: a proven upper bound of a value that was not computed, if there is one.
    """

    value: float | None
    how: str
    at_most: float | None = None


def check_stationary(chain: Model) -> None:
    """Raise InputError unless `chain` is a model with one kernel."""
    if not isinstance(chain, Model):
        raise InputError(
            f"chain: {type(chain).__name__} given; one CoupledChain or JointChain expected (of a Family, one member)"
        )
    chain.require_one_kernel()


def check_inputs(chain: Model, query: Query | str) -> QueryTable:
    """Return the query on a lattice; raise InputError for a chain or query that no baseline can work with."""
    check_stationary(chain)
    table = tabulate(query, chain, on_lattice=True)
    if not table.undivided_sensitivity(1) > 0:
        raise InputError(f"query: {table.name} never changes with one record; there is nothing to protect")
    return table
