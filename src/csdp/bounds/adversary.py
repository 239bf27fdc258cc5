"""What an adversary knows of the present and of the environment, and the laws of aged readings that follow from it.

The phase of a clock is public. The environment of every tick may be known, however long ago; the worst path counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from csdp.aging import AgedLaw, Progress
from csdp.chain import EnvironmentChain, Model
from csdp.chain.environment import ClockView, PathView, View
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats
from csdp.query_table import Fold

#: Every other present value ("informed"), or nothing ("uninformed").
Adversary = Literal["informed", "uninformed"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    if adversary == "informed":
        return [everyone]
    if adversary == "uninformed":
        return [(i,) for i in everyone]
    raise InputError(f"adversary: {adversary!r} given; 'informed' or 'uninformed'")


def marginal(measure: Floats, known: Sequence[int], sequences: int, states: int) -> Floats:
    """Sum a measure on snapshots (N, ...) over the sequences that are not known."""
    tensor = measure.reshape((states,) * sequences + measure.shape[1:])
    away = tuple(i for i in range(sequences) if i not in known)
    return np.asarray(tensor.sum(axis=away)).reshape((states ** len(known), *measure.shape[1:]))


# ---- the environment ------------------------------------------------------------------------------------------------

#: Paths of environments over the ages of a release that are tried one by one.
MAX_PATHS = 256


@dataclass(frozen=True)
class Vantage:
    """What an adversary knows beside the present: the environment of every tick, and the phase of a public clock."""

    given: bool = False
    phase: int | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is assumed of the environment, and what of it is not protected, in words."""
        clock = () if self.phase is None else (f"given the clock: the present lies at phase {self.phase}",)
        given = (
            "given the environment: the adversary may know the environment of every tick; facts about the environment "
            "itself are not protected"
        )
        return (*clock, given) if self.given else clock

    def require_known_present(self, model: Model, adversary: Adversary) -> None:
        """Refuse adversaries who must weigh presents whose law given a path of environments is not known."""
        if self.given and model.direction == "backward" and adversary != "informed":
            raise InputError(
                f"adversary: {adversary!r} given; for backward members whose environment is given the answer holds for "
                "'informed'. Use bound='group', or forward members"
            )


#: Of models without environments.
PLAIN = Vantage()


def find_vantages(model: Model) -> list[tuple[Model, Vantage]]:
    """What an adversary may know of a model's environment, each with the model to ask; the largest answer counts."""
    if not isinstance(model, EnvironmentChain):
        return [(model, PLAIN)]
    if model.kind == "clock":
        return [(model, Vantage(phase=phase)) for phase in range(model.period)]
    return [(model.given_path(), Vantage(given=True))]


def has_law_of_past(model: Model) -> bool:
    """Whether the law of an old reading is known; it is not if environments before it count."""
    by_clock = model.phases > 1 and len(model.step_chains) == 1
    in_long_run = model.has_one_kernel or by_clock or model.direction == "backward"
    return model.has_law and in_long_run


def longest_paths(model: Model) -> int:
    """Steps of which all paths of environments are tried, half of what is possible in all; 1 at least."""
    chains = len(model.step_chains)
    return 2**62 if chains < 2 else max(1, int(math.log(MAX_PATHS) / math.log(chains) / 2))


def list_paths(chain: EnvironmentChain, steps: int) -> list[tuple[int, ...]]:
    """All paths of environments over some steps, the present first."""
    count = len(chain.environments)
    if steps * math.log(count) > math.log(MAX_PATHS) + 1e-9:
        raise TooLargeError(
            f"{count} environments over {steps} steps have {count}**{steps} paths; at most {MAX_PATHS:,} are tried. "
            "Use auto, influence or slice, which take the worst environment at every step",
            needed=float(count) ** min(steps, 500),
            limit=MAX_PATHS,
        )
    return list(itertools.product(range(count), repeat=steps))


def list_aged_laws(
    model: Model,
    vantage: Vantage,
    parts: Floats,
    *,
    ages: Sequence[int],
    oldest: int | None = None,
    fold: Fold = "sum",
    progress: Progress | None = None,
) -> list[AgedLaw]:
    """The laws of what a release reads that an adversary may face; arguments as for `AgedLaw`."""
    lead = max(ages) if oldest is None else oldest
    views: list[View] = [model]
    if isinstance(model, EnvironmentChain) and vantage.given:
        views = [PathView(model, path) for path in list_paths(model, lead)]
    elif isinstance(model, EnvironmentChain) and vantage.phase is not None:
        views = [ClockView(model, vantage.phase)]
    return [AgedLaw(view, parts, ages=ages, oldest=lead, fold=fold, progress=progress) for view in views]
