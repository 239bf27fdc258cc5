"""InfluenceGraph: which past values depend on which newer ones, and how strongly at most.

Root the sequences at the present and generate the past tick by tick, the newest first. Every value then has parents
among the values generated before it: newer ticks (lag 1, 2, ...) and, inside its own tick, sequences with a smaller
number (lag 0). A `Mixture` gives the law of a value as a choice of one parent; `Limits` bound how much a parent can
change it, for every combination of the other parents. A value `distance` ticks before the present has only that many
newer ticks, so its law is another one for each distance below the memory: the graph has a window for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain.coupled import CoupledChain, is_backward
from csdp.chain.evidence import Evidence, FitRecord
from csdp.chain.model import Direction, Model, check_rows, reading_json
from csdp.chain.stationary import connected_parts
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, Indices, freeze

#: States of a sequence that are handled.
GRAPH_STATES = 32
#: States up to which limits of single states are combined over all sets of them.
LIMIT_STATES = 8
#: Longest memory.
LONGEST_MEMORY = 8
#: Rounding by which the weights of a child may miss 1, and a point its limits.
_ROUNDING = 1e-9


class _Edges:
    """Arrays that stay frozen in copies."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, np.ndarray):
                    each.setflags(write=False)
        self.__dict__.update(state)


@dataclass(frozen=True, eq=False)
class Mixture(_Edges):
    """Laws that follow one parent each: Pr(child = c) = sum over its edges of weight * matrix[state of parent][c].

    `edge_targets` are the children, `edge_sources` the parents; `transition_table` are the distinct matrices, and which
    of them each edge uses.
    """

    sequences: int
    states: int
    edge_targets: Indices
    edge_sources: Indices
    edge_lags: Indices
    edge_weights: Floats
    transition_table: tuple[Floats, Indices]

    def part(self, chosen: npt.NDArray[Any], place: Indices, sequences: int) -> Mixture:
        """Some edges, with sequences renumbered by `place`."""
        table, which = self.transition_table
        return Mixture(
            sequences,
            self.states,
            place[self.edge_targets[chosen]],
            place[self.edge_sources[chosen]],
            self.edge_lags[chosen],
            self.edge_weights[chosen],
            (table, which[chosen]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        table, which = self.transition_table
        edges = zip(self.edge_targets, self.edge_sources, self.edge_lags, self.edge_weights, which, strict=True)
        return {
            "matrices": table.tolist(),
            "edges": [[int(k), int(i), int(lag), float(weight), int(t)] for k, i, lag, weight, t in edges],
        }


@dataclass(frozen=True, eq=False)
class Limits(_Edges):
    """Every law within limits, which may change from tick to tick.

    For all values of the other parents, `Pr(child = c | parent = b) - Pr(child = c | parent = a) <= gains[e, a, b, c]`
    and `Pr(child = c | parent = a) >= bases[e, a, c]`; no set of states gains more than `most[e]`.
    """

    sequences: int
    states: int
    edge_targets: Indices
    edge_sources: Indices
    edge_lags: Indices
    gains: Floats
    bases: Floats
    most: Floats

    def part(self, chosen: npt.NDArray[Any], place: Indices, sequences: int) -> Limits:
        """Some edges, with sequences renumbered by `place`."""
        return Limits(
            sequences,
            self.states,
            place[self.edge_targets[chosen]],
            place[self.edge_sources[chosen]],
            self.edge_lags[chosen],
            self.gains[chosen],
            self.bases[chosen],
            self.most[chosen],
        )

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        edges = zip(self.edge_targets, self.edge_sources, self.edge_lags, strict=True)
        return {
            "edges": [[int(k), int(i), int(lag)] for k, i, lag in edges],
            "gains": self.gains.tolist(),
            "bases": self.bases.tolist(),
            "most": [float(most) if np.isfinite(most) else None for most in self.most],
        }


@dataclass(frozen=True, eq=False)
class Odds(_Edges):
    """Every law whose odds a parent moves within limits, which may change from tick to tick, whatever its level is.

    For all values of the other parents and all states,
    `ln [Pr(child = c | parent = b) Pr(child = c' | parent = a) / (Pr(c | a) Pr(c' | b))] <= odds[e]`.
    """

    sequences: int
    states: int
    edge_targets: Indices
    edge_sources: Indices
    edge_lags: Indices
    odds: Floats

    def part(self, chosen: npt.NDArray[Any], place: Indices, sequences: int) -> Odds:
        """Some edges, with sequences renumbered by `place`."""
        return Odds(
            sequences,
            self.states,
            place[self.edge_targets[chosen]],
            place[self.edge_sources[chosen]],
            self.edge_lags[chosen],
            self.odds[chosen],
        )

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        edges = zip(self.edge_targets, self.edge_sources, self.edge_lags, self.odds, strict=True)
        return {"odds": [[int(k), int(i), int(lag), float(limit)] for k, i, lag, limit in edges]}


Window = Mixture | Limits | Odds


class InfluenceGraph(Model):
    """Which past values depend on which newer ones, and how strongly at most; all that `influence` needs to know.

    Declared by mixtures here, by limits alone with `declared`, or taken from a chain with `from_chain`; `csdp.fit`
    gives one as the family of its chain. A missing edge says that, given everything newer, the value does not depend
    on that parent.

    Formal guarantee: `influence`, the only bound beside the group level, holds for every process within the graph, for
    an informed adversary; not for one who is unsure which of these processes is true.

    Args:
        sequences: their number.
        values: numbers that the states carry, (m,) or (s, m).
        windows: for every distance from the present, up to the memory, a list of edges (child, parent, lag, weight,
            matrix); the last one holds for all older values too. The weights of a child sum to 1. A parent at lag 0
            has a smaller number than its child.
        names: one per sequence; default x1, x2, ...

    >>> edges = [(0, 0, 1, 1.0, [[0.7, 0.3], [0.3, 0.7]])]
    >>> InfluenceGraph(sequences=1, values=(0, 1), windows=[edges])
    InfluenceGraph(1 sequence, 2 states, memory 1, 1 edge, digest 4ac21f41)
    """

    schema: ClassVar[str] = "csdp/influence-graph/1"
    family_schema: ClassVar[str] = "csdp/influence-family/1"  #: of 0.2: limits around a point, memory one
    has_law: ClassVar[bool] = False
    direction: Direction = "backward"
    #: by environment, the windows from the present on; at every tick one of the environments holds
    worlds: tuple[tuple[Window, ...], ...]
    #: by environment, the law of a value given everything older, for what later values reveal; None if not known
    forward: tuple[Window, ...] | None
    #: (s, m, m): by how much a slow level can raise the log odds of state b against a, at [a, b]; None for none
    swing: Floats | None
    #: with which limits from readings hold together; None if they are declared
    confidence: float | None
    claims: tuple[str, ...]  #: what is assumed beside the edges, in words
    _point: Model | None

    def __init__(
        self, sequences: int, values: Any, windows: Sequence[Sequence[Any]], *, names: Sequence[str] | None = None
    ) -> None:
        sequences = check.whole("sequences", sequences, least=1)
        states = int(np.shape(values)[-1]) if np.ndim(values) else 0
        _check_shape(states)
        if not 1 <= len(windows) <= LONGEST_MEMORY:
            raise InputError(f"windows: {len(windows)} given; one for each distance from the present, 1 to 8")
        self._set_common(sequences=sequences, states=states, values=values, names=names)
        read = tuple(_read_mixture(edges, n, sequences, states) for n, edges in enumerate(windows, start=1))
        self._set_graph((read,), claims=("no slow levels",))

    def _set_graph(
        self,
        worlds: tuple[tuple[Window, ...], ...],
        *,
        forward: tuple[Window, ...] | None = None,
        swing: Floats | None = None,
        confidence: float | None = None,
        claims: tuple[str, ...] = (),
        point: Model | None = None,
    ) -> None:
        memories = {len(windows) for windows in worlds}
        if len(memories) != 1 or not 1 <= max(memories) <= LONGEST_MEMORY:
            raise InputError(
                f"windows: {sorted(memories)} given for the environments; as many for each, 1 to {LONGEST_MEMORY}"
            )
        for windows in worlds:
            for distance, window in enumerate(windows, start=1):
                _check_window(window, distance)
        for window in forward or ():
            _check_window(window, LONGEST_MEMORY)
        if swing is not None and not (np.asarray(swing) >= 0).all():
            raise InputError("swing: numbers of 0 or more expected; slow levels never lower what is revealed")
        self._set(
            worlds=worlds,
            forward=forward,
            swing=None if swing is None else freeze(np.asarray(swing, dtype=np.float64)),
            confidence=confidence,
            claims=claims,
            _point=point,
        )

    # ---- ways to make one ------------------------------------------------------------------------------------------

    @classmethod
    def _make(cls, like: Model | None = None, **graph: Any) -> Self:
        made = object.__new__(cls)
        if like is not None:
            made._set(
                sequences=like.sequences,
                states=like.states,
                values=like.values,
                unit=like.unit,
                given=like.given,
                not_protected=like.not_protected,
                _names=like._names,
                _fit_cost=like.fit_cost,
                evidence=like.derived_evidence,
            )
        made._set_graph(**graph)
        return made

    @classmethod
    def from_chain(cls, chain: Model) -> Self:
        """The graph of a chain read backwards, or of sequences that follow themselves alone, whatever their direction.

        Only the latter have a law forwards; every moment of other chains comes from the joint law or the group level.

        >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
        >>> InfluenceGraph.from_chain(chain)
        InfluenceGraph(2 sequences, 2 states, memory 1, 4 edges, digest 975d86cf)
        """
        chains = chain.step_chains
        if chain.family is not None:
            raise InputError(
                "graph: the chain carries the family of its fit, which certificates rest on; plan with the chain "
                "itself, or give chain.without_family() for its point alone"
            )
        # Given a path of environments, the law backwards of a forward chain depends on all that came before.
        reverses = len(chains) == 1 and _is_own(chains)
        if not chains or chain.phases > 1 or not (chain.direction == "backward" or reverses):
            raise InputError(
                f"graph: {chain!r} given; a chain with direction='backward', or one whose sequences follow themselves "
                "alone, is allowed"
            )
        _check_shape(chain.states)
        forward = None
        if reverses:
            both = _mixture_of(chains[0]), _reversed(chains[0])
            forward = (both[chains[0].direction == "backward"],)
            worlds: tuple[tuple[Window, ...], ...] = ((both[chains[0].direction == "forward"],),)
        else:
            worlds = tuple((_mixture_of(each),) for each in chains)
        point = chains[0] if len(chains) == 1 else None
        return cls._make(chain, worlds=worlds, forward=forward, point=point, claims=("no slow levels",))

    @classmethod
    def declared(
        cls,
        names: Sequence[str],
        *,
        own: float,
        others: Mapping[tuple[str, str], float] | None = None,
        values: Any = (0, 1),
    ) -> Self:
        """All processes in which a state changes the probabilities of the states next to it by at most so much.

        Asserted for the previous tick given everything newer and for the next one given everything older, and without
        slow levels. It needs no data, and no test supports it.

        Args:
            names: of the sequences.
            own: how much a state changes the probability of any set of its own sequence's states one tick away.
            others: the same by (child, parent), for states of other sequences.
            values: numbers that the states carry.

        >>> InfluenceGraph.declared(["hall", "kitchen"], own=0.4, others={("hall", "kitchen"): 0.05})
        InfluenceGraph(2 sequences, 2 states, memory 1, 3 edges, digest 628fe571)
        """
        names = [str(name) for name in names]
        states = int(np.shape(values)[-1]) if np.ndim(values) else 0
        _check_shape(states)
        place = {name: n for n, name in enumerate(names)}
        strength = {(n, n): check.number("own", own, least=0, most=1) for n in range(len(names))}
        for (child, parent), limit in (others or {}).items():
            unknown = [name for name in (child, parent) if name not in place]
            if unknown or child == parent:
                raise InputError(
                    f"others: {(child, parent)!r} given; keys are two different names of {', '.join(names[:8])}, the "
                    "one that depends first"
                )
            where = f"others[{child!r}, {parent!r}]"
            strength[place[child], place[parent]] = check.number(where, limit, least=0, most=1)
        edges = sorted(edge for edge, limit in strength.items() if limit > 0)
        most = np.array([strength[edge] for edge in edges])
        apart = 1.0 - np.eye(states)[:, :, None]  # nothing changes without a change of the parent
        window = Limits(
            sequences=len(names),
            states=states,
            edge_targets=freeze(np.array([k for k, _ in edges], dtype=np.intp)),
            edge_sources=freeze(np.array([i for _, i in edges], dtype=np.intp)),
            edge_lags=freeze(np.ones(len(edges), dtype=np.intp)),
            gains=freeze(most[:, None, None, None] * apart * np.ones(states)),
            bases=freeze(np.zeros((len(edges), states, states))),
            most=freeze(most),
        )
        made = object.__new__(cls)
        made._set_common(sequences=len(names), states=states, values=values, names=names)
        made._set_graph(
            ((window,),),
            forward=(window,),
            claims=("these limits hold in both directions of time; they are declared, not tested", "no slow levels"),
        )
        return made

    @classmethod
    def within(
        cls, point: CoupledChain, pairs: Any, gains: Any, bases: Any, *, confidence: float | None = None
    ) -> Self:
        """All processes whose previous states are independent given the present, within limits around a chain.

        Args:
            point: a backward chain within the limits, for estimates and errors.
            pairs: (edges, 2) target and source of every edge; those of the point among them.
            gains: (edges, m, m, m), between -1 and 1: how much a change a -> b of the source makes c likelier.
            bases: (edges, m, m), between 0 and 1: how probable c is while the source is in a.
            confidence: with which limits from readings hold together; None if they are declared.
        """
        if not isinstance(point, Model) or not is_backward(point):
            raise InputError(
                f"graph: {type(point).__name__} given as its point; a CoupledChain with direction='backward' expected"
            )
        if point.states > LIMIT_STATES:
            raise TooLargeError(
                f"graph: {point.states} states a sequence given; at most {LIMIT_STATES}. Use a Family of chains",
                needed=point.states,
                limit=LIMIT_STATES,
            )
        if confidence is not None:
            confidence = check.number("confidence", confidence, above=0, below=1, hint="None for declared limits")
        ends, m = _read_pairs(pairs, point.sequences), point.states
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        window = Limits(
            sequences=point.sequences,
            states=m,
            edge_targets=freeze(ends[order, 0]),
            edge_sources=freeze(ends[order, 1]),
            edge_lags=freeze(np.ones(len(ends), dtype=np.intp)),
            gains=freeze(_read_limits("gains", gains, (len(ends), m, m, m), -1.0)[order]),
            bases=freeze(_read_limits("bases", bases, (len(ends), m, m), 0.0)[order]),
            most=freeze(np.full(len(ends), np.inf)),
        )
        made = cls._make(point, worlds=((window,),), confidence=confidence, point=point.without_family())
        made._check_point()
        return made

    @classmethod
    def of_odds(
        cls,
        point: Model,
        windows: Sequence[Odds],
        *,
        forward: Odds | None,
        swing: Any,
        confidence: float,
        claims: Sequence[str] = (),
    ) -> Self:
        """All processes within limits of odds, which hold whatever the environment and slow levels are; for a fit.

        Args:
            point: a chain for estimates and errors.
            windows: for every distance from the present up to the memory.
            forward: the law given everything older; None if it is not known.
            swing: (s, m, m), what slow levels add.
            confidence: with which the limits hold together.
            claims: what is assumed beside the edges, in words.
        """
        return cls._make(
            point,
            worlds=(tuple(windows),),
            forward=None if forward is None else (forward,),
            swing=check.floats("swing", swing, shape=(point.sequences, point.states, point.states)),
            confidence=confidence,
            claims=tuple(claims),
            point=point.without_family(),
        )

    @classmethod
    def around(cls, chain: CoupledChain, margin: float) -> Self:
        """All processes on the graph of a chain whose gains and bases are at most `margin` worse than its own.

        >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
        >>> InfluenceGraph.around(chain, 0.01)
        InfluenceGraph(2 sequences, 2 states, memory 1, 4 edges, digest 8656e3e3)
        """
        margin = check.number("margin", margin, least=0, most=1)
        pairs = np.column_stack([chain.edge_targets, chain.edge_sources])
        gains, bases = influence_limits(chain, pairs)
        return cls.within(chain, pairs, np.minimum(gains + margin, 1.0), np.maximum(bases - margin, 0.0))

    def _check_point(self) -> None:
        (window,) = self.worlds[0]
        assert isinstance(window, Limits)
        gains, bases = influence_limits(self.point, np.column_stack([window.edge_targets, window.edge_sources]))
        apart = window.gains < gains - _ROUNDING
        apart[:, np.arange(self.states), np.arange(self.states)] = False
        if apart.any() or (window.bases > bases + _ROUNDING).any():
            raise InputError(
                "graph: the point does not lie within the limits; raise gains or lower bases, or give another point"
            )

    # ---- structure -------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """Over how many ticks a value depends on newer ones: the number of windows."""
        return len(self.worlds[0])

    @property
    def edges(self) -> int:
        """Number of edges of the last window."""
        return max(int(windows[-1].edge_targets.size) for windows in self.worlds)

    @property
    def has_point(self) -> bool:
        """Whether it has a chain to simulate, to estimate and to predict errors with."""
        return self._point is not None

    @property
    def point(self) -> Any:
        """A chain within the graph, if it has one: the estimate of a fit. The graph itself otherwise."""
        return self if self._point is None else self._point

    @property
    def assumption(self) -> str:
        """What a certificate assumes about the model, in words."""
        origin = (
            "limits that are declared"
            if self.confidence is None
            else f"limits that hold together with confidence {self.confidence:g}"
        )
        return (
            f"the sequences follow some process within the limits of a family, which may change over time ({origin}); "
            + "".join(f"{claim}; " for claim in self.claims)
            + "this holds for each member, not for an adversary who is unsure which member is true"
        )

    def components(self) -> list[tuple[int, ...]]:
        """Sets of sequences that are independent of each other; those with slow levels may have them in common."""
        from scipy.sparse import coo_array

        windows = [*(window for windows in self.worlds for window in windows), *(self.forward or ())]
        slow = np.flatnonzero(self.swing.any(axis=(1, 2))) if self.swing is not None else np.empty(0, dtype=np.intp)
        ends = (
            np.concatenate([*(window.edge_targets for window in windows), slow[1:]]),
            np.concatenate([*(window.edge_sources for window in windows), slow[:-1]]),
        )
        shape = (self.sequences, self.sequences)
        return connected_parts(coo_array((np.ones(ends[0].size), ends), shape=shape))

    def subchain(self, members: Iterable[int]) -> Self:
        """The graph of some sequences that do not depend on the others; the point may tie them, so it has none."""
        inside = sorted(set(members))
        place = np.full(self.sequences, -1, dtype=np.intp)
        place[inside] = np.arange(len(inside))

        def part(window: Window) -> Window:
            kept = place[window.edge_targets] >= 0
            if (place[window.edge_sources[kept]] < 0).any():
                raise InputError("subchain: the chosen sequences depend on others; take whole components")
            return window.part(kept, place, len(inside))

        names = None if self._names is None else [self._names[i] for i in inside]
        values = self.values if self.values.ndim == 1 else self.values[inside]
        made = self._make(
            worlds=tuple(tuple(map(part, windows)) for windows in self.worlds),
            forward=None if self.forward is None else tuple(map(part, self.forward)),
            swing=None if self.swing is None else self.swing[inside],
            confidence=self.confidence,
            claims=self.claims,
        )
        made._set(
            sequences=len(inside),
            states=self.states,
            values=freeze(np.array(values)),
            unit=self.unit,
            given=self.given,
            not_protected=self.not_protected,
            _names=None if names is None else tuple(names),
            _fit_cost=self.fit_cost,
            evidence=self.part_evidence(inside),
        )
        return made

    # ---- what a fit leaves with it ---------------------------------------------------------------------------------

    def _again(self, **changes: Any) -> Self:
        graph = {name: getattr(self, name) for name in ("worlds", "forward", "swing", "confidence", "claims")}
        return self._make(changes.pop("like", self), **{**graph, "point": self._point, **changes})

    def carrying(
        self,
        *,
        fitted: FitRecord | None = None,
        family: Any = None,
        fit_cost: Mapping[str, Any] | None = None,
        evidence: Evidence | None = None,
    ) -> Self:
        """The same limits, whose point carries the record, cost and evidence of its fit."""
        if family is not None:
            raise InputError("family: given for an InfluenceGraph, which is the family itself; leave it out")
        if self._point is None:
            return super().carrying(fitted=fitted, fit_cost=fit_cost, evidence=evidence)
        return self.with_point(self._point.carrying(fitted=fitted, fit_cost=fit_cost, evidence=evidence))

    def with_values_of(self, model: Model, members: Sequence[int]) -> Self:
        """The same limits with the values of some sequences of another model, on its lattice."""
        if self._point is None:
            return super().with_values_of(model, members)
        return self.with_point(self._point.with_values_of(model, members))

    def with_point(self, point: Model) -> Self:
        """The same limits around a point of the same law."""
        return self._again(like=point, point=point.without_family())

    # ---- no single law -----------------------------------------------------------------------------------------------

    def _refuse_law(self) -> NoReturn:
        advice = "use its point (graph.point), or " if self.has_point else ""
        raise InputError(
            f"graph: it stands for many processes and has no single law; {advice}use bound='influence', and give a "
            "public past for estimates and errors"
        )

    @property
    def is_positive(self) -> bool:
        """Refused: a graph has no single law."""
        self._refuse_law()

    # ---- identity ----------------------------------------------------------------------------------------------------

    @property
    def _is_family(self) -> bool:
        """Whether it has the form of the influence families of 0.2, and keeps their digest."""
        window = self.worlds[0][0]
        alone = len(self.worlds) == 1 and self.memory == 1 and self.forward is None and self.swing is None
        return alone and self.has_point and isinstance(window, Limits) and bool(np.isinf(window.most).all())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        if not self._is_family:
            content = json.dumps(self._law_content(), sort_keys=True)
            point = "" if self._point is None else self._point.digest
            values = json.dumps([self.sequences, self.values.tolist()])
            return self._finish_digest(hashlib.sha256(f"{self.schema}|{values}|{content}|{point}".encode()))
        (window,) = self.worlds[0]
        assert isinstance(window, Limits)
        hasher = hashlib.sha256(f"{self.family_schema}|{self.point.digest}|{self.confidence!r}".encode())
        for ends in (window.edge_targets, window.edge_sources):
            hasher.update(np.ascontiguousarray(ends, dtype="<i8").tobytes())
        for numbers in (window.gains, window.bases):
            hasher.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return hasher.hexdigest()

    def beside_point(self) -> dict[str, Any]:
        """The limits as plain data, without the point."""
        return {"schema": self.family_schema if self._is_family else self.schema, **self._law_content()}

    def _law_content(self) -> dict[str, Any]:
        if self._is_family:
            (window,) = self.worlds[0]
            assert isinstance(window, Limits)
            return {
                "pairs": np.column_stack([window.edge_targets, window.edge_sources]).tolist(),
                "gains": window.gains.tolist(),
                "bases": window.bases.tolist(),
                "confidence": self.confidence,
            }
        return {
            "windows": [[window.to_dict() for window in windows] for windows in self.worlds],
            "forward": None if self.forward is None else [window.to_dict() for window in self.forward],
            "swing": None if self.swing is None else self.swing.tolist(),
            "confidence": self.confidence,
            "claims": list(self.claims),
        }

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data with a versioned schema; `from_dict` gives an equal graph back."""
        if self._point is None:
            return super().to_dict()
        cost = {} if self.fit_cost is None else {"fit_cost": self.fit_cost}
        return {**self.beside_point(), **cost, "point": self.point.to_dict()}

    @property
    def _written_schema(self) -> str:
        return self.schema

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild a graph from `to_dict`."""
        with reading_json():
            if content.get("point") is not None:
                from csdp.chain.files import model_from_dict  # which reads graphs too

                return cls.of_point(model_from_dict(content["point"]), content)
            sequences, states = int(content["sequences"]), int(content["states"])
            made = object.__new__(cls)
            made._set_common(sequences=sequences, states=states, values=content["values"], names=content.get("names"))
            made._set_graph(**_read_graph(content, sequences, states))
            return made._restore_fit(content)

    @classmethod
    def of_point(cls, point: Model, content: Mapping[str, Any]) -> Self:
        """Rebuild a graph from its point and `beside_point`."""
        with reading_json():
            if "pairs" in content and isinstance(point, CoupledChain):
                confidence = content.get("confidence")
                return cls.within(point, content["pairs"], content["gains"], content["bases"], confidence=confidence)
            graph = _read_graph(content, point.sequences, point.states)
            return cls._make(point, point=point.without_family(), **graph)

    def __repr__(self) -> str:
        return (
            f"InfluenceGraph({self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, memory "
            f"{self.memory}, {self.edges} edge{'s' * (self.edges != 1)}, digest {self.digest[:8]})"
        )


def is_graph(model: Model) -> TypeGuard[InfluenceGraph]:
    """Whether a model is a graph, which only `influence` and the group level bound."""
    return isinstance(model, InfluenceGraph)


# ---- from chains -----------------------------------------------------------------------------------------------------


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
        raise InputError("graph: the point follows sequences along edges that are not among the pairs; add them")
    own[order[at]] = chain.edge_weights[:, None, None] * table[which]
    least = own.min(axis=1)
    total = np.zeros((s, m))
    np.add.at(total, pairs[:, 0], least)
    return own[:, None] - own[:, :, None], own + (total[pairs[:, 0]] - least)[:, None]


def _is_own(chains: Sequence[CoupledChain]) -> bool:
    """Whether all sequences follow themselves alone."""
    return all(bool((chain.edge_targets == chain.edge_sources).all()) for chain in chains)


def _mixture_of(chain: CoupledChain) -> Mixture:
    lags = freeze(np.ones(chain.edges, dtype=np.intp))
    ends = chain.edge_targets, chain.edge_sources
    return Mixture(chain.sequences, chain.states, *ends, lags, chain.edge_weights, chain.transition_table)


def _reversed(chain: CoupledChain) -> Mixture:
    """The law in the other direction of time of sequences that follow themselves alone."""
    table, which = chain.transition_table
    kernels = table[which]
    flow = (chain.marginals()[:, :, None] * kernels).swapaxes(1, 2)
    total = flow.sum(axis=2, keepdims=True)
    # What a state that never occurs leads to may be anything; one completion for all.
    kernels = np.where(total > 0, flow / np.where(total > 0, total, 1.0), 1.0 / chain.states)
    mixture = _mixture_of(chain)
    return replace(mixture, transition_table=(freeze(kernels), freeze(np.arange(chain.edges))))


# ---- reading and checking --------------------------------------------------------------------------------------------


def _check_shape(states: int) -> None:
    if states < 2:
        raise InputError("values: one number for each state expected, two or more, such as (0, 1)")
    if states > GRAPH_STATES:
        raise TooLargeError(
            f"graph: {states} states a sequence given; at most {GRAPH_STATES}. Use fewer states",
            needed=states,
            limit=GRAPH_STATES,
        )


def _check_window(window: Window, longest: int) -> None:
    """Parents are generated before their children, none appears twice, and the laws of a mixture are laws."""
    lags = window.edge_lags
    if (lags < 0).any() or (lags > longest).any():
        raise InputError(
            f"windows: lag {int(lags.max())} given at distance {longest} from the present; 0 to {longest} are allowed"
        )
    inside = lags == 0
    if (window.edge_sources[inside] >= window.edge_targets[inside]).any():
        raise InputError("windows: at lag 0 a parent must have a smaller number than its child; change their order")
    ends = np.column_stack([window.edge_targets, lags, window.edge_sources])
    if len(np.unique(ends, axis=0)) != len(ends):
        raise InputError("windows: an edge appears twice; add up its weights, and mix its matrices")
    if isinstance(window, Odds) and not (window.odds >= 0).all():
        raise InputError("windows: limits of odds are numbers of 0 or more")
    if isinstance(window, Mixture):
        table, which = window.transition_table
        check_rows("matrices", table)
        if which.size and not (which.min() >= 0 and which.max() < len(table)):
            raise InputError(f"windows: an edge uses matrix {which.min()} or {which.max()} of {len(table)}")
        totals = np.bincount(window.edge_targets, window.edge_weights, window.sequences)
        short = np.flatnonzero(np.abs(totals - 1.0) > _ROUNDING)
        if short.size or (window.edge_weights < 0).any():
            at = int(short[0]) if short.size else int(window.edge_targets[window.edge_weights.argmin()])
            raise InputError(
                f"windows: the weights of sequence {at} at distance {longest} sum to {totals[at]:.6g}; they must be "
                "positive and sum to 1 (an edge with equal rows stands for a law that depends on nobody)"
            )


def _read_mixture(edges: Sequence[Any], distance: int, sequences: int, states: int) -> Mixture:
    """The window of a distance, from (child, parent, lag, weight, matrix)."""
    matrices: dict[bytes, int] = {}
    table: list[Floats] = []
    rows = []
    for edge in edges:
        try:
            child, parent, lag, weight, matrix = edge
        except (TypeError, ValueError):
            raise InputError(f"windows: {edge!r:.80} given; edges are (child, parent, lag, weight, matrix)") from None
        where = f"windows: edge ({child}, {parent}, {lag}) at distance {distance}"
        law = check_rows(where, check.floats(where, matrix, shape=(states, states)))
        number = matrices.setdefault(law.tobytes(), len(table))
        if number == len(table):
            table.append(law)
        ends = [check.whole(where, end, most=sequences - 1) for end in (child, parent)]
        share = check.number(where, weight, above=0, most=1)
        rows.append((ends[0], check.whole(where, lag, most=LONGEST_MEMORY), ends[1], share, number))
    rows.sort(key=lambda row: row[:3])
    columns = list(zip(*rows, strict=True)) or [()] * 5
    children, lags, parents = (freeze(np.array(column, dtype=np.intp)) for column in columns[:3])
    weights = np.array(columns[3], dtype=np.float64)
    which = freeze(np.array(columns[4], dtype=np.intp))
    return Mixture(sequences, states, children, parents, lags, freeze(weights), (freeze(np.array(table)), which))


def _read_graph(content: Mapping[str, Any], sequences: int, states: int) -> dict[str, Any]:
    """The arguments of `_set_graph` from plain data."""

    def window(data: Mapping[str, Any]) -> Window:
        edges = data["odds"] if "odds" in data else data["edges"]
        ends = np.array([edge[:3] for edge in edges], dtype=np.intp).reshape(-1, 3)
        if (ends[:, :2] < 0).any() or (ends[:, :2] >= sequences).any():
            raise InputError(f"windows: sequences between 0 and {sequences - 1} expected")
        targets, sources, lags = (freeze(column.copy()) for column in ends.T)
        if "odds" in data:
            limits = np.array([check.number("odds", edge[3], least=0) for edge in edges], dtype=np.float64)
            return Odds(sequences, states, targets, sources, lags, freeze(limits))
        if "matrices" in data:
            weights = freeze(np.array([edge[3] for edge in data["edges"]], dtype=np.float64))
            which = freeze(np.array([edge[4] for edge in data["edges"]], dtype=np.intp))
            table = freeze(check.floats("matrices", data["matrices"], shape=(None, states, states)))
            return Mixture(sequences, states, targets, sources, lags, weights, (table, which))
        n = len(ends)
        most = [np.inf if most is None else check.number("most", most, least=0) for most in data["most"]]
        gains = _read_limits("gains", data["gains"], (n, states, states, states), -1.0)
        bases = _read_limits("bases", data["bases"], (n, states, states), 0.0)
        return Limits(sequences, states, targets, sources, lags, freeze(gains), freeze(bases), freeze(np.array(most)))

    swing = content.get("swing")
    confidence = content.get("confidence")
    forward = content.get("forward")
    return {
        "worlds": tuple(tuple(map(window, windows)) for windows in content["windows"]),
        "forward": None if forward is None else tuple(map(window, forward)),
        "swing": None if swing is None else check.floats("swing", swing, shape=(sequences, states, states)),
        "confidence": None if confidence is None else check.number("confidence", confidence, above=0, below=1),
        "claims": tuple(check.text("claims", words, most=1000) for words in content.get("claims", ())),
    }


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
