"""Settings that have to stand before JAX is imported, also in the processes that tests start."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is slow at any moment; how long an example takes says nothing about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# The same program is compiled once, however many processes and jitted functions ask for it.
_CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# A shell starts what it puts into the background with interrupts ignored, and every process that is
# started from there inherits this. Tests that interrupt a process would wait for it in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that start vLLM first: one worker alone would end with their minutes."""
    long = {item.path for item in items if item.get_closest_marker("vllm")}
    items.sort(key=lambda item: item.path not in long)
