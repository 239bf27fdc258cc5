"""Validation of the arguments of a chain. Messages say what was given, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices, freeze
from csdp.errors import InputError
from csdp.lattice import common_unit, on_lattice

#: Largest difference of a row sum from 1; such rows are scaled to sum to 1.
ROW_TOLERANCE = 1e-8


def as_floats(what: str, numbers: Any) -> Floats:
    """Convert to a float array of finite numbers; InputError, naming `what`, where that is impossible."""
    try:
        array = np.array(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = type(numbers).__name__
        raise InputError(f"{what}: expected numbers in a regular array, got {kind} ({error})") from None
    if not np.isfinite(array).all():
        raise InputError(f"{what}: NaN or infinite entries are not allowed; replace or remove them")
    return array


def check_rows(what: str, rows: Floats) -> Floats:
    """Check that the last axis holds probability rows, and scale away rounding in the input."""
    if (rows < 0).any():
        at = tuple(int(v) for v in np.argwhere(rows < 0)[0])
        raise InputError(f"{what}: negative probability {rows[at]:.6g} at {at}; probabilities lie in [0, 1]")
    sums = rows.sum(axis=-1)
    off = np.abs(sums - 1.0)
    if off.size and off.max() > ROW_TOLERANCE:
        at = tuple(int(v) for v in np.argwhere(off > ROW_TOLERANCE)[0])
        hint = "each row (from -> to) must sum to 1"
        square = rows.ndim >= 2 and rows.shape[-1] == rows.shape[-2]
        if square and np.abs(rows.sum(axis=-2) - 1.0).max() <= ROW_TOLERANCE:
            hint += "; here the columns do: the matrix seems to be transposed, pass its transpose"
        if not at:  # one law, not rows of a matrix
            raise InputError(f"{what}: it sums to {float(sums):.6g}; a law must sum to 1")
        where = f"row {at[-1]}" if len(at) < 2 else f"row {at[-1]} of matrix {at[:-1]}"
        raise InputError(f"{what}: {where} sums to {float(sums[at]):.6g}; {hint}")
    # Scaling only where needed keeps a JSON round trip bit for bit the same.
    needs = off > 1e-15 * rows.shape[-1]
    return np.where(needs[..., None], rows / np.where(sums > 0, sums, 1.0)[..., None], rows)


def read_coupling(coupling: Any) -> tuple[Indices, Indices, Floats]:
    """Edges (indptr, sources, weights) in row-major order, of any accepted form of coupling."""
    from scipy.sparse import csr_array, issparse

    if isinstance(coupling, Mapping):
        if not coupling:
            raise InputError("coupling: no edges given; every sequence needs whom to follow, itself at least")
        pairs = np.array(list(coupling.keys()))
        weights = as_floats("coupling", list(coupling.values()))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer) or (pairs < 0).any():
            raise InputError("coupling: keys must be pairs (target, source) of sequence numbers from 0")
        s = int(pairs.max()) + 1
        matrix = csr_array((weights, (pairs[:, 0], pairs[:, 1])), shape=(s, s))
    elif issparse(coupling):
        matrix = csr_array(coupling, dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"coupling: shape {matrix.shape} given; a square matrix (s, s) expected")
        as_floats("coupling", matrix.data)
    else:
        dense = as_floats("coupling", coupling)
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


def read_transitions(transitions: Any, indptr: Indices, sources: Indices) -> tuple[Floats, Indices]:
    """The distinct matrices, and which of them each edge uses; never s x s x m x m for a sparse coupling."""
    s, edges = indptr.size - 1, sources.size
    targets = np.repeat(np.arange(s), np.diff(indptr))
    if isinstance(transitions, Mapping):
        pairs = list(zip(targets.tolist(), sources.tolist(), strict=True))
        missing = [pair for pair in pairs if pair not in transitions]
        if missing:
            raise InputError(f"transitions: none given for the coupled pair {missing[0]}")
        transitions = [transitions[pair] for pair in pairs]
    matrices = as_floats("transitions", transitions)
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


def lattice_values(values: Any, sequences: int, states: int) -> tuple[Floats, float]:
    """Values of the states on a power-of-two lattice, and its step.

    Exact noise needs every query value to be a multiple of one power of two. Values that already are (with at
    most 20 binary digits, such as integers and halves) stay as they are; others move by at most 2^-21 of the largest.
    """
    if values is None:
        return np.arange(states, dtype=np.float64), 1.0
    table = as_floats("values", values)
    if table.shape not in {(states,), (sequences, states)}:
        raise InputError(
            f"values: shape {table.shape} given; one value per state ({states},), "
            f"or one row per sequence ({sequences}, {states})"
        )
    if np.ptp(table) == 0:
        raise InputError("values: all states carry the same value; at least two must differ")
    table = on_lattice(table) + 0.0  # turns -0.0 into 0.0, so equal chains have equal digests
    return table, common_unit(table)


def check_names(names: Sequence[str] | None, sequences: int) -> tuple[str, ...] | None:
    """Names of the sequences: distinct, one each."""
    if names is None:
        return None
    labels = tuple(str(name) for name in names)
    if len(labels) != sequences:
        raise InputError(f"names: {len(labels)} given for {sequences} sequences; give one each")
    if len(set(labels)) != sequences:
        twice = next(name for name in labels if labels.count(name) > 1)
        raise InputError(f"names: {twice!r} appears twice; names must be distinct")
    return labels


def refuse_initial(content: Mapping[str, Any]) -> None:
    """Refuse a chain of csdp 0.2 that has a law of its oldest snapshot."""
    if content.get("initial") is not None:
        raise InputError(
            "initial: a law of the oldest snapshot given; chains follow their stationary law. Make the chain again "
            "without it"
        )
