"""A dense decoder of any family in `architectures.py`, as a Flax NNX module.

Axis letters: B sequences, L tokens, V vocabulary, D hidden_size, N layers, H query heads, K
key/value heads, hd head_dim; in bundles G prompts of P tokens and R rows of W tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from training.policy.architectures import DecoderConfig
from training.policy.attention import (
    Attention,
    KeyValues,
    causal_attention,
    continued_attention,
    filling_attention,
    shared_prompt_attention,
    without_memory,
)
from training.policy.head import logits_of
from training.policy.kernels import ATTENDED, EXACT, TRITON, Implementation, products_of
from training.policy.layers import decoder_layer, join_bundle, rms_norm, rotation_of
from training.policy.parameters import SHARDING_RULES, parameter_shapes
from training.schema import Lora

# Unrolled layers step up to a third faster on CPU; scanned layers compile in a time that does not
# grow with depth.
UNROLLED_LAYERS = 8

KEPT: dict[bool | str, Callable[..., Any]] = {
    True: jax.checkpoint_policies.nothing_saveable,
    "all_but_attention": jax.checkpoint_policies.save_only_these_names(ATTENDED),
}
"""What is kept of a layer beside its input, by the setting of what is computed again (`remat`)."""


class DecoderLayers(nnx.Module):
    """The parameters of all N decoder layers, stacked along a leading axis to be scanned."""


class Decoder(nnx.Module):
    """A causal decoder, from token ids to hidden states; logits are a step of their own."""

    embed_tokens: nnx.Param[jax.Array]
    norm: nnx.Param[jax.Array]
    lm_head: nnx.Param[jax.Array]  # missing if tied

    def __init__(
        self,
        config: DecoderConfig,
        *,
        rngs: nnx.Rngs,
        param_dtype: DTypeLike = jnp.float32,
        dtype: DTypeLike = jnp.float32,
        remat: bool | str = False,
        attention: str = EXACT,
    ) -> None:
        """Make a decoder with random weights, normal with `initializer_range`; biases are 0.

        Matrix products and activations have `dtype`; norms, rotary embedding, softmax and logits
        are float32 whatever it is. Products of float32 are float32 on every device: GPUs and TPUs
        would round their factors to TF32 or bfloat16 to be faster. With `remat` each layer's input
        is kept for the backward pass, and what else `KEPT` names; the rest is computed again.
        `attention` is a kind that `training.policy.kernels.kind_for` chooses.
        """
        self.config = config
        self.dtype = jnp.dtype(dtype)
        self.remat = remat
        self.attention = attention
        self.mesh: Mesh | None = None
        self.lora: Lora | None = None  # see `training.policy.lora`
        self.layers = DecoderLayers()
        for path, shape in parameter_shapes(config).items():
            if path.endswith("norm"):
                value = jnp.ones(shape, param_dtype)
            elif path.endswith("_bias"):
                value = jnp.zeros(shape, param_dtype)
            else:
                normal = jax.random.normal(rngs.params(), shape, param_dtype)
                value = config.initializer_range * normal
            parent, _, name = path.rpartition(".")
            setattr(self.layers if parent else self, name, nnx.Param(value))

    def __call__(self, input_ids: jax.Array, positions: jax.Array, mask: jax.Array) -> jax.Array:
        """Return hidden states after the final norm, `dtype` (B, L, D); meaningless at padding.

        `input_ids`, int32 (B, L), may be any token at padding, where `mask`, bool (B, L), is False.
        `positions`, int32 (B, L), is each token's index in its own sequence. A token attends to the
        unmasked tokens up to itself.
        """
        attend = without_memory(causal_attention(mask, self._how))
        return self._decode(input_ids, positions, attend)[0]

    def continue_prompts(
        self,
        prompt_ids: jax.Array,
        prompt_mask: jax.Array,
        row_prompts: jax.Array,
        input_ids: jax.Array,
        positions: jax.Array,
        segments: jax.Array,
    ) -> jax.Array:
        """Return hidden states of sequences that continue prompts, each computed once.

        In each of B bundles are G prompts, `prompt_ids`, int32 (B, G, P), unmasked where
        `prompt_mask`, bool, is True, and R rows of sequences, `input_ids`, int32 (B, R, W). A row
        continues the prompt that `row_prompts`, int32 (B, R), names by its place, 0 to G - 1. A
        token attends to this prompt, and to the tokens up to itself that have its number in
        `segments`, int32 (B, R, W). `positions`, int32 (B, R, W), count from the prompt's start.

        The result, after the final norm, is `dtype` (B, R, W, D): what `__call__` gives for each
        prompt joined with each of its sequences.
        """
        shape = prompt_ids.shape
        prompt_positions = jax.lax.broadcasted_iota(jnp.int32, shape, 2)
        hidden, _ = self._decode(
            join_bundle(prompt_ids, input_ids),
            join_bundle(prompt_positions, positions),
            without_memory(shared_prompt_attention(prompt_mask, row_prompts, segments, self._how)),
        )
        return hidden[:, shape[1] * shape[2] :].reshape(*input_ids.shape, -1)

    @property
    def _how(self) -> Implementation:
        # A sampler may compute in float32 what is trained in bfloat16; the kernel would round it.
        rounds = self.attention == TRITON and self.dtype != jnp.bfloat16
        return Implementation(EXACT if rounds else self.attention, self.mesh)

    def memory(self, batch: int, length: int) -> KeyValues:
        """Return empty room for the keys and values of `length` tokens of `batch` sequences."""
        config = self.config
        heads = (config.num_key_value_heads, length, config.head_dim)
        empty = jnp.zeros((config.num_hidden_layers, batch, *heads), self.dtype)
        return empty, empty

    def read_prompts(
        self, prompt_ids: jax.Array, prompt_mask: jax.Array
    ) -> tuple[jax.Array, KeyValues]:
        """Return the hidden state of each prompt's last token, and all keys and values.

        `prompt_ids`, int32 (B, P), are unmasked where `prompt_mask`, bool, is True: at their
        beginning. The states, after the final norm, are `dtype` (B, D).
        """
        batch, length = prompt_ids.shape
        positions = jax.lax.broadcasted_iota(jnp.int32, prompt_ids.shape, 1)
        hidden, memory = self._decode(
            prompt_ids, positions, filling_attention(prompt_mask), self.memory(batch, length)
        )
        last = prompt_mask.sum(axis=1) - 1
        return jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0], memory

    def read_token(
        self,
        token_ids: jax.Array,
        step: jax.Array,
        prompts: KeyValues,
        prompt_mask: jax.Array,
        memory: KeyValues,
    ) -> tuple[jax.Array, KeyValues]:
        """Return the hidden state of one more token of each sequence, and the memory with it.

        B * n sequences continue B prompts, those of the first prompt first. `token_ids`, int32
        (B * n,), are their tokens number `step`, int32 (), counted from 0. `prompts` is what
        `read_prompts` gave with this mask, and `memory` holds what was read since.
        """
        lengths = jnp.repeat(prompt_mask.sum(axis=1), len(token_ids) // len(prompt_mask))
        attend = continued_attention(prompts, prompt_mask, step)
        hidden, memory = self._decode(
            token_ids[:, None], (lengths + step)[:, None].astype(jnp.int32), attend, memory
        )
        return hidden[:, 0], memory

    def _decode(
        self, input_ids: jax.Array, positions: jax.Array, attend: Attention, memory: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return hidden states after the final norm, `dtype` (B, L, D), and what is remembered."""
        config = self.config
        # nnx.Params are unwrapped to arrays, because lax.scan slices plain pytrees.
        layers: dict[str, jax.Array] = nnx.to_pure_dict(nnx.state(self.layers, nnx.Param))
        layer: Callable[..., tuple[jax.Array, Any]] = partial(
            decoder_layer,
            rotation=rotation_of(
                positions, config.head_dim, config.rope_theta, config.rope_scaling
            ),
            attend=attend,
            config=config,
            lora=self.lora,
            dtype=self.dtype,
            mesh=self.mesh,
        )
        if self.remat:
            layer = jax.checkpoint(layer, prevent_cse=False, policy=KEPT[self.remat])

        def body(carry: tuple[jax.Array, Any], of_layer: Any) -> tuple[tuple[jax.Array, Any], None]:
            hidden, memory = layer(*carry, *of_layer)
            return (self._constrain(hidden), memory), None

        hidden = self._constrain(self._look_up(input_ids))
        unroll = config.num_hidden_layers <= UNROLLED_LAYERS
        numbered = (layers, jnp.arange(config.num_hidden_layers))
        with products_of(self.dtype):
            (hidden, memory), _ = jax.lax.scan(body, (hidden, memory), numbered, unroll=unroll)
        return rms_norm(hidden, self.norm[...], config.rms_norm_eps), memory

    def _look_up(self, input_ids: jax.Array) -> jax.Array:
        """Return the embeddings of tokens, `dtype` (B, L, D)."""
        hidden = self.embed_tokens[...][input_ids].astype(self.dtype)
        if self.mesh is None:
            return hidden
        # Every device looks up its part of hidden_size for all sequences, and then they exchange:
        # that takes less than gathering the table, and its gradient needs no sum over devices.
        spec = PartitionSpec(None, None, SHARDING_RULES["embed"])
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))

    def head(self) -> jax.Array:
        """Return the output embedding, `param_dtype` (V, D): `embed_tokens` itself if tied."""
        return (self.embed_tokens if self.config.tie_word_embeddings else self.lm_head)[...]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Return the logits, float32 (..., V), of hidden states (..., D)."""
        return logits_of(hidden, self.head())

    def _constrain(self, hidden: jax.Array) -> jax.Array:
        # Without this GSPMD may split activations along hidden_size, as the fsdp axis splits the
        # kernels.
        if self.mesh is None:
            return hidden
        spec = PartitionSpec(SHARDING_RULES["batch"], None, None)
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))
