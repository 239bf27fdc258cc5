"""No six consecutive lines of logic stand twice in src/csdp. `python tests/test_duplicates.py` lists those that do.

Lines of logic are compared without whitespace and comments. Left out are blank lines, docstrings, imports, lines that
only close brackets, and declarations: the parameters of a signature and fields without a value, which two functions or
records may share. So six lines of logic may be spread over a few more in the file.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LENGTH = 6


def logic(text):
    """(line number, line without whitespace) of every line of logic."""
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        is_field = isinstance(node, ast.AnnAssign) and node.value is None
        if is_text or is_field or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, node.end_lineno + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left_out |= set(range(node.lineno + 1, node.body[0].lineno))  # parameters below the line of `def`
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for number, line in enumerate(lines, start=1):
        squeezed = re.sub(r"\s+", "", line)
        if number not in left_out and re.sub(r"[\])},]", "", squeezed):
            yield number, squeezed


def duplicates(texts, length=LENGTH):
    """((file, line), (file, line), number of lines) of every stretch of at least `length` lines that stands twice."""
    files = {name: list(logic(text)) for name, text in texts.items()}
    windows = defaultdict(list)
    for name, lines in files.items():
        for start in range(len(lines) - length + 1):
            windows[tuple(line for _, line in lines[start : start + length])].append((name, start))
    twice = {
        (one, other)
        for places in windows.values()
        for index, one in enumerate(places)
        for other in places[index + 1 :]
        if one[0] != other[0] or abs(one[1] - other[1]) >= length  # a stretch does not repeat itself
    }
    for one, other in sorted(twice):
        if ((one[0], one[1] - 1), (other[0], other[1] - 1)) in twice:
            continue  # the middle of a longer stretch
        more = 0
        while ((one[0], one[1] + more + 1), (other[0], other[1] + more + 1)) in twice:
            more += 1
        first, second = ((name, files[name][start][0]) for name, start in (one, other))
        yield first, second, length + more


def found_in_package():
    sources = sorted((ROOT / "src" / "csdp").rglob("*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sources}
    return [f"{one[0]}:{one[1]} and {other[0]}:{other[1]}, {n} lines" for one, other, n in duplicates(texts)]


def test_no_six_lines_of_logic_stand_twice():
    repeated = found_in_package()
    assert not repeated, "\n".join(["write these once:", *repeated])


BLOCK = "".join(f"    x{number} = {number} + y\n" for number in range(6))


def test_a_repeated_block_is_noticed_whatever_stands_between_its_lines():
    one = f"def f(y):\n    '''Text.'''\n{BLOCK}"
    other = "import os\ndef g(y):\n" + BLOCK.replace("x3 =", "# why\n\n    x3  =") + "    return (\n    y\n    )\n"
    assert list(duplicates({"a": one, "b": other})) == [(("a", 3), ("b", 3), 6)]
    assert list(duplicates({"a": one + "def h(y):\n" + BLOCK})) == [(("a", 3), ("a", 10), 6)]


def test_five_lines_imports_docstrings_and_declarations_may_be_repeated():
    short = "def f(y):\n" + "".join(BLOCK.splitlines(keepends=True)[:5])
    assert not list(duplicates({"a": short, "b": short.replace("f(y)", "g(y)")}))
    words = "'''" + "Text\n" * 9 + "'''\n" + "".join(f"import m{n}\n" for n in range(9))
    assert not list(duplicates({"a": words, "b": words}))
    signature = "def f(\n" + "".join(f"    x{n}: int,\n" for n in range(9)) + "):\n    return x1\n"
    fields = "class A:\n" + "".join(f"    x{n}: int\n" for n in range(9))
    assert not list(duplicates({"a": signature + fields, "b": fields + signature}))


if __name__ == "__main__":
    sys.exit("\n".join(found_in_package()) or 0)
