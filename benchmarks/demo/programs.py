"""The programs, with the shapes of their arguments. Nothing of them is in memory.

Each is a jitted function of the library as it is called, not one like it; `generate` calls one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding

import jaxlake
from benchmarks.trainee.update import Work, shapes_of
from jaxlake.generator.quotas import BATCH_SIZE, CAPACITY, HORIZON, DrawOptions
from jaxlake.language.judging import BATCH_SIZE as JUDGED
from jaxlake.language.judging import verify_batch as verify
from training.environments.lake import _tabulate as tabulate
from training.learner.batching import round_up
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.huggingface import read_config, resolve
from training.policy.parameters import parameter_shapes
from training.policy.policy import _logprobs as score
from training.rollout.instances import _sum_of_distances as sum_of_distances
from training.schema import RunConfig
from training.weight_transfer.checksums import weight_checksum

PROMPT = 81
"""Tokens of the miniature's longest prompt, a 6x6 board, without its last."""


@dataclass(frozen=True)
class Call:
    """A jitted function and the arguments of one call, of which arrays are shapes."""

    name: str
    function: Any
    arguments: tuple[Any, ...]
    exact: bool  # whether its products of float32 are promised to be exact


def calls(config: RunConfig, device: Any) -> Iterator[Call]:
    """Yield the calls of a run of `config` on one device, which need not be there."""
    shape = read_config(resolve(str(config.model.pretrained)))
    yield from _of_the_learner(config, shape, device)
    yield from _of_the_lake(config, device)


def _of_the_learner(config: RunConfig, shape: DecoderConfig, device: Any) -> Iterator[Call]:
    grpo, answer = config.grpo, config.prompt.max_tokens
    groups = grpo.micro_batch_size // grpo.completions
    work = Work(
        *(shape, groups, round_up(PROMPT, grpo.length_bucket), groups * grpo.completions, answer),
        *(config.micro_batches, 1, 1),
        dtype=config.model.dtype,
        remat=config.model.remat,
        temperature=config.sampling.temperature,
        attention=config.model.attention,
    )
    # Rows are a multiple of the bundle's prompts: the fewest, and as many as there are answers.
    for rows in (groups, work.rows):
        step, state, batch = shapes_of(replace(work, rows=rows), [device])
        yield Call(f"update of {rows} rows", step, (state, batch), config.model.dtype == "float32")
    model = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0), dtype=jnp.dtype(work.dtype)))
    graphdef, params = nnx.split(model)
    params = _placed(params, device)
    length = round_up(PROMPT + 1 + answer, grpo.length_bucket)
    sequences = (config.sampling.sync_sequences, length)
    ids, mask = (_array(device, kind, *sequences) for kind in (np.int32, bool))
    yield Call("score after a sync", score, (params, ids, ids, mask, graphdef), True)
    for sides in sorted(set(parameter_shapes(shape).values())):
        tensor = _array(device, np.float32, *sides[1:] if len(sides) == 3 else sides)
        yield Call(f"checksum of {tensor.shape}", weight_checksum, (tensor,), True)


@partial(jax.jit, static_argnames="options")
def generate(key: jax.Array, params: jaxlake.LakeParams, options: DrawOptions) -> Any:
    """Make boards by one program, as `DrawOptions.draw` does for two agents on accelerators."""
    settings = dict(vars(options))
    return jaxlake.generate(key, params, settings.pop("capacity"), **settings)


def _of_the_lake(config: RunConfig, device: Any) -> Iterator[Call]:
    lake = config.lake
    agents, size = lake.num_agents, max((*config.cells.sizes, *lake.bounds.sizes))
    options = DrawOptions(CAPACITY, size, agents, HORIZON, lake.max_candidates, BATCH_SIZE)
    params = jaxlake.lake_params(size, 0.2, num_agents=agents)
    request = jax.eval_shape(lambda: (jax.random.key(0), params))
    made = jax.eval_shape(lambda key, params: generate(key, params, options), *request)
    yield Call("generate", generate, (*_placed(request, device), options), False)

    def rows(tree: Any, count: int) -> Any:
        return jax.tree.map(lambda leaf: _array(device, leaf.dtype, count, *leaf.shape[1:]), tree)

    boards, solutions = (rows(part, JUDGED) for part in (made.instances, made.solutions))
    plans = _array(device, np.int8, JUDGED, config.prompt.max_steps, agents)
    lengths, parsed = _array(device, np.int32, JUDGED), _array(device, bool, JUDGED)
    arguments = (boards, plans, lengths, parsed, solutions)
    yield Call("verify", verify, arguments, False)
    outcomes = jax.eval_shape(verify, *arguments)
    count = config.cells.cells * config.cells.per_cell
    waits = _array(device, made.solutions.needs_wait.dtype, count)
    boards, outcomes, solutions = (rows(part, count) for part in (boards, outcomes, solutions))
    yield Call("tabulate", tabulate, (boards, waits, outcomes, None, solutions), False)
    yield Call(
        "sum of distances", sum_of_distances, (rows(boards, config.stages.instances),), False
    )


def _array(device: Any, dtype: Any, *sides: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sides, dtype, sharding=SingleDeviceSharding(device))


def _placed(tree: Any, device: Any) -> Any:
    return jax.tree.map(lambda leaf: _array(device, leaf.dtype, *leaf.shape), tree)
