"""Compile programs for a target, and count the rounds of their loops in a run on this CPU.

`python -m benchmarks.accelerators` runs this in the environment whose compiler knows the target.
One line of JSON for each program goes to standard output.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no device, so nothing to share

import jax

from benchmarks.accelerators import loops
from benchmarks.accelerators.hlo import read_program
from benchmarks.accelerators.programs import Program, makers
from benchmarks.accelerators.samples import Sample, sample_of
from benchmarks.accelerators.targets import Machine, devices, machine_of
from benchmarks.accelerators.totals import totals, tree_of
from benchmarks.lake.benchmark import git_commit
from jaxlake.solver import widths_for


def main() -> int:
    """Answer for the programs that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--boards", type=int, required=True)
    parser.add_argument("--environments", type=int, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--counted-boards", type=int, help="count rounds, too")
    parser.add_argument("--hlo", help="a folder for the compiled programs' text")
    args = parser.parse_args()
    machine, device = machine_of(args.target), devices(args.target)[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    source = {"commit": git_commit(), "jax": jax.__version__}
    for name, make in makers(args.boards, args.environments, args.only).items():
        record: dict[str, Any] = {"program": name, **source}
        began = time.monotonic()
        try:
            record |= examine(make(), machine, sharding, counted=args.counted_boards, hlo=args.hlo)
        except Exception as error:  # what a compiler says of a program is a result
            record["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        record["took_seconds"] = round(time.monotonic() - began, 2)
        print(json.dumps(record), flush=True)
    return 0


def examine(
    program: Program, machine: Machine, sharding: Any, *, counted: int | None, hlo: str | None
) -> dict[str, Any]:
    """Compile a program, read what came out, and count its rounds in a sample of `counted` boards.

    Without a number of boards no rounds are counted.
    """
    trace = traced(program.function, program.arguments, machine)
    leaves = jax.tree.leaves(program.arguments)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for x in leaves]
    began = time.monotonic()
    compiled = jax.jit(loops.with_names(trace)).lower(*shapes).compile()
    seconds = time.monotonic() - began
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text is not None
    assert memory is not None
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
    if counted is not None:
        began = time.monotonic()
        sample = sample_of(program, counted, widths_for(machine.platform))
        rounds, work = count(sample, found, machine)
        record |= {
            "count_seconds": round(time.monotonic() - began, 2),
            "counted_boards": sample.boards,
            "hardest_boards": sample.hardest,
            "kernels": [vars(one) for one in work],
            "kernel_operations": sum(one.operations for one in work),
            "longest_program_operations": sum(one.longest for one in work),
        }
    tree = tree_of(body, found, rounds)
    return record | {"tree": tree, **totals(tree)}


def traced(function: Callable[..., Any], arguments: tuple[Any, ...], machine: Machine) -> Any:
    """Trace a function as on a machine."""
    # Code that asks for the platform while it is traced must hear the target's.
    with mock.patch.object(jax, "default_backend", return_value=machine.platform):
        jax.clear_caches()
        return jax.make_jaxpr(function)(*arguments)


@dataclass
class Work:
    """What the programs of one kernel do in all launches of a call, in operations."""

    name: str
    operations: int = 0  # of all warps
    longest: int = 0  # of a warp of the longest programs of all launches, added up


def count(
    sample: Sample, called: list[loops.Loop], machine: Machine
) -> tuple[list[int], list[Work]]:
    """Run a sample with counters in its loops: (rounds of the loops `called`, work of kernels)."""
    trace = traced(sample.function, sample.parts[0].arguments, machine)
    own, kernels = loops.loops_of(trace), list(loops.kernels_of(trace).values())
    if [loop.function for loop in own] != [loop.function for loop in called]:
        raise ValueError(f"a call of {sample.boards} boards has other loops than the whole one")
    run = jax.jit(loops.with_counts(trace, machine.costs))
    rounds, work = [0] * len(called), [Work(kernel.name) for kernel in kernels]
    for part in sample.parts:
        counts, longest = (x.tolist() for x in run(*jax.tree.leaves(part.arguments)))
        # Loops over chunks of boards have the same rounds in all parts, and others wait for the
        # hardest board, which is in one of them.
        rounds = list(map(max, rounds, _rounds_of_call(counts, own, called)))
        for one, kernel, most in zip(work, kernels, longest, strict=True):
            operations = enumerate(loops.operations_of(kernel, machine.costs), kernel.first)
            of_warp = sum(counts[i] * x for i, x in operations)
            one.operations += round(part.weight * kernel.warps * of_warp)
            one.longest = max(one.longest, most)
    return rounds, work


def _rounds_of_call(
    counts: list[int], own: list[loops.Loop], called: list[loops.Loop]
) -> list[int]:
    """Turn rounds of a smaller call into those of the whole, whose arrays are longer."""
    return [
        rounds * whole.length // part.length if whole.length and part.length else rounds
        for rounds, part, whole in zip(counts, own, called, strict=False)
    ]


if __name__ == "__main__":
    sys.exit(main())
