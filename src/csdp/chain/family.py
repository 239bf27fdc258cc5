"""Family: models that might be true."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from csdp.chain.graph import InfluenceGraph
from csdp.chain.model import Model
from csdp.errors import InputError

#: What the members of a family have in common, written once.
_SHARED: Final = ("values", "names")


class Family:
    """Models that might be true (the paper's Lambda); leakage over a family is the largest over its members.

    `members` and `plausible` are those of a `Model`, so that whatever takes a model can take a family.

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
                raise InputError(f"Family: {type(member).__name__} given; members are models")
        first = self._members[0]
        shape = first.sequences, first.states, first.names
        for member in self._members[1:]:
            same = (member.sequences, member.states, member.names) == shape
            if not same or member.values.tolist() != first.values.tolist():
                raise InputError("Family: members must agree in sequences, states, names and values")

    @property
    def members(self) -> tuple[Model, ...]:
        """The models."""
        return self._members

    @property
    def plausible(self) -> Family:
        """The family itself, or one of all members of the families that its members carry."""
        if all(member.family is None for member in self):
            return self
        return Family(each for member in self for each in member.plausible.members)

    @property
    def point(self) -> Model:
        """The first member: of a fit the point estimate."""
        return self._members[0]

    def with_point(self, point: Model) -> Family:
        """The same family around a first member of the same law that carries something else."""
        return Family([point, *self._members[1:]])

    def beside_point(self) -> list[dict[str, Any]]:
        """The other members as plain data, without what all of them share."""
        point, *members = (member.to_dict() for member in self._members)
        shared = {key: point.get(key) for key in _SHARED}
        return [{key: v for key, v in member.items() if key not in shared or v != shared[key]} for member in members]

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


def family_of_point(point: Model, content: Any, shared: Mapping[str, Any]) -> Family | InfluenceGraph:
    """The family of a chain from `beside_point`; `shared` is what all members have in common."""
    from csdp.chain.files import model_from_dict

    if isinstance(content, Mapping):
        allowed = (InfluenceGraph.schema, InfluenceGraph.family_schema)
        if content.get("schema") not in allowed:
            raise InputError(f"chain: family of schema {content.get('schema')!r}; {' or '.join(allowed)} is read")
        return InfluenceGraph.of_point(point, content)
    return Family([point, *(model_from_dict({**shared, **member}) for member in content)])


def certified_model(model: Model | Family) -> Model | Family:
    """What certificates of a model rest on: its family if a fit left several chains possible, else the model.

    Model error is the first thing an attacker would use, so the leakage of a fitted chain is the largest over the
    chains that its data leaves possible. `model.without_family()` is the point estimate, for comparison.

    >>> from csdp import CoupledChain
    >>> chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.3)]
    >>> certified_model(chains[0].carrying(family=Family(chains)))
    Family(2 models of 1 sequence, 2 states)
    >>> certified_model(chains[0]) is chains[0]
    True
    """
    if not isinstance(model, Model | Family):  # a caller without types
        raise InputError(f"chain: {type(model).__name__} given; a model or a Family expected")
    return model.plausible
