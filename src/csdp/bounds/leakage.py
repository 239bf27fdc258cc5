"""`leakage()`: how much one release reveals about the present, by any bound; component by component."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from csdp import check
from csdp.aging import (
    PLAIN,
    Adversary,
    AgedLaw,
    Progress,
    Vantage,
    check_ages,
    check_epsilon,
    find_vantages,
    index_parts,
    list_aged_laws,
    list_paths,
)
from csdp.bounds.exact import WorstCase, find_widest_case, find_worst_case
from csdp.bounds.influence import costs_by_age, has_influence, influence_of_release, require_informed
from csdp.bounds.metric import AgedPairs, answer_distances, contraction_coefficient, metric_bound
from csdp.bounds.result import BOUNDS, Leakage, Witness, round_up
from csdp.bounds.slice import Slice, has_slice, slice_bound
from csdp.bounds.units import Units, blocks_of, largest_of, tie
from csdp.chain import EnvironmentChain, Family, Model, certified_model, worst_verdict
from csdp.chain.environment import PathView
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats
from csdp.query import QueryTable, tabulate
from csdp.query_table import Fold, FoldTable, Query, all_snapshots

#: By bound: what it holds for.
_HOLDS_FOR = {
    "exact": "one release; nothing is left out or estimated",
    "metric": "one release; any query with these distances between snapshots",
    "profile": "one release; any query with this sensitivity",
    "contraction": "one release; any query with this sensitivity, any law of the past",
    "freshness": "any query, any noise, any number of releases (at one common age)",
    "slice": "any query, any noise, any number of releases, any law of the past, whatever others are known",
    "influence": "one release; previous states are independent given the present (a backward chain)",
    "group": "one release; all records of a component may change at once, however they depend on each other",
}
#: Bounds that rest on the law of the oldest reading.
_OF_THE_PAST = frozenset({"exact", "metric", "profile", "freshness"})
#: What a component keeps when only the noise level changes.
_FREE_OF_NOISE = frozenset({"model", "pairs", "_aged_folds", "_contraction_factor", "_slice_result"})


def leakage(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    bound: str = "auto",
    adversary: Adversary = "informed",
    units: Units = (),
    progress: Progress | None = None,
) -> Leakage:
    """How much one release reveals about the present state of any sequence: `csdp.leakage` has the arguments.

    Formal guarantee: for all presents x, x' that differ in one sequence and every set S of outputs,
    `Pr[output in S | x_t = x] <= exp(epsilon) Pr[output in S | x_t = x']`, under the model.

    >>> from csdp import CoupledChain
    >>> leakage(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), "max", ages=2, epsilon_c=1.0)
    Leakage(0.0957425, exact, informed)
    """
    check.choice("bound", bound, ("auto", *BOUNDS))
    members = certified_model(chain).members
    options: dict[str, Any] = {"ages": ages, "epsilon_c": epsilon_c, "adversary": adversary, "progress": progress}
    options["units"] = units
    if len(members) > 1:
        answers = [leakage(member, query, bound=bound, **options) for member in members]
        worst = _largest(answers)
        verdict = worst_verdict([answer.model for answer in answers])
        words = f"the sequences follow one of {len(answers)} given models ({verdict.brief})"
        assumptions = (words, *worst.assumptions[1:])
        return replace(worst, point=answers[0].epsilon, assumptions=assumptions, model=verdict)
    return _largest([setting.answer(bound) for setting in Setting.list_all(members[0], query, **options)])


def _largest(answers: Sequence[Leakage]) -> Leakage:
    return max(answers, key=lambda answer: answer.epsilon)


@dataclass(frozen=True)
class ComponentLeakage:
    """The leakage of one component by one bound, not rounded yet, and why."""

    epsilon: float
    bound: str
    worst_case: WorstCase | None = None
    reason: str = ""


@dataclass(frozen=True)
class Setting:
    """Model, query, ages and noise of one release, checked; its components are kept so that bounds share their work."""

    model: Model
    query: QueryTable
    ages: tuple[int, ...]
    epsilon_c: float
    adversary: Adversary
    progress: Progress | None
    vantage: Vantage = PLAIN  #: what is known of the environment
    units: Units = ()  #: sequences whose states are one secret, by number

    @classmethod
    def make(
        cls,
        model: Model,
        query: Query | str,
        *,
        ages: Any,
        epsilon_c: float,
        adversary: Adversary = "informed",
        progress: Progress | None = None,
        units: Units = (),
    ) -> Setting:
        """Check everything that can be checked before any work."""
        if not isinstance(model, Model):  # a caller without types
            raise InputError(f"chain: {type(model).__name__} given; CoupledChain, JointChain or Family expected")
        verified = tabulate(query, model)
        check.choice("adversary", adversary, ("informed", "uninformed"))
        checked = check_ages(ages, model.sequences)
        if units and adversary != "informed":
            raise InputError(f"units: given with adversary {adversary!r}; they are certified for 'informed' only")
        return cls(model, verified.costs, checked, check_epsilon(epsilon_c), adversary, progress, units=units)

    @classmethod
    def list_all(cls, model: Model, query: Query | str, **options: Any) -> list[Setting]:
        """The settings of which the largest answer counts: under a clock one for each phase."""
        vantages = find_vantages(model)
        return [replace(cls.make(each, query, **options), vantage=vantage) for each, vantage in vantages]

    @property
    def no_law_of_past(self) -> str:
        """Why the law of the past is unknown, so that bounds must hold for any; empty if it is known."""
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
        if self.units:
            return [Component(self, members) for members in tie(self.model.components(), self.units)]
        labels = self.query.labels(self.ages)
        return [Component(self, members, copies) for members, copies in self.model.distinct_components(labels)]

    def at(self, epsilon_c: float) -> Setting:
        """The same release at another noise level; what does not depend on the noise is kept."""
        other = replace(self, epsilon_c=check_epsilon(epsilon_c))
        components = [component.in_setting(other) for component in self.components]
        other.__dict__.update(sensitivity=self.sensitivity, components=components)
        return other

    def answer(self, bound: str) -> Leakage:
        """The leakage by one bound: the largest over the components."""
        values = [component.value(bound) for component in self.components]
        order = sorted(range(len(values)), key=lambda i: -values[i].epsilon)
        worst = values[order[0]]
        bounds = sorted({value.bound for value in values})
        infinite = "infinite: some present state rules out, or alone allows, something that can be read"
        names = self.model.names
        return Leakage(
            epsilon=round_up(worst.epsilon),
            bound=worst.bound,
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
                    "epsilon": round_up(values[i].epsilon),
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
            f"the oldest reading follows {law}" if bound in _OF_THE_PAST else "",
            *self.vantage.assumptions,
            _HOLDS_FOR[bound],
            "several independent components: the others' aged values are taken as known, an upper bound" * several,
            self.query.assumption,
            extra,
        )
        return tuple(text for text in texts if text)


class Component:
    """One component of the model of a setting, and its leakage by every bound."""

    def __init__(self, setting: Setting, members: tuple[int, ...], copies: int = 1) -> None:
        self.setting = setting
        self.members = members
        self.copies = copies
        self.blocks = blocks_of(members, setting.units)
        self._ages = tuple(setting.ages[i] for i in members)
        self._oldest = max(setting.ages)  # of all sequences: paths of environments begin there

    def value(self, bound: str) -> ComponentLeakage:
        """The leakage of this component by one bound."""
        if self.setting.vantage == PLAIN and not self.setting.model.has_one_kernel:
            self.setting.model.require_one_kernel()
        if bound == "auto":
            return self._sharpest()
        if bound in _OF_THE_PAST and self.setting.no_law_of_past:
            raise InputError(
                f"bound: {bound} rests on the law of the past, and {self.setting.no_law_of_past}; use auto, slice or "
                "group"
            )
        methods: dict[str, Callable[[], ComponentLeakage]] = {
            "exact": self._exact,
            "metric": self._metric,
            "profile": lambda: ComponentLeakage(self.pairs.profile(self.alpha), bound),
            "freshness": lambda: ComponentLeakage(self.pairs.log_ratio, bound),
            "slice": self._slice,
            "influence": self._influence,
            "group": lambda: ComponentLeakage(self.alpha, bound),
        }
        return methods[bound]()

    def in_setting(self, setting: Setting) -> Component:
        """The same component in a setting that differs in the noise level only."""
        other = Component(setting, self.members, self.copies)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name in _FREE_OF_NOISE})
        return other

    @cached_property
    def model(self) -> Model:
        """The model of this component alone."""
        whole = len(self.members) == self.setting.model.sequences
        return self.setting.model if whole else self.setting.model.subchain(self.members)

    @cached_property
    def alpha(self) -> float:
        """d(k) epsilon_c, with k all the sequences of this component."""
        return self.sensitivity_ratio(len(self.members)) * self.setting.epsilon_c

    def sensitivity_ratio(self, k: int) -> float:
        """d(k): the sensitivity to k records of this component over that to one record."""
        query = self.setting.query
        return query.undivided_sensitivity(k, self.members) / query.denominator / self.setting.sensitivity

    def _block_ratio(self, block: tuple[int, ...]) -> float:
        """The sensitivity to the records of a unit over that to one record."""
        if len(block) == 1:
            return self.sensitivity_ratio(1)
        query, inside = self.setting.query, tuple(self.members[i] for i in block)
        return query.undivided_sensitivity(len(block), inside) / query.denominator / self.setting.sensitivity

    @cached_property
    def pairs(self) -> AgedPairs:
        """The laws of the aged snapshot given presents that the adversary must not distinguish."""
        return AgedPairs(
            self.model,
            ages=self._ages,
            oldest=self._oldest,
            adversary=self.setting.adversary,
            vantage=self.setting.vantage,
            blocks=self.blocks,
        )

    @property
    def has_units(self) -> bool:
        """Whether some secret is the state of several sequences."""
        return bool(self.blocks)

    # ---- exact ---------------------------------------------------------------------------------------------------

    def _exact(self) -> ComponentLeakage:
        if self.has_units:
            raise InputError("exact: given with units of several sequences; use bound='auto'")
        if not self.setting.query.of_states:
            raise InputError(
                f"exact: {self.setting.query.name} depends on readings, whose law inside a state is not known; use "
                "bound='auto'"
            )
        self.setting.vantage.require_known_present(self.model, self.setting.adversary)
        worst = max((self._worst_case(aged) for aged in self._aged_folds), key=lambda case: case.value)
        return ComponentLeakage(worst.value, "exact", worst)

    def _worst_case(self, aged: AgedLaw) -> WorstCase:
        """The worst case under one law of the aged readings."""
        setting, query = self.setting, self.setting.query
        rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
        folds = isinstance(query, FoldTable)
        worst = WorstCase(0.0)
        for answers in self._variants(aged.classes) if folds else self._custom_answers():
            case = find_worst_case(aged, answers, rate=rate, adversary=setting.adversary, progress=setting.progress)
            worst = case if case.value > worst.value else worst
        return worst

    @cached_property
    def _aged_folds(self) -> list[AgedLaw]:
        """The laws of what the query folds; of the readings themselves if it does not fold."""
        setting, query = self.setting, self.setting.query
        fold: Fold = "sum"
        if isinstance(query, FoldTable):
            parts, fold = query.contributions(self.members), query.fold
        else:
            parts = index_parts(len(self.members), setting.model.states)
        read: dict[str, Any] = {"ages": self._ages, "oldest": self._oldest, "fold": fold}
        return list_aged_laws(self.model, setting.vantage, parts, progress=setting.progress, **read)

    def _variants(self, classes: Floats) -> list[Floats]:
        """The answers for what the other components may contribute: for sums a constant, which changes nothing."""
        query = self.setting.query
        assert isinstance(query, FoldTable)
        outside = np.setdiff1d(np.arange(self.setting.model.sequences), self.members)
        if query.fold == "sum" or not outside.size:
            return [classes]
        values = query.own[outside, :, 0]
        clip = np.maximum if query.fold == "max" else np.minimum
        least = values.min(axis=1).max() if query.fold == "max" else values.max(axis=1).min()
        levels = np.unique(values)
        levels = levels[levels >= least] if query.fold == "max" else levels[levels <= least]
        # Levels between two of our own answers differ; all those beyond our range act like its end.
        levels = np.unique(np.clip(levels, classes.min(), classes.max()))
        return [clip(classes, level) for level in levels]

    def _custom_answers(self) -> list[Floats]:
        """Answers of a custom query on this component's snapshots, for every state of the other components."""
        model = self.setting.model
        s, m = model.sequences, model.states
        tensor = self.setting.query.evaluate(all_snapshots(s, m), model.value_table).reshape((m,) * s + (-1,))
        ours = np.moveaxis(tensor, self.members, range(len(self.members)))
        ours = ours.reshape(m ** len(self.members), -1, tensor.shape[-1])
        return [ours[:, other] for other in range(ours.shape[1])]

    def answers(self) -> list[Floats]:
        """Answers on this component's snapshots, for what the other components may contribute."""
        query = self.setting.query
        s = len(self.members)
        m = self.setting.model.states
        if not isinstance(query, FoldTable):
            return self._custom_answers()
        chosen = query.contributions(self.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        fold: Any = {"sum": np.sum, "max": np.max, "min": np.min}[query.fold]
        return self._variants(fold(chosen, axis=1))

    # ---- bounds --------------------------------------------------------------------------------------------------

    def _metric(self) -> ComponentLeakage:
        if max(self._ages) == 0 and self.setting.adversary == "informed":
            one = max(map(self._block_ratio, self.blocks or ((0,),))) * self.setting.epsilon_c
            return ComponentLeakage(one, "metric", None, "at age 0 the others' readings are known")
        if (size := self.model.size) > METRIC_STATES:
            words = f"metric: {size} joint states; at most {METRIC_STATES}. Use profile, or auto"
            raise TooLargeError(words, needed=size, limit=METRIC_STATES)
        rate = self.setting.epsilon_c / (self.setting.sensitivity * self.setting.query.denominator)
        distances = answer_distances(self.answers(), rate) * (1 + 1e-13)
        return ComponentLeakage(metric_bound(self.pairs, distances), "metric", None, "each pair of snapshots by itself")

    def _contraction(self) -> ComponentLeakage:
        return ComponentLeakage(self._contraction_factor * self.alpha, "contraction")

    @cached_property
    def _contraction_factor(self) -> float:
        """tau, the largest over the paths of environments."""
        age = min(self._ages)
        assert isinstance(self.model, EnvironmentChain)
        paths = list_paths(self.model, age)
        return max(contraction_coefficient(PathView(self.model, path), age, self.setting.adversary) for path in paths)

    def _of_phase(self, rows: Any) -> Any:
        """The rows of the phase at which the present lies; all of them without a clock."""
        phase = self.setting.vantage.phase
        return rows if phase is None else np.split(rows, self.model.phases)[phase]

    @cached_property
    def _slice_result(self) -> Slice:
        result = slice_bound(self.model, min(self._ages), progress=self.setting.progress)
        return replace(result, ranges=self._of_phase(result.ranges), pairs=self._of_phase(result.pairs))

    def _widest(self, ranges: Floats, pairs: Any) -> WorstCase:
        """The sequence or unit of which most is revealed; these bounds hold for every combination of other values."""
        return WorstCase(largest_of(ranges, self.blocks)) if self.has_units else find_widest_case(ranges, pairs)

    def _slice(self) -> ComponentLeakage:
        form = self._slice_result.form
        curve = self._slice_result.curve
        age = min(self._ages)
        why = f"{form} form, age {age}"
        if age > 1 and curve[-1] > 0.95 * curve[-2]:
            why += ": hardly any decay at this age, the sequences depend too strongly on each other or on their past"
        worst = self._widest(self._slice_result.ranges, self._slice_result.pairs)
        return ComponentLeakage(worst.value, "slice", worst, why)

    def _influence(self) -> ComponentLeakage:
        setting = self.setting
        require_informed(setting.adversary)
        costs = costs_by_age(setting.query, self.members, ages=self._ages, epsilon_c=setting.epsilon_c)
        ranges, pairs = (self._of_phase(rows) for rows in influence_of_release(self.model, costs))
        worst = self._widest(ranges, pairs)
        return ComponentLeakage(worst.value, "influence", worst, "the noise is counted, sequence by sequence")

    # ---- auto ----------------------------------------------------------------------------------------------------

    def _sharpest(self) -> ComponentLeakage:
        """Exact if it fits, else the least of the bounds; the least for any past if that is needed."""
        if not self.model.has_law:
            best = min(self._at_any_size(), key=lambda value: value.epsilon)
            return replace(best, reason=f"for all members of a family at once; {best.bound}: {best.reason}")
        no_law_of_past = self.setting.no_law_of_past
        if not no_law_of_past and (self.has_units or not self.setting.query.of_states):
            best = min([*self._at_any_size(), *self._from_pairs()], key=lambda value: value.epsilon)
            why = "several sequences are one secret" if self.has_units else "the law of the readings is not known"
            return replace(best, reason=f"{why}; {best.bound}: {best.reason}")
        if not no_law_of_past:
            try:
                return replace(self._exact(), reason="exact fits the size limit")
            except TooLargeError as error:
                best = min(self._at_any_size(), key=lambda value: value.epsilon)
                return replace(best, reason=f"exact does not fit ({error}); {best.bound}: {best.reason}")
        choices = self._at_any_size()
        with suppress(TooLargeError):
            choices += [] if self.has_units else [self._contraction()]  # it compares presents that differ in one
        best = min(choices, key=lambda value: value.epsilon)
        why = f"{no_law_of_past}, so this holds for any law of the past"
        return replace(best, reason=f"{why}; {best.bound}: {best.reason}" if best.reason else why)

    def _from_pairs(self) -> list[ComponentLeakage]:
        """The sharpest bound that needs no law of the answers; none for one bit, for which `influence` is as sharp."""
        if self.model.size == 2 and has_influence(self.model) and self.setting.adversary == "informed":
            return []
        if self.model.size <= METRIC_STATES or max(self._ages) == 0:
            with suppress(TooLargeError):
                return [self._metric()]
        with suppress(TooLargeError):
            return [replace(self.value("profile"), reason="from the sensitivity alone")]
        return []

    def _at_any_size(self) -> list[ComponentLeakage]:
        """The bounds for a component of any size; they hold for any law of the past."""
        choices = [ComponentLeakage(self.alpha, "group", None, "holds however the sequences depend on each other")]
        if has_influence(self.model) and self.setting.adversary == "informed":
            choices.append(self._influence())
        if has_slice(self.model):
            choices.append(self._slice())
        return choices

    def witness(self, worst: WorstCase | None) -> Witness | None:
        """The worst case in the names and values of the user's sequences."""
        if worst is None or not worst.known:
            return None
        model = self.setting.model
        table, names = model.value_table, model.names
        here = [self.members[i] for i in worst.known]
        values = {names[i]: float(table[i, state]) for i, state in zip(here, worst.present, strict=True)}
        secret = self.members[worst.sequence]
        present, alternative = values.pop(names[secret]), float(table[secret, worst.alternative])
        output = tuple(y / self.setting.query.denominator for y in worst.output)
        return Witness(names[secret], present, alternative, values, output or None)
