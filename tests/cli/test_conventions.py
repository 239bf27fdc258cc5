"""Conventions that all commands follow: options, help, errors, and output on a terminal, in a pipe and in a script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from inspect import unwrap
from typing import get_args, get_type_hints

import pytest
import typer.main

from csdp.cli import app
from csdp.cli.terminal import PANELS


def commands(command, path=()):
    for name, inner in command.commands.items():
        yield (*path, name), inner
        if hasattr(inner, "commands"):
            yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
LEAVES = {
    path: command for path, command in ALL.items() if not hasattr(command, "commands") or command.invoke_without_command
}
#: Options whose help texts differ between commands, and why.
MEANT = {
    "--output": "every command writes something else",
    "--budget": "a limit of a dataset; for plan the target that is met",
    "--dataset": "a name that is charged; one of many to look at; those that a key opens",
    "--ledger": "release charges it, audit replays it in the place of a plan",
    "--model-unchecked": "release publishes under such a model, suggest proposes plans under it",
    "--spec": "serve takes several",
    "--about": "of a plan; of proposals, which may be of both kinds",
    "--plan": "what is published; for report what its readings mean; init names it in the specification",
    "--names": "given to a chain that is made; chosen among those of readings",
}
#: One name for one thing: what an option of this name takes, wherever it is.
MEANINGS = {
    "--query": "str",
    "--age": "str",
    "--epsilon-c": "float",
    "--budget": "float",
    "--event-limit": "float",
    "--moment-limit": "float",
    "--seed": "int",
}


def process(*args, env=None, **options):
    environment = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}}
    return subprocess.run(
        [sys.executable, "-m", "csdp", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, **(env or {})},
        check=False,
        **options,
    )


def options(command):
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


class TestHelp:
    def test_commands_are_grouped_by_the_pipeline(self, run):
        output = run("--help").stdout
        places = [output.index(f"{panel}:") for panel in PANELS]
        assert places == sorted(places)
        for path, command in ALL.items():
            if len(path) == 1:
                assert command.rich_help_panel in PANELS, f"{path}: give it a rich_help_panel in csdp/cli/app.py"
                panel = output[output.index(f"{command.rich_help_panel}:") :].split("\n\n")[0]
                assert re.search(rf"^  {path[0]} ", panel, flags=re.MULTILINE)

    @pytest.mark.parametrize("group", [(), *(path for path in ALL if path not in LEAVES)], ids=" ".join)
    def test_no_sentence_is_cut(self, run, group):
        assert "..." not in run(*group, "--help").stdout.partition("Options:")[2]

    @pytest.mark.parametrize("path", ALL, ids=" ".join)
    def test_every_command_has_an_example_of_its_own(self, run, path):
        output = run(*path, "--help").stdout
        assert f"csdp {' '.join(path)}" in output.partition("Example")[2]

    def test_a_mistyped_command_is_met_with_a_suggestion(self, fails):
        assert "Did you mean 'leakage'" in fails("leakge")


class TestConventions:
    @pytest.mark.parametrize("path", LEAVES, ids=" ".join)
    def test_no_command_has_many_options(self, path):
        assert len([parameter for parameter in options(LEAVES[path]) if parameter.name != "help"]) <= 15

    def test_one_spelling(self):
        for path, command in LEAVES.items():
            for parameter in options(command):
                for name in parameter.opts:
                    assert re.fullmatch(r"--[a-z][a-z-]*[a-z]|--[a-z]|-[a-z]", name), f"{' '.join(path)}: {name}"

    def test_an_output_file_is_always_output_or_o(self):
        for path, command in LEAVES.items():
            for parameter in options(command):
                if "--output" in parameter.opts or "-o" in parameter.opts:
                    assert {"--output", "-o"} <= set(parameter.opts), " ".join(path)

    def test_format_is_a_table_or_json(self):
        for path, command in LEAVES.items():
            for parameter in options(command):
                if "--format" in parameter.opts:
                    assert parameter.default == "table", " ".join(path)

    def test_an_option_means_the_same_everywhere(self):
        for path, command in LEAVES.items():
            taken = get_type_hints(unwrap(command.callback))
            for parameter in options(command):
                kind = MEANINGS.get(parameter.opts[0])
                if kind is not None:
                    hint = taken[parameter.name]
                    names = {part.__name__ for part in (get_args(hint) or (hint,))} - {"NoneType"}
                    assert names == {kind}, f"{' '.join(path)}: {parameter.opts[0]} takes {hint}"

    def test_help_texts_are_the_same_everywhere(self):
        texts = defaultdict(set)
        for command in LEAVES.values():
            for parameter in options(command):
                texts[parameter.opts[0]].add(parameter.help)
        assert {name for name, found in texts.items() if len(found) > 1} == set(MEANT)


class TestTerminals:
    """No colours where nobody asked for them."""

    CASES = (
        ["--help"],
        ["leakage", "chain.json", "--age", "2", "--epsilon-c", "1"],
        ["leakage", "nofile.json", "--age", "2", "--epsilon-c", "1"],
    )

    @pytest.mark.parametrize("args", CASES, ids=lambda args: " ".join(args[:2]))
    def test_a_pipe_gets_plain_text(self, paper, args):
        done = process(*args, cwd=paper.parent, env={"TERM": "xterm-256color"})
        assert done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr


class TestErrors:
    def test_a_wrong_value_says_what_is_allowed(self, fails, paper):
        message = fails("leakage", paper, "--age", "1", "--epsilon-c", "1", "--adversary", "bad")
        assert "'bad' is not one of 'informed', 'uninformed'; try 'csdp leakage --help'" in message

    def test_a_wrong_number_is_named(self, fails, paper):
        message = fails("leakage", paper, "--epsilon-c", "x")
        assert message.startswith("csdp: invalid value for '--epsilon-c': 'x' given; it should be a valid number; try")

    def test_no_name_is_shown_that_nobody_gave(self, fails, tmp_path):
        """Parts and locks beside a file are our own affair."""
        keys = tmp_path / "none" / "keys.json"
        message = fails("serve", "key", "new", "--role", "reader", "--dataset", "d", "--keys", keys)
        assert message == f"csdp: {keys}: its folder does not exist; make it first, or give another file"
        assert "this is a folder; give a file" in fails(
            "serve", "key", "new", "--role", "reader", "--dataset", "d", "--keys", tmp_path
        )

    def test_what_is_read_is_not_overwritten(self, fails, paper, plan_file, tmp_path):
        plan = plan_file(paper)
        before, out = plan.read_bytes(), tmp_path / "plan.csv"
        out.symlink_to(plan)
        place = ["--dataset", "d", "--ledger", str(tmp_path / "ledger.db"), "-o", out]
        assert f"this would overwrite {plan}, which is read" in fails("release", tmp_path / "r", "--plan", plan, *place)
        assert plan.read_bytes() == before

    def test_a_missing_option_is_named(self, fails, paper):
        assert "'--ledger'" in fails("release", "r.csv", "--plan", paper, "--dataset", "d", "-o", "o.csv")


class TestCompletion:
    def test_in_a_real_bash(self, tmp_path):
        """The script that is shown, loaded by bash, completes commands and options."""
        command = tmp_path / "csdp"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m csdp "$@"\n')
        command.chmod(0o755)
        script = (
            "source <(csdp --show-completion); COMP_WORDS=(csdp le); COMP_CWORD=1; _csdp_completion csdp; "
            'echo "${COMPREPLY[@]}"; COMP_WORDS=(csdp leakage --eps); COMP_CWORD=2; _csdp_completion csdp; '
            'echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            [shutil.which("bash") or "bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert done.stdout.splitlines() == ["leakage ledger", "--epsilon-c"]
