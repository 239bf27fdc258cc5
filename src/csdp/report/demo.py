"""The demonstration: the paper's two coupled sequences, what a release of their mean tells, and how that ages."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from csdp.aging import Progress
from csdp.chain import CoupledChain
from csdp.leakage import LeakageTable, leakage_table, shown
from csdp.queries import Mean
from csdp.report import figures, sweeps
from csdp.report.page import Section, facts, figure_block, guarantee_block, leakage_block, page, paragraph
from csdp.report.words import Guarantee, guarantee

TRANSITIONS = ((0.7, 0.3), (0.3, 0.7))
SELF_COUPLING = 0.75
AGE, EPSILON_C = 2, 1.0
AGES = tuple(range(1, 9))
WEIGHTS = tuple(i / 20 for i in range(11))
COUPLING_AGES = (1, 2, 4)


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, and the files it wrote."""

    chain: CoupledChain
    table: LeakageTable
    words: Guarantee
    files: tuple[Path, ...]


def paper_chain() -> CoupledChain:
    """Two binary sequences, p = q = 0.3, each following itself with weight 0.75."""
    rest = 1 - SELF_COUPLING
    return CoupledChain([[SELF_COUPLING, rest], [rest, SELF_COUPLING]], TRANSITIONS)


def run_demo(folder: str | PathLike[str], *, version: str, progress: Progress | None = None) -> Demo:
    """Compute, draw, and write leakage.svg, leakage.png, coupling.svg and index.html into a folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    chain, query = paper_chain(), Mean()
    table = leakage_table(chain, query, ages=AGE, epsilon_c=EPSILON_C)
    words = guarantee(adversary="informed", epsilon_c=EPSILON_C)
    by_age = figures.leakage_by_age_figure(
        sweeps.leakage_by_age(chain, query, ages=AGES, epsilon_c=EPSILON_C, progress=progress)
    )
    by_coupling = figures.coupling_figure(
        sweeps.leakage_by_coupling(
            TRANSITIONS, query, weights=WEIGHTS, ages=COUPLING_AGES, epsilon_c=EPSILON_C, progress=progress
        )
    )
    drawings = {"leakage.svg": by_age, "leakage.png": by_age, "coupling.svg": by_coupling}
    for name, drawing in drawings.items():
        figures.save_figure(drawing, out / name)
    sections = [
        _answer(table, words),
        _aging(figures.inline_svg(by_age, name="age", description="Leakage against age, one line per bound")),
        _coupling(
            figures.inline_svg(by_coupling, name="coupling", description="Aged correlation and leakage by coupling")
        ),
        _unsound(),
        _model(chain),
    ]
    (out / "index.html").write_text(
        page(
            "What an aged release tells about the present",
            lead=f"Two people move between two states and influence each other. Their mean, {AGE} steps old and with "
            f"noise, is published. It tells at most epsilon = {shown(table['exact'].epsilon)} about where either of "
            "them is now.",
            sections=sections,
            footer=f"csdp {version}, chain digest {chain.digest[:16]}",
        ),
        encoding="utf-8",
    )
    return Demo(chain, table, words, tuple(out / name for name in (*drawings, "index.html")))


def _answer(table: LeakageTable, words: Guarantee) -> Section:
    notes = (
        "Epsilon bounds how much the release can shift anyone's belief: the odds between two present values change by "
        "at most a factor e to the power epsilon.",
        "It covers one release; several together tell more, except where a row says “any number of releases”.",
        "It is relative to the model. The bound “group” alone holds whatever the sequences do.",
    )
    return Section("The guarantee", guarantee_block(words, notes) + leakage_block(table))


def _aging(svg: str) -> Section:
    caption = (
        "Each step of age shrinks what the release tells. The thick line is exact. Dashed lines are formulas as "
        "printed (unsound): on other chains they fall below the truth. Lineage and group do not use the age here."
    )
    return Section("Older data tells less about now", figure_block(svg, caption))


def _coupling(svg: str) -> Section:
    caption = (
        "Left, thick: the leakage coefficient Phi, the worst aged correlation over all couplings up to a weight; "
        "thin: the aged correlation at that weight, which falls. Right: the leakage itself, which does not follow it: "
        "at age 1 stronger coupling leaks more."
    )
    return Section("Coupling: correlation is not leakage", figure_block(svg, caption))


def _unsound() -> Section:
    found = sweeps.printed_below_truth()
    text = (
        f"Take {found.words}, with epsilon_c = 1. The printed formula gives {shown(found.printed.epsilon)}; the true "
        f"leakage is {shown(found.exact.epsilon)}. A certificate by that formula would be wrong, so it is marked "
        "UNSOUND everywhere and never certifies."
    )
    return Section("Why printed formulas are marked UNSOUND", paragraph(text))


def _model(chain: CoupledChain) -> Section:
    summary = chain.summary()
    pairs = [
        ("Sequences", f"{chain.sequences}, with {chain.states} states each"),
        ("Moves", "0 to 1 and 1 to 0 with probability 0.3 a step"),
        ("Coupling", f"weight {SELF_COUPLING:g} on itself, {1 - SELF_COUPLING:g} on the other"),
        ("Differences shrink by", f"{summary.rate:.6g} per step"),
        ("Release", f"mean, age {AGE}, epsilon_c {EPSILON_C:g}"),
        ("Digest", chain.digest),
    ]
    return Section("The model", facts(pairs))
