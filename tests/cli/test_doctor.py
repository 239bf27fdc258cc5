from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def printed():
    """What `csdp doctor` prints here, as a table and as JSON."""
    environment = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}}
    return [
        subprocess.run(
            [sys.executable, "-m", "csdp", "doctor", "--format", form],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        for form in ("table", "json")
    ]


class TestDoctor:
    def test_a_good_installation(self, printed):
        assert printed[0].returncode == 0, printed[0].stdout
        assert "Everything required works." in printed[0].stdout
        assert "SQLite" in printed[0].stdout

    def test_json(self, printed):
        content = json.loads(printed[1].stdout)
        assert content["ok"]
        names = {check["name"]: check for check in content["checks"]}
        assert {"Python", "numpy", "ledger", "psycopg", "fastapi"} <= set(names)
        assert names["ledger"]["required"]
        assert not names["psycopg"]["required"]

    def test_no_path_of_this_machine_is_shown(self, printed):
        for done in printed:
            assert not re.search(r"(^|[\s\"'(])/\w+", done.stdout + done.stderr)

    def test_a_required_package_that_is_too_old_or_missing(self, run, monkeypatch):
        from importlib import metadata

        real = metadata.version

        def version(name):
            if name == "numba":
                raise metadata.PackageNotFoundError(name)
            return "1.26.4" if name == "numpy" else real(name)

        monkeypatch.setattr(metadata, "version", version)
        output = run("doctor", code=2).stdout
        assert "1.26.4; 2.1 or later is needed" in output
        assert "2 required parts do not work." in output

    def test_an_optional_part_that_is_missing_is_no_failure(self, run, monkeypatch):
        from importlib import metadata

        real = metadata.version

        def version(name):
            if name in {"paho-mqtt", "fastapi"}:
                raise metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(metadata, "version", version)
        content = json.loads(run("doctor", "--format", "json").stdout)
        absent = {check["name"]: check["hint"] for check in content["checks"] if check["state"] == "missing"}
        assert absent["paho-mqtt"] == "streams from and to an MQTT broker: pip install 'csdp[mqtt]'"
        assert "csdp[service]" in absent["fastapi"]

    def test_loops_are_compiled_on_request(self, run):
        content = json.loads(run("doctor", "--compile", "--format", "json").stdout)
        [loops] = [check for check in content["checks"] if check["name"] == "loops"]
        assert loops["state"] == "ok"
        assert loops["found"].startswith("compiled in")

    def test_a_disk_that_does_not_write(self, run, monkeypatch):
        def full(*args, **options):
            raise OSError(errno.ENOSPC, "No space left on device", "/a/path/of/this/machine")

        monkeypatch.setattr("tempfile.TemporaryDirectory", full)
        output = run("doctor", code=2).stdout
        assert "No space left on device" in output
        assert "/a/path" not in output
        assert "set TMPDIR" in output
