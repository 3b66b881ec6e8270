"""A session on a lent GPU: `python -m benchmarks.accelerators.session FILE`, at most ten minutes.

The lake's programs, stepping inside `lax.scan` included, the comparison of their answers with a
CPU, the attention kernel, and the loop of session.yaml. Each is a process with a time limit, so
that a failure of one keeps the results of the others. The loop needs `train` and xgrammar.
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

LIMITS = {"programs": 170, "answers": 90, "attention": 60, "loop": 270}
"""Seconds for each step."""

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
    lake = [sys.executable, "-m", "benchmarks.accelerators"]
    options, boards = ["--only", *PROGRAMS], ["--boards", args.sizes[0]]
    boards += ["--environments", args.sizes[1], "--json", str(file)]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        loop = [sys.executable, "-m", "jaxlake", "run", "benchmarks/accelerators/session.yaml"]
        loop += ["--run-dir", str(run), *(["--set", *args.set] if args.set else [])]
        compare = [*lake, "--compare", str(file), *options]
        attention = [sys.executable, "-c", _ATTENTION, args.attention]
        steps = [
            _step(file, "programs", [*lake, "--measure", *options, *boards]),
            _step(file, "answers", compare, cpu=True),
            _step(file, "attention", attention),
            _step(file, "loop", loop, run=run),
        ]
    return int(not all(step["passed"] for step in steps))


def _step(
    file: Path,
    name: str,
    command: list[str],
    *,
    cpu: bool = False,
    run: Path | None = None,
) -> dict[str, Any]:
    """Run a command for at most `LIMITS[name]` seconds and put its results into the file."""
    limit = LIMITS[name]
    environment = os.environ | ({"JAX_PLATFORMS": "cpu"} if cpu else {})
    began = time.perf_counter()
    print(f"{name}:", flush=True)
    try:
        process = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=limit, stdout=subprocess.PIPE, text=True
        )
        output, passed = process.stdout, process.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, passed = f"{(error.stdout or b'').decode()}\nstopped after {limit} s", False
    print(output, flush=True)
    record: dict[str, Any] = {"name": name, "commit": git_commit(), "passed": passed}
    record |= {"seconds": time.perf_counter() - began}
    if name == "attention" and passed:
        record |= json.loads(output.splitlines()[-1])
    elif run is not None:
        record |= _results_of(run)
    else:
        record["lines"] = output.splitlines()
    put_record(file, "session", record)
    return record


def _results_of(run: Path) -> dict[str, Any]:
    """Return the rewards of updates and the valid rates of stages, as far as the run came."""
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
