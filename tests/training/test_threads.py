"""A thread that never returns doesn't block the process's exit; thread priorities."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT
from training.threads import XLA_WORKERS, run_in_thread

ENDS = """
import sys, time
from concurrent.futures import Future
from training.threads import run_in_thread

run_in_thread(Future().result, "Never")
time.sleep(0.2)
sys.exit(2)
"""


def test_process_exits_despite_a_hanging_call():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", ENDS], env=environment, timeout=60, check=False)
    assert ended.returncode == 2


def test_thread_results_and_errors_are_returned():
    assert run_in_thread(lambda: 3, "Three").result(60) == 3
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0, "None").result(60)


BEHIND = """
import os, sys
from pathlib import Path
import jax, jax.numpy as jnp
from training.threads import lower_priority

jnp.ones((64, 64)).sum().block_until_ready()
own = os.getpriority(os.PRIO_PROCESS, 0)
found = [lower_priority(sys.argv[1], 3) for _ in range(2)]
tasks = Path("/proc/self/task").iterdir()
nice = {task: os.getpriority(os.PRIO_PROCESS, int(task.name)) - own for task in tasks}
names = {task: (task / "comm").read_text() for task in nice}
print(*found, sum(name.startswith(sys.argv[1]) for name in names.values()))
print({nice[task] for task in nice if names[task].startswith(sys.argv[1])})
print({nice[task] for task in nice if not names[task].startswith(sys.argv[1])})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_only_xla_threads_are_reniced():
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", BEHIND, XLA_WORKERS]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    priorities, behind_line, other_lines = result.stdout.splitlines()
    first, again, third = map(int, priorities.split())
    assert first == again == third > 0
    assert (behind_line, other_lines) == ("{3}", "{0}")
