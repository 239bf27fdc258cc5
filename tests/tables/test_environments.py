"""Tables published by an engine under a chain with environments: as from memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import csdp
from csdp import CoupledChain, EnvironmentChain, Mean, Panel, Plan, Publisher
from csdp.tables import open_table

KINDS = {
    "clock": {"cycle": (0, 1)},
    "hidden": {"switching": np.full((4, 4), 0.25)},
    "both": {"cycle": (0, 1), "switching": [[0.9, 0.1], [0.2, 0.8]]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_published_under_environments(tmp_path, kind):
    laws = ((0.3, 0.3), (0.1, 0.4), (0.2, 0.6), (0.5, 0.5))
    members = [CoupledChain(np.eye(2), [[1 - p, p], [q, 1 - q]], names=["a", "b"]) for p, q in laws]
    used = members[:2] if kind == "clock" else members
    chain = EnvironmentChain(used, **KINDS[kind])
    states = np.random.default_rng(1).integers(2, size=(8, 2))
    table = tmp_path / "readings.parquet"
    pq.write_table(pa.table({"time": np.arange(8), "a": states[:, 0], "b": states[:, 1]}), table)
    plan, present = Plan(chain, Mean(), 1, 0.4), []
    for name in ("memory", "duckdb"):
        with (
            open_table(table, plan) as readings,
            Publisher(plan, dataset="d", ledger=tmp_path / f"{name}.db") as publisher,
        ):
            source = readings if name == "duckdb" else Panel.from_states(states, names=["a", "b"])
            assert [release.tick for release in publisher.publish(source)] == list(range(1, 8))
            present.append(publisher.summary()["present"])
            assert csdp.replay(publisher.ledger, dataset="d").ok
    assert present[0] == present[1] > 0
