"""The command line: `python -m benchmarks.demo`."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accelerators.targets import environment_of

ROOT = Path(__file__).resolve().parents[2]

_DESCRIPTION = """\
Compile the programs that `make demo` runs on its device, at the shapes of configs/miniature.yaml.

Nothing is run. Where exactness is promised, products of float32 that a GPU would round to TF32, or
a TPU to bfloat16, are errors. `make accelerators` makes the environments with the compilers.

exit status: 0 all were compiled and are exact, 1 something was not, 2 wrong use
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", default="h100:1", help="one device: h100:1 (default), v5e:1x1")
    parser.add_argument("--only", nargs="*", default=[], help="programs with such names")
    parser.add_argument("--config", type=Path, default=ROOT / "configs/miniature.yaml")
    args = parser.parse_args(argv)
    try:
        environment = environment_of(args.target)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    python = ROOT / environment / "bin/python"
    if not python.exists():
        problem = f"{environment} is not there; `make accelerators` makes it"
        print(f"error: --target {args.target}: {problem}", file=sys.stderr)
        return 2
    print("| program | compiled in | temporaries | products | not exact |")
    print("| --- " * 5 + "|", flush=True)
    wrong = 0
    for record in compiled(python, args.target, args.config, args.only):
        wrong += "error" in record or bool(record["inexact"])
        print(row(record), flush=True)
    return int(wrong > 0)


def compiled(
    python: Path, target: str, config: Path, only: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Compile in the environment of `python`; yield what the worker says of each program."""
    command = [str(python), "-m", "benchmarks.demo.worker", "--target", target]
    command += ["--config", str(config.absolute()), "--only", *only]
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | own, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            yield json.loads(line)
    if worker.returncode:
        yield {"program": "the rest", "error": f"the compiler ended with {worker.returncode}"}


def row(record: dict[str, Any]) -> str:
    """Write one program as a row of a Markdown table."""
    if "error" in record:
        return f"| {record['program']} | failed: {record['error']} |" + " |" * 3
    inexact = "; ".join(record["inexact"][:3]) or "none"
    return (
        f"| {record['program']} | {record['compile_seconds']:.1f} s | "
        f"{record['temporary_bytes'] / 1e6:,.1f} MB | {record['products']} | {inexact} |"
    )


if __name__ == "__main__":
    sys.exit(main())
