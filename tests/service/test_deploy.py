"""The files of deploy/ name commands and options that exist, and keep raw readings off the disk."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from csdp.cli import app

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = Path(__file__).parents[2] / "docs"


def check_command(words):
    """A command line of ours, from the word after `csdp` on."""
    command, rest = typer.main.get_command(app), list(words)
    while rest and rest[0] in getattr(command, "commands", {}):  # `csdp serve` is a command and has some
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    used = {word for word in rest if word.startswith("--")}
    assert used <= known, used - known
    return used


def unit():
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read_string((DEPLOY / "csdp.service").read_text())
    return found


def test_the_unit():
    found = unit()
    program, *words = shlex.split(found["Service"]["ExecStart"])
    assert program.endswith("/csdp")
    assert check_command(words) >= {"--spec", "--keys", "--host", "--port"}
    assert found["Service"]["LimitCORE"] == "0"
    assert found["Service"]["MemorySwapMax"] == "0"
    assert found["Service"]["UMask"] == "0077"


@pytest.mark.parametrize("page", ["service.md", "deployment.md"])
def test_commands_in_the_docs(page):
    lines = re.findall(r"^ {4}csdp (.*)$", (DOCS / page).read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        check_command(shlex.split(line, comments=True))
