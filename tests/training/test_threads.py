"""A thread whose call never returns keeps no process from its end."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT
from training.threads import in_thread

ENDS = """
import sys, time
from concurrent.futures import Future, ThreadPoolExecutor
from training.threads import in_thread

never = Future()
call = {"ours": lambda: in_thread(never.result, "Never"),
        "executor": lambda: ThreadPoolExecutor(1).submit(never.result)}[sys.argv[1]]
call()
time.sleep(0.2)
print("ends", flush=True)
sys.exit(2)
"""


@pytest.mark.parametrize("whose", ["ours", "executor"])
def test_a_process_ends_beside_a_call_that_never_returns(whose: str):
    """That an executor's thread would keep it shows that the test can fail."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDS, whose],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ends\n"
        if whose == "ours":
            assert process.wait(60) == 2
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
            process.kill()


def test_results_and_errors_come_back():
    assert in_thread(lambda: 3, "Three").result(60) == 3
    with pytest.raises(ZeroDivisionError):
        in_thread(lambda: 1 // 0, "None").result(60)
