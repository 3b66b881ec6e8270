"""Joint policies: protocol, rollouts, and statistics over policies and configurations."""

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
from jaxlake.environment.conflict_policies import ConflictPolicy, conflict_policy, resolve
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.memory import require_memory
from jaxlake.runtime.random_keys import check_key
from jaxlake.solver import DEFAULT_HORIZON, Solution
from jaxlake.solver.materialize import materialize
from jaxlake.statistics.tables import Statistics, tabulate

_STEPS_PER_TEST = 4  # steps between tests of the loop condition, which synchronise GPU and host


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
            time: int32 (), steps made so far.
            memory: the memory returned by `start` or the previous `act`.

        Returns:
            (actions, memory): int8 (K,), and memory of the same structure, shapes and dtypes.
        """


def check_policy(name: str, policy: object) -> None:
    """Raise `ValueError` if an object lacks a method of `JointPolicy` or is not hashable."""
    if isinstance(policy, type):
        raise ValueError(f"got the class {name}, an object of it is needed")
    for method in ("start", "act"):
        if not callable(getattr(policy, method, None)):
            raise ValueError(f"got {name}, which is not a JointPolicy: it has no method {method}")
    try:
        hash(policy)
    except TypeError:
        raise ValueError(
            f"got {name}, which can't be hashed; a policy needs @dataclass(frozen=True), or "
            "@dataclass(frozen=True, eq=False) if it holds arrays"
        ) from None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointRollout:
    """Episodes of a policy on B boards."""

    actions: jax.Array  # int8 (B, T, K), the executed actions; WAIT from `length` on
    length: jax.Array  # int32 (B,), steps until the goals, the first broken rule, or T
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
            actions of another shape than (K,), `max_steps` is below 1 or T * K above 32767, the
            boards don't have one leading axis, or the conflict policy is unknown.
        MemoryError: Outside jit: the episodes would not fit into the free memory.
    """
    check_key(key)
    _check(instances, 1, [policy], max_steps)
    B, N, K = (*np.shape(instances.holes)[:2], np.shape(instances.agent_mask)[1])
    require_memory("roll_out", (key, instances), B, 3 * max_steps * K + 2 * N**2)
    conflict = conflict_policy(conflict)
    instances = jax.tree.map(jnp.asarray, instances)
    keys = _numbered_keys(key, jnp.arange(instances.size.shape[0]))
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
    """Play every board once as in `roll_out`, without checks and with one key per board, (B,)."""
    play = merge_batch_axes(partial(_play_batch, policy, max_steps=max_steps, conflict=conflict))
    actions, length = play(keys, instances)
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
        first: the absolute number of the first configuration. It makes the results independent of
            how configurations are split into calls.
        devices: devices that share the boards (static); one device if None. They may span several
            processes, such as `jax.devices()` after `jax.distributed.initialize`; then every
            process makes the same call with the same boards.

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
        raise TypeError(f"policies: got {policies!r:.100}, a list of policies is needed")
    conflict = conflict_policy(conflict)
    if not policies:
        raise ValueError("policies: got none, at least one is needed")
    if devices is not None and not devices:
        raise ValueError("devices: got none, at least one is needed")
    _check(instances, 2, policies, max_steps)
    instances, solutions = jax.tree.map(jnp.asarray, (instances, solutions))
    C, B = instances.size.shape
    counted = jnp.ones((C, B), bool) if mask is None else jnp.asarray(mask, bool)
    numbers = jnp.uint32(first) + jnp.arange(C, dtype=jnp.uint32)
    keys = jax.vmap(_numbered_keys, (0, None))(_numbered_keys(key, numbers), jnp.arange(B))
    options = _SweepOptions(tuple(policies), max_steps, conflict)
    if devices is None:
        return _tables(options, None, keys, instances, solutions, counted)
    # Planning policies choose a solver for the default device, which must be one of `devices` even
    # if a machine with a GPU sweeps on its CPU cores.
    own = [device for device in devices if device.process_index == jax.process_index()]
    with jax.default_device(own[0] if own else None):
        return _sharded_tables(options, tuple(devices))(keys, instances, solutions, counted)


def _check(instances: Instance, axes: int, policies: Sequence[JointPolicy], max_steps: int) -> None:
    for policy in policies:
        try:
            name = policy.__name__ if isinstance(policy, type) else type(policy).__name__
            check_policy(repr(policy) if isinstance(policy, str) else name, policy)
        except ValueError as error:
            hint = "; policy_of(name) returns a policy" if isinstance(policy, str) else ""
            raise ValueError(f"policy: {error}{hint}") from None
    if not isinstance(max_steps, int | np.integer):
        raise TypeError(f"max_steps: got {max_steps!r}, a whole number is needed")
    check_instance(instances)
    limit = np.iinfo(np.int16).max // max(np.shape(instances.agent_mask)[-1], 1)
    if not 1 <= max_steps <= limit:
        raise ValueError(f"max_steps: got {max_steps}, 1 to {limit} are allowed")
    if len(shape := np.shape(instances.size)) != axes:
        needed = "one leading axis is" if axes == 1 else "two leading axes are"
        raise ValueError(f"instances: got size of shape {shape}, {needed} needed")


class _SweepOptions(NamedTuple):
    policies: tuple[JointPolicy, ...]
    max_steps: int
    conflict: ConflictPolicy


@partial(jax.jit, static_argnums=(0, 1))
def _tables(
    options: _SweepOptions,
    axis_name: str | None,
    keys: jax.Array,
    instances: Instance,
    solutions: Solution,
    counted: jax.Array,
) -> Statistics:
    """Return the tables of a sweep with keys (C, B), summed over the device axis if any."""
    policies, max_steps, conflict = options

    def table(
        policy: JointPolicy, keys: jax.Array, boards: Instance, optima: Solution, counted: jax.Array
    ) -> Statistics:
        played = play_boards(keys, policy, boards, max_steps, optima, conflict)
        return tabulate(
            boards, optima.needs_wait, played.outcome, counted, optima, axis_name=axis_name
        )

    tables = [
        jax.vmap(partial(table, policy))(keys, instances, solutions, counted) for policy in policies
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)


@cache
def _sharded_tables(
    options: _SweepOptions, devices: tuple[jax.Device, ...]
) -> Callable[..., Statistics]:

    def share_tables(*boards: Any) -> Statistics:
        tables = _tables(options, "boards", *boards)
        return jax.lax.all_gather(tables, "configurations", axis=1, tiled=True)

    @jax.jit
    def tables(keys: jax.Array, *boards: Any) -> Statistics:
        C, B = keys.shape
        rows = math.gcd(C, len(devices))
        grid = np.array(devices).reshape(rows, -1)
        mesh = jax.sharding.Mesh(grid, ("configurations", "boards"))
        share = jax.sharding.PartitionSpec("configurations", "boards")
        everywhere = jax.sharding.PartitionSpec()
        # Boards that pad the shards are played but not counted.
        places = np.arange(-(-B // grid.shape[1]) * grid.shape[1])
        *played, counted = jax.tree.map(lambda leaf: leaf[:, places % B], (keys, *boards))
        play = jax.shard_map(
            share_tables, mesh=mesh, in_specs=share, out_specs=everywhere, check_vma=False
        )
        return play(*played, counted & (places < B))

    return tables


@jax.jit
def _numbered_keys(key: jax.Array, numbers: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


class _Episodes(NamedTuple):
    """The state of B episodes after some steps."""

    time: jax.Array  # int32 ()
    positions: jax.Array  # int8 (B, K, 2)
    length: jax.Array  # int32 (B,)
    over: jax.Array  # bool (B,)
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
    key_start, key_act = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)

    def choose(*inputs: Any) -> tuple[jax.Array, Any]:
        actions, memory = policy.act(*inputs)
        return validate_actions(actions, mask.shape[1]), memory

    start, act = jax.vmap(policy.start), jax.vmap(choose, (0, 0, 0, None, 0))
    fold_in = jax.vmap(jax.random.fold_in, (0, None))

    def step(_: Any, episodes: _Episodes) -> _Episodes:
        time, positions, length, over, memory, recorded = episodes
        keys = fold_in(key_act, time)
        actions, memory = act(keys, instances, positions, time, memory)
        actions = jnp.where(mask & ~over[:, None], actions, jnp.int8(Action.WAIT))
        # Otherwise XLA recomputes the policy wherever the rules read an action.
        actions = materialize(actions, time >= 0)
        resolved = jax.vmap(partial(resolve, conflict))(instances, positions, actions)
        length = jnp.where(over, length, time + 1)
        over |= resolved.failed | (resolved.num_away == 0) | (length >= max_steps)
        recorded = jax.lax.dynamic_update_index_in_dim(recorded, resolved.executed, time, 0)
        return _Episodes(time + 1, resolved.positions, length, over, memory, recorded)

    def advance_several(episodes: _Episodes) -> _Episodes:
        return jax.lax.fori_loop(0, _STEPS_PER_TEST, step, episodes)

    starts = instances.starts.astype(jnp.int8)
    B, K = mask.shape
    initial = _Episodes(
        time=jnp.int32(0),
        positions=starts,
        length=jnp.zeros(B, jnp.int32),
        over=jnp.all((starts == goals) | ~mask[..., None], axis=(1, 2)),
        memory=start(key_start, instances),
        actions=jnp.zeros((-(-max_steps // _STEPS_PER_TEST) * _STEPS_PER_TEST, B, K), jnp.int8),
    )
    final = jax.lax.while_loop(lambda episodes: ~jnp.all(episodes.over), advance_several, initial)
    return jnp.moveaxis(final.actions[:max_steps], 0, 1), final.length
