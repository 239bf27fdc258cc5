"""The front door: `leakage()` answers how much a release tells about the present, by any bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress, check_ages, check_epsilon, likeness
from csdp.bounds.component import Part, Value
from csdp.bounds.parallel import Spread, over_parts
from csdp.bounds.result import Leakage
from csdp.bounds.rounding import round_up
from csdp.chain import Family, Model, certified_model
from csdp.computation import Computation, FoldComputation, verify_query
from csdp.errors import InputError
from csdp.queries import Query

Floats = npt.NDArray[np.float64]
Bound = Literal[
    "exact",
    "profile",
    "two-point",
    "loose",
    "contraction",
    "freshness",
    "lineage",
    "slice",
    "influence",
    "spectral",
    "group",
    "printed-loose",
    "printed-tight",
]

BOUNDS: tuple[str, ...] = get_args(Bound)
UNSOUND = ("printed-loose", "printed-tight")
ADVERSARIES: tuple[str, ...] = get_args(Adversary)

_MODEL = "the sequences follow the given model"
_WORDS = {
    "exact": "one release; nothing is left out or estimated",
    "profile": "one release; any query with this sensitivity",
    "two-point": "one release; any query with this sensitivity, from total variation and log ratio only",
    "loose": "one release; any query with this sensitivity, from total variation only",
    "contraction": "one release; any query with this sensitivity, any law of the past",
    "freshness": "any query, any noise, any number of releases (at one common age)",
    "lineage": "any query, any noise, any number of releases, any law of the past",
    "slice": "any query, any noise, any number of releases, any law of the past, whatever others are known",
    "influence": "one release; previous states are independent given the present (a backward chain)",
    "spectral": "one release; any query with this sensitivity, previous states are independent given the present "
    "(a backward chain): the paper's Theorem 1, repaired",
    "group": "one release; all records of a component may change at once, however they are tied together",
    "printed-loose": "the paper's Theorem 1 as printed: NOT a bound, it can be below the truth",
    "printed-tight": "the paper's Theorem 2 as printed: NOT a bound, it can be below the truth",
}


def leakage(
    chain: Model | Family,
    query: Query,
    *,
    ages: Any,
    epsilon_c: float,
    bound: str = "auto",
    adversary: Adversary = "informed",
    at_any_tick: bool = False,
    workers: int | Spread = 1,
    progress: Progress | None = None,
) -> Leakage:
    """How much `query(aged snapshot) + Laplace(Delta_f / epsilon_c)` tells about anyone's present state.

    Formal guarantee (sound bounds): for all presents x, x' that differ in one sequence and every set S of outputs,
    `Pr[output in S | x_t = x] <= exp(epsilon) Pr[output in S | x_t = x']`, under the model. The adversary knows the
    model and every other present value ("informed"), the model only ("uninformed"), or any part ("any").
    Not promised: a record is exposed, with noise epsilon_c, once it is old enough to be published.

    `bound="auto"` takes the sharpest sound bound that fits, component by component. Over a Family, and over that
    of a fitted chain: the largest (`point` is that of the first member, the point estimate).
    `at_any_tick`: an initial law holds at one tick, here that of the oldest reading. A release that may happen at any
    tick, as those of a plan, takes only what holds for every law of the past: contraction, lineage, slice, group.
    `workers`: processes over which components are spread; the answer is the same (a script that asks for more than one
    keeps its work below `if __name__ == "__main__"`, as for every process pool), or `csdp.tables.SparkWorkers`.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> answer = leakage(chain, Mean(), ages=2, epsilon_c=1.0)
    >>> answer
    Leakage(0.153046, exact, informed)
    >>> print(leakage(CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0).witness)
    x1 = 1 against 0, seen at output 1
    """
    chain = certified_model(chain)
    if isinstance(chain, Family):
        options: dict[str, Any] = {
            "ages": ages,
            "epsilon_c": epsilon_c,
            "bound": bound,
            "adversary": adversary,
            "at_any_tick": at_any_tick,
            "workers": workers,
        }
        answers = [leakage(member, query, progress=progress, **options) for member in chain]
        worst = max(answers, key=lambda answer: answer.epsilon)
        return replace(
            worst,
            point=answers[0].epsilon,
            sound=all(answer.sound for answer in answers),
            assumptions=(f"the sequences follow one of {len(answers)} given models", *worst.assumptions[1:]),
        )
    setting = Setting.make(
        chain,
        query,
        ages=ages,
        epsilon_c=epsilon_c,
        adversary=adversary,
        at_any_tick=at_any_tick,
        progress=progress,
    )
    if bound != "auto" and bound not in BOUNDS:
        raise InputError(f"bound: {bound!r} given; use auto or one of {', '.join(BOUNDS)}")
    return setting.answer(bound, workers=workers)


@dataclass(frozen=True)
class Setting:
    """One question, checked; its parts are kept so that several bounds share their work."""

    model: Model
    query: Computation
    ages: tuple[int, ...]
    epsilon_c: float
    adversary: Adversary
    progress: Progress | None
    at_any_tick: bool = False

    @classmethod
    def make(
        cls,
        model: Model,
        query: Query,
        *,
        ages: Any,
        epsilon_c: float,
        adversary: Adversary,
        at_any_tick: bool = False,
        progress: Progress | None = None,
    ) -> Setting:
        """Check everything that can be checked before any work."""
        if not isinstance(model, Model):  # a caller without types
            raise InputError(f"chain: {type(model).__name__} given; CoupledChain, JointChain or Family expected")
        asked = verify_query(query, model)
        if adversary not in ADVERSARIES:
            raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(ADVERSARIES)}")
        old = check_ages(ages, model.sequences)
        return cls(model, asked, old, check_epsilon(epsilon_c), adversary, progress, at_any_tick)

    @property
    def any_past(self) -> bool:
        """Whether nothing may rest on the law of the past: one is given, and the release may come at any tick."""
        return self.at_any_tick and self.model.initial is not None

    @cached_property
    def scale(self) -> float:
        """Delta_f, the sensitivity to one record."""
        scale = self.query.sensitivity(1, self.model.value_table)
        if not scale > 0:
            raise InputError(f"query: {self.query.name} never changes with one record; there is nothing to protect")
        return scale

    @cached_property
    def labels(self) -> npt.NDArray[np.intp]:
        """Numbers that agree for sequences which the release treats alike: same age, same part in the query."""
        if not isinstance(self.query, FoldComputation):
            return np.arange(self.model.sequences)
        return likeness(self.query.likeness(), self.ages)

    @cached_property
    def parts(self) -> list[Part]:
        """The independent groups of sequences, one of each kind."""
        return [Part(self, members, copies) for members, copies in self.model.distinct_components(self.labels)]

    def at(self, epsilon_c: float) -> Setting:
        """The same question at another noise level; aged laws that are already known are kept."""
        other = replace(self, epsilon_c=check_epsilon(epsilon_c))
        kept: dict[str, Any] = {name: self.__dict__[name] for name in ("scale", "labels") if name in self.__dict__}
        other.__dict__.update(kept, parts=[part.moved_to(other) for part in self.parts])
        return other

    def without_progress(self) -> Setting:
        """The same question, asked quietly: it can be sent to another process."""
        return replace(self, progress=None)

    @property
    def _several(self) -> bool:
        return len(self.parts[0].members) < self.model.sequences

    def answer(self, bound: str, *, workers: int | Spread = 1) -> Leakage:
        """The leakage by one bound: the largest over the components."""
        values: list[Value] = over_parts(self, "value", bound, workers=workers)
        worst = max(range(len(values)), key=lambda i: values[i].epsilon)
        value = values[worst]
        used = sorted({v.bound for v in values})
        reason = value.reason or (
            "infinite: some present state rules out, or alone allows, something that can be read"
            * math.isinf(value.epsilon)
        )
        return Leakage(
            epsilon=round_up(value.epsilon) if value.bound not in UNSOUND else value.epsilon,
            bound=value.bound,
            sound=value.bound not in UNSOUND,
            adversary=self.adversary,
            witness=self.parts[worst].witness(value.worst),
            assumptions=self._assumptions(value.bound, (len(used) > 1 and f"by component: {', '.join(used)}") or ""),
            reason=reason,
            components=_component_records(self, values),
        )

    def _assumptions(self, bound: str, extra: str) -> tuple[str, ...]:
        law = "the given initial law" if self.model.initial is not None else "the stationary law"
        past = (f"the oldest reading follows {law}",) * (
            bound in {"exact", "profile", "two-point", "loose", "freshness"}
        )
        many = ("several independent components: the others' aged values are taken as known, an upper bound",) * (
            self._several and bound == "exact"
        )
        model = _MODEL if bound != "group" else "sequences of different components are independent"
        believed = self.query.assumption
        return tuple(text for text in (model, *past, _WORDS[bound], *many, believed, extra) if text)


def _component_records(setting: Setting, values: Sequence[Value]) -> tuple[dict[str, Any], ...]:
    """One record per kind of group; of very many kinds the worst hundred."""
    order = sorted(range(len(values)), key=lambda i: -values[i].epsilon)[:100]
    names = setting.model.names
    return tuple(
        {
            "sequences": [names[j] for j in setting.parts[i].members[:100]],
            "size": len(setting.parts[i].members),
            "copies": setting.parts[i].copies,
            "epsilon": round_up(values[i].epsilon) if values[i].bound not in UNSOUND else values[i].epsilon,
            "bound": values[i].bound,
            "reason": values[i].reason,
        }
        for i in order
    )
