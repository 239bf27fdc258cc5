"""Beyond the paper: which model describes each data set, and what the wrong one hides.

    python -m study.environments           all data sets that are here
    python -m study.environments flights   some

Every model is fitted on the public past of a data set: independent, coupled, by the clock, hidden, and hidden with
coupled members, forward and backward. The gain over independent chains is that on the last 30 % of the past.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import csdp
from csdp import datasets
from csdp.errors import CsdpError

#: Ticks after which the clock of a data set repeats, where its times of day do not tell.
CYCLES = {"flights": 5}
AGE, EPSILON_C = 1, 0.5
DIRECTIONS: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")


@dataclass(frozen=True)
class ModelRow:
    """One model of one data set; `against` names the checks it fails, `leakage` is None where no bound is at hand."""

    data: str
    model: str
    direction: str
    gain: float
    error: float
    against: str
    leakage: float | None

    def __str__(self) -> str:
        leakage = "-" if self.leakage is None else f"{self.leakage:.4f}"
        return (
            f"| {self.data} | {self.model} | {self.direction} | {self.gain:.3f} | {self.error:.3f} | {self.against} "
            f"| {leakage} |"
        )


def read_past(name: str) -> csdp.Panel:
    """The public past of a data set as states."""
    dataset = datasets.load(name)
    return dataset.discretiser().apply(dataset.readings.split(dataset.past_ends)[0])


def compare_models(name: str, panel: csdp.Panel | None = None, cycle: int | None = None) -> list[ModelRow]:
    """Every model of a data set: held-out gain, what speaks against it, and the leakage of one release of the mean."""
    states = read_past(name) if panel is None else panel
    clock = cycle or CYCLES.get(name)
    kinds: dict[str, dict[str, Any]] = {"independent": {"neighbours": 0}, "coupled": {}}
    kinds["clock"] = {"environment": "clock", "cycle": clock}
    kinds["hidden"] = {"environment": "hidden"}
    rows = []
    for direction in DIRECTIONS:
        for kind, settings in kinds.items():
            rows += _fit_row(name, states, kind, direction, settings)
        hidden = next((row for row in reversed(rows) if row.model.startswith("hidden")), None)
        if hidden is not None:
            neighbours = min(8, len(states.names) - 1)
            both = {"environment": "hidden", "environments": int(hidden.model.split()[1]), "neighbours": neighbours}
            rows += _fit_row(name, states, "hidden, coupled", direction, both)
    return rows


def _fit_row(
    name: str,
    panel: csdp.Panel,
    kind: str,
    direction: Literal["forward", "backward"],
    settings: dict[str, Any],
) -> list[ModelRow]:
    """One row; none where the data set has no such model (a clock without times of day)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chain = csdp.fit(panel, public=True, ensemble=0, progress=False, direction=direction, **settings)
            quality = csdp.fit_quality(chain, panel, public=True, progress=False)
        except CsdpError as error:
            sys.stderr.write(f"{name}, {kind}, {direction}: {error}\n")
            return []
    checks = {"order": quality.order, "homogeneity": quality.homogeneity, "together": quality.together}
    failed = [what for what, check in checks.items() if check is not None and not check.passed]
    assert chain.fitted is not None
    label = f"{kind} {chain.fitted.environments}" if kind == "hidden" else kind
    return [
        ModelRow(
            name,
            label,
            direction,
            quality.gain,
            quality.gain_error,
            ", ".join(failed) or "nothing",
            _leakage(chain),
        )
    ]


def _leakage(chain: Any) -> float | None:
    """Leakage of the mean at age `AGE`, given the environment where there is one."""
    try:
        return csdp.leakage(chain, csdp.Mean(), ages=AGE, epsilon_c=EPSILON_C).epsilon
    except CsdpError:
        return None


def main(names: list[str]) -> None:
    """Print the table."""
    out = sys.stdout
    out.write(f"| data | model | direction | gain | standard error | speaks against it | leakage, age {AGE} |\n")
    out.write("|---|---|---|---|---|---|---|\n")
    for name in names or datasets.names():
        try:
            rows = compare_models(name)
        except CsdpError as error:  # a data set whose package is not installed
            sys.stderr.write(f"{name}: {error}\n")
            continue
        out.writelines(f"{row}\n" for row in rows)
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
