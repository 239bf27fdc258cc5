"""A first proposal for a file of readings: discretiser, chain, query, limits and plan, with a reason for each."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csdp.aging import Progress
from csdp.bounds.result import as_text
from csdp.chain import CoupledChain
from csdp.chain.family import certified_model
from csdp.chain.files import save_model
from csdp.errors import CsdpWarning, InfeasibleError, InputError
from csdp.estimate import Error, LearnedEstimator, moments
from csdp.estimate.result import about_words
from csdp.fitting.fit import fit
from csdp.fitting.quality import FitQuality, fit_quality
from csdp.panel import Discretiser, Panel, Readings, read_readings
from csdp.plan import Plan
from csdp.planning import FoundPlan, find_plan, improvements
from csdp.publisher import learn_from_past
from csdp.publisher.estimates import StoredEstimate
from csdp.queries import Mean

#: Largest number of joint states of a component for which the leakage of many releases is tight and fast.
COMPONENT_STATES = 16
#: Largest number of distinct readings for which each becomes a state.
FEW_NUMBERS = 4
AGES = range(5)
ENSEMBLE = 4
#: Share of the error of saying nothing that numbers about the time read are to remove, and the longest delay for it.
ACCURATE, LONGEST_DELAY = 0.75, 20
PRIVACY = (
    "The proposed states, chain and plan are derived from the readings and reveal something about them. Use readings "
    "that are public, or an older public part of them; otherwise do not pass the proposal on, and fit again with "
    "csdp fit --epsilon."
)


@dataclass(frozen=True)
class Suggestion:
    """A proposal, and the reason for each choice.

    `plan`, `ceiling`, `error` and `estimator` are of the kind that is proposed first; `other` is the plan of the other
    kind (about now, or about the time that was read), where there is one.
    """

    discretiser: Discretiser
    chain: CoupledChain
    quality: FitQuality | None
    plan: Plan
    budget: float
    ceiling: float
    error: Error
    estimator: LearnedEstimator | None
    other: FoundPlan | None
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
        _write_plan(paths[2], self.plan, StoredEstimate(self.error.about, self.estimator))
        paths[3].write_text("\n".join(self.commands(data, str(folder))) + "\n", encoding="utf-8")
        if self.other is not None:
            paths.append(folder / f"plan-{self.other.error.about}.json")
            _write_plan(paths[-1], self.other.plan, StoredEstimate(self.other.error.about))
        return paths


def _write_plan(path: Path, plan: Plan, estimate: StoredEstimate) -> None:
    path.write_text(json.dumps({**plan.to_dict(), **estimate.to_dict()}, indent=2) + "\n", encoding="utf-8")


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
    found, other = _propose_plans(chain, budget, reasons, progress)
    learned = _learn(found, panel, reasons)
    error = found.error if learned is None else learned.expected(found.plan.noise_variance)
    return Suggestion(
        discretiser,
        chain,
        quality,
        found.plan,
        budget,
        found.leakage.epsilon,
        error,
        learned,
        other,
        tuple(reasons),
    )


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


def _propose_plans(
    chain: CoupledChain, budget: float, reasons: list[tuple[str, str, str]], progress: Progress | None
) -> tuple[FoundPlan, FoundPlan | None]:
    """Plans about now and about the time that was read: the one that is proposed first, and the other."""
    reasons.append(("query", "mean", "each sequence changes it little, so it needs the least noise for a given budget"))
    reasons.append(
        (
            "budget",
            f"{budget:g} for the present",
            f"the odds of any present state change by at most a factor e^{budget:g}, at every moment",
        )
    )
    now, then = _plan_now(chain, budget, progress), _plan_then(chain, budget, progress)
    for found in (now, then):
        if found is None:
            why = "give a larger budget, or numbers about now"
            reasons.append(("plan about the time read", f"none within {LONGEST_DELAY} ticks of delay", why))
            continue
        plan = found.plan
        reasons.append(
            (
                f"plan {'about now' if found is now else 'about the time read'}",
                f"age {plan.max_age}, epsilon_c {plan.epsilon_c:.3g}: leaks at most {as_text(found.leakage.epsilon)} "
                "without end",
                f"the least error of ages {AGES[0]} to {AGES[-1]}; it {found.error.in_words}"
                if found is now
                else f"the least delay; it {found.error.in_words} {about_words('then', found.delay)}",
            )
        )
    first, other = (now, then) if now.useful or then is None else (then, now)
    if not first.useful:
        reasons.append(("beware", "hardly worth publishing", "; ".join(improvements(first.plan, first.error.about))))
    level = f"{first.plan.epsilon_c:.3g}"
    reasons.append(("event limit", level, "plain differential privacy of one reading, which holds under any model"))
    return first, other


def _plan_now(chain: CoupledChain, budget: float, progress: Progress | None) -> FoundPlan:
    """The least error about the present; the age is chosen for the point estimate alone, a family takes far longer."""
    options: dict[str, Any] = {"budget": budget, "releases": "continual", "progress": progress}
    point = find_plan(chain.without_family(), Mean(), min_age=AGES[0], max_age=AGES[-1], **options)
    age = point.plan.max_age
    return find_plan(certified_model(chain), Mean(), min_age=age, max_age=age, **options)


def _plan_then(chain: CoupledChain, budget: float, progress: Progress | None) -> FoundPlan | None:
    """The least delay of accurate numbers about the time that was read; None where none is short enough."""
    no_data = float(np.trace(moments(chain.without_family(), Mean(), ages=[0] * chain.sequences).cov_now))
    options: dict[str, Any] = {"budget": budget, "releases": "continual", "progress": progress, "about": "then"}
    options["max_mse"] = (1 - ACCURATE) * no_data
    try:
        point = find_plan(chain.without_family(), Mean(), max_age=LONGEST_DELAY, **options)
        family = certified_model(chain)
        return find_plan(family, Mean(), min_age=point.delay, max_age=LONGEST_DELAY, **options)
    except InfeasibleError:
        return None


def _learn(found: FoundPlan, panel: Panel, reasons: list[tuple[str, str, str]]) -> LearnedEstimator | None:
    """The estimator that the readings themselves teach, where there are enough of them."""
    try:
        learned = learn_from_past(found.plan, panel, about=found.error.about)
    except InputError as error:
        reasons.append(("estimate", "by the chain, from the last releases", str(error)))
        return None
    reasons.append(("estimate", f"{learned.kind}, learned on these readings", learned.in_words))
    return learned
