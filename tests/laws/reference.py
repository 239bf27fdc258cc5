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
    def initial(self) -> Array | None:
        law = self.system.initial
        if law is None or law.ndim == 1:
            return law
        out = np.ones(1)
        for row in law:
            out = np.outer(out, row).ravel()
        return out

    @cached_property
    def aged(self) -> tuple[Array, Array]:
        return o.aged_law(self.kernel, self.s, self.m, self.system.ages, self.initial)

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
        """Connected components of the coupling, or everybody where the initial law ties them (or a joint chain)."""
        everyone = tuple(range(self.s))
        if self.system.coupling is None or (self.initial is not None and not self._factors(self.initial)):
            return [everyone]
        label = list(everyone)
        for j, k in product(everyone, everyone):
            if self.system.coupling[j, k] > 0:
                label = [label[j] if c == label[k] else c for c in label]
        return sorted(tuple(i for i in everyone if label[i] == c) for c in set(label))

    def _factors(self, law: Array) -> bool:
        tensor = law.reshape((self.m,) * self.s)
        out = np.ones(1)
        for i in range(self.s):
            out = np.outer(out, tensor.sum(axis=tuple(j for j in range(self.s) if j != i))).ravel()
        return bool(np.all(np.abs(out - law) <= 1e-9 * np.maximum(out, law)))

    def part(self, members: tuple[int, ...]) -> Reference:
        """The same question about one component; its f values are not needed by the bounds."""
        if len(members) == self.s:
            return self
        from dataclasses import replace

        system = self.system
        assert system.coupling is not None
        assert system.transitions is not None
        pick = np.ix_(members, members)
        initial = None
        if self.initial is not None:
            # The initial law holds at the oldest age of all; this component may be read later.
            lead = max(system.ages) - max(system.ages[i] for i in members)
            law = self.initial @ np.linalg.matrix_power(self.kernel, lead)
            away = tuple(i for i in range(self.s) if i not in members)
            initial = law.reshape((self.m,) * self.s).sum(axis=away).ravel()
        return Reference(
            replace(
                system,
                coupling=system.coupling[pick],
                transitions=system.transitions if system.transitions.ndim == 2 else system.transitions[pick],
                s=len(members),
                values=system.values[list(members)],
                initial=initial,
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
            # Where the laws agree up to rounding the oracle's quotient means nothing.
            "two-point": lambda: o.two_point(delta, r, alpha) if delta > 1e-14 else 0.0,
            "loose": lambda: o.loose(delta, alpha),
            "freshness": lambda: r,
            "contraction": lambda: self._contraction(alpha),
            "lineage": self._lineage,
        }
        return bounds[name]()

    def _lineage(self) -> float:
        age = min(self.system.ages)
        if age == 0:
            return float("inf")
        assert self.system.coupling is not None
        assert self.system.transitions is not None
        reach = age if self.system.adversary == "uninformed" else 1
        return o.lineage_uninformed(self.system.coupling, self.system.transitions, reach)

    def _contraction(self, alpha: float) -> float:
        """Any adversary: tanh(D/4) with D the range over pasts of the log odds of what the adversary compares."""
        age = min(self.system.ages)
        if age == 0:
            return alpha
        _, law = self.aged
        if self.system.adversary == "informed":
            return o.contraction(self.kernel, age, o.neighbour_pairs(self.s, self.m, law), alpha)
        power = np.linalg.matrix_power(self.kernel, age)
        _, pairs, labels = o.adversary_rows(*self.aged, self.s, self.m, self.system.adversary)
        snaps = o.snapshots(self.s, self.m)
        match = np.array([[float(all(x[j] == c for j, c in known.items())) for x in snaps] for _, known in labels])
        law = power @ match.T  # Pr(what is compared | z)
        widest = 0.0
        for n, other in pairs:
            seen = (law[:, n] > 0) | (law[:, other] > 0)
            ratios = o.safe_log(law[seen, n]) - o.safe_log(law[seen, other])
            spread = float(np.ptp(ratios)) if np.isfinite(ratios).all() else np.inf
            widest = max(widest, spread)
        return float(np.tanh(widest / 4)) * alpha
