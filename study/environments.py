"""Beyond the paper: which model describes each data set, and what the wrong one hides.

    python -m study.environments           all data sets
    python -m study.environments flights   some

Every model is fitted on the public past of a data set. The gain over independent chains, in nats a tick, is that on the
last 30 % of the past after a fit on the rest, and so are the choices of a fit (how many environments, how much they are
shrunk). Chains with environments have backward members, for which the noise counts at any size.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import csdp
from study import sets

#: The parts of a day of flights, whose nights are left out; the others have the time of day as their clock.
CYCLES = {"flights": 5}
AGE, EPSILON_C = 1, 0.5
#: Joint states of a component, and phases of a clock, up to which exact leakage is asked for.
EXACT_STATES, EXACT_PHASES = 4096, 48


@dataclass(frozen=True)
class ModelRow:
    """One model of one data set; `against` names the checks it fails."""

    data: str
    model: str
    gain: float
    error: float
    against: str
    leakage: float

    @property
    def is_better(self) -> bool:
        """Whether it gains over independent chains by more than three standard errors."""
        return self.gain > 3 * self.error

    def __str__(self) -> str:
        return (
            f"| {self.data} | {self.model} | {round(self.gain, 3) + 0.0:.3f} | {self.error:.3f} | {self.against} "
            f"| {self.leakage:.3f} |"
        )


def read_past(name: str) -> csdp.Panel:
    """The public past of a data set as states."""
    dataset = sets.load(name)
    return dataset.discretiser().apply(dataset.readings.split(dataset.past_ends)[0])


def list_models(name: str) -> dict[str, dict[str, Any]]:
    """Every model that a data set may have, and the settings of its fit."""
    back: dict[str, Any] = {"direction": "backward"}
    clock = back | {"environments": CYCLES.get(name)}
    return {
        "independent": {"neighbours": 0},
        "coupled, forward": {},
        "coupled, backward": back,
        "clock": clock | {"environment": "clock"},
        "hidden": back | {"environment": "hidden"},
    }


def fit_model(panel: csdp.Panel, settings: dict[str, Any]) -> Any:
    """One model, fitted on public readings, without the class that grows around it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return csdp.fit(panel, public=True, **settings).without_family()


def describe_model(name: str, model: str, panel: csdp.Panel | None = None) -> ModelRow:
    """Held-out gain of one model, what speaks against it, and the leakage of one release of the mean."""
    past = read_past(name) if panel is None else panel
    chain = fit_model(past, list_models(name)[model])
    quality = csdp.fit_quality(chain, past, public=True)
    checks = {"order": quality.order, "homogeneity": quality.homogeneity, "together": quality.together}
    failed = [what for what, check in checks.items() if check is not None and not check.passed]
    number = f" {len(chain.environments)}" if "hidden" in model else ""
    return ModelRow(
        name,
        f"{model}{number}",
        quality.gain,
        quality.gain_error,
        ", ".join(failed) or "nothing",
        release_leakage(chain),
    )


def release_leakage(chain: Any) -> float:
    """Leakage of one release of the mean at age `AGE`, given the environment.

    If exact leakage takes long, the least of what is known of components of any size.
    """
    largest = max(len(component) for component in chain.given_path().components())
    bounds: tuple[str, ...] = ("auto",)
    if chain.phases > EXACT_PHASES or chain.states**largest > EXACT_STATES:
        bounds = ("influence" if chain.direction == "backward" else "slice", "group")
    return min(csdp.leakage(chain, csdp.Mean(), ages=AGE, epsilon_c=EPSILON_C, bound=b).epsilon for b in bounds)


def main(names: list[str]) -> None:
    """Print the table."""
    out = sys.stdout
    out.write("| data | model | gain | standard error | speaks against it | leakage |\n|---|---|---|---|---|---|\n")
    for name in names or sets.NAMES:
        past = read_past(name)
        for model in list_models(name):
            out.write(f"{describe_model(name, model, past)}\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
