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

N, K, T, B = 6, 3, 20, 1000


def _random_grids(seed, count, agents, holes=0.3):
    rng = random.Random(seed)
    return [
        oracles.random_grid(rng, rng.choice([3, 4, 5]), rng.uniform(0, holes), agents)
        for _ in range(count)
    ]


def _make_boards(grids):
    return make_instances(grids, N, K)


def _play(policy, boards, **options):
    """Play boards in a batch of constant size, so that tests share compiled programs."""
    count = len(boards.size)
    play = jax.jit(partial(roll_out, policy=policy, max_steps=T, **options))
    filled = select_rows(boards, np.arange(B) % count)
    return select_rows(play(jax.random.key(0), instances=filled), slice(count))


@pytest.fixture(scope="module")
def solved():
    """Return boards of two agents with their solutions."""
    grids = _random_grids(4, 80, 2, holes=0.4)
    boards = make_instances(grids, N, 2)
    return boards, jax.device_get(jax.jit(jax.vmap(partial(jaxlake.solve, horizon=T)))(boards))


def _assert_outcomes_match_oracle(grids, played):
    for i, grid in enumerate(grids):
        agents = len(oracles.read(grid).starts)
        verdict = oracles.check(grid, played.actions[i, : played.length[i], :agents].tolist())
        failure = Failure(int(played.outcome.failure[i]))
        label = None if failure is Failure.NONE else failure.label
        assert label == verdict.failure, grid
        if verdict.failure is None:
            assert played.outcome.sum_of_costs[i] == verdict.sum_of_costs
            assert played.length[i] == verdict.makespan
        elif verdict.failure == "goal_not_reached":
            assert played.length[i] == T
        else:
            assert played.length[i] == verdict.time + 1
        assert (played.actions[i, played.length[i] :] == 0).all()


def test_single_agent_follows_a_shortest_path():
    grids = _random_grids(1, 120, 1, holes=0.5)
    played = _play(ShortestPathPolicy(), _make_boards(grids))
    unreachable = 0
    for i, grid in enumerate(grids):
        steps = oracles.sum_of_distances(grid)
        if steps is None:
            unreachable += 1
            assert (played.actions[i] == 0).all()
        else:
            assert played.outcome.valid[i]
            assert played.outcome.sum_of_costs[i] == steps == played.length[i]
    assert 5 < unreachable < 100


def test_shortest_path_ties_are_broken_evenly():
    boards = _make_boards([["S F", "F G"]] * B)
    first = _play(ShortestPathPolicy(), boards).actions[:, 0, 0]
    down = (first == jaxlake.Action.DOWN).sum()
    assert down + (first == jaxlake.Action.RIGHT).sum() == B
    # The tolerance is four standard deviations of a fair coin.
    assert abs(down - B / 2) < 4 * np.sqrt(B / 4)


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
    grids = _random_grids(2, 60, 3) + _random_grids(3, 40, 2)
    played = _play(policy, _make_boards(grids), conflict=conflict)
    _assert_outcomes_match_oracle(grids, played)
    kinds = set(played.outcome.failure.tolist())
    if conflict != "fail":
        assert kinds <= {Failure.NONE, Failure.GOAL_NOT_REACHED}
    else:
        assert Failure.VERTEX_CONFLICT in kinds
    if policy != RandomPolicy(masked=False):
        assert not kinds & {Failure.OFF_BOARD, Failure.HOLE}


def test_random_policy_is_uniform_over_allowed_actions():
    boards = _make_boards([["S H F", "F F F", "F F G"]] * B)
    first = _play(RandomPolicy(), boards).actions[:, 0, 0]
    assert set(first.tolist()) == {jaxlake.Action.WAIT, jaxlake.Action.DOWN}
    assert abs((first == 0).sum() - B / 2) < 4 * np.sqrt(B / 4)


@pytest.mark.slow
def test_optimal_policy_reaches_the_optimum(solved):
    boards, solutions = solved
    play = jax.jit(partial(roll_out, policy=policies.optimal_policy(T), max_steps=T))
    played = jax.device_get(play(jax.random.key(0), instances=boards, solutions=solutions))
    solved = np.asarray(solutions.status) == Status.OPTIMAL
    assert 40 < solved.sum() < 80
    assert np.array_equal(played.outcome.optimal_sum_of_costs, solved)
    assert np.array_equal(played.outcome.valid, solved)
    assert (played.actions[~solved] == 0).all()


def test_prioritised_plans_are_valid():
    grids = _random_grids(5, 60, 3, holes=0.2)
    boards = _make_boards(grids)
    played = _play(policies.prioritised_policy(T), boards)
    _assert_outcomes_match_oracle(grids, played)
    valid = played.outcome.valid
    assert valid.mean() > 0.6
    assert not np.isin(played.outcome.failure, (Failure.OFF_BOARD, Failure.HOLE)).any()
    for i in np.flatnonzero(valid):
        board = oracles.read(grids[i])
        distance = oracles.distances_to(board, board.goals[0])[board.starts[0]]
        cells, arrival = board.starts[0], 0
        for t, action in enumerate(played.actions[i, :, 0].tolist()):
            cells = tuple(np.add(cells, oracles.MOVES[action]).tolist())
            if action:
                arrival = t + 1
        assert cells == board.goals[0]
        assert arrival == distance


@pytest.mark.slow
def test_sweep_equals_single_rollouts(solved):
    all_policies = (RandomPolicy(), ShortestPathPolicy(), policies.prioritised_policy(T))
    boards, solutions = jax.tree.map(
        lambda leaf: np.reshape(leaf, (4, 20, *np.shape(leaf)[1:])), solved
    )
    traces = 0

    @jax.jit
    def sweep_tables(key, boards, solutions, mask, first=0):
        nonlocal traces
        traces += 1
        return sweep(key, all_policies, boards, solutions, mask, max_steps=T, first=first)

    mask = np.ones((4, 20), bool)
    mask[2, 3:] = False
    key = jax.random.key(9)
    table = jax.device_get(sweep_tables(key, boards, solutions, mask, 0))
    rolled = jax.tree.map(lambda leaf: np.roll(leaf, -1, axis=0), (boards, solutions, mask))
    shifted = jax.device_get(sweep_tables(key, *rolled, 1))
    assert_same(select_rows(shifted, np.s_[:, :3]), select_rows(table, np.s_[:, 1:]))
    assert traces == 1
    assert table.failures.shape[:2] == (3, 4)
    assert (table.failures.sum(axis=(2, 3, 4, 5, 6)) == mask.sum(axis=1)).all()

    valid = table.failures[..., Failure.NONE].sum(axis=(2, 3, 4, 5))
    solvable = ((solutions.status == Status.OPTIMAL) & mask).sum(axis=1)
    assert (valid <= solvable).all()
    assert valid[2].sum() > valid[0].sum()
    single = jax.jit(
        lambda key, boards: roll_out(key, ShortestPathPolicy(), boards, max_steps=T).outcome
    )
    for row in range(4):
        outcome = jax.device_get(single(jax.random.fold_in(key, row), select_rows(boards, row)))
        kinds = np.bincount(outcome.failure[mask[row]], minlength=len(Failure))
        assert np.array_equal(table.failures[1, row].sum(axis=(0, 1, 2, 3)), kinds)


@dataclass(frozen=True)
class _Constant:
    """A policy with constant actions."""

    actions: tuple[int, ...] | int
    dtype: Any = np.int8

    def start(self, key, instance):
        return ()

    def act(self, key, instance, positions, time, memory):
        return np.array(self.actions, self.dtype), memory


def test_roll_out_checks_the_actions_of_a_policy():
    boards = _make_boards([["S F G", "s F g", "F F F"]] * 2)
    for actions, dtype in ((4, np.int8), ((4,), np.int8), ((4,) * 2, np.int8), ((4.0,) * K, float)):
        with pytest.raises(ValueError, match=r"actions must be integers of shape \(3,\)"):
            roll_out(jax.random.key(0), _Constant(actions, dtype), boards, max_steps=4)
    played = roll_out(jax.random.key(0), _Constant((4, 4, 0), np.int32), boards, max_steps=4)
    assert played.outcome.valid.all()


@dataclass(frozen=True, eq=False)
class _Network:
    """A policy whose weights favour actions."""

    weights: jax.Array  # (5,)

    def start(self, key, instance):
        return ()

    def act(self, key, instance, positions, time, memory):
        return jax.random.categorical(key, self.weights, shape=(K,)), memory


def test_roll_out_is_mapped_over_keys_and_weights():
    boards, keys = _make_boards(_random_grids(7, 2, 2)), jax.random.split(jax.random.key(3), 4)
    weights = jnp.stack([jnp.arange(5.0), -jnp.arange(5.0)])

    def play(weights, key):
        return roll_out(key, _Network(weights), boards, max_steps=6).actions

    expected = np.stack([[play(row, key) for key in keys] for row in weights])
    assert len({actions.tobytes() for actions in expected.reshape(8, -1)}) > 4
    by_keys = jax.jit(jax.vmap(play, (None, 0)))
    by_both = jax.vmap(jax.vmap(play, (None, 0)), (0, None))
    assert_same(np.stack([by_keys(row, keys) for row in weights]), expected)
    assert_same(by_both(weights, keys), expected)


@dataclass(frozen=True)
class _Forgetful:
    returned: Any

    def start(self, key, instance):
        return {"steps": 0}

    def act(self, key, instance, positions, time, memory):
        return self.returned(np.zeros(K, np.int8))


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (lambda actions: actions, r"\(actions, memory\), got"),
        (lambda actions: (actions, ()), r"memory like {'steps': 'int32\[\]'}, got \(\)"),
        (lambda actions: (actions, {"steps": 0.5}), r"got {'steps': 'float32\[\]'}"),
    ],
)
def test_roll_out_checks_the_memory_of_a_policy(returned, problem):
    boards = _make_boards([["S F G", "s F g", "F F F"]])
    with pytest.raises(ValueError, match=f"policy: act must return .*{problem}"):
        roll_out(jax.random.key(0), _Forgetful(returned), boards, max_steps=4)


def test_invalid_arguments_are_rejected_by_name():
    key, policy, single_axis = (
        jax.random.key(0),
        RandomPolicy(),
        _make_boards(_random_grids(7, 2, 2)),
    )
    boards = _make_boards(_random_grids(7, 2, 2))
    for call, error, problem in (
        (
            lambda: sweep(key, policy, single_axis, None),
            TypeError,
            "policies must be a list of policies, got RandomPolicy",
        ),
        (
            lambda: sweep(key, ["random"], single_axis, None),
            ValueError,
            "policy: must be a JointPolicy, got 'random'",
        ),
        (
            lambda: roll_out(key, RandomPolicy, single_axis),
            ValueError,
            "policy: must be an object .*, got the class",
        ),
        (lambda: roll_out(policy, key, single_axis), TypeError, "key must be .* got RandomPolicy"),
        (
            lambda: roll_out(jax.random.PRNGKey(0), policy, single_axis),
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
        with pytest.raises(error, match=problem):
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
