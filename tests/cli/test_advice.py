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
#: A file, and the remedy that the error of a command which reads it must name.
READING = {
    "two rows of one time": (WIDE + "5,0,0\n", ["--duplicates", "last"]),
    "times off the grid": (
        "time,a\n2024-01-01T00:00,0\n2024-01-01T00:00:59,1\n2024-01-05T11:01:13,1\n2024-06-01T11:01:20,1\n",
        ["--step", "1h", "--resample", "last"],
    ),
    "a single time": ("time,a\n0,1\n", ["--step", "60"]),
    "fractions of a second": (
        "time,a\n2024-01-01T00:00:00.2,1\n2024-01-01T00:00:01.7,0\n2024-01-01T00:00:02.1,1\n",
        ["--step", "1s", "--resample", "last"],
    ),
    "times by another name": (WIDE.replace("time", "moment"), ["--time", "moment"]),
    "two columns of times": (
        "begin,end,a\n2024-01-01,2024-01-02,1\n2024-01-02,2024-01-03,0\n",
        ["--time", "begin", "--names", "a"],
    ),
    "several columns of readings": (LONG, ["--value", "y", "--sequence", "who"]),
    "day or month": ("time,a\n01/02/2024,1\n02/02/2024,0\n", ["--time-format", "%d/%m/%Y"]),
    "another way of writing": ("time,a\nJan 5 2024,1\nJan 6 2024,0\n", ["--time-format", "%b %d %Y"]),
    "decimal or thousands": ("time;a\n0;1,234\n1;2,345\n", ["--decimal", ","]),
    "a word among numbers": ("time,a,b\n0,1,high\n1,0,low\n2,1,low\n", ["--names", "a"]),
    "words": ("time,b\n0,high\n1,low\n2,low\n", ["--categories", "low,high"]),
}


@pytest.mark.parametrize("case", READING)
def test_each_remedy_for_a_file_leads_on(run, fails, tmp_path, case):
    """The command that reads the file names an option of `csdp open`, whose section then reads it."""
    text, remedy = READING[case]
    file, section = tmp_path / "d.csv", tmp_path / "in.toml"
    file.write_text(text)
    message = fails("fit", file, "--public", "-o", tmp_path / "chain.json")
    assert f"csdp open {remedy[0]}" in message or f"csdp open {remedy[2]}" in message
    run("open", file, *remedy, "-o", section)
    run("init", section, "-o", tmp_path / "stream.toml")


def test_an_unknown_zone(fails, tmp_path):
    (tmp_path / "d.csv").write_text("time,a\n2024-01-01,1\n2024-01-02,0\n")
    assert "such as --timezone Europe/London" in fails("open", tmp_path / "d.csv", "--timezone", "Mars/Olympus")


class TestOtherCommands:
    def test_readings_that_are_no_values(self, fails, paper, plan_file, tmp_path):
        (tmp_path / "r.csv").write_text("time,x1,x2\n0,0,1\n1,0.4,1\n2,1,0\n")
        place = ["--dataset", "d", "--ledger", tmp_path / "l.db", "-o", tmp_path / "o.csv"]
        assert "`csdp plan --discretiser" in fails("release", tmp_path / "r.csv", "--plan", plan_file(paper), *place)

    def test_warnings_too(self, run, tmp_path):
        (tmp_path / "d.csv").write_text(WIDE)
        command = ["fit", tmp_path / "d.csv", "--strategy", "categories", "-o", tmp_path / "c.json"]
        assert "Fit public readings (--public), or pay for it (--epsilon)" in run(*command).stderr
        assert run(*command, "--public").stderr == ""


class TestTranslation:
    def advice(self, message, *command):
        return as_options(message, find_command(ROOT, command), root=ROOT)

    def test_arguments_are_options(self):
        assert self.advice("give step= and resample='last'", "open") == "give --step and --resample last"
        assert self.advice("set header=False", "fit") == "set header = false in an [input] section (`csdp open`)"
        assert self.advice("Use bound='slice'.", "leakage") == "Use --bound slice."
        assert self.advice("Use time_format='%d %H'", "fit") == "Use `csdp open --time-format '%d %H'`"

    def test_what_the_user_wrote_stays(self):
        for path in ("value=1/r_step.csv", "max_age.csv"):
            assert self.advice(f"{path}: no such file", "plan") == f"{path}: no such file"
        assert self.advice("epsilon_c = 1 leaks; x=1", "leakage") == "epsilon_c = 1 leaks; x=1"


#: Python arguments in messages that have no option, and why no command can run into them.
PYTHON_ONLY = {
    "times": "clocks and publishers of Python; release has --simulated-times, a stream [clock] times",
    "cost": "the accountant of Python",
    "environment": "of csdp.leakage; the commands use the chain as it is",
    "of": "of a query that is written in Python; commands name queries by a text",
    "at_least": "of a query that is written in Python",
    "below": "of a query that is written in Python",
    "k": "a number of values in a formula",
    "switching": "of EnvironmentChain, which is written in Python",
    "read_only": "of Ledger.open; commands that only look open it so",
    "method": "of csdp.fit; the command fits by maximum likelihood",
    "cycle": "of EnvironmentChain, which is written in Python",
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
