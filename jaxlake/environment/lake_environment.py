"""The lake environment: reset and step with the gymnax 1.0 interface."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxlake.board.dynamics import Action, validate_actions
from jaxlake.board.instance import Instance
from jaxlake.environment.conflict_policies import (
    ConflictPolicy,
    first_failure,
    parse_conflict_policy,
    resolve,
)
from jaxlake.environment.observations import NUM_ACTIONS, Compact, Observation
from jaxlake.environment.params import EnvParams, EnvState, initial_state, legal_action_mask
from jaxlake.environment.spaces import Box, Space
from jaxlake.environment.step_rewards import RewardFunction, Transition, team_reward

Info = dict[str, Any]

_COMPACT = Compact()


@dataclass(frozen=True)
class LakeEnvironment:
    """MAPF-FrozenLake: each episode is one board, and one joint action controls all agents.

    All methods can be jitted, scanned, and vmapped over keys, states and params, which hold the
    boards. The actions of agents outside `agent_mask` are ignored.

    Args:
        conflict: how to handle broken rules, a `ConflictPolicy` or its name.
        observation: the observation function.
        reward: the reward function.

    Raises:
        ValueError: `conflict` is neither a `ConflictPolicy` nor the name of one.
        TypeError: `observation` is not an `Observation`, or `reward` is not a function.
    """

    name: ClassVar[str] = "MAPF-FrozenLake"

    conflict: ConflictPolicy | str = ConflictPolicy.FAIL
    observation: Observation = _COMPACT
    reward: RewardFunction = team_reward

    def __post_init__(self) -> None:
        object.__setattr__(self, "conflict", parse_conflict_policy(self.conflict))
        for name, kind, method in (
            ("observation", "an Observation such as Planes()", "space"),
            ("reward", "a function such as team_reward", "__call__"),
        ):
            value = getattr(self, name)
            if isinstance(value, type) or not callable(value) or not hasattr(value, method):
                raise TypeError(f"{name} must be {kind}, got {value!r}")

    @partial(jax.jit, static_argnames="self")
    def reset(self, key: jax.Array, params: EnvParams) -> tuple[Any, EnvState]:
        """Start an episode on a board drawn uniformly from the pool.

        Args:
            key: typed PRNG key.
            params: the boards and the time limit.

        Returns:
            (observation, state).
        """
        state = initial_state(key, params)
        return self.observe(state, params), state

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: jax.Array, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[Any, EnvState, jax.Array, jax.Array, jax.Array, Info]:
        """Make one step, and start the next episode if this one ends.

        Args:
            key: typed PRNG key; it only determines the board of the next episode.
            state: the current state.
            actions: int (K,); values outside 0 to 4 lead off the board.
            params: the boards and the time limit.

        Returns:
            (observation, state, reward, terminated, truncated, info). If the episode ends,
            observation and state belong to the next one. `reward` is float32 () or (K,).
            `terminated` and `truncated` are bool () and may both be True. `info` holds the entries
            of `step_env`, `terminated`, `truncated`, and `final_observation`, the observation
            after the step and before the reset.

        Raises:
            ValueError: the actions are not integers of shape (K,).
        """
        end_state, reward, info = self._advance(state, actions, params)
        done = end_state.terminated | end_state.truncated
        next_state = jax.tree.map(partial(jnp.where, done), initial_state(key, params), end_state)
        observation = self.observe(next_state, params)
        observe_final = _observe_if_done(self.observe, ())
        info |= {
            "terminated": end_state.terminated,
            "truncated": end_state.truncated,
            "final_observation": observe_final(done, end_state, observation, params),
        }
        return observation, next_state, reward, end_state.terminated, end_state.truncated, info

    @partial(jax.jit, static_argnames="self")
    def step_env(
        self, key: jax.Array, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[Any, EnvState, jax.Array, jax.Array, Info]:
        """Make one step without resetting. A finished state does not change and has reward 0.

        Args:
            key: ignored; the dynamics are deterministic.
            state: the current state.
            actions: int (K,); values outside 0 to 4 lead off the board.
            params: the boards and the time limit.

        Returns:
            (observation, state, reward, terminated, info). `state.truncated` is True if the time
            limit is reached. `info` holds
            `failure`: int8 (), a `jaxlake.Failure`, the first rule that the given actions break,
                even if the conflict policy blocks the move;
            `agent`: int8 (), the lowest agent involved in the failure, -1 if none;
            `executed`: int8 (K,), the actions after conflict resolution;
            `at_goal`: bool (K,), enabled agents that are at their goals after the step, even if
                it breaks a rule (`jaxlake.verify` counts the agents before such a step);
            `solved`: bool (), whether all enabled agents are at their goals.

        Raises:
            ValueError: the actions are not integers of shape (K,).
        """
        end_state, reward, info = self._advance(state, actions, params)
        return self.observe(end_state, params), end_state, reward, end_state.terminated, info

    def observe(self, state: EnvState, params: EnvParams) -> Any:
        """Return the observation of a state."""
        return self.observation(state, params)

    def action_mask(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Return the mask of actions that stay on the board and avoid holes, bool (K, 5)."""
        return legal_action_mask(state, params)

    def board(self, state: EnvState, params: EnvParams) -> Instance:
        """Return the board of an episode, unbatched."""
        return jax.tree.map(lambda leaf: leaf[state.index], params.instances)

    def action_space(self, params: EnvParams) -> Box:
        """Return the space of joint actions, int8 (K,)."""
        return Box(0, NUM_ACTIONS - 1, (params.instances.agent_mask.shape[-1],), jnp.int8)

    def observation_space(self, params: EnvParams) -> Space:
        """Return the space of observations."""
        return self.observation.space(params)

    def _advance(
        self, state: EnvState, actions: jax.Array, params: EnvParams
    ) -> tuple[EnvState, jax.Array, Info]:
        if not isinstance(state, EnvState):
            raise TypeError(f"state must be an EnvState from reset, got {type(state).__name__}")
        instance = self.board(state, params)
        mask = instance.agent_mask
        is_finished = state.terminated | state.truncated
        actions = validate_actions(actions, mask.shape[-1])
        # All agents wait in a finished state, so it does not change.
        actions = jnp.where(mask & ~is_finished, actions, jnp.int8(Action.WAIT))
        resolution = resolve(self.conflict, instance, state.positions, actions)
        has_failed = resolution.failed & ~is_finished
        is_solved = (resolution.num_away == 0) & ~has_failed
        time = jnp.where(is_finished, state.time, state.time + jnp.int32(1))
        transition = Transition(
            before=state.positions,
            after=resolution.positions,
            goals=instance.goals,
            num_away=resolution.num_away,
            agent_mask=mask,
            actions=actions,
            executed=resolution.executed,
            attempt=resolution.attempt,
            failed=has_failed,
            solved=is_solved,
            time=time,
        )
        reward = self.reward(transition)
        failure, agent = first_failure(resolution.attempt)
        end_state = EnvState(
            index=state.index,
            positions=resolution.positions,
            time=time,
            terminated=jnp.where(is_finished, state.terminated, has_failed | is_solved),
            truncated=jnp.where(is_finished, state.truncated, time >= params.max_steps),
        )
        info = {
            "failure": failure,
            "agent": agent,
            "executed": resolution.executed,
            "at_goal": resolution.at_goal,
            "solved": is_solved,
        }
        return end_state, jnp.where(is_finished, jnp.zeros_like(reward), reward), info


def _observe_if_done(
    observe: Callable[[EnvState, EnvParams], Any], params_axes: tuple[Any, ...]
) -> Callable:
    """Return a function that observes states only if an episode of the batch is done.

    Otherwise it returns the given observation. Under vmap, a plain `cond` would compute both
    branches in every step. `params_axes` holds the vmapped axes of the params, innermost vmap
    first.
    """
    for axes in params_axes:
        observe = jax.vmap(observe, (0, axes))

    @jax.custom_batching.custom_vmap
    def observe_final(done: jax.Array, state: EnvState, observation: Any, params: EnvParams) -> Any:
        return jax.lax.cond(jnp.any(done), lambda: observe(state, params), lambda: observation)

    @observe_final.def_vmap
    def _(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        def broadcast(leaf: jax.Array, is_batched: bool) -> jax.Array:
            return leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))

        # Broadcast all arguments except the params, which are large.
        *broadcast_arguments, params = arguments
        mapped_arguments = jax.tree.map(broadcast, broadcast_arguments, list(batched[:3]))
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[3])
        observations = _observe_if_done(observe, (axes,))(*mapped_arguments, params)
        return observations, jax.tree.map(lambda _: True, observations)

    return observe_final
