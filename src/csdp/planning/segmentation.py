"""Segmentation: weakly coupled groups, a release per group, and the leakage including what crosses the cuts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from csdp.accountant import Accountant
from csdp.aging import Adversary
from csdp.bounds.result import Leakage
from csdp.chain import CoupledChain, is_forward
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.planning.curves import Releases
from csdp.queries import FoldQuery, Sum
from csdp.segments import Cut, Groups, PerGroup, cuts


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Groups of sequences and what crosses between them."""

    chain: CoupledChain
    groups: Groups

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """Every group with its own chain and the charge of its cut."""
        return tuple(cuts(self.chain, self.groups))

    @property
    def charges(self) -> tuple[float, ...]:
        """The most that one step of the sequences outside tells about each group."""
        return tuple(cut.charge for cut in self.cuts)

    @cached_property
    def crossing(self) -> float:
        """The largest coupling that crosses a cut."""
        labels = self.query().labels
        across = labels[self.chain.edge_targets] != labels[self.chain.edge_sources]
        return float(self.chain.edge_weights[across].max(initial=0.0))

    def query(self, inner: FoldQuery | None = None) -> PerGroup:
        """One release with an answer per group (default: the sum), for a Plan and a Publisher."""
        return PerGroup(Sum() if inner is None else inner, self.groups)

    def leakage(
        self,
        *,
        ages: Any,
        epsilon_c: float,
        inner: FoldQuery | None = None,
        releases: Releases = 1,
        adversary: Adversary = "informed",
    ) -> tuple[Leakage, ...]:
        """The certified leakage of the present of every group's sequences, by the rule of the cut.

        Formal guarantee: holds under the whole chain, couplings that are cut included, for what all groups publish.
        """
        plan = Plan(self.chain, self.query(inner), ages, epsilon_c, adversary=adversary)
        return group_leakages(plan, releases)

    def records(self) -> list[dict[str, Any]]:
        """One plain record per group."""
        names = self.chain.names
        return [
            {"group": i + 1, "sequences": [names[k] for k in cut.members], "charge": cut.charge}
            for i, cut in enumerate(self.cuts)
        ]


def segment(chain: CoupledChain, *, max_states: int | None = None, cut: float | None = None) -> Segmentation:
    """Group weakly coupled sequences: joint states per group up to `max_states`, or couplings below `cut` severed.

    With `max_states` sequences are joined along their strongest couplings for as long as a group stays that small.

    >>> chain = CoupledChain([[0.7, 0.29, 0.01], [0.3, 0.7, 0.0], [0.02, 0.0, 0.98]], [[0.7, 0.3], [0.3, 0.7]])
    >>> segmentation = segment(chain, cut=0.05)
    >>> segmentation.groups, round(segmentation.crossing, 3)
    (((0, 1), (2,)), 0.02)
    >>> segment(chain, max_states=4).groups
    ((0, 1), (2,))
    """
    if not is_forward(chain):
        raise InputError(
            f"segment: {type(chain).__name__} given; only a CoupledChain with direction='forward' has couplings to cut"
        )
    if chain.initial is not None:
        raise InputError("segment: the chain has an initial law; the charge of a cut is proven for the stationary one")
    if (max_states is None) == (cut is None):
        which = "neither" if cut is None else "both"
        raise InputError(f"segment: {which} of max_states and cut given; give exactly one")
    if cut is not None and not (isinstance(cut, int | float) and 0 < cut <= 1):
        raise InputError(f"cut: {cut!r} given; a coupling between 0 and 1")
    if max_states is not None and (isinstance(max_states, bool) or not isinstance(max_states, int) or max_states < 2):
        raise InputError(f"max_states: {max_states!r} given; a whole number, 2 or more")
    largest = chain.sequences if max_states is None else _group_size(max_states, chain.states)
    return Segmentation(chain, _join_groups(chain, least=0.0 if cut is None else float(cut), largest=largest))


def _group_size(max_states: int, states: int) -> int:
    """How many sequences have at most `max_states` joint states; one at least."""
    count = 1
    while states ** (count + 1) <= max_states:
        count += 1
    return count


def _join_groups(chain: CoupledChain, *, least: float, largest: int) -> Groups:
    """Join along couplings, the strongest first, while they are at least `least` and the group at most `largest`."""
    targets, sources, weights = chain.edge_targets, chain.edge_sources, chain.edge_weights
    parent = np.arange(chain.sequences)
    size = np.ones(chain.sequences, dtype=np.int64)

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for e in np.lexsort((sources, targets, -weights)):
        if targets[e] == sources[e]:
            continue
        if weights[e] < least:
            break
        a, b = sorted((root(int(targets[e])), root(int(sources[e]))))
        if a != b and size[a] + size[b] <= largest:
            parent[b] = a
            size[a] += size[b]
    groups: dict[int, list[int]] = {}
    for i in range(chain.sequences):
        groups.setdefault(root(i), []).append(i)
    return tuple(tuple(group) for group in groups.values())


def group_leakages(plan: Plan, releases: Releases) -> tuple[Leakage, ...]:
    """The leakage of every group's sequences after some releases of a plan with a query per group."""
    accountant = Accountant(plan, state="segmented")
    if releases == "continual":
        whole, state = accountant.limit(), accountant.long_run()
        if state is None:  # no state comes to rest: the cap, which holds for every group
            return (whole,) * len(accountant.components)
    else:
        whole, state = accountant.after(releases), accountant.history(releases)
    return tuple(replace(whole, epsilon=value, bound=bound) for value, bound in accountant.leakage_by_component(state))
