"""CoupledChain: s sequences, each of which picks one to follow at every step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain.model import (
    BACKWARD_SCHEMA,
    ROW_TOLERANCE,
    Direction,
    Model,
    States,
    check_rows,
    reading_json,
    refuse_initial,
)
from csdp.chain.stationary import SEVERAL_LAWS, connected_parts, count_kinds
from csdp.chain.steps import LocalLaw, Step, choose_step
from csdp.errors import InputError, NoStationaryLawError
from csdp.numbers import Floats, Indices, freeze

#: Sequences times states up to which Q is made dense, for marginals and the rate of mixing; iterated beyond.
DENSE_SIZE = 2000
#: Sequences up to which `coupling` is an array; a sparse one beyond.
DENSE_SEQUENCES = 2000


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
        direction: "forward", or "backward" if coupling and transitions lead from the present into the past.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> chain
    CoupledChain(2 sequences, 2 states, 4 couplings, digest a8e6b353)
    >>> chain.kernel()[0].round(4).tolist()
    [0.49, 0.21, 0.21, 0.09]
    >>> CoupledChain.from_json(chain.to_json()) == chain
    True
    """

    schema: ClassVar[str] = "csdp/coupled-chain/1"
    _indptr: Indices
    _sources: Indices
    _weights: Floats
    _table: Floats
    _which: Indices

    def __init__(
        self,
        coupling: Any,
        transitions: Any,
        values: Any = None,
        names: Sequence[str] | None = None,
        *,
        direction: Direction = "forward",
    ) -> None:
        if direction not in get_args(Direction):
            raise InputError(f"direction: {direction!r} given; 'forward' or 'backward'")
        indptr, sources, weights = _read_coupling(coupling)
        s = indptr.size - 1
        table, which = _read_transitions(transitions, indptr, sources)
        m = table.shape[-1]
        self._set(_indptr=indptr, _sources=sources, _weights=weights, _table=table, _which=which, direction=direction)
        self._set_common(sequences=s, states=m, values=values, names=names)

    # ---- structure -------------------------------------------------------------------------------------------

    @property
    def coupling(self) -> Any:
        """The coupling that was given, as a new (s, s) array, or a scipy.sparse CSR array above 2,000 sequences.

        `CoupledChain(chain.coupling, chain.transitions)` has the same law again.

        >>> CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]).coupling.tolist()
        [[0.75, 0.25], [0.25, 0.75]]
        """
        return self.sparse_coupling.toarray() if self.sequences <= DENSE_SEQUENCES else self.sparse_coupling.copy()

    @property
    def transitions(self) -> Floats:
        """The transition matrices that were given: one (m, m) if all edges share it, else (edges, m, m).

        The edges are those couplings that are not zero, in row-major order (`edge_targets`, `edge_sources`).

        >>> CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]).transitions.tolist()
        [[0.7, 0.3], [0.3, 0.7]]
        """
        return self._table[0] if self._table.shape[0] == 1 else freeze(self._table[self._which])

    @property
    def edges(self) -> int:
        """Number of couplings that are not zero."""
        return int(self._sources.size)

    @property
    def edge_sources(self) -> Indices:
        """The sequence each edge comes from, edges in row-major order (target, source)."""
        return self._sources

    @property
    def edge_targets(self) -> Indices:
        """The sequence each edge goes to."""
        return np.repeat(np.arange(self.sequences), np.diff(self._indptr))

    @property
    def edge_starts(self) -> Indices:
        """Where the edges of each target begin, and the number of edges last: the `indptr` of the CSR format."""
        return self._indptr

    @property
    def edge_weights(self) -> Floats:
        """The coupling of each edge."""
        return self._weights

    @property
    def transition_table(self) -> tuple[Floats, Indices]:
        """The distinct transition matrices, and which of them each edge uses."""
        return self._table, self._which

    @cached_property
    def sparse_coupling(self) -> Any:
        """The coupling as a scipy.sparse CSR array that is shared: do not change it."""
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
        return list(self._components)

    @cached_property
    def _components(self) -> list[tuple[int, ...]]:
        return connected_parts(self.sparse_coupling)

    def distinct_components(self, labels: npt.NDArray[np.integer[Any]]) -> list[tuple[tuple[int, ...], int]]:
        """One component of each kind with the number of its copies.

        Two components are of one kind if couplings, transitions and the labels of their sequences agree in order.
        """
        components = self._components
        if len(components) == 1:
            return [(component, 1) for component in components]
        if len(components) == self.sequences:
            kinds = np.column_stack([self._which, labels])
            _, first, copies = np.unique(kinds, axis=0, return_index=True, return_counts=True)
            return [((int(i),), int(n)) for i, n in zip(first, copies, strict=True)]
        return count_kinds(components, lambda component: self.signature(component, labels))

    def signature(self, component: tuple[int, ...], labels: npt.NDArray[np.integer[Any]]) -> Any:
        """What two components have in common that are of one kind."""
        place = {member: i for i, member in enumerate(component)}
        edges = [range(self._indptr[target], self._indptr[target + 1]) for target in component]
        return (
            tuple(int(labels[i]) for i in component),
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
        edges = np.flatnonzero(place[self.edge_targets] >= 0)
        if (place[self._sources[edges]] < 0).any():
            outside = self.names[int(self._sources[edges][place[self._sources[edges]] < 0][0])]
            raise InputError(f"subchain: the chosen sequences follow {outside!r}; take whole components")
        from scipy.sparse import csr_array

        ends = place[self.edge_targets[edges]], place[self._sources[edges]]
        coupling = csr_array((self._weights[edges], ends), shape=(inside.size, inside.size))
        names = None if self._names is None else [self._names[i] for i in inside]
        chosen = inside.tolist()
        chain = CoupledChain(
            coupling,
            self._table[self._which[edges]],
            names=names,
            direction=self.direction,
        )
        return chain.with_values_of(self, chosen).carrying(fit_cost=self.fit_cost, evidence=self.part_evidence(chosen))

    # ---- law ---------------------------------------------------------------------------------------------------

    @cached_property
    def local(self) -> LocalLaw:
        """Sources and coupling-weighted matrices of every target."""
        cuts = self._indptr[1:-1]
        matrices = freeze(self._weights[:, None, None] * self._table[self._which])
        return LocalLaw(self.states, tuple(np.split(self._sources, cuts)), tuple(np.split(matrices, cuts)))

    @cached_property
    def own_step(self) -> Step:
        """One step of the joint law in the chain's own direction."""
        return choose_step(self.local)

    @property
    def step_chains(self) -> tuple[CoupledChain, ...]:
        """The chain itself: all steps are alike."""
        return (self,)

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
        return self._marginals.copy()

    def _reduced_q(self, blocks: Floats) -> Floats:
        """Q on differences of laws, (s (m - 1), s (m - 1)): state b of each sequence against state 0."""
        size = self.sequences * (self.states - 1)
        return np.asarray((blocks[:, 1:, :, 1:] - blocks[:, 1:, :, :1]).reshape(size, size))

    @cached_property
    def _marginals(self) -> Floats:
        """From the equations themselves, so that slow mixing costs nothing: state 0 of each sequence is the rest."""
        s, m = self.sequences, self.states
        if s * m > DENSE_SIZE:
            return self._iterated_marginals()
        blocks = self._q.toarray().reshape(s, m, s, m)
        reduced = np.eye(s * (m - 1)) - self._reduced_q(blocks)
        if np.linalg.cond(reduced) > 1e13:
            raise NoStationaryLawError("the marginals have no single stationary law; " + SEVERAL_LAWS)
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
            "the marginals have no single stationary law (or mix too slowly to find it); " + SEVERAL_LAWS
        )

    def evolve(self, marginals: Any, steps: int) -> Floats:
        """Marginals (s, m) after some steps: `next_j = sum_k coupling[j][k] marginals_k transitions[j][k]`.

        >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
        >>> chain.evolve([[1.0, 0.0]], 2).round(2).tolist()
        [[0.58, 0.42]]
        """
        law = check.floats("marginals", marginals)
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

    def rate(self) -> float:
        """The factor by which differences between marginal laws shrink in one step."""
        s, m = self.sequences, self.states
        if s * m <= DENSE_SIZE:
            reduced = self._reduced_q(self._q.toarray().reshape(s, m, s, m))
            return min(1.0, float(np.abs(np.linalg.eigvals(reduced)).max()))
        difference = np.random.default_rng(0).random((s, m))
        difference -= difference.mean(axis=1, keepdims=True)
        rates = []
        for _ in range(200):
            pushed = self.evolve(difference, 1)
            pushed -= pushed.mean(axis=1, keepdims=True)  # rounding must not leave the space of differences
            size = float(np.abs(pushed).max())
            if size == 0:
                return 0.0
            rates.append(size)
            difference = pushed / size
        return min(1.0, float(np.exp(np.mean(np.log(rates[-50:])))))

    def advance(self, snapshot: States, uniform: Floats) -> States:
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
        hasher = hashlib.sha256((self.schema + "backward" * (self.direction == "backward")).encode())
        for indices in (self._indptr, self._sources, self._which):
            hasher.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
            hasher.update(b"|")
        for numbers in (self._weights, self._table, self.values):
            hasher.update(repr(numbers.shape).encode())
            hasher.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return self._finish_digest(hasher)

    def _law_content(self) -> dict[str, Any]:
        edges = zip(self.edge_targets, self._sources, self._weights, self._which, strict=True)
        return {
            "edges": [[int(j), int(k), float(w), int(t)] for j, k, w, t in edges],
            "transitions": self._table.tolist(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CoupledChain:
        """Rebuild a chain from `to_dict`, or from plain `coupling` and `transitions` written by hand."""
        refuse_initial(content)
        rest: dict[str, Any] = {key: content.get(key) for key in ("values", "names")}
        rest["direction"] = content.get("direction", "forward")
        if "schema" in content and (content["schema"] == BACKWARD_SCHEMA) != (rest["direction"] == "backward"):
            raise InputError(f"chain: schema {content['schema']!r} does not go with direction {rest['direction']!r}")
        with reading_json():
            if "coupling" in content:
                return cls(content["coupling"], content["transitions"], **rest)._restore_fit(content)
            edges = content["edges"]
            coupling = {(int(j), int(k)): float(w) for j, k, w, _ in edges}
            transitions = {(int(j), int(k)): content["transitions"][t] for j, k, _, t in edges}
            return cls(coupling, transitions, **rest)._restore_fit(content)

    def __repr__(self) -> str:
        backward = "backward, " * (self.direction == "backward")
        return (
            f"CoupledChain({backward}{self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, "
            f"{self.edges} coupling{'s' * (self.edges > 1)}, digest {self.digest[:8]})"
        )


def _read_coupling(coupling: Any) -> tuple[Indices, Indices, Floats]:
    """Edges (indptr, sources, weights) in row-major order, of any accepted form of coupling."""
    from scipy.sparse import csr_array, issparse

    if isinstance(coupling, Mapping):
        if not coupling:
            raise InputError("coupling: no edges given; every sequence must follow at least one, such as itself")
        pairs = np.array(list(coupling.keys()))
        weights = check.floats("coupling", list(coupling.values()))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer) or (pairs < 0).any():
            raise InputError("coupling: keys must be pairs (target, source) of sequence numbers from 0")
        s = int(pairs.max()) + 1
        matrix = csr_array((weights, (pairs[:, 0], pairs[:, 1])), shape=(s, s))
    elif issparse(coupling):
        matrix = csr_array(coupling, dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"coupling: shape {matrix.shape} given; a square matrix (s, s) expected")
        check.floats("coupling", matrix.data)
    else:
        dense = check.floats("coupling", coupling)
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1] or not dense.size:
            raise InputError(f"coupling: shape {dense.shape} given; a square matrix (s, s) expected")
        check_rows("coupling", dense)
        matrix = csr_array(dense)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    if (matrix.data < 0).any():
        raise InputError(f"coupling: negative weight {matrix.data.min():.6g}; weights lie in [0, 1]")
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    off = np.abs(sums - 1.0)
    if off.max() > ROW_TOLERANCE:
        j = int(off.argmax())
        raise InputError(f"coupling: row {j} sums to {sums[j]:.6g}; the weights of one sequence must sum to 1")
    counts = np.diff(matrix.indptr)
    divisors = np.where(off > 1e-15 * counts.max(), sums, 1.0)
    weights = matrix.data / np.repeat(divisors, counts)
    indptr, sources = matrix.indptr.astype(np.intp), matrix.indices.astype(np.intp)
    return freeze(indptr), freeze(sources), freeze(weights)


def _read_transitions(transitions: Any, indptr: Indices, sources: Indices) -> tuple[Floats, Indices]:
    """The distinct matrices, and which of them each edge uses; never s x s x m x m for a sparse coupling."""
    s, edges = indptr.size - 1, sources.size
    targets = np.repeat(np.arange(s), np.diff(indptr))
    if isinstance(transitions, Mapping):
        pairs = list(zip(targets.tolist(), sources.tolist(), strict=True))
        missing = [pair for pair in pairs if pair not in transitions]
        if missing:
            raise InputError(f"transitions: none given for the coupled pair {missing[0]}")
        transitions = [transitions[pair] for pair in pairs]
    matrices = check.floats("transitions", transitions)
    m = matrices.shape[-1] if matrices.ndim else 0
    if matrices.ndim < 2 or matrices.shape[-2] != m or m < 2 or matrices.ndim > 4:
        raise InputError(
            f"transitions: shape {matrices.shape} given; (m, m) with m >= 2, (s, s, m, m) with s = {s}, "
            f"or (edges, m, m) with {edges} edges expected"
        )
    if matrices.ndim == 4 and matrices.shape[:2] != (s, s):
        raise InputError(f"transitions: shape {matrices.shape} given; ({s}, {s}, m, m) expected for {s} sequences")
    if matrices.ndim == 3 and matrices.shape[0] != edges:
        raise InputError(f"transitions: {matrices.shape[0]} matrices given for {edges} coupled pairs")
    matrices = check_rows("transitions", matrices)
    if matrices.ndim == 2:
        return freeze(matrices[None]), freeze(np.zeros(edges, dtype=np.intp))
    per_edge = matrices[targets, sources] if matrices.ndim == 4 else matrices
    table, which = np.unique(per_edge.reshape(edges, -1), axis=0, return_inverse=True)
    return freeze(table.reshape(-1, m, m)), freeze(which.astype(np.intp).ravel())


def is_backward(model: Model) -> TypeGuard[CoupledChain]:
    """Whether previous states are independent given the present, as `influence` needs."""
    return isinstance(model, CoupledChain) and model.direction == "backward"
