"""The demonstration: two coupled sequences, what a release of their mean tells, and a release through the gate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.aging import Progress
from csdp.chain import CoupledChain
from csdp.errors import LedgerConflictError
from csdp.leakage import LeakageTable, leakage_table, shown
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Batch, Publisher
from csdp.queries import Mean
from csdp.report import figures, history, sweeps
from csdp.report.certificate import Certificate, certify
from csdp.report.files import write_json
from csdp.report.page import (
    Section,
    facts,
    figure_block,
    guarantee_block,
    leakage_block,
    page,
    paragraph,
    promises_block,
)
from csdp.report.series import Series, write_series
from csdp.report.words import Guarantee, guarantee
from csdp.utility import moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRANSITIONS = ((0.7, 0.3), (0.3, 0.7))
SELF_COUPLING = 0.75
NAMES = ("ward A", "ward B")
AGE, EPSILON_C = 2, 1.0
AGES = tuple(range(1, 9))
WEIGHTS = tuple(i / 20 for i in range(11))
COUPLING_AGES = (1, 2, 4)
#: The simulated readings that stand in for private ones: how many, from which seed, and how many are drawn.
TICKS, SIMULATION_SEED, DRAWN = 200, 2, 60
DATASET, BUDGET = "two-wards", 0.2
PRIVATE = (
    "Contains private data: the true values are drawn on this page. Do not pass it on; share.html is the same without "
    "them."
)


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, and the files it wrote."""

    chain: CoupledChain
    table: LeakageTable
    words: Guarantee
    certificate: Certificate
    files: tuple[Path, ...]


@dataclass(frozen=True)
class _Published:
    """A private release: what came out, its certificate, and the leakage along the way."""

    plan: Plan
    panel: Panel
    batch: Batch
    certificate: Certificate
    leakage: list[history.LeakageRecord]


def paper_chain() -> CoupledChain:
    """Two binary sequences, p = q = 0.3, each following itself with weight 0.75."""
    rest = 1 - SELF_COUPLING
    return CoupledChain([[SELF_COUPLING, rest], [rest, SELF_COUPLING]], TRANSITIONS, names=NAMES)


def run_demo(folder: str | PathLike[str], *, version: str, progress: Progress | None = None) -> Demo:
    """Compute, publish, draw, and write figures, the released series with its certificate and ledger, and two pages.

    Running it again in the same folder publishes the same values: they are in the ledger.
    """
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
    published = _publish(chain, out, progress)
    open_figure, private_figure = (_release_figure(published, private=private) for private in (False, True))
    over_time = figures.leakage_history_figure(published.leakage[:DRAWN], budget=BUDGET)
    drawings = {
        "leakage.svg": by_age,
        "leakage.png": by_age,
        "coupling.svg": by_coupling,
        "release.svg": open_figure,
        "history.svg": over_time,
    }
    for name, drawing in drawings.items():
        figures.save_figure(drawing, out / name)
    promised = Section("What is promised, and what is not", promises_block(published.certificate))
    spent = _spent(figures.inline_svg(over_time, name="history", description="Leakage of the present by tick"))
    footer = f"csdp {version}, chain digest {chain.digest[:16]}"
    sections = [
        _released(private_figure, published, private=True),
        spent,
        promised,
        _answer(table, words),
        _aging(figures.inline_svg(by_age, name="age", description="Leakage against age, one line per bound")),
        _coupling(
            figures.inline_svg(by_coupling, name="coupling", description="Aged correlation and leakage by coupling")
        ),
        _unsound(),
        _model(chain, published.certificate, readings=f"simulated, seed {SIMULATION_SEED}"),
    ]
    lead = (
        f"Two hospital wards are quiet or busy, and influence each other. Their mean, {AGE} steps old and with noise, "
        f"is published tick by tick. All of it together tells at most epsilon = {BUDGET:g}, at any moment, about "
        "either ward now."
    )
    title = "What an aged release tells about the present"
    # Not the seed: whoever has it can draw the same readings.
    record = _model(chain, published.certificate, readings="simulated")
    shared = [_released(open_figure, published, private=False), spent, promised, record]
    pages = {
        "share.html": page("A private release of two wards", lead=lead, sections=shared, footer=footer),
        "index.html": page(title, lead=lead, sections=sections, footer=footer, notice=PRIVATE),
    }
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    more = ("released.csv", "released.csv.certificate.json", "ledger.db")
    return Demo(chain, table, words, published.certificate, tuple(out / name for name in (*drawings, *more, *pages)))


def _publish(chain: CoupledChain, out: Path, progress: Progress | None) -> _Published:
    """Release simulated readings through the gate: ledger, certificate and series are written."""
    panel = Panel.from_states(chain.simulate(TICKS, seed=SIMULATION_SEED), names=NAMES)
    plan = Plan(chain, Mean(), AGE, EPSILON_C)
    with Ledger.open(out / "ledger.db") as ledger, _publisher(plan, ledger) as publisher:
        batch = publisher.publish(
            panel, progress=None if progress is None else lambda done, total: progress("releasing", done, total)
        )
        certificate = certify(publisher, ledger, skipped=batch.skipped)
        leakage = history.leakage_records(publisher, ledger, until=int(panel.ticks[-1]))
    write_series(Series.of(plan, panel, batch.releases, batch.skipped), out / "released.csv")
    write_json(out / "released.csv.certificate.json", certificate.to_dict())
    return _Published(plan, panel, batch, certificate, leakage)


def _publisher(plan: Plan, ledger: Ledger) -> Publisher:
    """The demo's dataset; under a name of its own where another version wrote this one under another plan."""
    try:
        return Publisher(plan, dataset=DATASET, ledger=ledger, budget=BUDGET, on_refusal="skip")
    except LedgerConflictError:
        name = f"{DATASET}-{plan.digest[:8]}"
        return Publisher(plan, dataset=name, ledger=ledger, budget=BUDGET, on_refusal="skip")


def _release_figure(published: _Published, *, private: bool) -> Figure:
    drawn = history.release_records(release for release in published.batch if release.tick < DRAWN)
    truth = history.truth_records(published.plan, published.panel)[:DRAWN] if private else ()
    return figures.release_figure(drawn, what="mean of the two wards", truth=truth)


def _released(figure: Figure, published: _Published, *, private: bool) -> Section:
    plan = published.plan
    svg = figures.inline_svg(
        figure,
        name="private" if private else "open",
        description="Published values and the estimate of the present mean",
    )
    [error] = published.batch.releases[0].standard_error
    constant = math.sqrt(moments(plan.model, plan.query, ages=plan.ages).cov_now[0, 0])
    words = (
        f"Dots: what was published at the first {DRAWN} ticks. Line and band: the best linear estimate of the present "
        f"mean from each dot, and two standard errors on either side. One standard error is {error:.3f}; the long-run "
        f"mean alone, without any data, has {constant:.3f}: two sequences that forget within a few steps leave little "
        "to estimate once their present is protected."
    )
    return Section("What was published", figure_block(svg, words))


def _spent(svg: str) -> Section:
    caption = (
        f"What everything published so far tells about the present, tick by tick. A release that would pass {BUDGET:g} "
        "is refused before any data is touched; while nothing is published the leakage falls, and releasing goes on."
    )
    return Section("The leakage stays under its budget", figure_block(svg, caption))


def _answer(table: LeakageTable, words: Guarantee) -> Section:
    notes = (
        "Epsilon bounds how much the release can shift anyone's belief: the odds between two present values change by "
        "at most a factor e to the power epsilon.",
        "It covers one release; several together tell more, except where a row says “any number of releases”.",
        "It is relative to the model. The bound “group” holds however sequences of one component are tied.",
    )
    return Section("One release, by every bound", guarantee_block(words, notes) + leakage_block(table))


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


def _model(chain: CoupledChain, certificate: Certificate, *, readings: str) -> Section:
    counts = certificate.counts
    summary = chain.summary()
    pairs = [
        ("Sequences", f"{chain.sequences}, with {chain.states} states each"),
        ("Moves", "0 to 1 and 1 to 0 with probability 0.3 a step"),
        ("Coupling", f"weight {SELF_COUPLING:g} on itself, {1 - SELF_COUPLING:g} on the other"),
        ("Differences shrink by", f"{summary.rate:.6g} per step"),
        ("Release", f"mean, age {AGE}, epsilon_c {EPSILON_C:g}"),
        ("Published", f"{counts['published']} of {TICKS} ticks; {counts['refused']} refused by the budget {BUDGET:g}"),
        ("Ledger", f"dataset {certificate.dataset}, head {certificate.ledger['head_hash']}"),
        ("Readings", f"{readings}; the noise comes from the operating system's randomness"),
        ("Digest", chain.digest),
    ]
    return Section("The model and the record", facts(pairs))
