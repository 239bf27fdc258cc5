"""The bench at its smallest size: every section runs once, in one command, and leaves a table and JSON."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import SECTIONS, main
from bench.record import ratio_record, scaled_size, table
from bench.service import Snapshots

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_section_at_the_smallest_size(tmp_path):
    """Peers are left out: their environments are made from the network."""
    command = [sys.executable, "-m", "bench", *SECTIONS, "--scale", "0.0001", "--out", str(tmp_path)]
    environment = os.environ | {"CSDP_BENCH_NO_PEERS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "all.json").read_text())["sections"]
    assert tuple(results) == tuple(SECTIONS)
    for section, records in results.items():
        assert records == json.loads((tmp_path / f"{section}.json").read_text())
        ratios = [record["ratio"] for record in records if "ratio" in record]
        assert ratios, section
        assert all(0 < ratio < math.inf for ratio in ratios)
        assert f"\n{section} " in done.stdout


@pytest.mark.parametrize("arguments", [["bread"], ["--scale", "0"], ["--scale", "2"]])
def test_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "given" in capsys.readouterr().err


def test_the_table_tells_whether_a_target_is_kept():
    results = {
        "a": [ratio_record("one", "limit", 3.0, 1.0, target=2.0), ratio_record("two", "limit", 1.0, 1.0, target=2.0)],
        "b": [{"case": "no ratio", "seconds": 1.0}],
    }
    lines = table(results).splitlines()
    assert [line.split() for line in lines[1:]] == [["a", "one", "limit", "3", "2", "NO"],
                                                    ["a", "two", "limit", "1", "2", "yes"]]  # fmt: skip
    assert (scaled_size(1000, 0.01, 50), scaled_size(1000, 0.5, 50), scaled_size(1000, 3.0, 50)) == (50, 500, 1000)


def test_snapshots_of_the_service_never_end():
    """A fast machine must not run out of them: each is made when it is taken, with the next time."""
    snapshots = Snapshots(3)
    one, two = snapshots.take(1), snapshots.take(2).split(b"\n")
    told = [json.loads(text) for text in (one, *two)]
    assert [message["time"] for message in told] == [1_000_000, 1_000_001, 1_000_002]
    assert all(len(message["values"]) == 3 for message in told)
    for _ in range(100):
        last = snapshots.take(1000)
    assert json.loads(last.split(b"\n")[-1])["time"] == 1_100_002
