"""Compiled program of a chunk of a sweep: P policies play boards of C configurations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.generator import Generated, LakeParams, generate, hole_count
from jaxlake.policies.joint_rollout import JointPolicy, play_boards
from jaxlake.runtime.cpu_devices import jit_search
from jaxlake.runtime.random_keys import check_key, fold_in_each
from jaxlake.solver.chunks import limits_for
from jaxlake.statistics.summaries import Summary, summarize
from jaxlake.statistics.tables import Statistics, tabulate


class ChunkOptions(NamedTuple):
    """Static options of a chunk's program."""

    policies: tuple[JointPolicy, ...]  # P policies
    boards: int  # B, boards per configuration
    max_size: int  # padded side of the boards
    max_agents: int  # number of agent slots
    horizon: int  # longest plan of the solver, in steps
    max_steps: int  # time limit of an episode, in steps
    conflict: ConflictPolicy
    max_candidates: int | None  # see `generate`
    tables: bool  # whether to also return full tables


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ChunkResult:
    """Counters of C configurations and P policies."""

    summaries: Summary  # leaves (C, P, ...)
    tables: Statistics | None  # leaves (C, P, ...), None unless requested


@cache
def chunk_program(
    options: ChunkOptions, devices: tuple[jax.Device, ...]
) -> Callable[[jax.Array, LakeParams, jax.Array], ChunkResult]:
    """Return a function that generates the boards of configurations and lets policies play them.

    Row c of a result depends only on the key, the parameters and the index of configuration c, not
    on the other configurations of the chunk, their number, or the devices. With
    `boards, play = jax.random.split(key)`, its boards come from `generate` with the key
    `fold_in(boards, index)`, and policies play board b with the key
    `fold_in(fold_in(play, index), b)`.

    Args:
        options: Static options.
        devices: At least one device; the configurations are divided among them. All processes that
            own one of the devices must make the same calls.

    Returns:
        A function of a typed key (), parameters with leaves (C, S), S entries per configuration,
        and the indices of the configurations in the sweep, uint32 (C,). It returns a `ChunkResult`
        on all devices.

    Raises:
        ValueError: `policies` or `devices` is empty. The returned function raises it if `key`
            has kind `rbg` or `unsafe_rbg`.
    """
    if not options.policies:
        raise ValueError("policies must have at least one policy, got none")
    if not devices:
        raise ValueError("devices must have at least one device, got none")
    mesh = jax.sharding.Mesh(np.array(devices), ("configurations",))
    replicated_spec = jax.sharding.PartitionSpec()
    sharded_spec = jax.sharding.PartitionSpec("configurations")
    run_shards = jax.shard_map(
        partial(_run_configurations, options, devices[0].platform),
        mesh=mesh,
        in_specs=(replicated_spec, sharded_spec, sharded_spec),
        out_specs=sharded_spec,
    )

    def run(key: jax.Array, params: LakeParams, indices: jax.Array) -> ChunkResult:
        C = indices.shape[0]
        rows = np.arange(-(-C // len(devices)) * len(devices))
        # Configurations that pad the last shard have size 0, for which `generate` draws no boards.
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows % C], params)
        size = jnp.where(rows[:, None] < C, params.size, 0)
        params = LakeParams(**(vars(params) | {"size": size}))
        result = run_shards(key, params, jnp.asarray(indices, jnp.uint32)[rows % C])
        return jax.tree.map(lambda leaf: leaf[:C], result)

    program = jit_search(run, out_shardings=jax.sharding.NamedSharding(mesh, replicated_spec))
    local_devices = [device for device in devices if device.process_index == jax.process_index()]

    def run_on_devices(key: jax.Array, params: LakeParams, indices: jax.Array) -> ChunkResult:
        check_key(key)
        # Policies that call the solver choose its search limits by the default device.
        with jax.default_device(local_devices[0] if local_devices else None):
            return program(key, params, indices)

    return run_on_devices


def _run_configurations(
    options: ChunkOptions, platform: str, key: jax.Array, params: LakeParams, indices: jax.Array
) -> ChunkResult:
    """Generate and play the boards of configurations on one device."""
    boards_key, play_key = jax.random.split(key)
    generate_boards = partial(
        generate,
        n=options.boards,
        max_size=options.max_size,
        max_agents=options.max_agents,
        horizon=options.horizon,
        max_candidates=options.max_candidates,
        limits=limits_for(platform),
    )
    generated = jax.vmap(generate_boards)(fold_in_each(boards_key, indices), params)
    board_indices = jnp.arange(options.boards, dtype=jnp.uint32)
    play_keys = jax.vmap(fold_in_each, (0, None))(fold_in_each(play_key, indices), board_indices)
    results = [
        _evaluate_policy(options, policy, play_keys, generated, params)
        for policy in options.policies
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *results)


def _evaluate_policy(
    options: ChunkOptions,
    policy: JointPolicy,
    keys: jax.Array,
    generated: Generated,
    params: LakeParams,
) -> ChunkResult:
    """Let a policy play all boards with keys (C, B); return leaves (C, ...)."""
    rollouts = jax.vmap(
        lambda keys, boards, optima: play_boards(
            keys, policy, boards, options.max_steps, optima, options.conflict
        )
    )(keys, generated.instances, generated.solutions)
    candidates, unknown = _candidate_counts(generated, params)
    summaries = jax.vmap(summarize)(
        generated.instances,
        rollouts.outcome,
        generated.solutions,
        generated.filled,
        candidates=candidates,
        unknown=unknown,
        missing=options.boards - jnp.sum(generated.filled, axis=1, dtype=jnp.int32),
    )
    tables = None
    if options.tables:
        tables = jax.vmap(tabulate)(
            generated.instances,
            generated.solutions.needs_wait,
            rollouts.outcome,
            generated.filled,
            generated.solutions,
        )
    return ChunkResult(summaries, tables)


def _candidate_counts(generated: Generated, params: LakeParams) -> tuple[jax.Array, jax.Array]:
    """Return the numbers of candidates and of UNKNOWN candidates, int32 (C,) each.

    Entries of a configuration with the same size, hole count and number of agents share their
    candidates, which are counted once.
    """
    holes = hole_count(params.size, params.hole_ratio)
    entries = jnp.stack([params.size, holes, params.num_agents], axis=-1)
    is_same = jnp.all(entries[:, :, None] == entries[:, None], axis=-1)
    is_first = jnp.argmax(is_same, axis=-1) == np.arange(entries.shape[1])
    candidates, unknown = (
        jnp.sum(jnp.where(is_first, counts, 0), axis=1, dtype=jnp.int32)
        for counts in (generated.candidates, generated.unknown)
    )
    return candidates, unknown
