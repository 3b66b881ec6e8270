"""The kernels for GPUs and TPUs give what plain attention gives, and run only where they are for.

They run here as JAX, without a device.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from training.learner.packing import pack_groups
from training.policy import kernels, triton_attention
from training.policy.architectures import DecoderConfig
from training.policy.attention import causal_attention, shared_prompt_attention
from training.policy.decoder import Decoder
from training.policy.kernel_check import is_trusted, largest_difference
from training.policy.kernels import Implementation, kind_for, run_starts
from training.policy.splash_attention import splash_attention

PLAIN = Implementation(kind="plain")
KINDS = sorted(kernels.KERNELS.values())


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def compare(kind: str, attention, tokens: list[jax.Array], wanted: np.ndarray, **options) -> None:
    """Hold values and gradients of two implementations equal where tokens are `wanted`."""
    slopes = arrays(9, tokens[0].shape)[0] * wanted[..., None, None]

    def total(how):
        def loss(*tokens):
            attended = attention(how)(*tokens)
            return jnp.sum(attended * slopes), attended

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(*tokens)

    (_, expected), slopes_expected = total(PLAIN)
    (_, found), slopes_found = total(Implementation(kind, interpret=True, **options))
    np.testing.assert_allclose(found[wanted], expected[wanted], atol=3e-6)
    for one, other in zip(slopes_found, slopes_expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_attend_to_their_prompt_and_their_own_completion(kind, monkeypatch):
    monkeypatch.setattr(kernels, "SHORTEST", 1)  # so that the prompts take the kernel, too
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
    groups, width = packed.prompt_ids.shape[2], packed.input_ids.shape[1:]
    assert np.ptp(packed.completions[0], axis=1).max() > 0  # several completions in one row
    count = 2 * groups + int(np.prod(width))
    tokens = arrays(1, (1, count, 4, 64), (1, count, 2, 64), (1, count, 2, 64))
    wanted = [packed.prompt_mask.reshape(1, -1), packed.targets.reshape(1, -1)]

    def attention(how):
        return shared_prompt_attention(
            jnp.asarray(packed.prompt_mask), packed.row_prompts, packed.completions, how
        )

    compare(kind, attention, tokens, np.concatenate(wanted, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_plain_sequences_attend_to_what_is_not_masked_also_at_their_beginning(kind):
    mask = np.ones((2, 300), bool)
    mask[0, 211:], mask[1, :29], mask[1, 280:] = False, False, False
    tokens = arrays(2, *[(2, 300, 2, 64)] * 3)
    compare(kind, lambda how: causal_attention(jnp.asarray(mask), how), tokens, mask)


@pytest.mark.parametrize(("steps", "parts"), [pytest.param(1, 5, marks=pytest.mark.slow), (9, 3)])
def test_gradients_are_the_same_if_those_of_scores_are_computed_in_parts(steps, parts, monkeypatch):
    """Parts of 128 queries where no more fit, and else of 256, so that they are no whole sequence.

    A row's second half is a completion of its own. No program writes gradients of its
    scores for the first 128 keys, but the kernel for queries reads there.
    """
    prompt, width = 60, 640
    size = 2 * (128 + width) * triton_attention.STEP * 4  # heads, keys, queries, float32
    monkeypatch.setattr(triton_attention, "GRADIENT_BYTES", steps * size)
    segments = (np.arange(width) >= 192).astype(np.int32)[None, None]
    mask = np.arange(prompt)[None, None] < prompt - 7
    tokens = arrays(4, *[(1, prompt + width, heads, 64) for heads in (2, 1, 1)])
    wanted = np.concatenate([mask.reshape(1, -1), np.ones((1, width), bool)], axis=1)

    def attention(how):
        row = jnp.zeros((1, 1), jnp.int32)
        return shared_prompt_attention(jnp.asarray(mask), row, jnp.asarray(segments), how)

    attend = attention(Implementation("triton", interpret=True))
    program = jax.make_jaxpr(jax.grad(lambda *tokens: attend(*tokens).sum()))(*tokens)
    assert f"flash_by_key_in_{parts}" in str(program)
    compare("triton", attention, tokens, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_device_of_a_mesh_attends_for_its_sequences_and_heads(kind):
    mesh = jax.make_mesh((1, 1), ("fsdp", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    mask = np.arange(256) < np.array([256, 200])[:, None]
    tokens = arrays(3, (2, 256, 4, 64), (2, 256, 2, 64), (2, 256, 2, 64))
    compare(kind, lambda how: causal_attention(jnp.asarray(mask), how), tokens, mask, mesh=mesh)


@pytest.mark.slow
def test_a_kernel_is_tried_out_before_it_is_used(monkeypatch):
    how = Implementation("triton", interpret=True)
    difference = largest_difference(how, head_dim=64, group=2)
    assert 1e-3 < difference < 6e-3  # bfloat16's
    assert is_trusted(difference)
    assert not is_trusted(float("nan"))
    # One token too many is seen.
    monkeypatch.setattr(
        triton_attention,
        "_allowed",
        lambda places, visible, queries, starts: (places < 0) | (places <= queries),
    )
    jax.clear_caches()
    assert not is_trusted(largest_difference(how, head_dim=64, group=2))


def test_runs_begin_where_the_number_changes():
    segments = jnp.array([[4, 4, 2, 2, 2, -1], [7, 7, 7, 7, 7, 7]])
    assert run_starts(segments).tolist() == [[0, 0, 2, 2, 2, 5], [0] * 6]


@pytest.mark.parametrize(
    ("setting", "platform", "dtype", "head_dim", "kind"),
    [
        ("auto", "gpu", "bfloat16", 128, "triton"),
        ("auto", "tpu", "bfloat16", 128, "splash"),
        ("auto", "cpu", "bfloat16", 128, "exact"),
        ("auto", "rocm", "bfloat16", 128, "exact"),
        ("auto", "gpu", "float32", 128, "exact"),  # exactness is promised
        ("auto", "tpu", "bfloat16", 32, "exact"),
        ("blockwise", "gpu", "bfloat16", 128, "blockwise"),
        ("plain", "tpu", "bfloat16", 128, "plain"),
        ("triton", "gpu", "bfloat16", 64, "triton"),
    ],
)
def test_kernels_are_taken_where_they_run_and_fit(setting, platform, dtype, head_dim, kind):
    assert kind_for(setting, platform=platform, dtype=dtype, head_dim=head_dim) == kind


@pytest.mark.parametrize(
    ("key_heads", "tensor", "kind"), [(3, 1, "triton"), (4, 2, "triton"), (3, 2, "exact")]
)
def test_a_kernel_is_taken_where_devices_share_whole_heads(key_heads, tensor, kind):
    """Three heads of 64 are 192 columns, which two devices could share."""
    given = {"dtype": "bfloat16", "head_dim": 64, "key_heads": key_heads, "tensor": tensor}
    assert kind_for("auto", platform="gpu", **given) == kind
    if kind == "exact":
        with pytest.raises(ValueError, match=r"tensor 2, .* divisors of the model's 3 key/value"):
            kind_for("triton", platform="gpu", **given)


@pytest.mark.parametrize(("length", "used"), [(512, True), (640, False)])
def test_rows_that_are_too_long_for_a_kernel_s_masks_go_without_it(length, used, monkeypatch):
    """Of longer ones the splash kernel's masks would be wrong without a word."""
    assert Implementation("splash").uses_kernel(2**15, 2**15)
    assert not Implementation("splash").uses_kernel(2**15 + 1, 2**15 + 1)
    monkeypatch.setitem(kernels.LONGEST, "splash", 512)
    how, mask = Implementation("splash", interpret=True), jnp.ones((1, length), bool)
    queries = jax.ShapeDtypeStruct((1, length, 1, 64), jnp.bfloat16)
    program = jax.make_jaxpr(lambda *drawn: causal_attention(mask, how)(*drawn))
    assert ("pallas_call" in str(program(queries, queries, queries))) == used


def test_rows_that_are_too_long_are_refused_by_the_kernel_itself():
    length = 2**15 + 128
    queries = jax.ShapeDtypeStruct((1, length, 1, 64), jnp.bfloat16)
    starts = jax.ShapeDtypeStruct((1, length), jnp.int32)
    with pytest.raises(ValueError, match="got 32896 queries of a row, allowed are at most 32768"):
        jax.eval_shape(lambda *drawn: splash_attention(*drawn, 0), *[queries] * 3, *[starts] * 2)


@pytest.mark.parametrize(("dtype", "kernels"), [("float32", 0), ("bfloat16", 1)])
def test_a_model_that_is_set_to_float32_later_is_exact(dtype, kernels):
    config = DecoderConfig(64, 128, 192, 1, 2, 1, head_dim=64)
    options = {"dtype": jnp.bfloat16, "attention": "triton"}
    model = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), **options))
    model.dtype = jnp.dtype(dtype)
    graphdef, params = nnx.split(model)
    ids = jnp.zeros((1, 256), jnp.int32)
    program = jax.make_jaxpr(lambda params: nnx.merge(graphdef, params)(ids, ids, ids == 0))
    assert str(program(params)).count("name=flash_forward") == kernels


@pytest.mark.parametrize(
    ("setting", "platform", "dtype", "message"),
    [
        ("splash", "gpu", "bfloat16", "got splash, allowed on gpu are auto, plain, blockwise, tri"),
        ("triton", "cpu", "bfloat16", "got triton, allowed on cpu are auto, plain, blockwise"),
        ("triton", "gpu", "float32", "got triton with dtype float32 and head_dim 128, allowed are"),
    ],
)
def test_a_kernel_that_does_not_run_there_is_refused_by_name(setting, platform, dtype, message):
    with pytest.raises(ValueError, match=message):
        kind_for(setting, platform=platform, dtype=dtype, head_dim=128)


@pytest.mark.parametrize(
    ("remat", "attended", "projected", "products"),
    [
        (True, False, False, False),
        ("all_but_attention", True, False, False),
        ("all_but_mlp", True, True, False),
        ("all_but_products", True, True, True),
    ],
)
def test_what_a_setting_names_is_kept_for_the_backward_pass(remat, attended, projected, products):
    """Seen in a gradient's program: what the loop over layers hands on, of each of 9 layers."""
    config = DecoderConfig(64, 128, 192, 9, 2, 1, head_dim=64)
    options = {"dtype": jnp.bfloat16, "remat": remat, "attention": "triton"}
    model = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), **options))
    graphdef, params = nnx.split(model)
    prompts, rows = jnp.ones((1, 1, 256), jnp.int32), jnp.zeros((1, 2, 256), jnp.int32)

    def loss(params):
        model, of_rows = nnx.merge(graphdef, params), jnp.zeros((1, 2), jnp.int32)
        hidden = model.continue_prompts(prompts, prompts > 0, of_rows, rows, rows, rows)
        return hidden.sum(dtype=jnp.float32)

    loops = [
        equation
        for equation in jax.make_jaxpr(jax.grad(loss))(params).eqns
        if equation.primitive.name == "scan"
    ]
    stacks = [variable.aval.shape[1:] for variable in loops[0].outvars]
    kept = set(stacks)
    assert (1, 768, 128) in kept  # the input
    assert ({(2, 256, 2, 64), (2, 2, 256)} <= kept) == attended  # of rows, and their normaliser
    joined = (1, 768, 256) in kept  # queries, keys and values, where they are kept as one product
    apart = {(1, 768, 128), (1, 768, 64)} <= kept and stacks.count((1, 768, 128)) > 1
    assert (joined or apart) == projected
    assert ((1, 768, 384) in kept) == products  # gate and up
    assert len(kept) <= 8
