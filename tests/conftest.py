"""Settings that must precede the import of JAX, also in processes that tests start."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Other processes can slow down any example, so durations say nothing about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# All processes and jitted functions share compiled programs.
_CACHE_DIR = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE_DIR))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Shells start background processes with SIGINT ignored, and child processes inherit this. Tests
# that interrupt a process would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiled programs use memory mappings. Linux allows 65,530 of them per process; beyond this limit
# XLA aborts the process.
MAX_MAPPINGS = 20_000


@pytest.fixture(autouse=True, scope="module")
def _free_programs() -> Iterator[None]:
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > MAX_MAPPINGS:
        import jax

        jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def _reset_output_width() -> None:
    """Remove the output width that an imported package may have set."""
    os.environ.pop("COLUMNS", None)
    if progress := sys.modules.get("training.run.progress"):
        progress.console._width = None  # read from COLUMNS when the module was imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only the K-th of N parts of the test files")


@pytest.hookimpl(trylast=True)  # after the markers have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select one part if requested; run the slow files that start vLLM first."""
    if part := config.getoption("--part"):
        part_number, num_parts = _parse_part(part)
        paths = set(sorted({item.path for item in items})[part_number - 1 :: num_parts])
        config.hook.pytest_deselected(items=[item for item in items if item.path not in paths])
        items[:] = [item for item in items if item.path in paths]
    vllm_files = {item.path for item in items if item.get_closest_marker("vllm")}
    items.sort(key=lambda item: item.path not in vllm_files)


def _parse_part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(f"--part must be K/N with K from 1 to N, got {text!r}.")
    return int(match[1]), int(match[2])
