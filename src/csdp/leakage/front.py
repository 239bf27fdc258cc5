"""The front door: `leakage()` answers how much a release tells about the present, by any bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, AgedLaw, Progress, check_ages, check_epsilon, index_parts, likeness
from csdp.chain import CoupledChain, Family, Model
from csdp.errors import InputError, TooLargeError
from csdp.leakage.bounds import AgedPairs, contraction_coefficient, loose, two_point
from csdp.leakage.exact import Worst, worst_output
from csdp.leakage.lineage import lineage
from csdp.leakage.lumped import lump, lumped_applies, lumped_worst
from csdp.leakage.printed import bounded_aged_correlation, correlation_degree
from csdp.leakage.result import Leakage, Witness
from csdp.leakage.rounding import round_up
from csdp.queries import FoldQuery, Query

Floats = npt.NDArray[np.float64]
Bound = Literal[
    "exact",
    "profile",
    "two-point",
    "loose",
    "contraction",
    "freshness",
    "lineage",
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
    progress: Progress | None = None,
) -> Leakage:
    """How much `query(aged snapshot) + Laplace(Delta_f / epsilon_c)` tells about anyone's present state.

    Formal guarantee (sound bounds): for all presents x, x' that differ in one sequence and every set S of outputs,
    `Pr[output in S | x_t = x] <= exp(epsilon) Pr[output in S | x_t = x']`, under the model. The adversary knows the
    model and every other present value ("informed"), the model only ("uninformed"), or any part ("any").
    Not promised: a record is exposed, with noise epsilon_c, once it is old enough to be published.

    `bound="auto"` takes the sharpest sound bound that fits, component by component. Over a Family: the largest.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> answer = leakage(chain, Mean(), ages=2, epsilon_c=1.0)
    >>> answer
    Leakage(0.153046, exact, informed)
    >>> print(leakage(CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0).witness)
    x1 = 1 against 0, seen at output 1
    """
    if isinstance(chain, Family):
        options: dict[str, Any] = {
            "ages": ages,
            "epsilon_c": epsilon_c,
            "bound": bound,
            "adversary": adversary,
        }
        answers = [leakage(member, query, progress=progress, **options) for member in chain]
        worst = max(answers, key=lambda answer: answer.epsilon)
        return replace(
            worst,
            sound=all(answer.sound for answer in answers),
            assumptions=(f"the sequences follow one of {len(answers)} given models", *worst.assumptions[1:]),
        )
    setting = Setting.make(chain, query, ages=ages, epsilon_c=epsilon_c, adversary=adversary, progress=progress)
    if bound != "auto" and bound not in BOUNDS:
        raise InputError(f"bound: {bound!r} given; use auto or one of {', '.join(BOUNDS)}")
    return setting.answer(bound)


@dataclass(frozen=True)
class _Value:
    """A number for one component, with what it rests on."""

    epsilon: float
    bound: str
    worst: Worst | None = None
    reason: str = ""


@dataclass(frozen=True)
class Setting:
    """One question, checked; its parts are kept so that several bounds share their work."""

    model: Model
    query: Query
    ages: tuple[int, ...]
    epsilon_c: float
    adversary: Adversary
    progress: Progress | None

    @classmethod
    def make(
        cls,
        model: Model,
        query: Query,
        *,
        ages: Any,
        epsilon_c: float,
        adversary: Adversary,
        progress: Progress | None = None,
    ) -> Setting:
        """Check everything that can be checked before any work."""
        if not isinstance(model, Model):  # a caller without types
            raise InputError(f"chain: {type(model).__name__} given; CoupledChain, JointChain or Family expected")
        if isinstance(query, type) or not isinstance(query, Query):
            hint = "an instance, Mean() not Mean" if isinstance(query, type) else "Mean(), Max(), Custom(...), ..."
            raise InputError(f"query: {query!r} given; expected {hint}")
        if adversary not in ADVERSARIES:
            raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(ADVERSARIES)}")
        return cls(model, query, check_ages(ages, model.sequences), check_epsilon(epsilon_c), adversary, progress)

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
        if not isinstance(self.query, FoldQuery):
            return np.arange(self.model.sequences)
        table = self.model.value_table
        # An identity has s x m x s parts; what matters of them is the sequence's own values.
        return likeness(table if self.query.name == "identity" else self.query.parts(table), self.ages)

    @cached_property
    def parts(self) -> list[Part]:
        """The independent groups of sequences, one of each kind."""
        return [Part(self, members, copies) for members, copies in self.model.alike(self.labels)]

    def at(self, epsilon_c: float) -> Setting:
        """The same question at another noise level; aged laws that are already known are kept."""
        other = replace(self, epsilon_c=check_epsilon(epsilon_c))
        kept: dict[str, Any] = {name: self.__dict__[name] for name in ("scale", "labels") if name in self.__dict__}
        other.__dict__.update(kept, parts=[part.moved_to(other) for part in self.parts])
        return other

    @property
    def _several(self) -> bool:
        return len(self.parts[0].members) < self.model.sequences

    def answer(self, bound: str) -> Leakage:
        """The leakage by one bound: the largest over the components."""
        values = [part.value(bound) for part in self.parts]
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
        return tuple(text for text in (model, *past, _WORDS[bound], *many, extra) if text)


#: What a group remembers that does not depend on the noise level.
_FREE_OF_NOISE = frozenset({"model", "_ages", "_oldest", "_pairs", "_aged_fold", "_lumped"})


class Part:
    """One independent group of sequences."""

    def __init__(self, setting: Setting, members: tuple[int, ...], copies: int = 1) -> None:
        self.setting = setting
        self.members = members
        self.copies = copies

    def value(self, bound: str) -> _Value:
        """The leakage of this group by one bound."""
        if bound == "auto":
            return self._auto()
        compute: dict[str, Callable[[], _Value]] = {
            "exact": self._exact,
            "profile": lambda: _Value(self._pairs.profile(self.alpha), bound),
            "two-point": lambda: _Value(
                two_point(self._pairs.total_variation, self._pairs.log_ratio, self.alpha), bound
            ),
            "loose": lambda: _Value(loose(self._pairs.total_variation, self.alpha), bound),
            "contraction": self._contraction,
            "freshness": lambda: _Value(self._pairs.log_ratio, bound),
            "lineage": self._lineage,
            "group": lambda: _Value(self.alpha, bound),
            "printed-loose": self._printed_loose,
            "printed-tight": lambda: _Value(
                bounded_aged_correlation(self.model, ages=self._ages, oldest=self._oldest) * self.setting.epsilon_c,
                bound,
            ),
        }
        return compute[bound]()

    def moved_to(self, setting: Setting) -> Part:
        """The same group in a setting that differs in the noise level only."""
        other = Part(setting, self.members, self.copies)
        kept = {name: value for name, value in self.__dict__.items() if name in _FREE_OF_NOISE}
        other.__dict__.update(kept)
        return other

    @cached_property
    def model(self) -> Model:
        """The model of this group alone."""
        whole = len(self.members) == self.setting.model.sequences
        return self.setting.model if whole else self.setting.model.subchain(self.members)

    @cached_property
    def _ages(self) -> tuple[int, ...]:
        return tuple(self.setting.ages[i] for i in self.members)

    @property
    def _oldest(self) -> int:
        """The age at which an initial law holds: the oldest of all groups, not of this one."""
        return max(self.setting.ages)

    @cached_property
    def alpha(self) -> float:
        """d(k) epsilon_c, with k all the sequences of this group."""
        table = self.setting.model.value_table
        moved = self.setting.query.sensitivity(len(self.members), table, members=self.members)
        return moved / self.setting.scale * self.setting.epsilon_c

    @cached_property
    def _pairs(self) -> AgedPairs:
        return AgedPairs(self.model, ages=self._ages, adversary=self.setting.adversary, oldest=self._oldest)

    # ---- exact ---------------------------------------------------------------------------------------------------

    def _exact(self) -> _Value:
        setting = self.setting
        query, table = setting.query, setting.model.value_table
        if lumped_applies(self.model, query, self._ages, setting.adversary) and not setting._several:
            return self._exact_lumped()
        if not isinstance(query, FoldQuery):
            return self._exact_custom()
        rate = setting.epsilon_c / (setting.scale * query.divisor(table))
        aged = self._aged_fold
        worst = Worst(0.0)
        for answers in self.variants(aged.classes):
            found = worst_output(aged, answers, rate=rate, adversary=setting.adversary, progress=setting.progress)
            worst = max(worst, found, key=lambda w: w.value)
        return _Value(worst.value, "exact", _scaled(worst, query.divisor(table)))

    @cached_property
    def _aged_fold(self) -> AgedLaw:
        query = self.setting.query
        assert isinstance(query, FoldQuery)
        return AgedLaw(
            self.model,
            query.parts(self.setting.model.value_table, self.members),
            ages=self._ages,
            oldest=self._oldest,
            fold=query.fold,
            progress=self.setting.progress,
        )

    def variants(self, classes: Floats) -> list[Floats]:
        """The answers for what the other groups may contribute: for sums a constant, which changes nothing."""
        query = self.setting.query
        assert isinstance(query, FoldQuery)
        outside = np.setdiff1d(np.arange(self.setting.model.sequences), self.members)
        if query.fold == "sum" or not outside.size:
            return [classes]
        values = self.setting.model.value_table[outside]
        clip = np.maximum if query.fold == "max" else np.minimum
        least = values.min(axis=1).max() if query.fold == "max" else values.max(axis=1).min()
        levels = np.unique(values)
        levels = levels[levels >= least] if query.fold == "max" else levels[levels <= least]
        # Levels between two of our own answers differ; all those beyond our range act like its end.
        levels = np.unique(np.clip(levels, classes.min(), classes.max()))
        return [clip(classes, level) for level in levels]

    def custom_answers(self) -> list[Floats]:
        """Answers of a custom query on this group's snapshots, for every state of the other groups."""
        setting, model = self.setting, self.setting.model
        s, m = model.sequences, model.states
        if m**s > 4096:
            raise TooLargeError(
                f"a custom query on {m}**{s} snapshots: at most 4,096 are enumerated. Use bound='lineage', "
                "or a built-in query",
                needed=float(m) ** s,
                limit=4096,
            )
        grid = np.array(np.unravel_index(np.arange(m**s), (m,) * s)).T
        tensor = setting.query.evaluate(grid, model.value_table).reshape((m,) * s + (-1,))
        ours = np.moveaxis(tensor, self.members, range(len(self.members)))
        ours = ours.reshape(m ** len(self.members), -1, tensor.shape[-1])
        return [ours[:, other] for other in range(ours.shape[1])]

    def _exact_custom(self) -> _Value:
        setting = self.setting
        parts = index_parts(len(self.members), setting.model.states)
        aged = AgedLaw(self.model, parts, ages=self._ages, oldest=self._oldest, progress=setting.progress)
        worst = Worst(0.0)
        for answers in self.custom_answers():
            rate = setting.epsilon_c / setting.scale
            found = worst_output(aged, answers, rate=rate, adversary=setting.adversary)
            worst = max(worst, found, key=lambda w: w.value)
        return _Value(worst.value, "exact", worst)

    def _exact_lumped(self) -> _Value:
        setting, query = self.setting, self.setting.query
        assert isinstance(query, FoldQuery)
        assert isinstance(self.model, CoupledChain)
        lumped = lump(self.model, setting.progress)
        table = setting.model.value_table
        part = query.parts(table, [0])[0]
        if query.fold == "sum":
            answers = lumped.counts @ part
        else:
            reduce = np.max if query.fold == "max" else np.min
            answers = np.array([reduce(part[row > 0], axis=0) for row in lumped.counts])
        rate = setting.epsilon_c / (setting.scale * query.divisor(table))
        worst = lumped_worst(lumped, answers, age=self._ages[0], rate=rate, adversary=setting.adversary)
        return _Value(worst.value, "exact", _scaled(worst, query.divisor(table)), "counts of an exchangeable chain")

    # ---- the others ----------------------------------------------------------------------------------------------

    def _contraction(self) -> _Value:
        adversary, oldest = self.setting.adversary, self._oldest
        tau = contraction_coefficient(self.model, min(self._ages), adversary, oldest=oldest)
        return _Value(tau * self.alpha, "contraction")

    def _lineage(self) -> _Value:
        if not isinstance(self.model, CoupledChain):
            raise InputError("lineage: needs a CoupledChain, whose next states are independent given the present")
        age = min(self._ages)
        alone = self.setting.adversary == "uninformed"
        found = lineage(self.model, age if alone else min(age, 1), progress=self.setting.progress)
        i = int(np.argmax(found.ranges))
        worst = Worst(float(found.ranges[i]), i, (i,), (int(found.pairs[i, 1]),), int(found.pairs[i, 0]))
        why = f"{found.form} form, age {age}" if alone else f"{found.form} form at age 1: no decay for this adversary"
        return _Value(worst.value, "lineage", worst, why)

    def _printed_loose(self) -> _Value:
        table = self.setting.model.value_table
        k = min(correlation_degree(self.model), len(self.members))
        ratio = self.setting.query.sensitivity(k, table, members=self.members) / self.setting.scale
        return _Value(ratio * self._pairs.total_variation * self.setting.epsilon_c, "printed-loose")

    def _auto(self) -> _Value:
        try:
            return replace(self._exact(), reason="exact fits the size limit")
        except TooLargeError as error:
            choices = [_Value(self.alpha, "group", None, "holds however the sequences are tied")]
            if isinstance(self.model, CoupledChain):
                choices.append(self._lineage())
            best = min(choices, key=lambda value: value.epsilon)
            return replace(best, reason=f"exact does not fit ({error}); {best.bound}: {best.reason}")

    def witness(self, worst: Worst | None) -> Witness | None:
        """The worst case in the names and values of the user's sequences."""
        if worst is None or not worst.known:
            return None
        model = self.setting.model
        table, names = model.value_table, model.names
        here = [self.members[i] for i in worst.known]
        values = {names[i]: float(table[i, state]) for i, state in zip(here, worst.present, strict=True)}
        secret = self.members[worst.sequence]
        present = values.pop(names[secret])
        return Witness(names[secret], present, float(table[secret, worst.alternative]), values, worst.output or None)


def _scaled(worst: Worst, divisor: float) -> Worst:
    return replace(worst, output=tuple(y / divisor for y in worst.output))


def _component_records(setting: Setting, values: Sequence[_Value]) -> tuple[dict[str, Any], ...]:
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
