"""deploy/csdp.service under systemd's own checks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from deployment.machine import DEPLOY, call, need  # isort: skip


@pytest.fixture
def unit(tmp_path):
    """The unit with a command that is there; its path, and a function that changes it."""
    need("systemd-analyze")
    text = (DEPLOY / "csdp.service").read_text()
    command = Path(sys.executable).with_name("csdp")
    assert text.count("/opt/csdp/bin/csdp") == 1

    def write(*changes):
        changed = text.replace("/opt/csdp/bin/csdp", str(command))
        for old, new in changes:
            assert old in changed
            changed = changed.replace(old, new)
        (tmp_path / "csdp.service").write_text(changed)
        return tmp_path / "csdp.service"

    return write


def test_systemd_finds_nothing_wrong(unit):
    done = call("systemd-analyze", "verify", "--man=no", unit())
    assert done.stderr == ""


def test_what_the_unit_may_do(unit):
    """Systemd's own score of exposure: 0 is nothing, 10 everything. A unit without its restrictions has 9 and more."""

    def exposure(path):
        told = call("systemd-analyze", "security", "--offline=true", "--no-pager", path).stdout
        return float(re.search(r"Overall exposure level for csdp\.service: ([\d.]+)", told)[1])

    assert exposure(unit()) <= 1.5
    path = unit()
    restrictions = r"^(Protect|Restrict|Private|System|Capability|NoNew|Lock|Dynamic).*$"
    path.write_text(re.sub(restrictions, "", path.read_text(), flags=re.MULTILINE))
    assert exposure(path) > 6
