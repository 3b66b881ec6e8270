"""Settings that must precede the import of JAX, also in processes that tests start."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Other processes may slow down any example, so its duration is not a property of the code.
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

# A compiled program takes some mappings of memory, of which Linux allows a process 65,530. Beyond
# these XLA can't compile any more and ends the process.
MOST_MAPPINGS = 20_000


@pytest.fixture(autouse=True, scope="module")
def _programs_are_freed() -> Iterator[None]:
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > MOST_MAPPINGS:
        import jax

        jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def _reset_output_width() -> None:
    """Let output be as wide as it likes, whatever an imported package left in the environment."""
    os.environ.pop("COLUMNS", None)
    if progress := sys.modules.get("training.run.progress"):
        progress.console._width = None  # read from COLUMNS when the module was imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only the K-th of N parts of the test files")


@pytest.hookimpl(trylast=True)  # after the markers have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part, if asked; put the files that start vLLM first: they take long."""
    if part := config.getoption("--part"):
        number, parts = _part(part)
        selected = set(sorted({item.path for item in items})[number - 1 :: parts])
        config.hook.pytest_deselected(items=[item for item in items if item.path not in selected])
        items[:] = [item for item in items if item.path in selected]
    long = {item.path for item in items if item.get_closest_marker("vllm")}
    items.sort(key=lambda item: item.path not in long)


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(f"--part: got {text!r}, allowed is K/N with K from 1 to N")
    return int(match[1]), int(match[2])
