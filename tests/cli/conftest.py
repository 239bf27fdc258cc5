from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from csdp import CoupledChain, Plan
from csdp.chain.files import load_model, save_model
from csdp.cli import app
from csdp.estimate.result import About
from csdp.panel import Discretiser
from csdp.planning.plan_file import PlanFile
from csdp.query import parse_query

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run() -> Run:
    """Run a command inside this process; a test may demand the exit code."""

    def call(*args: str | Path, code: int = 0, stdin: str | None = None) -> Any:
        result = CliRunner().invoke(app, [str(a) for a in args], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def fails(run: Run) -> Run:
    """Run a command that must fail with one line on stderr; gives back that line."""

    def call(*args: str | Path, code: int = 2, stdin: str | None = None) -> str:
        result = run(*args, code=code, stdin=stdin)
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("csdp: ")
        assert "Traceback" not in lines[0]
        return str(lines[0])

    return call


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """The paper's chain in a file."""
    path = tmp_path / "chain.json"
    save_model(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), path)
    return path


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a plan file for a chain file, and give back its path."""

    def call(
        chain: Path, *, age: int = 2, level: float = 1.0, about: About = "then", states: Path | None = None, **how: Any
    ) -> Path:
        discretiser = None if states is None else Discretiser.load(states)
        query = parse_query(how.pop("query", "mean"))
        path = tmp_path / "plan.json"
        PlanFile(Plan(load_model(chain), query, age, level, **how), about, None, discretiser).save(path)
        return path

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Write some content, as JSON unless it is text, and give back the path."""

    def call(content: str | Sequence[Any] | dict[str, Any]) -> Path:
        path = tmp_path / "given.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return call
