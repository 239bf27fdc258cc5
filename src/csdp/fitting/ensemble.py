"""Ensembles: chains that the data leaves possible besides the point estimate.

bootstrap   the fit is repeated on moving blocks of transitions drawn with replacement (Künsch 1989)
posterior   rows and weights are drawn from the Dirichlet laws of the transitions that EM laid to each source
parametric  the fit is repeated on counts of simulated readings, noised like the real ones (private fits)

Seeds make an ensemble repeatable. They carry no claim of privacy.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from csdp.fitting.em import EMFit

Floats = npt.NDArray[np.float64]


def draw_blocks(steps: int, random: np.random.Generator) -> Floats:
    """How often each transition is drawn: blocks of about 2 n^(1/3) steps, n transitions in all."""
    length = min(steps, max(1, math.ceil(2 * steps ** (1 / 3))))
    starts = random.integers(0, steps - length + 1, -(-steps // length))
    drawn = (starts[:, None] + np.arange(length)).ravel()[:steps]
    return np.bincount(drawn, minlength=steps).astype(np.float64)


def draw_posterior(estimate: EMFit, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights and transitions drawn from their Dirichlet laws, given who was followed as EM has it."""
    shares, moves = [], []
    for target in estimate.targets:
        expected = np.maximum(target.expected, 1e-9)
        moves.append(draw_dirichlet(expected, random))
        shares.append(draw_dirichlet(expected.sum(axis=(1, 2)), random))
    return np.concatenate(shares), np.concatenate(moves)


def draw_dirichlet(counts: Floats, random: np.random.Generator) -> Floats:
    """Rows of probabilities drawn from their Dirichlet laws, given counts with smoothing; none of them zero."""
    rows = np.maximum(random.standard_gamma(np.maximum(counts, 1e-9)), 1e-300)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))
