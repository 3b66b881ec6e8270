"""Compare a device's answers with this machine's, bit for bit.

python -m benchmarks.accelerators.answers --json benchmarks/results/h200.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from benchmarks.accelerators.measuring import digests
from benchmarks.accelerators.programs import PROGRAMS


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return the exit status: 0 all are the same, 1 some differ, 2 there is nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerators.answers",
        description="Run the programs of a file of --measure here and compare every array.",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, required=True, help="of --measure")
    parser.add_argument("--only", nargs="*", default=[], help="parts of programs' names")
    args = parser.parse_args(argv)
    try:
        records = json.loads(args.json.read_text(encoding="utf-8"))["programs"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        parser.error(f"--json: {args.json} is not a file of --measure ({error})")
    same = True
    compared = 0
    for record in records:
        name = record["name"]
        if "answers" not in record or (args.only and not any(part in name for part in args.only)):
            continue
        program = PROGRAMS[name](record["size"])
        own = digests(jax.jit(program.function)(*program.arguments))
        wrong = differing(record["answers"], own)
        result = f"differ in {', '.join(wrong)}" if wrong else f"agree in all {len(own)} arrays"
        print(f"{name}: {record['device']} and {jax.devices()[0].device_kind} {result}", flush=True)
        same &= not wrong
        compared += 1
    if not compared:
        parser.error(f"--json: {args.json} holds no answers of these programs")
    return int(not same)


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return the names of the arrays that differ or that only one of two results has."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


if __name__ == "__main__":
    sys.exit(main())
