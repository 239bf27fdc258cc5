from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import csdp
from command import run_command
from csdp.cli import app
from csdp.cli.terminal import progress_bar
from csdp.errors import BudgetExceeded, LedgerBusyError


def commands(command, path=()):
    """Every command with its path, groups included."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


def test_the_commands():
    leaves = {" ".join(path) for path, command in ALL.items() if not hasattr(command, "commands")}
    ledger = {f"ledger {name}" for name in ("show", "verify", "export")}
    ledger |= {"init", "doctor", "stream", "serve key new", "serve key list", "serve key remove"}
    chains = {"chain new", "chain show", "chain simulate"}
    data = {"open", "suggest", "fit", "report"}
    assert leaves == chains | {"leakage", "plan", "release", "demo", "audit"} | ledger | data


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_an_example_and_explains_every_option(run, path):
    output = run(*path, "--help").stdout
    assert "Example:" in output
    assert "csdp " in output.split("Example:")[1]
    for parameter in ALL[path].params:
        if parameter.name != "help":
            assert parameter.help, f"{' '.join(path)}: {parameter.name} has no help"
            names = [parameter.metavar] if parameter.param_type_name == "argument" else parameter.opts
            assert any(name in output for name in names)


def test_examples_in_the_help_run_as_shown(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line.split("Example: ")[-1].strip() for path in ALL for line in run(*path, "--help").stdout.splitlines()]
    # The demonstration takes a minute and has a test of its own.
    examples = [line for line in dict.fromkeys(lines) if line.startswith("csdp ") and "csdp demo" not in line]
    assert len(examples) >= 10
    order = ("chain new", "chain simulate", "plan", "release")  # what the others read
    for example in sorted(examples, key=lambda line: next((i for i, o in enumerate(order) if f"csdp {o}" in line), 9)):
        run(*shlex.split(example)[1:])


def test_version(run):
    assert run("--version").stdout.strip() == f"csdp {csdp.__version__}"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "missing command; try 'csdp --help'"),
        (["chain"], "missing command; try 'csdp chain --help'"),
        (["leekage"], "no such command 'leekage'"),
        (["--nonsense"], "--nonsense"),
        (["demo", "extra"], "extra"),
    ],
)
def test_usage_errors_are_one_line(fails, args, message):
    assert message in fails(*args)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            BudgetExceeded("the limit is 1", limit_name="budget", spent=1.0, requested=2.0, remaining=0.0),
            3,
            "csdp: the limit is 1",
        ),
        (LedgerBusyError("locked"), 2, "csdp: locked"),
        (OSError(28, "No space left on device", "chain.json"), 2, "csdp: chain.json: No space left on device"),
        (MemoryError(), 2, "csdp: not enough memory"),
    ],
)
def test_expected_errors_have_exit_codes(fails, paper, monkeypatch, error, code, message):
    def broken(path):
        raise error

    monkeypatch.setattr("csdp.cli.options.load_model", broken)
    assert message in fails("chain", "show", paper, code=code)


def test_an_interrupt_is_no_traceback(run, paper, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("csdp.cli.options.load_model", interrupted)
    assert "Traceback" not in run("chain", "show", paper, code=130).output


def test_a_bug_is_not_hidden(run, paper, monkeypatch):
    def broken(path):
        raise ZeroDivisionError

    monkeypatch.setattr("csdp.cli.options.load_model", broken)
    with pytest.raises(ZeroDivisionError):
        run("chain", "show", paper)


def test_progress_only_on_a_terminal(monkeypatch, capsys):
    with progress_bar() as tell:
        assert tell is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bar() as tell:
        assert tell is not None
        tell("aging", 1, 2)
        tell("aging", 2, 2)
    assert capsys.readouterr().out == ""


def process(*args, **options):
    environment = {**os.environ, "PYTHONWARNINGS": "error::UserWarning"}
    return subprocess.run(
        [sys.executable, "-m", "csdp", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        check=False,
        **options,
    )


class TestRealProcess:
    def test_bad_input(self, tmp_path):
        done = run_command("leakage", tmp_path / "nofile.json", "--age", "2", "--epsilon-c", "1")
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr == f"csdp: {tmp_path / 'nofile.json'}: no such file\n"

    def test_a_pipe_of_two_commands(self, tmp_path):
        made = process("chain", "new", "--p", "0.01", "--q", "0.3")
        result = process("leakage", "-", "--age", "1", "--epsilon-c", "1", "--format", "json", input=made.stdout)
        assert json.loads(result.stdout)["epsilon"] == pytest.approx(0.77269118, abs=5e-9)

    def test_heavy_parts_load_when_used(self):
        code = (
            "import sys, csdp.cli; heavy = 'matplotlib', 'scipy.sparse', 'numba', 'rich.table', 'csdp.report.figures', "
            "'sqlalchemy', 'pyarrow', 'pyspark', 'duckdb'; "
            "print([module for module in heavy if module in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.strip() == "[]"

    @pytest.mark.slow  # tests/report and the browser look at one demonstration that is made once
    def test_demo(self, tmp_path):
        done = process("demo", "-o", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        assert "To quote:" in done.stdout
        names = "release.svg", "release.png", "belief.svg", "late.svg", "summary.json", "share.html", "index.html"
        for name in (*names, "released.csv", "released.csv.certificate.json", "ledger.db"):
            assert (tmp_path / "out" / name).stat().st_size > 1000
            assert name in done.stdout

    def test_demo_into_a_file(self, tmp_path):
        (tmp_path / "out").write_text("")
        done = run_command("demo", "-o", tmp_path / "out")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_the_module_and_the_command_are_the_same():
    script = Path(sys.executable).with_name("csdp")
    if not script.exists():
        pytest.skip("the package is not installed as a command")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == f"csdp {csdp.__version__}"
