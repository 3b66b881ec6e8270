"""Every registered id passes the conformance checks, and each check can fail."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import pytest

from jaxlake.environment import Box, Compact, LakeEnvironment, Tree, registered, spec
from jaxlake.environment.conformance import ConformanceError, check_environment
from jaxlake.environment.params import env_params
from tests.jaxlake.solver.boards import draw_pool

FIRST_ID, *OTHER_IDS = registered()


@pytest.mark.parametrize(
    "name", [FIRST_ID, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_IDS)]
)
def test_registered_ids_conform(name):
    size, num_agents = spec(name).size, spec(name).num_agents
    _, boards = draw_pool(1, 8, [size], [num_agents], size, num_agents)
    conflict = ("block_both", "priority", "fail")[num_agents % 3]
    check_environment(LakeEnvironment(conflict=conflict), env_params(boards))


def _override_methods(**methods):
    """Return an environment with some methods replaced."""
    return type("Broken", (LakeEnvironment,), methods)()


def _change_step(change):
    """Return an environment with `change` applied to the results of `step`."""
    return _override_methods(
        step=lambda self, *arguments: change(*LakeEnvironment.step(self, *arguments))
    )


def _step_without_reset(self, key, state, actions, params):
    observation, next_state, reward, terminated, info = self.step_env(key, state, actions, params)
    info |= {"final_observation": observation}
    return observation, next_state, reward, terminated, next_state.truncated, info


def _step_env_ignoring_the_end(self, key, state, actions, params):
    running_state = replace(state, terminated=jnp.bool_(False), truncated=jnp.bool_(False))
    return LakeEnvironment.step_env(self, key, running_state, actions, params)


def _step_observing_the_old_state(self, key, state, actions, params):
    _, *outputs = LakeEnvironment.step(self, key, state, actions, params)
    return self.observe(state, params), *outputs


def _reset_at_time_1(self, key, params):
    _, state = LakeEnvironment.reset(self, key, params)
    state = replace(state, time=state.time + jnp.int32(1))
    return self.observe(state, params), state


def _reset_with_weak_time_dtype(self, key, params):
    observation, state = LakeEnvironment.reset(self, key, params)
    return observation, replace(state, time=jax.lax.select(state.truncated, 1, 0))


def _incomplete_action_space(self, params):
    return _IncompleteBox(0, 4, (params.instances.agent_mask.shape[-1],), jnp.int8)


@dataclass(frozen=True)
class _IncompleteBox(Box):
    def contains(self, value):
        return super().contains(value) & jnp.all(jnp.asarray(value) != 3)


@dataclass(frozen=True)
class _NarrowCompact(Compact):
    """Observation with a space that is too small."""

    def space(self, params):
        spaces = super().space(params).spaces
        return Tree(replace(spaces, steps_left=Box(0, 4, (), jnp.int32)))


# Changes of (observation, state, reward, terminated, truncated, info), and the checks that fail.
STEP_CHANGES = [
    ("step-structure", lambda o, s, r, t, u, i: (o, s, r, t | u, i)),
    ("state-carry", lambda o, s, r, t, u, i: (o, replace(s, time=s.time * 1.0), r, t, u, i)),
    ("observation-structure", lambda o, *rest: ((o,), *rest)),
    ("final-observation-structure", lambda *rest: (*rest[:5], {"failure": rest[5]["failure"]})),
    ("flags", lambda o, s, r, t, u, i: (o, s, r, t.astype(jnp.int32), u, i)),
    ("reward-dtype", lambda o, s, r, *rest: (o, s, r.astype(jnp.float16), *rest)),
    ("truncation", lambda o, s, r, t, u, i: (o, s, r, t, jnp.zeros_like(u), i)),
    ("termination", lambda o, s, r, t, u, i: (o, s, r, t | u, u, i)),
    ("final-observation", lambda o, s, r, t, u, i: (o, s, r, t, u, i | {"final_observation": o})),
]


@pytest.mark.parametrize(
    ("reason", "environment"),
    [
        *((reason, _change_step(change)) for reason, change in STEP_CHANGES),
        ("reset-structure", _override_methods(reset=_reset_with_weak_time_dtype)),
        ("observation-space", LakeEnvironment(observation=_NarrowCompact())),
        ("action-space", _override_methods(action_space=_incomplete_action_space)),
        ("time", _override_methods(reset=_reset_at_time_1)),
        ("auto-reset", _override_methods(step=_step_without_reset)),
        ("observation", _override_methods(step=_step_observing_the_old_state)),
        ("absorption", _override_methods(step_env=_step_env_ignoring_the_end)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_check_environment_names_the_broken_contract(environment, reason):
    _, boards = draw_pool(1, 8, [4], [2], 4, 2)
    with pytest.raises(ConformanceError) as error:
        check_environment(environment, env_params(boards))
    assert error.value.reason == reason, error.value


def _slip_actions(key, actions):
    random_actions = Box(0, 4, actions.shape, jnp.int8).sample(jax.random.fold_in(key, 1))
    return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 2)), random_actions, actions)


def test_stochastic_dynamics_conform():
    def make_slippery(name):
        method = getattr(LakeEnvironment, name)
        return lambda self, key, state, actions, params: method(
            self, key, state, _slip_actions(key, actions), params
        )

    _, boards = draw_pool(1, 8, [4], [2], 4, 2)
    lake = _override_methods(**{name: make_slippery(name) for name in ("step", "step_env")})
    check_environment(lake, env_params(boards))
