"""`python -m study.explain`: the figures of the explanation, into docs/assets/.

Each file carries the numbers that it draws, so that a test can hold them against what is computed today; its colours
follow the reader's (light or dark).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from csdp.report.figures import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, RED, SKY, THEME, inline_svg
from study import drawing, lessons
from study.lessons import Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAKAGE = "Leakage of the present, epsilon"
#: What the colours of a figure become where the reader has asked for a dark page.
DARK = {
    INK: "#e8edf2",
    QUIET: "#a3adb8",
    drawing.GRID: "#36404a",
    BLUE: "#5ab0e8",
    SKY: "#8fd0f5",
    GREEN: "#35c79a",
    PURPLE: "#e39cc2",
    ORANGE: "#f0b93a",
    RED: "#ff8a4c",
}


@dataclass(frozen=True)
class Lesson:
    """One figure: what is computed, how it is drawn, and what it shows in a sentence for those who cannot see it."""

    name: str
    numbers: Callable[[], Numbers]
    draw: Callable[[Numbers], Figure]
    shows: str

    def svg(self) -> str:
        """The file: numbers inside, colours for light and dark, the same bytes every time."""
        numbers = self.numbers()
        text = inline_svg(self.draw(numbers), name=self.name, description=self.shows)
        dark = " ".join(f"{THEME[colour]}: {value};" for colour, value in DARK.items())
        style = f"<style>@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
        rounded = {key: [float(f"{value:.6g}") for value in values] for key, values in numbers.items()}
        head = f'{style}\n<metadata id="numbers">{json.dumps(rounded)}</metadata>\n'
        sized = re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', _in_pixels, text, count=1)
        return re.sub(r"(<svg[^>]*>)", lambda match: f"{match[1]}\n{head}", sized, count=1) + "\n"


def _in_pixels(box: re.Match[str]) -> str:
    """The size that a page gives the figure; matplotlib counts in points."""
    width, height = (round(float(side) * 4 / 3) for side in box.groups())
    return f'width="{width}" height="{height}" {box[0]}'


def drawn_numbers(svg: str) -> Numbers:
    """The numbers that a file was drawn from."""
    match = re.search(r'<metadata id="numbers">(.*?)</metadata>', svg)
    assert match is not None
    numbers: Numbers = json.loads(match[1])
    return numbers


# ---- why plain noise is not enough -------------------------------------------------------------------------------


def _correlation(numbers: Numbers) -> Figure:
    drawn, (a, b) = drawing.panels(2, width=4.7, height=3.8)
    a.plot(lessons.TIED, numbers["tied"], color=BLUE, marker="o", linewidth=2.2, label="sequences follow each other")
    a.plot(lessons.TIED, numbers["independent"], color=GREEN, marker="s", linewidth=1.8, label="independent sequences")
    drawing.finish(a, title="Noise alone, fresh data", x="Number of sequences", y=LEAKAGE, legend="upper left")
    a.set_ylim(0, 4.4)
    a.set_xticks(lessons.TIED)
    b.plot(
        lessons.TIED_AGES, numbers["four tied, by age"], color=BLUE, marker="o", linewidth=2.2, label="four sequences"
    )
    b.axhline(numbers["epsilon_c"][0], label="what the noise alone promises", **drawing.NO_DATA)
    drawing.finish(b, title="The same noise, older data", x="Age of the data, steps", y="", legend="upper right")
    b.set_ylim(0, 4.4)
    return drawn


# ---- what is protected -------------------------------------------------------------------------------------------


def _guarantee(numbers: Numbers) -> Figure:
    drawn, (axes,) = drawing.panels(1, width=8.6, height=4.6)
    leakages = [*numbers["told so far"], *numbers["told in the end"] * 5]
    for ago, value in enumerate(leakages):
        colour = BLUE if ago == 0 else SKY if ago < lessons.AGE else ORANGE
        look = {"facecolor": "none", "linestyle": "--"} if ago > lessons.AGE else {"facecolor": colour}
        axes.bar(-ago, value, width=0.62, edgecolor=colour, zorder=3, **look)
        axes.annotate(f"{value:.2g}", (-ago, value), (0, 3), textcoords="offset points", ha="center", color=INK)
        box = {"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": colour, "linewidth": 1.8}
        for height, name in ((7.4, "A"), (6.5, "B")):
            axes.text(-ago, height, name, ha="center", va="center", color=INK, fontsize=9.5, bbox=box)
    words = {
        0: "present:\nprotected",
        -1: "not read\nyet",
        -2: "read by the\nrelease now",
        -5: "read by earlier releases",
    }
    for place, word in words.items():
        axes.text(place, 8.1, word, ha="center", va="bottom", color=INK, fontsize=9.5)
    axes.text(-5, 5.5, "at most, by all releases there will ever be", ha="center", color=INK, fontsize=9.5)
    axes.set_xticks(range(-7, 1), [*(f"{-ago} ago" for ago in range(-7, 0)), "now"])
    axes.set_xlim(-7.6, 0.6)
    axes.set_ylim(0, 9.3)
    axes.set_yticks(range(6))
    drawing.finish(axes, title="", x="Tick", y="Told of the state then, epsilon", legend=None)
    axes.grid(False)
    axes.spines["left"].set_bounds(0, 5)
    axes.yaxis.set_label_coords(-0.045, 0.27)
    return drawn


# ---- leakage against age -----------------------------------------------------------------------------------------

_LOOKS: dict[str, dict[str, Any]] = {
    "exact": {"color": INK, "marker": "o", "linewidth": 2.6, "zorder": 4},
    "profile": {"color": BLUE, "linewidth": 1.5},
    "loose": {"color": GREEN, "linewidth": 1.5},
    "freshness": {"color": ORANGE, "linewidth": 1.5},
    "printed-loose": {"color": RED, **drawing.PRINTED, "linewidth": 2.0},
}


def _by_age(numbers: Numbers) -> Figure:
    drawn, axes = drawing.panels(3, width=3.3, height=4.4)
    titles = ("The paper's chain (log scale)", "Rare events", "Slow and strongly tied")
    for panel, (name, (_, level, first, bounds)), title in zip(axes, lessons.PANELS.items(), titles, strict=True):
        ages = range(first, lessons.AGES[-1] + 1)
        for bound in bounds:
            label = {"printed-loose": "printed in the paper", "loose": "paper.loose"}
            panel.plot(ages, numbers[f"{name}, {bound}"], label=label.get(bound, bound), markersize=4, **_LOOKS[bound])
        exact, printed = (numbers[f"{name}, {bound}"] for bound in ("exact", "printed-loose"))
        below = [low < high for low, high in zip(printed, exact, strict=True)]
        panel.fill_between(ages, printed, exact, where=below, color=RED, alpha=0.15, linewidth=0)
        if name != "paper":
            panel.axhline(level, label=f"epsilon_c {level:g}", **drawing.NO_DATA)
        y = LEAKAGE if name == "paper" else ""
        drawing.finish(panel, title=title, x="Age of the data", y=y, log=name == "paper", legend="best")
        panel.set_xticks(ages)
    axes[1].set_ylim(0, 4.2)
    axes[2].set_ylim(0, 9.5)
    return drawn


# ---- error against leakage ---------------------------------------------------------------------------------------


def _trade_off(numbers: Numbers) -> Figure:
    drawn, axes = drawing.panels(2, width=4.7, height=4.2)
    titles = ("The paper's chain: age does not pay", "One slow sequence: age pays")
    for panel, name, title in zip(axes, ("paper", "slow"), titles, strict=True):
        for age, colour in zip(lessons.FRONTIER_AGES, (INK, BLUE, GREEN, ORANGE, PURPLE), strict=True):
            where, error = numbers[f"{name}, age {age}, leakage"], numbers[f"{name}, age {age}, error"]
            label = "age 0 (Laplace)" if age == 0 else f"age {age}"
            panel.plot(where, error, color=colour, marker=".", label=label, linewidth=2.4 if age == 0 else 1.6)
        panel.axhline(1.0, **drawing.NO_DATA)
        panel.text(0.045, 1.02, "publish nothing", color=INK, fontsize=8.5)
        drawing.finish(panel, title=title, x="Leakage of the present, epsilon (log)", y="", legend="lower left")
        panel.set_xscale("log")
        panel.set_xlim(0.04, 9)
        panel.set_xticks((0.05, 0.1, 0.2, 0.5, 1, 2, 5), ("0.05", "0.1", "0.2", "0.5", "1", "2", "5"))
        panel.set_ylim(0, 1.1)
        panel.text(
            0.97,
            0.97,
            "every line ends at epsilon_c 8",
            transform=panel.transAxes,
            color=INK,
            fontsize=8.5,
            ha="right",
            va="top",
        )
    axes[0].set_ylabel("Error, as a share of publishing nothing", color=INK)
    return drawn


# ---- the budget over time ----------------------------------------------------------------------------------------


def _budget(numbers: Numbers) -> Figure:
    drawn, (a, b) = drawing.panels(2, width=4.7, height=4.2)
    ticks = range(1, len(numbers["path"]) + 1)
    a.plot(ticks, numbers["path"], color=BLUE, linewidth=1.6)
    read = [tick for tick in ticks if tick not in lessons.QUIET]
    a.plot(read, [numbers["path"][t - 1] for t in read], "o", color=BLUE, markersize=5, label="release")
    a.axhline(numbers["limit"][0], color=BLUE, label="releases for ever", **drawing.PRINTED)
    a.axvspan(lessons.QUIET[0] - 0.5, lessons.QUIET[-1] + 0.5, color=QUIET, alpha=0.15, linewidth=0)
    a.text(sum(lessons.QUIET) / len(lessons.QUIET), 0.235, "nothing published", ha="center", color=INK, fontsize=8.5)
    drawing.finish(a, title="It settles, and recovers", x="Tick", y=LEAKAGE, legend="lower left")
    a.set_ylim(0, 0.25)
    path = sorted(
        [
            *zip(numbers["published"], numbers["present"], strict=True),
            *zip(numbers["refused"], numbers["meanwhile"], strict=True),
        ]
    )
    b.plot(*zip(*path, strict=True), color=BLUE, linewidth=1.6)
    b.plot(numbers["published"], numbers["present"], "o", color=BLUE, markersize=6, label="release")
    b.plot(
        numbers["published"],
        numbers["peak"],
        "_",
        color=ORANGE,
        markersize=14,
        markeredgewidth=2.4,
        label="peak charged for it",
    )
    b.plot(numbers["refused"], numbers["asked for"], "x", color=RED, markersize=5, label="refused: peak it would have")
    b.axhline(numbers["budget"][0], label=f"budget {numbers['budget'][0]:g}", **drawing.NO_DATA)
    drawing.finish(b, title="It can rise while nothing is published", x="Tick", y="", legend="lower right")
    b.set_ylim(0, 2.6)
    return drawn


# ---- a network ---------------------------------------------------------------------------------------------------


def _network(numbers: Numbers) -> Figure:
    drawn, (a, b) = drawing.panels(2, width=4.7, height=4.2)
    for age, colour, marker in ((1, BLUE, "o"), (2, GREEN, "s"), (4, ORANGE, "^")):
        reach = [value if value > 1e-12 else float("nan") for value in numbers[f"reach, age {age}"]]
        a.plot(range(len(reach)), reach, color=colour, marker=marker, label=f"age {age}", linewidth=1.8)
    a.axvline(1.5, **drawing.NO_DATA)
    a.text(1.45, 1.6e-7, "direct neighbours\nend here", color=INK, fontsize=8.5, ha="right", va="bottom")
    drawing.finish(
        a,
        title="Influence spreads beyond neighbours",
        x="Distance along the ring (0: itself)",
        y="Change of the past's law (log)",
        log=True,
    )
    a.set_xticks(range(lessons.RING // 2 + 1))
    a.set_ylim(1e-7, 1)
    looks: dict[str, dict[str, Any]] = {
        "one step": {"color": QUIET, "marker": "x", "label": "slice, one step"},
        "slice of 100,000": {"color": SKY, "marker": "s", "label": "slice, ring of 100,000"},
        "slice": {"color": BLUE, "marker": "D", "label": f"slice, ring of {lessons.RING}"},
        "freshness": {
            "color": INK,
            "marker": "o",
            "linewidth": 2.6,
            "label": f"freshness, ring of {lessons.RING}: needs every snapshot",
        },
    }
    for name, look in looks.items():
        b.plot(lessons.AGES, numbers[name], markersize=4, **{"linewidth": 1.6, **look})
    drawing.finish(
        b, title="Caps for any query, any number of releases", x="Age of the data", y=f"{LEAKAGE} (log)", log=True
    )
    b.set_xticks(lessons.AGES)
    return drawn


# ---- graph -------------------------------------------------------------------------------------------------------


def _graph(numbers: Numbers) -> Figure:
    drawn, (a,) = drawing.panels(1, width=8.2, height=3.4)
    rows = {"hall": 1.0, "kitchen": 0.0}
    arrow = {"arrowstyle": "-|>", "color": QUIET, "shrinkA": 17, "shrinkB": 17, "linewidth": 1.4}
    for newer in range(1, lessons.TICKS):
        for child, parent in (("hall", "hall"), ("kitchen", "kitchen"), ("hall", "kitchen")):
            a.annotate("", (newer - 1, rows[child]), (newer, rows[parent]), arrowprops=arrow)
    for name, y in rows.items():
        for tick, revealed in enumerate(numbers[name]):
            was_read = tick == lessons.TICKS - 1 - lessons.READ
            colour = ORANGE if (name, tick) == ("kitchen", lessons.TICKS - 1) else BLUE if was_read else QUIET
            a.plot(tick, y, "o", markersize=31, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=2)
            a.text(tick, y, f"{revealed:.2g}", ha="center", va="center", fontsize=9, color=INK)
        a.text(-0.62, y, name, ha="right", va="center", color=INK, fontsize=10)
    ages = [lessons.TICKS - 1 - tick for tick in range(lessons.TICKS)]
    for tick, age in enumerate(ages):
        words = "now" if age == 0 else f"{age} tick{'s' * (age > 1)} ago"
        a.text(tick, -0.62, words + (", read" if age == lessons.READ else ""), ha="center", color=INK, fontsize=9)
    a.set_xlim(-1.5, lessons.TICKS - 0.4)
    a.set_ylim(-0.8, 1.5)
    a.axis("off")
    return drawn


# ---- noise -------------------------------------------------------------------------------------------------------


def _noise(numbers: Numbers) -> Figure:
    drawn, (a, b) = drawing.panels(2, width=4.7, height=4.2)
    middles = [edge + 0.25 for edge in lessons.EDGES[:-1]]
    for answer, colour in ((0.0, BLUE), (0.5, ORANGE)):
        seen = [share or float("nan") for share in numbers[f"seen, {answer:g}"]]
        a.plot(middles, numbers[f"law, {answer:g}"], color=colour, linewidth=1.6)
        a.plot(middles, seen, "o", color=colour, markersize=4, label=f"true mean {answer:g}")
    drawing.finish(
        a,
        title="Releases of two answers",
        x="Published value",
        y="Share of releases (log)",
        log=True,
        legend="lower center",
    )
    a.set_ylim(1e-4, 0.6)
    for kind, colours in (("float", (RED, ORANGE)), ("lattice", (BLUE, SKY))):
        for answer, colour in zip((0.0, 0.5), colours, strict=True):
            label = {"float": "floating-point noise", "lattice": "our noise"}[kind] + f", true mean {answer:g}"
            style = {"linestyle": "-" if answer == 0 else (0, (2, 1.5)), "linewidth": 1.8}
            b.step(lessons.BITS, numbers[f"{kind}, {answer:g}"], where="mid", color=colour, label=label, **style)
    drawing.finish(
        b,
        title="What the low bits give away",
        x="Lowest bit set in the output: 2 to the power",
        y="Share of releases",
        legend="upper center",
    )
    b.set_ylim(0, 0.72)
    return drawn


LESSONS = (
    Lesson(
        "correlation",
        lessons.correlation,
        _correlation,
        "Leakage of one release with the same noise. It grows with the number of sequences that follow each other, "
        "stays at 1 where they are independent, and falls as the data gets older.",
    ),
    Lesson(
        "guarantee",
        lessons.guarantee,
        _guarantee,
        "A timeline of two wards. What all releases reveal about the state at a tick is least for the present and "
        "grows for ticks that have been read.",
    ),
    Lesson(
        "leakage-by-age",
        lessons.by_age,
        _by_age,
        "Leakage against age on three chains. The proven bounds lie above the exact leakage; the printed formula lies "
        "below it on the second and third chain.",
    ),
    Lesson(
        "error-against-leakage",
        lessons.trade_off,
        _trade_off,
        "Error against leakage, a line for each age, on two chains, under the line of publishing nothing.",
    ),
    Lesson(
        "budget",
        lessons.budget,
        _budget,
        "Leakage of the present tick by tick: it settles while releases go on, falls while nothing is published, and "
        "on a slow pair first rises after a release; releases whose peak would pass the budget are refused.",
    ),
    Lesson(
        "network",
        lessons.network,
        _network,
        "On a ring, the influence of a present state on the past of others against their distance; and caps of the "
        "leakage against age.",
    ),
    Lesson(
        "graph",
        lessons.graph,
        _graph,
        "Two sequences over five ticks, the past drawn from the present along arrows. What one release reveals of the "
        "values that it reads, 0.5, shrinks with every arrow on the way back to the present.",
    ),
    Lesson(
        "noise",
        lessons.noise,
        _noise,
        "Shares of releases of two answers, which lie a constant factor apart; and the lowest bits of outputs, which "
        "tell the answer where noise is floating-point, and nothing where it lies on a lattice.",
    ),
)


def main(arguments: list[str] | None = None) -> None:
    """Write every figure."""
    parser = argparse.ArgumentParser(prog="python -m study.explain", description="The figures of the explanation.")
    parser.add_argument("--out", type=Path, default=Path("docs/assets"), help="folder for the figures")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    with console.status("figures") as status:
        for lesson in LESSONS:
            status.update(f"figure: {lesson.name}")
            (options.out / f"{lesson.name}.svg").write_text(lesson.svg(), encoding="utf-8")
    console.print(f"{len(LESSONS)} figures in {options.out}")


if __name__ == "__main__":
    main()
