"""The GPU kernel equals plain attention and runs only on supported devices.

These tests interpret the kernel in JAX, without a GPU.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from training.learner.packing import pack_groups
from training.policy import kernels, triton_attention
from training.policy.architectures import DecoderConfig
from training.policy.attention import make_causal_attention, make_shared_prompt_attention
from training.policy.decoder import Decoder
from training.policy.kernels import AttentionImplementation, select_attention

PLAIN_ATTENTION = AttentionImplementation(kind="plain")


def make_arrays(seed: int, *shapes: tuple[int, ...]) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def check_kernel(make_attention, inputs: list[jax.Array], is_query: np.ndarray, **options) -> None:
    """Assert that both backends give equal values and gradients where `is_query`."""
    weights = make_arrays(9, inputs[0].shape)[0] * is_query[..., None, None]

    def run_loss(backend):
        def loss(*inputs):
            output = make_attention(backend)(*inputs)
            return jnp.sum(output * weights), output

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(*inputs)

    (_, expected), expected_gradients = run_loss(PLAIN_ATTENTION)
    (_, value), gradients = run_loss(AttentionImplementation("triton", interpret=True, **options))
    np.testing.assert_allclose(value[is_query], expected[is_query], atol=3e-6)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, atol=3e-5)


def test_packed_rows_attend_to_prompt_and_own_completion(monkeypatch):
    monkeypatch.setattr(kernels, "MIN_KERNEL_KEYS", 1)  # so that the prompts take the kernel, too
    rng = np.random.default_rng(0)
    prompts = [list(range(1, length + 1)) for length in (70, 33)]
    lengths = (90, 41, 60, 0, 130, 7, 77, 5)
    completions = [rng.integers(1, 50, length).tolist() for length in lengths]
    packed = pack_groups(
        prompts,
        completions,
        np.array(lengths).reshape(2, 4) > 0,
        bundles=1,
        minibatches=1,
        micro_batch_bundles=1,
        width=192,
        bucket=8,
        pad_id=0,
    )
    prompt_length, row_shape = packed.prompt_ids.shape[2], packed.input_ids.shape[1:]
    assert np.ptp(packed.completions[0], axis=1).max() > 0  # several completions in one row
    length = 2 * prompt_length + int(np.prod(row_shape))
    inputs = make_arrays(1, (1, length, 4, 64), (1, length, 2, 64), (1, length, 2, 64))
    masks = [packed.prompt_mask.reshape(1, -1), packed.is_target.reshape(1, -1)]

    def make_attention(backend):
        return make_shared_prompt_attention(
            jnp.asarray(packed.prompt_mask), packed.row_prompts, packed.completions, backend
        )

    check_kernel(make_attention, inputs, np.concatenate(masks, axis=1))


def test_plain_sequences_attend_to_unmasked_tokens():
    mask = np.ones((2, 300), bool)
    mask[0, 211:], mask[1, :29], mask[1, 280:] = False, False, False
    inputs = make_arrays(2, *[(2, 300, 2, 64)] * 3)
    check_kernel(partial(make_causal_attention, jnp.asarray(mask)), inputs, mask)


@pytest.mark.parametrize(
    ("num_steps", "num_parts"), [pytest.param(1, 5, marks=pytest.mark.slow), (9, 3)]
)
def test_gradients_are_equal_for_score_chunks(num_steps, num_parts, monkeypatch):
    """Chunks of 128 or 256 queries, shorter than the whole sequence, give equal gradients.

    The second half of a row is a separate completion. No program writes gradients of its scores
    for the first 128 keys, but the kernel for queries reads there.
    """
    prompt_length, row_length = 60, 640
    step_bytes = 2 * (128 + row_length) * triton_attention.STEP * 4  # heads, keys, queries, float32
    monkeypatch.setattr(triton_attention, "GRADIENT_BYTES", num_steps * step_bytes)
    segments = (np.arange(row_length) >= 192).astype(np.int32)[None, None]
    mask = np.arange(prompt_length)[None, None] < prompt_length - 7
    inputs = make_arrays(4, *[(1, prompt_length + row_length, heads, 64) for heads in (2, 1, 1)])
    is_query = np.concatenate([mask.reshape(1, -1), np.ones((1, row_length), bool)], axis=1)

    def make_attention(backend):
        arguments = jnp.asarray(mask), jnp.zeros((1, 1), jnp.int32), jnp.asarray(segments)
        return make_shared_prompt_attention(*arguments, backend)

    attend = make_attention(AttentionImplementation("triton", interpret=True))
    program = jax.make_jaxpr(jax.grad(lambda *inputs: attend(*inputs).sum()))(*inputs)
    assert f"flash_key_value_grads_in_{num_parts}" in str(program)
    check_kernel(make_attention, inputs, is_query)


@pytest.mark.slow
def test_mesh_devices_attend_to_their_own_heads():
    mesh = jax.make_mesh((1, 1), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    mask = np.arange(256) < np.array([256, 200])[:, None]
    inputs = make_arrays(3, (2, 256, 4, 64), (2, 256, 2, 64), (2, 256, 2, 64))
    check_kernel(partial(make_causal_attention, jnp.asarray(mask)), inputs, mask, mesh=mesh)


@pytest.mark.parametrize(
    ("setting", "platform", "dtype", "head_dim", "num_key_heads", "kind"),
    [
        ("auto", "gpu", "bfloat16", 128, 4, "triton"),
        ("auto", "tpu", "bfloat16", 128, 4, "exact"),
        ("auto", "rocm", "bfloat16", 128, 4, "exact"),
        ("auto", "gpu", "float32", 128, 4, "exact"),  # exactness is promised
        ("auto", "gpu", "bfloat16", 32, 4, "exact"),
        ("auto", "gpu", "bfloat16", 64, 3, "exact"),  # 192 columns, which two devices could share
        ("blockwise", "gpu", "bfloat16", 128, 4, "blockwise"),
    ],
)
def test_kernel_selection_follows_setting_and_shape(
    setting, platform, dtype, head_dim, num_key_heads, kind
):
    shape = {"head_dim": head_dim, "num_key_heads": num_key_heads, "tensor_axis_size": 2}
    assert select_attention(setting, platform=platform, dtype=dtype, **shape) == kind


def test_select_attention_is_blockwise_without_triton(monkeypatch):
    monkeypatch.setattr(kernels, "has_triton_backend", lambda: False)
    shape = {"dtype": "bfloat16", "head_dim": 128, "num_key_heads": 4, "tensor_axis_size": 1}
    assert select_attention("auto", platform="gpu", **shape) == "blockwise"


@pytest.mark.parametrize(("remat", "saves_attention"), [(True, False), ("all_but_attention", True)])
def test_remat_saves_the_named_values(remat, saves_attention):
    """Seen in a gradient's program: what the loop over layers hands on, of each of 9 layers."""
    config = DecoderConfig(64, 128, 192, 9, 2, 1, head_dim=64)
    options = {"dtype": jnp.bfloat16, "remat": remat, "attention": "triton"}
    model = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), **options))
    graphdef, params = nnx.split(model)
    prompts, rows = jnp.ones((1, 1, 256), jnp.int32), jnp.zeros((1, 2, 256), jnp.int32)

    def loss(params):
        model, row_prompts = nnx.merge(graphdef, params), jnp.zeros((1, 2), jnp.int32)
        hidden = model.continue_prompts(prompts, prompts > 0, row_prompts, rows, rows, rows)
        return hidden.sum(dtype=jnp.float32)

    scans = [
        equation
        for equation in jax.make_jaxpr(jax.grad(loss))(params).eqns
        if equation.primitive.name == "scan"
    ]
    saved_shapes = {variable.aval.shape[1:] for variable in scans[0].outvars}
    assert (1, 768, 128) in saved_shapes  # the input
    assert (
        {(2, 256, 2, 64), (2, 2, 256)} <= saved_shapes
    ) == saves_attention  # of rows, and their normaliser
    assert (1, 768, 384) not in saved_shapes  # gate and up
