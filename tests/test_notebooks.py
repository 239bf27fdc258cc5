"""The notebooks of the documentation run, are kept without outputs, and end in a release that is worth having."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def runner():
    specification = importlib.util.spec_from_file_location("docs_notebooks", DOCS / "notebooks.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_ends_in_a_useful_release(runner, path, monkeypatch, tmp_path, estimated):
    monkeypatch.chdir(tmp_path)
    cells = runner.run_notebook(path)
    assert estimated, "nothing is released"
    page = runner.to_markdown(cells)
    assert page.count('src="data:image/png;base64,') >= 1
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


def test_an_error_says_where(runner, tmp_path):
    content = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    content["cells"][2]["source"] = ["1 / 0"]
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as error:
        runner.run_notebook(path)
    assert "broken.ipynb, cell 2" in str(error.traceback[-1].path)
