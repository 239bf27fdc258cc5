"""Formulas as MathML, which browsers draw by themselves: no script, no fonts and no network are needed.

Pages hold TeX, between single dollars in a line and between double dollars in a paragraph of its own.
`pymdownx.arithmatex` keeps it from being read as Markdown; `on_page_content` then turns it into MathML. Only the part
of TeX that the pages use is known, and anything else is an error, so that no formula is shown wrong.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

#: Commands that stand for one sign: `<mi>` for a letter or a word, `<mo>` for an operator.
_LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "theta": "θ",
    "kappa": "κ",
    "nu": "ν",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "lambda": "λ",
    "Delta": "Δ",
    "infty": "∞",
    "ell": "ℓ",
    **{word: word for word in ("ln", "max", "min", "sup", "cosh", "tanh", "Pr")},
}
_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_OPERATORS = {
    "le": "≤",
    "ge": "≥",
    "leftarrow": "←",
    "cdot": "⋅",
    "in": "∈",
    "notin": "∉",
    "ne": "≠",
    "subset": "⊂",
    "mid": "∣",
    "propto": "∝",
    "sim": "∼",
    "dots": "…",
    **_LARGE,
}
_BARS = {"lvert": "|", "rvert": "|", "lVert": "‖", "rVert": "‖", "lbrace": "{", "rbrace": "}"}
_SIGNS = {
    **{name: f"<mi>{sign}</mi>" for name, sign in _LETTERS.items()},
    **{name: f"<mo>{sign}</mo>" for name, sign in _OPERATORS.items()},
    **{name: f'<mo stretchy="false">{sign}</mo>' for name, sign in _BARS.items()},
    **{name: f'<mspace width="{width}"/>' for name, width in {",": "0.17em", "quad": "1em"}.items()},
}
_LIMITS = {"max", "min", "sup"}  # what is below them goes under the word in a display

_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|\d+(?:[.,]\d+)*|\s+|.", flags=re.DOTALL)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', flags=re.DOTALL)


class _Reader:
    """Reads one formula, token by token."""

    def __init__(self, tex: str, *, display: bool) -> None:
        self._tokens = _TOKEN.findall(tex)
        self._display = display

    def row(self, end: str | None = None) -> str:
        """Everything up to a closing token, which is consumed."""
        parts = []
        while self._next():
            if self._next() == end:
                self._tokens.pop(0)
                return _row(parts)
            parts.append(self._with_scripts())
        if end is not None:
            raise ValueError(f"formula: {end} is missing at its end")
        return _row(parts)

    def _next(self) -> str:
        """The next token, which is left where it is; spaces before it mean nothing."""
        while self._tokens and self._tokens[0].isspace():
            self._tokens.pop(0)
        return self._tokens[0] if self._tokens else ""

    def _with_scripts(self) -> str:
        """An atom with what stands below and above it."""
        below_and_above = self._next().removeprefix("\\") in {*_LARGE, *_LIMITS} and self._display
        base, below, above = self._atom(), "", ""
        while self._next() in {"_", "^", "'"}:
            mark = self._tokens.pop(0)
            if mark == "_":
                below = self._atom()
            else:
                above += "<mo>′</mo>" if mark == "'" else self._atom()
        above = f"<mrow>{above}</mrow>" if above.count("</") > 1 and not above.startswith("<mrow>") else above
        kind = {(True, True): "subsup", (True, False): "sub", (False, True): "sup"}.get((bool(below), bool(above)))
        if kind is None:
            return base
        if below_and_above:
            kind = {"subsup": "underover", "sub": "under", "sup": "over"}[kind]
        return f"<m{kind}>{base}{below}{above}</m{kind}>"

    def _atom(self) -> str:
        if not self._next():
            raise ValueError("formula: something is missing at its end")
        token = self._tokens.pop(0)
        if token == "{":
            return self.row("}")
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "()[]":
            return f'<mo stretchy="false">{token}</mo>'  # as in TeX, only left and right make high brackets
        if not token.startswith("\\"):
            return f"<mo>{html.escape('−' if token == '-' else token)}</mo>"
        return self._command(token[1:])

    def _command(self, name: str) -> str:
        if name in _SIGNS:
            return _SIGNS[name]
        if name == "frac":
            return f"<mfrac>{self._atom()}{self._atom()}</mfrac>"
        if name == "text":
            return f"<mtext>{''.join(self._words())}</mtext>"
        if name in {"left", "right"}:
            return f'<mo stretchy="true">{self._tokens.pop(0)}</mo>'  # a bracket as high as what it holds
        raise ValueError(f"formula: \\{name} is not known to docs/mathml.py")

    def _words(self) -> Iterator[str]:
        """The plain words of `\\text{...}`, with the spaces between them."""
        if self._tokens.pop(0) != "{":
            raise ValueError("formula: \\text needs its words in braces")
        while (token := self._tokens.pop(0)) != "}":
            yield "\N{NO-BREAK SPACE}" if token == "~" or token.isspace() else html.escape(token)


def _row(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def mathml(tex: str, *, display: bool = False) -> str:
    """A formula as MathML.

    >>> mathml("e^{-x_i}")
    '<math><msup><mi>e</mi><mrow><mo>−</mo><msub><mi>x</mi><mi>i</mi></msub></mrow></msup></math>'
    """
    kind = ' display="block"' if display else ""
    return f"<math{kind}>{_Reader(tex.strip(), display=display).row()}</math>"


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of every page: the same with its formulas as MathML."""
    drawn = _FORMULA.sub(lambda formula: mathml(html.unescape(formula[2]), display=formula[1] == "div"), content)
    if 'class="arithmatex"' in drawn:
        raise ValueError("a formula was not turned into MathML: is `generic: true` set for pymdownx.arithmatex?")
    return drawn
