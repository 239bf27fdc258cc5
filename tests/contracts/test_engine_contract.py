"""One suite over memory, DuckDB and Spark: answers equal to the last bit, the same noise from the same key."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from csdp import (
    Count,
    CoupledChain,
    Custom,
    Histogram,
    Identity,
    Ledger,
    Linear,
    Max,
    Mean,
    Min,
    Plan,
    Publisher,
    Sum,
    fran,
)
from csdp.errors import CsdpError, InputError, TooLargeError
from csdp.groups import PerGroup
from csdp.publisher import AgedSource, DrawingSource
from csdp.tables import EngineSource, open_table

from tables.tables import ALIKE, NAMES, OWN, TICKS, chain, rows, states, write  # isort: skip

PER_GROUP = PerGroup(Histogram(), ((5, 0), (1, 2, 3, 4), (6,)))
QUERIES = [
    Mean(),
    Sum(),
    Max(),
    Min(),
    Count(1),
    Histogram(),
    Linear([0.3, -1.7, 2.0, 0.001, 5.0, -0.2, 1.0]),
    Identity(),
    Custom(lambda v: v.max() - v.min(), sensitivity=40.0),
    PerGroup(Sum(), ((0, 3), (1, 2, 6), (4, 5))),
    PER_GROUP,
]
#: On Spark, where each takes seconds, without those that differ from another by the reader alone.
LAYOUTS = [
    (engine, layout)
    for engine in ("memory", "duckdb", "spark")
    for layout in ("long.csv", "states.parquet", "wide.csv", "wide.parquet", "folder", "integers")
    if engine != "spark" or layout not in {"wide.parquet", "folder"}
]
AGES = {"common": 2, "unequal": (1, 2, 4, 1, 2, 4, 1)}


@pytest.fixture(params=["memory", "duckdb", "spark"])
def opened(request):
    """Opens a table with the engine under test; closes it in the end."""
    tables = []

    def door(path, *, names=NAMES, values=ALIKE, **settings):
        if request.param == "spark":
            from csdp.tables.spark import SparkEngine

            running = request.getfixturevalue("spark")
            values = np.asarray(values, dtype=np.float64)
            tables.append(SparkEngine(path, names=names, values=values, session=running, **settings))
        else:
            tables.append(open_table(path, names=names, values=values, engine=request.param, **settings))
        return tables[-1]

    door.engine = request.param
    yield door
    for table in tables:
        table.close()


def expected(plan, found):
    """From the panel in memory, by the mechanism itself: availability, ticks, exact answers."""
    stale, reasons = fran.availability(plan, found < 0)
    available = [(t, int(stale[t]), reasons[t]) for t in range(len(found))]
    ticks = [t for t, _, reason in available if not reason]
    return available, ticks, fran.answers(plan, fran.fill(found), np.array(ticks)) if ticks else None


def cases(engine, gaps, own):
    """Query, ages, limit; on Spark, where each takes seconds, one of each kind of SQL."""
    if engine == "spark":
        chosen = {
            (False, False): [(Mean(), "common", 0), (Histogram(), "unequal", 0)],
            (False, True): [(Max(), "unequal", 0)],
            (True, False): [(Count(1), "unequal", 3), (PER_GROUP, "common", 3)],
            (True, True): [(QUERIES[6], "unequal", 3)],
        }[gaps, own]
        return [(query, AGES[ages], limit) for query, ages, limit in chosen]
    limits = (0, 3) if gaps else (0,)
    return [(query, ages, limit) for query in QUERIES for ages in AGES.values() for limit in limits]


@pytest.mark.parametrize("values", [ALIKE, OWN], ids=["alike", "own values"])
@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "gaps"])
def test_every_query_equal_to_the_last_bit(opened, tmp_path, values, gaps):
    found = states(gaps=gaps)
    table = opened(write(tmp_path / "long.parquet", rows(found, values)), values=values)
    for query, ages, limit in cases(opened.engine, gaps, values is OWN):
        plan = Plan(chain(values), query, ages, 1.0, stale_limit=limit, bound="group")
        source = EngineSource(table, plan)
        available, ticks, answers = expected(plan, found)
        assert list(source.availability(plan)) == available
        assert ticks, "a case without ticks shows nothing"
        got = source.answers(plan, ticks)
        assert got.dtype == np.float64
        assert np.array_equal(got, answers), (query.name, ages, limit)
        some = ticks[5:2:-1]  # any order, any part
        assert np.array_equal(source.answers(plan, some), answers[[ticks.index(t) for t in some]])


def test_ticks_times_and_step(opened, tmp_path):
    table = opened(write(tmp_path / "long.parquet", rows(states(gaps=True), ALIKE)))
    assert table.ticks.tolist() == list(range(TICKS))
    assert table.times.tolist() == [60 * t for t in range(TICKS)]
    assert table.step == 60


def test_a_wrong_age_is_seen(opened, tmp_path):
    """The suite can fail: answers of another age differ."""
    found = states(gaps=False)
    table = opened(write(tmp_path / "long.parquet", rows(found, ALIKE)))
    plans = [Plan(chain(), Sum(), age, 1.0, bound="group") for age in (2, 3)]
    one, other = (EngineSource(table, plan).answers(plan, [10, 11, 12]) for plan in plans)
    assert not np.array_equal(one, other)


class TestLayouts:
    @pytest.mark.parametrize(("opened", "layout"), LAYOUTS, indirect=["opened"])
    def test_all_layouts_hold_the_same(self, opened, tmp_path, layout):
        found, names = states(gaps=True), NAMES
        given = rows(found, ALIKE)
        if layout == "states.parquet":
            path = write(tmp_path / layout, rows(found, np.arange(3.0)), value="state", kind=pa.int8())
        elif layout == "long.csv":
            path = write(tmp_path / layout, given)
        elif layout == "integers":
            names = tuple(str(10 + i) for i in range(7))
            whole = [(t, int(name), value) for t, name, value in rows(found, ALIKE, names=names)]
            path = write(tmp_path / "integers.parquet", whole)
        elif layout == "folder":
            path = tmp_path / "folder"
            path.mkdir()
            write(path / "a.parquet", given[:50])
            write(path / "b.parquet", given[50:])
        else:
            path = tmp_path / layout
            cells = [[None if a < 0 else ALIKE[a] for a in column] for column in found.T]
            table = {"time": [60 * t for t in range(TICKS)], **dict(zip(NAMES, cells, strict=True))}
            if path.suffix == ".parquet":
                pq.write_table(pa.table(table), path)
            else:
                empty = itertools.cycle(("", "NA", "n/a", "NaN", "null", " None "))  # the same for every reader
                lines = zip(*table.values(), strict=True)
                text = [",".join(next(empty) if c is None else str(c) for c in row) for row in lines]
                path.write_text("\n".join([",".join(table), *text]) + "\n")
        limit = 0 if opened.engine == "spark" else 3  # one pass less, of a second or two
        plan = Plan(chain(names=names), Histogram(), 2, 1.0, stale_limit=limit, bound="group")
        source = EngineSource(opened(path, names=names), plan)
        available, ticks, answers = expected(plan, found)
        assert list(source.availability(plan)) == available
        assert np.array_equal(source.answers(plan, ticks), answers)

    def test_timestamps(self, opened, tmp_path):
        found = states(gaps=False)
        stamped = [(np.datetime64("2025-03-01T00:00:00") + t, name, v) for t, name, v in rows(found, ALIKE)]
        table = opened(write(tmp_path / "long.parquet", [(t.item(), n, v) for t, n, v in stamped]))
        assert table.step == 60
        assert str(table.times[1]) == "2025-03-01T00:01:00"

    def test_clamping(self, opened, tmp_path):
        given = [(t, name, v + 0.2) for t, name, v in rows(states(gaps=False), ALIKE)]
        plan = Plan(chain(), Sum(), 2, 1.0, bound="group")
        path = write(tmp_path / "long.parquet", given)
        table = opened(path, outside="clamp")
        _, ticks, answers = expected(plan, states(gaps=False))
        assert np.array_equal(EngineSource(table, plan).answers(plan, ticks), answers)
        with pytest.raises(InputError, match="declared values"):
            EngineSource(opened(path), plan)


class TestNoise:
    def test_the_same_key_gives_the_same_noise_everywhere(self, opened, tmp_path):
        found = states(gaps=True)
        plan = Plan(chain(OWN), Identity(), AGES["unequal"], 0.7, stale_limit=3, bound="group")
        source = EngineSource(opened(write(tmp_path / "long.parquet", rows(found, OWN)), values=OWN), plan)
        assert isinstance(source, AgedSource)
        assert isinstance(source, DrawingSource)
        assert source.draws(plan)
        _, ticks, answers = expected(plan, found)
        keys = {tick: bytes([tick]) * 32 for tick in ticks[:6]}
        noised = source.noisy_answers(plan, keys)
        from csdp.noise import indexed_noise

        for row, (tick, key) in enumerate(keys.items()):
            noise = indexed_noise(plan.scale, np.arange(7), key) * plan.step
            assert np.array_equal(noised[row], answers[ticks.index(tick)] + noise)
        # Run again in another order, and with another key for the first tick.
        again = source.noisy_answers(plan, dict(reversed((keys | {ticks[0]: b"k" * 32}).items())))[::-1]
        assert np.array_equal(again[1:], noised[1:])
        assert not np.array_equal(again[0], noised[0])

    def test_through_the_gate_once(self, opened, tmp_path):
        found = states(gaps=True)
        plan = Plan(chain(), Identity(), 2, 1.0, stale_limit=3, bound="group")
        source = EngineSource(opened(write(tmp_path / "long.parquet", rows(found, ALIKE))), plan)
        seen = []
        plain = source.noisy_answers
        source.noisy_answers = lambda plan, keys: (seen.append(dict(keys)), plain(plan, keys))[1]
        with Ledger.open(tmp_path / "ledger.db") as book, Publisher(plan, dataset="d", ledger=book) as publisher:
            first = publisher.publish(source)
            again = publisher.publish(source)
            assert first.releases == again.releases
            assert book.summary("d").reserved == len(first) == book.summary("d").committed
        assert len(seen) == 1  # nothing is drawn for what was published
        keys = [key for call in seen for key in call.values()]
        assert len(set(keys)) == len(keys) == len(first)
        [raw] = {len(r.values) for r in first}
        assert raw == 7
        ledger = (tmp_path / "ledger.db").read_bytes()
        assert not any(key in ledger or key.hex().encode() in ledger for key in keys)


class TestPairs:
    def test_pair_counts(self, opened, tmp_path):
        found = states(gaps=True)
        table = opened(write(tmp_path / "long.parquet", rows(found, ALIKE)))
        edges = [(i, k) for i in range(7) for k in range(7)]
        got = table.pair_counts(edges)
        for e, (target, source) in enumerate(edges):
            for a in range(3):
                for b in range(3):
                    assert got[e, a, b] == ((found[:-1, source] == a) & (found[1:, target] == b)).sum()
        assert table.pair_counts(np.empty((0, 2), dtype=int)).shape == (0, 3, 3)

    @pytest.mark.parametrize("edges", [[(0, 7)], [(-1, 0)], [0, 1], [(0.5, 1.0)]])
    def test_bad_edges(self, opened, tmp_path, edges):
        table = opened(write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE)))
        with pytest.raises(InputError, match="edges"):
            table.pair_counts(edges)


def test_a_release_is_written(opened, tmp_path):
    plan = Plan(chain(), Identity(), 2, 1.0, bound="group")
    table = opened(write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE)))
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        batch = publisher.publish(EngineSource(table, plan))
    table.write(batch, tmp_path / "out.parquet", names=NAMES)
    back = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert back["value"] == [v for release in batch for v in release.values]
    assert back["output"][:7] == list(NAMES)
    assert back["time"][0] == 60 * back["tick"][0]
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(InputError, match="names given"):
        table.write(batch, tmp_path / "bad.parquet", names=NAMES[:2])
    assert not (tmp_path / "bad.parquet").exists()


BAD = {
    "two readings of": lambda given: [*given, given[0]],
    "unknown sequence 'attic'": lambda given: [*given, (0, "attic", 0.0)],
    "declared values": lambda given: [*given[1:], (given[0][0], given[0][1], 7.5)],
    "infinite": lambda given: [*given[1:], (given[0][0], given[0][1], float("inf"))],
    "grid": lambda given: [*given, (61, "n0", 0.0), (15, "n1", 0.0)],
    "must hold whole numbers or ISO": lambda given: [(None, *given[0][1:]), *given[1:]],
    "empty cells": lambda given: [*given[1:], (given[0][0], None, given[0][2])],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_are_refused_before_any_charge(opened, tmp_path, message):
    given = BAD[message](rows(states(gaps=False), ALIKE))
    plan = Plan(chain(), Mean(), 2, 1.0, bound="group")
    path = write(tmp_path / "bad.parquet", given)
    with pytest.raises(CsdpError, match=message) as caught:
        EngineSource(opened(path, step=60), plan)
    assert "7.5" not in str(caught.value).replace(str(tmp_path), "")


def test_a_repeated_reading_in_the_place_of_a_missing_one_is_seen(opened, tmp_path):
    """As many rows as sequences at every tick: only the weights can tell."""
    given = sorted(rows(states(gaps=False), ALIKE))
    swapped = [(t, "n1" if (t, name) == (600, "n0") else name, v) for t, name, v in given]
    with pytest.raises(InputError, match="two readings of 'n1'"):
        EngineSource(
            opened(write(tmp_path / "t.parquet", swapped), step=60), Plan(chain(), Mean(), 2, 1.0, bound="group")
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("time,sequence,value\n", "empty"),
        ("sequence,value\nn0,0\n", "no column 'time'"),
        ("time,n0\n1,0\n", "no column 'n1'"),
        ("time,sequence,value\n0,n0,word\n1,n0,0\n", "number"),
        ("time,sequence,value\n0,n0,secret,9\n1,n0,0\n", "cells|cannot read"),
    ],
)
def test_bad_csv(opened, tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        EngineSource(opened(path), Plan(chain(), Mean(), 2, 1.0, bound="group"))
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value)


NANOSECONDS = pa.timestamp("ns")
#: Names that some dialect takes for the end of a text, an escape, another column, or nothing.
STRANGE_NAMES = ('a"b', "it''s", "`c`", "d\\", "e,f", '\\"g', "null")
#: Cells of CSV files for the states 0, 0.5 and 2, and whether they are read; if not, every engine refuses them.
CELLS = {
    "quoted": (('"0"', '"0.5"', '" 2 "'), True),
    "spaces": (("\t0", "\u00a00.5", "2\u2003"), True),
    "signs": (("+0", "+.5", "2."), True),
    "not a number": (("0", "0.5", "-nan"), True),
    "letters": (("0d", "0.5f", "2"), False),
    "underscore": (("0", "0.5", "0_2"), False),
    "own quotes": (("0", "0.5", '"""2"""'), False),
    "apostrophes": (("'0'", "0.5", "2"), False),
}


def write_strange(path, found, *, cells=("0", "0.5", "2"), names=NAMES, times=None):
    """A long or wide table whose names and cells are written as given; a missing reading is an empty cell."""
    wide = path.stem.startswith("wide")
    times = [60 * t for t in range(TICKS)] if times is None else times
    known = [[None if a < 0 else a for a in row] for row in found.tolist()]
    if path.suffix == ".csv":
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        texts = [["" if a is None else cells[a] for a in row] for row in known]
        lines = (
            [",".join(["time", *quoted]), *(",".join([str(t), *row]) for t, row in zip(times, texts, strict=True))]
            if wide
            else ["time,sequence,value"]
            + [f"{t},{n},{c}" for t, row in zip(times, texts, strict=True) for n, c in zip(quoted, row, strict=True)]
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path
    columns = [[None if a is None else ALIKE[a] for a in column] for column in zip(*known, strict=True)]
    if wide:
        table = {"time": times, **dict(zip(names, columns, strict=True))}
    else:
        table = {
            "time": [t for t in times for _ in names],
            "sequence": list(names) * len(known),
            "value": [columns[i][t] for t in range(len(known)) for i in range(len(names))],
        }
    pq.write_table(pa.table(table), path)
    return path


def check_equal(table, found, names=NAMES):
    """The table holds these states."""
    plan = Plan(chain(names=names), Sum(), 2, 1.0, bound="group")
    source = EngineSource(table, plan)
    _, ticks, answers = expected(plan, found)
    assert np.array_equal(source.answers(plan, [int(table.ticks[0]) + tick for tick in ticks]), answers)


class TestStrangeTables:
    """What one engine reads, all read, or all refuse in words."""

    @pytest.mark.parametrize("file", ["long.csv", "wide.csv", "long.parquet", "wide.parquet"])
    def test_names_with_quotes(self, opened, tmp_path, file):
        found = states(gaps=True)
        path = write_strange(tmp_path / file, found, names=STRANGE_NAMES)
        check_equal(opened(path, names=STRANGE_NAMES), found, STRANGE_NAMES)

    @pytest.mark.parametrize("file", ["long.csv", "long.parquet"])
    def test_spaces_around_names_and_line_breaks_in_them(self, opened, tmp_path, file):
        found, names = states(gaps=False), ("a\nb", *NAMES[1:])
        path = write_strange(tmp_path / file, found, names=("a\nb", " n1", "n2\t", "\u00a0n3 ", *NAMES[4:]))
        check_equal(opened(path, names=names), found, names)

    def test_a_line_break_in_the_header_is_refused(self, opened, tmp_path):
        names = ("a\nb", *NAMES[1:])
        path = write_strange(tmp_path / "wide.csv", states(gaps=False), names=names)
        with pytest.raises(InputError, match="the name of a column has a line break"):
            opened(path, names=names)

    @pytest.mark.parametrize("kind", CELLS)
    def test_cells(self, opened, tmp_path, kind):
        found = states(gaps=False)
        cells, read = CELLS[kind]
        path = write_strange(tmp_path / "long.csv", found, cells=cells)
        if not read:
            with pytest.raises(InputError, match=r"readings are no numbers|is not a number"):
                check_equal(opened(path), found)
            return
        check_equal(opened(path), np.where(found == 2, -1, found) if kind == "not a number" else found)

    @pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
    def test_nanoseconds(self, opened, tmp_path, zone):
        found = states(gaps=True)
        seconds = 1_740_787_200 + 60 * np.arange(TICKS)
        times = pa.array(seconds * 10**9).cast(pa.timestamp("ns", zone))
        path = write_strange(tmp_path / "wide.parquet", found, times=times)
        assert pq.read_schema(path).field("time").type.unit == "ns"
        table = opened(path)
        assert table.step == 60
        assert str(table.times[1]) == "2025-03-01T00:01:00"
        check_equal(table, found)

    def test_fractions_of_nanoseconds_are_seen(self, opened, tmp_path):
        times = pa.array(10**9 * 60 * np.arange(TICKS) + np.arange(TICKS)).cast(NANOSECONDS)
        path = write_strange(tmp_path / "wide.parquet", states(gaps=False), times=times)
        with pytest.raises(InputError, match="fractions of a second"):
            check_equal(opened(path), states(gaps=False))

    def test_whole_numbers_without_a_sign(self, opened, tmp_path):
        times = pa.array(60 * np.arange(TICKS)).cast(pa.uint64())
        path = write_strange(tmp_path / "wide.parquet", states(gaps=False), times=times)
        check_equal(opened(path), states(gaps=False))

    def test_half_precision_is_read_or_refused(self, opened, tmp_path):
        path = write_strange(tmp_path / "wide.parquet", states(gaps=False))
        table = pq.read_table(path)
        halves = [
            pa.array(np.float16(table[name].to_numpy())) if name != "time" else table[name]
            for name in table.column_names
        ]
        pq.write_table(pa.table(halves, names=table.column_names), path)
        if opened.engine == "spark":
            with pytest.raises(InputError, match=r"a type that Spark does not know.*use another engine"):
                opened(path)
        else:
            check_equal(opened(path), states(gaps=False))

    def test_mixed_folders(self, opened, tmp_path):
        """Cells that may be empty in one file only: read. Times stored in two ways: refused by all."""
        found = states(gaps=False)
        table = pq.read_table(write_strange(tmp_path / "long.parquet", found))
        strict = pa.schema([pa.field(field.name, field.type, nullable=False) for field in table.schema])
        (tmp_path / "read").mkdir()
        pq.write_table(table.slice(0, 50).cast(strict), tmp_path / "read" / "a.parquet")
        pq.write_table(table.slice(50), tmp_path / "read" / "b.parquet")
        check_equal(opened(tmp_path / "read"), found)
        times = pa.array(np.asarray(table["time"]) * 10**9).cast(NANOSECONDS)
        table = table.set_column(0, "time", times)
        (tmp_path / "refused").mkdir()
        pq.write_table(table.slice(0, 50), tmp_path / "refused" / "a.parquet", use_deprecated_int96_timestamps=True)
        pq.write_table(table.slice(50), tmp_path / "refused" / "b.parquet")
        with pytest.raises(InputError, match="write all files of a folder alike"):
            opened(tmp_path / "refused")


def test_sums_beyond_exact_floats_are_refused():
    """Weights of 20 binary digits on values of 21, of 30,000 sequences: more than the 53 digits of a float."""
    from scipy.sparse import eye_array

    size = 30_000
    fine = CoupledChain(eye_array(size, format="csr"), [[0.7, 0.3], [0.3, 0.7]], values=[0.1, 0.7])
    with pytest.raises(TooLargeError, match="not exact"):
        Plan(fine, Linear([0.7] * size), 2, 1.0, bound="group").check_exact()
    Plan(fine, Sum(), 2, 1.0, bound="group").check_exact()
    Plan(fine, Max(), 2, 1.0, bound="group").check_exact()


def test_another_chain_is_refused(opened, tmp_path):
    table = opened(write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE)))
    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 1.0)
    with pytest.raises(InputError, match=r"7 sequences n0, .* given; the chain has 1: x1"):
        EngineSource(table, plan)
