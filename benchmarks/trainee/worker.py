"""Compile one update for one target, in the environment that has the target's compiler.

`python -m benchmarks.trainee` runs this. One line of JSON goes to standard output.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no device, so nothing to share

import jax

from benchmarks.accelerators.targets import devices, machine_of
from benchmarks.trainee.machines import SPEEDS
from benchmarks.trainee.program import Pace, forbidden_arrays, product_flops, read_traffic
from benchmarks.trainee.update import Work, shapes_of
from training.policy.architectures import DecoderConfig


def main() -> int:
    """Answer for the work that is described on the command line as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--work", type=json.loads, required=True)
    parser.add_argument("--hlo", help="a file for the compiled program's text")
    args = parser.parse_args()
    work = Work(**args.work | {"model": DecoderConfig(**args.work["model"])})
    try:
        record = examine(work, args.target, args.hlo)
    except Exception as error:  # what a compiler says of a program is a result
        record = {
            "work": dataclasses.asdict(work),
            "error": f"{type(error).__name__}: {str(error)[:600]}",
        }
    print(json.dumps(record), flush=True)
    return 0


def examine(work: Work, target: str, hlo: str | None) -> dict[str, Any]:
    """Compile the update, and read what came out."""
    chips = devices(target)
    step, state, batch = shapes_of(work, chips)
    counts = {"micro_batches": work.micro_batches, "devices": len(chips)}
    began = time.monotonic()
    traced = step.trace(state, batch)
    lowered = traced.lower()
    middle = time.monotonic()
    compiled = lowered.compile()
    ended = time.monotonic()
    text, memory = compiled.as_text(), compiled.memory_analysis()
    if hlo:
        with open(hlo, "w") as file:
            file.write(text)
    speed, machine = SPEEDS[target.partition(":")[0]], machine_of(target)
    pace = Pace(
        speed.peak * speed.reached,
        speed.peak * speed.attention,
        machine.bandwidth,
        machine.launch,
        speed.sent_per_second(len(chips)),
    )
    traffic = read_traffic(text, pace, **counts)
    model = work.model
    given, kept = compiled.input_shardings[0][0], compiled.output_shardings[0]
    parts = {1, work.fsdp, work.tensor}
    return {
        "device": chips[0].device_kind,
        "devices": len(chips),
        "trace_seconds": round(middle - began, 1),
        "compile_seconds": round(ended - middle, 1),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "aliased_bytes": memory.alias_size_in_bytes,
        "layout_kept": jax.tree.leaves(given) == jax.tree.leaves(kept),
        "product_flops": product_flops(traced.jaxpr, **counts),
        "launches": traffic.launches,
        "compiled_flops": traffic.flops,  # of one device
        "product_seconds": traffic.product_seconds,
        "attention_seconds": traffic.attention_seconds,
        "other_seconds": traffic.other_seconds,
        "waiting_seconds": traffic.waiting_seconds,
        "collectives": dict(traffic.collectives),
        "sent_bytes": dict(traffic.sent),
        "forbidden": forbidden_arrays(
            text,
            vocabulary={model.vocab_size // part for part in parts},
            hidden={model.hidden_size // part for part in parts},
            queries=work.width,
            keys=work.prompt + work.width,
        ),
        "work": dataclasses.asdict(work),
    }


if __name__ == "__main__":
    sys.exit(main())
