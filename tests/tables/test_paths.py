"""A path is a path: whatever its characters, the file of this name is read, by every engine, or it is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from csdp import Plan, Sum
from csdp.errors import InputError
from csdp.panel import read_panel
from csdp.tables import EngineSource, open_table

from tables.tables import ALIKE, NAMES, chain, rows, states, write  # isort: skip

#: Names that some engine takes for a pattern, an address, an option, a partition or a file to leave out.
STRANGE = [
    "h[12]",
    "h*",
    "h?",
    "h{1,2}",
    "h\\*",
    "h\\",
    "-h",
    "_h",
    ".h",
    "h'1",
    'h"1',
    "h 1",
    " h ",
    "h\n1",
    "h%31",
    "h#1",
    "hé",
    "h.csv.gz",
    "value=1",
    "a:b",
    "s3:",
    "[!h]",
]
DECOYS = ["h1", "h2", "hx", "h", "a"]
PLAN = Plan(chain(), Sum(), 2, 1.0, bound="group")
TICKS = [5, 6, 7, 20]


def answers(path, engine, **more):
    with open_table(path, names=NAMES, values=ALIKE, engine=engine, **more) as table:
        return EngineSource(table, PLAN).answers(PLAN, TICKS)


@pytest.fixture(params=["memory", "duckdb", "spark"])
def ask(request):
    """The answers that an engine has for a file."""
    if request.param != "spark":
        return lambda path: answers(path, request.param)
    from csdp.tables.spark import SparkEngine

    session = request.getfixturevalue("spark")

    def read_answers(path):
        table = SparkEngine(path, names=NAMES, values=ALIKE, session=session)
        return EngineSource(table, PLAN).answers(PLAN, TICKS)

    read_answers.skips = True
    return read_answers


def make_rows(seed):
    cells = states(gaps=False, seed=seed)
    expected = np.array([[ALIKE[cells[tick - 2]].sum()] for tick in TICKS])
    return sorted(rows(cells, ALIKE)), expected


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_strange_name_is_read_as_it_is(ask, tmp_path, suffix):
    decoy, _ = make_rows(1)
    for name in DECOYS:
        write(tmp_path / f"{name}{suffix}", decoy)
    # On Spark, where each takes seconds, the names that it is known to take for something else.
    chosen = [name for name in STRANGE if not hasattr(ask, "skips") or name in {"h[12]", "h{1,2}", "h\\*", "_h", "a:b"}]
    for name in chosen:
        table, expected = make_rows(2)
        path = write(tmp_path / f"{name}{suffix}", table)
        try:
            assert np.array_equal(ask(path), expected), name
        except InputError:
            assert hasattr(ask, "skips"), name  # Spark leaves out _h and .h, and cannot open a:b: refused, not read
            assert name in {"_h", "a:b"}
        path.unlink()


@pytest.mark.parametrize("folder", ["value=1", "sequence=n1", "in[12]", "s3:", "file:"])
def test_names_of_folders_add_nothing(ask, tmp_path, folder, monkeypatch):
    table, expected = make_rows(2)
    (tmp_path / folder).mkdir()
    path = write(tmp_path / folder / "r.parquet", table)
    if hasattr(ask, "skips") and folder == "s3:":
        return  # as for the others; each takes seconds
    assert np.array_equal(ask(path), expected)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(ask(f"{folder}/r.parquet"), expected)


def test_a_pattern_that_is_no_file_is_no_file(ask, tmp_path):
    write(tmp_path / "h1.csv", make_rows(1)[0])
    for name in ("h[12].csv", "h*.csv", "h?.csv", f"file://{tmp_path}/h1.csv", "s3://bucket/h1.csv"):
        with pytest.raises(InputError, match="no such file"):
            ask(tmp_path / name if "://" not in name else name)


class TestFolders:
    def test_the_same_files_for_every_engine(self, ask, tmp_path):
        folder = tmp_path / "in[12] value=1"
        folder.mkdir()
        table, expected = make_rows(2)
        write(folder / "b[12].parquet", table[:50])
        write(folder / "a*.PARQUET", table[50:])
        (folder / "_SUCCESS").write_text("")
        (folder / ".mark").write_text("")
        assert np.array_equal(ask(folder), expected)

    @pytest.mark.parametrize("more", ["_part.parquet", ".part.parquet", "more.csv", "x=1/part.parquet", "_delta_log/"])
    def test_what_would_be_left_out_is_refused(self, ask, tmp_path, more):
        table, _ = make_rows(2)
        folder = tmp_path / "folder"
        folder.mkdir()
        write(folder / "a.parquet", table[:50])
        (folder / more).parent.mkdir(exist_ok=True)
        if more.endswith("/"):
            (folder / more).mkdir()
        else:
            write(folder / more, table[50:])
        with pytest.raises(InputError, match="Move the others elsewhere"):
            ask(folder)

    def test_files_of_other_columns_are_refused(self, ask, tmp_path):
        table, _ = make_rows(2)
        for column, kind in (("value", pa.float32()), ("state", pa.float64()), ("Value", pa.float64())):
            folder = tmp_path / f"{column} {kind}"
            folder.mkdir()
            write(folder / "a.parquet", table[:50])
            write(folder / "b.parquet", table[50:], value=column, kind=kind)
            with pytest.raises(InputError, match="other columns"):
                ask(folder)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("pair", [("n6", "N6"), ("time", "Time"), ("Straße", "STRASSE")])
def test_columns_that_differ_in_case_only_are_refused_by_all(ask, tmp_path, suffix, pair):
    path = tmp_path / f"wide{suffix}"
    cells = {name: [0.0] * 30 for name in dict.fromkeys((*NAMES, *pair))}
    table = pa.table({**cells, "time": list(range(30))})
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        from pyarrow import csv

        csv.write_csv(table, path)
    for read in (ask, lambda file: read_panel(file, names=NAMES, values=ALIKE)):
        with pytest.raises(InputError, match="differ in case only"):
            read(path)
    with pytest.raises(InputError, match="differ in case only"):
        read_panel(table, names=NAMES, values=ALIKE)


def test_cells_of_a_file_without_a_header_are_not_told(ask, tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("0,37.25,37.25\n1,38.75,39.5\n")
    for read, cells in itertools.product((ask, lambda file: read_panel(file, names=NAMES)), ("37.25", "38.75")):
        with pytest.raises(InputError) as caught:
            read(path)
        assert cells not in str(caught.value)
    path.write_text("0,37.25,36.5\n1,38.75,39.5\n")
    with pytest.raises(InputError, match="is there a header line") as caught:
        ask(path)
    assert "37.25" not in str(caught.value)


def test_a_scratch_folder_that_would_be_a_pattern_is_refused(tmp_path):
    from csdp.tables.duck import DuckDBEngine

    (tmp_path / "tmp[1]").mkdir()
    path = write(tmp_path / "t.csv", make_rows(1)[0])
    with pytest.raises(InputError, match="takes as a pattern"):
        DuckDBEngine(path, names=NAMES, values=ALIKE, folder=tmp_path / "tmp[1]")
    assert not list((tmp_path / "tmp[1]").iterdir())
