"""CoupledChain: s sequences, each of which picks whom to follow at every step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from csdp.chain import checks
from csdp.chain.model import BACKWARD_SCHEMA, Direction, Model, States
from csdp.chain.steps import LocalLaw, Step, choose_step
from csdp.errors import InputError, NoStationaryLawError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: Sequences times states up to which stationary marginals are solved for; iterated beyond.
SOLVED_SIZE = 2000


class CoupledChain(Model):
    """Coupled Markov chains: given the present snapshot x, next states are independent across sequences, and

    `Pr(next_j = b | x) = sum_k coupling[j][k] * transitions[j][k][x_k][b]`.

    With `direction="backward"` the same numbers describe the past given the present: previous states are independent
    given the present snapshot, and `Pr(previous_j = b | x)` is that sum. One binary sequence, and symmetric pairs with
    equal probabilities both ways, are the same process in both directions; otherwise these are two models.

    Frozen, validated, equal by value, hashable by content. Transition rows go from -> to and sum to 1, as do the
    rows of the coupling (the paper's lambda_jk; the paper writes the transposed matrices).

    Args:
        coupling: (s, s) array, a scipy.sparse matrix, or a dict {(j, k): weight}.
        transitions: one (m, m) matrix for all pairs; (s, s, m, m); for a sparse coupling also one matrix per edge
            (edges, m, m) in row-major order of the edges; for a dict also {(j, k): matrix}.
        values: numbers that the states carry, (m,) or (s, m); default 0..m-1. Put on a power-of-two lattice.
        names: one per sequence; default x1, x2, ...
        initial: law of the oldest snapshot that a release reads: joint (m**s,), or independent (s, m).
            Default: the stationary law. Forward chains only.
        direction: "forward", or "backward" where coupling and transitions lead from the present into the past.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> chain
    CoupledChain(2 sequences, 2 states, 4 couplings, digest a8e6b353)
    >>> chain.kernel()[0].round(4).tolist()
    [0.49, 0.21, 0.21, 0.09]
    >>> CoupledChain.from_json(chain.to_json()) == chain
    True
    """

    schema: ClassVar[str] = "csdp/coupled-chain/1"
    _indptr: Ints
    _sources: Ints
    _weights: Floats
    _table: Floats
    _which: Ints

    def __init__(
        self,
        coupling: Any,
        transitions: Any,
        values: Any = None,
        names: Sequence[str] | None = None,
        initial: Any = None,
        *,
        direction: Direction = "forward",
    ) -> None:
        if direction not in get_args(Direction):
            raise InputError(f"direction: {direction!r} given; 'forward' or 'backward'")
        if direction == "backward" and initial is not None:
            raise InputError(
                "initial: a backward chain gives the past from the present, so no law of the oldest snapshot can be "
                "given; leave initial= out, or use direction='forward'"
            )
        indptr, sources, weights = _edges(coupling)
        s = indptr.size - 1
        table, which = _transition_table(transitions, indptr, sources)
        m = table.shape[-1]
        self._set(_indptr=indptr, _sources=sources, _weights=weights, _table=table, _which=which, direction=direction)
        self._finish(sequences=s, states=m, values=values, names=names, initial=initial)

    # ---- structure -------------------------------------------------------------------------------------------

    @property
    def edges(self) -> int:
        """Number of couplings that are not zero."""
        return int(self._sources.size)

    @property
    def edge_sources(self) -> Ints:
        """The sequence each edge comes from, edges in row-major order (target, source)."""
        return self._sources

    @property
    def edge_targets(self) -> Ints:
        """The sequence each edge goes to."""
        return np.repeat(np.arange(self.sequences), np.diff(self._indptr))

    @property
    def edge_weights(self) -> Floats:
        """The coupling of each edge."""
        return self._weights

    @property
    def transition_table(self) -> tuple[Floats, Ints]:
        """The distinct transition matrices, and which of them each edge uses."""
        return self._table, self._which

    def coupling_matrix(self) -> Any:
        """The coupling as a scipy.sparse CSR array."""
        return self.sparse_coupling.copy()

    @cached_property
    def sparse_coupling(self) -> Any:
        from scipy.sparse import csr_array

        shape = (self.sequences, self.sequences)
        return csr_array((self._weights, self._sources, self._indptr), shape=shape)

    def q_matrix(self) -> Any:
        """Q, the block matrix of coupling[j][k] * transitions[j][k], as a scipy.sparse array acting on marginals.

        `marginals(t + 1).ravel() = Q @ marginals(t).ravel()`, both (s, m) raveled by sequence.
        """
        return self._q.copy()

    @cached_property
    def _q(self) -> Any:
        from scipy.sparse import coo_array

        m = self.states
        blocks = self._weights[:, None, None] * self._table[self._which].transpose(0, 2, 1)
        row = self.edge_targets[:, None, None] * m + np.arange(m)[None, :, None]
        col = self._sources[:, None, None] * m + np.arange(m)[None, None, :]
        row, col = np.broadcast_arrays(row, col)
        size = self.sequences * m
        return coo_array((blocks.ravel(), (row.ravel(), col.ravel())), shape=(size, size)).tocsr()

    def components(self) -> list[tuple[int, ...]]:
        """Connected components of the coupling graph: sets of sequences that are independent of each other.

        >>> CoupledChain([[1, 0], [0, 1]], [[0.7, 0.3], [0.3, 0.7]]).components()
        [(0,), (1,)]
        """
        from scipy.sparse.csgraph import connected_components

        if self.initial is not None and not self.initial_factors:
            return [tuple(range(self.sequences))]
        count, label = connected_components(self.sparse_coupling, directed=True, connection="weak")
        order = np.argsort(label, kind="stable")
        cuts = np.searchsorted(label[order], np.arange(1, count))
        parts = [tuple(part.tolist()) for part in np.split(order, cuts)]
        return sorted(parts)

    def distinct_components(self, labels: npt.NDArray[np.integer[Any]]) -> list[tuple[tuple[int, ...], int]]:
        """Components up to likeness: one of each kind with the number of its copies.

        Two components are alike where couplings, transitions and the labels of their sequences agree in order.
        """
        parts = self.components()
        if self.initial is not None:
            return [(part, 1) for part in parts]
        if len(parts) == self.sequences:
            kinds = np.column_stack([self._which, labels])
            _, first, copies = np.unique(kinds, axis=0, return_index=True, return_counts=True)
            return [((int(i),), int(n)) for i, n in zip(first, copies, strict=True)]
        found: dict[Any, tuple[tuple[int, ...], int]] = {}
        for part in parts:
            key = self._signature(part, labels) if len(part) <= 64 else part
            first_part, count = found.get(key, (part, 0))
            found[key] = (first_part, count + 1)
        return list(found.values())

    def _signature(self, part: tuple[int, ...], labels: npt.NDArray[np.integer[Any]]) -> Any:
        place = {member: i for i, member in enumerate(part)}
        edges = [range(self._indptr[target], self._indptr[target + 1]) for target in part]
        return (
            tuple(int(labels[i]) for i in part),
            tuple((place[int(self._sources[e])], float(self._weights[e])) for row in edges for e in row),
            tuple(int(self._which[e]) for row in edges for e in row),
            tuple(len(row) for row in edges),
        )

    def subchain(self, members: Iterable[int]) -> CoupledChain:
        """The chain of some sequences, which must not follow any outside of them."""
        inside = np.array(sorted(set(members)), dtype=np.intp)
        if inside.size == 0 or inside[0] < 0 or inside[-1] >= self.sequences:
            raise InputError(f"subchain: give sequence numbers between 0 and {self.sequences - 1}")
        place = np.full(self.sequences, -1, dtype=np.intp)
        place[inside] = np.arange(inside.size)
        kept = np.flatnonzero(place[self.edge_targets] >= 0)
        if (place[self._sources[kept]] < 0).any():
            outside = self.names[int(self._sources[kept][place[self._sources[kept]] < 0][0])]
            raise InputError(f"subchain: the chosen sequences follow {outside!r}; take whole components")
        from scipy.sparse import csr_array

        ends = place[self.edge_targets[kept]], place[self._sources[kept]]
        coupling = csr_array((self._weights[kept], ends), shape=(inside.size, inside.size))
        names = None if self._names is None else [self._names[i] for i in inside]
        chosen = inside.tolist()
        part = CoupledChain(
            coupling,
            self._table[self._which[kept]],
            names=names,
            initial=self._initial_of(chosen),
            direction=self.direction,
        )
        return part.with_values_of(self, chosen)

    def _initial_of(self, inside: list[int]) -> Floats | None:
        """The initial law of some sequences."""
        if self.initial is None or self.initial.ndim == 2:
            return None if self.initial is None else self.initial[inside]
        away = tuple(set(range(self.sequences)) - set(inside))
        return np.asarray(self.initial.reshape((self.states,) * self.sequences).sum(axis=away).ravel())

    # ---- law ---------------------------------------------------------------------------------------------------

    @cached_property
    def local(self) -> LocalLaw:
        """Sources and coupling-weighted matrices of every target."""
        cuts = self._indptr[1:-1]
        matrices = self._weights[:, None, None] * self._table[self._which]
        return LocalLaw(self.states, tuple(np.split(self._sources, cuts)), tuple(np.split(matrices, cuts)))

    @cached_property
    def own_step(self) -> Step:
        """One step of the joint law in the chain's own direction."""
        return choose_step(self.local)

    @cached_property
    def is_positive(self) -> bool:
        """Whether every transition between snapshots is known to have positive probability."""
        least = self._table.min(axis=1)[self._which] * self._weights[:, None]
        sums = np.zeros((self.sequences, self.states))
        np.add.at(sums, self.edge_targets, least)
        return bool((sums > 0).all())

    def _own_kernel(self) -> Floats:
        return self.local.kernel()

    def marginals(self) -> Floats:
        """Stationary law of every sequence (s, m); any number of sequences."""
        return self._solved_marginals() if self.sequences * self.states <= SOLVED_SIZE else self._iterated_marginals()

    def _solved_marginals(self) -> Floats:
        """From the equations themselves, so that slow mixing costs nothing: state 0 of each sequence is the rest."""
        s, m = self.sequences, self.states
        blocks = self._q.toarray().reshape(s, m, s, m)
        reduced = np.eye(s * (m - 1)) - (blocks[:, 1:, :, 1:] - blocks[:, 1:, :, :1]).reshape(s * (m - 1), -1)
        if np.linalg.cond(reduced) > 1e13:
            raise NoStationaryLawError("the marginals have no single stationary law; give initial=")
        others = np.linalg.solve(reduced, blocks[:, 1:, :, 0].sum(axis=2).ravel()).reshape(s, m - 1)
        law = np.maximum(np.column_stack([1.0 - others.sum(axis=1), others]), 0.0)
        # One step of the chain repairs the small entries, which a solver knows only to the size of the large ones.
        law = self.evolve(law / law.sum(axis=1, keepdims=True), 1)
        return np.asarray(law / law.sum(axis=1, keepdims=True))

    def _iterated_marginals(self) -> Floats:
        marginals, settled = np.full((self.sequences, self.states), 1.0 / self.states), False
        other = np.zeros_like(marginals)
        other[:, 0] = 1.0
        for _ in range(100_000):
            # Averaging with the present law removes periods without moving the fixed point.
            step = 0.5 * (marginals + self.evolve(marginals, 1))
            other = 0.5 * (other + self.evolve(other, 1))
            settled = bool(np.abs(step - marginals).max() < 1e-16 * 4)
            marginals = step
            if settled and np.abs(other - marginals).max() < 1e-12:
                return marginals
        raise NoStationaryLawError(
            "the marginals have no single stationary law (or mix too slowly to find it); give initial="
        )

    def evolve(self, marginals: Any, steps: int) -> Floats:
        """Marginals (s, m) after some steps: `next_j = sum_k coupling[j][k] marginals_k transitions[j][k]`.

        >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
        >>> chain.evolve([[1.0, 0.0]], 2).round(2).tolist()
        [[0.58, 0.42]]
        """
        law = checks.as_floats("marginals", marginals)
        if law.shape != (self.sequences, self.states):
            raise InputError(f"marginals: shape {law.shape} given; ({self.sequences}, {self.states}) expected")
        if self._table.shape[0] == 1:
            for _ in range(steps):
                law = self.sparse_coupling @ (law @ self._table[0])
            return law
        q = self._q
        flat = law.ravel()
        for _ in range(steps):
            flat = q @ flat
        return np.asarray(flat.reshape(law.shape))

    def _advance(self, snapshot: States, uniform: Floats) -> States:
        """Next states by inverting `Pr(next_j <= b | snapshot)`, one uniform number a sequence."""
        out = np.zeros(self.sequences, dtype=snapshot.dtype)
        cumulative = np.zeros(self.sequences)
        for b in range(self.states - 1):
            if self._table.shape[0] == 1:
                cumulative = cumulative + self.sparse_coupling @ self._table[0][snapshot, b]
            else:
                moved = self._weights * self._table[self._which, snapshot[self._sources], b]
                cumulative = cumulative + np.add.reduceat(moved, self._indptr[:-1])
            out += uniform >= cumulative
        return out

    # ---- identity ----------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: equal chains have equal digests."""
        seal = hashlib.sha256((self.schema + "backward" * (self.direction == "backward")).encode())
        for part in (self._indptr, self._sources, self._which):
            seal.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
            seal.update(b"|")
        for numbers in (self._weights, self._table, self.values):
            seal.update(repr(numbers.shape).encode())
            seal.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return self._sealed(seal)

    def _law_content(self) -> dict[str, Any]:
        edges = zip(self.edge_targets, self._sources, self._weights, self._which, strict=True)
        return {
            "edges": [[int(j), int(k), float(w), int(t)] for j, k, w, t in edges],
            "transitions": self._table.tolist(),
        }

    @classmethod
    def schemas(cls) -> tuple[str, ...]:
        """The schemas that `from_dict` reads."""
        return cls.schema, BACKWARD_SCHEMA

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CoupledChain:
        """Rebuild a chain from `to_dict`, or from plain `coupling` and `transitions` written by hand."""
        rest: dict[str, Any] = {key: content.get(key) for key in ("values", "names", "initial")}
        rest["direction"] = content.get("direction", "forward")
        if "schema" in content and (content["schema"] == BACKWARD_SCHEMA) != (rest["direction"] == "backward"):
            raise InputError(f"chain: schema {content['schema']!r} does not go with direction {rest['direction']!r}")
        try:
            if "coupling" in content:
                return cls(content["coupling"], content["transitions"], **rest)._carry(content)
            edges = content["edges"]
            coupling = {(int(j), int(k)): float(w) for j, k, w, _ in edges}
            transitions = {(int(j), int(k)): content["transitions"][t] for j, k, _, t in edges}
            return cls(coupling, transitions, **rest)._carry(content)
        except InputError:
            raise
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise InputError(f"chain: the JSON lacks or garbles {error}; write it with CoupledChain.to_json") from None

    def __repr__(self) -> str:
        backward = "backward, " * (self.direction == "backward")
        return (
            f"CoupledChain({backward}{self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, "
            f"{self.edges} coupling{'s' * (self.edges > 1)}, digest {self.digest[:8]})"
        )


def is_forward(model: Model) -> TypeGuard[CoupledChain]:
    """Whether next states are independent given the present, as `lineage` and `slice` need."""
    return isinstance(model, CoupledChain) and model.direction == "forward"


def is_backward(model: Model) -> TypeGuard[CoupledChain]:
    """Whether previous states are independent given the present, as `influence` needs."""
    return isinstance(model, CoupledChain) and model.direction == "backward"


def _edges(coupling: Any) -> tuple[Ints, Ints, Floats]:
    """Row-major edges (indptr, sources, weights) of any accepted form of coupling."""
    from scipy.sparse import csr_array, issparse

    if isinstance(coupling, Mapping):
        if not coupling:
            raise InputError("coupling: no edges given; every sequence needs whom to follow, itself at least")
        pairs = np.array(list(coupling.keys()))
        weights = checks.as_floats("coupling", list(coupling.values()))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer) or (pairs < 0).any():
            raise InputError("coupling: keys must be pairs (target, source) of sequence numbers from 0")
        s = int(pairs.max()) + 1
        matrix = csr_array((weights, (pairs[:, 0], pairs[:, 1])), shape=(s, s))
    elif issparse(coupling):
        matrix = csr_array(coupling, dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"coupling: shape {matrix.shape} given; a square matrix (s, s) expected")
        checks.as_floats("coupling", matrix.data)
    else:
        dense = checks.as_floats("coupling", coupling)
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1] or not dense.size:
            raise InputError(f"coupling: shape {dense.shape} given; a square matrix (s, s) expected")
        checks.stochastic("coupling", dense)
        matrix = csr_array(dense)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    if (matrix.data < 0).any():
        raise InputError(f"coupling: negative weight {matrix.data.min():.6g}; weights lie in [0, 1]")
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    off = np.abs(sums - 1.0)
    if off.max() > checks.ROW_TOLERANCE:
        j = int(off.argmax())
        raise InputError(f"coupling: row {j} sums to {sums[j]:.6g}; the weights of one sequence must sum to 1")
    counts = np.diff(matrix.indptr)
    scale = np.where(off > 1e-15 * counts.max(), sums, 1.0)
    weights = matrix.data / np.repeat(scale, counts)
    indptr, sources = matrix.indptr.astype(np.intp), matrix.indices.astype(np.intp)
    return checks.frozen(indptr), checks.frozen(sources), checks.frozen(weights)


def _transition_table(transitions: Any, indptr: Ints, sources: Ints) -> tuple[Floats, Ints]:
    """The distinct matrices and which of them each edge uses; never s x s x m x m for a sparse coupling."""
    s, edges = indptr.size - 1, sources.size
    targets = np.repeat(np.arange(s), np.diff(indptr))
    if isinstance(transitions, Mapping):
        missing = [(j, k) for j, k in zip(targets.tolist(), sources.tolist(), strict=True) if (j, k) not in transitions]
        if missing:
            raise InputError(f"transitions: none given for the coupled pair {missing[0]}")
        transitions = [transitions[j, k] for j, k in zip(targets.tolist(), sources.tolist(), strict=True)]
    given = checks.as_floats("transitions", transitions)
    m = given.shape[-1] if given.ndim else 0
    if given.ndim < 2 or given.shape[-2] != m or m < 2 or given.ndim > 4:
        raise InputError(
            f"transitions: shape {given.shape} given; (m, m) with m >= 2, (s, s, m, m) with s = {s}, "
            f"or (edges, m, m) with {edges} edges expected"
        )
    if given.ndim == 4 and given.shape[:2] != (s, s):
        raise InputError(f"transitions: shape {given.shape} given; ({s}, {s}, m, m) expected for {s} sequences")
    if given.ndim == 3 and given.shape[0] != edges:
        raise InputError(f"transitions: {given.shape[0]} matrices given for {edges} coupled pairs")
    given = checks.stochastic("transitions", given)
    if given.ndim == 2:
        return checks.frozen(given[None]), checks.frozen(np.zeros(edges, dtype=np.intp))
    per_edge = given[targets, sources] if given.ndim == 4 else given
    table, which = np.unique(per_edge.reshape(edges, -1), axis=0, return_inverse=True)
    return checks.frozen(table.reshape(-1, m, m)), checks.frozen(which.astype(np.intp).ravel())
