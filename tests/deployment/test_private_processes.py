"""What others on the machine see of the processes: no secret in a command line, no core dump, no timing of keys."""

from __future__ import annotations

import hmac
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from csdp.service import keys

from service.parts import WARD, write_spec  # isort: skip
from service.processes import Process  # isort: skip
from waiting import until  # isort: skip

if not Path("/proc/self/limits").exists():
    pytest.skip("processes are looked at in /proc", allow_module_level=True)


def core_limits(process):
    """Soft and hard limit of a process's core dumps."""
    lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    return next(line.split()[4:6] for line in lines if line.startswith("Max core file size"))


def test_a_stream_leaves_no_core_dump(tmp_path):
    """Also if core dumps are allowed where it starts."""
    spec = write_spec(tmp_path)
    spec.write_text(spec.read_text().replace('kind = "http"', 'kind = "stdin"'))
    unheard = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = f'ulimit -S -c unlimited; exec "{sys.executable}" -m csdp stream --spec "{spec}"'
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, **unheard) as process:
        until(lambda: (tmp_path / "ledger.db").exists() or process.poll() is not None)  # made after the limit is set
        assert core_limits(process) == ["0", "0"]


def test_a_service_shows_no_secret_and_leaves_no_core_dump(tmp_path):
    service = Process(tmp_path, [write_spec(tmp_path)])
    try:
        service.start()
        process = psutil.Process(service.process.pid)
        assert core_limits(process) == ["0", "0"]
        for place in ("cmdline", "environ"):
            shown = Path(f"/proc/{process.pid}/{place}").read_bytes()
            assert not any(text.encode() in shown for text in service.access.texts.values())
    finally:
        service.close()


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Whatever is given, hashes of the same length are compared once, by `hmac.compare_digest`."""
    seen, constant_time = [], hmac.compare_digest

    def compare(one, other):
        seen.append((len(one), len(other)))
        return constant_time(one, other)

    monkeypatch.setattr(keys.hmac, "compare_digest", compare)
    key, text = keys.new_key("reader", [WARD])
    other, _ = keys.new_key("reader", [WARD])
    near = text[:-1] + ("A" if text[-1] != "A" else "B")
    for given, which, expected in (
        (text, key, True),
        (near, key, False),
        (text, other, False),
        (text, None, False),
        ("", key, False),
        ("csdp_", None, False),
        (text * 50, key, False),
    ):
        seen.clear()
        assert keys.matches(which, given) is expected
        assert seen == [(64, 64)]
