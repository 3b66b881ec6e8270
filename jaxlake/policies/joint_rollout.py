"""Protocol of joint policies, their rollouts, and tables of their results by configuration."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action, validate_actions
from jaxlake.board.instance import Instance, check_instance
from jaxlake.board.verification import Outcome, verify
from jaxlake.environment.conflict_policies import ConflictPolicy, parse_conflict_policy, resolve
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.memory import require_memory
from jaxlake.runtime.random_keys import check_key, fold_in_each
from jaxlake.solver import DEFAULT_HORIZON, Solution
from jaxlake.solver.materialize import materialize
from jaxlake.statistics.tables import Statistics, tabulate

_STEPS_PER_TEST = 4  # steps between exit tests; on a GPU each test synchronises with the host


class JointPolicy(Protocol):
    """Protocol of policies that choose the actions of all agents.

    Policies are hashable, and both methods can be jitted, vmapped and scanned.
    """

    def start(self, key: jax.Array, instance: Instance) -> Any:
        """Return the initial memory for a board, any pytree of arrays."""

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, Any]:
        """Choose one joint action.

        Args:
            key: typed PRNG key.
            instance: the board, unbatched.
            positions: int8 (K, 2).
            time: int32 (), number of steps already taken.
            memory: the memory returned by `start` or the previous `act`.

        Returns:
            (actions, memory): integers (K,), where values other than 0 to 4 count as leaving the
            board; and memory of the same structure, shapes and dtypes.
        """


def check_policy(name: str, policy: object) -> None:
    """Raise `ValueError` if an object lacks a method of `JointPolicy` or is not hashable."""
    if isinstance(policy, type):
        raise ValueError(f"must be an object with methods start and act, got the class {name}")
    for method in ("start", "act"):
        if not callable(getattr(policy, method, None)):
            raise ValueError(f"must be a JointPolicy, got {name}, which has no method {method}")
    try:
        hash(policy)
    except TypeError:
        raise ValueError(
            f"must be hashable, got {name}; use @dataclass(frozen=True), or "
            "@dataclass(frozen=True, eq=False) for a policy with arrays"
        ) from None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointRollout:
    """Episodes of at most T steps of a policy on B boards with K slots."""

    actions: jax.Array  # int8 (B, T, K), the executed actions; WAIT from `length` on
    length: jax.Array  # int32 (B,), steps until all goals are reached, a rule is broken, or T
    outcome: Outcome  # leaves (B, ...), verification of `actions` as a plan


def roll_out(
    key: jax.Array,
    policy: JointPolicy,
    instances: Instance,
    *,
    max_steps: int = DEFAULT_HORIZON,
    solutions: Solution | None = None,
    conflict: ConflictPolicy | str = ConflictPolicy.FAIL,
) -> JointRollout:
    """Play every board once with a policy.

    Can be jitted, and vmapped over keys, boards and configurations.

    Args:
        key: typed PRNG key; board b depends only on `fold_in(key, b)`.
        policy: the policy (static).
        instances: leaves (B, ...).
        max_steps: T, the time limit in steps (static).
        solutions: leaves (B, ...), the optima to compare with; without them no outcome is optimal.
        conflict: the conflict policy or its name (static). With BLOCK_BOTH and PRIORITY the
            executed actions break no rule, and the only failure is GOAL_NOT_REACHED.

    Returns:
        The `JointRollout`.

    Raises:
        TypeError: `key` is not a typed key, `instances` is not an `Instance`, or `max_steps` is not
            an integer.
        ValueError: `key` is of kind `rbg` or `unsafe_rbg`, `policy` is not a policy or returns
            actions of another shape than (K,) or memory of another type, `max_steps` is below 1 or
            T * K above 32767, the boards don't have one leading axis, or the conflict policy is
            unknown.
        MemoryError: Outside jit: the episodes would not fit into the free memory.
    """
    check_key(key)
    _check_arguments(instances, 1, [policy], max_steps)
    B, N, K = (*np.shape(instances.holes)[:2], np.shape(instances.agent_mask)[1])
    require_memory("roll_out", (key, instances), B, 3 * max_steps * K + 2 * N**2)
    conflict = parse_conflict_policy(conflict)
    instances = jax.tree.map(jnp.asarray, instances)
    keys = fold_in_each(key, jnp.arange(instances.size.shape[0]))
    return play_boards(keys, policy, instances, max_steps, solutions, conflict)


@partial(jax.jit, static_argnames=("policy", "max_steps", "conflict"))
def play_boards(
    keys: jax.Array,
    policy: JointPolicy,
    instances: Instance,
    max_steps: int,
    solutions: Solution | None,
    conflict: ConflictPolicy,
) -> JointRollout:
    """Play every board once, as `roll_out`, but without checks and with keys (B,)."""
    weights, restore = _traced_fields(policy)

    def play(keys: jax.Array, instances: Instance, *weights: jax.Array) -> Any:
        traced_policy = restore(weights)
        return _play_batch(traced_policy, keys, instances, max_steps=max_steps, conflict=conflict)

    play = merge_batch_axes(play, num_shared=len(weights))
    actions, length = play(keys, instances, *weights)
    verify_all = jax.vmap(verify, (0, 0, 0, None, 0))
    outcome = verify_all(instances, actions, length, jnp.bool_(True), solutions)
    return JointRollout(actions=actions, length=length, outcome=outcome)


def sweep(
    key: jax.Array,
    policies: Sequence[JointPolicy],
    instances: Instance,
    solutions: Solution,
    mask: jax.Array | None = None,
    *,
    max_steps: int = DEFAULT_HORIZON,
    conflict: ConflictPolicy | str = ConflictPolicy.FAIL,
    first: jax.Array | int = 0,
    devices: Sequence[jax.Device] | None = None,
) -> Statistics:
    """Tabulate the outcomes of policies over configurations, in one program.

    All policies play B boards of each of C configurations with the same keys.

    Args:
        key: typed PRNG key.
        policies: P policies (static).
        instances: the boards, leaves (C, B, ...).
        solutions: their optima, leaves (C, B, ...), such as `Generated.solutions`.
        mask: bool (C, B), the boards to count, such as `Generated.filled`; all if None.
        max_steps: see `roll_out` (static).
        conflict: see `roll_out` (static).
        first: the index of the first configuration among all calls, so that results do not depend
            on how the configurations are divided into calls.
        devices: devices that share the boards (static); one device if None. They may belong to
            several processes, such as `jax.devices()` after `jax.distributed.initialize`; every
            process must then make the same call with the same boards.

    Returns:
        `Statistics` with leaves (P, C, ...), replicated on all devices. They do not depend on the
        number of devices.

    Raises:
        TypeError: `key` is not a typed key, `policies` is not a list, or `instances` is not an
            `Instance`.
        ValueError: `key` is of kind `rbg` or `unsafe_rbg`, `policies` or `devices` is empty, an
            element is not a policy, the conflict policy is unknown, or the boards don't have two
            leading axes.
    """
    check_key(key)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise TypeError(f"policies must be a list of policies, got {policies!r:.100}")
    conflict = parse_conflict_policy(conflict)
    if not policies:
        raise ValueError("policies must have at least 1 policy, got none")
    if devices is not None and not devices:
        raise ValueError("devices must have at least 1 device, got none")
    _check_arguments(instances, 2, policies, max_steps)
    instances, solutions = jax.tree.map(jnp.asarray, (instances, solutions))
    C, B = instances.size.shape
    mask = jnp.ones((C, B), bool) if mask is None else jnp.asarray(mask, bool)
    keys = fold_in_each(key, jnp.uint32(first) + jnp.arange(C, dtype=jnp.uint32))
    keys = jax.vmap(fold_in_each, (0, None))(keys, jnp.arange(B))
    options = _SweepOptions(tuple(policies), max_steps, conflict)
    if devices is None:
        return _tabulate_policies(options, None, keys, instances, solutions, mask)
    # Planning policies choose a solver for the default device. It must be one of `devices`, which
    # may be the CPU cores of a machine with a GPU.
    local_devices = [device for device in devices if device.process_index == jax.process_index()]
    with jax.default_device(local_devices[0] if local_devices else None):
        return _make_sharded_sweep(options, tuple(devices))(keys, instances, solutions, mask)


def _check_arguments(
    instances: Instance, num_axes: int, policies: Sequence[JointPolicy], max_steps: int
) -> None:
    for policy in policies:
        try:
            name = policy.__name__ if isinstance(policy, type) else type(policy).__name__
            check_policy(repr(policy) if isinstance(policy, str) else name, policy)
        except ValueError as error:
            hint = "; policy_of(name) returns a policy" if isinstance(policy, str) else ""
            raise ValueError(f"policy: {error}{hint}") from None
    if not isinstance(max_steps, int | np.integer):
        raise TypeError(f"max_steps must be an integer, got {max_steps!r}")
    check_instance(instances)
    max_allowed = np.iinfo(np.int16).max // max(np.shape(instances.agent_mask)[-1], 1)
    if not 1 <= max_steps <= max_allowed:
        raise ValueError(f"max_steps must be in [1, {max_allowed}], got {max_steps}")
    shape = np.shape(instances.size)
    if len(shape) != num_axes:
        requirement = "one leading axis" if num_axes == 1 else "two leading axes"
        raise ValueError(f"instances must have {requirement}, got size of shape {shape}")


def _traced_fields(policy: JointPolicy) -> tuple[list[jax.Array], Callable[..., JointPolicy]]:
    """Return the traced arrays in the fields of a policy, and a function that replaces them.

    `jax.vmap` can map over arguments of a function, but not over arrays that it closes over.
    """
    leaves, structure = jax.tree.flatten(getattr(policy, "__dict__", {}))
    is_traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
    if not any(is_traced):
        return [], lambda _: policy

    def restore(arrays: Sequence[jax.Array]) -> JointPolicy:
        copied_policy, remaining_arrays = copy.copy(policy), iter(arrays)
        pairs = zip(leaves, is_traced, strict=True)
        new_leaves = [next(remaining_arrays) if traced else x for x, traced in pairs]
        copied_policy.__dict__.update(jax.tree.unflatten(structure, new_leaves))
        return copied_policy

    return [leaf for leaf, traced in zip(leaves, is_traced, strict=True) if traced], restore


class _SweepOptions(NamedTuple):
    policies: tuple[JointPolicy, ...]
    max_steps: int
    conflict: ConflictPolicy


@partial(jax.jit, static_argnums=(0, 1))
def _tabulate_policies(
    options: _SweepOptions,
    axis_name: str | None,
    keys: jax.Array,
    instances: Instance,
    solutions: Solution,
    mask: jax.Array,
) -> Statistics:
    """Return tables (P, C, ...) for keys (C, B), summed over the device axis `axis_name` if any."""
    policies, max_steps, conflict = options

    def make_table(
        policy: JointPolicy, keys: jax.Array, boards: Instance, optima: Solution, mask: jax.Array
    ) -> Statistics:
        rollout = play_boards(keys, policy, boards, max_steps, optima, conflict)
        return tabulate(
            boards, optima.needs_wait, rollout.outcome, mask, optima, axis_name=axis_name
        )

    tables = [
        jax.vmap(partial(make_table, policy))(keys, instances, solutions, mask)
        for policy in policies
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)


@cache
def _make_sharded_sweep(
    options: _SweepOptions, devices: tuple[jax.Device, ...]
) -> Callable[..., Statistics]:
    """Return `_tabulate_policies` with the boards distributed over devices."""

    def tabulate_shard(*boards: Any) -> Statistics:
        tables = _tabulate_policies(options, "boards", *boards)
        return jax.lax.all_gather(tables, "configurations", axis=1, tiled=True)

    @jax.jit
    def sharded_sweep(keys: jax.Array, *boards: Any) -> Statistics:
        C, B = keys.shape
        device_grid = np.array(devices).reshape(math.gcd(C, len(devices)), -1)
        mesh = jax.sharding.Mesh(device_grid, ("configurations", "boards"))
        sharded = jax.sharding.PartitionSpec("configurations", "boards")
        replicated = jax.sharding.PartitionSpec()
        # Boards that pad the shards are played but not counted.
        num_columns = device_grid.shape[1]
        board_indices = np.arange(-(-B // num_columns) * num_columns)
        *padded, mask = jax.tree.map(lambda leaf: leaf[:, board_indices % B], (keys, *boards))
        tabulate_shards = jax.shard_map(
            tabulate_shard, mesh=mesh, in_specs=sharded, out_specs=replicated, check_vma=False
        )
        return tabulate_shards(*padded, mask & (board_indices < B))

    return sharded_sweep


def _memory_layout(memory: Any) -> Any:
    return jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", memory)


class _Episodes(NamedTuple):
    """The state of B episodes after `time` steps."""

    time: jax.Array  # int32 ()
    positions: jax.Array  # int8 (B, K, 2)
    length: jax.Array  # int32 (B,)
    done: jax.Array  # bool (B,)
    memory: Any  # leaves (B, ...)
    actions: jax.Array  # int8 (T, B, K), WAIT from `time` on


def _play_batch(
    policy: JointPolicy,
    keys: jax.Array,
    instances: Instance,
    *,
    max_steps: int,
    conflict: ConflictPolicy,
) -> tuple[jax.Array, jax.Array]:
    """Play one episode per board; return actions, int8 (B, T, K), and lengths, int32 (B,)."""
    mask, goals = instances.agent_mask, instances.goals
    start_keys, act_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)

    def choose_actions(*inputs: Any) -> tuple[jax.Array, Any]:
        result = policy.act(*inputs)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(f"policy: act must return (actions, memory), got {result!r:.100}")
        actions, memory = result
        layout, new_layout = map(_memory_layout, (inputs[-1], memory))
        if layout != new_layout:
            raise ValueError(f"policy: act must return memory like {layout}, got {new_layout}")
        return validate_actions(actions, mask.shape[1]), memory

    start, act = jax.vmap(policy.start), jax.vmap(choose_actions, (0, 0, 0, None, 0))
    fold_in = jax.vmap(jax.random.fold_in, (0, None))

    def step(_: Any, episodes: _Episodes) -> _Episodes:
        time, positions, length, done, memory, executed_actions = episodes
        actions, memory = act(fold_in(act_keys, time), instances, positions, time, memory)
        actions = jnp.where(mask & ~done[:, None], actions, jnp.int8(Action.WAIT))
        # Without this, XLA recomputes the policy wherever the rules read an action.
        actions = materialize(actions, time >= 0)
        resolution = jax.vmap(partial(resolve, conflict))(instances, positions, actions)
        length = jnp.where(done, length, time + 1)
        done |= resolution.failed | (resolution.num_away == 0) | (length >= max_steps)
        executed_actions = jax.lax.dynamic_update_index_in_dim(
            executed_actions, resolution.executed, time, 0
        )
        return _Episodes(time + 1, resolution.positions, length, done, memory, executed_actions)

    def run_steps(episodes: _Episodes) -> _Episodes:
        return jax.lax.fori_loop(0, _STEPS_PER_TEST, step, episodes)

    starts = instances.starts.astype(jnp.int8)
    B, K = mask.shape
    start_state = _Episodes(
        time=jnp.int32(0),
        positions=starts,
        length=jnp.zeros(B, jnp.int32),
        done=jnp.all((starts == goals) | ~mask[..., None], axis=(1, 2)),
        memory=start(start_keys, instances),
        actions=jnp.zeros((-(-max_steps // _STEPS_PER_TEST) * _STEPS_PER_TEST, B, K), jnp.int8),
    )
    end = jax.lax.while_loop(lambda episodes: ~jnp.all(episodes.done), run_steps, start_state)
    return jnp.moveaxis(end.actions[:max_steps], 0, 1), end.length
