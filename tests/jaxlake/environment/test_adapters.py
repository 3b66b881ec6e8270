"""Adapters against the checks, wrappers and trainers of other libraries."""

import pickle
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake.environment import (
    Flat,
    FlatAgents,
    LakeEnvironment,
    adapt,
    env_params,
    make_for,
    split_joint_action,
)
from tests.jaxlake.solver.boards import assert_same, draw_pool

_, BOARDS = draw_pool(5, 16, [3, 4], [2], 4, 2)
PARAMS = env_params(BOARDS, max_steps=9)
LAKE_ID = "MAPF-FrozenLake-4x4-2ag-v0"


def _adapt_lake(interface, observation=None, params=PARAMS, **options):
    is_multi_agent = interface in ("pettingzoo", "jaxmarl")
    observation = observation or (FlatAgents() if is_multi_agent else Flat())
    return adapt(interface, LakeEnvironment(observation=observation), params, **options)


@pytest.fixture(scope="module")
def lake():
    return _adapt_lake("gymnax")


def test_lake_follows_the_gymnax_interface(lake):
    from gymnax.environments import environment, spaces

    assert isinstance(lake, environment.Environment)
    assert (lake.name, lake.num_actions) == ("MAPF-FrozenLake", 25)
    assert isinstance(lake.action_space(lake.default_params), spaces.Discrete)
    space = lake.observation_space(lake.default_params)
    assert isinstance(space, spaces.Box)
    observation, state = lake.reset(jax.random.key(0))
    assert (observation.shape, observation.dtype) == (space.shape, space.dtype)
    assert bool(space.contains(observation))
    second_observation, _ = lake.reset(jax.random.key(0), lake.default_params)
    assert np.array_equal(observation, second_observation)
    short_params = lake.default_params.replace(max_steps_in_episode=1)
    assert bool(lake.step(jax.random.key(0), state, 0, short_params)[4])


def test_gymnax_step_equals_our_step(lake):
    from gymnax.environments.environment import Environment

    _, state = lake.reset(jax.random.key(3))
    for t in range(40):
        key = jax.random.key(t)
        action = jnp.int32(t % 25)
        expected = Environment.step(lake, key, state, action, PARAMS)
        # gymnax resets with the second half of the key.
        actual = lake.step(jax.random.split(key)[1], state, action)
        assert_same(expected[:5], actual[:5])
        assert_same(expected[5]["final_observation"], actual[5]["final_observation"])
        state = actual[1]


def test_gymnax_gym_wrapper_plays_the_lake(lake):
    from gymnax.wrappers import GymnaxToGymWrapper

    wrapper = GymnaxToGymWrapper(lake, seed=1)
    assert wrapper.action_space.n == 25
    observation, _ = wrapper.reset(seed=2)
    wrapper.action_space.seed(0)
    for _ in range(12):
        assert wrapper.observation_space.contains(np.asarray(observation))
        observation, _, terminated, truncated, info = wrapper.step(wrapper.action_space.sample())
        assert bool(terminated) == bool(info["terminated"])
        assert bool(truncated) == bool(info["truncated"])
    short_params = PARAMS.replace(max_steps_in_episode=1)
    wrapper.reset(options={"env_params": short_params})
    assert bool(wrapper.step(0)[3])


def test_gymnasium_check_env_passes():
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        check_env(_adapt_lake("gymnasium", render_mode="ansi"))
    messages = [str(warning.message) for warning in caught_warnings]
    assert all("not having a spec" in message for message in messages), messages


def test_gymnasium_episode_equals_the_lake():
    gym_lake = _adapt_lake("gymnasium", render_mode="ansi")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        gym_lake.step(0)
    _, info = gym_lake.reset(seed=0)
    action_space = gym_lake.action_space
    action_space.seed(0)
    board = jax.device_get(gym_lake.lake.environment.board(gym_lake._state, PARAMS))
    assert gym_lake.render().splitlines() == jaxlake.format_grid(board)
    plan, done = [], False
    while not done:
        joint_action = action_space.sample(mask=info["action_mask"])
        plan.append(np.asarray(split_joint_action(joint_action, 2)))
        _, reward, terminated, truncated, info = gym_lake.step(joint_action)
        done = terminated or truncated
    outcome = jaxlake.verify(board, np.stack(plan))
    assert bool(outcome.valid) == bool(info["solved"]) == (reward == 1.0)
    assert terminated == (int(outcome.failure) != jaxlake.Failure.GOAL_NOT_REACHED)
    with pytest.raises(ValueError, match="render_mode must be None or 'ansi', got 'human'"):
        _adapt_lake("gymnasium", render_mode="human")


def test_pettingzoo_parallel_api_test_passes():
    from pettingzoo.test import parallel_api_test

    lake = _adapt_lake("pettingzoo", render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(lake, num_cycles=100)


def test_parallel_episode_ends_for_all_agents_with_a_failure():
    grid = jaxlake.parse_grid(["S G", "s g"], max_size=4)
    lake = _adapt_lake("pettingzoo", params=env_params(grid), render_mode="ansi")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        lake.step({"agent_0": 0, "agent_1": 0})
    _, infos = lake.reset(seed=3)
    assert infos["agent_0"]["action_mask"].tolist() == [1, 0, 1, 0, 1]
    assert lake.render() == "S G\ns g"
    # Agent 0 walks down into agent 1, which waits.
    _, rewards, terminated, truncated, infos = lake.step({"agent_0": 2, "agent_1": 0})
    assert infos["agent_1"]["failure"] == jaxlake.Failure.VERTEX_CONFLICT
    assert rewards == {"agent_0": -1.0, "agent_1": -1.0}
    assert terminated == {"agent_0": True, "agent_1": True}
    assert truncated == {"agent_0": False, "agent_1": False}
    assert lake.agents == []
    assert lake.step({}) == ({}, {}, {}, {}, {})


@pytest.mark.parametrize(("interface", "action"), [("gymnasium", 7), ("pettingzoo", None)])
def test_adapters_pickle_within_an_episode(interface, action):
    lake = _adapt_lake(interface)
    lake.reset(seed=4)
    action = {"agent_0": 2, "agent_1": 1} if action is None else action
    lake_copy = pickle.loads(pickle.dumps(lake))
    for expected, actual in zip(lake.step(action), lake_copy.step(action), strict=True):
        assert_same(expected, actual)
    assert_same(lake.reset()[0], lake_copy.reset()[0])


@pytest.mark.slow
def test_async_vector_env_plays_in_spawned_processes():
    from gymnasium.vector import AsyncVectorEnv

    lake = _adapt_lake("gymnasium")
    vector_env = AsyncVectorEnv([lambda: lake] * 2, context="spawn")
    try:
        observations, _ = vector_env.reset(seed=[0, 1])
        assert_same(observations[1], lake.reset(seed=1)[0])
        assert vector_env.step(np.array([0, 7]))[1][1] == lake.step(7)[1]
    finally:
        vector_env.close()


def test_jaxmarl_observations_hold_the_world_state():
    lake = _adapt_lake("jaxmarl")
    observations, state = lake.reset(jax.random.key(0))
    rows = np.concatenate([observations[agent] for agent in lake.agents])
    np.testing.assert_array_equal(observations["world_state"], rows)
    np.testing.assert_array_equal(lake.get_world_state(state), rows)
    assert lake.world_state_size == len(rows)
    actions = dict.fromkeys(lake.agents, 0)
    assert lake.step(jax.random.key(1), state, actions)[0]["world_state"].shape == rows.shape


@pytest.mark.slow
def test_rejax_ppo_learns_an_easy_lake():
    from rejax import PPO

    _, boards = draw_pool(1, 64, [2], [2], 2, 2, hole_ratio=0.0)
    lake = _adapt_lake("gymnax-before-1.0", params=env_params(boards, max_steps=8))
    ppo = PPO.create(
        env=lake, total_timesteps=65_536, eval_freq=32_768, num_envs=64, num_steps=32, gamma=0.95
    )
    _, (lengths, returns) = jax.jit(ppo.train)(jax.random.key(0))
    first_return, last_return = np.asarray(returns).mean(axis=1)[[0, -1]]
    assert first_return < -0.3
    assert last_return > 0.5
    assert np.asarray(lengths).max() <= 8


@pytest.mark.slow
def test_jaxmarl_wrappers_accept_the_lake():
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper

    lake = _adapt_lake("jaxmarl")
    assert isinstance(lake, MultiAgentEnv)
    wrapper = LogWrapper(lake)
    _, state = wrapper.reset(jax.random.key(0))
    episode_return, num_episodes = 0.0, 0
    for t in range(30):
        actions = {agent: jnp.int32((t + k) % 5) for k, agent in enumerate(lake.agents)}
        _, state, rewards, dones, info = wrapper.step(jax.random.key(t), state, actions)
        episode_return += float(rewards["agent_0"])
        if dones["__all__"]:
            assert np.allclose(info["returned_episode_returns"], episode_return, atol=1e-5)
            episode_return, num_episodes = 0.0, num_episodes + 1
    assert num_episodes > 3
    manager = CTRolloutManager(lake, batch_size=4)
    observations, states = manager.batch_reset(jax.random.key(1))
    assert observations["__all__"].shape[0] == 4
    actions = manager.batch_sample(jax.random.key(2), "agent_0")
    joint_actions = dict.fromkeys(lake.agents, actions)
    observations, *_ = manager.batch_step(jax.random.key(3), states, joint_actions)
    assert observations["agent_1"].shape[0] == 4


def test_make_for_splits_options(monkeypatch):
    def make(id, max_steps=9, **options):
        return LakeEnvironment(**options), env_params(BOARDS, max_steps=max_steps)

    monkeypatch.setattr("jaxlake.environment.adapters.make", make)
    lake = make_for("gymnasium", LAKE_ID, conflict="block_both", max_steps=2, render_mode="ansi")
    lake.reset(seed=0)
    assert lake.render()
    lake.step(0)
    assert lake.step(0)[3]
    with pytest.raises(TypeError, match="no_option"):
        make_for("gymnasium", LAKE_ID, no_option=1)


@pytest.mark.parametrize("action", [25, -1, 999, 3.0, None, [3]])
def test_gymnasium_lake_rejects_invalid_joint_actions(action):
    lake = _adapt_lake("gymnasium")
    lake.reset(seed=0)
    with pytest.raises(ValueError, match="must be an integer from 0 to 24"):
        lake.step(action)


def test_gymnasium_lake_needs_a_reset_after_the_end():
    lake = _adapt_lake("gymnasium")
    lake.reset(seed=0)
    while not any(lake.step(1)[2:4]):
        pass
    with pytest.raises(gymnasium.error.ResetNeeded, match="after the end of an episode"):
        lake.step(1)


def test_parallel_lake_rejects_invalid_actions_by_agent():
    lake = _adapt_lake("pettingzoo")
    lake.reset(seed=0)
    for actions in ({"agent_0": 0}, {"agent_0": 0, "agent_1": 5}, {"agent_0": 0, "agent_1": 1.5}):
        with pytest.raises(ValueError, match=r"actions\['agent_1'\] must be an integer"):
            lake.step(actions)
    with pytest.raises(TypeError, match="actions must be a dictionary by agent, got"):
        lake.step([0, 0])


def test_unsupported_interface_options_are_named():
    with pytest.raises(ValueError, match=r"interface must be one of gymnax, .* got 'gym'"):
        adapt("gym", LakeEnvironment(), PARAMS)
    for interface in ("gymnax", "gymnasium"):
        with pytest.raises(ValueError, match=r"space must be .* got Tree.*Flat\(\) has a Box"):
            adapt(interface, LakeEnvironment(), PARAMS)
    with pytest.raises(TypeError, match="environment must be a LakeEnvironment, got EnvParams"):
        adapt("pettingzoo", PARAMS, LakeEnvironment())


def test_swapped_arguments_are_rejected():
    key = jax.random.key(0)
    lake = _adapt_lake("gymnax")
    _, state = lake.reset(key)
    with pytest.raises(TypeError, match="state must be an EnvState, as reset"):
        lake.step(key, 0, state)
    lake = _adapt_lake("jaxmarl")
    _, state = lake.reset(key)
    for actions in (np.zeros(2, int), {"agent_0": 0}):
        with pytest.raises(ValueError, match="dictionary with agent_0, agent_1, got"):
            lake.step(key, state, actions)
