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
from jaxlake.solver.many_agents import candidate_max_expansions

SIZE = 10
HOLE_RATIOS = {2: 0.3, 3: 0.2, 4: 0.2, 5: 0.2}
"""Hole ratio by number of agents, as in the speed benchmark `benchmarks.lake`."""

NUM_AGENTS = 4
_NUM_STEPS = 32  # of plans and rollouts
_POOL_SIZE = 4096  # boards that environments play on
_MAX_BATCH_SIZE = 1 << 16  # candidates
_NUM_SOLVED_BOARDS = 256  # distinct boards with solutions; larger batches repeat them


@dataclass(frozen=True)
class Program:
    """A function, its arguments, and the units of work per call."""

    name: str
    unit: str
    units: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def draw_boards(num_agents: int, count: int) -> jaxlake.Instance:
    """Draw boards as `benchmarks.lake` does, leaves (count, ...)."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "boards.npz"
        kind = {"size": SIZE, "num_agents": num_agents, "hole_ratio": HOLE_RATIOS[num_agents]}
        write_boards(path, count=count, seed=num_agents, **kind)  # type: ignore[arg-type]
        return jax.tree.map(jnp.asarray, read_boards(str(path)))


def _solve_boards(boards: jaxlake.Instance) -> jaxlake.Solution:
    """Solve many boards with the `max_expansions` of `generate`.

    `solve_batch` compiles to the same program as `jax.vmap(solve)` and is traced in half the time.
    """
    return solve_batch(boards, max_expansions=candidate_max_expansions(boards))


def _bind_generate(num_agents: int, count: int) -> Callable[..., Any]:
    """Return `generate` for `count` boards as a function of a key and the parameters.

    A batch has one candidate per requested board, the default of accelerators for 65,536 boards.
    """

    def generate(key: jax.Array, params: jaxlake.LakeParams) -> jaxlake.Generated:
        return jaxlake.generate(
            *(key, params, count),
            max_size=SIZE,
            max_agents=num_agents,
            batch_size=min(count, _MAX_BATCH_SIZE),
        )

    return generate


def _make_solve(num_agents: int, count: int) -> Program:
    boards = draw_boards(num_agents, count)
    return Program(f"solve-{num_agents}", "board", count, _solve_boards, (boards,))


def _make_generate(num_agents: int, count: int) -> Program:
    params = jaxlake.lake_params(
        SIZE, HOLE_RATIOS[num_agents], num_agents=num_agents, wait_ratio=0.1
    )
    arguments = (jax.random.key(0), params)
    return Program(
        f"generate-{num_agents}", "board", count, _bind_generate(num_agents, count), arguments
    )


@cache  # shared by three programs, to avoid repeated compilation
def _draw_solved_boards(count: int) -> tuple[jaxlake.Instance, jaxlake.Solution]:
    """Return boards and their solutions, leaves (count, ...); a few boards repeat."""
    boards = draw_boards(NUM_AGENTS, min(count, _NUM_SOLVED_BOARDS))
    solutions = jax.jit(jax.vmap(jaxlake.solve))(boards)
    rows = np.arange(count) % len(boards.size)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], (boards, solutions))


def _make_inputs(count: int) -> tuple[Any, ...]:
    """Return the arguments of `verify`: solver plans, every second one with a changed step."""
    boards, solutions = _draw_solved_boards(count)
    plans = jnp.maximum(solutions.plan[:, :_NUM_STEPS], 0).astype(jnp.int8)
    plans = plans.at[1::2, 1].set((plans[1::2, 1] + 1) % 5)
    length = jnp.full(count, _NUM_STEPS, jnp.int32)
    return boards, plans, length, jnp.bool_(True), solutions


_verify_all = jax.vmap(jaxlake.verify, (0, 0, 0, None, 0))


def _make_verify(count: int) -> Program:
    return Program(f"verify-{NUM_AGENTS}", "plan", count, _verify_all, _make_inputs(count))


def _make_tabulate(count: int) -> Program:
    arguments = _make_inputs(count)
    outcome = jax.jit(_verify_all)(*arguments)
    boards, solutions = arguments[0], arguments[-1]

    def tabulate(boards: Any, outcome: Any, solutions: Any) -> Any:
        return jaxlake.tabulate(boards, solutions.needs_wait, outcome, None, solutions)

    arguments = (boards, outcome, solutions)
    return Program(f"tabulate-{NUM_AGENTS}", "plan", count, tabulate, arguments)


def _make_roll_out(count: int) -> Program:
    boards, solutions = _draw_solved_boards(count)

    def roll_out_all(key: jax.Array, boards: Any, solutions: Any) -> Any:
        policy = ShortestPathPolicy()
        return roll_out(key, policy, boards, max_steps=_NUM_STEPS, solutions=solutions)

    arguments = (jax.random.key(0), boards, solutions)
    return Program(f"rollout-{NUM_AGENTS}", "step", count * _NUM_STEPS, roll_out_all, arguments)


def _make_environments(count: int) -> tuple[LakeEnvironment, Any, Any]:
    pool = draw_boards(NUM_AGENTS, min(count, _POOL_SIZE))
    environment = LakeEnvironment(conflict="block_both")
    return environment, env_params(pool), jax.random.split(jax.random.key(0), count)


def _make_reset(count: int) -> Program:
    environment, params, keys = _make_environments(count)
    reset = jax.vmap(environment.reset, (0, None))
    return Program(f"reset-{NUM_AGENTS}", "environment", count, reset, (keys, params))


def _make_step(count: int) -> Program:
    environment, params, keys = _make_environments(count)
    _, states = jax.jit(jax.vmap(environment.reset, (0, None)))(keys, params)
    times = jnp.arange(count, dtype=jnp.int32) % params.max_steps
    actions = jax.random.randint(jax.random.key(1), (count, NUM_AGENTS), 0, 5).astype(jnp.int8)

    def step(keys: Any, states: Any, actions: Any, params: Any) -> Any:
        """Take one step of all environments."""
        *outputs, info = jax.vmap(environment.step, (0, 0, 0, None))(keys, states, actions, params)
        return *outputs, info["failure"]

    arguments = (keys, replace(states, time=times), actions, params)
    return Program(f"step-{NUM_AGENTS}", "step", count, step, arguments)


def _make_scan(count: int) -> Program:
    environment, params, keys = _make_environments(count)
    step = jax.vmap(environment.step, (0, 0, 0, None))

    def run_scan(keys: Any, params: Any) -> Any:
        """Return rewards and ends of random steps inside `lax.scan`, with automatic resets."""

        def advance(states: Any, time: jax.Array) -> Any:
            step_key = jax.random.fold_in(jax.random.key(1), time)
            actions = jax.random.randint(step_key, (count, NUM_AGENTS), 0, 5).astype(jnp.int8)
            _, states, *outputs, info = step(
                jax.random.split(step_key, count), states, actions, params
            )
            return states, (*outputs, info["failure"])

        _, states = jax.vmap(environment.reset, (0, None))(keys, params)
        return jax.lax.scan(advance, states, jnp.arange(_NUM_STEPS))

    return Program(f"scan-{NUM_AGENTS}", "step", count * _NUM_STEPS, run_scan, (keys, params))


BOARD_PROGRAMS: dict[str, Callable[[int], Program]] = {
    **{f"solve-{agents}": partial(_make_solve, agents) for agents in HOLE_RATIOS},
    **{f"generate-{agents}": partial(_make_generate, agents) for agents in HOLE_RATIOS},
    **{
        f"verify-{NUM_AGENTS}": _make_verify,
        f"tabulate-{NUM_AGENTS}": _make_tabulate,
        f"rollout-{NUM_AGENTS}": _make_roll_out,
    },
}
ENVIRONMENT_PROGRAMS: dict[str, Callable[[int], Program]] = {
    f"reset-{NUM_AGENTS}": _make_reset,
    f"step-{NUM_AGENTS}": _make_step,
    f"scan-{NUM_AGENTS}": _make_scan,
}
PROGRAMS = BOARD_PROGRAMS | ENVIRONMENT_PROGRAMS
"""Program factories by name; each takes the number of boards or environments per call."""
