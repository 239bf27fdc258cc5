"""`python -m study`: draw the figures, write the table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from csdp.report.figures import save_figure
from study.page import CHAPTERS, Results, chapter


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m study", description="The paper's figures and claims, recomputed.")
    parser.add_argument("--out", type=Path, default=Path("study-out"), help="folder for figures and table")
    parser.add_argument(
        "--figures",
        default=",".join(CHAPTERS),
        help=f"figures to draw, with commas between: {', '.join(CHAPTERS)}; or none",
    )
    parser.add_argument("--docs", type=Path, help="also write the page to this file (docs/reproduction.md)")
    return parser


def select_figures(text: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of the requested figures."""
    names = [name.strip() for name in text.split(",") if name.strip() not in {"", "none"}]
    unknown = [name for name in names if name not in CHAPTERS]
    if unknown:
        parser.error(f"--figures: {unknown[0]!r} given; use some of {', '.join(CHAPTERS)}, or none")
    return names


def main(arguments: list[str] | None = None) -> None:
    """Write table and figures, and print progress."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    names = select_figures(options.figures, parser)
    console, start = Console(), time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    with console.status("study") as status:
        results = Results(tell=lambda name: status.update(f"claims: {name}"))
        for name in names:
            status.update(f"figure: {name}")
            drawn = chapter(name).figure()
            for kind in ("svg", "png"):
                save_figure(drawn, options.out / f"{name}.{kind}")
    page = results.markdown()
    (options.out / "reproduction.md").write_text(page, encoding="utf-8")
    (options.out / "beyond.md").write_text(results.beyond(), encoding="utf-8")
    (options.out / "reproduction.json").write_text(results.to_json(), encoding="utf-8")
    if options.docs is not None:
        options.docs.write_text(page, encoding="utf-8")
    console.print(results.headline())
    console.print(f"{options.out}/reproduction.md, .json and {len(names)} figures, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
