"""Beyond the paper: more than two sequences, in a ring and all to all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import csdp
from study import drawing
from study.mechanism import large_ring
from study.record import Chapter, Finding, format_list, format_range, no_entries
from study.setting import all_to_all, leak, ring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (2, 3, 4, 5, 6)
AGES = (1, 2, 3, 4, 5, 6)
KINDS: dict[str, Callable[[int], csdp.CoupledChain]] = {"ring": ring, "all to all": all_to_all}


def by_size(kind: str, bound: str = "exact", age: int = 1) -> list[float]:
    """Leakage of the mean against the number of sequences."""
    return [leak(KINDS[kind](size), age, 1.0, bound) for size in SIZES]


def giant() -> list[float]:
    """The certified leakage of one component of 100,001 sequences, by age, for any number of releases."""
    ring_of_many = large_ring()
    return [csdp.leakage(ring_of_many, csdp.Mean(), ages=age, epsilon_c=1.0, bound="slice").epsilon for age in AGES]


def findings() -> list[Finding]:
    """What more sequences change."""
    exact = [value for kind in KINDS for value in by_size(kind)]
    return [
        Finding(
            "more-sequences",
            "Does the leakage of a mean grow with the number of coupled sequences (own weight 0.8, age 1)?",
            f"hardly: {format_range(exact, '.3f')} from 2 to 6, ring and all to all",
            f"Theorem 1 grows with k: {format_list(by_size('ring', 'printed-loose'))} in the ring, "
            f"{format_list(by_size('all to all', 'printed-loose'))} all to all",
        ),
        Finding(
            "giant",
            "What is certain for a ring of 100,001 sequences, one component?",
            f"leakage at most {format_list(giant())} at age 1 to 6, any query, any noise, any number of releases",
            "the exact value for six in a ring, one mean at epsilon_c 1: "
            f"{format_list([leak(ring(6), age, 1.0) for age in AGES])}",
        ),
    ]


def figure() -> Figure:
    """By number of sequences, and the certificate of the giant ring."""
    drawn, (a, b) = drawing.panels(2, width=5.0)
    for kind, colour in zip(KINDS, drawing.COLOURS, strict=False):
        a.plot(SIZES, by_size(kind), color=colour, marker="o", label=f"{kind}, exact", **drawing.EXACT)
        a.plot(SIZES, by_size(kind, "printed-loose"), color=colour, label=f"{kind}, Theorem 1", **drawing.PRINTED)
    b.plot(AGES, giant(), color=drawing.COLOURS[2], marker="o", label="100,001 in a ring, certified", **drawing.EXACT)
    six = [leak(ring(6), age, 1.0) for age in AGES]
    b.plot(AGES, six, color=drawing.INK, marker="o", label="6 in a ring, one mean, exact", **drawing.EXACT)
    a.set_ylim(bottom=0)
    a.set_xticks(SIZES)
    level = "Leakage of the present, epsilon"
    drawing.finish(a, title="Age 1, epsilon_c 1", x="Sequences", y=level)
    drawing.finish(b, title="One giant component", x="Age", y=f"{level} (log)", log=True)
    return drawn


CHAPTER = Chapter("sequences", "More sequences", no_entries, findings, figure)
