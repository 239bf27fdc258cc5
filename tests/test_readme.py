"""The README does what it says."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from csdp.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def test_python_runs_as_shown():
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted >= 5
    assert result.failed == 0


def test_it_is_ten_lines():
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^(?:>>>|\.\.\.) ", block, flags=re.MULTILINE)) == 10


def test_it_begins_with_three_sentences():
    first = README.read_text(encoding="utf-8").split("\n\n")[1]
    assert len(re.findall(r"\.(?:\s|$)", first)) == 3


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).exists(), link


def test_commands_run_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    csdp (.*)$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output
    certificate = json.loads(Path("released.csv.certificate.json").read_text(encoding="utf-8"))
    assert certificate["worth"]["usefulness"] >= 0.05, "it ends with a release that is hardly worth having"


def test_make_targets_exist():
    targets = re.findall(r"^    make (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "live", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_licence_is_the_one_named():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
