"""Figures of the explanation: what is drawn is what is computed, and what the text beside them says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from study.explain import LESSONS, drawn_numbers, main

import csdp
import oracle
from study import lessons

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("theory", "guarantees")}
BY_NAME = {lesson.name: lesson for lesson in LESSONS}
#: Numbers in a text that are its setting, not a result: couplings, chances, levels and limits.
SETTINGS = {
    "correlation": {"0.02"},
    "guarantee": set(),
    "leakage-by-age": {"0.75", "0.3", "0.01", "0.5", "0.001", "0.1"},
    "error-against-leakage": set(),
    "budget": {"0.5", "0.02", "0.7", "1.5"},
    "network": {"0.8", "0.1", "0.3"},
    "noise": {"0.5"},
}


@cache
def computed(name):
    return BY_NAME[name].numbers()


def beside(name):
    """The picture's words for those who cannot see it, and the paragraph after it, on the one page that shows it."""
    found = [
        re.search(rf"!\[([^\]]+)\]\(assets/{name}\.svg\)\n\n(\*In the figure\..*?)\n\n", t, re.DOTALL)
        for t in PAGES.values()
    ]
    (only,) = [each for each in found if each]
    return only[1], " ".join(only[2].split())


@pytest.mark.parametrize("name", BY_NAME)
def test_the_committed_figure_has_the_numbers_of_today(name):
    """`python -m study.explain` draws them anew."""
    svg = (ROOT / "docs" / "assets" / f"{name}.svg").read_text(encoding="utf-8")
    drawn = drawn_numbers(svg)
    assert drawn.keys() == computed(name).keys()
    for key, values in computed(name).items():
        assert drawn[key] == pytest.approx(values, rel=1e-4, abs=1e-12), key
    assert "prefers-color-scheme: dark" in svg
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", svg).replace("http://www.w3.org/TR/html4", "")


@pytest.mark.parametrize("name", BY_NAME)
def test_every_number_is_drawn(name):
    figure = BY_NAME[name].draw(computed(name))
    seen = set()
    for axes in figure.axes:
        seen |= {round(float(value), 9) for line in axes.lines for value in np.ravel(line.get_xydata())}
        seen |= {round(float(bar.get_height()), 9) for bar in axes.patches if hasattr(bar, "get_height")}
    told_only = {"epsilon_c", "event", "step", "scale", "ticks ago"}
    for key, values in computed(name).items():
        if key not in told_only and "fresh at" not in key:
            assert {round(value, 9) for value in values if value > 1e-12} <= seen, key


@pytest.mark.parametrize("name", BY_NAME)
def test_the_text_states_what_is_drawn(name):
    shows, text = beside(name)
    assert shows == BY_NAME[name].shows
    values = [value for series in computed(name).values() for value in series]
    stated = [number for number in re.findall(r"(?<![\w.^-])\d+\.\d+", text) if number not in SETTINGS[name]]
    assert stated or name == "noise"
    for number in stated:
        digits = len(number.partition(".")[2])
        assert any(abs(value - float(number)) <= 0.5000001 * 10**-digits for value in values), number


def test_a_wrong_number_would_be_noticed():
    """The comparison above can fail: of all numbers with two digits below 1, most are drawn in no figure."""
    values = [value for series in computed("guarantee").values() for value in series]
    near = [n for n in range(100) if any(abs(value - n / 100) <= 0.005 for value in values)]
    assert len(near) < 10


# ---- what the texts say in words -----------------------------------------------------------------------------------


#: The chains of the panels once more: weight on oneself, chance from 0 to 1, chance back.
CHAINS = {"paper": (0.75, 0.3, 0.3), "rare": (0.75, 0.01, 0.3), "slow": (0.5, 0.001, 0.1)}


def enumerated(name, age, epsilon_c):
    """Exact leakage of the mean by enumeration that shares no code with csdp."""
    own, p, q = CHAINS[name]
    kernel = oracle.joint_kernel([[own, 1 - own], [1 - own, own]], [[1 - p, p], [q, 1 - q]])
    aged, law = oracle.aged_law(kernel, 2, 2, [age, age])
    answers = oracle.query_values("mean", 2, 2, [0, 1])
    return oracle.exact_leakage(aged, answers, 2, 2, epsilon_c, 0.5, "informed", law)


def test_correlation():
    numbers = computed("correlation")
    assert numbers["tied"] == sorted(numbers["tied"])
    assert numbers["independent"] == pytest.approx([1.0] * len(lessons.TIED))
    assert numbers["four tied, by age"] == sorted(numbers["four tied, by age"], reverse=True)
    assert numbers["four tied, by age"][0] == pytest.approx(numbers["tied"][3])
    for count, age, found in ((3, 0, numbers["tied"][2]), (4, 2, numbers["four tied, by age"][2])):
        kernel = oracle.joint_kernel([[1 / count] * count] * count, [[0.98, 0.02], [0.02, 0.98]])
        aged, law = oracle.aged_law(kernel, count, 2, [age] * count)
        answers = oracle.query_values("mean", count, 2, [0, 1])
        truth = oracle.exact_leakage(aged, answers, count, 2, 1.0, 1 / count, "uninformed", law)
        assert found == pytest.approx(truth, rel=1e-9)


def test_leakage_by_age():
    numbers = computed("leakage-by-age")
    for name, (_, level, first, _) in lessons.PANELS.items():
        assert numbers[f"{name}, exact"][2] == pytest.approx(enumerated(name, first + 2, level), rel=1e-9)
        for bound in ("profile", "loose", "freshness"):
            if f"{name}, {bound}" in numbers:
                line = numbers[f"{name}, {bound}"]
                assert all(high >= low for high, low in zip(line, numbers[f"{name}, exact"], strict=True))
                assert line == sorted(line, reverse=True)
    below = {
        name: [p < e for p, e in zip(numbers[f"{name}, printed-loose"], numbers[f"{name}, exact"], strict=True)]
        for name in lessons.PANELS
    }
    assert not any(below["paper"])
    assert below["rare"] == [False] + 7 * [True]
    assert below["slow"] == [False] + 8 * [True]
    assert max(numbers["slow, exact"]) == numbers["slow, exact"][1] > numbers["slow, exact"][0]


def test_error_against_leakage():
    numbers = computed("error-against-leakage")
    for age in lessons.FRONTIER_AGES[1:]:
        ends = {name: numbers[f"{name}, age {age}, error"][-1] for name in ("paper", "slow")}
        assert (
            ends["paper"] > numbers[f"paper, fresh at the end of age {age}"][0] - 2e-4
        )  # beyond that, nothing is gained at all
        assert ends["slow"] < numbers[f"slow, fresh at the end of age {age}"][0]
    noise = 2 * np.exp(-8) / (1 - np.exp(-8)) ** 2
    by_hand = 0.25 * (1 - 0.25 / (0.25 + noise))  # best linear estimate of a fair coin under geometric noise
    assert numbers["slow, age 0, error"][-1] * 0.25 == pytest.approx(by_hand, rel=1e-4)


def test_budget():
    numbers = computed("budget")
    assert max(numbers["path"]) <= numbers["limit"][0] * (1 + 1e-9)
    quiet = [numbers["path"][tick - 1] for tick in (lessons.QUIET[0] - 1, *lessons.QUIET)]
    assert quiet == sorted(quiet, reverse=True)
    assert numbers["published"] == [0, 7, 22]
    assert numbers["refused"][:6] == [1, 2, 3, 4, 5, 6]
    ceiling = numbers["budget"][0]
    assert max(numbers["peak"]) <= ceiling < min(numbers["asked for"])
    assert max(numbers["meanwhile"]) <= ceiling
    assert numbers["meanwhile"][1] == pytest.approx(numbers["peak"][0])
    assert numbers["peak"][0] > numbers["present"][0]


def test_network():
    numbers = computed("network")
    assert numbers["reach, age 4"][3] > 1e-4
    assert len(set(numbers["one step"])) == 1
    for least, small, large in zip(numbers["freshness"], numbers["slice"], numbers["slice of 100,000"], strict=True):
        # At age 1 both rings have the same range, each rounded up in its own way.
        assert least <= small <= large * (1 + 1e-9) <= numbers["one step"][0] * (1 + 2e-9)


def test_noise():
    numbers = computed("noise")
    assert numbers["step"] == [0.5]
    laws = [np.array(numbers[f"law, {answer}"]) for answer in ("0", "0.5")]
    gap = abs(np.log(laws[0] / laws[1]))
    assert gap == pytest.approx(1)
    for law, seen in zip(laws, (numbers["seen, 0"], numbers["seen, 0.5"]), strict=True):  # a fixed seed: six sigmas
        assert (abs(np.array(seen) - law) <= 6 * np.sqrt(law / lessons.DRAWS) + 1 / lessons.DRAWS).all()
    places = np.array(lessons.BITS)
    for answer in ("0", "0.5"):
        assert not np.array(numbers[f"lattice, {answer}"])[places < -1].any()
    lowest = np.array(numbers["float, 0.5"])[places < -54].sum(), np.array(numbers["float, 0"])[places < -54].sum()
    assert lowest[0] == 0
    assert f"{lowest[1]:.0%}".replace("%", " %") in beside("noise")[1]


def test_guarantee():
    """The tutorial's accountant, asked again in another way: the state of a smaller age is the same history, nearer."""
    numbers = computed("guarantee")
    plan = csdp.Plan(lessons.pair(0.75), csdp.Mean(), ages=2, epsilon_c=1.0)
    assert numbers["told so far"][0] == pytest.approx(csdp.Accountant(plan).after(100).epsilon, rel=1e-6)
    assert numbers["told so far"] == sorted(numbers["told so far"])
    assert numbers["told in the end"][0] > numbers["told so far"][-1]


def test_a_figure_drawn_again_has_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("study.explain.LESSONS", (BY_NAME["leakage-by-age"],))
    for turn in ("a", "b"):
        main(["--out", str(tmp_path / turn)])
    drawn = [(tmp_path / turn / "leakage-by-age.svg").read_bytes() for turn in ("a", "b")]
    assert drawn[0] == drawn[1]
