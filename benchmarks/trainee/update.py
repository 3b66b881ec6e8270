"""The GRPO update of a model, with drawn weights and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from training.learner.flops import update_flops
from training.learner.grpo import GrpoBatch
from training.learner.grpo_step import compiled_step, grpo_optimizer
from training.learner.optimizer import LearnerState, initial_state
from training.learner.packing import PackedGroups
from training.learner.placement import placement_of
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.kernels import kind_for
from training.schema import Grpo

MODELS = {
    "0.6B": DecoderConfig(151_936, 1024, 3072, 28, 16, 8, tie_word_embeddings=True),
    "1.7B": DecoderConfig(151_936, 2048, 6144, 28, 16, 8, tie_word_embeddings=True),
    "4B": DecoderConfig(151_936, 2560, 9728, 36, 32, 8, tie_word_embeddings=True),
    "8B": DecoderConfig(151_936, 4096, 12_288, 36, 32, 8),
    "14B": DecoderConfig(151_936, 5120, 17_408, 40, 40, 8),
    "32B": DecoderConfig(151_936, 5120, 25_600, 64, 64, 8),
}


@dataclass(frozen=True)
class Work:
    """The shape of an update: what each device of the fsdp axis gets in each micro-batch."""

    model: DecoderConfig
    groups: int  # prompts of a bundle
    prompt: int  # tokens of each, padded
    rows: int  # of a bundle
    width: int  # tokens of each
    micro_batches: int
    fsdp: int
    tensor: int
    dtype: str = "bfloat16"  # of the products
    remat: bool | str = True  # the setting of `model.remat`
    temperature: float = 1.0
    attention: str = "auto"  # the setting of `model.attention`

    def attention_on(self, platform: str) -> str:
        """Return the kind of attention that a run with these settings has on a platform."""
        return kind_for(
            self.attention,
            platform=platform,
            dtype=jnp.dtype(self.dtype),
            head_dim=self.model.head_dim,
            key_heads=self.model.num_key_value_heads,
            tensor=self.tensor,
        )

    def model_flops(self) -> float:
        """Count the operations that loss and gradient need."""
        bundles = self.micro_batches * self.fsdp
        prompts = [float(self.prompt)] * (bundles * self.groups)
        answers = [[float(self.width)] * (self.rows // self.groups)] * len(prompts)
        return update_flops(self.model, prompts, answers)


def shapes_of(work: Work, chips: list[Any]) -> tuple[Any, LearnerState, GrpoBatch]:
    """Return the compiled step, and the shapes of its arguments with where they are."""
    mesh = Mesh(
        np.array(chips).reshape(work.fsdp, work.tensor),
        ("fsdp", "tensor"),
        axis_types=(AxisType.Auto, AxisType.Auto),
    )
    model = nnx.eval_shape(
        lambda: Decoder(work.model, rngs=nnx.Rngs(0), dtype=jnp.dtype(work.dtype), remat=work.remat)
    )
    model.mesh = mesh if len(chips) > 1 else None
    model.attention = work.attention_on(chips[0].platform)
    graphdef, params = nnx.split(model)
    settings = Grpo()
    step = compiled_step(graphdef, settings, None, work.temperature, 100)
    optimizer = grpo_optimizer(settings, 100)
    state = jax.eval_shape(lambda params: initial_state(params, optimizer), params)
    placement = placement_of(graphdef, params)
    everywhere = NamedSharding(mesh, PartitionSpec())
    shardings = (
        jax.tree.map(lambda _: everywhere, state) if placement is None else placement.of(state)
    )

    def shaped(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def array(dtype: Any, *sizes: int) -> jax.ShapeDtypeStruct:
        lead = (work.micro_batches, work.fsdp)
        return jax.ShapeDtypeStruct((*lead, *sizes), dtype, sharding=everywhere)

    prompts, rows = (work.groups, work.prompt), (work.rows, work.width)
    whole, number = np.int32, np.float32
    batch = GrpoBatch(
        groups=PackedGroups(
            prompt_ids=array(whole, *prompts),
            prompt_mask=array(bool, *prompts),
            row_prompts=array(whole, work.rows),
            input_ids=array(whole, *rows),
            target_ids=array(whole, *rows),
            positions=array(whole, *rows),
            completions=array(whole, *rows),
        ),
        sampler_logprobs=array(number, *rows),
        old_logprobs=array(number, *rows),
        advantages=array(number, *rows),
        copies=array(number, *rows),
    )
    return step, jax.tree.map(shaped, state, shardings), batch
