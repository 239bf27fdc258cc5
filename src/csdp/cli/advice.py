"""Remedies in messages of the library, as options of the command that was run: `step='5min'` is `--step 5min` here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: A Python argument in a message: a word, =, and perhaps a value. Not a part of a path or of an equation.
_ARGUMENT = re.compile(
    r"(?<![\w./=-])(?P<name>[a-z][a-z_]*)=(?:'(?P<text>[^']*)'|(?P<flag>True|False)|(?P<number>\d[\w.]*))?(?![\w/=])"
)
#: A setting that a message names as in Python; words without an underscore are left alone, they may be just words.
_SETTING = re.compile(r"(?<![\w./`-])[a-z]+(?:_[a-z]+)+(?![\w(=])")
#: Numbers of the theory, which messages name as such.
_SYMBOLS = frozenset({"epsilon_c", "epsilon_s"})
#: Arguments whose option has another name, or is a flag.
_FLAGS = {("header", "False"): "--no-header", ("times", "data"): "--simulated-times"}


def as_options(message: str, command: Any, *, given: Sequence[str] = (), root: Any = None) -> str:
    """A message whose remedies are options of a command; those of other commands are named with the command.

    Args:
        message: what the library says.
        command: the command that was run.
        given: what the user wrote, which is repeated as it is.
        root: the application, for options of its other commands.
    """
    own = _options(command)
    others = {} if root is None else _options_elsewhere(root)
    kept = [
        text for text in sorted(set(given), key=len, reverse=True) if len(text) > 2 and ("=" in text or "_" in text)
    ]
    for i, text in enumerate(kept):
        message = message.replace(text, f"\0{i}\0")

    def option(name: str, value: str | None) -> str | None:
        flag = _FLAGS.get((name, value or ""), f"--{name.replace('_', '-')}")
        words = flag if value in {None, "True"} or flag == "--no-header" else f"{flag} {shlex.quote(str(value))}"
        if flag in own:
            return words
        return f"`csdp {others[flag]} {words}`" if flag in others else None

    def argument(match: re.Match[str]) -> str:
        value = match["text"] if match["text"] is not None else match["flag"] or match["number"]
        return option(match["name"], value) or match[0]

    def setting(match: re.Match[str]) -> str:
        flag = f"--{match[0].replace('_', '-')}"
        return flag if match[0] not in _SYMBOLS and flag in own else match[0]

    message = _SETTING.sub(setting, _ARGUMENT.sub(argument, message))
    for i, text in enumerate(kept):
        message = message.replace(f"\0{i}\0", text)
    return message


def find_command(root: Any, arguments: Iterable[str]) -> Any:
    """The command that the arguments name."""
    command = root
    for argument in arguments:
        inner = getattr(command, "commands", {})
        if argument not in inner:
            return command
        command = inner[argument]
    return command


def _options(command: Any) -> frozenset[str]:
    return frozenset(name for parameter in command.params for name in parameter.opts if name.startswith("--"))


def _options_elsewhere(root: Any, path: str = "") -> Mapping[str, str]:
    """For each option the first command that has it."""
    found: dict[str, str] = {}
    for name, command in root.commands.items():
        inner = f"{path}{name} "
        if hasattr(command, "commands"):
            found = {**_options_elsewhere(command, inner), **found}
        else:
            found = {**dict.fromkeys(_options(command), inner.strip()), **found}
    return found
