"""Compile programs for TPUs without a device, to inspect memory and kernels."""

import re
import time
from typing import Any
from unittest import mock

import jax
from jax.experimental import topologies
from jax.extend.core import jaxpr_as_fun

from benchmarks.accelerators.programs import Program

_KERNEL_OPCODES = frozenset(
    {
        *("fusion", "custom-call", "sort", "copy", "dot", "convolution", "scatter", "gather"),
        *("reduce", "reduce-window", "dynamic-slice", "dynamic-update-slice", "transpose"),
        *("concatenate", "broadcast", "iota", "pad", "slice", "reverse", "reshape", "copy-start"),
    }
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][a-z0-9\-]*)\(")
_CALLEE = re.compile(r"\b(?:calls|to_apply)=%?([\w.\-]+)")


def get_compile_device(topology: str) -> Any:
    """Return one device of a topology such as `v5e:2x2`, for compilation only."""
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]


def compile_for(program: Program, device: Any) -> dict[str, Any]:
    """Compile a program for a device.

    Returns:
        `compile_seconds`; `argument_bytes` and `temporary_bytes` on the device; and `launches`, the
        kernels and copies in the compiled program, counting the body of each loop once.
    """
    sharding = jax.sharding.SingleDeviceSharding(device)
    # The lake chooses kernels by the default backend while it is traced.
    with mock.patch.object(jax, "default_backend", return_value=device.platform):
        jax.clear_caches()
        jaxpr = jax.make_jaxpr(program.function)(*program.arguments)
    function = jaxpr_as_fun(jaxpr)
    shapes = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        for leaf in jax.tree.leaves(program.arguments)
    ]
    start = time.perf_counter()
    executable = jax.jit(function).lower(*shapes).compile()
    seconds = time.perf_counter() - start
    memory, text = executable.memory_analysis(), executable.as_text()
    assert memory is not None
    assert text is not None
    return {
        "compile_seconds": seconds,
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "launches": count_launches(text),
    }


def count_launches(text: str) -> int:
    """Count the kernels and copies in the text of a compiled program, outside of fusions."""
    counts: dict[str, int] = {}
    fused_names: set[str] = set()
    name = ""
    for line in text.splitlines():
        if computation := _COMPUTATION.match(line):
            name = computation[1]
        elif instruction := _INSTRUCTION.match(line):
            counts[name] = counts.get(name, 0) + (instruction[1] in _KERNEL_OPCODES)
            if instruction[1] != "call":
                fused_names.update(_CALLEE.findall(line))
    return sum(count for name, count in counts.items() if name not in fused_names)
