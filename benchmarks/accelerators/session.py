"""Measurements on a GPU in ten minutes: `python -m benchmarks.accelerators.session FILE`.

The session runs the lake's programs, compares their answers with a CPU, measures the attention
kernel, and trains with session.yaml. Each step is a process with a time limit, so that a failure
keeps the results of the other steps. The training needs the extra `train` and xgrammar.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import ROOT, git_commit
from benchmarks.results_file import put_record

PROGRAMS = ("solve-2", "generate-2", "reset-4", "step-4", "scan-4")
"""Programs that compile within a minute on a GPU."""

TIMEOUTS = {"programs": 170, "answers": 90, "attention": 60, "loop": 270}
"""Time limit of each step, in seconds."""

_ATTENTION = """
import json, sys, jax
from benchmarks.trainee.attention import measure_attention
device = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
print(json.dumps(device | measure_attention(*json.loads(sys.argv[1]))))
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the session; return 0 if all steps passed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="JSON file for the results")
    parser.add_argument("--sizes", nargs=2, default=["65536", "16384"], help="boards, environments")
    parser.add_argument("--attention", default="[]", help="arguments of `measure_attention`")
    parser.add_argument("--set", nargs="*", default=[], help="values of session.yaml")
    args = parser.parse_args(argv)
    file = args.file.resolve()
    base_command = [sys.executable, "-m", "benchmarks.accelerators"]
    options, sizes = ["--only", *PROGRAMS], ["--boards", args.sizes[0]]
    sizes += ["--environments", args.sizes[1], "--json", str(file)]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        loop = [sys.executable, "-m", "jaxlake", "run", "benchmarks/accelerators/session.yaml"]
        loop += ["--run-dir", str(run), *(["--set", *args.set] if args.set else [])]
        compare = [*base_command, "--compare", str(file), *options]
        attention = [sys.executable, "-c", _ATTENTION, args.attention]
        steps = [
            _run_step(file, "programs", [*base_command, "--measure", *options, *sizes]),
            _run_step(file, "answers", compare, cpu=True),
            _run_step(file, "attention", attention),
            _run_step(file, "loop", loop, run=run),
        ]
    return int(not all(step["passed"] for step in steps))


def _run_step(
    file: Path, name: str, command: list[str], *, cpu: bool = False, run: Path | None = None
) -> dict[str, Any]:
    """Run a command for at most `TIMEOUTS[name]` seconds and put its results into the file."""
    timeout = TIMEOUTS[name]
    environment = os.environ | ({"JAX_PLATFORMS": "cpu"} if cpu else {})
    start = time.perf_counter()
    print(f"{name}:", flush=True)
    try:
        process = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=timeout, stdout=subprocess.PIPE, text=True
        )
        output, passed = process.stdout, process.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, passed = f"{(error.stdout or b'').decode()}\nstopped after {timeout} s", False
    print(output, flush=True)
    record: dict[str, Any] = {"name": name, "commit": git_commit(), "passed": passed}
    record |= {"seconds": time.perf_counter() - start}
    if name == "attention" and passed:
        record |= json.loads(output.splitlines()[-1])
    elif run is not None:
        record |= _read_results(run)
    else:
        record["lines"] = output.splitlines()
    put_record(file, "session", record)
    return record


def _read_results(run: Path) -> dict[str, Any]:
    """Return the rewards of the updates and the valid rates of the stages that were written."""
    from training.run.directory import RunDirectory

    directory = RunDirectory(run)
    stages = [number for number in directory.stage_numbers() if number > 0]
    answers = [directory.stage(number).episodes.read() for number in stages]
    return {
        "rewards": [update.reward_mean for update in directory.updates()],
        "valid_rates": [
            sum(answer.valid for answer in rows) / len(rows) for rows in answers if rows
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
