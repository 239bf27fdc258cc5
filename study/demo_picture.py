"""`python -m study.demo_picture`: the picture of the README and the front page, with its caption, from `csdp demo`.

The noise is drawn anew each time, so picture, figures (demo_picture.json) and caption are written together. A test
compares the captions with the figures.
"""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from csdp.bounds.result import as_text
from csdp.demo.page import HOURS, draw_flights, run_flights_demo
from csdp.report.figures import save_figure
from csdp.report.page import percent

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "assets" / "demo.png"
SUMMARY = Path(__file__).with_suffix(".json")
#: The page with the caption.
PAGE = ROOT / "README.md"
_CAPTION = re.compile(r"^\*`make demo`: .*?\*$", re.MULTILINE | re.DOTALL)


def caption(summary: Mapping[str, Any]) -> str:
    """The caption of the picture, computed from summary.json."""
    now, late = summary["now"], summary["late"]
    accepted = summary["model"]["status"] == "accepted"
    doubts = (
        ""
        if accepted
        else "The flights reject the model, so this is an example, and every output says so: if it held, "
    )
    worth, kept = percent(now["usefulness"]), percent(now["coverage"])
    moment, present = as_text(now["every_moment"], 3), as_text(now["present"], 3)
    belief = as_text(100 * now["belief"]["every_moment"], 2)
    text = (
        "*`make demo`: the share of 33 destinations to which flights from New York leave late, published every "
        f"{HOURS} hours with noise (dots). Line and band: the estimate that is published with it. Dashed: what is "
        f"usual at that hour. It removes {worth} of the squared error of guessing the usual value, and its 95 % band "
        f"contains {kept} of the true shares. {doubts}{'E' if accepted else 'e'}verything published, in the long run, "
        f"reveals at most epsilon = {moment} about one destination at any one moment (a 50 % guess becomes at most "
        f"{belief} %), and {present} about its present, given the environment, such as a storm. One reading has plain "
        f"differential privacy with epsilon = {as_text(summary['event_level'], 3)}, under any model. Held back "
        f"{late['age'] * HOURS} hours, the same number removes {percent(late['usefulness'])} of the squared error and "
        f"reveals {as_text(late['present'], 3)} about the present.*"
    )
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


def main() -> None:
    """Run the demonstration, and write picture, figures and captions."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_flights_demo(folder, version=version("csdp"))
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        save_figure(draw_flights(result.study)["private"], PICTURE)  # of public data: nobody's secret
    SUMMARY.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(_CAPTION.sub(lambda _: caption(summary), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
