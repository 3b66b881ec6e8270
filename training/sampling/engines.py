"""Start of a run's sampling engine: vLLM in process, a vLLM server or the trainer's decoder."""

from pathlib import Path
from typing import Any

import jax

from training.errors import UserError
from training.policy.policy import Policy
from training.processes import is_single_process
from training.sampling.jax_sampler import JaxSampler
from training.sampling.sampler import Sampler
from training.sampling.shared_sampler import SharedSampler
from training.sampling.vllm_sampler import VllmSampler
from training.schema import SamplingConfig


def start_sampler(
    policy: Policy, params: Any, settings: SamplingConfig, folder: Path, *, seed: int = 0
) -> Sampler:
    """Start `sampling.engine` with the policy's weights.

    In a run of several processes, each starts an engine, and they share the prompts. vLLM starts
    from a copy of the policy in `folder` with an untied output layer (see `vllm_sampler`).

    Raises:
        UserError: The engine can't start, or would use accelerators of another process.
    """
    _require_own_accelerators(settings, params)
    sampler: Sampler
    if settings.engine == "jax":
        sampler = JaxSampler(policy, params, settings)
    elif settings.engine == "server":
        from training.sampling.server_sampler import ServerSampler  # imports openai

        policy.export(params, folder, untied=True)
        sampler = ServerSampler(folder, settings)
        try:
            sampler.sync(policy.tensors(params))
        except BaseException:
            sampler.close()
            raise
    else:
        policy.export(params, folder, untied=True)
        sampler = VllmSampler(folder, settings, seed=seed)
    return sampler if is_single_process() else SharedSampler(sampler)


def _require_own_accelerators(settings: SamplingConfig, params: Any) -> None:
    """Raise a `UserError` if engines of several processes would start on the same GPUs."""
    if is_single_process() or jax.default_backend() != "gpu" or not settings.starts_vllm:
        return
    if settings.devices is not None:
        return
    vllm_gpus = list(range(settings.accelerators))
    weights = jax.tree.leaves(params)[0]
    gpus = sorted(device.local_hardware_id for device in weights.sharding.addressable_devices)
    if not set(vllm_gpus) <= set(gpus):
        raise UserError(
            f"sampling.devices: got null, so vLLM would use GPUs {vllm_gpus}, but process "
            f"{jax.process_index()} trains on {gpus}; give each process of a host its own GPUs "
            "(CUDA_VISIBLE_DEVICES), or list GPUs that no process trains on"
        )
