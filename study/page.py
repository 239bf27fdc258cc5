"""The reproduction table: as a page for people, and as data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from study.record import VERDICTS, Chapter, Claim, Finding

#: The figures of the paper in its order, its theorems, then what it leaves open.
CHAPTERS = (
    "model",
    "mechanism",
    "bounds",
    "leakage",
    "utility",
    "comparison",
    "sequences",
    "continual",
    "methods",
)

_HEAD = """# Reproduction

Every figure, number and claim of the paper, recomputed by `make reproduce`, which also draws the figures and
answers what the paper leaves open (`study-out/beyond.md`). A test writes this page again and compares.

- **paper**: its number, or what it says. Claims are in our words.
- **its formula gives**: what comes out when the printed formula is evaluated in the stated set-up (two binary
  sequences, change 0.3, their mean). Where d(2) is used it is 2.
- **exactly true**: the exact leakage, or the error under the joint law. "Weight" is that of a sequence on itself,
  "change" the chance to change state, "age" that of the published data; epsilon_c is 1 where nothing is said.
- **verdict**: *reproduced*; *reproduced only with* something that the paper does not say; *not reproducible*, where the
  number does not come out of its formulas; *false*, where the statement does not hold, whatever its number.

The errors behind the verdicts, each with a counterexample that runs, are in the [errata](errata.md).
"""


def chapter(name: str) -> Chapter:
    """The chapter of that name."""
    chapter_of_name = import_module(f"study.{name}").CHAPTER
    assert isinstance(chapter_of_name, Chapter)
    return chapter_of_name


class Results:
    """Claims and findings of some chapters."""

    def __init__(self, names: Sequence[str] = CHAPTERS, *, tell: Callable[[str], None] = lambda _: None) -> None:
        self.claims: dict[str, list[Claim]] = {}
        self.findings: dict[str, list[Finding]] = {}
        for name in names:
            tell(name)
            self.claims[name] = list(chapter(name).claims())
            self.findings[name] = list(chapter(name).findings())

    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        verdicts = Counter(claim.kind for claims in self.claims.values() for claim in claims)
        return {verdict: verdicts[verdict] for verdict in VERDICTS}

    def headline(self) -> str:
        """The counts in words."""
        counts = self.counts()
        listed = ", ".join(f"{count} {verdict.removesuffix(' with')}" for verdict, count in counts.items())
        return f"{sum(counts.values())} claims: {listed}"

    def markdown(self) -> str:
        """The page."""
        parts = [_HEAD, f"**{self.headline()}.**\n"]
        for name, claims in self.claims.items():
            if claims:
                parts.append(f"## {chapter(name).title}\n\n`study/{name}.py`\n")
                parts.append(_table(("claim", "paper", "its formula gives", "exactly true", "verdict"), _rows(claims)))
        return "\n".join(parts)

    def beyond(self) -> str:
        """What the paper leaves open, as a page of its own."""
        rows = [(f.question, f.answer, f.note) for findings in self.findings.values() for f in findings]
        return "# Beyond the paper\n\n" + _table(("question", "answer", "beside it"), rows)

    def to_json(self) -> str:
        """The same as data."""
        content: dict[str, Any] = {
            "counts": self.counts(),
            "claims": [
                {"chapter": name, **claim.to_dict()} for name, claims in self.claims.items() for claim in claims
            ],
            "findings": [
                {"chapter": name, **finding.to_dict()}
                for name, findings in self.findings.items()
                for finding in findings
            ],
        }
        return json.dumps(content, indent=1) + "\n"


def _rows(claims: Sequence[Claim]) -> list[tuple[str, ...]]:
    return [
        (
            f"{claim.says} ({claim.where})",
            claim.paper,
            claim.printed,
            claim.exact,
            f"**{claim.verdict}**" + (f"; {claim.remark}" if claim.remark else ""),
        )
        for claim in claims
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
