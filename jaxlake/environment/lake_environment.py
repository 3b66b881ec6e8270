"""The lake's environment: reset and step under the contract of gymnax 1.0."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxlake.board.dynamics import Action
from jaxlake.board.instance import Instance
from jaxlake.environment.conflict_policies import (
    ConflictPolicy,
    conflict_policy,
    first_failure,
    resolve,
)
from jaxlake.environment.observations import NUM_ACTIONS, Compact, Observation
from jaxlake.environment.params import EnvParams, EnvState, initial_state, state_action_mask
from jaxlake.environment.spaces import Box, Space
from jaxlake.environment.step_rewards import RewardFunction, Transition, team_reward

Info = dict[str, Any]

_COMPACT = Compact()


@dataclass(frozen=True)
class LakeEnvironment:
    """MAPF-FrozenLake: each episode is one board, and one joint action controls all agents.

    All methods can be jitted, scanned, and vmapped over keys, states and params, which hold the
    boards. Agents outside `agent_mask` take part in nothing, whatever their actions are.

    Raises:
        ValueError: `conflict` is neither a `ConflictPolicy` nor the name of one.
    """

    name: ClassVar[str] = "MAPF-FrozenLake"

    conflict: ConflictPolicy | str = ConflictPolicy.FAIL
    observation: Observation = _COMPACT
    reward: RewardFunction = team_reward

    def __post_init__(self) -> None:
        object.__setattr__(self, "conflict", conflict_policy(self.conflict))

    @partial(jax.jit, static_argnames="self")
    def reset(self, key: jax.Array, params: EnvParams) -> tuple[Any, EnvState]:
        """Start an episode on a board drawn uniformly from the pool: (observation, state)."""
        state = initial_state(key, params)
        return self.observe(state, params), state

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: jax.Array, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[Any, EnvState, jax.Array, jax.Array, jax.Array, Info]:
        """Make one step, actions int (K,); where the episode ends, start the next one.

        An action that is none of 0 to 4 leads off the board. Only the board of the next episode
        depends on the key, a typed one.

        Raises:
            ValueError: the actions are no whole numbers, or have another shape than (K,).

        Returns:
            (observation, state, reward, terminated, truncated, info). Observation and state are
            the next episode's where this one has ended. `terminated` and `truncated` are bool ()
            and may both be True. `info` holds what `step_env` says, `terminated`, `truncated` and
            `final_observation`: what the step led to, before a new start.
        """
        stepped, reward, info = self._advance(state, actions, params)
        done = stepped.terminated | stepped.truncated
        following = jax.tree.map(partial(jnp.where, done), initial_state(key, params), stepped)
        observation = self.observe(following, params)
        info |= {
            "terminated": stepped.terminated,
            "truncated": stepped.truncated,
            "final_observation": _where_done(self.observe, ())(done, stepped, observation, params),
        }
        return observation, following, reward, stepped.terminated, stepped.truncated, info

    @partial(jax.jit, static_argnames="self")
    def step_env(
        self, key: jax.Array, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[Any, EnvState, jax.Array, jax.Array, Info]:
        """Make one step without a new start. A state that has ended stays, with reward 0.

        Returns:
            (observation, state, reward, terminated, info), with the time limit in
            `state.truncated`. `info` holds
            `failure`: int8 (), a `jaxlake.Failure`, the first rule that the actions broke as they
                were given, whether that ends the episode or was prevented; NONE if none;
            `agent`: int8 (), the lowest agent involved in it, -1 if there is none;
            `executed`: int8 (K,), the actions as they were carried out;
            `at_goal`: bool (K,), the agents of the mask that are at their goals after the step,
                also after one that broke a rule (`jaxlake.verify` counts before such a step);
            `solved`: bool (), all of them are.
        """
        stepped, reward, info = self._advance(state, actions, params)
        return self.observe(stepped, params), stepped, reward, stepped.terminated, info

    def observe(self, state: EnvState, params: EnvParams) -> Any:
        """Give what the agents see of a state."""
        return self.observation(state, params)

    def action_mask(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Say which actions lead neither off the board nor onto a hole: bool (K, 5)."""
        return state_action_mask(state, params)

    def board(self, state: EnvState, params: EnvParams) -> Instance:
        """Give the board that an episode is played on."""
        return jax.tree.map(lambda leaf: leaf[state.index], params.instances)

    def action_space(self, params: EnvParams) -> Box:
        """Give the space of joint actions, int8 (K,)."""
        return Box(0, NUM_ACTIONS - 1, (params.instances.agent_mask.shape[-1],), jnp.int8)

    def observation_space(self, params: EnvParams) -> Space:
        """Give the space of what `observe` gives."""
        return self.observation.space(params)

    def _advance(
        self, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[EnvState, jax.Array, Info]:
        instance = self.board(state, params)
        mask = instance.agent_mask
        over = state.terminated | state.truncated
        actions = _checked_actions(actions, mask.shape[-1])
        # In a state that has ended all wait, and so stay where they are.
        actions = jnp.where(mask & ~over, actions, jnp.int8(Action.WAIT))
        resolved = resolve(self.conflict, instance, state.positions, actions)
        failed = resolved.failed & ~over
        solved = (resolved.num_away == 0) & ~failed
        time = jnp.where(over, state.time, state.time + jnp.int32(1))
        transition = Transition(
            before=state.positions,
            after=resolved.positions,
            goals=instance.goals,
            num_away=resolved.num_away,
            agent_mask=mask,
            actions=actions,
            executed=resolved.executed,
            attempt=resolved.attempt,
            failed=failed,
            solved=solved,
            time=time,
        )
        reward = self.reward(transition)
        failure, agent = first_failure(resolved.attempt)
        stepped = EnvState(
            index=state.index,
            positions=resolved.positions,
            time=time,
            terminated=jnp.where(over, state.terminated, failed | solved),
            truncated=jnp.where(over, state.truncated, time >= params.max_steps),
        )
        info = {
            "failure": failure,
            "agent": agent,
            "executed": resolved.executed,
            "at_goal": resolved.at_goal,
            "solved": solved,
        }
        return stepped, jnp.where(over, jnp.zeros_like(reward), reward), info


def _checked_actions(actions: Any, num_agents: int) -> jax.Array:
    actions = jnp.asarray(actions)
    if actions.shape != (num_agents,) or not jnp.issubdtype(actions.dtype, jnp.integer):
        raise ValueError(
            f"actions: got {actions.dtype} {actions.shape}, whole numbers of shape "
            f"({num_agents},) are needed: one action per agent"
        )
    if actions.dtype.itemsize > 1 or not jnp.issubdtype(actions.dtype, jnp.signedinteger):
        actions = jnp.where((actions < 0) | (actions >= NUM_ACTIONS), NUM_ACTIONS, actions)
    return actions.astype(jnp.int8)


def _where_done(observe: Callable[[EnvState, EnvParams], Any], depth: tuple[Any, ...]) -> Callable:
    """Return `observe(state)` if any episode of the batch is done, else the observation at hand.

    Under vmap a plain `cond` would pay for both sides in every step. `depth` has the axes of the
    params for each vmap that is done already, from the innermost on.
    """
    for axes in depth:
        observe = jax.vmap(observe, (0, axes))

    @jax.custom_batching.custom_vmap
    def final(done: jax.Array, state: EnvState, observation: Any, params: EnvParams) -> Any:
        return jax.lax.cond(jnp.any(done), lambda: observe(state, params), lambda: observation)

    @final.def_vmap
    def _(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        def spread(leaf: jax.Array, is_batched: bool) -> jax.Array:
            return leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))

        along = tuple(jax.tree.map(spread, a, b) for a, b in zip(arguments, batched, strict=True))
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[3])
        outcome = _where_done(observe, (axes,))(*along[:3], arguments[3])
        return outcome, jax.tree.map(lambda _: True, outcome)

    return final
