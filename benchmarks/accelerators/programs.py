"""The public programs of the lake, with the arguments on which they are compiled and run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.random_boards import write_boards
from benchmarks.lake.workers.lake_solve import read_boards
from jaxlake.environment import LakeEnvironment, env_params
from jaxlake.policies import ShortestPathPolicy, roll_out
from jaxlake.solver import solve_batch
from jaxlake.solver.many_slots import candidate_budgets

SIZE = 10
HOLES = {2: 0.3, 3: 0.2, 4: 0.2, 5: 0.2}
"""Hole ratio by number of agents, as in the speed benchmark `benchmarks.lake`."""

AGENTS = 4
_STEPS = 32  # of plans and rollouts
_POOL_SIZE = 4096  # boards that environments play on
_LARGEST_BATCH = 1 << 16  # candidates
_SOLVED_BOARDS = 256  # distinct boards with solutions; larger batches repeat them


@dataclass(frozen=True)
class Program:
    """A function, its arguments, and the units of work per call."""

    name: str
    unit: str
    units: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def random_boards(agents: int, count: int) -> jaxlake.Instance:
    """Draw boards as `benchmarks.lake` does, leaves (count, ...)."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "boards.npz"
        kind = {"size": SIZE, "num_agents": agents, "hole_ratio": HOLES[agents]}
        write_boards(path, count=count, seed=agents, **kind)  # type: ignore[arg-type]
        return jax.tree.map(jnp.asarray, read_boards(str(path)))


def _solve_boards(boards: jaxlake.Instance) -> jaxlake.Solution:
    """Solve many boards with the budgets of `generate`.

    `solve_batch` compiles to the same program as `jax.vmap(solve)` and is traced in half the time.
    """
    return solve_batch(boards, max_expansions=candidate_budgets(boards))


def _make_generate(agents: int, count: int) -> Callable[..., Any]:
    """Return `generate` for `count` boards as a function of a key and the parameters.

    A batch has one candidate per requested board, the default of accelerators for 65,536 boards.
    """

    def make(key: jax.Array, params: jaxlake.LakeParams) -> jaxlake.Generated:
        return jaxlake.generate(
            *(key, params, count),
            max_size=SIZE,
            max_agents=agents,
            batch_size=min(count, _LARGEST_BATCH),
        )

    return make


def _solve(agents: int, count: int) -> Program:
    boards = random_boards(agents, count)
    return Program(f"solve-{agents}", "board", count, _solve_boards, (boards,))


def _generate(agents: int, count: int) -> Program:
    params = jaxlake.lake_params(SIZE, HOLES[agents], num_agents=agents, wait_ratio=0.1)
    arguments = (jax.random.key(0), params)
    return Program(f"generate-{agents}", "board", count, _make_generate(agents, count), arguments)


@cache  # shared by three programs, to avoid repeated compilation
def _solved_boards(count: int) -> tuple[jaxlake.Instance, jaxlake.Solution]:
    """Return boards and their solutions, leaves (count, ...); a few boards repeat."""
    boards = random_boards(AGENTS, min(count, _SOLVED_BOARDS))
    solutions = jax.jit(jax.vmap(jaxlake.solve))(boards)
    rows = np.arange(count) % len(boards.size)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], (boards, solutions))


def _verify_arguments(count: int) -> tuple[Any, ...]:
    """Return the arguments of `verify`: solver plans, every second one with a changed step."""
    boards, solutions = _solved_boards(count)
    plans = jnp.maximum(solutions.plan[:, :_STEPS], 0).astype(jnp.int8)
    plans = plans.at[1::2, 1].set((plans[1::2, 1] + 1) % 5)
    length = jnp.full(count, _STEPS, jnp.int32)
    return boards, plans, length, jnp.bool_(True), solutions


_verify_all = jax.vmap(jaxlake.verify, (0, 0, 0, None, 0))


def _verify(count: int) -> Program:
    return Program(f"verify-{AGENTS}", "plan", count, _verify_all, _verify_arguments(count))


def _tabulate(count: int) -> Program:
    arguments = _verify_arguments(count)
    outcome = jax.jit(_verify_all)(*arguments)
    boards, solutions = arguments[0], arguments[-1]

    def function(boards: Any, outcome: Any, solutions: Any) -> Any:
        return jaxlake.tabulate(boards, solutions.needs_wait, outcome, None, solutions)

    arguments = (boards, outcome, solutions)
    return Program(f"tabulate-{AGENTS}", "plan", count, function, arguments)


def _roll_out(count: int) -> Program:
    boards, solutions = _solved_boards(count)

    def function(key: jax.Array, boards: Any, solutions: Any) -> Any:
        policy = ShortestPathPolicy()
        return roll_out(key, policy, boards, max_steps=_STEPS, solutions=solutions)

    arguments = (jax.random.key(0), boards, solutions)
    return Program(f"rollout-{AGENTS}", "step", count * _STEPS, function, arguments)


def _environments(count: int) -> tuple[LakeEnvironment, Any, Any]:
    pool = random_boards(AGENTS, min(count, _POOL_SIZE))
    environment = LakeEnvironment(conflict="block_both")
    return environment, env_params(pool), jax.random.split(jax.random.key(0), count)


def _reset(count: int) -> Program:
    environment, params, keys = _environments(count)
    reset = jax.vmap(environment.reset, (0, None))
    return Program(f"reset-{AGENTS}", "environment", count, reset, (keys, params))


def _step(count: int) -> Program:
    environment, params, keys = _environments(count)
    _, states = jax.jit(jax.vmap(environment.reset, (0, None)))(keys, params)
    times = jnp.arange(count, dtype=jnp.int32) % params.max_steps
    actions = jax.random.randint(jax.random.key(1), (count, AGENTS), 0, 5).astype(jnp.int8)

    def step(keys: Any, states: Any, actions: Any, params: Any) -> Any:
        """Take one step of all environments."""
        *stepped, info = jax.vmap(environment.step, (0, 0, 0, None))(keys, states, actions, params)
        return *stepped, info["failure"]

    arguments = (keys, replace(states, time=times), actions, params)
    return Program(f"step-{AGENTS}", "step", count, step, arguments)


def _scan(count: int) -> Program:
    environment, params, keys = _environments(count)
    step = jax.vmap(environment.step, (0, 0, 0, None))

    def function(keys: Any, params: Any) -> Any:
        """Return rewards and ends of random steps inside `lax.scan`, with automatic resets."""

        def advance(states: Any, time: jax.Array) -> Any:
            step_key = jax.random.fold_in(jax.random.key(1), time)
            actions = jax.random.randint(step_key, (count, AGENTS), 0, 5).astype(jnp.int8)
            _, states, *ends, info = step(
                jax.random.split(step_key, count), states, actions, params
            )
            return states, (*ends, info["failure"])

        _, states = jax.vmap(environment.reset, (0, None))(keys, params)
        return jax.lax.scan(advance, states, jnp.arange(_STEPS))

    return Program(f"scan-{AGENTS}", "step", count * _STEPS, function, (keys, params))


BOARD_PROGRAMS: dict[str, Callable[[int], Program]] = {
    **{f"solve-{agents}": partial(_solve, agents) for agents in HOLES},
    **{f"generate-{agents}": partial(_generate, agents) for agents in HOLES},
    **{
        f"verify-{AGENTS}": _verify,
        f"tabulate-{AGENTS}": _tabulate,
        f"rollout-{AGENTS}": _roll_out,
    },
}
ENVIRONMENT_PROGRAMS: dict[str, Callable[[int], Program]] = {
    f"reset-{AGENTS}": _reset,
    f"step-{AGENTS}": _step,
    f"scan-{AGENTS}": _scan,
}
PROGRAMS = BOARD_PROGRAMS | ENVIRONMENT_PROGRAMS
"""Program factories by name; each takes the number of boards or environments per call."""
