"""Family: several models that might be true."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property

from csdp.chain.model import Model
from csdp.errors import InputError


class Family:
    """Models that might be true (the paper's Lambda); leakage over a family is the largest over its members.

    >>> from csdp import CoupledChain
    >>> Family([CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.3)])
    Family(2 models of 1 sequence, 2 states)
    """

    def __init__(self, members: Iterable[Model]) -> None:
        self._members = tuple(members)
        if not self._members:
            raise InputError("Family: no models given; give at least one")
        for member in self._members:
            if not isinstance(member, Model):
                raise InputError(f"Family: {type(member).__name__} given; members are CoupledChain or JointChain")
        first = self._members[0]
        for member in self._members[1:]:
            same = (member.sequences, member.states, member.names) == (
                first.sequences,
                first.states,
                first.names,
            )
            if not same or member.values.tolist() != first.values.tolist():
                raise InputError("Family: members must agree in sequences, states, names and values")

    @property
    def members(self) -> tuple[Model, ...]:
        """The models."""
        return self._members

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the members' digests, whatever their order."""
        return hashlib.sha256("|".join(sorted(m.digest for m in self._members)).encode()).hexdigest()

    def __iter__(self) -> Iterator[Model]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Family) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        first = self._members[0]
        plural = "s" * (first.sequences > 1)
        return f"Family({len(self)} models of {first.sequences} sequence{plural}, {first.states} states)"


def certified_model(model: Model | Family) -> Model | Family:
    """What certificates of a model rest on: its family where a fit left several chains possible, else the model.

    Model error is the first thing an attacker would use, so the leakage of a fitted chain is the largest over the
    chains that its data leaves possible. `model.without_family()` is the point estimate, to be shown beside it.

    >>> from csdp import CoupledChain
    >>> chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.3)]
    >>> certified_model(chains[0].carrying(family=Family(chains)))
    Family(2 models of 1 sequence, 2 states)
    >>> certified_model(chains[0]) is chains[0]
    True
    """
    if isinstance(model, Family):
        if all(member.family is None for member in model):
            return model
        return Family(each for member in model for each in (member.family or (member,)))
    # What is no model at all is refused by whoever asked for it, in its own words.
    return model if not isinstance(model, Model) or model.family is None else model.family
