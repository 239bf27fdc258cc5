"""Notebooks of the documentation: run when the site is built, and shown as pages with what they put out.

Sources are `notebooks/*.ipynb` without outputs. `run_notebook` runs their code as Jupyter would, in one namespace, and
keeps what is printed and what the last line of a cell evaluates to; `to_markdown` makes a page of it. The tests do the
same.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("agg")  # pictures without a window

FOLDER = Path(__file__).parent / "notebooks"


@dataclass(frozen=True)
class Cell:
    """A cell that was run: its source, what it printed, and what its last line evaluates to."""

    kind: str
    source: str
    printed: str = ""
    value: Any = None


def run_notebook(path: Path) -> list[Cell]:
    """Run the cells of a notebook in order; an error names the notebook and stops."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            cells.append(Cell("markdown", source))
            continue
        tree, value = ast.parse(source), None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            name = f"{path.name}, cell {number}"
            exec(compile(tree, name, "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        cells.append(Cell("code", source, printed.getvalue(), value))
    return cells


def to_markdown(cells: list[Cell]) -> str:
    """The page of a notebook that was run."""
    parts = []
    for cell in cells:
        parts.append(cell.source if cell.kind == "markdown" else f"```python\n{cell.source}\n```")
        if cell.printed:
            parts.append(f"```text\n{cell.printed.rstrip()}\n```")
        if cell.value is not None:
            parts.append(_show(cell.value))
    return "\n\n".join(parts) + "\n"


def _show(value: Any) -> str:
    """What Jupyter would show of a value: a picture, a table or a text."""
    if isinstance(value, Figure):
        words = ", ".join(label for axes in value.axes for label in (axes.get_ylabel(), axes.get_xlabel()) if label)
        file = io.BytesIO()
        value.savefig(file, format="png", dpi=100)
        content = base64.b64encode(file.getvalue()).decode()
        return f'<p><img alt="Picture: {html.escape(words)}" src="data:image/png;base64,{content}"></p>'
    page = getattr(value, "_repr_html_", None)
    if page is not None:
        return f'<div class="output">{" ".join(page().split())}</div>'
    return f"```text\n{value!r}\n```"


def on_config(config: Any) -> Any:
    """Name the version that the site describes at the foot of every page."""
    import csdp

    config.copyright = f"Documentation of csdp {csdp.__version__}"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every notebook to the site."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        content = f"{to_markdown(run_notebook(path))}\n[This notebook]({path.name}), to be opened in Jupyter.\n"
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=content))
    return files
