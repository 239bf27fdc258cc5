"""What the library should answer about a `System`, from the oracle only (no code of the library)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import oracle as o

if TYPE_CHECKING:
    from laws.strategies import System

Array = NDArray[np.float64]


class Reference:
    """Brute force for one system; `members` restricts it to one component, the rest taken as absent."""

    def __init__(self, system: System, fvals: Sequence[tuple[float, ...]] | None = None) -> None:
        self.system = system
        self.s, self.m = system.s, system.m
        self._fvals = fvals

    @cached_property
    def fvals(self) -> list[tuple[float, ...]]:
        if self._fvals is not None:
            return list(self._fvals)
        from laws.strategies import answers

        return answers(self.system)

    @cached_property
    def kernel(self) -> Array:
        if self.system.kernel is not None:
            return self.system.kernel
        assert self.system.coupling is not None
        assert self.system.transitions is not None
        return o.joint_kernel(self.system.coupling, self.system.transitions)

    @cached_property
    def has_one_stationary_law(self) -> bool:
        try:
            o.recurrent_states(self.kernel)
        except ValueError:
            return False
        return True

    @cached_property
    def aged(self) -> tuple[Array, Array]:
        return o.aged_law(self.kernel, self.s, self.m, self.system.ages)

    @cached_property
    def rows(self) -> tuple[Array, list[tuple[int, int]]]:
        B, law = self.aged
        rows, pairs, _ = o.adversary_rows(B, law, self.s, self.m, self.system.adversary)
        return rows, pairs

    @cached_property
    def delta_f(self) -> float:
        return o.sensitivity(self.fvals, self.s, self.m, 1)

    @cached_property
    def exact(self) -> float:
        rows, pairs = self.rows
        outputs = o.product_outputs(self.fvals)
        return o.worst_output(rows, pairs, self.fvals, outputs, self.system.epsilon_c, self.delta_f)[0]

    # ---- components --------------------------------------------------------------------------------------------

    @cached_property
    def components(self) -> list[tuple[int, ...]]:
        """Connected components of the coupling, or everybody in a joint chain."""
        everyone = tuple(range(self.s))
        if self.system.coupling is None:
            return [everyone]
        label = list(everyone)
        for j, k in product(everyone, everyone):
            if self.system.coupling[j, k] > 0:
                label = [label[j] if c == label[k] else c for c in label]
        return sorted(tuple(i for i in everyone if label[i] == c) for c in set(label))

    def part(self, members: tuple[int, ...]) -> Reference:
        """The same question about one component; its f values are not needed by the bounds."""
        if len(members) == self.s:
            return self
        from dataclasses import replace

        system = self.system
        assert system.coupling is not None
        assert system.transitions is not None
        pick = np.ix_(members, members)
        return Reference(
            replace(
                system,
                coupling=system.coupling[pick],
                transitions=system.transitions if system.transitions.ndim == 2 else system.transitions[pick],
                s=len(members),
                values=system.values[list(members)],
                ages=tuple(system.ages[i] for i in members),
            ),
        )

    def alpha(self, members: tuple[int, ...]) -> float:
        """d(k) eps_c where all of `members` may change and nobody else."""
        snaps = o.snapshots(self.s, self.m)
        groups: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        for x, f in zip(snaps, self.fvals, strict=True):
            groups.setdefault(tuple(a for i, a in enumerate(x) if i not in members), []).append(f)
        moved = max(o.l1(f, g) for group in groups.values() for f in group for g in group)
        return moved / self.delta_f * self.system.epsilon_c

    # ---- bounds ------------------------------------------------------------------------------------------------

    def bound(self, name: str) -> float:
        """A bound for the system's adversary: the largest over components."""
        return max(self.part(members).whole_bound(name, self.alpha(members)) for members in self.components)

    def whole_bound(self, name: str, alpha: float) -> float:
        """A bound of a system taken as one component."""
        rows, pairs = self.rows
        delta, r = o.total_variation(rows, pairs), o.freshness(rows, pairs)
        bounds: dict[str, Callable[[], float]] = {
            "profile": lambda: o.profile(rows, pairs, alpha) if alpha > 0 else 0.0,
            "loose": lambda: o.loose(delta, alpha),
            "freshness": lambda: r,
            "one step": self._one_step,
        }
        return bounds[name]()

    def _one_step(self) -> float:
        assert self.system.coupling is not None
        assert self.system.transitions is not None
        return o.lineage_uninformed(self.system.coupling, self.system.transitions, 1)
