from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from csdp import scratch
from csdp.errors import InputError
from csdp.publisher import Release, Skipped
from csdp.report.series import Series, write_series


class TestSeriesFiles:
    def series(self, **changes):
        release = Release(7, (0.25, 1.5), (0.5, 1.0), (0.1, 0.2), (1, 3), 0, math.inf, model="declared")
        return Series(("a", "b"), {7: 700, 8: 800}, (replace(release, **changes),), (Skipped(8, "too late"),))

    def test_columns(self):
        assert self.series().columns() == {
            "tick": [7], "time": [700], "value:a": [0.25], "value:b": [1.5], "estimate:a": [0.5], "estimate:b": [1.0],
            "standard_error:a": [0.1], "standard_error:b": [0.2], "low:a": [None], "low:b": [None], "high:a": [None],
            "high:b": [None], "about": ["now"], "ages": ["1,3"], "stale": [0], "epsilon_s": [math.inf],
            "model": ["declared"],
        }  # fmt: skip

    @pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
    def test_same_bytes_every_time_also_without_estimates(self, tmp_path, kind):
        for changes in ({}, {"estimate": (), "standard_error": ()}):
            for name in ("one", "two"):
                write_series(self.series(**changes), tmp_path / f"{name}.{kind}")
            assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
        assert len(list(tmp_path.iterdir())) == 2

    def test_strict_json(self, tmp_path):
        write_series(self.series(), tmp_path / "out.json")
        content = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
        assert content["releases"][0]["epsilon_s"] == "inf"
        assert content["skipped"] == [{"tick": 8, "time": 800, "reason": "too late"}]

    def test_many_ages_are_a_range(self):
        assert self.series(ages=tuple(range(1, 200))).columns()["ages"] == ["1..199"]

    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "out.csv"
        path.write_text("old")

        def fail():
            with scratch.replace_file(path) as file:
                file.write(b"new")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert path.read_text() == "old"
        assert [found.name for found in tmp_path.iterdir()] == ["out.csv"]

    def test_where_nothing_can_be_written(self, tmp_path):
        for path in (tmp_path, tmp_path / "none" / "out.csv"):
            with pytest.raises(InputError, match=r"a folder given|cannot be written"):
                scratch.ensure_writable(path)
