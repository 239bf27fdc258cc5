"""The recursion on a graph of influences: longer memory, edges inside a tick, and windows near the present.

Values are generated from the roots, the present, into the past, and integrated out in the opposite order. For a value
v,

    beta_v(a, a') = c_v(a, a') + sum over its children u of max over S of ln(1 + (delta_S)_+ E_u / (1 + base_S E_u))

bounds how much the log likelihood of everything published changes when v goes from a to a' and everything generated
before it is fixed; E_u = e^(max beta_u) - 1, and c_v is what all releases that read v reveal of it. A value that was
not read costs nothing and stays; one that was read late costs at its own, older place. The beta of a root bounds what
everything published reveals about that present value.

A value at a distance from the present below the memory L has only that many newer ticks: its law is another one, and so
is the window it takes its edges from. As time passes it moves to the next window. So the state keeps the costs of the L
newest slices, which are followed anew at every tick, and the betas of the L slices before them, which are final.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from csdp.bounds.influence import Recursion, rule_of, worst_rule
from csdp.chain.graph import Window
from csdp.numbers import Floats, Indices


class SlicesRule(Recursion):
    """What rules of longer memory share: a state begins with the costs of the L newest slices, the newest first."""

    def __init__(self, worlds: Sequence[Sequence[Window]]) -> None:
        self._worlds = worlds

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        window = self._worlds[0][0]
        return window.sequences, window.states

    @property
    def memory(self) -> int:
        """Slices over which a value depends on newer ones."""
        return len(self._worlds[0])

    def add(self, state: Floats, cost: Floats) -> Floats:
        """Add costs (s, m, m) of the values at the newest slice."""
        state = state.copy()
        state[: self.shape[0]] += cost
        return state

    def add_before(self, state: Floats, cost: Floats, behind: int) -> Floats | None:
        """Add costs of values `behind` slices before the newest one; None if these are finished."""
        if behind >= self.memory:
            return None
        state, s = state.copy(), self.shape[0]
        state[behind * s : (behind + 1) * s] += cost
        return state


class GraphRule(SlicesRule):
    """The recursion of a graph. A state is (2 L s, m, m): costs of L slices, the newest first, then betas of L older.

    Args:
        worlds: by environment, the windows from the present on; at every tick the worst environment counts.

    >>> from csdp.chain import InfluenceGraph
    >>> matrix = [[0.7, 0.3], [0.3, 0.7]]
    >>> near = [(0, 0, 1, 1.0, matrix)]
    >>> far = [(0, 0, 1, 0.8, matrix), (0, 0, 2, 0.2, matrix)]
    >>> rule = GraphRule(InfluenceGraph(1, (0, 1), [near, far]).worlds)
    >>> released = 0.5 * (1 - np.eye(2))[None]
    >>> state = rule.start()
    >>> for _ in range(3):
    ...     state = rule.add(rule.advance(state), released)
    >>> round(float(rule.present(state).max()), 6)
    0.798816
    """

    def __init__(self, worlds: Sequence[Sequence[Window]]) -> None:
        super().__init__(worlds)
        self._links: dict[tuple[int, int], Recursion | None] = {}
        self._inside = [_levels(worlds, n) for n in range(self.memory)]

    # ---- what children pass on ---------------------------------------------------------------------------------------

    def pull(self, children: Floats, distance: int, lag: int) -> Floats | None:
        """What finished children at a distance pass to parents `lag` ticks newer; None without edges."""
        number = min(distance, self.memory) - 1
        if (number, lag) not in self._links:
            self._links[number, lag] = self._link(number, lag)
        link = self._links[number, lag]
        return None if link is None else link.advance(children)

    def _link(self, number: int, lag: int, rows: Indices | None = None) -> Recursion | None:
        """The recursion along the edges of one lag, from the children to those parents (rows; all by default)."""
        rules = []
        for windows in self._worlds:
            window = windows[number]
            chosen = window.edge_lags == lag
            if rows is not None:
                chosen &= np.isin(window.edge_sources, rows)
            if chosen.all() and chosen.size:
                rules.append(rule_of(window, window))
            elif chosen.any():
                place = np.arange(window.sequences)
                rules.append(rule_of(window.part(chosen, place, window.sequences), window))
        return worst_rule(rules) if rules else None

    @cached_property
    def _closing(self) -> list[list[tuple[Indices, Recursion]]]:
        """By window: parents inside a tick, those last whose children inside it have children there themselves."""
        closing = []
        for number, levels in enumerate(self._inside):
            links = [(rows, self._link(number, 0, rows)) for rows in levels]
            closing.append([(rows, link) for rows, link in links if link is not None])
        return closing

    def close(self, slice_: Floats, distance: int) -> Floats:
        """A slice with what its values reveal of each other inside the tick; the last generated is finished first."""
        for rows, link in self._closing[min(distance, self.memory) - 1]:
            passed = link.advance(slice_)
            slice_ = slice_.copy()
            slice_[rows] += passed[rows]
        return slice_

    def receive(self, costs: Floats, older: Sequence[Floats], distance: int) -> Floats:
        """The slice at a distance: its costs, and what finished older slices, the newest first, pass to it."""
        for lag, children in enumerate(older[: self.memory], start=1):
            passed = self.pull(children, distance + lag, lag)
            costs = costs if passed is None else costs + passed
        return costs

    # ---- states ------------------------------------------------------------------------------------------------------

    def start(self) -> Floats:
        """The state before any release."""
        s, m = self.shape
        return np.zeros((2 * self.memory * s, m, m))

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        """Costs of the newest slices and betas of those before them, (L, s, m, m) each."""
        queue, done = state.reshape(2, self.memory, *self.shape, self.shape[1])
        return queue, done

    def finish(self, costs: Floats, older: Floats) -> Floats:
        """A slice at least the memory away from the present that is finished, as all older ones are."""
        distance = 2 * self.memory  # the last window from here on
        return self.close(self.receive(costs, [older] * self.memory, distance), distance)

    def at_rest(self, costs: Floats, finished: Floats) -> Floats:
        """The state of slices that all cost the same and, once finished, are the same."""
        return self._join([costs] * self.memory, [finished] * self.memory)

    def _join(self, queue: Sequence[Floats], done: Sequence[Floats]) -> Floats:
        return np.concatenate([*queue, *done])

    def add_everywhere(self, state: Floats, level: float) -> Floats:
        """Add what is revealed of whatever is read, at the newest slice or before: to all slices not finished."""
        state = state.copy()
        state[: self.memory * self.shape[0]] += level * (1.0 - np.eye(self.shape[1]))
        return state

    def _step(self, state: Floats) -> Floats:
        queue, done = self._split(state)
        distance = 2 * self.memory  # the last window from here on
        beta = self.close(self.receive(queue[-1], list(done), distance), distance)
        return self._join([np.zeros_like(beta), *queue[:-1]], [beta, *done[:-1]])

    def present(self, state: Floats) -> Floats:
        """What the history reveals of the values at the newest slice, (s, m, m)."""
        queue, done = self._split(state)
        return self.root(list(queue), list(done))

    def root(self, costs: Sequence[Floats], done: Sequence[Floats]) -> Floats:
        """The roots, from the costs of the newest slices and the finished ones before them, the newest first."""
        older = list(done)
        for distance in range(len(costs) - 1, 0, -1):
            older.insert(0, self.close(self.receive(costs[distance], older, distance), distance))
        return self.receive(costs[0], older, 0)


def _levels(worlds: Sequence[Sequence[Window]], number: int) -> list[Indices]:
    """Parents inside a tick in groups, such that the children of each group are finished before it."""
    windows = [windows[number] for windows in worlds]
    inside = [window.edge_lags == 0 for window in windows]
    ends = [
        np.stack([window.edge_sources[each], window.edge_targets[each]], axis=1)
        for window, each in zip(windows, inside, strict=True)
    ]
    edges = np.unique(np.concatenate(ends), axis=0)[::-1].tolist()
    depth: dict[int, int] = {}
    for parent, child in edges:  # parents in falling order, so that those of their children are known
        depth[parent] = max(depth.get(parent, 0), depth.get(child, 0) + 1)
    groups: dict[int, list[int]] = {}
    for parent, level in depth.items():
        groups.setdefault(level, []).append(parent)
    return [np.array(sorted(groups[level]), dtype=np.intp) for level in sorted(groups)]
