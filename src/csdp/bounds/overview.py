"""Overviews of the leakage of one release: by every bound, for every sequence, and at every age."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from csdp.aging import Progress
from csdp.arrays import Floats
from csdp.bounds.adversary import Adversary
from csdp.bounds.component import Component
from csdp.bounds.influence import influence_rule, require_informed
from csdp.bounds.leakage import Setting, Workers, leakage, map_components
from csdp.bounds.lineage import lineage, require_forward
from csdp.bounds.result import BOUNDS, UNSOUND, Leakage, as_text, chance, round_up
from csdp.bounds.slice.bound import slice_bound
from csdp.chain import Family, Model, certified_model
from csdp.errors import CsdpError, InputError
from csdp.query_table import Query

if TYPE_CHECKING:
    from rich.table import Table

#: What the column of probabilities says.
GUESS = "50 % guess: what such a guess about one of two present values becomes at most"
#: Shares of the sequences at which the distribution is reported.
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class SequenceLeakage:
    """One sequence of the worst: its leakage, and how many sequences of like components share it."""

    sequence: str
    epsilon: float
    bound: str
    alike: int = 1


@dataclass(frozen=True)
class LeakageSummary:
    """How much a release tells about each sequence's present, over all sequences.

    `quantiles[q]`: the least leakage that at least the share q of the sequences does not pass.
    """

    sequences: int
    adversary: Adversary
    sound: bool
    quantiles: dict[float, float]
    mean: float
    worst: tuple[SequenceLeakage, ...]
    bounds: dict[str, int]  #: how many sequences each bound answers for

    @property
    def epsilon(self) -> float:
        """The largest: the leakage of the release."""
        return self.quantiles[1.0]

    def __repr__(self) -> str:
        return f"LeakageSummary({self.sequences:,} sequences, {self.adversary}, largest {as_text(self.epsilon)})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {
            "sequences": self.sequences,
            "adversary": self.adversary,
            "sound": self.sound,
            "quantiles": {f"{share:g}": value for share, value in self.quantiles.items()},
            "mean": self.mean,
            "worst": [vars(row) for row in self.worst],
            "bounds": self.bounds,
        }

    def __rich__(self) -> Table:
        from rich.table import Column, Table

        used = ", ".join(f"{bound} for {count:,}" for bound, count in self.bounds.items())
        title = f"Leakage of each of {self.sequences:,} sequences, {self.adversary} adversary ({used})"
        figures = [Column(name, justify="right") for name in ("epsilon", "50 % guess")]
        table = Table(
            "sequences", *figures, "bound", title=title, title_justify="left", caption=GUESS, caption_justify="left"
        )
        for share, value in self.quantiles.items():
            name = {0.0: "least", 0.5: "median", 1.0: "largest"}.get(share, f"{share:.0%} do not pass")
            table.add_row(name, as_text(value), chance(value), "")
        for row in self.worst:
            more = f" and {row.alike - 1:,} alike" if row.alike > 1 else ""
            table.add_row(f"worst: {row.sequence}{more}", as_text(row.epsilon), chance(row.epsilon), row.bound)
        return table


def leakage_summary(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    bound: str = "auto",
    adversary: Adversary = "informed",
    worst: int = 10,
    workers: int | Workers = 1,
    progress: Progress | None = None,
) -> LeakageSummary:
    """The leakage of each sequence by itself: quantiles over the sequences and the `worst` ones by name.

    Formal guarantee (sound bounds): as `csdp.leakage`, for presents that differ in that one sequence. Bounds without a
    number for each sequence give all sequences of a component the same. Over a Family: for each sequence the largest.

    Args:
        chain, query, ages, epsilon_c, adversary, workers, progress: as for `csdp.leakage`.
        bound: one of the bounds, or "auto".
        worst: how many sequences to name.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], [[0.7, 0.3], [0.3, 0.7]])
    >>> summary = leakage_summary(chain, Mean(), ages=1, epsilon_c=1.0)
    >>> {share: round(value, 4) for share, value in summary.quantiles.items() if share in (0, 0.5, 1)}
    {0.0: 0.374, 0.5: 0.4088, 1.0: 0.4088}
    >>> summary.worst[0].sequence
    'x2'
    """
    if isinstance(worst, bool) or not isinstance(worst, int) or worst < 1:
        raise InputError(f"worst: {worst!r} given; how many sequences to name, 1 or more")
    members = certified_model(chain).members
    question: dict[str, Any] = {"ages": ages, "epsilon_c": epsilon_c, "adversary": adversary, "progress": progress}
    settings = [setting for model in members for setting in Setting.list_all(model, query, **question)]
    kinds: list[list[_Kind]] = []
    for each in settings:
        setting = replace(each, merge_alike=len(settings) == 1)  # several are compared sequence by sequence
        answers = map_components(setting, Component.by_sequence, bound, workers=workers)
        kinds.append(
            [
                _Kind(member, float(value), used, component.copies)
                for component, (values, used) in zip(setting.components, answers, strict=True)
                for member, value in zip(component.members, values, strict=True)
            ]
        )
    return _summarise(kinds[0] if len(kinds) == 1 else _largest(kinds), members[0], adversary, worst)


@dataclass(frozen=True)
class _Kind:
    """Sequences that share one leakage: a representative and how many."""

    sequence: int
    epsilon: float
    bound: str
    count: int


def _largest(kinds: list[list[_Kind]]) -> list[_Kind]:
    """For each sequence the largest over the members of a family."""
    best: dict[int, _Kind] = {}
    for kind in itertools.chain.from_iterable(kinds):
        best[kind.sequence] = max(best.get(kind.sequence, kind), kind, key=lambda k: k.epsilon)
    return list(best.values())


def _summarise(kinds: list[_Kind], model: Model, adversary: Adversary, worst: int) -> LeakageSummary:
    values = np.array([kind.epsilon for kind in kinds])
    counts = np.array([kind.count for kind in kinds])
    mantissa, exponent = np.frexp(values)
    alike = np.ldexp(np.round(mantissa, 11), exponent)  # ties up to rounding stay in the order of the sequences
    order = np.lexsort((np.array([kind.sequence for kind in kinds]), -alike))
    rising, total = order[::-1], int(counts.sum())
    reached = np.cumsum(counts[rising]) / total
    places = np.minimum(np.searchsorted(reached, np.array(SHARES) - 1e-12), values.size - 1)
    used: Counter[str] = Counter()
    for kind in kinds:
        used[kind.bound] += kind.count
    names = model.names
    quantiles = {share: round_up(float(values[rising[at]])) for share, at in zip(SHARES, places, strict=True)}
    return LeakageSummary(
        sequences=total,
        adversary=adversary,
        sound=not set(used) & set(UNSOUND),
        quantiles={**quantiles, 1.0: round_up(float(values.max()))},
        mean=float((values * counts).sum() / total),
        worst=tuple(
            SequenceLeakage(names[kinds[i].sequence], round_up(kinds[i].epsilon), kinds[i].bound, kinds[i].count)
            for i in order[:worst]
        ),
        bounds=dict(used.most_common()),
    )


@dataclass(frozen=True)
class LeakageTable:
    """Leakages by bound; bounds that do not apply carry the reason instead."""

    rows: tuple[Leakage, ...]
    missing: dict[str, str]
    title: str

    def __repr__(self) -> str:
        return f"LeakageTable({self.title}: {len(self.rows)} bounds)"

    def records(self) -> list[dict[str, Any]]:
        """One plain record per bound."""
        return [row.to_dict() for row in self.rows]

    def __getitem__(self, bound: str) -> Leakage:
        for row in self.rows:
            if row.bound == bound:
                return row
        raise KeyError(f"{bound}: {self.missing.get(bound, 'unknown bound')}")

    def __rich__(self) -> Table:
        from rich.table import Column, Table

        figures = [Column(name, justify="right") for name in ("epsilon", "50 % guess")]
        table = Table(
            "bound",
            *figures,
            "",
            "holds for",
            title=self.title,
            title_justify="left",
            caption=GUESS,
            caption_justify="left",
        )
        for row in self.rows:
            mark = "" if row.sound else "UNSOUND"
            words = row.assumptions[-1] if row.bound != "exact" else "one release; the truth under the model"
            likely = chance(row.epsilon) if row.sound else "-"
            table.add_row(row.bound, as_text(row.epsilon), likely, mark, words, style=None if row.sound else "dim")
        for bound, reason in self.missing.items():
            table.add_row(bound, "-", "-", "", reason, style="dim")
        return table


def leakage_table(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    adversary: Adversary = "informed",
    workers: int = 1,
    progress: Progress | None = None,
) -> LeakageTable:
    """Every bound for one release, sharpest first, then the paper's printed formulas, marked unsound.

    Over a Family, and over that of a fitted chain, every bound is the largest.

    Args:
        chain: the model, or a family of models.
        query: the query, or its name.
        ages: the age of the readings in steps, one for all sequences or one for each.
        epsilon_c: the noise level.
        adversary: "informed" or "uninformed".
        workers: number of processes that share the independent components.
        progress: called with what is done, how much, and the total.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> table = leakage_table(chain, Mean(), ages=2, epsilon_c=1.0)
    >>> round(table["profile"].epsilon, 6), table["printed-loose"].sound
    (0.196443, False)
    """
    model = certified_model(chain)
    question: dict[str, Any] = {
        "ages": ages,
        "epsilon_c": epsilon_c,
        "adversary": adversary,
        "progress": progress,
    }
    settings = Setting.list_all(model.members[0], query, **question)
    setting, single = settings[0], len(model.members) == len(settings) == 1
    rows, missing = [], {}
    for bound in BOUNDS:
        if adversary != "informed" and bound.startswith("printed"):
            continue
        try:
            if not single:
                rows.append(leakage(model, query, bound=bound, workers=workers, **question))
            else:
                rows.append(setting.answer(bound, workers=workers))
        except CsdpError as error:
            missing[bound] = str(error)
    ages_text = str(setting.ages[0]) if len(set(setting.ages)) == 1 else ",".join(map(str, setting.ages[:12]))
    what = f"{setting.query.name}, age {ages_text}, epsilon_c {epsilon_c:g}, {adversary} adversary"
    title = f"Leakage of the present: {what}"
    return LeakageTable(tuple(rows), missing, title)


def age_curve(
    chain: Model | Family,
    *,
    max_age: int,
    bound: str = "slice",
    adversary: Adversary = "informed",
    progress: Progress | None = None,
) -> Floats:
    """Leakage at every age A = 1..max_age that no query, noise or number of releases exceeds when all data is A old.

    One walk over the ages: it costs about as much as the last age alone. Never grows with age.

    Args:
        chain: the model; over a Family the largest.
        max_age: the last age, in steps.
        bound: for a forward chain "slice" (every adversary) or "lineage" (decays with age for the uninformed adversary
            only); for a backward one "influence" (the informed adversary).
        adversary: as for `csdp.leakage`.
        progress: called with a stage, what is done and what there is to do.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> age_curve(chain, max_age=3).round(4).tolist()
    [1.6946, 0.6702, 0.2982]
    >>> age_curve(chain, max_age=3, bound="lineage", adversary="uninformed").round(4).tolist()
    [1.6946, 0.6455, 0.2564]
    """
    if isinstance(max_age, bool) or not isinstance(max_age, int) or max_age < 1:
        raise InputError(f"max_age: {max_age!r} given; a whole number, 1 or more")
    if bound not in ("lineage", "slice", "influence"):
        raise InputError(f"bound: {bound!r} given; 'lineage', 'slice' or 'influence' have a curve over ages")
    if adversary not in get_args(Adversary):
        raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(get_args(Adversary))}")
    members = certified_model(chain).members
    curves = [_curve(member.given_path(), max_age, bound, adversary, progress) for member in members]
    return np.array([round_up(float(value)) for value in np.max(curves, axis=0)])


def _curve(model: Model, max_age: int, bound: str, adversary: Adversary, progress: Progress | None) -> Floats:
    if bound == "influence":
        require_informed(adversary)
        rule = influence_rule(model)
        states = itertools.accumulate(range(max_age - 1), lambda state, _: rule.advance(state), initial=rule.cap(1))
        return np.array([float(state.max()) for state in states])
    chains = require_forward("age_curve", model)
    if bound == "slice":
        return slice_bound(model, max_age, progress=progress).curve
    if adversary != "uninformed" or len(chains) > 1:
        return np.full(max_age, float(lineage(model, 1).ranges.max()))
    curve = lineage(model, max_age, curve=True, progress=progress).curve
    assert curve is not None
    return np.minimum.accumulate(curve)
