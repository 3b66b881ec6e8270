"""Placement on devices: an update on a mesh keeps the layout and equals one device's update."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import sys
    import jax
    import numpy as np
    from flax import nnx
    from training.learner.batching import split_rows
    from training.learner.grpo_step import make_grpo_step, make_grpo_optimizer
    from training.learner.optimizer import initial_state
    from training.learner.placement import get_placement
    from training.policy import huggingface
    from training.policy.architectures import DecoderConfig
    from training.policy.parameters import make_mesh
    from tests.training.learner.test_packing import *
    from training.policy.lora import add_adapters
    from training.schema import GrpoConfig, LoraConfig

    config = DecoderConfig(64, 32, 48, 1, 4, 2, head_dim=8, initializer_range=0.2)
    fsdp = int(sys.argv[2])
    settings = GrpoConfig(prompts_per_update=NUM_PROMPTS, completions=NUM_COMPLETIONS,
                          learning_rate=1e-3, ratio="token" if fsdp == 4 else "sequence")
    graphdef, params = make_random_model(config)
    folder = huggingface.save(nnx.merge(graphdef, params), sys.argv[1], tokenizer_from=None)
    lora = LoraConfig(rank=4) if "lora" in sys.argv else None

    def split_with_adapters(model):
        if lora is not None:
            add_adapters(model, lora, seed=0)
            for target in lora.targets:  # zeros would have a gradient of A that is zero
                kernel = getattr(model.layers, f"{target}_lora_b")
                kernel[...] = kernel[...] + 0.1
        return nnx.split(model)

    graphdef, params = split_with_adapters(nnx.merge(graphdef, params))
    mesh = make_mesh(fsdp=fsdp, tensor=4 // fsdp)
    batch = split_rows(make_rollout(5).make_batch(bundles=8, micro_batch_bundles=fsdp), 8 // fsdp)
    assert batch.groups.is_target.any(axis=(1, 2, 3)).sum() > 1  # several micro-batches are summed

    def take_two_steps(graphdef, params):
        step = make_grpo_step(graphdef, settings, None, 0.8, 10)
        state = initial_state(params, make_grpo_optimizer(settings, 10))
        layout = jax.tree.map(lambda leaf: leaf.sharding, state)
        output_layout, _ = step.lower(state, batch).compile().output_shardings
        assert jax.tree.leaves(output_layout) == jax.tree.leaves(layout)
        state, metrics = step(state, batch)
        state, metrics = step(state, batch)
        assert step._cache_size() == 1, "the second step was compiled again"
        assert jax.tree.map(lambda leaf: leaf.sharding, state) == layout
        return jax.device_get((state, metrics))

    single_state, single_metrics = take_two_steps(graphdef, params)
    sharded_model = split_with_adapters(huggingface.load(folder, mesh=mesh))
    kernels = [leaf for leaf in jax.tree.leaves(sharded_model[1]) if leaf.ndim == 3]
    is_split = [4 * np.prod(leaf.sharding.shard_shape(leaf.shape)) == leaf.size for leaf in kernels]
    assert lora is not None or all(is_split)
    parallel_state, parallel_metrics = take_two_steps(*sharded_model)
    expected = jax.tree.leaves(get_placement(*sharded_model).params)
    assert [leaf.sharding for leaf in jax.tree.leaves(sharded_model[1])] == expected
    metrics = single_metrics, parallel_metrics
    for a, b in zip(*map(jax.tree.leaves, metrics), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    # Adam divides by the gradient's size: where that is next to nothing, rounding
    # moves a weight by some hundredths of the learning rate.
    states = single_state, parallel_state
    for a, b in zip(*(jax.tree.leaves(state.params) for state in states), strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)
    for name in ("mu", "nu"):
        moments = [jax.tree.leaves(getattr(state.opt_state[1][0], name)) for state in states]
        for a, b in zip(*moments, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * np.abs(a).max())
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [["4"], ["2"], ["2", "lora"]], ids=" ".join)
def test_update_on_four_devices_equals_one_device(options, tmp_path):
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "model"), *options]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=300)
