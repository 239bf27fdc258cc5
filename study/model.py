"""The paper's illustration of a coupling Markov chain, and what it states about the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import csdp
from study import drawing
from study.record import Chapter, Claim, format_list, no_entries
from study.setting import pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 40
#: Two sequences that copy each other's opposite: every matrix is irreducible, nothing converges.
SWITCHING = csdp.CoupledChain([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]])


def distance(chain: csdp.CoupledChain, start: object, steps: int) -> list[float]:
    """How far the marginal laws are from even, step by step."""
    return [float(abs(chain.evolve(start, n) - 0.5).max()) for n in range(steps + 1)]


def claims() -> list[Claim]:
    """The two properties that the analysis rests on."""
    spectrum = np.abs(np.linalg.eigvals(pair(0.75).q_matrix().toarray())).tolist()
    start = [[1.0, 0.0], [1.0, 0.0]]
    calm, wild = distance(pair(0.75), start, 20), distance(SWITCHING, start, 20)
    return [
        Claim(
            name="spectrum",
            where="model",
            says="The block matrix has largest eigenvalue 1, and no eigenvalue beyond it",
            paper="1",
            printed=f"moduli {format_list(sorted(spectrum, reverse=True))} at weight 0.75",
            exact="the same",
            follows=abs(max(spectrum) - 1) < 1e-12,
            holds=max(spectrum) < 1 + 1e-12,
        ),
        Claim(
            name="convergence",
            where="model",
            says="If all transition matrices are irreducible there is one stationary law, and every start converges",
            paper="converges",
            printed=f"distance {calm[20]:.1g} after 20 steps in the paper's set-up",
            exact=f"distance {wild[20]:g} after 20 steps where two sequences take each other's opposite",
            follows=calm[20] < 1e-6,
            holds=wild[20] < 1e-6,
            note="periodic chains must be excluded; csdp refuses them",
        ),
        Claim(
            name="joint-law",
            where="model",
            says="Marginal laws determine what the present tells about the past",
            paper="marginals only",
            printed=f"covariance of the two next states, given the present: {_covariance(independent=True):g}",
            exact=f"up to {_covariance(independent=False):.3g} with the same marginals, if both pick together",
            follows=None,
            holds=abs(_covariance(independent=False)) < 1e-12,
            note="csdp fixes independent picks, and takes any joint chain besides",
        ),
    ]


def _covariance(*, independent: bool) -> float:
    """Covariance of the next states from (1, 0): independent picks, or one pick and one coin for both."""
    first, second = 0.75 * 0.7 + 0.25 * 0.3, 0.25 * 0.7 + 0.75 * 0.3
    if independent:
        joint = pair(0.75).kernel()[2].reshape(2, 2)
        return float(round(joint[1, 1] - joint[1].sum() * joint[:, 1].sum(), 12)) + 0.0
    return float(min(first, second) - first * second)


def figure() -> Figure:
    """A path of two coupled sequences, and how marginal laws converge, or do not."""
    drawn, (a, b) = drawing.panels(2, width=5.4)
    path = pair(0.75, 0.1, 0.1).simulate(STEPS, seed=3)
    for i, colour in enumerate(drawing.COLOURS[:2]):
        a.step(np.arange(STEPS), path[:, i] + 1.5 * (1 - i), where="mid", color=colour, linewidth=1.8)
    a.set_yticks([0, 1, 1.5, 2.5], ["0", "1", "0", "1"])
    a.annotate("sequence 1", (0, 2.62), color=drawing.COLOURS[0], fontsize=9)
    a.annotate("sequence 2", (0, 1.1), color=drawing.COLOURS[1], fontsize=9)
    a.set_ylim(-0.15, 3.0)
    start, steps = [[1.0, 0.0], [1.0, 0.0]], range(13)
    b.plot(steps, distance(pair(0.75), start, 12), color=drawing.COLOURS[0], label="the paper's chain", **drawing.EXACT)
    b.plot(steps, distance(SWITCHING, start, 12), color=drawing.COLOURS[5], label="periodic chain", **drawing.EXACT)
    drawing.finish(a, title="Two coupled sequences (0.75 own, change 0.1)", x="Time", y="State", legend=None)
    drawing.finish(b, title="Distance of marginal laws from the stationary one", x="Steps", y="Distance")
    return drawn


CHAPTER = Chapter("model", "The model", claims, no_entries, figure)
