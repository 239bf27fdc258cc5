"""The repository as a whole: pages run as shown and lead somewhere, and public names are documented."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer.main
from typer.testing import CliRunner

import csdp
from csdp.bounds.result import BOUNDS
from csdp.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
#: Notebooks, which become pages when the site is built.
NOTEBOOKS = {path.with_suffix(".md") for path in (DOCS / "notebooks").glob("*.ipynb")}
CLASSES = [name for name in csdp.__all__ if inspect.isclass(getattr(csdp, name))]


def commands(command, path=("csdp",)):
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


# ---- pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda path: path.name)
@pytest.mark.usefixtures("estimated")
def test_python_runs_as_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert all(block.startswith(">>> ") for block in blocks)
    assert doctest.testfile(str(page), module_relative=False).failed == 0


@pytest.mark.parametrize("page", [README, DOCS / "command-line.md"], ids=lambda path: path.name)
def test_commands_run_as_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^    csdp (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(shown) >= 4
    for command in shown:
        if not command.startswith("demo"):  # it has a test of its own
            result = CliRunner().invoke(app, shlex.split(command))
            assert result.exit_code == 0, f"csdp {command}: {result.output}"
    for certificate in tmp_path.glob("*.certificate.json"):
        worth = json.loads(certificate.read_text(encoding="utf-8"))["worth"]
        assert worth["usefulness"] >= 0.05, "it ends with a release that is hardly worth having"


def test_make_targets_of_the_readme_exist():
    targets = re.findall(r"^    make (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_no_command_is_shown_that_publishes_what_is_not_worth_having():
    """Releases stop below 5 %, and tests run what is shown: only --anyway would go on."""
    shown = [line for page in [README, *PAGES] for line in page.read_text("utf-8").splitlines()]
    assert not [line for line in shown if line.startswith("    csdp ") and "--anyway" in line]


def test_every_command_and_option_is_documented():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for path, command in commands(typer.main.get_command(app)):
        assert " ".join(path) in text
        for parameter in command.params:
            names = [option for option in parameter.opts if option.startswith("--")]
            if parameter.param_type_name == "option" and not {"--help", "--version"} & set(names):
                assert any(re.search(rf"{name}\b", text) for name in names), f"{' '.join(path)}: {names}"


def slugs(page):
    """The anchors of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


def test_links_lead_to_pages_and_headings():
    for page in [README, *PAGES]:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve() if link else page
            assert target.exists() or target in NOTEBOOKS, f"{page.name}: {link}"
            assert not anchor or anchor in slugs(target), f"{page.name}: {link}#{anchor}"


def test_every_page_is_in_the_navigation_and_on_the_front_page():
    navigation = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    there = {page.relative_to(DOCS).as_posix() for page in (*PAGES, *NOTEBOOKS)}
    assert navigation == there
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    assert there - {"index.md"} <= set(re.findall(r"\]\(([\w/-]+\.md)\)", front))


def test_every_picture_is_shown_and_described():
    shown = {}
    for page in PAGES:
        for words, name in re.findall(r"!\[([^\]]*)\]\(assets/([\w.-]+)\)", page.read_text(encoding="utf-8")):
            shown[name] = words
    assert set(shown) == {path.name for path in (DOCS / "assets").iterdir()} - {"iframe-worker.js"}
    assert all(len(words) > 40 for words in shown.values())


def test_the_glossary_has_every_bound():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    assert not [name for name in BOUNDS if name not in {"auto", "exact"} and f"`{name}`" not in text]


def test_named_tests_and_functions_exist():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in set(re.findall(r"`(tests/[\w/.]+)`", text)):
        assert (ROOT / name).exists(), name
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("theory.md", "proofs.md"))
    assert set(re.findall(r"`csdp\.(\w+)", text)) <= set(dir(csdp))


def test_every_theorem_links_to_its_proof():
    blocks = (DOCS / "theory.md").read_text(encoding="utf-8").split("\n\n")
    theorems = [block for block in blocks if block.startswith("**Theorem")]
    assert theorems
    for block in theorems:
        assert re.search(r"\[proof\]\(proofs[\w-]*\.md#[\w-]+\)", block), block.splitlines()[0]


def load_mathml():
    spec = importlib.util.spec_from_file_location("mathml", DOCS / "mathml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def formulas(page):
    """(TeX, whether it is a display) of everything between dollars, outside of code."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    for tex in re.findall(r"\$\$(.+?)\$\$", text, flags=re.DOTALL):
        yield tex, True
    for tex in re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL)):
        yield tex, False


def test_every_formula_becomes_well_formed_mathml():
    mathml = load_mathml()
    assert doctest.testmod(mathml).failed == 0
    found = [each for page in PAGES for each in formulas(page)]
    assert len(found) > 100
    for tex, display in found:
        assert display or ("\n" not in tex and tex == tex.strip()), f"a formula in a line has one line: {tex}"
        root = ElementTree.fromstring(mathml.mathml(tex, display=display))
        assert "".join(root.itertext()).strip()
    with pytest.raises(ValueError, match="not known"):
        mathml.mathml(r"\oint x")


# ---- public names --------------------------------------------------------------------------------------------------


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_public_names_are_sorted_documented_and_in_the_reference():
    assert csdp.__all__ == sorted(set(csdp.__all__))
    named = re.findall(r"^::: (\S+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(csdp.__all__) <= {name.split(".")[-1] for name in named}
    for name in named:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name
    for name in csdp.__all__:
        found = getattr(csdp, name)
        own = inspect.getdoc(found) if not inspect.isclass(found) else found.__doc__
        assert own, f"csdp.{name} has no docstring"
        assert not own.startswith(f"{name}("), f"csdp.{name} has only the docstring that dataclasses make up"
        assert name in dir(csdp)
    with pytest.raises(AttributeError, match="no_such_name"):
        csdp.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_is_documented(name):
    for key, member in inspect.getmembers(getattr(csdp, name)):
        if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{name}.{key}"


def test_importing_is_light_and_gives_exactly_the_public_names():
    loaded = set(json.loads(python("import csdp, sys, json; print(json.dumps(list(sys.modules)))")))
    assert not loaded & {"scipy.stats", "matplotlib", "numba", "sqlalchemy", "typer", "pyarrow", "rich"}
    names = python("from csdp import *\nprint([name for name in dir() if name[0] != '_'])")
    assert names.strip() == str(csdp.__all__)


# ---- source --------------------------------------------------------------------------------------------------------


def test_paths_of_mutation_testing_and_of_coverage_exist():
    import mutation

    for room, tests in mutation.ROOMS.items():
        assert isinstance(tests, tuple)
        assert all((ROOT / path).exists() for path in (f"src/csdp/{room}", *(f"tests/{name}" for name in tests)))
    covering = re.search(r"^COVERING := (.*?[^\\])$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for folder, names in re.findall(r"addprefix ([\w/]+),([^)]*)\)", covering[1]):
        assert all((ROOT / folder / name).exists() for name in names.replace("\\", " ").split()), folder


def test_no_test_can_pass_by_returning_early_or_by_catching_its_own_assertion():
    """A test that returns early is a skip, and one that catches AssertionError cannot fail."""
    weak = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(test, ast.FunctionDef) and test.name.startswith("test_")):
                continue
            inner = {
                node
                for part in ast.walk(test)
                if isinstance(part, ast.FunctionDef | ast.Lambda | ast.ClassDef) and part is not test
                for node in ast.walk(part)
            }
            for node in ast.walk(test):
                returns = isinstance(node, ast.Return) and node not in inner
                catches = isinstance(node, ast.ExceptHandler) and (
                    node.type is None or "AssertionError" in ast.unparse(node.type)
                )
                if returns or catches:
                    weak.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not weak, "\n".join(weak)
