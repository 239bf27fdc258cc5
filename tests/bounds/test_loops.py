"""The loops that numba compiles: kept for the next process, and safe for several threads."""

import os
import subprocess
import sys

from csdp.bounds import loops


def test_loops_are_compiled_once_and_the_longest_for_all_cores():
    """What numba compiled is kept for the next process; without it every command would wait for seconds."""
    compiled = [loops.advance_two_states, loops.step_all_sets, loops.step_prefixes]
    for loop in (*compiled, loops.step_two_states_on_all_cores):
        assert type(loop._cache).__name__ == "FunctionCache"
    assert loops.step_two_states_on_all_cores.targetoptions["parallel"]


def test_two_threads_may_step_on_all_cores_at_once():
    """With the way of numba that is always there, and that ends the process where two threads use it at once."""
    program = """
import threading
import numpy as np
from csdp import CoupledChain
from csdp.bounds.influence import InfluenceRule
s = 3000
edges = {(i, (i + d) % s): w for i in range(s) for d, w in ((0, 0.8), (1, 0.2))}
rule = InfluenceRule(CoupledChain(edges, [[0.9, 0.1], [0.2, 0.8]], direction="backward"))
state = 0.1 * (1 - np.eye(2)) + np.zeros((s, 1, 1))
rule._step(state)
threads = [threading.Thread(target=lambda: [rule._step(state) for _ in range(300)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
