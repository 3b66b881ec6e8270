"""Compile the demo's programs, in the environment that has the target's compiler.

`python -m benchmarks.demo` runs this. One line of JSON for each goes to standard output.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no device, so nothing to share

import jax

from benchmarks.accelerators.targets import devices, machine_of
from benchmarks.demo.programs import Call, calls
from training.schema import load


def main() -> int:
    """Answer for the programs that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    for call in calls(load(args.config), devices(args.target)[0]):
        if args.only and not any(part in call.name for part in args.only):
            continue
        record: dict[str, Any] = {"program": call.name}
        try:
            record |= examine(call, machine_of(args.target).platform)
        except Exception as error:  # what a compiler says of a program is a result
            record["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        print(json.dumps(record), flush=True)
    return 0


def examine(call: Call, platform: str) -> dict[str, Any]:
    """Compile one program, and read what came out."""
    began = time.monotonic()
    # The lake asks for the platform while it is traced, and must hear the target's.
    with mock.patch.object(jax, "default_backend", return_value=platform):
        jax.clear_caches()
        lowered = call.function.trace(*call.arguments).lower()
    found = products(lowered.as_text())
    compiled = lowered.compile()
    memory = compiled.memory_analysis()
    wrong = [line for line, exact in found if not exact]
    kept = compiled_products(compiled.as_text())
    wrong += [line for line, exact in kept if not exact]
    return {
        "compile_seconds": round(time.monotonic() - began, 1),
        "temporary_bytes": memory.temp_size_in_bytes,
        "products": len(kept),
        "inexact": wrong if call.exact else [],
    }


def products(text: str) -> list[tuple[str, bool]]:
    """List the products of float32 in a program before it is compiled, and whether they are exact.

    That is so if both factors have the highest precision: six passes of bfloat16 on a TPU, float32
    on a GPU. Lower ones round them to bfloat16 or TF32.
    """
    lines = [
        line
        for line in text.splitlines()
        if "stablehlo.dot_general" in line and re.search(r"-> tensor<[\dx]*f32>", line)
    ]
    wide = [line for line in lines if "xbf16>" not in line]
    return [(line.strip()[:160], "precision = [HIGHEST, HIGHEST]" in line) for line in wide]


def compiled_products(text: str) -> list[tuple[str, bool]]:
    """List the same of a compiled program, in which calls of libraries are products, too."""
    found = []
    for line in text.splitlines():
        product = re.search(r" = \(?f32\[[^=]*? (dot|convolution)\(", line)
        library = "__cublas" in line and " = (f32[" in line
        if product:
            found.append((line.strip()[:160], "operand_precision={highest,highest}" in line))
        elif library:
            found.append((line.strip()[:160], '["HIGHEST","HIGHEST"]' in line.replace(" ", "")))
    return found


if __name__ == "__main__":
    sys.exit(main())
