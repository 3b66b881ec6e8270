"""Scripted policies and their rollouts against plain Python."""

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Failure, Status, policies
from jaxlake.policies import RandomPolicy, ShortestPathPolicy, roll_out, sweep
from tests.jaxlake.solver.boards import assert_same, make_instances, select_rows

MAX_SIZE, MAX_AGENTS, MAX_STEPS, BATCH_SIZE = 6, 3, 20, 1000


def _draw_grids(seed, count, num_agents, hole_ratio=0.3):
    rng = random.Random(seed)
    return [
        oracles.random_grid(rng, rng.choice([3, 4, 5]), rng.uniform(0, hole_ratio), num_agents)
        for _ in range(count)
    ]


def _make_boards(grids):
    return make_instances(grids, MAX_SIZE, MAX_AGENTS)


def _roll_out_batch(policy, boards, **options):
    """Play boards in a batch of constant size, so that tests share compiled programs."""
    num_boards = len(boards.size)
    play = jax.jit(partial(roll_out, policy=policy, max_steps=MAX_STEPS, **options))
    batch = select_rows(boards, np.arange(BATCH_SIZE) % num_boards)
    return select_rows(play(jax.random.key(0), instances=batch), slice(num_boards))


@pytest.fixture(scope="module")
def solved_boards():
    """Return boards of two agents with their solutions."""
    grids = _draw_grids(4, 80, 2, hole_ratio=0.4)
    boards = make_instances(grids, MAX_SIZE, 2)
    solve = jax.jit(jax.vmap(partial(jaxlake.solve, horizon=MAX_STEPS)))
    return boards, jax.device_get(solve(boards))


def _assert_outcomes_match_oracle(grids, rollout):
    for i, grid in enumerate(grids):
        num_agents = len(oracles.parse_board(grid).starts)
        verdict = oracles.check_plan(
            grid, rollout.actions[i, : rollout.length[i], :num_agents].tolist()
        )
        failure = Failure(int(rollout.outcome.failure[i]))
        label = None if failure is Failure.NONE else failure.label
        assert label == verdict.failure, grid
        if verdict.failure is None:
            assert rollout.outcome.sum_of_costs[i] == verdict.sum_of_costs
            assert rollout.length[i] == verdict.makespan
        elif verdict.failure == "goal_not_reached":
            assert rollout.length[i] == MAX_STEPS
        else:
            assert rollout.length[i] == verdict.time + 1
        assert (rollout.actions[i, rollout.length[i] :] == 0).all()


def test_single_agent_follows_a_shortest_path():
    grids = _draw_grids(1, 120, 1, hole_ratio=0.5)
    rollout = _roll_out_batch(ShortestPathPolicy(), _make_boards(grids))
    num_unreachable = 0
    for i, grid in enumerate(grids):
        steps = oracles.sum_of_distances(grid)
        if steps is None:
            num_unreachable += 1
            assert (rollout.actions[i] == 0).all()
        else:
            assert rollout.outcome.valid[i]
            assert rollout.outcome.sum_of_costs[i] == steps == rollout.length[i]
    assert 5 < num_unreachable < 100


def test_shortest_path_ties_are_broken_evenly():
    boards = _make_boards([["S F", "F G"]] * BATCH_SIZE)
    first_actions = _roll_out_batch(ShortestPathPolicy(), boards).actions[:, 0, 0]
    num_down = (first_actions == jaxlake.Action.DOWN).sum()
    assert num_down + (first_actions == jaxlake.Action.RIGHT).sum() == BATCH_SIZE
    # The tolerance is four standard deviations of a fair coin.
    assert abs(num_down - BATCH_SIZE / 2) < 4 * np.sqrt(BATCH_SIZE / 4)


@pytest.mark.parametrize(
    ("policy", "conflict"),
    [
        (RandomPolicy(), "fail"),
        (ShortestPathPolicy(), "fail"),
        (RandomPolicy(masked=False), "block_both"),
        (ShortestPathPolicy(), "priority"),
    ],
    ids=str,
)
def test_outcomes_match_python_reference(policy, conflict):
    grids = _draw_grids(2, 60, 3) + _draw_grids(3, 40, 2)
    rollout = _roll_out_batch(policy, _make_boards(grids), conflict=conflict)
    _assert_outcomes_match_oracle(grids, rollout)
    failures = set(rollout.outcome.failure.tolist())
    if conflict != "fail":
        assert failures <= {Failure.NONE, Failure.GOAL_NOT_REACHED}
    else:
        assert Failure.VERTEX_CONFLICT in failures
    if policy != RandomPolicy(masked=False):
        assert not failures & {Failure.OFF_BOARD, Failure.HOLE}


def test_random_policy_is_uniform_over_allowed_actions():
    boards = _make_boards([["S H F", "F F F", "F F G"]] * BATCH_SIZE)
    first_actions = _roll_out_batch(RandomPolicy(), boards).actions[:, 0, 0]
    assert set(first_actions.tolist()) == {jaxlake.Action.WAIT, jaxlake.Action.DOWN}
    assert abs((first_actions == 0).sum() - BATCH_SIZE / 2) < 4 * np.sqrt(BATCH_SIZE / 4)


@pytest.mark.slow
def test_optimal_policy_reaches_the_optimum(solved_boards):
    boards, solutions = solved_boards
    policy = policies.optimal_policy(MAX_STEPS)
    play = jax.jit(partial(roll_out, policy=policy, max_steps=MAX_STEPS))
    rollout = jax.device_get(play(jax.random.key(0), instances=boards, solutions=solutions))
    optimal_mask = np.asarray(solutions.status) == Status.OPTIMAL
    assert 40 < optimal_mask.sum() < 80
    assert np.array_equal(rollout.outcome.optimal_sum_of_costs, optimal_mask)
    assert np.array_equal(rollout.outcome.valid, optimal_mask)
    assert (rollout.actions[~optimal_mask] == 0).all()


def test_prioritised_plans_are_valid():
    grids = _draw_grids(5, 60, 3, hole_ratio=0.2)
    boards = _make_boards(grids)
    rollout = _roll_out_batch(policies.prioritised_policy(MAX_STEPS), boards)
    _assert_outcomes_match_oracle(grids, rollout)
    valid_mask = rollout.outcome.valid
    assert valid_mask.mean() > 0.6
    assert not np.isin(rollout.outcome.failure, (Failure.OFF_BOARD, Failure.HOLE)).any()
    for i in np.flatnonzero(valid_mask):
        board = oracles.parse_board(grids[i])
        distance = oracles.distances_to(board, board.goals[0])[board.starts[0]]
        cell, arrival = board.starts[0], 0
        for t, action in enumerate(rollout.actions[i, :, 0].tolist()):
            cell = tuple(np.add(cell, oracles.MOVES[action]).tolist())
            if action:
                arrival = t + 1
        assert cell == board.goals[0]
        assert arrival == distance


@pytest.mark.slow
def test_sweep_equals_single_rollouts(solved_boards):
    all_policies = (RandomPolicy(), ShortestPathPolicy(), policies.prioritised_policy(MAX_STEPS))
    boards, solutions = jax.tree.map(
        lambda leaf: np.reshape(leaf, (4, 20, *np.shape(leaf)[1:])), solved_boards
    )
    num_traces = 0

    @jax.jit
    def sweep_tables(key, boards, solutions, mask, first=0):
        nonlocal num_traces
        num_traces += 1
        return sweep(key, all_policies, boards, solutions, mask, max_steps=MAX_STEPS, first=first)

    mask = np.ones((4, 20), bool)
    mask[2, 3:] = False
    key = jax.random.key(9)
    table = jax.device_get(sweep_tables(key, boards, solutions, mask, 0))
    arguments = jax.tree.map(lambda leaf: np.roll(leaf, -1, axis=0), (boards, solutions, mask))
    shifted_table = jax.device_get(sweep_tables(key, *arguments, 1))
    assert_same(select_rows(shifted_table, np.s_[:, :3]), select_rows(table, np.s_[:, 1:]))
    assert num_traces == 1
    assert table.failures.shape[:2] == (3, 4)
    assert (table.failures.sum(axis=(2, 3, 4, 5, 6)) == mask.sum(axis=1)).all()

    num_valid = table.failures[..., Failure.NONE].sum(axis=(2, 3, 4, 5))
    num_solvable = ((solutions.status == Status.OPTIMAL) & mask).sum(axis=1)
    assert (num_valid <= num_solvable).all()
    assert num_valid[2].sum() > num_valid[0].sum()
    play = jax.jit(
        lambda key, boards: roll_out(key, ShortestPathPolicy(), boards, max_steps=MAX_STEPS).outcome
    )
    for row in range(4):
        outcome = jax.device_get(play(jax.random.fold_in(key, row), select_rows(boards, row)))
        failure_counts = np.bincount(outcome.failure[mask[row]], minlength=len(Failure))
        assert np.array_equal(table.failures[1, row].sum(axis=(0, 1, 2, 3)), failure_counts)


@dataclass(frozen=True)
class _ConstantPolicy:
    """A policy with constant actions."""

    actions: tuple[int, ...] | int
    dtype: Any = np.int8

    def start(self, key, instance):
        return ()

    def act(self, key, instance, positions, time, memory):
        return np.array(self.actions, self.dtype), memory


def test_roll_out_checks_the_actions_of_a_policy():
    boards = _make_boards([["S F G", "s F g", "F F F"]] * 2)
    for actions, dtype in ((4, np.int8), ((4,), np.int8), ((4,) * 2, np.int8), ((4.0,) * 3, float)):
        with pytest.raises(ValueError, match=r"actions must be integers of shape \(3,\)"):
            roll_out(jax.random.key(0), _ConstantPolicy(actions, dtype), boards, max_steps=4)
    rollout = roll_out(jax.random.key(0), _ConstantPolicy((4, 4, 0), np.int32), boards, max_steps=4)
    assert rollout.outcome.valid.all()


@dataclass(frozen=True, eq=False)
class _NetworkPolicy:
    """A policy whose weights favour actions."""

    weights: jax.Array  # (5,)

    def start(self, key, instance):
        return ()

    def act(self, key, instance, positions, time, memory):
        return jax.random.categorical(key, self.weights, shape=(MAX_AGENTS,)), memory


def test_roll_out_is_mapped_over_keys_and_weights():
    boards, keys = _make_boards(_draw_grids(7, 2, 2)), jax.random.split(jax.random.key(3), 4)
    weights = jnp.stack([jnp.arange(5.0), -jnp.arange(5.0)])

    def play(weights, key):
        return roll_out(key, _NetworkPolicy(weights), boards, max_steps=6).actions

    expected = np.stack([[play(row, key) for key in keys] for row in weights])
    assert len({actions.tobytes() for actions in expected.reshape(8, -1)}) > 4
    play_keys = jax.jit(jax.vmap(play, (None, 0)))
    play_all = jax.vmap(jax.vmap(play, (None, 0)), (0, None))
    assert_same(np.stack([play_keys(row, keys) for row in weights]), expected)
    assert_same(play_all(weights, keys), expected)


@dataclass(frozen=True)
class _BadMemoryPolicy:
    make_output: Any

    def start(self, key, instance):
        return {"steps": 0}

    def act(self, key, instance, positions, time, memory):
        return self.make_output(np.zeros(MAX_AGENTS, np.int8))


@pytest.mark.parametrize(
    ("make_output", "problem"),
    [
        (lambda actions: actions, r"\(actions, memory\), got"),
        (lambda actions: (actions, ()), r"memory like {'steps': 'int32\[\]'}, got \(\)"),
        (lambda actions: (actions, {"steps": 0.5}), r"got {'steps': 'float32\[\]'}"),
    ],
)
def test_roll_out_checks_the_memory_of_a_policy(make_output, problem):
    boards = _make_boards([["S F G", "s F g", "F F F"]])
    with pytest.raises(ValueError, match=f"policy: act must return .*{problem}"):
        roll_out(jax.random.key(0), _BadMemoryPolicy(make_output), boards, max_steps=4)


def test_invalid_arguments_are_rejected_by_name():
    key, policy = jax.random.key(0), RandomPolicy()
    boards = _make_boards(_draw_grids(7, 2, 2))
    for call, error_type, problem in (
        (
            lambda: sweep(key, policy, boards, None),
            TypeError,
            "policies must be a list of policies, got RandomPolicy",
        ),
        (
            lambda: sweep(key, ["random"], boards, None),
            ValueError,
            "policy: must be a JointPolicy, got 'random'",
        ),
        (
            lambda: roll_out(key, RandomPolicy, boards),
            ValueError,
            "policy: must be an object .*, got the class",
        ),
        (lambda: roll_out(policy, key, boards), TypeError, "key must be .* got RandomPolicy"),
        (
            lambda: roll_out(jax.random.PRNGKey(0), policy, boards),
            TypeError,
            "key must be .* got uint32",
        ),
        (
            lambda: roll_out(key, policy, None),
            TypeError,
            "instance must be an Instance, got NoneType",
        ),
        (
            lambda: roll_out(key, policy, np.zeros(2)),
            TypeError,
            "instance must be an Instance, got an array",
        ),
        (
            lambda: roll_out(key, policy, boards, max_steps=5.0),
            TypeError,
            "max_steps must be an integer, got 5.0",
        ),
        (
            lambda: roll_out(key, policy, boards, max_steps=40_000),
            ValueError,
            "max_steps must be in .*, got 40000",
        ),
    ):
        with pytest.raises(error_type, match=problem):
            call()
    message = r"conflict must be one of .* got 'failing'"
    with pytest.raises(ValueError, match=message):
        roll_out(jax.random.key(0), RandomPolicy(), boards, conflict="failing")
    with pytest.raises(ValueError, match=message):
        sweep(jax.random.key(0), (RandomPolicy(),), boards, None, conflict="failing")
    single_board = jax.tree.map(lambda leaf: leaf[0], boards)
    with pytest.raises(ValueError, match=r"max_steps must be in .*, got 0"):
        roll_out(jax.random.key(0), RandomPolicy(), boards, max_steps=0)
    with pytest.raises(ValueError, match="must have one leading axis"):
        roll_out(jax.random.key(0), RandomPolicy(), single_board)
    with pytest.raises(ValueError, match="policies must have at least 1 policy"):
        sweep(jax.random.key(0), (), boards, None)
    with pytest.raises(ValueError, match="devices must have at least 1 device"):
        sweep(jax.random.key(0), (RandomPolicy(),), boards, None, devices=())
