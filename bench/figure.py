"""How cost grows: one panel for each section that has points, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path

from bench.record import Record


def draw(results: dict[str, list[Record]], path: Path) -> bool:
    """Write the figure; False where there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = {}
    for section, records in results.items():
        for record in records:
            if "series" in record:
                lines = panels.setdefault((section, record["by"]), {})
                lines.setdefault(record["series"], []).append((record["size"], record["seconds"]))
    if not panels:
        return False
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, ((section, by), lines) in zip(axes[0], panels.items(), strict=True):
        for name, points in lines.items():
            sizes, seconds = zip(*sorted(points), strict=True)
            axis.loglog(sizes, seconds, "o-", label=name, markersize=3)
        axis.set(title=section, xlabel=by, ylabel="seconds")
        axis.legend(fontsize=7, frameon=False)
        axis.grid(True, alpha=0.3)
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return True
