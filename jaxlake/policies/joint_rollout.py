"""Scripted joint policies: their protocol, rollouts, and tables of failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import Action
from jaxlake.environment.conflict_policies import ConflictPolicy, resolve
from jaxlake.instance import Instance
from jaxlake.solver import DEFAULT_HORIZON, Solution
from jaxlake.solver.solution import unknown_solution
from jaxlake.statistics import Statistics, tabulate
from jaxlake.verification import Outcome, verify


class JointPolicy(Protocol):
    """Decides for all agents at once. Both methods can be jitted, vmapped and scanned.

    A policy has to be hashable. What it needs to know of a board it computes once, in `start`, and
    finds again in its memory.
    """

    def start(self, key: jax.Array, instance: Instance) -> Any:
        """Look at the board before the first step; give the memory, any pytree of arrays."""

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, Any]:
        """Choose one joint action, int8 (K,).

        The agents stand at `positions`, int8 (K, 2), after `time` steps, int32 (). `memory` is what
        `start` or the last `act` returned; it is given back with the same tree, shapes and dtypes.
        """


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointRollout:
    """What a policy did on boards (B,)."""

    actions: jax.Array  # int8 (B, T, K), as carried out; WAIT from `length` on
    length: jax.Array  # int32 (B,), steps until the goals, the first broken rule, or T
    outcome: Outcome  # leaves (B, ...), of `actions` as a plan


def roll_out(
    key: jax.Array,
    policy: JointPolicy,
    instances: Instance,
    *,
    max_steps: int = DEFAULT_HORIZON,
    solutions: Solution | None = None,
    conflict: ConflictPolicy = ConflictPolicy.FAIL,
) -> JointRollout:
    """Let a policy play every board once.

    Args:
        key: typed PRNG key; board b depends on `fold_in(key, b)` alone.
        policy: static.
        instances: leaves (B, ...).
        max_steps: T, the time limit in steps (static).
        solutions: leaves (B, ...), the optima to compare with; without them no outcome is optimal.
        conflict: what becomes of actions that break a rule (static). With BLOCK_BOTH and PRIORITY
            the actions carried out break none, and the only failure is GOAL_NOT_REACHED.

    Can be jitted and vmapped, over keys, boards and configurations.

    Raises:
        ValueError: `max_steps` is below 1, or the boards have no leading axis.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps: got {max_steps}, at least 1 is allowed")
    if len(shape := np.shape(instances.size)) != 1:
        raise ValueError(f"instances: got size of shape {shape}, one leading axis is needed")
    return _roll_out(key, policy, instances, solutions, max_steps=max_steps, conflict=conflict)


@partial(jax.jit, static_argnames=("policy", "max_steps", "conflict"))
def _roll_out(
    key: jax.Array,
    policy: JointPolicy,
    instances: Instance,
    solutions: Solution | None,
    *,
    max_steps: int,
    conflict: ConflictPolicy,
) -> JointRollout:
    B = instances.size.shape[0]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(B))
    play = partial(_play, policy, max_steps=max_steps, conflict=conflict)
    actions, length = jax.vmap(play)(keys, instances)
    if solutions is None:
        K = instances.agent_mask.shape[-1]
        solutions = jax.vmap(lambda _: unknown_solution(max_steps, K))(instances.size)
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
    conflict: ConflictPolicy = ConflictPolicy.FAIL,
) -> Statistics:
    """Tables of failures, leaves (P, C, ...), by policy and configuration; one program under jit.

    The P policies (static) play on B boards of each of C configurations, leaves (C, B, ...), all
    with the same keys, drawn from a typed one. Solutions, leaves (C, B, ...), are the boards'
    optima, such as `Generated.solutions`; `mask`, bool (C, B), such as `Generated.filled`, says
    which boards count, all if None. For `max_steps` and `conflict` (static) see `roll_out`.

    Raises:
        ValueError: there are no policies, or the boards don't have two leading axes.
    """
    if not policies:
        raise ValueError("policies: got none, at least one is needed")
    if len(shape := np.shape(instances.size)) != 2:
        raise ValueError(f"instances: got size of shape {shape}, two leading axes are needed")
    options: dict[str, Any] = {"max_steps": max_steps, "conflict": conflict}
    return _sweep(key, tuple(policies), instances, solutions, mask, **options)


@partial(jax.jit, static_argnames=("policies", "max_steps", "conflict"))
def _sweep(
    key: jax.Array,
    policies: tuple[JointPolicy, ...],
    instances: Instance,
    solutions: Solution,
    mask: jax.Array | None,
    *,
    max_steps: int,
    conflict: ConflictPolicy,
) -> Statistics:
    C, B = instances.size.shape
    counted = jnp.ones((C, B), bool) if mask is None else jnp.asarray(mask, bool)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(C))

    options: dict[str, Any] = {"max_steps": max_steps, "conflict": conflict}

    def table(
        policy: JointPolicy, key: jax.Array, boards: Instance, optima: Solution, counted: jax.Array
    ) -> Statistics:
        played = roll_out(key, policy, boards, solutions=optima, **options)
        return tabulate(boards, optima.needs_wait, played.outcome, counted, optima)

    tables = [
        jax.vmap(partial(table, policy))(keys, instances, solutions, counted) for policy in policies
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)


def _play(
    policy: JointPolicy,
    key: jax.Array,
    instance: Instance,
    *,
    max_steps: int,
    conflict: ConflictPolicy,
) -> tuple[jax.Array, jax.Array]:
    """Actions int8 (T, K) and the length, int32 (), of one episode."""
    mask, goals = instance.agent_mask, instance.goals
    key_start, key_act = jax.random.split(key)
    Carry = tuple[jax.Array, jax.Array, jax.Array, Any]

    def advance(carry: Carry, t: jax.Array) -> tuple[Carry, jax.Array]:
        positions, length, over, memory = carry
        key = jax.random.fold_in(key_act, t)
        actions, following = policy.act(key, instance, positions, t, memory)
        actions = jnp.where(mask & ~over, actions, jnp.int8(Action.WAIT))
        resolved = resolve(conflict, instance, positions, actions)
        positions = jnp.where(over, positions, resolved.positions)
        solved = jnp.all((positions == goals) | ~mask[:, None])
        length = jnp.where(over, length, t + jnp.int32(1))
        over |= resolved.failed | solved
        return (positions, length, over, following), resolved.executed

    starts = instance.starts.astype(jnp.int8)
    begun = jnp.all((starts == goals) | ~mask[:, None])
    carry = (starts, jnp.int32(0), begun, policy.start(key_start, instance))
    times = jnp.arange(max_steps, dtype=jnp.int32)
    (_, length, _, _), actions = jax.lax.scan(advance, carry, times)
    return actions, length
