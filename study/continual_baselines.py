"""Beyond the paper: every method with a release at every tick without end, at one certified leakage of the present.

    python -m study.continual_baselines                  all systems, as a Markdown table
    python -m study.continual_baselines paper ring       some

It writes the table of docs/baselines.md. The two data sets are fitted as backward chains of two states under four
hidden regimes on their public past, and certified given the environment: the figures are those of the fitted chain, not
of held-out readings.
"""

from __future__ import annotations

import argparse
import sys

import csdp
from csdp import datasets
from study.baselines.continual import ContinualComparison, ContinualRow, compare_continual
from study.setting import MEAN, pair

#: Certified leakage of the present, for ever.
BUDGETS = {"paper": 0.5, "skewed": 0.5, "slow": 1.0, "ring": 0.5, "flights": 0.75, "parking": 5.0}
WORDS = {
    "paper": "the paper's chain: weight 0.5, change 0.3",
    "skewed": "skewed: weight 0.75, 0 to 1 with 0.01, back with 0.3",
    "slow": "slow: weight 0.75, change 0.05",
    "ring": "backward ring of 50, own weight 0.8, change 0.3",
    "flights": "flights: 33 destinations, late or not, four hidden regimes",
    "parking": "parking: 10 car parks, more than half full or not, four hidden regimes",
}


def ring(sequences: int, own: float, change: float) -> csdp.CoupledChain:
    """A backward ring: every sequence follows itself, else one of its two neighbours."""
    side = (1.0 - own) / 2
    rows = [
        [own if i == k else side if (i - k) % sequences in {1, sequences - 1} else 0.0 for k in range(sequences)]
        for i in range(sequences)
    ]
    return csdp.CoupledChain(rows, [[1 - change, change], [change, 1 - change]], direction="backward")


def fitted(name: str, edge: float) -> csdp.EnvironmentChain:
    """A backward chain of two states under hidden regimes, fitted on the public past: the point estimate."""
    dataset = datasets.load(name)
    past, _ = dataset.readings.split(dataset.past_ends)
    names = dataset.readings.names
    states = csdp.Discretiser.declared(names, edges=[edge], bounds=(0.0, 1.0)).apply(past).states
    panel = csdp.Panel.from_states(states, names=names)  # the values of the states are 0 and 1
    chain = csdp.fit(panel, public=True, direction="backward", environment="hidden", environments=4)
    assert isinstance(chain, csdp.EnvironmentChain)
    return chain


def system(name: str) -> csdp.CoupledChain | csdp.EnvironmentChain:
    """The chain of that name."""
    if name in {"flights", "parking"}:
        return fitted(name, {"flights": 0.34, "parking": 0.5}[name])
    made = {"paper": pair(0.5), "skewed": pair(0.75, 0.01, 0.3), "slow": pair(0.75, 0.05, 0.05)}
    return made[name] if name in made else ring(50, 0.8, 0.3)


def share(row: ContinualRow, table: ContinualComparison, *, total: bool) -> float | None:
    """The error of a row as a share of that of publishing nothing."""
    value, whole = (row.total_mse, table.total_no_data) if total else (row.mse, table.no_data)
    return None if value is None else value / whole


def line(name: str, table: ContinualComparison) -> str:
    """One line of Markdown: ours, the best other method, and who wins, on answers and on running totals."""
    ours = [row for row in table.rows if row.verdict == "ours"]
    cells = [WORDS[name], f"{table.budget:g}"]
    for total in (False, True):
        own = ours[-1] if total else ours[0]
        same = [row for row in table.rows if (row.total_verdict if total else row.verdict) == "same release"]
        skip = {"no-data", *(row.name for row in (*ours, *same))}
        others = {row.method: share(row, table, total=total) for row in table.rows if row.name not in skip}
        known = {method: value for method, value in others.items() if value is not None}
        best = min(known, key=lambda method: known[method])
        mine = share(own, table, total=total)
        better = table.better_totals if total else table.better
        winner = ", ".join(row.method for row in better) or "nobody"
        cells += [f"{own.age}", f"{mine:.1%}", f"{known[best]:.1%} ({best})", winner]
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> None:
    """Print the table of some systems, or of all."""
    parser = argparse.ArgumentParser(prog="python -m study.continual_baselines", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORDS)}; default all")
    names = parser.parse_args(arguments).names or list(WORDS)
    head = "| system | budget | age | ours | best other | better | totals: age | ours | best other | better |"
    sys.stdout.write(f"{head}\n|{'---|' * 10}\n")
    for name in names:
        table = compare_continual(system(name), MEAN, budget=BUDGETS[name], max_age=8)
        sys.stdout.write(line(name, table) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
