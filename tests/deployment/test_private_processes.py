"""What others on the machine see of the processes: no secret in a command line, no core dump, no timing of keys."""

from __future__ import annotations

import hmac
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from csdp.service import keys

from service.parts import WARD, write_spec  # isort: skip
from service.processes import Process  # isort: skip

pytestmark = pytest.mark.slow

if not Path("/proc/self/limits").exists():
    pytest.skip("processes are looked at in /proc", allow_module_level=True)


def core_limits(process):
    """Soft and hard limit of a process's core dumps."""
    lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    return next(line.split()[4:6] for line in lines if line.startswith("Max core file size"))


@contextmanager
def streaming(folder):
    """A stream of readings from its input, with core dumps allowed where it starts."""
    spec = write_spec(folder)
    spec.write_text(spec.read_text().replace('kind = "http"', 'kind = "stdin"'))
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -S -c unlimited; exec "{sys.executable}" -m csdp stream --spec "{spec}"'],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.communicate(timeout=300)


def test_a_stream_leaves_no_core_dump(tmp_path):
    with streaming(tmp_path) as process:
        deadline = time.monotonic() + 200
        while not (tmp_path / "ledger.db").exists():  # it is made after the limit is set
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
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
