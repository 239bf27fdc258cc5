"""Every moment: what everything that is ever published reveals about the state of a sequence at any one tick.

Root the graph at that tick. Its values are known but for one, the past is generated backwards, newest tick first, and
then the future forwards, oldest tick first, given everything before it. Integrated out in the opposite order, the far
future comes first: it hands what it reveals to the root and, along edges of longer memory, to the ticks before it; then
the past, and last the root. Every value costs what all releases that read it reveal, whatever their ages: a delay
protects the present, and noise protects every moment.
"""

from __future__ import annotations

import numpy as np

from csdp.accountant.fixed_point import rest_of
from csdp.bounds.graph import GraphRule
from csdp.bounds.influence import add_swing
from csdp.chain import InfluenceGraph
from csdp.numbers import Floats


def every_moment(graph: InfluenceGraph, cost: Floats) -> Floats:
    """What releases that cost so much at every value reveal of any one value in the long run, (s, m, m).

    Args:
        graph: with its law forwards.
        cost: (s, m, m), what all releases that read a value reveal of it.

    Formal guarantee: for the informed adversary, who knows all other sequences at that tick, for every process within
    the graph. Not promised: several moments together.

    >>> from csdp import CoupledChain
    >>> graph = InfluenceGraph.from_chain(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]))
    >>> [round(float(every_moment(graph, eps * (1 - np.eye(2))[None]).max()), 6) for eps in (0.1, 0.5)]
    [0.232904, 1.119478]
    """
    assert graph.forward is not None
    memory = max(int(window.edge_lags.max(initial=1)) for window in graph.forward)
    past = GraphRule(graph.worlds)
    future = GraphRule([(window,) * memory for window in graph.forward])
    before, after = past_at_rest(past, cost), past_at_rest(future, cost)
    if before is None or after is None:
        return np.asarray(np.where(np.eye(graph.states) > 0, 0.0, np.inf) + np.zeros_like(cost))
    costs = [cost + 0.0 for _ in range(max(memory, past.memory))]
    for ago in range(memory):
        for lag in range(ago + 1, memory + 1):
            passed = future.pull(after, memory, lag)
            costs[ago] = costs[ago] if passed is None else costs[ago] + passed
    return add_swing(graph, past.root(costs, [before] * past.memory))


def past_at_rest(rule: GraphRule, cost: Floats) -> Floats | None:
    """A finished slice, far from the root, that a release at every tick does not raise; None if none is found.

    Where all older slices are such a one, the next one is not above it: so no slice of any history is.
    """
    return rest_of(lambda older: rule.finish(cost, older), cost, 1.0 - np.eye(rule.shape[1]))
