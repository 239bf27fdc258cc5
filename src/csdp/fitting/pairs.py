"""Chains from lag-1 pair counts alone: the estimator of Ching, Fung and Ng, and the method of moments.

Pair counts do not tell who was followed, so the likelihood is out of reach. What they do determine, under the model and
in its stationary regime, is the kernel. It is additive: `Pr(next_j = b | x) = pi_j[b] + sum_k E_jk[x_k, b]` with
`sum_a pi_k[a] E_jk[a, b] = 0`, and the lag-1 covariances are the lag-0 covariances S times E. S in turn follows from E,
because next states are independent given the present: `S_jl = E_j' S E_l` for j != l.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.fitting.pairs import Graph
from csdp.fitting.sample import Progress, Sample, normalise_rows

Floats = npt.NDArray[np.float64]

#: Sequences times states up to which the moments are solved for.
MOMENTS_SIZE = 3000
#: Share of the smallest probability that effects may not use up, so that none becomes zero.
_LEFT = 0.02


def frequencies(readings: Sample) -> Floats:
    """How often each sequence was seen in each state (s, m)."""
    counts = np.array([np.bincount(column[column >= 0], minlength=readings.m) for column in readings.states.T])
    return normalise_rows(counts.astype(np.float64), 0.0)


def pair_marginals(counts: Floats, graph: Graph) -> Floats:
    """Marginal laws (s, m) from pair counts: each sequence as the target of its own edge and as its source."""
    own = np.flatnonzero(graph.targets == graph.sources)
    table = np.maximum(counts[own].sum(axis=1) + counts[own].sum(axis=2), 0.0)
    return normalise_rows(table, 0.5)


def ching(counts: Floats, laws: Floats, graph: Graph, *, smoothing: float, progress: Progress) -> tuple[Floats, Floats]:
    """Coupling and transitions of Ching, Fung and Ng (2002): counted transitions, then a linear programme.

    For each target the weights minimise `max_b |law_j[b] - sum_k w_k (law_k transitions_jk)[b]|`. The stationary law
    satisfies this almost whatever the weights are, so the coupling is hardly determined: kept for comparison.
    """
    from scipy.optimize import linprog

    moves = normalise_rows(np.maximum(counts, 0.0), smoothing)
    shares = np.empty(graph.sources.size)
    s, m = laws.shape
    for j in range(s):
        edges = slice(graph.indptr[j], graph.indptr[j + 1])
        pushed = np.einsum("ka,kab->bk", laws[graph.sources[edges]], moves[edges])
        d = pushed.shape[1]
        slack = -np.ones((m, 1))
        found = linprog(
            np.concatenate([np.zeros(d), [1.0]]),
            A_ub=np.block([[pushed, slack], [-pushed, slack]]),
            b_ub=np.concatenate([laws[j], -laws[j]]),
            A_eq=np.concatenate([np.ones(d), [0.0]])[None],
            b_eq=[1.0],
            bounds=(0, None),
        )
        weights = np.maximum(found.x[:d], 0.0)
        shares[edges] = weights / weights.sum()
        progress("fitting", j + 1, s)
    return shares, moves


def moments(counts: Floats, ticks: Floats, graph: Graph, *, noise: float = 0.0) -> tuple[Floats, Floats]:
    """Coupling and transitions whose pairwise moments are those counted.

    counts (edges, m, m), perhaps noised; ticks (edges,): readings behind each table, known without the noise;
    `noise`: variance of one count. Effects that sampling and noise alone would explain are shrunk away (James and
    Stein, positive part).
    """
    s, m = graph.indptr.size - 1, counts.shape[-1]
    if s * m > MOMENTS_SIZE:
        raise InputError(
            f"moments: {s} sequences of {m} states; at most {MOMENTS_SIZE:,} states together. Fit fewer at a time"
        )
    laws = pair_marginals(counts, graph)
    lagged = _lagged_covariances(counts / ticks[:, None, None], laws, graph, ticks, noise)
    blocks = np.zeros((s, m, s, m))  # lag-0 covariances
    own = np.einsum("ja,ab->jab", laws, np.eye(m)) - np.einsum("ja,jb->jab", laws, laws)
    blocks[np.arange(s), :, np.arange(s), :] = own
    effects = np.zeros((graph.sources.size, m, m))
    for _ in range(100):
        before, effects = effects, _solve_effects(lagged, blocks, laws, graph)
        if np.abs(effects - before).max() < 1e-9:
            break
        whole = np.zeros((s, m, s, m))
        whole[graph.targets, :, graph.sources, :] = effects.transpose(0, 2, 1)
        pushed = whole.reshape(s * m, -1)
        blocks = (pushed @ blocks.reshape(s * m, -1) @ pushed.T).reshape(s, m, s, m)
        blocks[np.arange(s), :, np.arange(s), :] = own
    return _mixture(effects, laws, graph)


def _lagged_covariances(pairs: Floats, laws: Floats, graph: Graph, ticks: Floats, noise: float) -> Floats:
    """Lag-1 covariances of each edge, doubly centred, shrunk by what chance would explain."""
    centred = pairs - pairs.mean(axis=1, keepdims=True) - pairs.mean(axis=2, keepdims=True)
    centred += pairs.mean(axis=(1, 2), keepdims=True)
    # Double centring removes a[x_k] + b[x_j]; what the margins alone would leave is removed as well.
    product = laws[graph.sources][:, :, None] * laws[graph.targets][:, None, :]
    expected = product - product.mean(axis=1, keepdims=True) - product.mean(axis=2, keepdims=True)
    expected += product.mean(axis=(1, 2), keepdims=True)
    contrast = centred - expected
    # Back to a covariance: rows and columns that sum to zero hold all of it for the double centring already.
    m = laws.shape[1]
    spread = 1.0 - np.square(laws).sum(axis=1)
    chance = spread[graph.sources] * spread[graph.targets] / ticks + (m - 1) ** 2 * noise / np.square(ticks)
    size = np.square(contrast).sum(axis=(1, 2))
    kept = np.maximum(0.0, 1.0 - chance / np.maximum(size, 1e-300))
    return np.asarray(contrast * kept[:, None, None])


def _solve_effects(lagged: Floats, blocks: Floats, laws: Floats, graph: Graph) -> Floats:
    """Effects (edges, m, m) from `S E = lagged`, target by target."""
    m = laws.shape[1]
    effects = np.empty_like(lagged)
    for j in range(laws.shape[0]):
        sources, edges = graph.of(j), slice(graph.indptr[j], graph.indptr[j + 1])
        system = blocks[sources][:, :, sources].reshape(sources.size * m, -1)
        right = lagged[edges].reshape(-1, m)
        solved = (np.linalg.pinv(system, rcond=1e-6, hermitian=True) @ right).reshape(-1, m, m)
        effects[edges] = solved - np.einsum("ka,kab->kb", laws[sources], solved)[:, None, :]
    return effects


def _mixture(effects: Floats, laws: Floats, graph: Graph) -> tuple[Floats, Floats]:
    """Weights and matrices with `w_k P_k[a, b] = E_k[a, b] + d_k[b]`, all positive: effects shrink where they must."""
    shares, moves = np.empty(graph.sources.size), np.empty_like(effects)
    for j in range(laws.shape[0]):
        edges = slice(graph.indptr[j], graph.indptr[j + 1])
        effect = effects[edges]
        needed = -effect.min(axis=1)  # (d, b): at least 0, as effects are centred
        total = needed.sum(axis=0)
        room = (1.0 - _LEFT) * laws[j]
        scale = np.where(total > room, room / np.maximum(total, 1e-300), 1.0)
        rest = laws[j] - scale * total
        mixed = scale * (effect + needed[:, None, :]) + rest / effect.shape[0]
        rows = mixed.sum(axis=2, keepdims=True)
        shares[edges] = rows.mean(axis=(1, 2)) / rows.mean(axis=(1, 2)).sum()
        moves[edges] = mixed / rows
    return shares, moves


def pair_ticks(readings: Sample, graph: Graph) -> Floats:
    """At how many steps source and next target were both read, for each edge; a function of what is missing only."""
    seen: Any = (readings.states >= 0).astype(np.float64)
    if not readings.has_gaps:
        return np.full(graph.sources.size, float(readings.transitions))
    present, following = seen[:-1], seen[1:]
    out = np.empty(graph.sources.size)
    for e, (j, k) in enumerate(zip(graph.targets.tolist(), graph.sources.tolist(), strict=True)):
        out[e] = present[:, k] @ following[:, j]
    if (out < 1).any():
        e = int(out.argmin())
        names = readings.labels
        raise InputError(
            f"{names[graph.targets[e]]!r} was never read one step after {names[graph.sources[e]]!r}; fill the gaps"
        )
    return out
