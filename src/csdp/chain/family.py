"""Models that might be true: a Family of some, and an InfluenceFamily of all processes within limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain.coupled import CoupledChain, is_backward
from csdp.chain.evidence import Evidence, FitRecord
from csdp.chain.model import Direction, Model, reading_json
from csdp.chain.stationary import connected_parts
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, Indices, freeze

#: What the members of a family have in common, written once.
_SHARED: Final = ("values", "names")
#: States of a sequence that are handled: all sets of them are searched.
FAMILY_STATES = 8
#: Rounding by which a point estimate may lie outside of its limits.
_ROUNDING = 1e-9


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


def family_of_point(point: Model, content: Any, shared: Mapping[str, Any]) -> Family | InfluenceFamily:
    """The family of a chain from `beside_point`; `shared` is what all members have in common."""
    from csdp.chain.files import model_from_dict

    if isinstance(content, Mapping):
        if not is_backward(point) or content.get("schema") != InfluenceFamily.schema:
            raise InputError(f"chain: family of schema {content.get('schema')!r}; {InfluenceFamily.schema!r} is read")
        return InfluenceFamily.of_point(point, content)
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


class InfluenceFamily(Model):
    """Every process on a graph whose previous states are independent given the present, within limits.

    With rho_k(c | x) the probability that the previous state of k is c given the present snapshot x, a process is a
    member if at every tick, for all edges from i to k, states a and b of i and all states of the others,

        rho_k(c | x_i = b) - rho_k(c | x_i = a) <= gains[edge, a, b, c]  and  rho_k(c | x_i = a) >= bases[edge, a, c]

    and no sequence depends on others than its edges say. Kernels may differ from tick to tick.

    Formal guarantee: `influence`, the only bound beside the group level, holds for each member. It does not hold for an
    adversary who is unsure which member is true. As a `Model` it has the point's names and values, but no single law:
    what needs one is refused, or uses `point`.

    Args:
        point: a backward chain within the limits, for estimates and errors.
        pairs: (edges, 2) target and source of every edge; those of the point among them.
        gains: (edges, m, m, m), between -1 and 1.
        bases: (edges, m, m), between 0 and 1.
        confidence: with which limits from readings hold together; None if they are declared.

    >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    >>> family = InfluenceFamily.around(chain, 0.01)
    >>> family
    InfluenceFamily(2 sequences, 2 states, 4 edges, digest 8656e3e3)
    >>> InfluenceFamily.from_json(family.to_json()) == family
    True
    """

    schema: ClassVar[str] = "csdp/influence-family/1"
    has_law: ClassVar[bool] = False
    direction: Direction = "backward"
    _point: CoupledChain
    gains: Floats
    bases: Floats
    confidence: float | None
    edge_targets: Indices
    edge_sources: Indices

    def __init__(
        self, point: CoupledChain, pairs: Any, gains: Any, bases: Any, *, confidence: float | None = None
    ) -> None:
        if not isinstance(point, Model) or not is_backward(point):
            raise InputError(
                f"family: {type(point).__name__} given as its point; a CoupledChain with direction='backward' expected"
            )
        if point.states > FAMILY_STATES:
            raise TooLargeError(
                f"family: {point.states} states a sequence given; at most {FAMILY_STATES}. Use a Family of chains",
                needed=point.states,
                limit=FAMILY_STATES,
            )
        if confidence is not None:
            confidence = check.number("confidence", confidence, above=0, below=1, hint="None for declared limits")
        ends, m = _read_pairs(pairs, point.sequences), point.states
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        self._set(
            _point=point.without_family(),
            sequences=point.sequences,
            states=m,
            values=point.values,
            unit=point.unit,
            _fit_cost=point.fit_cost,
            evidence=point.derived_evidence,
            _names=point._names,
            confidence=confidence,
            edge_targets=freeze(ends[order, 0]),
            edge_sources=freeze(ends[order, 1]),
            gains=freeze(_read_limits("gains", gains, (len(ends), m, m, m), -1.0)[order]),
            bases=freeze(_read_limits("bases", bases, (len(ends), m, m), 0.0)[order]),
        )
        self._check_point()

    def _check_point(self) -> None:
        gains, bases = influence_limits(self.point, np.column_stack([self.edge_targets, self.edge_sources]))
        apart = self.gains < gains - _ROUNDING
        apart[:, np.arange(self.states), np.arange(self.states)] = False
        if apart.any() or (self.bases > bases + _ROUNDING).any():
            raise InputError(
                "family: the point does not lie within the limits; raise gains or lower bases, or give another point"
            )

    @classmethod
    def around(cls, chain: CoupledChain, margin: float) -> InfluenceFamily:
        """All processes on the graph of a chain whose gains and bases are at most `margin` worse than its own.

        >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
        >>> InfluenceFamily.around(chain, 0.01).gains[0, 0, 1].round(3).tolist()
        [-0.31, 0.33]
        """
        margin = check.number("margin", margin, least=0, most=1)
        pairs = np.column_stack([chain.edge_targets, chain.edge_sources])
        gains, bases = influence_limits(chain, pairs)
        return cls(chain, pairs, np.minimum(gains + margin, 1.0), np.maximum(bases - margin, 0.0))

    def carrying(
        self,
        *,
        fitted: FitRecord | None = None,
        family: Family | InfluenceFamily | None = None,
        fit_cost: Mapping[str, Any] | None = None,
        evidence: Evidence | None = None,
    ) -> InfluenceFamily:
        """The same limits around a point that carries the record, cost and evidence of its fit, the family's own."""
        if family is not None:
            raise InputError("family: given for an InfluenceFamily, which is the family itself; leave it out")
        return self.with_point(self.point.carrying(fitted=fitted, fit_cost=fit_cost, evidence=evidence))

    def with_values_of(self, model: Model, members: Sequence[int]) -> InfluenceFamily:
        """The same limits around a point with the values of some sequences of another model."""
        return self.with_point(self.point.with_values_of(model, members))

    def with_point(self, point: CoupledChain) -> InfluenceFamily:
        """The same limits around a point of the same law."""
        return self.of_point(point, self._law_content())

    @property
    def point(self) -> CoupledChain:
        """A chain within the limits: the estimate of a fit."""
        return self._point

    @property
    def edges(self) -> int:
        """Number of edges."""
        return int(self.edge_targets.size)

    @property
    def assumption(self) -> str:
        """What a certificate assumes about the model, in words."""
        origin = (
            "limits that are declared"
            if self.confidence is None
            else f"limits that hold together with confidence {self.confidence:g}, if one chain on this graph made the "
            "readings of the fit"
        )
        return (
            f"the sequences follow some process within the limits of a family, which may change over time ({origin}); "
            "this holds for each member, not for an adversary who is unsure which member is true"
        )

    def components(self) -> list[tuple[int, ...]]:
        """Connected components of the graph."""
        from scipy.sparse import coo_array

        shape, ends = (self.sequences, self.sequences), (self.edge_targets, self.edge_sources)
        return connected_parts(coo_array((np.ones(self.edges), ends), shape=shape))

    def subchain(self, members: Iterable[int]) -> InfluenceFamily:
        """The family of some sequences that do not depend on the others."""
        inside = sorted(set(members))
        point = self.point.subchain(inside)
        place = np.full(self.sequences, -1, dtype=np.intp)
        place[inside] = np.arange(len(inside))
        kept = place[self.edge_targets] >= 0
        pairs = np.column_stack([place[self.edge_targets[kept]], place[self.edge_sources[kept]]])
        if (pairs < 0).any():
            raise InputError("subchain: the chosen sequences depend on others; take whole components")
        return InfluenceFamily(point, pairs, self.gains[kept], self.bases[kept], confidence=self.confidence)

    # ---- no single law -------------------------------------------------------------------------------------------

    def _refuse_law(self) -> NoReturn:
        raise InputError(
            "family: it stands for many processes and has no single law; use its point (family.point), or "
            "bound='influence'"
        )

    @property
    def is_positive(self) -> bool:
        """Refused: a family has no single law."""
        self._refuse_law()

    # ---- identity ------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the point and the limits."""
        hasher = hashlib.sha256(f"{self.schema}|{self.point.digest}|{self.confidence!r}".encode())
        for ends in (self.edge_targets, self.edge_sources):
            hasher.update(np.ascontiguousarray(ends, dtype="<i8").tobytes())
        for numbers in (self.gains, self.bases):
            hasher.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return hasher.hexdigest()

    def beside_point(self) -> dict[str, Any]:
        """The limits as plain data, without the point."""
        return {"schema": self.schema, **self._law_content()}

    def _law_content(self) -> dict[str, Any]:
        return {
            "pairs": np.column_stack([self.edge_targets, self.edge_sources]).tolist(),
            "gains": self.gains.tolist(),
            "bases": self.bases.tolist(),
            "confidence": self.confidence,
        }

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data with a versioned schema; `from_dict` gives an equal family back."""
        cost = {} if self.fit_cost is None else {"fit_cost": self.fit_cost}
        return {**self.beside_point(), **cost, "point": self.point.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> InfluenceFamily:
        """Rebuild a family from `to_dict`."""
        with reading_json():
            return cls.of_point(CoupledChain.from_dict(content["point"]), content)

    @classmethod
    def of_point(cls, point: CoupledChain, content: Mapping[str, Any]) -> InfluenceFamily:
        """Rebuild a family from its point and `beside_point`."""
        with reading_json():
            confidence = content.get("confidence")
            return cls(point, content["pairs"], content["gains"], content["bases"], confidence=confidence)

    def __repr__(self) -> str:
        return (
            f"InfluenceFamily({self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, "
            f"{self.edges} edge{'s' * (self.edges > 1)}, digest {self.digest[:8]})"
        )


def is_influence_family(model: Model) -> TypeGuard[InfluenceFamily]:
    """Whether a model stands for every process within limits, which only `influence` and the group level bound."""
    return isinstance(model, InfluenceFamily)


def influence_limits(chain: CoupledChain, pairs: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Gains (edges, m, m, m) and bases (edges, m, m) of one backward chain on the edges of a graph.

    >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    >>> gains, bases = influence_limits(chain, np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    >>> gains[0, 0, 1].round(2).tolist(), bases[0, 0].round(2).tolist()
    ([-0.32, 0.32], [0.62, 0.3])
    """
    s, m = chain.sequences, chain.states
    table, which = chain.transition_table
    own = np.zeros((len(pairs), m, m))
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    number = pairs[order, 0] * s + pairs[order, 1]
    wanted = chain.edge_targets * s + chain.edge_sources
    at = np.minimum(np.searchsorted(number, wanted), max(len(number) - 1, 0))
    if len(number) == 0 or (number[at] != wanted).any():
        raise InputError("family: the point follows sequences along edges that are not among the pairs; add them")
    own[order[at]] = chain.edge_weights[:, None, None] * table[which]
    least = own.min(axis=1)
    total = np.zeros((s, m))
    np.add.at(total, pairs[:, 0], least)
    return own[:, None] - own[:, :, None], own + (total[pairs[:, 0]] - least)[:, None]


def _read_pairs(pairs: Any, sequences: int) -> Indices:
    ends = np.asarray(pairs)
    if ends.ndim != 2 or ends.shape[1] != 2 or not np.issubdtype(ends.dtype, np.integer):
        raise InputError("pairs: rows (target, source) of sequence numbers expected")
    if (ends < 0).any() or (ends >= sequences).any() or len(np.unique(ends, axis=0)) != len(ends):
        raise InputError(f"pairs: different pairs of sequence numbers between 0 and {sequences - 1} expected")
    return ends.astype(np.intp)


def _read_limits(name: str, limits: Any, shape: tuple[int, ...], least: float) -> Floats:
    numbers = np.array(check.floats(name, limits))
    if numbers.shape != shape:
        raise InputError(f"{name}: shape {numbers.shape} given; {shape} expected")
    if not ((numbers >= least) & (numbers <= 1.0)).all():
        raise InputError(f"{name}: numbers between {least:g} and 1 expected")
    return numbers
