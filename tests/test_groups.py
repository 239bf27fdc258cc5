"""Queries of groups, by enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import csdp
import oracle as o
from csdp.errors import InputError
from csdp.groups import Groups, PerGroup

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
        (1, GROUPS, "int given; sum, count or histogram"),
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
    table = np.broadcast_to([0.0, 1.0], (5000, 2))
    for ask in (lambda: many.parts(table), lambda: many.blocks(table)):
        with pytest.raises(InputError, match=r"5,000 outputs of 5,000 sequences; use larger groups"):
            ask()
    parts, labels = asked.blocks(VALUES)
    assert parts.tolist() == csdp.Sum().parts(VALUES).tolist()
    assert labels.tolist() == [0, 1, 0]
