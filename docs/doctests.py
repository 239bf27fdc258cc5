"""Docstrings as Markdown: it would read the `>>>` of an example as a quotation within two others, and show a `::`."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!>>> )\S.*\n|^[ \t]+\S.*\n)*)+", flags=re.MULTILINE)


def fenced(text: str) -> str:
    """The same text with a fence around every run of examples, which ends at an empty line.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```python
    >>> 1 + 1
    2
    ```
    """
    plain = re.sub("::$", ":", text, flags=re.MULTILINE)
    return _EXAMPLE.sub(lambda run: f"```python\n{run[0]}```\n", plain + "\n").rstrip("\n")


class Fenced(griffe.Extension):
    """Fences the examples of every docstring before it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
