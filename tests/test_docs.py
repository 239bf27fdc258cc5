"""The documentation does what it says: code runs, commands exist, links and named tests are there."""

from __future__ import annotations

import doctest
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import typer.main
from typer.testing import CliRunner

import csdp
from csdp.bounds.adversary import Adversary
from csdp.bounds.result import Bound
from csdp.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
#: Notebooks, which become pages when the site is built.
NOTEBOOKS = {path.with_suffix(".md") for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}


def commands(command, path=("csdp",)):
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
@pytest.mark.usefixtures("estimated")
def test_python_runs_as_shown(page):
    result = doctest.testfile(str(page), module_relative=False)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_python_block_is_one_that_runs(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert all(block.startswith(">>> ") for block in blocks)


def test_the_guides_have_code():
    for name, least in (
        ("tutorial.md", 15),
        ("errata.md", 15),
        ("guarantees.md", 5),
        ("theory.md", 4),
        ("contributing.md", 25),
    ):
        parsed = doctest.DocTestParser().get_examples((ROOT / "docs" / name).read_text(encoding="utf-8"))
        assert len(parsed) >= least


def test_commands_run_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    csdp (.*)$", text, flags=re.MULTILINE)
    assert len(shown) >= 10
    for command in shown:
        if command.startswith("demo"):  # it takes a minute and has a test of its own
            continue
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, f"csdp {command}: {result.output}"


def test_no_command_is_shown_that_publishes_what_is_not_worth_having():
    """`csdp plan` and `csdp release` stop below 5 %, and tests run what is shown: only --anyway would go on."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [line for page in pages for line in re.findall(r"^    csdp .*$", page.read_text("utf-8"), re.MULTILINE)]
    assert len(shown) > 40
    assert not [line for line in shown if "--anyway" in line]


def test_every_command_and_option_is_documented():
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for path, command in commands(typer.main.get_command(app)):
        assert " ".join(path) in text
        for parameter in command.params:
            names = [option for option in parameter.opts if option.startswith("--")]
            if parameter.param_type_name == "option" and not {"--help", "--version"} & set(names):
                assert any(re.search(rf"{name}\b", text) for name in names), f"{' '.join(path)}: {names}"


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            assert target.exists() or target in NOTEBOOKS, f"{page.name}: {link}"


def slugs(page):
    """The anchors of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


def test_links_lead_to_headings():
    found = 0
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert anchor in slugs(target), f"{page.name}: {link}#{anchor}"
            found += 1
    assert found > 5


def test_every_page_is_in_the_navigation_and_on_the_front_page():
    navigation = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (*PAGES, *NOTEBOOKS)}
    assert navigation == there
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert there - {"index.md"} <= set(re.findall(r"\]\(([\w/-]+\.md)\)", front))


def test_every_picture_is_shown_and_described():
    shown = {}
    for page in PAGES:
        for words, name in re.findall(r"!\[([^\]]*)\]\(assets/([\w.-]+)\)", page.read_text(encoding="utf-8")):
            shown[name] = words
    assert set(shown) == {path.name for path in (ROOT / "docs" / "assets").iterdir()} - {"iframe-worker.js"}
    assert all(len(words) > 40 for words in shown.values())


def test_the_glossary_has_the_words_of_the_interface():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = {word.strip() for row in re.findall(r"^\| ([^|]+) \|", text, flags=re.MULTILINE) for word in row.split(",")}
    assert {"present", "event", "group", "lifetime", "budget", "epsilon_c", "epsilon_s", "adversary", "stale"} <= words
    for name in {*get_args(Bound), *get_args(Adversary)} - {"auto", "exact"}:
        assert f"`{name}`" in text, name


def test_named_tests_and_functions_exist():
    pages = ("theory.md", "statements.md", "proofs.md", "proofs-networks.md")
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages)
    for name in set(re.findall(r"`(tests/[\w/.]+)`", text)):
        assert (ROOT / name).exists(), name
    for name in set(re.findall(r"`csdp\.(\w+)", text)):
        assert name in dir(csdp)


def test_every_theorem_links_to_its_proof():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    theorems = [block for block in text.split("\n\n") if block.startswith("**Theorem")]
    assert len(theorems) >= 8
    for block in theorems:
        assert re.search(r"\[proof\]\(proofs[\w-]*\.md#[\w-]+\)", block), block.splitlines()[0]


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = {line.split(".")[-1] for line in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)}
    assert set(csdp.__all__) <= named


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE))
def test_names_of_the_reference_can_be_found(name):
    module, _, last = name.rpartition(".")
    assert hasattr(import_module(module), last)
