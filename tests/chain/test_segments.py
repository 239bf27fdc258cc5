"""Queries of groups and the charge of a cut, against the whole chain by enumeration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import csdp
import oracle as o
from csdp.errors import InputError
from csdp.segments import Groups, PerGroup, cuts

VALUES = np.array([[0.0, 1.0, 4.0], [0.5, 0.0, 2.0], [1.0, 3.0, 0.0]])
GROUPS: Groups = ((2, 0), (1,))


@pytest.mark.parametrize("query", [csdp.Sum(), csdp.Count(1), csdp.Histogram()], ids=lambda query: query.name)
def test_every_group_is_answered_as_if_it_were_alone(query: Any) -> None:
    asked, snaps = PerGroup(query, GROUPS), np.array(o.snapshots(3, 3))
    want = np.concatenate([query.evaluate(snaps[:, list(g)], VALUES[list(g)]) for g in GROUPS], axis=1)
    got = asked.evaluate(snaps, VALUES)
    assert got.tolist() == want.tolist()
    folded = asked.parts(VALUES)[np.arange(3), snaps].sum(axis=-2)
    assert folded.tolist() == got.tolist()
    names = asked.output_names(["a", "b", "c"], VALUES)
    assert len(set(names)) == len(names) == got.shape[1]
    assert names[0].startswith("group 1: ")
    assert asked.divisor(VALUES) == 1.0
    rows = [tuple(row) for row in got.tolist()]
    for k in (1, 2, 3):
        assert asked.sensitivity(k, VALUES) == pytest.approx(o.sensitivity(rows, 3, 3, k))
    only = asked.parts(VALUES, [1])  # the first group has no member here, so its coordinates are left out
    assert only.tolist() == query.parts(VALUES, [1]).tolist()


@pytest.mark.parametrize(
    ("query", "groups", "message"),
    [
        (csdp.Mean(), GROUPS, r"mean given; sum, count or histogram \(a mean is the sum, divided afterwards\)"),
        (csdp.Max(), GROUPS, "max given; sum, count or histogram"),
        ("sum", GROUPS, "str given; sum, count or histogram"),
        (csdp.Sum(), (), "every sequence must be in exactly one group"),
        (csdp.Sum(), ((0, 1), ()), "no group may be empty"),
        (csdp.Sum(), ((0, 1), (1,)), "exactly one group"),
        (csdp.Sum(), ((0,), (2,)), "exactly one group"),
    ],
)
def test_groups_that_are_none(query: Any, groups: Groups, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PerGroup(query, groups)


@pytest.mark.parametrize("snapshot", [[0, 3, 0], [0, -1, 0], [0.0, 1.0, 1.0], [0, 1], 1])
def test_snapshots_that_are_none(snapshot: Any) -> None:
    with pytest.raises(InputError, match="snapshot: "):
        PerGroup(csdp.Sum(), GROUPS).evaluate(snapshot, VALUES)


def test_tables_that_do_not_fit_the_groups() -> None:
    asked = PerGroup(csdp.Sum(), GROUPS)
    for ask in (lambda: asked.parts(VALUES[:2]), lambda: asked.evaluate([0, 0], VALUES[:2])):
        with pytest.raises(InputError, match="groups of 3 sequences given for 2"):
            ask()
    with pytest.raises(InputError, match="k=0 given; at least one record changes"):
        asked.sensitivity(0, VALUES)
    many = PerGroup(csdp.Sum(), tuple((i,) for i in range(5000)))
    with pytest.raises(InputError, match=r"5,000 outputs of 5,000 sequences; use larger groups"):
        many.parts(np.broadcast_to([0.0, 1.0], (5000, 2)))


# ---------------------------------------------------------------- the charge of a cut


def laws(chain: csdp.CoupledChain, snapshot: tuple[int, ...]) -> np.ndarray:
    """Pr(next_j = b | snapshot), (s, m), from the definition of the chain."""
    out = np.zeros((chain.sequences, chain.states))
    table, which = chain.transition_table
    edges = zip(chain.edge_targets, chain.edge_sources, chain.edge_weights, which, strict=True)
    for target, source, weight, number in edges:
        out[target] += weight * table[number][snapshot[source]]
    return out


def log_ratio(above: float, below: float) -> float:
    if above == below == 0:
        return 0.0
    return math.inf if below == 0 else -math.inf if above == 0 else math.log(above / below)


def plain_inward(chain: csdp.CoupledChain, alone: csdp.CoupledChain, group: tuple[int, ...], k: int) -> float:
    """How far ln (law with the outside as it is / law with its average) varies over all snapshots and next states."""
    found = []
    for snapshot in o.snapshots(chain.sequences, chain.states):
        there = laws(chain, snapshot)[group[k]]
        mean = laws(alone, tuple(snapshot[i] for i in group))[k]
        found += [log_ratio(a, b) for a, b in zip(there, mean, strict=True)]
    return max(found) - min(found)


def plain_outward(chain: csdp.CoupledChain, group: tuple[int, ...]) -> float:
    """For each sequence outside, how far the log of its law varies with the group, whatever the others are; summed."""
    total = 0.0
    rest = [i for i in range(chain.sequences) if i not in group]
    for target in rest:
        worst = 0.0
        for others in itertools.product(range(chain.states), repeat=len(rest)):
            seen = []
            for inside in itertools.product(range(chain.states), repeat=len(group)):
                snapshot = [0] * chain.sequences
                for i, state in [*zip(rest, others, strict=True), *zip(group, inside, strict=True)]:
                    snapshot[i] = state
                seen.append(laws(chain, tuple(snapshot))[target])
            for b in range(chain.states):
                column = [row[b] for row in seen]
                worst = max(worst, log_ratio(max(column), min(column)))
        total += worst
    return total


@pytest.mark.parametrize("seed", range(6))
def test_the_charge_is_what_enumeration_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = 2 + seed % 2
    moves = rng.dirichlet(np.full(m, 1.0), (3, 3, m))
    chain = csdp.CoupledChain(rng.dirichlet(np.ones(3), 3), moves)
    for cut in cuts(chain, GROUPS):
        group = cut.members
        want = [plain_inward(chain, cut.chain, group, k) for k in range(len(group))]
        assert cut.inward == pytest.approx(want, rel=1e-9)
        assert cut.outward == pytest.approx(plain_outward(chain, group), rel=1e-9)
        assert cut.charge == pytest.approx(sum(want) + cut.outward)
        # The inputs of the chain alone are long-run averages, so its marginals are those of the whole chain.
        assert cut.chain.marginals() == pytest.approx(chain.marginals()[list(group)], rel=1e-9)


def test_groups_that_nothing_crosses_cost_nothing() -> None:
    chain = csdp.CoupledChain(np.kron(np.eye(2), [[0.5, 0.5], [0.2, 0.8]]), [[0.7, 0.3], [0.1, 0.9]])
    for cut in cuts(chain, ((0, 1), (2, 3))):
        assert cut.charge == 0.0
        assert cut.chain.kernel() == pytest.approx(chain.subchain(cut.members).kernel(), rel=1e-12)


def test_a_move_that_only_the_outside_allows_tells_without_bound() -> None:
    stay = np.eye(2)
    chain = csdp.CoupledChain(
        {(0, 0): 0.9, (0, 1): 0.1, (1, 1): 1.0}, {(0, 0): stay, (0, 1): stay, (1, 1): [[0.5] * 2] * 2}
    )
    follows, followed = cuts(chain, ((0,), (1,)))
    assert follows.inward.tolist() == [math.inf]
    assert follows.outward == 0.0
    assert followed.inward.tolist() == [0.0]
    assert followed.outward == math.inf
    # A state that nobody ever reaches says nothing.
    never = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]])
    assert [cut.charge for cut in cuts(never, ((0,), (1,)))] == [0.0, 0.0]
