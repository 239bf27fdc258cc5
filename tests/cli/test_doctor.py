from __future__ import annotations

import errno
import re
from importlib import metadata

import pytest

from command import run_command


@pytest.fixture
def without(monkeypatch):
    """Make packages look as if they were not installed."""
    real = metadata.version

    def hide(*names):
        def version(name):
            if name in names:
                raise metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(metadata, "version", version)

    return hide


class TestDoctor:
    def test_a_good_installation_and_no_path_of_this_machine(self):
        done = run_command("doctor")
        assert done.returncode == 0, done.stdout
        for words in ("Everything required works.", "SQLite", "numpy", "psycopg", "fastapi"):
            assert words in done.stdout
        assert not re.search(r"(^|[\s\"'(])/\w+", done.stdout + done.stderr)

    def test_a_required_package_that_is_missing(self, run, without):
        without("numba")
        output = run("doctor", code=2).stdout
        assert re.search(r"MISSING +│ numba", output)
        assert "1 required parts do not work." in output

    def test_an_optional_part_that_is_missing_is_no_failure(self, run, without):
        without("paho-mqtt", "fastapi")
        output = run("doctor").stdout
        assert re.search(r"absent +│ paho-mqtt +│ not installed \(streams from and to an MQTT broker", output)
        assert re.search(r"absent +│ fastapi .*csdp\[service\]", output)

    def test_loops_are_compiled_on_request(self, run):
        assert re.search(r"ok +│ loops +│ compiled in", run("doctor", "--compile").stdout)

    def test_a_disk_that_does_not_write(self, fails, monkeypatch):
        def full(*args, **options):
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp")

        monkeypatch.setattr("tempfile.TemporaryDirectory", full)
        assert fails("doctor").startswith("csdp: /tmp: No space left on device; free some space")
