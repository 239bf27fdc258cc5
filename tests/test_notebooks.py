"""The notebooks of the documentation run, are kept without outputs, and end in a release that is worth having."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def runner():
    specification = importlib.util.spec_from_file_location("docs_notebooks", DOCS / "notebooks.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["audit-and-attack", "first-release", "live", "own-data"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_ends_in_a_useful_release(runner, path, monkeypatch, tmp_path, estimated):
    monkeypatch.chdir(tmp_path)
    cells = runner.run_notebook(path)
    assert estimated, "nothing is released"
    page = runner.to_markdown(cells)
    assert page.count('src="data:image/png;base64,') >= 1
    assert '<div class="csdp" ' in page
    assert not list(tmp_path.iterdir()), "it leaves files behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sources_have_no_outputs_and_the_format_that_jupyter_reads(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert re.fullmatch(r"[a-zA-Z0-9-_]+", cell["id"])
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert notebook["cells"][0]["source"][0].startswith("# ")


@pytest.fixture(scope="module")
def shown(runner):
    """Pictures, tables and words of the first notebook."""
    cells = runner.run_notebook(DOCS / "notebooks" / "first-release.ipynb")
    return [runner._show(cell.value) for cell in cells if hasattr(cell.value, "to_pandas") or "plot()" in cell.source]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1200, "light"),
        (390, "dark"),
        pytest.param(1200, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
def test_what_a_notebook_shows_in_a_browser(shown, browser, width, scheme):
    """All there, nothing wider than the page, accessible."""
    style = "body {background: canvas; color: canvastext; font-family: sans-serif} img {max-width: 100%}"
    head = f'<title>x</title><meta name="color-scheme" content="light dark"><style>{style}</style>'
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_content(f'<html lang="en"><head>{head}</head><body><main><h1>x</h1>{"".join(shown)}</main></body></html>')
    assert complaints == []
    assert page.locator(".csdp table").count() >= 4
    assert all(page.evaluate("[...document.images].map(image => image.naturalWidth > 300)"))
    assert page.locator("img").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    page.close()


def test_an_error_says_where(runner, tmp_path):
    content = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    content["cells"][1]["source"] = ["1 / 0"]
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as error:
        runner.run_notebook(path)
    assert "broken.ipynb, cell 1" in str(error.traceback[-1].path)
