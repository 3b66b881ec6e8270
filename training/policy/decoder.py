"""A dense decoder of any family in `architectures.py`, as a Flax NNX module.

Axis letters: B sequences, L tokens, V vocabulary, D hidden_size, N layers, H query heads, K
key/value heads, hd head_dim; in bundles G prompts of P tokens and R rows of W tokens.
"""

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
    KeyValueCache,
    adapt_attention,
    make_causal_attention,
    make_decode_attention,
    make_prefill_attention,
    make_shared_prompt_attention,
)
from training.policy.head import compute_logits
from training.policy.kernels import (
    ATTENTION_OUTPUT,
    EXACT,
    TRITON,
    AttentionImplementation,
    matmul_precision,
)
from training.policy.layers import decoder_layer, join_bundle, rms_norm, rotary_angles
from training.policy.parameters import SHARDING_RULES, parameter_shapes
from training.schema import LoraConfig

# Unrolled layers run faster on CPU; scanned layers compile in a time independent of depth.
UNROLLED_LAYERS = 8

CHECKPOINT_POLICIES: dict[bool | str, Callable[..., Any]] = {
    True: jax.checkpoint_policies.nothing_saveable,
    "all_but_attention": jax.checkpoint_policies.save_only_these_names(ATTENTION_OUTPUT),
}
"""Activations of a layer that are saved for the backward pass, by the value of `remat`."""


class DecoderLayers(nnx.Module):
    """The parameters of all N decoder layers, stacked along a leading axis."""


class Decoder(nnx.Module):
    """A causal decoder from token ids to hidden states; `logits` computes logits separately."""

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
        """Initialise random weights: normal with `initializer_range`, and zero biases.

        Norms, rotary embedding, softmax and logits are computed in float32. Float32 products have
        full precision on every device: GPUs and TPUs don't round them to TF32 or bfloat16.

        Args:
            config: Shape of the decoder.
            rngs: Source of random numbers.
            param_dtype: dtype of the parameters.
            dtype: dtype of matrix products and activations.
            remat: False saves all activations for the backward pass. Otherwise a key of
                `CHECKPOINT_POLICIES`: the backward pass recomputes the activations of a layer
                that the policy does not save.
            attention: Kind of attention, see `training.policy.kernels.select_attention`.
        """
        self.config = config
        self.dtype = jnp.dtype(dtype)
        self.remat = remat
        self.attention = attention
        self.mesh: Mesh | None = None
        self.lora: LoraConfig | None = None  # see `training.policy.lora`
        self.layers = DecoderLayers()
        for path, shape in parameter_shapes(config).items():
            if path.endswith("norm"):
                value = jnp.ones(shape, param_dtype)
            elif path.endswith("_bias"):
                value = jnp.zeros(shape, param_dtype)
            else:
                normals = jax.random.normal(rngs.params(), shape, param_dtype)
                value = config.initializer_range * normals
            parent, _, name = path.rpartition(".")
            setattr(self.layers if parent else self, name, nnx.Param(value))

    def __call__(self, input_ids: jax.Array, positions: jax.Array, mask: jax.Array) -> jax.Array:
        """Return hidden states after the final norm.

        Args:
            input_ids: int32 (B, L), token ids; arbitrary at padding.
            positions: int32 (B, L), index of each token in its sequence.
            mask: bool (B, L), False at padding. A token attends to itself and to earlier tokens
                where it is True.

        Returns:
            Hidden states, `dtype` (B, L, D), undefined at padding.
        """
        attend = adapt_attention(make_causal_attention(mask, self._attention_implementation))
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
        """Return hidden states of sequences that continue shared prompts.

        The result equals `__call__` on each prompt concatenated with each of its sequences, but
        each prompt is computed once.

        Args:
            prompt_ids: int32 (B, G, P), token ids of the G prompts of each bundle.
            prompt_mask: bool (B, G, P), True on the tokens of prompts.
            row_prompts: int32 (B, R), index of the prompt, 0 to G - 1, that each row continues.
            input_ids: int32 (B, R, W), token ids of the sequences, packed into rows.
            positions: int32 (B, R, W), index of each token, counted from the start of its prompt.
            segments: int32 (B, R, W), number of each token's sequence. A token attends to its
                prompt, to itself, and to earlier tokens of its row with the same number.

        Returns:
            Hidden states after the final norm, `dtype` (B, R, W, D).
        """
        shape = prompt_ids.shape
        prompt_positions = jax.lax.broadcasted_iota(jnp.int32, shape, 2)
        hidden, _ = self._decode(
            join_bundle(prompt_ids, input_ids),
            join_bundle(prompt_positions, positions),
            adapt_attention(
                make_shared_prompt_attention(
                    prompt_mask, row_prompts, segments, self._attention_implementation
                )
            ),
        )
        return hidden[:, shape[1] * shape[2] :].reshape(*input_ids.shape, -1)

    @property
    def _attention_implementation(self) -> AttentionImplementation:
        # The kernel would round a float32 sampler of a policy that trains in bfloat16.
        needs_exact = self.attention == TRITON and self.dtype != jnp.bfloat16
        return AttentionImplementation(EXACT if needs_exact else self.attention, self.mesh)

    def memory(self, batch: int, length: int) -> KeyValueCache:
        """Return an empty key/value cache for `length` tokens of `batch` sequences."""
        config = self.config
        heads = (config.num_key_value_heads, length, config.head_dim)
        zeros = jnp.zeros((config.num_hidden_layers, batch, *heads), self.dtype)
        return zeros, zeros

    def prefill(
        self, prompt_ids: jax.Array, prompt_mask: jax.Array
    ) -> tuple[jax.Array, KeyValueCache]:
        """Return the hidden state of each prompt's last token, and the prompts' keys and values.

        Args:
            prompt_ids: int32 (B, P), token ids, padded at the end.
            prompt_mask: bool (B, P), False at padding.

        Returns:
            Hidden states after the final norm, `dtype` (B, D), and the keys and values.
        """
        batch, length = prompt_ids.shape
        positions = jax.lax.broadcasted_iota(jnp.int32, prompt_ids.shape, 1)
        hidden, memory = self._decode(
            prompt_ids, positions, make_prefill_attention(prompt_mask), self.memory(batch, length)
        )
        last_index = prompt_mask.sum(axis=1) - 1
        return jnp.take_along_axis(hidden, last_index[:, None, None], axis=1)[:, 0], memory

    def decode_token(
        self,
        token_ids: jax.Array,
        step: jax.Array,
        prompts: KeyValueCache,
        prompt_mask: jax.Array,
        memory: KeyValueCache,
    ) -> tuple[jax.Array, KeyValueCache]:
        """Return the hidden state of the next token of each sequence, and the updated memory.

        Args:
            token_ids: int32 (B * n,), the next token of n sequences per prompt. The sequences of
                a prompt are adjacent.
            step: int32 (), index of the token in its sequence, from 0.
            prompts: Keys and values of the B prompts, from `prefill`.
            prompt_mask: bool (B, P), the mask given to `prefill`.
            memory: Keys and values of the tokens before `step`.

        Returns:
            Hidden states after the final norm, `dtype` (B * n, D), and the memory with this token.
        """
        lengths = jnp.repeat(prompt_mask.sum(axis=1), len(token_ids) // len(prompt_mask))
        attend = make_decode_attention(prompts, prompt_mask, step)
        hidden, memory = self._decode(
            token_ids[:, None], (lengths + step)[:, None].astype(jnp.int32), attend, memory
        )
        return hidden[:, 0], memory

    def _decode(
        self, input_ids: jax.Array, positions: jax.Array, attend: Attention, memory: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return hidden states after the final norm, `dtype` (B, L, D), and the memory."""
        config = self.config
        # Unwrap nnx.Params to arrays, because lax.scan slices plain pytrees.
        layers: dict[str, jax.Array] = nnx.to_pure_dict(nnx.state(self.layers, nnx.Param))
        layer: Callable[..., tuple[jax.Array, Any]] = partial(
            decoder_layer,
            rotation=rotary_angles(
                positions, config.head_dim, config.rope_theta, config.rope_scaling
            ),
            attend=attend,
            config=config,
            lora=self.lora,
            dtype=self.dtype,
            mesh=self.mesh,
        )
        if self.remat:
            layer = jax.checkpoint(layer, prevent_cse=False, policy=CHECKPOINT_POLICIES[self.remat])

        def body(carry: tuple[jax.Array, Any], inputs: Any) -> tuple[tuple[jax.Array, Any], None]:
            hidden, memory = layer(*carry, *inputs)
            return (self._constrain(hidden), memory), None

        hidden = self._constrain(self._embed_tokens(input_ids))
        unroll = config.num_hidden_layers <= UNROLLED_LAYERS
        inputs = (layers, jnp.arange(config.num_hidden_layers))
        with matmul_precision(self.dtype):
            (hidden, memory), _ = jax.lax.scan(body, (hidden, memory), inputs, unroll=unroll)
        return rms_norm(hidden, self.norm[...], config.rms_norm_eps), memory

    def _embed_tokens(self, input_ids: jax.Array) -> jax.Array:
        """Return the embeddings of tokens, `dtype` (B, L, D)."""
        hidden = self.embed_tokens[...][input_ids].astype(self.dtype)
        if self.mesh is None:
            return hidden
        # Each device looks up its slice of hidden_size for all sequences, then the devices exchange
        # activations. They are smaller than the table, and its gradient needs no sum over devices.
        spec = PartitionSpec(None, None, SHARDING_RULES["embed"])
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))

    def head(self) -> jax.Array:
        """Return the output embedding, `param_dtype` (V, D): `embed_tokens` itself if tied."""
        return (self.embed_tokens if self.config.tie_word_embeddings else self.lm_head)[...]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Return the logits, float32 (..., V), of hidden states (..., D)."""
        return compute_logits(hidden, self.head())

    def _constrain(self, hidden: jax.Array) -> jax.Array:
        # Without this constraint GSPMD may split activations along hidden_size, as it does kernels.
        if self.mesh is None:
            return hidden
        spec = PartitionSpec(SHARDING_RULES["batch"], None, None)
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(self.mesh, spec))
