"""Joint agents, named agents, and vector observations."""

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.environment import (
    AgentDictionaryLake,
    Discrete,
    Flat,
    FlatAgents,
    JointAgentLake,
    LakeEnvironment,
    Planes,
    env_params,
    joint_action,
    split_joint_action,
)
from jaxlake.environment.conformance import check_environment
from jaxlake.environment.step_rewards import agent_reward
from tests.jaxlake.solver.boards import assert_same, draw_pool

_, BOARDS = draw_pool(3, 12, [3, 4], [1, 2, 3], 4, 3)
PARAMS = env_params(BOARDS, max_steps=7)


def test_joint_actions_enumerate_agent_actions():
    numbers = np.arange(125)
    actions = np.asarray(split_joint_action(numbers, 3))
    assert actions.dtype == np.int8
    assert {tuple(row) for row in actions.tolist()} == set(np.ndindex(5, 5, 5))
    assert actions[2].tolist() == [2, 0, 0]  # agent 0 is the lowest digit
    assert np.array_equal(joint_action(actions), numbers)


@pytest.mark.parametrize("number", [125, -1, 10_000])
def test_invalid_joint_action_moves_no_agent(number):
    assert split_joint_action(number, 3).tolist() == [5, 5, 5]
    lake = JointAgentLake(LakeEnvironment(), PARAMS)
    _, state = lake.reset(jax.random.key(0))
    *_, info = lake.step_env(jax.random.key(0), state, number)
    assert info["failure"] == jaxlake.Failure.OFF_BOARD
    with pytest.raises(ValueError, match="action must have an integer dtype, got float32"):
        lake.step_env(jax.random.key(0), state, 3.7)


def test_joint_action_equals_agent_actions():
    environment = LakeEnvironment(observation=Flat(), reward=agent_reward)
    lake = JointAgentLake(environment, PARAMS)
    keys = jax.random.split(jax.random.key(1), 40)
    _, states = jax.vmap(lake.reset)(keys)
    numbers = jax.vmap(lake.action_space().sample)(keys)
    joint_step = jax.vmap(lake.step)(keys, states, numbers)
    agent_step = jax.vmap(lambda *arguments: environment.step(*arguments, PARAMS))(
        keys, states, split_joint_action(numbers, 3)
    )
    rewards = agent_step[2].sum(axis=-1)
    assert joint_step[2].shape == (40,)
    assert np.asarray(rewards).any()
    assert_same((*joint_step[:2], *joint_step[3:]), (*agent_step[:2], *agent_step[3:]))
    assert np.array_equal(joint_step[2], rewards)
    assert lake.num_actions == 125


def test_joint_mask_is_the_product_of_agent_masks():
    lake = JointAgentLake(LakeEnvironment(observation=Flat()), PARAMS)
    for seed in range(4):
        _, state = lake.reset(jax.random.key(seed))
        agent_masks = np.asarray(lake.environment.action_mask(state, PARAMS))
        expected = [
            agent_masks[0, a % 5] & agent_masks[1, a // 5 % 5] & agent_masks[2, a // 25]
            for a in range(125)
        ]
        assert np.asarray(lake.action_mask(state)).tolist() == expected
        assert not all(expected)


def test_vectors_hold_the_content_of_planes():
    keys = jax.random.split(jax.random.key(2), 20)
    observations = {
        type(observation): jax.device_get(
            jax.vmap(LakeEnvironment(observation=observation).reset, (0, None))(keys, PARAMS)[0]
        )
        for observation in (Planes(), Flat(), FlatAgents())
    }
    planes = observations[Planes].board.astype(np.float32).transpose(0, 3, 1, 2).reshape(20, 7, 16)
    mask = observations[Planes].action_mask.astype(np.float32)
    vectors, agent_vectors = observations[Flat], observations[FlatAgents]
    assert np.array_equal(vectors[:, :112], planes.reshape(20, 112))
    assert np.array_equal(vectors[:, 112:127], mask.reshape(20, 15))
    assert (vectors[:, 127] == 1).all()
    holes, positions, goals = planes[:, 0], planes[:, 1:4], planes[:, 4:]
    for k in range(3):
        other_agents = [j for j in range(3) if j != k]
        parts = (
            holes,
            positions[:, k],
            goals[:, k],
            positions[:, other_agents].sum(1),
            goals[:, other_agents].sum(1),
        )
        expected = np.concatenate([*parts, mask[:, k], np.ones((20, 1))], axis=-1)
        assert np.array_equal(agent_vectors[:, k], expected)
    assert (planes[:, 2].sum(axis=-1) == 0).any()  # a board without agent 1


@pytest.mark.parametrize(
    "observation", [pytest.param(Flat(), marks=pytest.mark.slow), FlatAgents()]
)
def test_vector_environments_conform(observation):
    check_environment(LakeEnvironment(observation=observation), PARAMS)


def test_named_agents_are_the_lake_agents():
    environment = LakeEnvironment(observation=FlatAgents())
    lake = AgentDictionaryLake(environment, PARAMS)
    assert lake.agents == ["agent_0", "agent_1", "agent_2"]
    assert lake.action_space("agent_1") == Discrete(5)
    key = jax.random.key(4)
    observations, state = lake.reset(key)
    rows, _ = environment.reset(key, PARAMS)
    step = jax.jit(lake.step)
    num_episodes = 0
    for t in range(30):
        np.testing.assert_allclose([observations[agent] for agent in lake.agents], rows, rtol=1e-6)
        assert bool(lake.observation_space("agent_0").contains(observations["agent_0"]))
        action_masks = lake.get_avail_actions(state)
        actions = np.random.default_rng(t).integers(0, 5, 3).astype(np.int8)
        assert np.array_equal(
            np.stack([action_masks[agent] for agent in lake.agents]),
            environment.action_mask(state, PARAMS),
        )
        step_key = jax.random.fold_in(key, t)
        actions_by_agent = dict(zip(lake.agents, actions, strict=True))
        old_state = state
        observations, state, rewards, dones, _ = step(step_key, old_state, actions_by_agent)
        rows, expected_state, reward, terminated, truncated, _ = environment.step(
            step_key, old_state, actions, PARAMS
        )
        assert_same(state, expected_state)
        assert {float(value) for value in rewards.values()} == {float(reward)}
        assert set(dones) == {*lake.agents, "__all__"}
        assert {bool(done) for done in dones.values()} == {bool(terminated | truncated)}
        num_episodes += bool(dones["__all__"])
    assert num_episodes > 3
