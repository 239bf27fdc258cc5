"""Wrong programmes on purpose: does the suite notice? `make mutants` runs it; docs/testing.md explains the survivors.

cosmic-ray finds the places of a module where an operator, a comparison, a number or a keyword can be changed; we add
the change that matters most to a bound, `min` for `max`. A sample drawn with a fixed seed takes one change a place.
Each is written into a copy of the tree and meets the tests that reached its line, shortest first, until one fails.
"""

import argparse
import ast
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby
from pathlib import Path
from queue import SimpleQueue

ROOMS = ("leakage", "accountant", "publisher", "noise")
TESTS = ("leakage", "laws", "accountant", "publisher", "noise", "fran", "planning", "test_plan.py")
RECORD = Path(".mutants")
OPPOSITES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change: where, what, and what became of it."""

    module: str
    line: int
    change: str
    diff: str
    verdict: str
    by: str


class Durations:
    """A plugin that notes how long each test took."""

    def __init__(self):
        self.seconds = {}

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def baseline(folder):
    """The suite as it is, with the tests that reach each line and their durations; it must pass."""
    import pytest

    rooms = [f"src/csdp/{room}" for room in ROOMS]
    durations = Durations()
    asked = [
        "-q",
        "-n",
        "2",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "--cov",
        "--cov-context=test",
        "--cov-report=",
    ]
    code = pytest.main([*asked, *_tests(), *rooms], plugins=[durations])
    if code:
        sys.exit("mutation: the suite fails as it is; mend it first")
    (folder / "durations.json").write_text(json.dumps(durations.seconds))


def _tests():
    return [f"tests/{name}" for name in TESTS]


# ---- changes ---------------------------------------------------------------------------------------------------------


def _opposite():
    """An operator for cosmic-ray: the other end of an order."""
    from cosmic_ray.operators.operator import Operator

    class Opposite(Operator):
        def mutation_positions(self, node):
            if node.type == "name" and node.value in OPPOSITES and not node.is_definition():
                yield node.start_pos, node.end_pos

        def mutate(self, node, index):
            node.value = OPPOSITES[node.value]
            return node

        @classmethod
        def examples(cls):
            return ()

    return Opposite()


def _operators():
    from cosmic_ray import plugins

    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if not operator.arguments():
            yield name.removeprefix("core/"), operator()
    yield "Opposite", _opposite()


def changes(path):
    """(place, name, operator, occurrence) of everything that can be changed in a module, annotations left out."""
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text()
    nodes = list(ast_nodes(get_ast(source)))
    hints = list(_annotations(ast.parse(source)))
    for name, operator in _operators():
        places = (place for node in nodes for place, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(places):
            if not any(start <= place < end for start, end in hints):
                yield place, name, operator, occurrence


def _annotations(tree):
    """Where annotations stand: a change there changes nothing that runs."""
    for node in ast.walk(tree):
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if hint is not None:
                yield (hint.lineno, hint.col_offset), (hint.end_lineno, hint.end_col_offset)


def sample(paths, count, seed):
    """`count` places of some modules, each with one of its changes."""
    chosen = random.Random(seed)
    places = []
    for path in sorted(paths):
        found = sorted(changes(path), key=lambda change: change[:2])
        for _, same in groupby(found, key=lambda change: change[0]):
            places.append((path, chosen.choice(list(same))))
    taken = chosen.sample(places, min(count, len(places)))
    return sorted(taken, key=lambda place: (place[0], place[1][0])), len(places)


# ---- verdicts --------------------------------------------------------------------------------------------------------


def reaching(data, durations, path, line):
    """The tests that ran the statement around a line, shortest first; of import time: all that ran the module."""
    contexts = data.contexts_by_lineno(str(path))  # relative, as in pyproject.toml
    lines = _statement(ast.parse(path.read_text()), line)
    tests = {c.rsplit("|", 1)[0] for at in lines for c in contexts.get(at, ()) if c}
    if not tests:
        tests = {c.rsplit("|", 1)[0] for found in contexts.values() for c in found if c}
    return sorted((test for test in tests if test in durations), key=durations.__getitem__)


def _statement(tree, line):
    """The lines of the innermost statement around a line, without its body."""
    best = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            if line <= end and (best is None or node.lineno >= best[0]):
                best = node.lineno, end
    return range(best[0], best[1] + 1) if best else range(line, line + 1)


def judge(tree, path, change, tests, *, limit):
    """Write a change into a copy of the tree and run the tests on it."""
    from cosmic_ray.mutating import mutate_code

    (line, _), name, operator, occurrence = change
    source = path.read_text()
    wrong = mutate_code(source, operator, occurrence)
    told = "\n".join(difflib.unified_diff(source.splitlines(), wrong.splitlines(), n=0, lineterm="")).split("\n", 2)[-1]
    target, listed = tree / path, tree / "asked.txt"
    target.write_text(wrong)
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "@asked.txt"]
    here = os.environ | {"PYTHONPATH": str((tree / "src").resolve())}  # before what is installed
    try:
        run = subprocess.run(command, cwd=tree, env=here, capture_output=True, text=True, timeout=limit, check=False)
        verdict = "survived" if run.returncode == 0 else "killed"
        by = next((text for text in run.stdout.splitlines() if text.startswith(("FAILED", "ERROR"))), "")
    except subprocess.TimeoutExpired:
        verdict, by = "killed", "time limit"
    finally:
        target.write_text(source)
    return Mutant(str(path), line, name, told, verdict if tests else "not reached", by[:160])


def copy_tree(at):
    """A copy of the tracked files, so that no mutant ever stands in the tree itself."""
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    for name in filter(os.path.exists, tracked):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, at / name)


def affordable(tests, durations, seconds):
    """The shortest tests that together take so long; a mutant that only longer ones notice counts as surviving."""
    total = accumulate(durations[test] for test in tests)
    return [test for test, used in zip(tests, total, strict=True) if used <= seconds]


def run(count, seed, rooms, jobs, seconds):
    """A sample of each room; a line a mutant, as it is decided, in .mutants/ROOM.jsonl."""
    from coverage import CoverageData

    RECORD.mkdir(exist_ok=True)
    if not (RECORD / "durations.json").exists():
        subprocess.run([sys.executable, __file__, "--baseline"], check=True)
        shutil.copy2(".coverage", RECORD / "coverage")
    durations = json.loads((RECORD / "durations.json").read_text())
    data = CoverageData(str(RECORD / "coverage"))
    data.read()
    trees = SimpleQueue()
    for job in range(jobs):
        shutil.rmtree(RECORD / f"tree{job}", ignore_errors=True)
        copy_tree(RECORD / f"tree{job}")
        trees.put(RECORD / f"tree{job}")

    def one(found):
        path, change = found
        tests = affordable(reaching(data, durations, path, change[0][0]), durations, seconds)
        tree = trees.get()
        try:
            limit = 120 + 5 * sum(durations[test] for test in tests)
            return judge(tree, path, change, tests, limit=limit)
        finally:
            trees.put(tree)

    for room in rooms:
        chosen, places = sample(Path(f"src/csdp/{room}").glob("*.py"), count, seed)
        started, verdicts = time.time(), []
        with ThreadPoolExecutor(jobs) as pool, (RECORD / f"{room}.jsonl").open("w") as out:
            for mutant in pool.map(one, chosen):
                verdicts.append(mutant.verdict)
                print(json.dumps(asdict(mutant)), file=out, flush=True)
        minutes = (time.time() - started) / 60
        killed = verdicts.count("killed")
        print(f"{room}: {killed} of {len(verdicts)} noticed ({places} places), {minutes:.0f} min", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    parser.add_argument("--count", type=int, default=100, help="places changed in each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="of tests that a mutant meets, the shortest first")
    parser.add_argument("--baseline", action="store_true", help="only run the suite as it is, for its record")
    given = parser.parse_args()
    if given.baseline:
        baseline(RECORD)
    else:
        run(given.count, given.seed, given.rooms, given.jobs, given.seconds)
