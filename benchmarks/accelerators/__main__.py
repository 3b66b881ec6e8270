"""The command line: `python -m benchmarks.accelerators`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.accelerators.compiling import compile_for, get_compile_device
from benchmarks.accelerators.measuring import compute_digests, measure
from benchmarks.accelerators.programs import ENVIRONMENT_PROGRAMS, PROGRAMS
from benchmarks.machine import git_commit
from benchmarks.results_file import put_record
from jaxlake.command_line.arguments import number

_DESCRIPTION = """\
Run the lake's programs on this machine's device, or compile them for a TPU without one.

--measure prints the rate of each program and, on GPUs, the kernels of a call; the JSON file also
holds digests of all answers, which --compare compares with those of this machine. --compile needs
jax[tpu]; `make test-tpu` installs it in .venv-tpu.

exit status: 0 all programs ran or compiled, 1 one failed or has other answers, 2 wrong use
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or compile the programs; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerators",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--measure", action="store_true", help="run on this machine's device")
    mode.add_argument("--compile", metavar="TOPOLOGY", help="compile for a TPU, such as v5e:2x2")
    mode.add_argument("--compare", metavar="FILE", type=Path, help="run the programs of --measure")
    parser.add_argument("--boards", type=number(int, 1), default=1 << 16, help="boards of a call")
    parser.add_argument(
        "--environments", type=number(int, 1), default=1 << 14, help="environments of a step"
    )
    parser.add_argument("--only", nargs="*", default=[], help="parts of programs' names")
    parser.add_argument("--json", metavar="FILE", type=Path, help="put the results here, too")
    args = parser.parse_args(argv)
    for part in args.only:
        if not any(part in name for name in PROGRAMS):
            parser.error(f"--only: got {part!r}, programs are {', '.join(PROGRAMS)}")
    if args.compare is not None:
        return compare_digests(args.compare, args.only)
    device = get_compile_device(args.compile) if args.compile else None
    has_failure = False
    for name, make_program in PROGRAMS.items():
        if args.only and not any(part in name for part in args.only):
            continue
        count = args.environments if name in ENVIRONMENT_PROGRAMS else args.boards
        record: dict[str, Any] = {
            "name": name,
            "size": count,
            "commit": git_commit(),
            "jax": jax.__version__,
        }
        try:
            program = make_program(count)
            record |= {"unit": program.unit, "units": program.units}
            record |= measure(program) if device is None else compile_for(program, device)
        except Exception as error:  # a program that a device rejects is a result
            record["error"] = f"{type(error).__name__}: {str(error)[:500]}"
            has_failure = True
        print(format_record(record), flush=True)
        if args.json is not None:
            put_record(args.json, "programs", record)
    return int(has_failure)


def compare_digests(path: Path, parts: Sequence[str]) -> int:
    """Run the programs of a `--measure` file here and compare every array with its digest."""
    status = 0
    records = json.loads(path.read_text(encoding="utf-8"))["programs"]
    entries = [record for record in records if "answers" in record]
    if parts:
        entries = [r for r in entries if any(part in r["name"] for part in parts)]
    if not entries:
        sys.exit(f"{path}: no answers of these programs")
    for record in entries:
        name = record["name"]
        program = PROGRAMS[name](record["size"])
        expected = record["answers"]
        digests = compute_digests(jax.jit(program.function)(*program.arguments))
        leaves = [
            key for key in sorted({*expected, *digests}) if expected.get(key) != digests.get(key)
        ]
        result = f"agree in all {len(digests)} arrays"
        if leaves:
            result = f"differ in {', '.join(leaves)}"
        print(f"{name}: {record['device']} and {jax.devices()[0].device_kind} {result}", flush=True)
        status |= bool(leaves)
    return status


def format_record(record: dict[str, Any]) -> str:
    """Return one result as a line of text."""
    if "error" in record:
        return f"{record['name']}: failed: {record['error']}"
    compiled = f"compiled in {record['compile_seconds']:.1f} s"
    if "seconds" not in record:
        memory = record["argument_bytes"] + record["temporary_bytes"]
        return (
            f"{record['name']}: {compiled}, {memory / 1e6:,.1f} MB, {record['launches']} launches"
        )
    kernels = f", {record['kernels']:,} kernels" if "kernels" in record else ""
    return (
        f"{record['name']}: {record['seconds'] * 1e3:,.2f} ms, {record['rate']:,.0f}"
        f" {record['unit']}s/s on {record['device']}{kernels}, {compiled}"
    )


if __name__ == "__main__":
    sys.exit(main())
