"""Every registered id keeps the contract, and each check of it can fail."""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import pytest

from jaxlake.environment import (
    Box,
    Compact,
    EnvParams,
    LakeEnvironment,
    Tree,
    env_params,
    make,
    registered,
)
from jaxlake.environment.conformance import ConformanceError, check_environment


@pytest.mark.parametrize("name", registered())
def test_every_registered_id_conforms(name, pool_of):
    size, agents = int(name.split("-")[2].split("x")[0]), int(name.split("-")[3][0])
    _, boards = pool_of(1, 8, [size], [agents], size, agents)
    conflict = ("block_both", "priority", "fail")[agents % 3]
    check_environment(*make(name, instances=boards, conflict=conflict))


class _Terminal(LakeEnvironment):
    """Calls the time limit a termination."""

    def step(self, key, state, actions, params):
        *start, terminated, truncated, info = super().step(key, state, actions, params)
        return *start, terminated | truncated, truncated, info


class _Silent(LakeEnvironment):
    """Never says that the time is over."""

    def step(self, key, state, actions, params):
        *start, truncated, info = super().step(key, state, actions, params)
        return *start, jnp.zeros_like(truncated), info


class _Forgetful(LakeEnvironment):
    """Gives the next episode's observation for the final one."""

    def step(self, key, state, actions, params):
        seen, *rest, info = super().step(key, state, actions, params)
        return seen, *rest, info | {"final_observation": seen}


class _Endless(LakeEnvironment):
    """Does not start again."""

    def step(self, key, state, actions, params):
        seen, following, reward, terminated, info = self.step_env(key, state, actions, params)
        info |= {"final_observation": seen}
        return seen, following, reward, terminated, following.truncated, info


class _Restless(LakeEnvironment):
    """Goes on after the end."""

    def step_env(self, key, state, actions, params):
        going = replace(state, terminated=jnp.bool_(False), truncated=jnp.bool_(False))
        return super().step_env(key, going, actions, params)


class _Late(LakeEnvironment):
    """Shows the state before the step."""

    def step(self, key, state, actions, params):
        _, *rest = super().step(key, state, actions, params)
        return self.observe(state, params), *rest


class _Skipping(LakeEnvironment):
    """Starts with its clock at 1."""

    def reset(self, key, params):
        _, state = super().reset(key, params)
        state = replace(state, time=state.time + jnp.int32(1))
        return self.observe(state, params), state


class _Half(LakeEnvironment):
    """Pays in half precision."""

    def step(self, key, state, actions, params):
        seen, following, reward, *rest = super().step(key, state, actions, params)
        return seen, following, reward.astype(jnp.float16), *rest


class _Drifting(LakeEnvironment):
    """Turns the clock into a float."""

    def step(self, key, state, actions, params):
        seen, following, *rest = super().step(key, state, actions, params)
        return seen, replace(following, time=following.time * 1.0), *rest


class _Chattering(LakeEnvironment):
    """Sees a tuple after a step."""

    def step(self, key, state, actions, params):
        seen, *rest = super().step(key, state, actions, params)
        return (seen,), *rest


class _Counting(LakeEnvironment):
    """Says in numbers what should be flags."""

    def step(self, key, state, actions, params):
        *start, terminated, truncated, info = super().step(key, state, actions, params)
        return *start, terminated.astype(jnp.int32), truncated, info


class _Short(LakeEnvironment):
    """Returns one value for both flags."""

    def step(self, key, state, actions, params):
        *start, terminated, truncated, info = super().step(key, state, actions, params)
        return *start, terminated | truncated, info


class _Plain(LakeEnvironment):
    """Leaves the final observation out."""

    def step(self, key, state, actions, params):
        *start, info = super().step(key, state, actions, params)
        return *start, {k: v for k, v in info.items() if k != "final_observation"}


class _Weak(LakeEnvironment):
    """Starts with a clock of no definite dtype."""

    def reset(self, key, params):
        seen, state = super().reset(key, params)
        return seen, replace(state, time=jax.lax.select(state.truncated, 1, 0))


class _Daring(LakeEnvironment):
    """Offers actions that its space does not hold."""

    def action_space(self, params):
        return _Loose(0, 4, (params.instances.agent_mask.shape[-1],), jnp.int8)


class _Sequential(LakeEnvironment):
    """Steps in another way where there is no batch."""

    def step(self, key, state, actions, params):
        seen, following, reward, *rest = super().step(key, state, actions, params)
        return seen, following, _more_alone(reward), *rest


@jax.custom_batching.custom_vmap
def _more_alone(reward):
    return reward + jnp.float32(1)


@_more_alone.def_vmap
def _(size, batched, reward):
    return reward, True


class _Label:
    """Equal to nothing but itself."""


@jax.tree_util.register_pytree_node_class
class _Baked(EnvParams):
    """Parameters with a static part of their own, for each value another."""

    def __init__(self, *leaves, **named):
        super().__init__(*leaves, **named)
        object.__setattr__(self, "label", _Label())

    def tree_flatten(self):
        return [getattr(self, field.name) for field in fields(EnvParams)], self.label

    @classmethod
    def tree_unflatten(cls, label, leaves):
        baked = cls(*leaves)
        object.__setattr__(baked, "label", label)
        return baked


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


_COURSES = []


@dataclass(frozen=True)
class _Moody(Compact):
    """Shows something else at every call."""

    def __call__(self, state, params):
        seen = super().__call__(state, params)
        shape = jax.ShapeDtypeStruct((), jnp.int32)
        noise = jax.pure_callback(_next, shape, state.time, vmap_method="sequential")
        return replace(seen, steps_left=noise)


def _next(_):
    _COURSES.append(1)
    return jnp.int32(len(_COURSES) % 1000).__array__()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (_Weak(), "reset-structure"),
        (_Short(), "step-structure"),
        (_Drifting(), "state-carry"),
        (_Chattering(), "observation-structure"),
        (_Plain(), "final-observation-structure"),
        (_Counting(), "flags"),
        (_Half(), "reward-dtype"),
        (LakeEnvironment(observation=_Moody()), "determinism"),
        (_Sequential(), "vmap"),
        (LakeEnvironment(observation=_Narrow()), "observation-space"),
        (_Daring(), "action-space"),
        (_Skipping(), "time"),
        (_Silent(), "truncation"),
        (_Terminal(), "termination"),
        (_Endless(), "auto-reset"),
        (_Late(), "observation"),
        (_Forgetful(), "final-observation"),
        (_Restless(), "absorption"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_environment_is_told_what_it_breaks(environment, reason, pool_of):
    _, boards = pool_of(1, 8, [4], [2], 4, 2)
    with pytest.raises(ConformanceError) as caught:
        check_environment(environment, env_params(boards))
    assert caught.value.reason == reason, caught.value


def test_parameters_that_are_compiled_in_are_found_out(pool_of):
    _, boards = pool_of(1, 8, [4], [2], 4, 2)
    params = env_params(boards)
    baked = _Baked(**{field.name: getattr(params, field.name) for field in fields(params)})
    with pytest.raises(ConformanceError, match="retrace: traced 2 times"):
        check_environment(LakeEnvironment(), baked)
