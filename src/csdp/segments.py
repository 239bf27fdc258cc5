"""Segments: sequences in weakly coupled groups, a query per group, and what crosses the cut.

Seen from one group, the others are inputs. Written against a chain of the group alone, in which every input is replaced
by its long-run average, the joint law of the group and of everything outside is that chain times factors, one per step,
of the two slices that it connects. How far the logarithm of such a factor can vary is the charge of the cut: the whole
outside path counts as if it were published, at that cost per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain
from csdp.errors import InputError
from csdp.queries import BlockQuery, Fold, FoldQuery, check_snapshots

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Groups = tuple[tuple[int, ...], ...]

#: Outputs that a query per group may have.
MAX_OUTPUTS = 4096
#: Entries of the table of parts.
MAX_PARTS = 50_000_000


def group_labels(groups: Groups) -> Ints:
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
    """A sum, count, histogram or another undivided sum of every group of sequences, all in one release.

    s_k is that of the query over all: every record is in one group.

    >>> from csdp import Sum
    >>> PerGroup(Sum(), ((0, 1), (2,))).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 1.0]
    """

    query: FoldQuery
    groups: Groups
    fold: ClassVar[Fold] = "sum"

    def __post_init__(self) -> None:
        if not isinstance(self.query, FoldQuery) or self.query.fold != "sum" or isinstance(self.query, BlockQuery):
            self._refuse()
        object.__setattr__(self, "groups", tuple(tuple(int(i) for i in group) for group in self.groups))
        listed = sorted(i for group in self.groups for i in group)
        if not listed or listed != list(range(len(listed))) or not all(self.groups):
            raise InputError("per group: every sequence must be in exactly one group, and no group may be empty")
        self._check_undivided(np.zeros((len(listed), 1)))

    def _check_undivided(self, values: Floats) -> None:
        if values.shape[0] > 1 and self.query.divisor(values) != 1.0:
            self._refuse()

    def _refuse(self) -> None:
        given = getattr(self.query, "name", type(self.query).__name__)
        raise InputError(
            f"per group: {given} given; sum, count or histogram (a mean is the sum, divided afterwards), or another "
            "sum of one part per sequence without a divisor"
        )

    @property
    def name(self) -> str:
        """Short name, with the number of groups."""
        return f"{self.query.name} of {len(self.groups)} groups"

    @property
    def text(self) -> str:
        """The query of every group as `parse_query` reads it; the groups are told beside it."""
        return str(getattr(self.query, "text", self.query.name))

    @cached_property
    def labels(self) -> Ints:
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

    def blocks(self, values: Floats) -> tuple[Floats, Ints]:
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


@dataclass(frozen=True, eq=False)
class Cut:
    """One group seen alone.

    `chain`: the group with every input from outside replaced by its long-run average. `inward[k]`: how much the log of
    sequence k's next-state law varies with what comes from outside; `outward`: how much the log of the outside's
    next-state laws varies with the group. Infinite where a transition is possible only with the help of the outside.
    """

    members: tuple[int, ...]
    chain: CoupledChain
    inward: Floats
    outward: float

    @property
    def charge(self) -> float:
        """What one step of the whole outside path tells, at most, about the two slices of the group it connects."""
        return float(self.inward.sum()) + self.outward


def cuts(chain: CoupledChain, groups: Groups) -> list[Cut]:
    """Every group with its own chain and the charge of its cut."""
    table, which = chain.transition_table
    blocks = chain.edge_weights[:, None, None] * table[which]  # (edges, from, to)
    low, high = blocks.min(axis=1), blocks.max(axis=1)
    targets, sources = chain.edge_targets, chain.edge_sources
    average = np.einsum("eab,ea->eb", blocks, chain.marginals()[sources])
    labels = group_labels(groups)
    crossing = labels[targets] != labels[sources]

    def per_target(values: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
        total = np.zeros((chain.sequences, chain.states))
        np.add.at(total, targets[chosen], values[chosen])
        return total

    own = per_target(low, ~crossing)
    outside = [per_target(values, crossing) for values in (low, average, high)]
    inward = _log_spread(own, *outside)
    outward = _outward(chain.sequences, len(groups), targets, labels[sources], crossing, low, high)
    out = []
    for number, group in enumerate(groups):
        alone = _isolated_chain(chain, group, outside[1], blocks, crossing)
        out.append(Cut(tuple(group), alone, inward[list(group)], float(outward[number])))
    return out


def _log_spread(own: Floats, low: Floats, average: Floats, high: Floats) -> Floats:
    """Range of ln (own + outside) / (own + average) over states and inputs; largest where the own part is least."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.log((own + high) / (own + average))
        down = np.log((own + low) / (own + average))
    # A state that cannot be reached at all says nothing; one that only some inputs reach tells without bound.
    up, down = np.where(own + high > 0, up, 0.0), np.where(own + high > 0, down, 0.0)
    return np.asarray((up.max(axis=1) - down.min(axis=1)) * (1 + 1e-12))


def _outward(
    sequences: int,
    groups: int,
    targets: Ints,
    source_groups: Ints,
    crossing: npt.NDArray[np.bool_],
    low: Floats,
    high: Floats,
) -> Floats:
    """For every group: how much the laws of the sequences outside that follow it vary with it."""
    total = np.zeros((sequences, low.shape[1]))
    np.add.at(total, targets, low)
    pairs, place = np.unique(targets[crossing] * groups + source_groups[crossing], return_inverse=True)
    least, most = np.zeros((pairs.size, low.shape[1])), np.zeros((pairs.size, low.shape[1]))
    np.add.at(least, place, low[crossing])
    np.add.at(most, place, high[crossing])
    rest = np.maximum(total[pairs // groups] - least, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(most + rest > 0, np.log((most + rest) / (least + rest)), 0.0)
    charge = np.zeros(groups)
    np.add.at(charge, pairs % groups, spread.max(axis=1, initial=0.0) * (1 + 1e-12))
    return charge


def _isolated_chain(
    chain: CoupledChain, group: Sequence[int], average: Floats, blocks: Floats, crossing: npt.NDArray[np.bool_]
) -> CoupledChain:
    """The chain of a group whose inputs are constant: their part of the law goes to the sequence's own edge."""
    place = {member: i for i, member in enumerate(group)}
    m = chain.states
    merged: dict[tuple[int, int], Any] = {(i, i): np.tile(average[member], (m, 1)) for member, i in place.items()}
    wanted = np.isin(chain.edge_targets, list(group)) & ~crossing
    for e in np.flatnonzero(wanted):
        edge = place[int(chain.edge_targets[e])], place[int(chain.edge_sources[e])]
        merged[edge] = merged.get(edge, 0.0) + blocks[e]
    coupling, transitions = {}, {}
    for edge, block in merged.items():
        weight = float(block[0].sum())
        if weight > 0:
            coupling[edge] = weight
            transitions[edge] = block / block.sum(axis=1, keepdims=True)
    sums = np.zeros(len(group))
    for (i, _), weight in coupling.items():
        sums[i] += weight
    coupling = {edge: weight / sums[edge[0]] for edge, weight in coupling.items()}
    return CoupledChain(coupling, transitions).with_values_of(chain, group)
