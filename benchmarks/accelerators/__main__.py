"""The command line of the forecasts: `python -m benchmarks.accelerators`."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.accelerators.measuring import OnDevice, device_numbers, require_device
from benchmarks.accelerators.programs import OF_BOARDS, OF_ENVIRONMENTS, makers
from benchmarks.accelerators.samples import COUNTED_BOARDS
from benchmarks.accelerators.tables import (
    header,
    row,
    sentence_of,
    table_of_measurements,
    table_of_shares,
)
from benchmarks.accelerators.targets import MACHINES, Machine, environment_of, machine_of
from benchmarks.accelerators.totals import forecast, totals
from benchmarks.lake.benchmark import git_commit
from jaxlake.command_line.arguments import number
from jaxlake.files import write_text_whole

ROOT = Path(__file__).resolve().parents[2]

_DESCRIPTION = """\
Compile every public program of the lake for machines that aren't there, and forecast its speed.

Compilers for GPUs and TPUs run without a device. They say exactly what is compiled, how much memory
it takes and which kernels each loop launches, but nothing of time. The rounds of the loops are
counted in a run of the same program on this CPU, on fewer boards where that takes long.
`make accelerators` makes the environments with the compilers. docs/forecasts.md says what the
numbers mean.

With --again nothing is compiled or counted: what the JSON file has of each program is added up and
forecast anew, which takes no time.

With --measure, on a machine whose JAX computes on such a device, the programs run there instead,
and their times stand beside the forecasts that the JSON file holds.

exit status: 0 all was compiled, 1 something was not, 2 wrong use, or no such device to measure on
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerators",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    targets = ", ".join(f"{kind}:SHAPE" for kind in MACHINES)
    parser.add_argument("--target", action="append", required=True, help=f"one of {targets}")
    parser.add_argument("--boards", type=number(int, 1), default=1 << 16, help="boards of a call")
    parser.add_argument(
        "--environments", type=number(int, 1), default=1 << 14, help="environments of a step"
    )
    parser.add_argument(
        "--counted-boards",
        type=number(int, 1),
        default=COUNTED_BOARDS,
        help="boards of the smaller call in which rounds of solve and generate are counted, by"
        " default %(default)s",
    )
    parser.add_argument("--only", nargs="*", default=[], help="programs whose names hold one")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--compile-only", action="store_true", help="don't count rounds on the CPU")
    kind.add_argument(
        "--measure", action="store_true", help="run the programs on this machine's device"
    )
    kind.add_argument(
        "--again", action="store_true", help="add up anew what --json has, and compile nothing"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        help="write the result here too; other programs in it stay, if their calls have this size",
    )
    parser.add_argument("--hlo", metavar="DIR", type=Path, help="write what was compiled here")
    args = parser.parse_args(argv)
    result: dict[str, Any] = {
        "schema": 1,
        "boards": args.boards,
        "environments": args.environments,
        "targets": {},
    }
    try:
        for target in args.target:
            if args.measure:
                require_device(target)
            elif args.again:
                if args.only:
                    raise ValueError("--only: --again takes all programs of a file")
                _counted(args.json, result, target)
            else:
                _python_for(target)
        for part in args.only:
            names = [*OF_BOARDS, *OF_ENVIRONMENTS]
            if not any(part in name for name in names):
                raise ValueError(f"--only: got {part!r}, programs are {', '.join(names)}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for target in args.target:
        machine = machine_of(target)
        records: list[dict[str, Any]] = []
        result["targets"][target] = {"assumptions": _assumptions(machine), "programs": records}
        if args.measure:
            numbers = device_numbers()
            result["targets"][target]["measured"] = numbers
            print(sentence_of(numbers), flush=True)
        print("\n".join(header(target, measured=args.measure)), flush=True)
        for record in _made(target, args, result):
            if args.measure:
                record = held_record(args.json, result, target, record["program"]) | record
            elif "counted_boards" in record:
                record |= forecast(record, machine)
            records.append(record)
            print(row(record, measured=args.measure), flush=True)
            if args.json is not None and not args.again:  # after each: some take minutes
                put_into(args.json, result)
        if args.again:
            put_into(args.json, result)
        if not (args.measure or args.compile_only):
            print("\n".join(["", *table_of_shares(records, machine)]), flush=True)
        if beside := table_of_measurements(records):
            print("\n".join(["", *beside]), flush=True)
    made = [one for part in result["targets"].values() for one in part["programs"]]
    if args.measure:
        made = [one["measured"] for one in made]
    return int(any("error" in one for one in made))


def _made(
    target: str, args: argparse.Namespace, result: dict[str, Any]
) -> Iterable[dict[str, Any]]:
    """Yield what there is to say of each program, not yet forecast."""
    if args.measure:
        return _measured(args)
    return _counted(args.json, result, target) if args.again else _records(target, args)


def _counted(path: Path | None, result: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """Read what a file has of a target's programs, and add it up anew.

    Raises:
        ValueError: the file has nothing of the target, or of calls of this size, or operations of
            kernels were counted with other costs.
    """
    held = _held_targets(path, result).get(target)
    if held is None:
        raise ValueError(f"--again: --json has no calls of this size for {target}")
    costs = vars(machine_of(target).costs)
    if any(held["assumptions"][name] != cost for name, cost in costs.items()):
        raise ValueError(f"--again: operations of {target} were counted with other costs")
    made: list[dict[str, Any]] = held["programs"]
    return [one | (totals(one["tree"]) if "counted_boards" in one else {}) for one in made]


def _assumptions(machine: Machine) -> dict[str, float]:
    """Return the numbers that a forecast rests on."""
    assumed = {"launch": machine.launch, "condition": machine.condition}
    assumed |= {"bandwidth": machine.bandwidth, "operation": machine.operation}
    return assumed | {"programs": machine.programs, **vars(machine.costs)}


def put_into(path: Path, result: dict[str, Any]) -> None:
    """Write results to a file; those that it has of other targets and programs stay there.

    Of a target, programs stay if they were forecast by the same assumptions, and for a call of the
    same size. What was measured of a program stays beside a new forecast of it.
    """
    targets = _held_targets(path, result)
    for target, new in result["targets"].items():
        old = targets.get(target, {"programs": []})
        measured = {one["program"]: one["measured"] for one in old["programs"] if "measured" in one}
        done = {
            name: {"measured": measured[name], **record} if name in measured else record
            for name, record in ((record["program"], record) for record in new["programs"])
        }
        same = old.get("assumptions") == new["assumptions"]
        kept = [one for one in old["programs"] if one["program"] not in done] if same else []
        order = {name: place for place, name in enumerate((*OF_BOARDS, *OF_ENVIRONMENTS))}
        kept = [one for one in kept if one["program"] in order]  # others were renamed since
        programs = sorted([*kept, *done.values()], key=lambda one: order.get(one["program"], 99))
        kept_numbers = {"measured": old["measured"]} if "measured" in old else {}
        targets[target] = {**kept_numbers, **new, "programs": programs}
    text = json.dumps({**result, "targets": targets}, indent=1)
    write_text_whole(path, text + "\n")


def held_record(
    path: Path | None, result: dict[str, Any], target: str, program: str
) -> dict[str, Any]:
    """Return a program's record in a file, of the same assumptions and size, or an empty one."""
    held = _held_targets(path, result).get(target)
    if held is None or held["assumptions"] != result["targets"][target]["assumptions"]:
        return {}
    return next((dict(one) for one in held["programs"] if one["program"] == program), {})


def _held_targets(path: Path | None, result: dict[str, Any]) -> dict[str, Any]:
    """Return the targets of a file whose calls have the size of this result's."""
    if path is None or not path.exists():
        return {}
    held = json.loads(path.read_text(encoding="utf-8"))
    same = all(held.get(name) == result[name] for name in ("schema", "boards", "environments"))
    return dict(held["targets"]) if same else {}


def _python_for(target: str) -> Path:
    folder = environment_of(target)
    python = ROOT / folder / "bin/python"
    if not python.exists():
        raise ValueError(f"--target {target}: {folder} is not there; `make accelerators` makes it")
    return python


def _records(target: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the worker of a target; yield what it says of each program."""
    if args.hlo is not None:
        args.hlo.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(_python_for(target)), "-m", "benchmarks.accelerators.worker"),
        *("--target", target, "--boards", str(args.boards)),
        *("--environments", str(args.environments), "--only", *args.only),
        *([] if args.compile_only else ["--counted-boards", str(args.counted_boards)]),
        *(["--hlo", str(args.hlo)] if args.hlo else []),
    ]
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | own, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            yield json.loads(line)
    if worker.returncode:
        yield {"program": "the rest", "error": f"the compiler ended with {worker.returncode}"}


def _measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the programs on this machine's device, and yield what each of them took."""
    source = {"commit": git_commit(), "jax": jax.__version__}
    for name, make in makers(args.boards, args.environments, args.only).items():
        record: dict[str, Any] = {"program": name}
        measured: dict[str, Any] = dict(source)
        try:
            program = make()
            record |= {"unit": program.unit, "units": program.units}
            measured |= OnDevice(program).measure()
        except Exception as error:  # what a device says of a program is a result
            measured["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        yield {**record, "measured": measured}


if __name__ == "__main__":
    sys.exit(main())
