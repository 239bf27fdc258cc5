"""Advice that can be followed: every remedy in an error of the command line is an option, and taking it leads on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import typer.main

import csdp
from csdp.cli import app
from csdp.cli.terminal import _ARGUMENT, as_options, find_command

ROOT = typer.main.get_command(app)
SOURCES = Path(csdp.__file__).parent

WIDE = "time,a,b\n0,0,1\n1,1,1\n2,0,1\n3,1,0\n4,0,0\n5,1,1\n"
LONG = "time,who,x,y\n" + "".join(f"{t},{w},{t % 2},{(t + 1) % 2}\n" for t in range(6) for w in "ab")
#: A file, the command that reads it, the remedy that its error must name, and what a reader of it adds to the command.
READING = {
    "two rows of one time": (WIDE + "5,0,0\n", "choose --duplicates", ["--duplicates", "last"]),
    "rows out of order": (WIDE + "2,0,0\n", "set --sort", ["--sort", "--duplicates", "first"]),
    "two readings of one time": (
        "time,sequence,value\n0,a,1\n0,a,0\n1,a,0\n2,a,1\n",
        "choose --duplicates",
        ["--duplicates", "mean"],
    ),
    "times off the grid": (
        WIDE + "7,1,0\n",
        "give the right --step, or --resample last",
        ["--step", "4", "--resample", "last"],
    ),
    "a single time": ("time,a\n0,1\n", "give --step", ["--step", "60"]),
    "fractions of a second": (
        "time,a\n2024-01-01T00:00:00.2,1\n2024-01-01T00:00:01.7,0\n2024-01-01T00:00:02.1,1\n",
        "give --step and --resample last",
        ["--step", "1s", "--resample", "last"],
    ),
    "times by another name": (WIDE.replace("time", "moment"), "Name the column of times: --time", ["--time", "moment"]),
    "two columns of times": (
        "begin,end,a\n2024-01-01,2024-01-02,1\n2024-01-02,2024-01-03,0\n",
        "give one as --time",
        ["--time", "begin", "--names", "a"],
    ),
    "several columns of readings": (
        LONG,
        "Give --sequence who and --value with one of: x, y",
        ["--value", "y", "--sequence", "who"],
    ),
    "day or month": (
        "time,a\n01/02/2024,1\n02/02/2024,0\n",
        "--time-format '%d/%m/%Y %H:%M'",
        ["--time-format", "%d/%m/%Y"],
    ),
    "another way of writing": (
        "time,a\nJan 5 2024,1\nJan 6 2024,0\n",
        "give --time-format '%d.%m.%Y %H:%M'",
        ["--time-format", "%b %d %Y"],
    ),
    "decimal or thousands": ("time;a\n0;1,234\n1;2,345\n", "give --decimal ,", ["--decimal", ","]),
    "a word among numbers": (
        "time,a,b\n0,1,high\n1,0,low\n2,1,low\n",
        "name the columns to read (--names)",
        ["--names", "a"],
    ),
    "words": ("time,b\n0,high\n1,low\n2,low\n", "declare the labels (--categories)", ["--categories", "low,high"]),
    "an unknown zone": (
        "time,a\n2024-01-01,1\n2024-01-02,0\n",
        "such as --timezone Europe/London",
        ["--timezone", "UTC"],
    ),
}
#: What provokes the errors above, besides the file.
PROVOKED = {
    "times off the grid": ["--step", "4"],
    "an unknown zone": ["--timezone", "Mars/Olympus"],
}


@pytest.mark.parametrize("case", READING)
def test_each_remedy_for_a_file_leads_on(run, fails, tmp_path, case):
    text, told, remedy = READING[case]
    file = tmp_path / "d.csv"
    file.write_text(text)
    command = ["fit", file, "--public", "--strategy", "categories", "--ensemble", "0", "--neighbours", "0"]
    before = [*command, *PROVOKED.get(case, []), "-o", tmp_path / "chain.json"]
    message = fails(*before)
    assert told in message
    for option in remedy:
        if option.startswith("--"):
            assert option in message or option in {"--duplicates", "--names"}, f"{option} is not in: {message}"
    run("init", file, *remedy, "-o", tmp_path / "stream.toml")


class TestOtherCommands:
    def test_readings_that_are_no_values(self, run, fails, paper, tmp_path):
        (tmp_path / "r.csv").write_text("time,x1,x2\n0,0,1\n1,0.4,1\n2,1,0\n")
        place = ["--dataset", "d", "--ledger", tmp_path / "l.db", "-o", tmp_path / "o.csv"]
        plan = ["--chain", paper, "--age", "1", "--epsilon-c", "1", "--anyway"]
        command = ["release", tmp_path / "r.csv", *plan, *place]
        assert "choose --outside clamp" in fails(*command)
        run(*command, "--outside", "clamp")
        report = ["report", tmp_path / "l.db", "--dataset", "d", "--data", tmp_path / "r.csv", "-o", tmp_path / "rep"]
        assert "choose --outside clamp" in fails(*report)
        run(*report, "--outside", "clamp")

    def test_a_target_that_cannot_be_met(self, run, fails, paper):
        command = ["plan", paper, "--max-mse", "0.0001", "--event-limit", "0.5", "--max-age", "2"]
        message = fails(*command)
        assert "Raise --max-mse or --event-limit" in message
        run("plan", paper, "--max-mse", "100", "--event-limit", "0.5", "--max-age", "2", "--anyway")

    def test_a_release_that_is_hardly_worth_it(self, run, fails, paper, tmp_path):
        (tmp_path / "r.csv").write_text("time,x1,x2\n0,0,1\n1,0,1\n2,1,0\n")
        place = ["--dataset", "d", "--ledger", tmp_path / "l.db", "-o", tmp_path / "o.csv"]
        command = ["release", tmp_path / "r.csv", "--chain", paper, "--age", "1", "--epsilon-c", "1", *place]
        assert "(--about then)" in fails(*command, code=6)
        run(*command, "--about", "then")

    def test_an_engine_that_cannot_read_it(self, run, fails, paper, tmp_path):
        (tmp_path / "r.csv").write_text("time;x1;x2\n0;0;1\n1;0;1\n2;1;0\n")
        place = ["--dataset", "d", "--ledger", tmp_path / "l.db", "-o", tmp_path / "o.csv", "--delimiter", ";"]
        plan = ["--chain", paper, "--age", "1", "--epsilon-c", "1", "--anyway"]
        command = ["release", tmp_path / "r.csv", *plan, *place]
        assert "delimiter: ';' given; a table of an engine has typed" in fails(*command, "--engine", "duckdb")
        run(*command, "--engine", "memory")

    def test_an_audit_without_a_worst_pair(self, run, fails, tmp_path):
        chain = tmp_path / "fair.json"
        run("chain", "new", "--sequences", "1", "--self-coupling", "1", "--p", "0.5", "--q", "0.5", "-o", chain)
        command = ["audit", chain, "--age", "1", "--epsilon-c", "1", "--samples", "2000", "--seed", "1"]
        assert "give --pair with a present and an alternative" in fails(*command)
        run(*command, "--pair", "[[0],[1]]", "--claim", "0.5")

    def test_warnings_too(self, run, tmp_path):
        (tmp_path / "d.csv").write_text(WIDE)
        command = ["fit", tmp_path / "d.csv", "--strategy", "categories", "--ensemble", "0", "-o", tmp_path / "c.json"]
        assert "Fit public readings (--public), or pay for it (--epsilon)" in run(*command).stderr
        assert run(*command, "--public").stderr == ""


class TestTranslation:
    def advice(self, message, *command, given=()):
        return as_options(message, find_command(ROOT, command), given=given, root=ROOT)

    def test_arguments_are_options(self):
        assert self.advice("give step= and resample='last'", "fit") == "give --step and --resample last"
        assert self.advice("set sort=True, header=False", "open") == "set --sort, --no-header"
        assert self.advice("Use bound='lineage'.", "leakage") == "Use --bound lineage."
        assert self.advice("Use time_format='%d %H'", "fit") == "Use --time-format '%d %H'"

    def test_what_the_user_wrote_stays(self):
        path = "value=1/r_step.csv"
        assert self.advice(f"{path}: no such file", "fit", given=[path]) == f"{path}: no such file"
        assert self.advice("step=5: no such file", "fit", given=["step=5"]) == "step=5: no such file"
        assert self.advice("epsilon_c = 1 leaks; x=1", "leakage") == "epsilon_c = 1 leaks; x=1"


#: Python arguments in messages that have no option, and why no command can run into them.
PYTHON_ONLY = {
    "times": "clocks and publishers of Python; release has --simulated-times, a stream [clock] times",
    "state": "the accountant of Python",
    "cost": "the accountant of Python",
    "environment": "of csdp.leakage; the commands use the chain as it is",
    "phase": "of csdp.leakage",
    "law": "of csdp.mse",
    "given": "of csdp.mse",
    "of": "of a query that is written in Python; commands name queries by a text",
    "at_least": "of a query that is written in Python",
    "below": "of a query that is written in Python",
    "k": "a number of values in a formula",
    "shared": "of Discretiser.declared",
    "switching": "of EnvironmentChain, which is written in Python",
    "read_only": "of Ledger.open; commands that only look open it so",
}


def messages():
    """Every text in a raise statement of the package."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                for part in ast.walk(node.exc):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield path.relative_to(SOURCES), part.value


def test_no_exception_from_the_rule_is_left_over():
    assert set(PYTHON_ONLY) <= {match["name"] for _, text in messages() for match in _ARGUMENT.finditer(text)}


def test_every_argument_in_a_message_is_an_option_of_some_command():
    unknown = {
        f"{path}: {match[0]}"
        for path, text in messages()
        for match in _ARGUMENT.finditer(text)
        if match["name"] not in PYTHON_ONLY and as_options(match[0], ROOT, root=ROOT) == match[0]
    }
    assert not unknown
