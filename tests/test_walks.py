"""The walks of docs/contributing.md: every file that they name exists, and every function is defined in its file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from walks import walk_leakage

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")


def read_walks(text):
    """{question: [(file, names)]} of the section "Find your way"; names in a line belong to the file before them."""
    section = re.search(r"^## Find your way\n(.*?)^## ", text, flags=re.MULTILINE | re.DOTALL)[1]
    walks = {}
    for block in section.split("\n### ")[1:]:
        question, _, rest = block.partition("\n")
        steps = []
        for item in re.findall(r"^- (.*(?:\n  .*)*)", rest, flags=re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", item):
                if "/" in name:
                    steps.append((name, []))
                else:
                    steps[-1][1].append(name)
        walks[question] = steps
    return walks


WALKS = read_walks(PAGE)
STEPS = [(question, *step) for question, steps in WALKS.items() for step in steps]


def defined_names(tree, prefix=""):
    """Functions, classes and methods of a module, by qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from defined_names(node, f"{prefix}{node.name}.")


def test_there_are_five_walks_of_several_steps():
    assert list(WALKS) == [
        "Where noise is drawn",
        "Where a budget is refused",
        "Where the exact leakage of a release is computed",
        "Where the numbers of the dashboard come from",
        "How to add a query",
    ]
    assert all(len(steps) >= 4 for steps in WALKS.values())


@pytest.mark.parametrize(("question", "file", "names"), STEPS, ids=lambda part: str(part)[:60])
def test_a_step_names_a_file_and_functions_that_are_defined_in_it(question, file, names):
    path = ROOT / file
    assert path.is_file(), f"{question}: there is no file {file}"
    if path.suffix == ".py" and names:
        defined = set(defined_names(ast.parse(path.read_text(encoding="utf-8"))))
        assert set(names) <= defined, f"{question}: {file} does not define {sorted(set(names) - defined)}"


def test_a_function_that_is_not_there_would_be_noticed():
    tree = ast.parse((ROOT / "src/csdp/queries/folds.py").read_text(encoding="utf-8"))
    assert "no_such_function" not in set(defined_names(tree))


def test_a_walk_is_counted():
    functions, modules, changes = walk_leakage()
    assert functions > modules > 3
    assert 0 < changes < functions
