"""Figures of the explanation: what is drawn is what is computed, and what the text beside them says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from study.explain import LESSONS, drawn_numbers

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
    "graph": {"0.4", "0.15"},
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
def test_the_text_states_what_is_drawn(name):
    shows, text = beside(name)
    assert shows == BY_NAME[name].shows
    values = [value for series in computed(name).values() for value in series]
    stated = [number for number in re.findall(r"(?<![\w.^-])\d+\.\d+", text) if number not in SETTINGS[name]]
    assert stated or name == "noise"
    for number in stated:
        digits = len(number.partition(".")[2])
        assert any(abs(value - float(number)) <= 0.5000001 * 10**-digits for value in values), number
