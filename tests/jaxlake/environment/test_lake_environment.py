"""Episodes of the lake: verification, auto-reset, pools, and vmap over parameters."""

import random
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Failure
from jaxlake.board.instance import pad_instance
from jaxlake.environment import JointAgentLake, LakeEnvironment, Planes
from jaxlake.environment.params import EnvState, env_params
from jaxlake.environment.step_rewards import agent_reward, sparse_reward
from jaxlake.policies import ShortestPathPolicy, roll_out
from jaxlake.solver.solution import unknown_solution
from tests.jaxlake.solver.boards import (
    assert_same,
    draw_pool,
    draw_starts_on_goals,
    make_instances,
    select_rows,
)

MAX_STEPS = 24


def _play_plan(environment, params, index, plan):
    """Play one plan with `step_env` on one board of the pool."""
    false = jnp.bool_(False)
    state = EnvState(index, params.instances.starts[index], jnp.int32(0), false, false)

    def advance(state, actions):
        _, state, reward, terminated, info = environment.step_env(None, state, actions, params)
        return state, (reward, terminated, info["failure"], info["agent"], info["solved"])

    return jax.lax.scan(advance, state, plan)


def _mutate_plan(rng, plan):
    for _ in range(rng.choice([0, 0, 1, 2])):
        plan[rng.randrange(len(plan))][rng.randrange(len(plan[0]))] = rng.randrange(5)
    return plan


def test_fail_policy_matches_verify():
    rng = random.Random(7)
    grids, _ = draw_pool(1, 300, [2, 3, 4, 5, 6], [2], 8, 2)
    boards = make_instances(
        grids + draw_starts_on_goals(1, 100, sizes=(3, 4, 5), agent_counts=(2,)), 8, 2
    )
    play_all = jax.jit(partial(roll_out, policy=ShortestPathPolicy(), max_steps=MAX_STEPS))
    plans = np.asarray(play_all(jax.random.key(0), instances=boards).actions).tolist()
    unknown_solutions = jax.vmap(lambda _: unknown_solution(MAX_STEPS, 2))(boards.size)
    for i in range(0, len(plans), 3):
        plans[i] = [[rng.randrange(5), rng.randrange(5)] for _ in range(MAX_STEPS)]
        plans[i + 1 : i + 3] = [_mutate_plan(rng, plan) for plan in plans[i + 1 : i + 3]]
    plans = np.array(plans, np.int8)
    params = env_params(boards, max_steps=MAX_STEPS + 1)
    indices = np.arange(len(plans))

    @jax.jit
    def play_and_verify(plans):
        play_plans = jax.vmap(partial(_play_plan, LakeEnvironment(), params))
        state, steps = play_plans(indices, plans)
        outcome = jax.vmap(jaxlake.verify)(
            boards, plans, state.time, jnp.ones(len(plans), bool), unknown_solutions
        )
        return state, steps, outcome

    state, (_, terminated, failure, agent, solved), outcome = jax.device_get(play_and_verify(plans))
    rows = np.arange(len(plans))
    last_step = state.time - 1
    failure_mask = failure[rows, last_step] != Failure.NONE
    termination_mask = terminated[rows, last_step]
    assert np.array_equal(outcome.valid, solved[rows, last_step] & ~failure_mask)
    assert np.array_equal(outcome.failure[failure_mask], failure[rows, last_step][failure_mask])
    assert np.array_equal(outcome.agent[failure_mask], agent[rows, last_step][failure_mask])
    assert np.array_equal(outcome.time[failure_mask], last_step[failure_mask])
    assert (outcome.failure[~termination_mask] == Failure.GOAL_NOT_REACHED).all()
    assert (state.time[~termination_mask] == MAX_STEPS).all()
    assert set(outcome.failure.tolist()) == {0, 2, 3, 4, 5, 6}
    for i in rows:
        assert not terminated[i, : last_step[i]].any()
        assert terminated[i, last_step[i] :].all() == termination_mask[i]


def test_termination_and_truncation_are_distinct():
    board = jaxlake.parse_grid(["S F s", "F F F", "G F g"], max_size=5, max_agents=3)
    params = env_params(board, max_steps=2)
    environment = LakeEnvironment()
    _, state = environment.reset(jax.random.key(0), params)
    actions = jnp.full(3, jaxlake.Action.DOWN, jnp.int8)
    *_, terminated, truncated, info = environment.step(jax.random.key(0), state, actions, params)
    assert (bool(terminated), bool(truncated), bool(info["solved"])) == (False, False, False)
    state = environment.step(jax.random.key(0), state, actions, params)[1]
    _, _, reward, *flags, info = environment.step(jax.random.key(0), state, actions, params)
    assert [bool(flag) for flag in flags] == [True, True]
    assert bool(info["solved"])
    assert reward == 1
    long_params = replace(params, max_steps=jnp.int32(3))
    *_, terminated, truncated, _ = environment.step(jax.random.key(0), state, actions, long_params)
    assert (bool(terminated), bool(truncated)) == (True, False)


def test_rewards_can_be_exchanged():
    board = jaxlake.parse_grid(["S s G", "F F F", "F F g"], max_size=4, max_agents=3)
    params = env_params(board)
    actions = jnp.array([jaxlake.Action.DOWN, jaxlake.Action.RIGHT, 0], jnp.int8)

    def compute_reward(function, actions=actions):
        environment = LakeEnvironment(reward=function) if function else LakeEnvironment()
        _, state = environment.reset(jax.random.key(0), params)
        return np.asarray(environment.step(jax.random.key(0), state, actions, params)[2])

    assert compute_reward(None) == np.float32(-0.01)
    assert compute_reward(sparse_reward) == 0
    assert compute_reward(agent_reward).tolist() == [0, 0, 0]
    off_board_actions = actions.at[1].set(jaxlake.Action.UP)
    assert compute_reward(None, off_board_actions) == -1
    assert compute_reward(agent_reward, off_board_actions).tolist() == [0, -1, 0]


@pytest.mark.parametrize(
    ("conflict", "moves", "rewards"),
    [
        ("fail", ("WAIT", "LEFT"), [-1, -1]),
        ("block_both", ("WAIT", "LEFT"), [0, -1]),
        ("priority", ("WAIT", "LEFT"), [0, -1]),
        ("fail", ("RIGHT", "LEFT"), [-1, -1]),
        ("block_both", ("RIGHT", "LEFT"), [-1, -1]),
        ("priority", ("RIGHT", "LEFT"), [1, -1]),
    ],
)
def test_agents_are_rewarded_for_their_executed_actions(conflict, moves, rewards):
    """Agent 1 moves onto the goal of agent 0, which waits there or enters it."""
    board = jaxlake.parse_grid(["S G s", "F F g", "F F F"])
    if moves[0] == "WAIT":
        board = replace(board, starts=np.stack([board.goals[0], board.starts[1]]))
    environment = LakeEnvironment(conflict=conflict, reward=agent_reward)
    params = env_params(board)
    _, state = environment.reset(jax.random.key(0), params)
    actions = jnp.array([jaxlake.Action[move] for move in moves], jnp.int8)
    reward = environment.step_env(jax.random.key(0), state, actions, params)[2]
    assert reward.tolist() == rewards


@pytest.mark.parametrize(
    "actions", [4, [4], [[4, 0]], [[4], [0]], [4.0, 0.0], [True, False], [4, 0, 0]]
)
def test_actions_of_invalid_shape_or_dtype_are_rejected(actions):
    params = env_params(jaxlake.parse_grid(["S G", "s g"]))
    environment = LakeEnvironment()
    _, state = environment.reset(jax.random.key(0), params)
    for step in (environment.step, environment.step_env):
        with pytest.raises(ValueError, match=r"actions must be integers of shape \(2,\)"):
            step(jax.random.key(0), state, jnp.asarray(actions), params)


@pytest.mark.parametrize("use_split_keys", [True, False])
def test_reset_draws_filled_boards_uniformly(use_split_keys):
    _, boards = draw_pool(4, 7, [3, 4], [2], 4, 2)
    filled = np.array([False, True, True, False, True, True, True])
    params = env_params(boards, filled=filled)
    keys = jax.random.split(jax.random.key(5), 10_000)
    if not use_split_keys:
        keys = jax.vmap(jax.random.key)(jnp.arange(10_000))
    _, state = jax.vmap(LakeEnvironment().reset, (0, None))(keys, params)
    counts = np.bincount(np.asarray(state.index), minlength=7)
    assert counts[5:].sum() == 0
    # Chi-square with 4 degrees of freedom is above 23.5 once in ten thousand.
    assert ((counts[:5] - 2000) ** 2 / 2000).sum() < 23.5
    starts = np.asarray(params.instances.starts)[:5]
    assert np.array_equal(starts, np.asarray(boards.starts)[filled])


def test_vmapped_params_equal_single_ones_without_retracing():
    environment = LakeEnvironment()
    pools = [draw_pool(seed, 6, [3 + seed], [2], 6, 2)[1] for seed in range(3)]
    params = [env_params(pool, max_steps=4 + seed) for seed, pool in enumerate(pools)]
    num_traces = 0

    @jax.jit
    def play(key, params):
        nonlocal num_traces
        num_traces += 1

        def advance(state, key):
            actions = environment.action_space(params).sample(key)
            _, state, reward, *flags, _ = environment.step(key, state, actions, params)
            return state, (reward, flags, state.positions)

        state = environment.reset(key, params)[1]
        return jax.lax.scan(advance, state, jax.random.split(key, 20))[1]

    keys = jax.random.split(jax.random.key(2), 3)
    expected_steps = [jax.device_get(play(k, p)) for k, p in zip(keys, params, strict=True)]
    assert num_traces == 1
    stacked_params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    batched_steps = jax.device_get(jax.jit(jax.vmap(play))(keys, stacked_params))
    for i, expected in enumerate(expected_steps):
        assert_same(select_rows(batched_steps, i), expected)


def test_invalid_arguments_are_named():
    for options, problem in (
        ({"observation": "planes"}, "observation must be an Observation .* got 'planes'"),
        ({"observation": Planes}, "observation must be an Observation .* got <class .*Planes'>"),
        ({"reward": "team"}, "reward must be a function such as team_reward, got 'team'"),
    ):
        with pytest.raises(TypeError, match=problem):
            LakeEnvironment(**options)
    environment, params = LakeEnvironment(), env_params(jaxlake.parse_grid(["S G", "s g"]))
    key, raw_key, waits = jax.random.key(0), jax.random.PRNGKey(0), jnp.zeros(2, jnp.int8)
    _, state = environment.reset(key, params)
    for call, problem in (
        (
            lambda: environment.reset(raw_key, params),
            r"key must be a typed key .* got uint32 \(2,\)",
        ),
        (lambda: environment.step(raw_key, state, waits, params), "key must be .* got uint32"),
        (lambda: environment.reset(params, key), "key must be a typed key .* got EnvParams"),
        (lambda: environment.reset(key, params.instances), "must be an EnvParams .* got Instance"),
        (
            lambda: environment.step(key, params, waits, state),
            "must be an EnvState .* got EnvParams",
        ),
    ):
        with pytest.raises(TypeError, match=problem):
            call()
    # Scripts for gymnax pass raw keys to the adapter.
    assert_same(JointAgentLake(environment, params).reset(raw_key)[1], state)


def test_invalid_pools_are_rejected():
    _, boards = draw_pool(4, 3, [3], [2], 4, 2)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        env_params(boards, max_steps=0)
    with pytest.raises(ValueError, match="filled must have shape"):
        env_params(boards, filled=np.ones(2, bool))
    with pytest.raises(ValueError, match="filled must be True for at least one board"):
        env_params(boards, filled=np.zeros(3, bool))
    partial_boards = replace(boards, agent_mask=np.array([[True] * 2, [False] * 2, [True] * 2]))
    with pytest.raises(ValueError, match=r"1 of 3 without; pass filled=Generated"):
        env_params(partial_boards)
    with pytest.raises(ValueError, match=r"an agent on every board, got 1 of 2 without$"):
        env_params(partial_boards, filled=np.array([True, True, False]))
    assert int(env_params(partial_boards, filled=np.array([True, False, True])).count) == 2
    with pytest.raises(ValueError, match="at most 32x32"):
        env_params(pad_instance(jaxlake.parse_grid(["S G", "F F"]), 33, 2))
    with pytest.raises(ValueError, match="instances must have at least one board"):
        env_params(jax.tree.map(lambda leaf: leaf[:0], boards))
