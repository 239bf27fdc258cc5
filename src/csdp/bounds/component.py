"""One independent group of sequences, and its leakage by every bound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from csdp.aging import AgedLaw, index_parts
from csdp.bounds.closed_forms import AgedPairs, contraction_coefficient, loose, two_point, with_full_past
from csdp.bounds.exact import Worst, worst_output
from csdp.bounds.influence import Told, costs_by_age, influence_of_release, require_informed, spectral_factor
from csdp.bounds.lineage import Lineage, lineage, require_forward
from csdp.bounds.lumped import lump, lumped_applies, lumped_worst
from csdp.bounds.paper import bounded_aged_correlation, correlation_degree
from csdp.bounds.result import Witness
from csdp.bounds.slice.bound import Slice, slice_bound
from csdp.chain import CoupledChain, Model, is_backward, is_forward
from csdp.computation import FoldComputation
from csdp.errors import InputError, TooLargeError
from csdp.queries import all_snapshots, is_enumerable

if TYPE_CHECKING:
    from csdp.bounds.leakage import Setting

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """A number for one component, with what it rests on."""

    epsilon: float
    bound: str
    worst: Worst | None = None
    reason: str = ""


#: Bounds that rest on the law of the oldest reading.
_OF_THE_PAST = frozenset({"exact", "profile", "two-point", "loose", "freshness"})
#: What a group remembers that does not depend on the noise level.
_FREE_OF_NOISE = frozenset({"model", "_ages", "_pairs", "_aged_fold", "_lineage_found", "_slice_found"})


class Part:
    """One independent group of sequences."""

    def __init__(self, setting: Setting, members: tuple[int, ...], copies: int = 1) -> None:
        self.setting = setting
        self.members = members
        self.copies = copies

    def value(self, bound: str) -> Value:
        """The leakage of this group by one bound."""
        if bound == "auto":
            return self._auto()
        if bound in _OF_THE_PAST and self.setting.any_past:
            raise InputError(
                f"bound: {bound} rests on the law of the past, and an initial law belongs to no tick of a plan; "
                "use auto, contraction, lineage, slice or group, or ask csdp.leakage about one release"
            )
        compute: dict[str, Callable[[], Value]] = {
            "exact": self._exact,
            "profile": lambda: Value(self._pairs.profile(self.alpha), bound),
            "two-point": lambda: Value(
                two_point(self._pairs.total_variation, self._pairs.log_ratio, self.alpha), bound
            ),
            "loose": lambda: Value(loose(self._pairs.total_variation, self.alpha), bound),
            "contraction": self._contraction,
            "freshness": lambda: Value(self._pairs.log_ratio, bound),
            "lineage": self._lineage,
            "slice": self._slice,
            "influence": self._influence,
            "spectral": self._spectral,
            "group": lambda: Value(self.alpha, bound),
            "printed-loose": self._printed_loose,
            "printed-tight": lambda: Value(
                bounded_aged_correlation(self.model, ages=self._ages, oldest=self._oldest) * self.setting.epsilon_c,
                bound,
            ),
        }
        return compute[bound]()

    def by_sequence(self, bound: str) -> tuple[Floats, str]:
        """The leakage of every sequence of this group, (members,), and the bound that gave it.

        Exact, lineage and slice have a number for each sequence; other bounds hold for the group as a whole.
        """
        value = self.value(bound)
        size = len(self.members)
        if value.bound == "exact" and size > 1 and not self._lumps:
            return np.array([self._exact(secret).epsilon for secret in range(size)]), "exact"
        if value.bound in {"lineage", "slice", "influence"}:
            return self._ranges(value.bound), value.bound
        return np.full(size, value.epsilon), value.bound

    def _ranges(self, bound: str) -> Floats:
        """What a bound that looks at every sequence by itself says of each."""
        if bound == "lineage":
            return self._lineage_found.ranges
        return self._slice_found.ranges if bound == "slice" else self._influence_found.ranges

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

    def _exact(self, secret: int | None = None) -> Value:
        setting = self.setting
        query, table = setting.query, setting.model.value_table
        if self._lumps:
            return self._exact_lumped()
        if not isinstance(query, FoldComputation):
            return self._exact_custom(secret)
        rate = setting.epsilon_c / (setting.scale * query.divisor(table))
        aged = self._aged_fold
        worst = Worst(0.0)
        for answers in self.variants(aged.classes):
            found = worst_output(
                aged, answers, rate=rate, adversary=setting.adversary, secret=secret, progress=setting.progress
            )
            worst = max(worst, found, key=lambda w: w.value)
        return Value(worst.value, "exact", _scaled(worst, query.divisor(table)))

    @property
    def _lumps(self) -> bool:
        setting = self.setting
        return lumped_applies(self.model, setting.query, self._ages, setting.adversary) and not setting._several

    @cached_property
    def _aged_fold(self) -> AgedLaw:
        query = self.setting.query
        assert isinstance(query, FoldComputation)
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
        assert isinstance(query, FoldComputation)
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
        """Answers of a custom query on this group's snapshots, for every state of the other groups."""
        setting, model = self.setting, self.setting.model
        s, m = model.sequences, model.states
        if not is_enumerable(s, m):
            raise TooLargeError(
                f"a custom query on {m}**{s} snapshots: at most 4,096 are enumerated. Use bound='lineage', "
                "or a built-in query",
                needed=float(m) ** min(s, 300),
                limit=4096,
            )
        tensor = setting.query.evaluate(all_snapshots(s, m), model.value_table).reshape((m,) * s + (-1,))
        ours = np.moveaxis(tensor, self.members, range(len(self.members)))
        ours = ours.reshape(m ** len(self.members), -1, tensor.shape[-1])
        return [ours[:, other] for other in range(ours.shape[1])]

    def _exact_custom(self, secret: int | None = None) -> Value:
        setting = self.setting
        parts = index_parts(len(self.members), setting.model.states)
        aged = AgedLaw(self.model, parts, ages=self._ages, oldest=self._oldest, progress=setting.progress)
        worst = Worst(0.0)
        for answers in self.custom_answers():
            rate = setting.epsilon_c / setting.scale
            found = worst_output(aged, answers, rate=rate, adversary=setting.adversary, secret=secret)
            worst = max(worst, found, key=lambda w: w.value)
        return Value(worst.value, "exact", worst)

    def _exact_lumped(self) -> Value:
        setting, query = self.setting, self.setting.query
        assert isinstance(query, FoldComputation)
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
        return Value(worst.value, "exact", _scaled(worst, query.divisor(table)), "counts of an exchangeable chain")

    # ---- the others ----------------------------------------------------------------------------------------------

    def _contraction(self) -> Value:
        adversary, age = self.setting.adversary, min(self._ages)
        if self.setting.any_past:
            # The present may then be anything that follows some past.
            tau = contraction_coefficient(with_full_past(self.model), age, adversary)
        else:
            tau = contraction_coefficient(self.model, age, adversary, oldest=self._oldest)
        return Value(tau * self.alpha, "contraction")

    @cached_property
    def _lineage_found(self) -> Lineage:
        chain = require_forward("lineage", self.model)
        age = min(self._ages)
        alone = self.setting.adversary == "uninformed"
        return lineage(chain, age if alone else min(age, 1), progress=self.setting.progress)

    def _lineage(self) -> Value:
        found, age = self._lineage_found, min(self._ages)
        alone = self.setting.adversary == "uninformed"
        why = f"{found.form} form, age {age}" if alone else f"{found.form} form at age 1: no decay for this adversary"
        worst = _widest(found)
        return Value(worst.value, "lineage", worst, why)

    @cached_property
    def _slice_found(self) -> Slice:
        return slice_bound(require_forward("slice", self.model), min(self._ages), progress=self.setting.progress)

    def _slice(self) -> Value:
        found, age = self._slice_found, min(self._ages)
        why = f"{found.form} form, age {age}"
        if age > 1 and found.curve[-1] > 0.95 * found.curve[-2]:
            why += (
                ": hardly any decay left at this age, the sequences depend too strongly on each other or on their past"
            )
        worst = _widest(found)
        return Value(worst.value, "slice", worst, why)

    @cached_property
    def _influence_found(self) -> Told:
        setting = self.setting
        require_informed(setting.adversary)
        costs = costs_by_age(setting.query, self.members, ages=self._ages, epsilon_c=setting.epsilon_c)
        return influence_of_release(self.model, costs)

    def _influence(self) -> Value:
        worst = _widest(self._influence_found)
        return Value(worst.value, "influence", worst, "the noise is counted, sequence by sequence")

    def _spectral(self) -> Value:
        require_informed(self.setting.adversary)
        if len(set(self._ages)) > 1:
            raise InputError("spectral: needs one age for all sequences; use influence for unequal ages")
        return Value(spectral_factor(self.model, self._ages[0]) * self.setting.epsilon_c, "spectral")

    def _printed_loose(self) -> Value:
        table = self.setting.model.value_table
        k = min(correlation_degree(self.model), len(self.members))
        ratio = self.setting.query.sensitivity(k, table, members=self.members) / self.setting.scale
        return Value(ratio * self._pairs.total_variation * self.setting.epsilon_c, "printed-loose")

    def _auto(self) -> Value:
        if self.setting.any_past:
            return self._for_any_past()
        try:
            return replace(self._exact(), reason="exact fits the size limit")
        except TooLargeError as error:
            best = min(self._at_any_size(), key=lambda value: value.epsilon)
            return replace(best, reason=f"exact does not fit ({error}); {best.bound}: {best.reason}")

    def _at_any_size(self) -> list[Value]:
        """What can be told of a group of any size; it holds for any law of the past."""
        choices = [Value(self.alpha, "group", None, "holds however the sequences are tied")]
        if is_backward(self.model) and self.setting.adversary == "informed":
            choices.append(self._influence())
        if is_forward(self.model):
            choices.append(self._lineage())
            if min(self._ages) > 1:  # at age 1 the two are one
                choices.append(self._slice())
        return choices

    def _for_any_past(self) -> Value:
        """The least of what holds whatever the law of the past."""
        choices = self._at_any_size()
        with suppress(TooLargeError):
            choices.append(self._contraction())
        best = min(choices, key=lambda value: value.epsilon)
        why = "the initial law belongs to no tick, so this holds for any law of the past"
        return replace(best, reason=f"{why}; {best.bound}: {best.reason}" if best.reason else why)

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


def _widest(found: Lineage | Slice | Told) -> Worst:
    """The sequence whose present is told apart best, with the two states."""
    i = int(np.argmax(found.ranges))
    return Worst(float(found.ranges[i]), i, (i,), (int(found.pairs[i, 1]),), int(found.pairs[i, 0]))


def _scaled(worst: Worst, divisor: float) -> Worst:
    return replace(worst, output=tuple(y / divisor for y in worst.output))
