"""The paper's illustration of FRAN (age, then noise), its extreme cases and its scale."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

import csdp
from csdp.paper import aged_correlation
from study import drawing
from study.record import Chapter, Claim, format_list, no_entries
from study.setting import MEAN, leak, pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY = 100_001
CLOCK = csdp.CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]])


@lru_cache
def large_ring(sequences: int = MANY) -> csdp.CoupledChain:
    """Return a ring in which every sequence follows itself (0.8) and two neighbours: one component."""
    from scipy.sparse import csr_array

    i = np.arange(sequences)
    weights = np.repeat([0.8, 0.1, 0.1], sequences)
    columns = np.concatenate([i, (i + 1) % sequences, (i - 1) % sequences])
    return csdp.CoupledChain(
        csr_array((weights, (np.tile(i, 3), columns)), shape=(sequences, sequences)), [[0.7, 0.3], [0.3, 0.7]]
    )


def publish_states(plan: csdp.Plan, states: np.ndarray) -> tuple[csdp.Release, ...]:
    """Publish simulated snapshots with a new ledger, and return the releases."""
    panel = csdp.Panel.from_states(states, names=plan.model.names)
    with (
        tempfile.TemporaryDirectory() as folder,
        csdp.Publisher(plan, dataset="study", ledger=f"{folder}/ledger.db") as gate,
    ):
        return tuple(gate.publish(panel).releases)


def claims() -> list[Claim]:
    """Extreme cases, and scale."""
    fresh = [leak(pair(own), 0, 1.0) for own in (1.0, 0.75, 0.5)]
    stale = leak(pair(0.5), 20, 1.0)
    clock = leak(CLOCK, 20, 1.0)
    slow = [leak(pair(0.5, 0.001, 0.1), age, 4.0) for age in (0, 1, 2, 3)]
    falls = [aged_correlation(pair(0.5, 0.001, 0.1), ages=age) for age in (0, 1, 2, 3)]
    return [
        Claim(
            name="fresh",
            where="extreme cases",
            says="Without aging FRAN is the Laplace mechanism",
            paper="epsilon_c",
            printed=format_list([leak(pair(own), 0, 1.0, "printed-loose") for own in (1.0, 0.75, 0.5)]),
            exact=f"{format_list(fresh)} at epsilon_c 1 and weights 1, 0.75, 0.5",
            follows=None,
            holds=all(abs(value - 1) < 1e-9 for value in fresh),
            note="Theorem 1 counts d(2) for the coupled ones, against an adversary who knows the other value",
        ),
        Claim(
            name="stale",
            where="extreme cases",
            says="Very old data tells almost nothing of the present",
            paper="about 0",
            printed=f"{leak(pair(0.5), 20, 1.0, 'printed-loose'):.1e} at age 20",
            exact=f"{stale:.1e}; {clock:g} for a chain that alternates",
            follows=leak(pair(0.5), 20, 1.0, "printed-loose") < 1e-6,
            holds=stale < 1e-6,
            only_with="chains that forget",
        ),
        Claim(
            name="aging-lowers",
            where="mechanism",
            says="A greater age lowers the leakage",
            paper="falls",
            printed=f"Delta_k {format_list(falls, '.4f')} at age 0 to 3 (changes 0.001 and 0.1, weight 0.5)",
            exact=f"leakage {format_list(slow, '.2f')} at epsilon_c 4",
            follows=falls == sorted(falls, reverse=True),
            holds=slow == sorted(slow, reverse=True),
            note="two aged values together tell more than one fresh one",
        ),
        _scale_claim(),
    ]


def _scale_claim() -> Claim:
    plan = csdp.Plan(large_ring(), MEAN, ages=6, epsilon_c=1.0)
    releases = publish_states(plan, large_ring().simulate(8, seed=1, burn_in=0))
    leakage = plan.certified
    return Claim(
        name="hundred-thousand",
        where="introduction",
        says="The mechanism runs in linear time and scales to more than one hundred thousand sequences",
        paper="> 100,000",
        printed="Delta_k sums over 2^s snapshots: out of reach beyond some 20 coupled sequences",
        exact=f"{len(releases)} releases of {MANY:,} coupled sequences; leakage at age 6 at most {leakage.epsilon:.4f} "
        f"({leakage.bound}), however many",
        follows=len(releases) == 2,
        holds=len(releases) == 2 and leakage.epsilon < 1,
        only_with="a bound that the paper does not have",
    )


def figure() -> Figure:
    """Draw the true answers, the aged answers, the releases and the estimates of the present."""
    drawn, (axes,) = drawing.panels(1, width=9.0)
    chain = pair(0.75, 0.06, 0.06)
    plan = csdp.Plan(chain, MEAN, ages=3, epsilon_c=2.0)
    states = chain.simulate(80, seed=5)
    releases = publish_states(plan, states)
    ticks = [release.tick for release in releases]
    truth = states.mean(axis=1)
    axes.step(range(80), truth, where="mid", color=drawing.COLOURS[1], linewidth=1.6, label="true mean (private)")
    axes.step(
        range(3, 80),
        truth[:-3],
        where="mid",
        color=drawing.COLOURS[4],
        linewidth=1.2,
        label="phase 1: three steps old",
    )
    axes.plot(
        ticks,
        [r.values[0] for r in releases],
        ".",
        color=drawing.COLOURS[6],
        label="phase 2: with noise, published",
    )
    axes.plot(
        ticks,
        [r.estimate[0] for r in releases],
        color=drawing.COLOURS[0],
        linewidth=2.0,
        label="best linear estimate of the present",
    )
    axes.set_ylim(-1.6, 2.9)
    title = "FRAN: age, then noise (change 0.06, epsilon_c 2)"
    drawing.finish(axes, title=title, x="Tick", y="Mean", legend="upper right")
    return drawn


CHAPTER = Chapter("mechanism", "The mechanism", claims, no_entries, figure)
