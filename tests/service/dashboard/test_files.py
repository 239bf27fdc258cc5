"""The files of the dashboard: complete, packaged, and asking nobody else for anything."""

import re
from importlib.resources import files

import pytest

FOLDER = files("csdp.service") / "dashboard"
TEXTS = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
SCRIPTS = sorted(name for name in TEXTS if name.endswith(".js"))
SVG_NAME = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_nothing_comes_from_another_host(name):
    assert "://" not in TEXTS[name].replace(SVG_NAME, "")
    assert not re.search(r"""["'(]//""", TEXTS[name])


def test_the_page_has_no_script_or_style_in_its_markup():
    page = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert re.findall(r"\s(?:style|on\w+)=", page) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_enters_the_page_as_markup_or_code(name):
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "localStorage",
    ):
        assert word not in TEXTS[name]
