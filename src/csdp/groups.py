"""An answer per group of sequences, all in one release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.errors import InputError
from csdp.queries import BlockQuery, Fold, FoldQuery, Query, check_snapshots, parse_query, reading_range, to_query

Groups = tuple[tuple[int, ...], ...]

#: Outputs that a query per group may have.
MAX_OUTPUTS = 4096
#: Entries of the table of parts.
MAX_PARTS = 50_000_000


def group_labels(groups: Groups) -> Indices:
    """The number of the group of every sequence.

    >>> group_labels(((0, 2), (1,))).tolist()
    [0, 1, 0]
    """
    labels = np.empty(sum(map(len, groups)), dtype=np.intp)
    for number, group in enumerate(groups):
        labels[list(group)] = number
    return labels


@dataclass(frozen=True)
class PerGroup:
    """A sum, count, histogram or another undivided sum of every group of sequences, all in one release; or its text.

    s_k is that of the query over all: every record is in one group.

    >>> from csdp import Sum
    >>> PerGroup(Sum(), ((0, 1), (2,))).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 1.0]
    """

    query: FoldQuery
    groups: Groups
    fold: ClassVar[Fold] = "sum"

    def __init__(self, query: FoldQuery | str, groups: Sequence[Sequence[int]]) -> None:
        object.__setattr__(self, "query", to_query(query))
        if reading_range(self.query) is not None:
            raise InputError(f"per group: {self.query.name} given; groups are of states so far, leave of= out")
        if not isinstance(self.query, FoldQuery) or self.query.fold != "sum" or isinstance(self.query, BlockQuery):
            self._refuse()
        object.__setattr__(self, "groups", tuple(tuple(int(i) for i in group) for group in groups))
        listed = sorted(i for group in self.groups for i in group)
        if not listed or listed != list(range(len(listed))) or not all(self.groups):
            raise InputError("per group: every sequence must be in exactly one group, and no group may be empty")
        self._check_undivided(np.zeros((len(listed), 1)))

    def _check_undivided(self, values: Floats) -> None:
        if values.shape[0] > 1 and self.query.divisor(values) != 1.0:
            self._refuse()

    def _refuse(self) -> None:
        name = getattr(self.query, "name", type(self.query).__name__)
        raise InputError(
            f"per group: {name} given; sum, count or histogram (a mean is the sum, divided afterwards), or another "
            "sum of one part per sequence without a divisor"
        )

    @property
    def name(self) -> str:
        """Short name, with the number of groups."""
        return f"{self.query.name} of {len(self.groups)} groups"

    @property
    def text(self) -> str:
        """The query of every group as `parse_query` reads it; the groups are not part of it."""
        return str(getattr(self.query, "text", self.query.name))

    @cached_property
    def labels(self) -> Indices:
        """The group of every sequence."""
        return group_labels(self.groups)

    def _check(self, values: Floats) -> None:
        if values.shape[0] != self.labels.size:
            raise InputError(f"per group: groups of {self.labels.size} sequences given for {values.shape[0]}")

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """The part of the query, in the coordinates of the sequence's own group; groups without a member left out."""
        self._check(values)
        chosen = np.arange(values.shape[0]) if members is None else np.asarray(members, dtype=np.intp)
        inner = self.query.parts(values, members)
        groups, place = np.unique(self.labels[chosen], return_inverse=True)
        rows, m, d = inner.shape
        if groups.size * d > MAX_OUTPUTS or rows * m * groups.size * d > MAX_PARTS:
            raise InputError(f"per group: {groups.size * d:,} outputs of {rows:,} sequences; use larger groups")
        out = np.zeros((rows, m, groups.size, d))
        out[np.arange(rows), :, place] = inner
        return out.reshape(rows, m, groups.size * d)

    def blocks(self, values: Floats) -> tuple[Floats, Indices]:
        """The part of the query, in the block of the sequence's group."""
        self._check(values)
        self._check_undivided(values)
        inner = self.query.parts(values)
        if len(self.groups) * inner.shape[-1] > MAX_OUTPUTS:
            raise InputError(
                f"per group: {len(self.groups) * inner.shape[-1]:,} outputs of {len(values):,} sequences; "
                "use larger groups"
            )
        return inner, self.labels

    def divisor(self, values: Floats) -> float:
        """Nothing is divided."""
        return 1.0

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., groups x d) for snapshots (..., s) of state numbers."""
        self._check(values)
        states = check_snapshots(snapshots, values)
        inner = self.query.parts(values)[np.arange(values.shape[0]), states]  # (..., s, d)
        out = np.stack([inner[..., list(group), :].sum(axis=-2) for group in self.groups], axis=-2)
        return np.asarray(out.reshape(*states.shape[:-1], -1))

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the parts of different records add up without cancelling, in whatever groups they are."""
        return self.query.sensitivity(k, values, members=members)

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """The outputs of the query for every group."""
        inner = self.query.output_names(names, values)
        return tuple(f"group {g + 1}: {name}" for g in range(len(self.groups)) for name in inner)


def parse_groups(text: str, groups: Any) -> Query:
    """The built-in query of a text as `parse_query` reads it, of every group where there are some.

    >>> parse_groups("sum", [[0, 1], [2]]).name, parse_groups("sum", None).name
    ('sum of 2 groups', 'sum')
    """
    query = parse_query(text)
    if groups is None:
        return query
    if not isinstance(query, FoldQuery):
        raise InputError(f"plan: groups of {text!r}; sum, count or histogram")
    return PerGroup(query, tuple(tuple(group) for group in groups))
