"""A thread that never returns doesn't block the process's exit; thread priorities."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT
from training.threads import XLA_WORKERS, run_in_thread

HANGING_SCRIPT = """
import sys, time
from concurrent.futures import Future
from training.threads import run_in_thread

run_in_thread(Future().result, "Never")
time.sleep(0.2)
sys.exit(2)
"""


def test_process_exits_despite_a_hanging_call():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HANGING_SCRIPT]
    result = subprocess.run(command, env=environment, timeout=60, check=False)
    assert result.returncode == 2


def test_thread_results_and_errors_are_returned():
    assert run_in_thread(lambda: 3, "Three").result(60) == 3
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0, "None").result(60)


PRIORITY_SCRIPT = """
import os, sys
from pathlib import Path
import jax, jax.numpy as jnp
from training.threads import lower_priority

jnp.ones((64, 64)).sum().block_until_ready()
process_priority = os.getpriority(os.PRIO_PROCESS, 0)
counts = [lower_priority(sys.argv[1], 3) for _ in range(2)]
tasks = Path("/proc/self/task").iterdir()
priorities = {task: os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks}
niceness = {task: priority - process_priority for task, priority in priorities.items()}
names = {task: (task / "comm").read_text() for task in niceness}
print(*counts, sum(name.startswith(sys.argv[1]) for name in names.values()))
print({niceness[task] for task in niceness if names[task].startswith(sys.argv[1])})
print({niceness[task] for task in niceness if not names[task].startswith(sys.argv[1])})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_only_xla_threads_are_reniced():
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PRIORITY_SCRIPT, XLA_WORKERS]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    counts, worker_line, other_lines = result.stdout.splitlines()
    first_count, second_count, num_workers = map(int, counts.split())
    assert first_count == second_count == num_workers > 0
    assert (worker_line, other_lines) == ("{3}", "{0}")
