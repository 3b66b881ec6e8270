"""Compile programs for a target, and count the rounds of their loops in a run on this CPU.

`python -m benchmarks.accelerators` runs this in the environment whose compiler knows the target.
One line of JSON for each program goes to standard output.
"""

import argparse
import json
import os
import sys
import time
from functools import partial
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no device, so nothing to share

import jax

from benchmarks.accelerators import loops
from benchmarks.accelerators.hlo import Body, read_program
from benchmarks.accelerators.programs import OF_BOARDS, OF_ENVIRONMENTS, Program
from benchmarks.accelerators.targets import Machine, devices, machine_of


def main() -> int:
    """Answer for the programs that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--boards", type=int, required=True)
    parser.add_argument("--environments", type=int, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--run", action="store_true", help="count rounds, too")
    parser.add_argument("--hlo", help="a folder for the compiled programs' text")
    args = parser.parse_args()
    machine, device = machine_of(args.target), devices(args.target)[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    makers = {name: partial(make, args.boards) for name, make in OF_BOARDS.items()}
    makers |= {name: partial(make, args.environments) for name, make in OF_ENVIRONMENTS.items()}
    for name, make in makers.items():
        if args.only and not any(part in name for part in args.only):
            continue
        record: dict[str, Any] = {"program": name}
        try:
            record |= examine(make(), machine, sharding, run=args.run, hlo=args.hlo)
        except Exception as error:  # what a compiler says of a program is a result
            record["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        print(json.dumps(record), flush=True)
    return 0


def examine(
    program: Program, machine: Machine, sharding: Any, *, run: bool, hlo: str | None
) -> dict[str, Any]:
    """Compile a program, read what came out, and run it with counters in its loops."""
    leaves = jax.tree.leaves(program.arguments)
    # Code that asks for the platform while it is traced must hear the target's.
    with mock.patch.object(jax, "default_backend", return_value=machine.platform):
        jax.clear_caches()
        trace = jax.make_jaxpr(program.function)(*program.arguments)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for x in leaves]
    began = time.monotonic()
    compiled = jax.jit(loops.with_names(trace)).lower(*shapes).compile()
    seconds = time.monotonic() - began
    text, memory = compiled.as_text(), compiled.memory_analysis()
    if hlo:
        with open(f"{hlo}/{program.name}.txt", "w") as file:
            file.write(text)
    body, found = read_program(text), loops.loops_of(trace)
    record = {
        "unit": program.unit,
        "units": program.units,
        "compile_seconds": round(seconds, 2),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
    }
    rounds: list[int] | None = None
    if run:
        counts, longest = jax.jit(loops.with_counts(trace, machine.wait))(*leaves)
        rounds = counts.tolist()
        record["longest_program_operations"] = sum(longest.tolist())
        record["kernel_operations"] = sum(
            rounds[kernel.first + number] * operations
            for kernel in loops.kernels_of(trace).values()
            for number, operations in enumerate(loops.operations_of(kernel, machine.wait))
        )
    return record | {"tree": as_tree(body, found, rounds), **totals(body, rounds)}


def as_tree(body: Body, found: list[loops.Loop], rounds: list[int] | None) -> dict[str, Any]:
    """Give a body and the loops inside it as JSON."""
    number = body.number
    return {
        "loop": found[number].function if number is not None else body.label,
        "rounds": rounds[number] if rounds and number is not None else body.trips,
        "launches": body.launches,
        "bytes": body.bytes,
        "conditions": body.conditions,
        "static": body.trips is not None,
        "loops": [as_tree(inner, found, rounds) for inner in body.loops],
    }


def totals(body: Body, rounds: list[int] | None) -> dict[str, Any]:
    """Add up a whole call: launches, bytes, and conditions that data decide."""
    total = {"launches": 0, "bytes": 0, "conditions": 0, "uncounted_loops": 0}

    def add(body: Body, times: int) -> None:
        total["launches"] += body.launches * times
        total["bytes"] += body.bytes * times
        total["conditions"] += body.conditions * times
        for inner in body.loops:
            if rounds is not None and inner.number is not None:
                inner_times = rounds[inner.number]
            else:
                inner_times = times * (inner.trips or 1)
                total["uncounted_loops"] += inner.trips is None
            total["conditions"] += inner_times if inner.trips is None else 0
            add(inner, inner_times)

    add(body, 1)
    return total


if __name__ == "__main__":
    sys.exit(main())
