"""Start the engine that a run samples with: vLLM, here or as servers, or the trainer's decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from training.policy.policy import Policy
from training.processes import alone
from training.rollout.jax_sampler import JaxSampler
from training.rollout.sampler import Sampler
from training.rollout.server_sampler import ServerSampler
from training.rollout.shared_sampler import SharedSampler
from training.rollout.vllm_sampler import VllmSampler
from training.schema import Sampling


def start_sampler(
    policy: Policy, params: Any, settings: Sampling, folder: Path, *, seed: int = 0
) -> Sampler:
    """Start `sampling.engine` on these weights.

    vLLM starts from `folder`, to which a copy of the policy is written whose output layer is not
    tied to the embeddings: see `vllm_sampler`. Each of several processes starts its own, and they
    share the prompts.

    Raises:
        UserError: The engine can't start.
    """
    sampler: Sampler
    if settings.engine == "jax":
        sampler = JaxSampler(policy, params, settings)
    elif settings.engine == "servers":
        policy.export(params, folder, untied=True)
        sampler = ServerSampler(folder, settings)
        try:
            sampler.sync(policy.tensors(params))
        except BaseException:
            sampler.close()
            raise
    else:
        policy.export(params, folder, untied=True)
        weights = jax.tree.leaves(params)[0]
        trainer = sorted(weights.sharding.addressable_devices, key=lambda device: device.id)
        sampler = VllmSampler(folder, settings, seed=seed, trainer=trainer)
    return sampler if alone() else SharedSampler(sampler)
