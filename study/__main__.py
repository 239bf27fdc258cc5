"""`python -m study`: draw the figures, write the table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from csdp.report.figures import save_figure
from study.page import CHAPTERS, Results, chapter


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    made = argparse.ArgumentParser(prog="python -m study", description="The paper's figures and claims, recomputed.")
    made.add_argument("--out", type=Path, default=Path("study-out"), help="folder for figures and table")
    made.add_argument(
        "--figures",
        default=",".join(CHAPTERS),
        help=f"figures to draw, with commas between: {', '.join(CHAPTERS)}; or none",
    )
    made.add_argument("--docs", type=Path, help="also write the page to this file (docs/reproduction.md)")
    return made


def chosen(text: str, made: argparse.ArgumentParser) -> list[str]:
    """The figures asked for."""
    names = [name.strip() for name in text.split(",") if name.strip() not in {"", "none"}]
    unknown = [name for name in names if name not in CHAPTERS]
    if unknown:
        made.error(f"--figures: {unknown[0]!r} given; use some of {', '.join(CHAPTERS)}, or none")
    return names


def main(arguments: list[str] | None = None) -> None:
    """Write table and figures; say what is going on."""
    made = parser()
    given = made.parse_args(arguments)
    names = chosen(given.figures, made)
    console, start = Console(), time.perf_counter()
    given.out.mkdir(parents=True, exist_ok=True)
    with console.status("study") as status:
        results = Results(tell=lambda name: status.update(f"claims: {name}"))
        for name in names:
            status.update(f"figure: {name}")
            drawn = chapter(name).figure()
            for kind in ("svg", "png"):
                save_figure(drawn, given.out / f"{name}.{kind}")
    page = results.markdown()
    (given.out / "reproduction.md").write_text(page, encoding="utf-8")
    (given.out / "reproduction.json").write_text(results.to_json(), encoding="utf-8")
    if given.docs is not None:
        given.docs.write_text(page, encoding="utf-8")
    console.print(results.headline())
    console.print(f"{given.out}/reproduction.md, .json and {len(names)} figures, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
