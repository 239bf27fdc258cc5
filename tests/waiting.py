"""Wait for what another thread or process does."""

import time


def until(condition, seconds=300, *, told=lambda: ""):
    """Ask again and again until a condition holds; after so many seconds fail with what `told()` says."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
