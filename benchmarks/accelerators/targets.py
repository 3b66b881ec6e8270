"""Machines that aren't there, as compilers know them.

`h100:N` and `h200:N`, for which the same is compiled, need `jax[cuda12]`; `v5e:2x2`, `v5p:2x2x1`
and `v6e:2x2` need `jax[tpu]`. Neither needs a device or a driver.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.experimental import topologies

from benchmarks.accelerators.loops import Costs


@dataclass(frozen=True)
class Machine:
    """What a forecast assumes of one device, seconds and bytes."""

    name: str
    platform: str  # what `jax.default_backend` says there
    launch: float  # seconds to launch a kernel
    condition: float  # seconds to decide whether a loop goes on, where data decide
    bandwidth: float  # bytes per second of its memory
    operation: float  # seconds that an operation of a program of a Pallas kernel takes
    programs: int  # of warps of such programs run side by side; of programs on a TPU
    costs: Costs  # of what is more than an operation


# Launches and conditions of GPUs: what users of JAX see. A TPU runs a program without its host.
# Operations of kernels: on a GPU a warp, alone on one of its 528 schedulers, issues one in 6 cycles
# of 1.7 GHz, waits 300 cycles for its caches and 90 at a barrier for the other warps of its
# program; on a TPU two in a cycle of 0.94, 1.75 or 0.94 GHz, with memory on the chip.
_WARPS = Costs(lanes=32, wait=50, meeting=15)
_REGISTERS = Costs(lanes=8 * 128)
MACHINES = {
    "h100": Machine("H100 SXM", "gpu", 4e-6, 10e-6, 3.35e12, 6 / 1.7e9, 528, _WARPS),
    "h200": Machine("H200 SXM", "gpu", 4e-6, 10e-6, 4.8e12, 6 / 1.7e9, 528, _WARPS),
    "v5e": Machine("TPU v5e", "tpu", 1e-6, 1e-6, 0.82e12, 1 / (2 * 0.94e9), 1, _REGISTERS),
    "v5p": Machine("TPU v5p", "tpu", 1e-6, 1e-6, 2.77e12, 1 / (2 * 1.75e9), 1, _REGISTERS),
    "v6e": Machine("TPU v6e", "tpu", 1e-6, 1e-6, 1.64e12, 1 / (2 * 0.94e9), 1, _REGISTERS),
}


def machine_of(target: str) -> Machine:
    """Return the machine of a target such as `h100:1`.

    Raises:
        ValueError: there is none of that name.
    """
    kind, _, shape = target.partition(":")
    if kind not in MACHINES or not shape:
        allowed = ", ".join(f"{kind}:SHAPE" for kind in MACHINES)
        raise ValueError(f"--target: got {target!r}, allowed are {allowed}")
    return MACHINES[kind]


def environment_of(target: str) -> str:
    """Return the environment, made by `make accelerators`, whose compiler knows a target."""
    return ".venv-gpu" if machine_of(target).platform == "gpu" else ".venv-tpu"


def devices(target: str) -> list[Any]:
    """Return a target's devices, for compilation only."""
    shape = target.partition(":")[2]
    if machine_of(target).platform == "gpu":
        text = (Path(__file__).parent / "h100.txtpb").read_text()
        return topologies.get_topology_desc(
            platform="cuda", topology_name="H100", topology=f"1x1x{shape}", target_config=text
        ).devices
    return topologies.get_topology_desc(platform="tpu", topology_name=target).devices
