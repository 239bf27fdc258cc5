"""A first proposal for a file of readings: discretiser, chain, query, limits and plan, with a reason for each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csdp.aging import Progress
from csdp.bounds.result import as_text
from csdp.chain import CoupledChain, Family, Model
from csdp.chain.family import certified_model
from csdp.chain.files import save_model
from csdp.errors import CsdpWarning, InputError
from csdp.estimate import Error, mse
from csdp.fitting.fit import fit
from csdp.fitting.quality import FitQuality, fit_quality
from csdp.panel import Discretiser, Panel, Readings, read_readings
from csdp.plan import Plan
from csdp.planning import FoundPlan, find_plan
from csdp.queries import Mean

#: Largest number of joint states of a component for which the leakage of many releases is tight and fast.
COMPONENT_STATES = 16
#: Largest number of distinct readings for which each becomes a state.
FEW_NUMBERS = 4
AGES = range(1, 5)
ENSEMBLE = 4
PRIVACY = (
    "The proposed states, chain and plan are derived from the readings and reveal something about them. Use readings "
    "that are public, or an older public part of them; otherwise do not pass the proposal on, and fit again with "
    "csdp fit --epsilon."
)


@dataclass(frozen=True)
class Suggestion:
    """A proposal, and the reason for each choice."""

    discretiser: Discretiser
    chain: CoupledChain
    quality: FitQuality | None
    plan: Plan
    budget: float
    ceiling: float
    error: Error
    reasons: tuple[tuple[str, str, str], ...]  #: what, the choice, why

    def commands(self, data: str, folder: str = "DIR") -> tuple[str, ...]:
        """The commands to run next, with the files of a folder."""
        return (
            f"csdp release {data} --discretiser {folder}/discretiser.json --plan {folder}/plan.json --budget "
            f"{self.budget:g} --dataset NAME --ledger ledger.db --on-refusal skip -o released.csv",
            "csdp report ledger.db --dataset NAME -o report",
        )

    def save(self, folder: Path, *, data: str) -> list[Path]:
        """Write discretiser, chain, plan, and the commands to run next."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("discretiser.json", "chain.json", "plan.json", "next.txt")]
        self.discretiser.save(paths[0])
        save_model(self.chain, paths[1])
        paths[2].write_text(self.plan.to_json(indent=2) + "\n", encoding="utf-8")
        paths[3].write_text("\n".join(self.commands(data, str(folder))) + "\n", encoding="utf-8")
        return paths


def suggest(data: Any, *, budget: float = 1.0, public: bool = False, progress: Progress | None = None) -> Suggestion:
    """Propose states, chain, query, limits and plan for readings (a file, a frame, an array, or `Readings`).

    The proposal is derived from the readings and reveals something about them: it warns with PrivacyLeakWarning
    unless they are declared public.

    >>> from csdp import CoupledChain
    >>> states = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]]).simulate(600, seed=1)
    >>> proposal = suggest(states.astype(float), public=True)
    >>> proposal.chain.sequences, proposal.ceiling <= 1.0, [what for what, _, _ in proposal.reasons][:3]
    (2, True, ['states', 'chain', 'fit'])
    """
    if not public:
        from csdp.errors import PrivacyLeakWarning

        warnings.warn(PRIVACY, PrivacyLeakWarning, stacklevel=2)
    readings = data if isinstance(data, Readings) else read_readings(data)
    reasons: list[tuple[str, str, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # warned above, once
        discretiser = _propose_discretiser(readings, reasons)
        panel = discretiser.apply(readings)
        chain, quality = _propose_chain(panel, reasons, progress)
    plan, ceiling, error = _propose_plan(chain, budget, reasons, progress)
    return Suggestion(discretiser, chain, quality, plan, budget, ceiling, error, tuple(reasons))


def _propose_discretiser(readings: Readings, reasons: list[tuple[str, str, str]]) -> Discretiser:
    if len(readings) < 50:
        raise InputError(f"data: {len(readings)} ticks; at least 50 are needed to propose anything")
    cells = readings.readings[np.isfinite(readings.readings)]
    distinct = np.unique(cells[: 10**6]).size
    if 2 <= distinct <= FEW_NUMBERS:
        discretiser = Discretiser.fit(readings, strategy="categories", public=True)
        choice = f"{discretiser.state_count}, one for each number"
        reasons.append(("states", choice, f"the readings have {distinct} distinct numbers"))
        return discretiser
    m = 3 if len(readings.names) <= 2 else 2
    why = "equally many readings in each, because rare states leak most; few states, because joint states multiply"
    reasons.append(("states", f"{m} for each sequence, by quantiles", why))
    return Discretiser.fit(readings, states=m, strategy="quantile", public=True)


def _propose_chain(
    panel: Panel, reasons: list[tuple[str, str, str]], progress: Progress | None
) -> tuple[CoupledChain, FitQuality | None]:
    s, m = len(panel.names), panel.state_count
    largest = max(1, int(np.log(COMPONENT_STATES) / np.log(m) + 1e-9))
    neighbours: Any = "all" if s <= largest else _strongest_pairs(panel)
    coupling = "all sequences" if s <= largest else "pairs with the strongest dependence"
    chain = fit(panel, neighbours=neighbours, public=True, ensemble=ENSEMBLE, progress=progress or False)
    assert isinstance(chain, CoupledChain)
    why = f"components of at most {COMPONENT_STATES} joint states keep the leakage of many releases tight"
    reasons.append(("chain", f"couples {coupling}, by em; a family of {ENSEMBLE + 1}", why))
    try:
        quality = fit_quality(chain.without_family(), panel, public=True, progress=progress or False)
    except InputError:
        quality = None
    verdict = "too few ticks to hold some out" if quality is None else quality.verdict
    reasons.append(("fit", "accepted" if quality is not None and quality.explains else "NOT explained", verdict))
    return chain, quality


def _strongest_pairs(panel: Panel) -> Any:
    """Choose disjoint pairs, the strongest lag-1 dependence first."""
    states = np.where(panel.states < 0, np.nan, panel.states.astype(np.float64))
    left, right = states[:-1], states[1:]
    lagged = np.nan_to_num((left - np.nanmean(left, axis=0)).T @ np.nan_to_num(right - np.nanmean(right, axis=0)))
    deviations = np.maximum(np.nanstd(states, axis=0), 1e-9)
    strength = np.abs(lagged) / np.outer(deviations, deviations)
    strength = strength + strength.T
    free = set(range(strength.shape[0]))
    pairs = []
    for place in np.argsort(-strength, axis=None):
        i, k = (int(n) for n in np.unravel_index(place, strength.shape))
        if i < k and i in free and k in free:
            free -= {i, k}
            pairs += [(i, k), (k, i)]
    return pairs or 0


def _propose_plan(
    chain: CoupledChain, budget: float, reasons: list[tuple[str, str, str]], progress: Progress | None
) -> tuple[Plan, float, Error]:
    query, point = Mean(), chain.without_family()
    reasons.append(("query", "mean", "each sequence changes it little, so it needs the least noise for a given budget"))
    # The age is chosen for the point estimate alone: planning for a family takes many times longer.
    age = _find_continual_plan(point, budget, AGES, progress).plan.ages[0]
    best = _find_continual_plan(certified_model(chain), budget, range(age, age + 1), progress)
    plan, most = best.plan, best.leakage.epsilon
    error = mse(point, query, ages=age, epsilon_c=plan.epsilon_c, estimate="linear")
    reasons.append(
        (
            "budget",
            f"{budget:g} for the present",
            f"the odds of any present state change by at most a factor e^{budget:g}, at every moment",
        )
    )
    useful = (
        f"the least error of ages {AGES[0]} to {AGES[-1]}; it {error.in_words}"
        if error.usefulness >= 0.01
        else "no age beats publishing nothing but the long-run mean; use more sequences, or a larger budget"
    )
    reasons.append(
        ("plan", f"age {age}, epsilon_c {plan.epsilon_c:.3g}: leaks at most {as_text(most)} without end", useful)
    )
    reasons.append(
        (
            "event limit",
            f"{plan.epsilon_c:.3g}",
            "plain differential privacy of one reading, which holds under any model",
        )
    )
    return plan, most, error


def _find_continual_plan(chain: Model | Family, budget: float, ages: range, progress: Progress | None) -> FoundPlan:
    return find_plan(
        chain,
        Mean(),
        budget=budget,
        min_age=ages[0],
        max_age=ages[-1],
        releases="continual",
        estimate="linear",
        progress=progress,
    )
