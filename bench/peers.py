"""Other libraries, each in its own environment, because they pin versions of csdp's or each other's dependencies.

The interpreter named by CSDP_BENCH_PYTHON_OPENDP (PYDP, DIFFPRIVLIB) if set, else a virtual environment made once under
bench/.peers. CSDP_BENCH_NO_PEERS=1 leaves them out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).parent / ".peers"
REQUIREMENTS = {
    "opendp": ["opendp==0.16.*"],
    "pydp": ["python-dp==1.1.*"],
    "diffprivlib": ["diffprivlib", "scikit-learn<1.9"],  # the newest does not import with a newer one
}

_TIMING = """
import statistics, time
def speed(draw, count, rounds=7):
    draw()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    print(count / statistics.median(times))
"""


def peer_speed(home: str, script: str) -> tuple[float | None, str]:
    """Run a peer's script, which calls `speed(work, count)`; return counts per second, or why it could not run."""
    if os.environ.get("CSDP_BENCH_NO_PEERS"):
        return None, "omitted by CSDP_BENCH_NO_PEERS"
    try:
        python = os.environ.get(f"CSDP_BENCH_PYTHON_{home.upper()}") or _environment(home)
        done = subprocess.run([python, "-c", _TIMING + script], check=True, capture_output=True, text=True, timeout=300)
        return float(done.stdout.splitlines()[-1]), ""
    except subprocess.CalledProcessError as error:
        return None, (error.stderr.strip().splitlines() or ["no message"])[-1]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return None, str(error)


def _environment(home: str) -> str:
    """Return the interpreter of a peer's environment, made where it is missing."""
    folder = PEERS / home
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        PEERS.mkdir(exist_ok=True)
        (PEERS / ".gitignore").write_text("*\n")
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[home]],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        (folder / ".ready").touch()
    return str(python)
