"""`leakage()`: how much one release reveals about the present, by any bound."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from csdp.aging import Progress, check_ages, check_epsilon
from csdp.bounds.adversary import ADVERSARIES, Adversary
from csdp.bounds.component import OF_THE_PAST, Component
from csdp.bounds.environment import PLAIN, Vantage, find_vantages
from csdp.bounds.result import UNSOUND, Leakage
from csdp.chain import Family, Model, certified_model, worst_verdict
from csdp.errors import CsdpError, InputError
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

T = TypeVar("T")
Method = Callable[[Component, str], T]


@runtime_checkable
class Workers(Protocol):
    """Workers elsewhere: how many they are, and answers in order."""

    workers: int

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """The answers of some work for each item, in the order of the items."""


#: By bound: what it holds for.
_HOLDS_FOR = {
    "exact": "one release; nothing is left out or estimated",
    "metric": "one release; any query with these distances between snapshots",
    "profile": "one release; any query with this sensitivity",
    "loose": "one release; any query with this sensitivity, from total variation only",
    "contraction": "one release; any query with this sensitivity, any law of the past",
    "freshness": "any query, any noise, any number of releases (at one common age)",
    "lineage": "any query, any noise, any number of releases, any law of the past",
    "slice": "any query, any noise, any number of releases, any law of the past, whatever others are known",
    "influence": "one release; previous states are independent given the present (a backward chain)",
    "group": "one release; all records of a component may change at once, however they are tied together",
    "printed-loose": "the paper's Theorem 1 as printed: NOT a bound, it can be below the truth",
    "printed-tight": "the paper's Theorem 2 as printed: NOT a bound, it can be below the truth",
}


def leakage(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    bound: str = "auto",
    adversary: Adversary = "informed",
    workers: int | Workers = 1,
    progress: Progress | None = None,
) -> Leakage:
    """How much `query(aged snapshot) + Laplace(Delta_f / epsilon_c)` reveals about the present state of any sequence.

    Formal guarantee (sound bounds): for all presents x, x' that differ in one sequence and every set S of outputs,
    `Pr[output in S | x_t = x] <= exp(epsilon) Pr[output in S | x_t = x']`, under the model.
    Under an environment the adversary may know that of every tick; of a clock the worst phase counts.
    Not promised: a record is exposed, with noise epsilon_c, once it is old enough to be published.

    Args:
        chain: the model. Over a Family, and over that of a fitted chain, the answer is the largest; `point` is that of
            the first member, the point estimate.
        query: what is published of the aged snapshot: a query, or its text as on the command line ("mean", "count:1").
        ages: how old the published readings are, in steps: one age for all sequences, or one each.
        epsilon_c: the noise level; smaller means more noise.
        bound: one of `BOUNDS`, or "auto": the sharpest sound bound that fits, component by component.
        adversary: what the adversary knows besides the model: every other present value ("informed") or nothing
            ("uninformed").
        workers: number of processes that share the components; the answer is the same.
            As for every process pool, a script with more than one keeps its work below `if __name__ == "__main__"`.
        progress: called with a stage, what is done and what there is to do.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> leakage(chain, Mean(), ages=2, epsilon_c=1.0)
    Leakage(0.153046, exact, informed)
    >>> leakage(chain, "max", ages=2, epsilon_c=1.0)
    Leakage(0.0957425, exact, informed)
    >>> print(leakage(CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0).witness)
    x1 = 1 against 0, seen at output 1
    """
    members = certified_model(chain).members
    options: dict[str, Any] = {
        "ages": ages,
        "epsilon_c": epsilon_c,
        "adversary": adversary,
        "progress": progress,
    }
    if len(members) > 1:
        answers = [leakage(member, query, bound=bound, workers=workers, **options) for member in members]
        worst = largest(answers)
        verdict = worst_verdict([answer.model for answer in answers])
        words = f"the sequences follow one of {len(answers)} given models ({verdict.brief})"
        assumptions = (words, *worst.assumptions[1:])
        return replace(worst, point=answers[0].epsilon, assumptions=assumptions, model=verdict)
    settings = Setting.list_all(members[0], query, **options)
    answers = [setting.answer(bound, workers=workers) for setting in settings]
    return answers[0] if len(answers) == 1 else largest(answers)


def largest(answers: Sequence[Leakage]) -> Leakage:
    """The largest of some leakages, sound where all are."""
    worst = max(answers, key=lambda answer: answer.epsilon)
    return replace(worst, sound=all(answer.sound for answer in answers))


@dataclass(frozen=True)
class Setting:
    """Model, query, ages and noise of one release, checked; its components are kept so that bounds share their work."""

    model: Model
    query: QueryTable
    ages: tuple[int, ...]
    epsilon_c: float
    adversary: Adversary
    progress: Progress | None
    merge_alike: bool = True  #: whether one component stands for all that are like it
    vantage: Vantage = PLAIN  #: what is known of the environment

    @classmethod
    def make(
        cls,
        model: Model,
        query: Query | str,
        *,
        ages: Any,
        epsilon_c: float,
        adversary: Adversary,
        progress: Progress | None = None,
        merge_alike: bool = True,
    ) -> Setting:
        """Check everything that can be checked before any work."""
        if not isinstance(model, Model):  # a caller without types
            raise InputError(f"chain: {type(model).__name__} given; CoupledChain, JointChain or Family expected")
        verified = tabulate(query, model)
        if adversary not in ADVERSARIES:
            raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(ADVERSARIES)}")
        checked = check_ages(ages, model.sequences)
        return cls(model, verified.costs, checked, check_epsilon(epsilon_c), adversary, progress, merge_alike)

    @classmethod
    def list_all(cls, model: Model, query: Query | str, **options: Any) -> list[Setting]:
        """The settings of which the largest answer counts: several for a clock, one for each phase."""
        vantages = find_vantages(model)
        return [replace(cls.make(each, query, **options), vantage=vantage) for each, vantage in vantages]

    @property
    def no_law_of_past(self) -> str:
        """Why no law of the past can be relied on, so that bounds must hold for any; empty where one can."""
        if self.vantage.given and self.model.direction == "forward":
            return "the law of the oldest reading depends on every environment before it"
        return ""

    @cached_property
    def sensitivity(self) -> float:
        """Delta_f, the sensitivity to one record."""
        sensitivity = self.query.undivided_sensitivity(1) / self.query.denominator
        if not sensitivity > 0:
            raise InputError(f"query: {self.query.name} never changes with one record; there is nothing to protect")
        return sensitivity

    @cached_property
    def components(self) -> list[Component]:
        """The components of the model, one of each kind; sequences with equal labels are treated alike."""
        labels = self.query.labels(self.ages) if self.merge_alike else np.arange(self.model.sequences)
        return [Component(self, members, copies) for members, copies in self.model.distinct_components(labels)]

    def at(self, epsilon_c: float) -> Setting:
        """The same release at another noise level; what does not depend on the noise is kept."""
        other = replace(self, epsilon_c=check_epsilon(epsilon_c))
        components = [component.in_setting(other) for component in self.components]
        other.__dict__.update(sensitivity=self.sensitivity, components=components)
        return other

    def answer(self, bound: str, *, workers: int | Workers = 1) -> Leakage:
        """The leakage by one bound: the largest over the components."""
        values = map_components(self, Component.value, bound, workers=workers)
        order = sorted(range(len(values)), key=lambda i: -values[i].epsilon)
        worst = values[order[0]]
        bounds = sorted({value.bound for value in values})
        infinite = "infinite: some present state rules out, or alone allows, something that can be read"
        names = self.model.names
        return Leakage(
            epsilon=worst.certified,
            bound=worst.bound,
            sound=worst.bound not in UNSOUND,
            adversary=self.adversary,
            environment="given" if self.vantage.given else None,
            phase=self.vantage.phase,
            witness=self.components[order[0]].witness(worst.worst_case),
            assumptions=self._assumptions(worst.bound, f"by component: {', '.join(bounds)}" if bounds[1:] else ""),
            reason=worst.reason or infinite * math.isinf(worst.epsilon),
            model=self.model.verdict,
            components=tuple(
                {
                    "sequences": [names[j] for j in self.components[i].members[:100]],
                    "size": len(self.components[i].members),
                    "copies": self.components[i].copies,
                    "epsilon": values[i].certified,
                    "bound": values[i].bound,
                    "reason": values[i].reason,
                }
                for i in order[:100]
            ),
        )

    def _assumptions(self, bound: str, extra: str) -> tuple[str, ...]:
        law = "the stationary law" if self.vantage == PLAIN else "the law that its environments lead to"
        several = bound == "exact" and len(self.components[0].members) < self.model.sequences
        texts = (
            self.model.assumption if bound != "group" else "sequences of different components are independent",
            f"the oldest reading follows {law}" if bound in OF_THE_PAST else "",
            *self.vantage.assumptions,
            _HOLDS_FOR[bound],
            "several independent components: the others' aged values are taken as known, an upper bound" * several,
            self.query.assumption,
            extra,
        )
        return tuple(text for text in texts if text)


# ---- components shared between processes -------------------------------------------------------------------------


def map_components(setting: Setting, method: Method[T], bound: str, *, workers: int | Workers = 1) -> list[T]:
    """`method(component, bound)` for every component of a setting, in order.

    Args:
        setting: whose components are asked.
        method: a method of `Component` that takes a bound.
        bound: the bound.
        workers: number of processes, or workers elsewhere.
    """
    elsewhere = isinstance(workers, Workers)
    count = workers.workers if isinstance(workers, Workers) else workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"workers: {workers!r} given; a whole number of processes, 1 or more")
    components = setting.components
    if (count == 1 and not elsewhere) or len(components) < 2:
        return [method(component, bound) for component in components]
    try:
        task = pickle.dumps((replace(setting, progress=None), method, bound))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"workers: this query cannot be sent to another process ({error}); define its function at the top level of "
            "a module, or use workers=1"
        ) from None
    size = max(1, len(components) // (4 * count))
    chunks = [components[start : start + size] for start in range(0, len(components), size)]
    groups = [[(component.members, component.copies) for component in chunk] for chunk in chunks]
    out: list[T] = []
    with _open_pool(workers) as pool:
        for chunk, answers in zip(chunks, pool.map(partial(_run_task, task), groups), strict=True):
            # What a component refuses is computed again here, so that the error is the same as without processes.
            out += [
                method(component, bound) if answer is None else answer[0]
                for component, answer in zip(chunk, answers, strict=True)
            ]
            if setting.progress is not None:
                setting.progress("components", len(out), len(components))
    return out


def _open_pool(workers: int | Workers) -> AbstractContextManager[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    if isinstance(workers, Workers):
        return nullcontext(workers)
    # Fresh processes: forking one whose linear algebra has threads may hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def _run_task(task: bytes, groups: Sequence[tuple[tuple[int, ...], int]]) -> list[tuple[Any] | None]:
    """The work of one process: answers wrapped in tuples, None where a component was refused."""
    setting, method, bound = pickle.loads(task)  # our own bytes, from the process that started this one
    answers: list[tuple[Any] | None] = []
    for members, copies in groups:
        try:
            answers.append((method(Component(setting, members, copies), bound),))
        except CsdpError:
            answers.append(None)
    return answers
