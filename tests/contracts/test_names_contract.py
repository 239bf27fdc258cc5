"""Names of sequences, wherever data enters: columns in another order are put in order, other names are refused.

The chain is far from symmetric: `fast` forgets at once and is published young and with weight 1, `slow` hardly ever
moves and is published old and with weight 4. Whoever mixes them up publishes what was never certified.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import csdp
import oracle
from csdp import CoupledChain, Discretiser, Ledger, Linear, Panel, Plan, Publisher, Sum
from csdp.chain.files import save_model
from csdp.cli import app
from csdp.errors import InputError
from csdp.planning.plan_file import PlanFile
from csdp.publisher import PanelSource, Release
from csdp.report.series import truth_records
from csdp.stream import Clock, Runner
from csdp.tables import open_table

from service.parts import hand_in, released, serving, settings_of  # isort: skip

NAMES = ("fast", "slow")
TURNED = ("slow", "fast")
FAST, SLOW = [[0.7, 0.3], [0.3, 0.7]], [[0.99, 0.01], [0.01, 0.99]]
TICKS = 12
#: Hardly any noise: what was asked can be read off a release.
LOUD = 600.0


def chain(names=NAMES) -> CoupledChain:
    transitions = np.array([[FAST, FAST], [SLOW, SLOW]])
    return CoupledChain(np.eye(2), transitions, names=names)


def plan(epsilon_c=LOUD, names=NAMES) -> Plan:
    return Plan(chain(names), Linear([1.0, 4.0]), [1, 3], epsilon_c)


STATES = np.random.default_rng(5).integers(0, 2, (TICKS, 2))
#: fast one tick ago, and four times slow three ticks ago
EXPECTED = {t: float(STATES[t - 1, 0] + 4 * STATES[t - 3, 1]) for t in range(3, TICKS)}
COLUMNS = {"slow": STATES[:, 1], "fast": STATES[:, 0]}


def asked(releases) -> dict[int, float]:
    """What was asked, from outputs with hardly any noise."""
    found = {release.tick: round(release.values[0]) for release in releases}
    assert all(abs(release.values[0] - found[release.tick]) < 0.3 for release in releases)
    return {tick: float(value) for tick, value in found.items()}


def published(source, folder, given=None) -> dict[int, float]:
    with Publisher(given or plan(), dataset="d", ledger=folder / "ledger.db") as publisher:
        return asked(publisher.publish(source))


def test_the_break_certified_and_true() -> None:
    """Columns in another order were published with each other's ages: certified 0.1966, true 0.4896."""
    model = chain()
    made = Plan(model, Sum(), [1, 60], 0.5)
    kernel = oracle.joint_kernel(np.eye(2), np.array([[FAST, FAST], [SLOW, SLOW]]))
    answers = oracle.query_values("sum", 2, 2, [0.0, 1.0])

    def truth(ages):
        rows, law = oracle.aged_law(kernel, 2, 2, ages)
        return oracle.exact_leakage(rows, answers, 2, 2, 0.5, 1.0, "informed", law)

    assert made.certified.epsilon == pytest.approx(0.19661, abs=1e-4)
    assert truth([1, 60]) <= made.certified.epsilon
    assert truth([60, 1]) == pytest.approx(0.4896, abs=1e-4)
    states = model.simulate(80, seed=1)
    turned = Panel.from_states(states[:, ::-1], names=TURNED)
    ticks = range(60, 80)
    assert (PanelSource(turned, made).answers(made, ticks)[:, 0] == states[59:79, 0] + states[:20, 1]).all()


# ---- panels, frames, files -----------------------------------------------------------------------------------------


def wide_file(folder):
    path = folder / "wide.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("time", *TURNED), *((t, *STATES[t, ::-1]) for t in range(TICKS))])
    return path


def long_file(folder):
    path = folder / "long.csv"
    rows = [(t, name, int(COLUMNS[name][t])) for t in range(TICKS) for name in TURNED]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("time", "sequence", "value"), *rows])
    return path


def wide_table(folder):
    pq.write_table(pa.table(TIMED), folder / "wide.parquet")
    return folder / "wide.parquet"


def discretised(names=TURNED, edges=((0.5,), (0.5,))):
    return Discretiser.declared(names, edges=edges, bounds=(0, 1))


TIMED = {"time": np.arange(TICKS), **COLUMNS}
PANELS = {
    "states": lambda _: Panel.from_states(STATES[:, ::-1], names=TURNED),
    "polars": lambda _: csdp.read_panel(pl.DataFrame(TIMED)),
    "mapping": lambda _: csdp.read_panel(TIMED),
    "wide file": lambda folder: csdp.read_panel(wide_file(folder)),
    "long file": lambda folder: csdp.read_panel(long_file(folder)),
    "discretiser": lambda folder: csdp.read_panel(wide_file(folder), discretiser=discretised()),
    "without names": lambda _: Panel.from_states(STATES),
    "duckdb": lambda folder: open_table(wide_table(folder), plan()),
}


@pytest.mark.parametrize("entry", PANELS)
def test_another_order_is_put_in_order(entry, tmp_path) -> None:
    assert published(PANELS[entry](tmp_path), tmp_path) == EXPECTED


# ---- pushes, streams, the service ----------------------------------------------------------------------------------


def snapshots(kind):
    for t in range(TICKS):
        row = {"slow": int(STATES[t, 1]), "fast": int(STATES[t, 0])}
        yield t, {"mapping": row, "series": pd.Series(row), "list": STATES[t].tolist()}[kind]


@pytest.mark.parametrize("kind", ["mapping", "series", "list"])
def test_pushes(kind, tmp_path) -> None:
    with Publisher(plan(), dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        found = [publisher.push(row, time=t) for t, row in snapshots(kind)]
        assert asked(one for one in found if isinstance(one, Release)) == EXPECTED
        for wrong in ({"fast": 1, "hall": 0}, pd.Series({"fast": 1, "hall": 0})):
            with pytest.raises(InputError, match="unknown sequence 'hall'; the chain has"):
                publisher.push(wrong, time=TICKS)
        with pytest.raises(InputError, match="'fast' appears twice"):
            publisher.push(pd.Series([1, 0], index=["fast", "fast"]), time=TICKS)


@pytest.mark.parametrize("entry", ["readings", "mapping", "list", "list of other names", "discretiser"])
def test_streams(entry, tmp_path) -> None:
    names = {"list": TURNED, "list of other names": ("s-1", "s-2"), "discretiser": TURNED}.get(entry)
    states = discretised(edges=((0.25,), (0.75,))) if entry == "discretiser" else None
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        publisher = Publisher(plan(), dataset="d", ledger=ledger, on_refusal="skip", time_step=10, times="data")
        runner = Runner(publisher, ledger=ledger, clock=Clock(step=10, times="data"), names=names, discretiser=states)
        for t in range(TICKS):
            row = {"slow": int(STATES[t, 1]), "fast": int(STATES[t, 0])}
            if entry == "readings":
                for name, value in row.items():
                    runner.ingest(name, time=10 * t, value=value)
            elif entry == "list of other names":
                runner.ingest_snapshot(STATES[t].tolist(), time=10 * t)
            elif entry == "discretiser":  # 0.5 is above the edge of slow and below that of fast
                runner.ingest_snapshot([0.5 if row["slow"] else 0.0, 1.0 if row["fast"] else 0.5], time=10 * t)
            else:
                runner.ingest_snapshot(row if entry == "mapping" else list(row.values()), time=10 * t)
        runner.advance(10 * TICKS)
        assert asked(map(Release.of, ledger.published("d"))) == EXPECTED


def test_the_service_takes_lists_in_the_declared_order(tmp_path) -> None:
    PlanFile(csdp.Plan(chain(), "linear:1,4", [1, 3], 600.0)).save(tmp_path / "plan.json")
    spec = tmp_path / "ward-7.toml"
    spec.write_text(
        """
dataset = "ward-7"
ledger = "ledger.db"
plan = "plan.json"
sequences = ["slow", "fast"]
anyway = true
[clock]
step = 10
times = "data"
[source]
kind = "http"
[sink]
kind = "none"
"""
    )
    with serving(settings_of(tmp_path, specs=[spec])) as served:
        writer, reader = served.client("writer"), served.client("reader")
        for t in range(TICKS):
            values = [int(STATES[t, 1]), int(STATES[t, 0])]
            given = values if t % 2 else dict(zip(TURNED, values, strict=True))
            answer = writer.post("/api/datasets/ward-7/snapshots", json={"time": 10 * t + 3, "values": given})
            assert answer.status_code == 200
        hand_in(writer, [TICKS])
        found = {one["tick"]: float(round(one["values"][0])) for one in released(reader)}
        assert found == EXPECTED
        assert reader.get("/api/datasets").json()[0]["names"] == list(TURNED)
        status = reader.get("/api/datasets/ward-7/status").json()
        assert [(one["sequence"], one["planned"]) for one in status["age_of_information"]] == [("fast", 1), ("slow", 3)]


# ---- commands and what looks at data -------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--discretiser", "d.json")], ids=str)
def test_the_command_line(more, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(chain(), "chain.json")
    discretised().save("d.json")
    wide_file(tmp_path)
    command = ["plan", "chain.json", "--query", "linear:1,4", "--age", "1,3", "--epsilon-c", "600", "--about", "then"]
    assert CliRunner().invoke(app, [*command, *more, "-o", "plan.json"]).exit_code == 0
    place = ["--dataset", "d", "--ledger", "ledger.db", "-o", "out.json"]
    command = ["release", "wide.csv", "--plan", "plan.json", *place]
    done = CliRunner().invoke(app, command, standalone_mode=False)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "out.json").read_text())["releases"]
    assert {row["tick"]: float(round(row["values"][0])) for row in rows} == EXPECTED


def test_a_chain_without_names_is_positional(tmp_path) -> None:
    """It can only mean places: a named panel is taken as it stands, unless its names speak of x1, x2, ... too."""
    made = plan(names=None)
    assert published(Panel.from_states(STATES, names=("hall", "kitchen")), tmp_path, made) == EXPECTED
    assert (PanelSource(Panel.from_states(STATES[:, ::-1], names=("x2", "x1")), made).answers(made, [5])).tolist() == [
        [EXPECTED[5]]
    ]
    for names in (("x2", "hall"), ("x1", "hall"), ("hall", "x1")):
        with pytest.raises(InputError, match="given; the chain has x1, x2"):
            PanelSource(Panel.from_states(STATES, names=names), made)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("fast", "hall"),
            "panel: sequences fast, hall given; the chain has fast, slow. Read the readings with names=",
        ),
        (("hall", "kitchen"), "panel: sequences hall, kitchen given"),
        (("fast", "slow", "hall"), "panel: 3 sequences fast, slow, hall given; the chain has 2: fast, slow"),
    ],
)
def test_other_names_are_refused_before_anything_is_charged(names, words, tmp_path) -> None:
    panel = Panel.from_states(np.zeros((6, len(names)), dtype=int), names=names)
    with Publisher(plan(), dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        with pytest.raises(InputError, match=words):
            publisher.publish(panel)
        assert publisher.summary()["newest_tick"] is None


def test_names_that_appear_twice_are_refused(tmp_path) -> None:
    panel = Panel.from_states(STATES, names=NAMES)
    with pytest.raises(InputError, match="'fast' appears twice"):
        replace(panel, names=("fast", "fast"))
    with pytest.raises(InputError, match="'fast' appears twice"):
        csdp.Readings(("fast", "fast"), panel.ticks, panel.ticks, STATES.astype(float))
    path = tmp_path / "twice.csv"
    path.write_text("time,fast,fast\n0,1,0\n1,0,0\n")
    with pytest.raises(InputError, match=r"twice|same name"):
        csdp.read_panel(path)


def test_what_looks_at_data_takes_it_by_name() -> None:
    """The quality of a fit, and the private page of a report: the same numbers whatever the order of columns."""
    states = chain().simulate(600, seed=3)
    frames = [Panel.from_states(states, names=NAMES), Panel.from_states(states[:, ::-1], names=TURNED)]
    right, turned = (csdp.fit_quality(chain(), frame, public=True).chain for frame in frames)
    assert right == turned
    made = plan()
    assert truth_records(made, frames[0]) == truth_records(made, frames[1])
    with pytest.raises(InputError, match="data: sequences hall, slow given; the chain has fast, slow"):
        csdp.fit_quality(chain(), Panel.from_states(states, names=("hall", "slow")), public=True)
