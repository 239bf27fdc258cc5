"""One component of the model, and its leakage by every bound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.aging import AgedLaw, index_parts
from csdp.arrays import Floats
from csdp.bounds.closed_forms import AgedPairs, contraction_coefficient, loose_bound
from csdp.bounds.environment import PLAIN, list_aged_laws, list_paths
from csdp.bounds.exact import ComponentLeakage, WorstCase, find_widest_case, find_worst_case
from csdp.bounds.influence import (
    InfluenceRanges,
    costs_by_age,
    has_influence,
    influence_of_release,
    require_informed,
)
from csdp.bounds.lineage import Lineage, has_lineage, lineage, require_forward
from csdp.bounds.metric import answer_distances, metric_bound
from csdp.bounds.paper import bounded_aged_correlation, correlation_degree
from csdp.bounds.result import BOUNDS, Witness
from csdp.bounds.slice.bound import Slice, slice_bound
from csdp.chain import EnvironmentChain, Model
from csdp.chain.steps import METRIC_STATES
from csdp.chain.views import PathView
from csdp.errors import InputError, TooLargeError
from csdp.query_table import Fold, FoldTable, all_snapshots

if TYPE_CHECKING:
    from csdp.bounds.leakage import Setting

#: Bounds that rest on the law of the oldest reading.
OF_THE_PAST = frozenset({"exact", "metric", "profile", "loose", "freshness"})
#: What a component keeps when only the noise level changes.
_FREE_OF_NOISE = frozenset(
    {"model", "_pairs", "_aged_folds", "_contraction_factor", "_lineage_result", "_slice_result"}
)


class Component:
    """One component of the model of a setting."""

    def __init__(self, setting: Setting, members: tuple[int, ...], copies: int = 1) -> None:
        self.setting = setting
        self.members = members
        self.copies = copies
        self._ages = tuple(setting.ages[i] for i in members)
        self._oldest = max(setting.ages)  # of all sequences: paths of environments begin there

    def value(self, bound: str) -> ComponentLeakage:
        """The leakage of this component by one bound."""
        if self.setting.vantage == PLAIN and not self.setting.model.has_one_kernel:
            self.setting.model.require_one_kernel()
        if bound == "auto":
            return self._sharpest()
        if bound in OF_THE_PAST and self.setting.no_law_of_past:
            raise InputError(
                f"bound: {bound} rests on the law of the past, and {self.setting.no_law_of_past}; use auto, "
                "lineage, slice or group"
            )
        methods: dict[str, Callable[[], ComponentLeakage]] = {
            "exact": self._exact,
            "metric": self._metric,
            "lineage": self._lineage,
            "slice": self._slice,
            "influence": self._influence,
        }
        if bound in methods:
            return methods[bound]()
        formulas: dict[str, Callable[[], float]] = {
            "profile": lambda: self._pairs.profile(self.alpha),
            "loose": lambda: loose_bound(self._pairs.total_variation, self.alpha),
            "freshness": lambda: self._pairs.log_ratio,
            "group": lambda: self.alpha,
            "printed-loose": self._printed_loose,
            "printed-tight": self._printed_tight,
        }
        if bound not in formulas:
            raise InputError(f"bound: {bound!r} given; use auto or one of {', '.join(BOUNDS)}")
        return ComponentLeakage(formulas[bound](), bound)

    def by_sequence(self, bound: str) -> tuple[Floats, str]:
        """The leakage of every sequence of this component, (members,), and the bound that gave it.

        Exact, lineage, slice and influence have a number for each sequence; other bounds hold for the component.
        """
        value = self.value(bound)
        size = len(self.members)
        if value.bound == "exact" and size > 1:
            return np.array([self._exact(secret).epsilon for secret in range(size)]), "exact"
        if value.bound == "lineage":
            return self._lineage_result.ranges, value.bound
        if value.bound == "slice":
            return self._slice_result.ranges, value.bound
        if value.bound == "influence":
            return self._influence_result.ranges, value.bound
        return np.full(size, value.epsilon), value.bound

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
        return self._sensitivity_ratio(len(self.members)) * self.setting.epsilon_c

    def _sensitivity_ratio(self, k: int) -> float:
        """d(k): the sensitivity to k records of this component over that to one record."""
        query = self.setting.query
        return query.undivided_sensitivity(k, self.members) / query.denominator / self.setting.sensitivity

    @cached_property
    def _pairs(self) -> AgedPairs:
        setting = self.setting
        known: dict[str, Any] = {"adversary": setting.adversary, "vantage": setting.vantage}
        return AgedPairs(self.model, ages=self._ages, oldest=self._oldest, **known)

    # ---- exact ---------------------------------------------------------------------------------------------------

    def _exact(self, secret: int | None = None) -> ComponentLeakage:
        """The exact leakage: of the component, or of its sequence number `secret`."""
        if not self.setting.query.of_states:
            raise InputError(
                f"exact: {self.setting.query.name} depends on readings, whose law inside a state is not known; use "
                "bound='auto'"
            )
        self.setting.vantage.require_known_present(self.model, self.setting.adversary)
        cases = [self._worst_case(aged, secret) for aged in self._aged_folds]
        worst = max(cases, key=lambda case: case.value)
        return ComponentLeakage(worst.value, "exact", worst)

    def _worst_case(self, aged: AgedLaw, secret: int | None) -> WorstCase:
        """The worst case under one law of the aged readings."""
        setting, query = self.setting, self.setting.query
        rate = setting.epsilon_c / (setting.sensitivity * query.denominator)
        folds = isinstance(query, FoldTable)
        worst = WorstCase(0.0)
        compared: dict[str, Any] = {"adversary": setting.adversary, "secret": secret}
        for answers in self.variants(aged.classes) if folds else self.custom_answers():
            case = find_worst_case(aged, answers, rate=rate, progress=setting.progress, **compared)
            worst = case if case.value > worst.value else worst
        return worst

    @cached_property
    def _aged_folds(self) -> list[AgedLaw]:
        """The laws of what the query folds; of the readings themselves where it does not fold."""
        setting, query = self.setting, self.setting.query
        fold: Fold = "sum"
        if isinstance(query, FoldTable):
            parts, fold = query.contributions(self.members), query.fold
        else:
            parts = index_parts(len(self.members), setting.model.states)
        read: dict[str, Any] = {"ages": self._ages, "oldest": self._oldest, "fold": fold}
        return list_aged_laws(self.model, setting.vantage, parts, progress=setting.progress, **read)

    def variants(self, classes: Floats) -> list[Floats]:
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

    def custom_answers(self) -> list[Floats]:
        """Answers of a custom query on this component's snapshots, for every state of the other components."""
        model = self.setting.model
        s, m = model.sequences, model.states
        tensor = self.setting.query.evaluate(all_snapshots(s, m), model.value_table).reshape((m,) * s + (-1,))
        ours = np.moveaxis(tensor, self.members, range(len(self.members)))
        ours = ours.reshape(m ** len(self.members), -1, tensor.shape[-1])
        return [ours[:, other] for other in range(ours.shape[1])]

    def answers(self) -> list[Floats]:
        """Answers on this component's snapshots, for what the other components may contribute."""
        query, s, m = self.setting.query, len(self.members), self.setting.model.states
        if not isinstance(query, FoldTable):
            return self.custom_answers()
        chosen = query.contributions(self.members)[np.arange(s), all_snapshots(s, m)]  # (snapshots, s, d)
        fold: Any = {"sum": np.sum, "max": np.max, "min": np.min}[query.fold]
        return self.variants(fold(chosen, axis=1))

    # ---- bounds --------------------------------------------------------------------------------------------------

    def _metric(self) -> ComponentLeakage:
        if max(self._ages) == 0 and self.setting.adversary == "informed":
            one = self._sensitivity_ratio(1) * self.setting.epsilon_c
            return ComponentLeakage(one, "metric", None, "at age 0 the others' readings are known")
        if (size := self.model.size) > METRIC_STATES:
            words = f"metric: {size} joint states; at most {METRIC_STATES}. Use profile, or auto"
            raise TooLargeError(words, needed=size, limit=METRIC_STATES)
        rate = self.setting.epsilon_c / (self.setting.sensitivity * self.setting.query.denominator)
        distances = answer_distances(self.answers(), rate) * (1 + 1e-13)
        return ComponentLeakage(
            metric_bound(self._pairs, distances), "metric", None, "each pair of snapshots by itself"
        )

    def _contraction(self) -> ComponentLeakage:
        return ComponentLeakage(self._contraction_factor * self.alpha, "contraction")

    @cached_property
    def _contraction_factor(self) -> float:
        """tau, the largest over the paths of environments."""
        setting, age = self.setting, min(self._ages)
        assert isinstance(self.model, EnvironmentChain)
        paths = list_paths(self.model, age, setting.vantage.phase)
        return max(contraction_coefficient(PathView(self.model, path), age, setting.adversary) for path in paths)

    @cached_property
    def _lineage_result(self) -> Lineage:
        result = lineage(
            self.model, min(self._ages) if self._lineage_decays else min(*self._ages, 1), progress=self.setting.progress
        )
        return replace(result, ranges=self._of_phase(result.ranges), pairs=self._of_phase(result.pairs))

    @property
    def _lineage_decays(self) -> bool:
        return self.setting.adversary == "uninformed" and len(require_forward("lineage", self.model)) == 1

    def _of_phase(self, rows: Any) -> Any:
        """The rows of the phase at which the present lies; all of them where there is no clock."""
        phase = self.setting.vantage.phase
        return rows if phase is None else np.split(rows, self.model.phases)[phase]

    def _lineage(self) -> ComponentLeakage:
        form, age = self._lineage_result.form, min(self._ages)
        why = (
            f"{form} form, age {age}" if self._lineage_decays else f"{form} form at age 1: no decay for this adversary"
        )
        worst = find_widest_case(self._lineage_result.ranges, self._lineage_result.pairs)
        return ComponentLeakage(worst.value, "lineage", worst, why)

    @cached_property
    def _slice_result(self) -> Slice:
        result = slice_bound(self.model, min(self._ages), progress=self.setting.progress)
        return replace(result, ranges=self._of_phase(result.ranges), pairs=self._of_phase(result.pairs))

    def _slice(self) -> ComponentLeakage:
        form, curve, age = self._slice_result.form, self._slice_result.curve, min(self._ages)
        why = f"{form} form, age {age}"
        if age > 1 and curve[-1] > 0.95 * curve[-2]:
            why += (
                ": hardly any decay left at this age, the sequences depend too strongly on each other or on their past"
            )
        worst = find_widest_case(self._slice_result.ranges, self._slice_result.pairs)
        return ComponentLeakage(worst.value, "slice", worst, why)

    @cached_property
    def _influence_result(self) -> InfluenceRanges:
        setting = self.setting
        require_informed(setting.adversary)
        costs = costs_by_age(setting.query, self.members, ages=self._ages, epsilon_c=setting.epsilon_c)
        result = influence_of_release(self.model, costs)
        return InfluenceRanges(self._of_phase(result.ranges), self._of_phase(result.pairs))

    def _influence(self) -> ComponentLeakage:
        worst = find_widest_case(self._influence_result.ranges, self._influence_result.pairs)
        return ComponentLeakage(worst.value, "influence", worst, "the noise is counted, sequence by sequence")

    def _printed_loose(self) -> float:
        self._refuse_environments("printed-loose")
        degree = min(correlation_degree(self.model), len(self.members))
        return self._sensitivity_ratio(degree) * self._pairs.total_variation * self.setting.epsilon_c

    def _refuse_environments(self, bound: str) -> None:
        if self.setting.vantage != PLAIN:
            raise InputError(f"{bound}: the paper has no environments; use auto or exact")

    def _printed_tight(self) -> float:
        self._refuse_environments("printed-tight")
        correlation = bounded_aged_correlation(self.model, ages=self._ages, oldest=self._oldest)
        return correlation * self.setting.epsilon_c

    # ---- auto ----------------------------------------------------------------------------------------------------

    def _sharpest(self) -> ComponentLeakage:
        """Exact where it fits, else the least of the sound bounds; the least for any past where that is needed."""
        if not self.model.has_law:
            best = min(self._at_any_size(), key=lambda value: value.epsilon)
            return replace(best, reason=f"for all members of a family at once; {best.bound}: {best.reason}")
        no_law_of_past = self.setting.no_law_of_past
        if not no_law_of_past and not self.setting.query.of_states:
            best = min([*self._at_any_size(), *self._from_pairs()], key=lambda value: value.epsilon)
            return replace(best, reason=f"the law of the readings is not known; {best.bound}: {best.reason}")
        if not no_law_of_past:
            try:
                return replace(self._exact(), reason="exact fits the size limit")
            except TooLargeError as error:
                best = min(self._at_any_size(), key=lambda value: value.epsilon)
                return replace(best, reason=f"exact does not fit ({error}); {best.bound}: {best.reason}")
        choices = self._at_any_size()
        with suppress(TooLargeError):
            choices.append(self._contraction())
        best = min(choices, key=lambda value: value.epsilon)
        why = f"{no_law_of_past}, so this holds for any law of the past"
        return replace(best, reason=f"{why}; {best.bound}: {best.reason}" if best.reason else why)

    def _from_pairs(self) -> list[ComponentLeakage]:
        """The sharpest bound that needs no law of the answers; none for one bit, where `influence` is as sharp."""
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
        choices = [ComponentLeakage(self.alpha, "group", None, "holds however the sequences are tied")]
        if has_influence(self.model) and self.setting.adversary == "informed":
            choices.append(self._influence())
        if has_lineage(self.model):
            choices.append(self._lineage())
            if min(self._ages) > 1:  # at age 1 the two are one
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
