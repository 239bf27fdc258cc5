"""The leakage of every sequence: how it is distributed, and which sequences are the worst."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress
from csdp.bounds.leakage import BOUNDS, UNSOUND, Setting
from csdp.bounds.parallel import Spread, over_parts
from csdp.bounds.rounding import round_up, shown
from csdp.chain import Family, Model, certified_model
from csdp.errors import InputError
from csdp.queries import Query

if TYPE_CHECKING:
    from rich.table import Table

Floats = npt.NDArray[np.float64]

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
        from rich.table import Table

        used = ", ".join(f"{bound} for {count:,}" for bound, count in self.bounds.items())
        title = f"Leakage of each of {self.sequences:,} sequences, {self.adversary} adversary ({used})"
        table = Table(title=title, title_justify="left")
        for column, justify in (("sequences", "left"), ("epsilon", "right"), ("bound", "left")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type] # plain text for a literal
        for share, value in self.quantiles.items():
            name = {0.0: "least", 0.5: "median", 1.0: "largest"}.get(share, f"{share:.0%} do not pass")
            table.add_row(name, shown(value), "")
        for row in self.worst:
            more = f" and {row.alike - 1:,} alike" if row.alike > 1 else ""
            table.add_row(f"worst: {row.sequence}{more}", shown(row.epsilon), row.bound)
        return table


def leakage_summary(
    chain: Model | Family,
    query: Query,
    *,
    ages: Any,
    epsilon_c: float,
    bound: str = "auto",
    adversary: Adversary = "informed",
    worst: int = 10,
    workers: int | Spread = 1,
    progress: Progress | None = None,
) -> LeakageSummary:
    """The leakage of each sequence by itself: quantiles over the sequences and the `worst` ones by name.

    Formal guarantee (sound bounds): as `csdp.bounds`, for presents that differ in that one sequence. Bounds without a
    number of their own for each sequence give all sequences of a component the same. `workers`: processes over which
    components are spread. Over a Family: for each sequence the largest.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], [[0.7, 0.3], [0.3, 0.7]])
    >>> found = leakage_summary(chain, Mean(), ages=1, epsilon_c=1.0)
    >>> {share: round(value, 4) for share, value in found.quantiles.items() if share in (0, 0.5, 1)}
    {0.0: 0.374, 0.5: 0.4088, 1.0: 0.4088}
    >>> found.worst[0].sequence
    'x2'
    """
    if isinstance(worst, bool) or not isinstance(worst, int) or worst < 1:
        raise InputError(f"worst: {worst!r} given; how many sequences to name, 1 or more")
    if bound != "auto" and bound not in BOUNDS:
        raise InputError(f"bound: {bound!r} given; use auto or one of {', '.join(BOUNDS)}")
    members = certified_model(chain).members
    found = []
    for model in members:
        setting = Setting.make(model, query, ages=ages, epsilon_c=epsilon_c, adversary=adversary, progress=progress)
        if len(members) > 1:
            # Members are compared sequence by sequence, so none may stand for others like it.
            setting.__dict__["labels"] = np.arange(model.sequences)
        found.append(_by_kind(setting, bound, workers))
    return _summarised(_largest(found), members[0], adversary, worst)


@dataclass(frozen=True)
class _Kind:
    """Sequences that share one leakage: a representative and how many."""

    sequence: int
    epsilon: float
    bound: str
    count: int


def _by_kind(setting: Setting, bound: str, workers: int | Spread) -> list[_Kind]:
    answers = over_parts(setting, "by_sequence", bound, workers=workers)
    return [
        _Kind(member, float(value), used, part.copies)
        for part, (values, used) in zip(setting.parts, answers, strict=True)
        for member, value in zip(part.members, values, strict=True)
    ]


def _largest(found: list[list[_Kind]]) -> list[_Kind]:
    """For each sequence the largest over the members of a family."""
    if len(found) == 1:
        return found[0]
    best: dict[int, _Kind] = {}
    for kind in (kind for kinds in found for kind in kinds):
        best[kind.sequence] = max(best.get(kind.sequence, kind), kind, key=lambda k: k.epsilon)
    return list(best.values())


def _summarised(kinds: list[_Kind], model: Model, adversary: Adversary, worst: int) -> LeakageSummary:
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
