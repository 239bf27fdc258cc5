"""Wrong programmes on purpose: does the suite notice? `make mutants` runs it; docs/testing.md has the results.

cosmic-ray finds the places of a module where an operator, a comparison, a number or a keyword can be changed; we add
the change that matters most to a bound, `min` for `max`. A sample drawn with a fixed seed takes one change a place.
Each is written into a copy of the tree and meets the tests that reached its line, shortest first, until one fails.

Everything decided is kept in .mutants/ROOM/: a run that was ended goes on where it was, and `--again` tries the
survivors once more, after new tests.
"""

import argparse
import ast
import difflib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate, count, groupby, islice
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue

import pytest

#: Each room with the tests that are about it; the many others that pass through it may not be needed to notice.
ROOMS = {
    "noise": ("noise", "fran"),
    "chain": ("chain",),
    "bounds": ("bounds", "laws", "golden"),
    "planning": ("planning",),
    "accountant": ("accountant", "test_plan.py", "golden"),
    "ledger": ("ledger", "contracts/test_records_contract.py"),
    "publisher": ("publisher", "contracts/test_names_contract.py", "golden"),
}
RECORD = Path(".mutants")
OPPOSITES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}
#: What every run of tests imports before it reaches ours: loaded once, and each mutant starts as a fork of that.
WARM = (
    "pytest",
    "_hypothesis_pytestplugin",
    "hypothesis.extra.numpy",
    "schemathesis.pytest.plugin",
    "pytest_cov.plugin",
)
WARM += ("numpy", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "sqlalchemy", "pandas", "numba")
LONGEST = 5.0  # seconds of the processor that a test may take to be met by mutants
_SIGNATURES = ("param", "parameters", "lambdef")  # what parso, which cosmic-ray reads with, calls them
STAMPS = count(
    1_000_000_000
)  # a time of its own for every text written: Python and numba keep what they compiled by it


@dataclass(frozen=True)
class Mutant:
    """One change: where, what, and what became of it."""

    module: str
    line: int
    change: str
    diff: str
    verdict: str
    by: str


# ---- the suite as it is ----------------------------------------------------------------------------------------------


class Durations:
    """A plugin that notes how long the processor worked for each test that passes, whatever else it had to do."""

    def __init__(self, seconds):
        self.seconds, self.failed = seconds, set()

    def pytest_runtest_logreport(self, report):
        if report.failed or "longer than a mutant may take" in str(report.longrepr):
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        before = _processor()
        signal.signal(signal.SIGPROF, lambda *_: pytest.skip("longer than a mutant may take"))
        signal.setitimer(signal.ITIMER_PROF, LONGEST, LONGEST)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.seconds[item.nodeid] = _processor() - before
        return True


def _processor():
    """Seconds of the processor that this process and the ones it started took."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measure(room):
    """The tests that reach each line of a room, and their durations, in its record.

    Of a room whose own text did not change, only the files of tests that are newer than the record run again.
    """
    folder = RECORD / room
    folder.mkdir(parents=True, exist_ok=True)
    durations = folder / "durations.json"
    since = durations.stat().st_mtime if durations.exists() else 0.0
    source = Path(f"src/csdp/{room}")
    if any(path.stat().st_mtime > since for path in source.rglob("*.py")):
        since = 0.0
        (folder / "coverage").unlink(missing_ok=True)
        durations.unlink(missing_ok=True)
    tests = [path for name in ROOMS[room] for path in _files(Path("tests", name)) if path.stat().st_mtime > since]
    asked = [str(path) for path in tests] + ([] if since else [str(source)])
    if not asked:
        return
    command = [sys.executable, __file__, "--measure", room, *asked]
    started = time.time()
    if subprocess.run(command, env=_environment(Path()), check=False).returncode:
        sys.exit(f"mutation: the tests of {room} cannot be run")
    os.utime(durations, (started, started))  # what is written while they run is newer


def _files(path):
    return sorted(path.glob("test_*.py")) if path.is_dir() else [path]


def record(room, asked):
    """Run some tests of a room, in this process, which times them, and add what they reached to its record."""
    folder = RECORD / room
    settings = folder / "coveragerc"
    settings.write_text(
        f"[run]\nrelative_files = true\ninclude = src/csdp/{room}/*\ndata_file = {folder.resolve() / 'coverage'}\n"
    )
    known = folder / "durations.json"
    earlier = json.loads(known.read_text()) if known.exists() else {}
    durations = Durations({test: spent for test, spent in earlier.items() if not test.startswith(tuple(asked))})
    # What holds for a ledger in a file and on a server is tested on both by the same lines: one of them is enough here.
    options = ["-q", "-m", "not slow", "-k", "not postgresql", "-p", "no:cacheprovider"]
    options += ["--tb=line", "--cov", f"--cov-config={settings}"]
    options += ["--cov-context=test", "--cov-report=", "--cov-append"]
    code = pytest.main([*options, *asked], plugins=[durations])
    if code > pytest.ExitCode.TESTS_FAILED:
        return int(code)
    for test in durations.failed:
        print(f"left out, because it fails without any change, or takes long: {test}")
        del durations.seconds[test]
    known.write_text(json.dumps(durations.seconds))
    return 0


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
    """(place, name, operator, occurrence) of everything that can be changed in a module.

    Annotations are left out, and the marks between the arguments of a function, which only look like operators.
    """
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text()
    nodes = list(ast_nodes(get_ast(source)))
    hints = list(_annotations(ast.parse(source)))
    marks = {node.start_pos for node in nodes if node.type == "operator" and node.parent.type in _SIGNATURES}
    for name, operator in _operators():
        places = (place for node in nodes for place, _ in operator.mutation_positions(node))
        for occurrence, place in enumerate(places):
            if place not in marks and not any(start <= place < end for start, end in hints):
                yield place, name, operator, occurrence


def _annotations(tree):
    """Where annotations stand: a change there changes nothing that runs."""
    for node in ast.walk(tree):
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if hint is not None:
                yield (hint.lineno, hint.col_offset), (hint.end_lineno, hint.end_col_offset)


def sample(paths, count, seed):
    """`count` places of some modules, each with one of its changes: the first in an order drawn from their own text.

    So a place stays in the sample, or out of it, whatever is written elsewhere.
    """
    places = []
    for path in sorted(paths):
        lines, seen = path.read_text().splitlines(), Counter()
        for (line, column), same in groupby(sorted(changes(path), key=lambda change: change[:2]), key=itemgetter(0)):
            text = f"{seed}|{path}|{column}|{lines[line - 1]}"
            seen[text] += 1
            drawn = random.Random(f"{text}|{seen[text]}")
            places.append((drawn.random(), path, drawn.choice(list(same))))
    order = (place[1:] for place in sorted(places, key=itemgetter(0)))
    chosen = list(islice(filter(_compiles, order), count))
    return sorted(chosen, key=lambda place: (place[0], place[1][0])), len(places)


def _compiles(place):
    """Whether a change leaves a programme at all: the star before keyword-only arguments looks like a product."""
    from cosmic_ray.mutating import mutate_code

    path, (_, _, operator, occurrence) = place
    try:
        compile(mutate_code(path.read_text(), operator, occurrence), str(path), "exec")
    except SyntaxError:
        return False
    return True


# ---- verdicts --------------------------------------------------------------------------------------------------------


def reaching(data, durations, path, line):
    """The tests that ran the statement around a line, shortest first; of import time: all, in other processes too.

    All of them too if numba compiles the module: its lines are seen only where a test has Python run them.
    """
    contexts = data.contexts_by_lineno(str(path))  # relative, as in pyproject.toml
    source = path.read_text()
    lines = _statement(ast.parse(source), line)
    tests = {c.rsplit("|", 1)[0] for at in lines for c in contexts.get(at, ()) if c}
    seen = tests and "numba" not in source
    return sorted(tests & durations.keys() if seen else durations, key=durations.__getitem__)


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


class Limits:
    """A plugin that ends a test which works far longer than it should: a wrong programme may never end."""

    def __init__(self, durations):
        self.durations = durations

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        limit = 20 + 10 * self.durations.get(item.nodeid, 0.0)  # whoever comes first pays for what tests share
        signal.signal(signal.SIGPROF, signal.default_int_handler)  # nothing catches an interruption
        signal.setitimer(signal.ITIMER_PROF, limit, limit)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        return True


def meet(tree, tests, told, limit):
    """Run some tests, given with their durations, in a copy of the tree, and end with what pytest returns."""
    os.setsid()  # with all that the tests start, so that it can be ended together
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    os.chdir(tree)
    sys.path.insert(0, str(Path("src").resolve()))
    os.environ.update(_environment(Path()))
    sys.dont_write_bytecode = False  # the modules that are as they were need not be compiled again
    Path("asked.txt").write_text("\n".join(tests))
    with open(told, "w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=line"]
    code = pytest.main([*options, "@asked.txt"], plugins=[Limits(tests)])
    sys.stdout.flush()
    os._exit(int(code))


def _environment(tree):
    return os.environ | {"PYTHONPATH": str((tree / "src").resolve())}  # before what is installed


class Judge:
    """A copy of the tree, in which one wrong programme at a time meets tests."""

    def __init__(self, tree):
        self.tree = tree
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(WARM))

    def run(self, tests):
        """What becomes of the tree as it stands, and the failure.

        Limits are seconds of the processor, so that a busy machine makes nothing fail. Whoever waits for ever uses
        none of them: after twenty times as long on the clock nothing is decided, and that counts as not noticed.
        """
        limit = int(30 + 3 * sum(tests.values()))
        told = self.tree / "told.txt"
        process = self.context.Process(target=meet, args=(str(self.tree), tests, str(told.resolve()), limit))
        process.start()
        process.join(20 * limit)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return "undecided", "the limit of the clock"
        if process.exitcode == 0:
            return "survived", ""
        told_by = (line for line in told.read_text().splitlines() if line.startswith(("FAILED", "ERROR")))
        return "killed", next(told_by, "the limit of the processor")

    def verdict(self, path, change, tests):
        """Write a change into the copy, and take it back when the tests have run."""
        from cosmic_ray.mutating import mutate_code

        (line, _), name, operator, occurrence = change
        source = path.read_text()
        wrong = mutate_code(source, operator, occurrence)
        if not tests:
            return Mutant(str(path), line, name, _difference(source, wrong), "not reached", "")
        try:
            self._write(path, wrong)
            verdict, by = self.run(tests)
        finally:
            self._write(path, source)
        return Mutant(str(path), line, name, _difference(source, wrong), verdict, by[:160])

    def _write(self, path, text):
        target = self.tree / path
        target.write_text(text)
        stamp = next(STAMPS)
        os.utime(target, (stamp, stamp))


def _difference(source, wrong):
    lines = difflib.unified_diff(source.splitlines(), wrong.splitlines(), n=0, lineterm="")
    return "\n".join(lines).split("\n", 2)[-1]


def copy_tree(at):
    """A copy of the files of the project, so that no mutant ever stands in the tree itself."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in filter(os.path.exists, names):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, at / name)


def affordable(tests, durations, seconds):
    """The shortest tests that together take so long; a mutant that only longer ones notice counts as surviving."""
    total = accumulate(durations[test] for test in tests)
    return {test: durations[test] for test, used in zip(tests, total, strict=True) if used <= seconds}


# ---- samples ---------------------------------------------------------------------------------------------------------


def judge_room(room, judges, given):
    """A sample of a room; a line a mutant, as it is decided, in .mutants/ROOM/verdicts.jsonl."""
    from coverage import CoverageData

    folder = RECORD / room
    measure(room)
    durations = json.loads((folder / "durations.json").read_text())
    durations = {test: spent for test, spent in durations.items() if os.path.exists(test.partition("::")[0])}
    data = CoverageData(str(folder / "coverage"))
    data.read()
    known = decided(folder / "verdicts.jsonl", given.again)
    free = SimpleQueue()
    for judge in judges:
        copy_tree(judge.tree)  # with tests that were written while other rooms were judged
        free.put(judge)
    control(judges[0], affordable(sorted(durations, key=durations.__getitem__), durations, 5))

    def decide(found):
        path, change = found
        if name_of(path, change) in known:
            return known[name_of(path, change)]
        tests = affordable(reaching(data, durations, path, change[0][0]), durations, given.seconds)
        judge = free.get()
        try:
            return judge.verdict(path, change, tests)
        finally:
            free.put(judge)

    chosen, places = sample(Path(f"src/csdp/{room}").rglob("*.py"), given.count, given.seed)
    started, verdicts = time.time(), []
    with ThreadPoolExecutor(len(judges)) as pool, (folder / "verdicts.jsonl").open("a") as out:
        for found, mutant in zip(chosen, pool.map(decide, chosen), strict=True):
            verdicts.append(mutant)
            if name_of(*found) not in known:
                print(json.dumps([name_of(*found), asdict(mutant)]), file=out, flush=True)
    for mutant in verdicts:
        if mutant.verdict != "killed":
            print(f"{mutant.verdict}: {mutant.module} {mutant.change}\n{mutant.diff}\n")
    noticed = sum(mutant.verdict == "killed" for mutant in verdicts)
    minutes = (time.time() - started) / 60
    print(f"{room}: {noticed} of {len(verdicts)} noticed ({places} places), {minutes:.0f} min", flush=True)


def name_of(path, change):
    """What names a change, as long as its module is the same."""
    (line, column), name, _, occurrence = change
    return f"{path}:{line}:{column}:{name}:{occurrence}:{zlib.crc32(path.read_bytes()):08x}"


def decided(path, again):
    """What earlier runs decided, by name; survivors too, unless they are to be tried again."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    known = {name: Mutant(**mutant) for name, mutant in lines}
    return {name: mutant for name, mutant in known.items() if mutant.verdict == "killed" or not again}


def control(judge, tests):
    """The copy without a change must pass some tests, or every verdict would be "noticed"."""
    verdict, by = judge.run(tests) if tests else ("undecided", "no test is short enough")
    if verdict != "survived":
        sys.exit(f"mutation: the copy of the tree fails without a change: {by}")


def run(given):
    """A sample of each room that is asked for."""
    RECORD.mkdir(exist_ok=True)
    judges = []
    for job in range(given.jobs):
        tree = RECORD / f"tree{job}"
        shutil.rmtree(tree, ignore_errors=True)
        judges.append(Judge(tree))
    for room in given.rooms:
        judge_room(room, judges, given)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=tuple(ROOMS), help=f"of {', '.join(ROOMS)}; all of them if none")
    parser.add_argument("--count", type=int, default=60, help="places changed in each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15, help="of tests that a mutant meets, the shortest first")
    parser.add_argument("--again", action="store_true", help="try the survivors of earlier runs once more")
    parser.add_argument("--measure", metavar="ROOM", help="only run the tests named, for the record of a room")
    given = parser.parse_args()
    if given.measure:
        sys.exit(record(given.measure, given.rooms))
    run(given)
