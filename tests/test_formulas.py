"""Formulas of the pages: TeX that docs/mathml.py knows, turned into well-formed MathML."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def loaded():
    spec = importlib.util.spec_from_file_location("mathml", DOCS / "mathml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOK = loaded()


def formulas(page):
    """(TeX, whether it is a display) of everything between dollars, outside of code."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    for tex in re.findall(r"\$\$(.+?)\$\$", text, flags=re.DOTALL):
        yield tex, True
    for tex in re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL)):
        yield tex, False


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if any(formulas(page))]


def test_examples_of_the_converter():
    assert doctest.testmod(HOOK).failed == 0


def test_theory_and_proofs_have_formulas():
    assert {"theory.md", "proofs.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_formula_becomes_well_formed_mathml(page):
    for tex, display in formulas(page):
        assert "\n\n" not in tex, f"a paragraph ends inside of a formula: {tex}"
        assert display or ("\n" not in tex and tex == tex.strip()), f"a formula in a line has one line: {tex}"
        root = ElementTree.fromstring(HOOK.mathml(tex, display=display))
        assert "".join(root.itertext()).strip()


def test_a_page_gets_mathml_in_the_place_of_tex():
    page = (
        '<p>So <span class="arithmatex">\\(a &lt; b\\)</span>.</p>'
        '<div class="arithmatex">\\[\n\\sum_k x_k^2\n\\]</div><pre>\\(a\\)</pre>'
    )
    assert HOOK.on_page_content(page) == (
        "<p>So <math><mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow></math>.</p>"
        '<math display="block"><mrow><munder><mo>∑</mo><mi>k</mi></munder>'
        "<msubsup><mi>x</mi><mi>k</mi><mn>2</mn></msubsup></mrow></math><pre>\\(a\\)</pre>"
    )


def test_what_is_not_known_is_an_error():
    with pytest.raises(ValueError, match="not known"):
        HOOK.mathml(r"\oint x")
    with pytest.raises(ValueError, match="missing"):
        HOOK.mathml("{x")
    with pytest.raises(ValueError, match="generic"):
        HOOK.on_page_content('<script class="arithmatex">x</script>')
