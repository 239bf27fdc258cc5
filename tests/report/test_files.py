from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from csdp import files as scratch
from csdp.publisher import Release, Skipped
from csdp.report.series import Series, write_series


class TestSeriesFiles:
    def series(self, **changes):
        release = Release(7, (0.25, 1.5), (0.5, 1.0), (0.1, 0.2), (1, 3), 0, math.inf, model="declared")
        return Series(("a", "b"), {7: 700, 8: 800}, (replace(release, **changes),), (Skipped(8, "too late"),))

    @pytest.mark.parametrize("kind", ["csv", "json"])
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
