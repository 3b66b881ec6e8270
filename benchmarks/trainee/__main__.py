"""The command line: `python -m benchmarks.trainee`."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.machine import git_commit
from benchmarks.results_file import put_record, write_result
from benchmarks.trainee.beside import measure_beside_trl
from benchmarks.trainee.update import MODELS, Work, measure_update
from jaxlake.command_line.arguments import number

_DESCRIPTION = """\
Time GRPO updates on this machine: with Qwen3's shapes and random weights, or next to TRL's.

exit status: 0 measured, 1 an update failed, 2 wrong use
"""
_SECONDS = 1.0  # minimum duration of each repeat


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainee",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--measure", action="store_true", help="updates of --model, on a device")
    mode.add_argument("--beside-trl", action="store_true", help="an update of configs/scratch.yaml")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["4B"])
    parser.add_argument("--repeats", type=number(int, 1), default=7, help="of --beside-trl")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results here, too")
    args = parser.parse_args(argv)
    if args.beside_trl:
        result = measure_beside_trl(args.repeats, _SECONDS)
        for rollout_set, row in result["rollouts"].items():
            print(f"{rollout_set}: {json.dumps(row)}")
        if args.json is not None:
            write_result(args.json, result)
        return 0
    records = [_measure_model(name, args.json) for name in args.model]
    return int(any("error" in record for record in records))


def _measure_model(name: str, file: Path | None) -> dict[str, Any]:
    """Measure the update of one model; print the result and put it into the file."""
    work = Work()
    record: dict[str, Any] = {"name": name, "work": dataclasses.asdict(work)}
    record |= {"commit": git_commit(), "jax": jax.__version__}
    try:
        record |= measure_update(MODELS[name], work)
        print(
            f"{name}: {record['seconds']:.2f} s per update on {record['device']}, MFU"
            f" {record.get('mfu', float('nan')):.0%}, {record['peak_bytes'] / 1e9:.1f} GB,"
            f" compiled in {record['compile_seconds']:.0f} s",
            flush=True,
        )
    except Exception as error:  # an update that a device rejects is a result
        record["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        print(f"{name}: failed: {record['error']}", flush=True)
    if file is not None:
        put_record(file, "updates", record)
    return record


if __name__ == "__main__":
    sys.exit(main())
