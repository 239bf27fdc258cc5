"""What an adversary knows of the environment, and the laws of aged readings that follow from it.

- `phase`: a public clock; the present lies at a tick of one phase. It may be known beside one of the others.
- `given`: the environment of every tick may be known, however long ago; the worst path counts.
- `path`, `present`, `hidden`: of a hidden environment are known those from the oldest reading to now, that of now, or
  none; before that the long-run law of (environment, snapshot) holds. None of the three bounds another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from csdp.aging import AgedLaw, AgedReadings, Deviation, Mass, Progress
from csdp.arrays import Floats
from csdp.bounds.adversary import Adversary
from csdp.chain import EnvironmentChain, Model
from csdp.chain.views import ClockView, JointView, PathView, View
from csdp.errors import InputError, TooLargeError
from csdp.query_table import Fold

Environment = Literal["given", "path", "present", "hidden"]
ENVIRONMENTS: tuple[str, ...] = get_args(Environment)

#: Paths of environments over the ages of a release that are tried one by one.
MAX_PATHS = 256


@dataclass(frozen=True)
class Vantage:
    """From where an adversary looks: the phase of a public clock, or what is known of another environment."""

    environment: Environment | None = None
    phase: int | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is assumed of the environment, and what of it is not protected, in words."""
        words = {
            "given": "given the environment: the adversary may know the environment of every tick; facts about the "
            "environment itself are not protected",
            "path": "the adversary knows the environment of every tick from the oldest reading to now, and of those "
            "before only how they come and go; facts about the environment itself are not protected",
            "present": "the adversary knows the environment of now and not those before",
            "hidden": "the adversary does not know the environment",
        }
        clock = () if self.phase is None else (f"given the clock: the present lies at phase {self.phase}",)
        return clock if self.environment is None else (*clock, words[self.environment])

    def require_known_present(self, model: Model, adversary: Adversary) -> None:
        """Refuse adversaries who must weigh presents where their law given a path of environments is not known."""
        if self.environment == "given" and model.direction == "backward" and adversary != "informed":
            raise InputError(
                f"adversary: {adversary!r} given; for backward members whose environment is given the answer holds for "
                "'informed'. Use bound='group', or forward members"
            )


#: Of models without environments.
PLAIN = Vantage()


def find_vantages(model: Model, phase: int | None, environment: Environment | None) -> list[tuple[Model, Vantage]]:
    """The views that a question about a model means, each with the model to ask; the largest answer counts.

    A clock without a phase means all of them; an environment that is not a clock's is "given" by default.
    """
    if not isinstance(model, EnvironmentChain):
        if phase is not None or environment is not None:
            what = "phase" if phase is not None else "environment"
            raise InputError(f"{what}: given for a model without environments; use it with an EnvironmentChain")
        return [(model, PLAIN)]
    if phase is not None and model.cycle is None:
        raise InputError("phase: given for an environment that is not a clock's; leave it out")
    phases: list[int | None] = [None]
    if model.cycle is not None:
        phases = [*range(model.period)] if phase is None else [phase]
    if model.kind == "clock":
        if environment is not None:
            raise InputError(f"environment: {environment!r} given, but a clock is public; use phase=, or leave it out")
        return [(model, Vantage(phase=h)) for h in phases]
    if environment not in {None, *ENVIRONMENTS}:
        raise InputError(f"environment: {environment!r} given; use one of {', '.join(ENVIRONMENTS)}")
    if environment is None or environment == "given":
        return [(model.given_path(), Vantage("given", h)) for h in phases]
    return [(model, Vantage(environment, h)) for h in phases]


def list_views(model: Model, vantage: Vantage, lead: int) -> list[View]:
    """The views of a model over `lead` steps; the largest answer counts."""
    if not isinstance(model, EnvironmentChain) or vantage == PLAIN:
        return [model]
    if vantage.environment == "given":
        return [PathView(model, path) for path in list_paths(model, lead, vantage.phase)]
    if vantage.environment == "path":
        return _views_of_known_paths(model, lead, vantage.phase)
    if vantage.environment is None and vantage.phase is not None:
        return [ClockView(model, vantage.phase)]
    return [JointView(model.unclocked)]


def _views_of_known_paths(chain: EnvironmentChain, lead: int, phase: int | None) -> list[View]:
    """One view for every path of environments from the oldest reading to now that can occur."""
    joint = chain.unclocked
    law = joint.joint_law_with_error[0].reshape(len(joint.environments), -1)
    switching, end = joint.switching, -1 if chain.direction == "forward" else 0
    assert switching is not None
    views: list[View] = []
    for path in _list_hidden_paths(chain, lead + 1, phase):
        if law[path[end]].sum() > 0 and all(switching[a, b] > 0 for b, a in itertools.pairwise(path)):
            views.append(PathView(joint, path[:lead], law[path[end]] / law[path[end]].sum()))
    return views


def _list_hidden_paths(chain: EnvironmentChain, steps: int, phase: int | None) -> list[tuple[int, ...]]:
    """All paths of the environments of `chain.unclocked` that end now, at a phase of the clock; the present first."""
    if phase is None:
        return list_paths(chain, steps)
    blocks = [list(_environments_at(chain, phase - n)) for n in range(steps)]
    refuse_many_paths(chain.regimes, steps)
    return list(itertools.product(*blocks))


def _environments_at(chain: EnvironmentChain, phase: int) -> range:
    """Numbers of the environments of `chain.unclocked` at a phase of the clock."""
    first = phase % chain.period * chain.regimes
    return range(first, first + chain.regimes)


def has_law_of_past(model: Model) -> bool:
    """Whether the law of an old reading is known: not where environments before it count."""
    by_clock = model.phases > 1 and len(model.step_chains) == 1
    in_long_run = model.has_one_kernel or by_clock or model.direction == "backward"
    return model.has_law and in_long_run


def longest_paths(model: Model) -> int:
    """Steps of which all paths of environments are tried, half of what is possible in all; 1 at least."""
    chains = len(model.step_chains)
    return 2**62 if chains < 2 else max(1, int(math.log(MAX_PATHS) / math.log(chains) / 2))


def list_paths(chain: EnvironmentChain, steps: int, phase: int | None = None) -> list[tuple[int, ...]]:
    """All paths of environments over some steps, the present first; those of a clock if its phase is given."""
    refuse_many_paths(chain.regimes if phase is not None else len(chain.environments), steps)
    return list(
        itertools.product(*(chain.environment_numbers(None if phase is None else phase - n) for n in range(steps)))
    )


def refuse_many_paths(count: int, steps: int) -> None:
    """TooLargeError where environments over some steps have more paths than are tried."""
    if steps * math.log(count) > math.log(MAX_PATHS) + 1e-9:
        raise TooLargeError(
            f"{count} environments over {steps} steps have {count}**{steps} paths; at most {MAX_PATHS:,} are tried. "
            "Use auto, influence or slice, which take the worst environment at every step",
            needed=float(count) ** min(steps, 500),
            limit=MAX_PATHS,
        )


@dataclass(frozen=True)
class FoldedLaw:
    """An aged law on (environment, snapshot), for an adversary who knows the environment of now, or who does not."""

    joint: AgedLaw
    environments: tuple[int, ...]  #: those that are possible to the adversary: one, or several that are summed out

    @property
    def model(self) -> View:
        """The view whose law it is."""
        return self.joint.model

    @property
    def classes(self) -> Floats:
        """What the query can tell apart."""
        return self.joint.classes

    def _fold(self, values: Floats) -> Floats:
        split = values.reshape(self.model.copies, self.model.size, *values.shape[1:])
        return np.asarray(split[list(self.environments)].sum(axis=0))

    @cached_property
    def deviation(self) -> Deviation:
        """Deviations of sums of joint states: averages of theirs, so the bound on their rounding stays."""
        form = self.joint.deviation
        return replace(form, measure=self._fold(form.measure), law=self._fold(form.law))

    @cached_property
    def mass(self) -> Mass:
        """Sums of non-negative numbers keep their relative accuracy."""
        form = self.joint.mass
        relative = form.relative + 4.0 * self.model.copies * float(np.finfo(np.float64).eps)
        return Mass(self._fold(form.measure), self._fold(form.law), relative)


def list_aged_laws(
    model: Model,
    vantage: Vantage,
    parts: Floats,
    *,
    ages: Sequence[int],
    oldest: int | None = None,
    fold: Fold = "sum",
    progress: Progress | None = None,
) -> list[AgedReadings]:
    """The laws of what a release reads that an adversary may face; arguments as for `AgedLaw`."""
    lead = max(ages) if oldest is None else oldest
    laws = [
        AgedLaw(view, parts, ages=ages, oldest=lead, fold=fold, progress=progress)
        for view in list_views(model, vantage, lead)
    ]
    if vantage.environment not in {"hidden", "present"}:
        return list(laws)
    (joint,) = laws
    possible = tuple(range(joint.model.copies))
    if vantage.phase is not None:
        assert isinstance(model, EnvironmentChain)
        possible = tuple(_environments_at(model, vantage.phase))
    if vantage.environment == "hidden":
        return [FoldedLaw(joint, possible)]
    shares = joint.model.law_at(0)[0].reshape(joint.model.copies, -1).sum(axis=1)
    return [FoldedLaw(joint, (e,)) for e in possible if shares[e] > 0]
