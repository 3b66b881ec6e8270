"""Public functions compile once per shape, also outside jit."""

import re
from collections import Counter
from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.policies import RandomPolicy, roll_out, sweep
from jaxlake.runtime.cpu_devices import jit_search
from jaxlake.solver import solve_batch
from jaxlake.solver.solution import unknown_solution

GRIDS = [["S F G", "s H F", "g F F"], ["F S g", "F H s", "G F F"]]
HORIZON = 8


@pytest.fixture
def count_compilations():
    """Call a function and return how many programs it had compiled."""
    durations = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            durations.append(duration)

    def count(function):
        durations.clear()
        jax.block_until_ready(function())
        return len(durations)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


def make_board(number):
    return jaxlake.parse_grid(GRIDS[number])


def make_boards(*numbers):
    return jaxlake.stack_instances([make_board(number) for number in numbers])


def make_unknown_solution(*axes):
    """Return a solution of status UNKNOWN, with leading axes."""
    return jax.tree.map(lambda leaf: np.expand_dims(leaf, axes), unknown_solution(HORIZON, 2))


def verify_board(number, steps=2):
    plan = np.full((HORIZON, 2), number, np.int8)
    return jaxlake.verify(make_board(number), plan, steps, True, make_unknown_solution())


def tabulate_outcome(number):
    outcomes = jax.tree.map(lambda leaf: leaf[None], verify_board(0))
    return jaxlake.tabulate(make_boards(0), np.array([number > 0]), outcomes)


def run_sweep(number):
    boards = jax.tree.map(lambda leaf: leaf[None], make_boards(number))
    key = jax.random.key(number)
    return sweep(key, [RandomPolicy()], boards, make_unknown_solution(0, 1), max_steps=HORIZON)


CALLS = {
    "solve": lambda number: jaxlake.solve(
        make_board(number), horizon=HORIZON, max_expansions=np.int64(5 + number)
    ),
    "verify": lambda number: verify_board(number, np.int16(2 + number)),
    "tabulate": tabulate_outcome,
    "distances": lambda number: jaxlake.distances(
        make_board(number).holes, make_board(number).goals[0]
    ),
    "roll_out": lambda number: roll_out(
        jax.random.key(0), RandomPolicy(), make_boards(number), max_steps=HORIZON
    ),
    "sweep": run_sweep,
}


@pytest.mark.parametrize("name", CALLS)
def test_second_call_compiles_nothing(name, count_compilations):
    count_compilations(lambda: CALLS[name](0))
    assert count_compilations(lambda: CALLS[name](1)) == 0


def test_searches_compile_separately_unless_flags_are_set(count_compilations, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    double = jit_search(lambda x, times: x * times, static_argnames="times")
    three = np.int32(3)
    assert count_compilations(lambda: double(three, times=2)) > 0
    assert count_compilations(lambda: double(three, times=2)) == 0
    # XLA would refuse options of a program within another one, be its arguments traced or not.
    assert jax.jit(lambda: double(three, times=2))() == 6
    assert jax.jit(lambda x: double(x, times=2))(three) == 6
    assert jax.vmap(partial(double, times=2))(np.arange(3)).tolist() == [0, 2, 4]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert count_compilations(lambda: double(three, times=2)) > 0


@pytest.mark.parametrize("on_a_device", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_generate_compiles_each_program_once(caplog, on_a_device):
    key = jax.random.key(0)
    if on_a_device:
        key = jax.device_put(key, jax.devices()[0])
    # No other test compiles for this size of a batch.
    settings = {"max_size": 3 + on_a_device, "horizon": HORIZON, "batch_size": 40}
    with caplog.at_level("DEBUG", logger="jax._src.dispatch"):
        lakes = jaxlake.generate(key, jaxlake.lake_params(3, 0.1), 8, **settings)
    assert lakes.filled.all()
    counts = Counter(re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text))
    names = ("_initialize", "_begin_round", "_run_batch", "_end_round", "collect_sets")
    assert [counts[name] for name in names] == [1] * len(names)


@pytest.mark.slow
def test_eager_batches_compile_once(count_compilations):
    def solve(board):
        return jaxlake.solve(board, horizon=HORIZON)

    expected = jax.vmap(solve)(make_boards(0, 1))
    assert count_compilations(lambda: jax.vmap(solve)(make_boards(1, 0))) == 0
    actual = solve_batch(make_boards(0, 1), horizon=HORIZON)
    jax.tree.map(np.testing.assert_array_equal, expected, actual)
    for i in range(2):
        row = jax.tree.map(lambda leaf, i=i: leaf[i], expected)
        jax.tree.map(np.testing.assert_array_equal, row, solve(make_board(i)))


def test_solve_batch_rejects_single_instance():
    with pytest.raises(ValueError, match=r"agent_mask must have shape \(B, K\), got \(2,\)"):
        solve_batch(make_board(0))


@pytest.mark.slow
def test_generate_reuses_the_solver_for_other_counts(count_compilations):
    def make_lakes(n):
        params = jaxlake.lake_params(4, 0.2, 0.1)
        return jaxlake.generate(jax.random.key(0), params, n, max_size=4, horizon=HORIZON)

    assert count_compilations(lambda: make_lakes(20)) > 1
    # What takes the first 30 of the slots is all that is new.
    assert count_compilations(lambda: make_lakes(30)) == 1
    assert count_compilations(lambda: make_lakes(30)) == 0
    assert make_lakes(30).filled.sum() == 30
