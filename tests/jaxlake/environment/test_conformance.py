"""Every registered id passes the conformance checks, and each check can fail."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import pytest

from jaxlake.environment import (
    Box,
    Compact,
    LakeEnvironment,
    Tree,
    registered,
    spec,
)
from jaxlake.environment.conformance import ConformanceError, check_environment
from jaxlake.environment.params import env_params
from tests.jaxlake.solver.boards import pool_of

FIRST, *OTHERS = registered()


@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_registered_ids_conform(name):
    size, agents = spec(name).size, spec(name).num_agents
    _, boards = pool_of(1, 8, [size], [agents], size, agents)
    conflict = ("block_both", "priority", "fail")[agents % 3]
    check_environment(LakeEnvironment(conflict=conflict), env_params(boards))


def _lake_with(**methods):
    """An environment that has other methods."""
    return type("Broken", (LakeEnvironment,), methods)()


def _changing(change):
    """Return an environment with `change` applied to the results of `step`."""
    return _lake_with(step=lambda self, *given: change(*LakeEnvironment.step(self, *given)))


def _step_without_a_new_start(self, key, state, actions, params):
    seen, following, reward, terminated, info = self.step_env(key, state, actions, params)
    info |= {"final_observation": seen}
    return seen, following, reward, terminated, following.truncated, info


def _step_env_after_the_end(self, key, state, actions, params):
    going = replace(state, terminated=jnp.bool_(False), truncated=jnp.bool_(False))
    return LakeEnvironment.step_env(self, key, going, actions, params)


def _step_that_shows_the_state_before(self, key, state, actions, params):
    _, *rest = LakeEnvironment.step(self, key, state, actions, params)
    return self.observe(state, params), *rest


def _reset_with_the_clock_at_one(self, key, params):
    _, state = LakeEnvironment.reset(self, key, params)
    state = replace(state, time=state.time + jnp.int32(1))
    return self.observe(state, params), state


def _reset_with_a_clock_of_no_definite_dtype(self, key, params):
    seen, state = LakeEnvironment.reset(self, key, params)
    return seen, replace(state, time=jax.lax.select(state.truncated, 1, 0))


def _action_space_without_some_actions(self, params):
    return _Loose(0, 4, (params.instances.agent_mask.shape[-1],), jnp.int8)


@dataclass(frozen=True)
class _Loose(Box):
    def contains(self, value):
        return super().contains(value) & jnp.all(jnp.asarray(value) != 3)


@dataclass(frozen=True)
class _Narrow(Compact):
    """Promises less than it shows."""

    def space(self, params):
        wide = super().space(params).spaces
        return Tree(replace(wide, steps_left=Box(0, 4, (), jnp.int32)))


# Changes of (observation, state, reward, terminated, truncated, info), and the checks that fail.
CHANGES = [
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
        *((reason, _changing(change)) for reason, change in CHANGES),
        ("reset-structure", _lake_with(reset=_reset_with_a_clock_of_no_definite_dtype)),
        ("observation-space", LakeEnvironment(observation=_Narrow())),
        ("action-space", _lake_with(action_space=_action_space_without_some_actions)),
        ("time", _lake_with(reset=_reset_with_the_clock_at_one)),
        ("auto-reset", _lake_with(step=_step_without_a_new_start)),
        ("observation", _lake_with(step=_step_that_shows_the_state_before)),
        ("absorption", _lake_with(step_env=_step_env_after_the_end)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_check_environment_names_the_broken_contract(environment, reason):
    _, boards = pool_of(1, 8, [4], [2], 4, 2)
    with pytest.raises(ConformanceError) as caught:
        check_environment(environment, env_params(boards))
    assert caught.value.reason == reason, caught.value


def _slipped(key, actions):
    other = Box(0, 4, actions.shape, jnp.int8).sample(jax.random.fold_in(key, 1))
    return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 2)), other, actions)


def test_stochastic_dynamics_conform():
    def slippery(name):
        method = getattr(LakeEnvironment, name)
        return lambda self, key, state, actions, params: method(
            self, key, state, _slipped(key, actions), params
        )

    _, boards = pool_of(1, 8, [4], [2], 4, 2)
    lake = _lake_with(**{name: slippery(name) for name in ("step", "step_env")})
    check_environment(lake, env_params(boards))
