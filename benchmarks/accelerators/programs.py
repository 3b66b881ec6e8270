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
"""Hole ratio of the boards by the number of agents: those of the benchmark of speed."""

AGENTS = 4
_STEPS = 32  # of plans and rollouts
_POOL = 4096  # boards that environments play on
_LARGEST_BATCH = 1 << 16  # candidates
_SOLVED = 256  # boards whose solutions are known; they come again and again


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


def _solver(boards: jaxlake.Instance) -> jaxlake.Solution:
    """Solve many boards with the budgets of `generate`.

    `solve_batch` is what `jax.vmap(solve)` compiles to, traced in half the time.
    """
    return solve_batch(boards, max_expansions=candidate_budgets(boards))


def _generator(agents: int, count: int) -> Callable[..., Any]:
    """Return `generate` of so many boards, a function of a key and the parameters.

    A batch has as many candidates as there are boards to make, which is what accelerators do by
    default with 65,536 boards.
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
    return Program(f"solve-{agents}", "board", count, _solver, (boards,))


def _generate(agents: int, count: int) -> Program:
    params = jaxlake.lake_params(SIZE, HOLES[agents], num_agents=agents, wait_ratio=0.1)
    arguments = (jax.random.key(0), params)
    return Program(f"generate-{agents}", "board", count, _generator(agents, count), arguments)


@cache  # shared by three programs, to avoid repeated compilation
def _solved(count: int) -> tuple[jaxlake.Instance, jaxlake.Solution]:
    """Return boards and their solutions, leaves (count, ...); a few boards repeat."""
    boards = random_boards(AGENTS, min(count, _SOLVED))
    solutions = jax.jit(jax.vmap(jaxlake.solve))(boards)
    rows = np.arange(count) % len(boards.size)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], (boards, solutions))


def _plans(count: int) -> tuple[Any, ...]:
    """Return the arguments of `verify`: plans of the solver, every second with a changed step."""
    boards, solutions = _solved(count)
    plans = jnp.maximum(solutions.plan[:, :_STEPS], 0).astype(jnp.int8)
    plans = plans.at[1::2, 1].set((plans[1::2, 1] + 1) % 5)
    length = jnp.full(count, _STEPS, jnp.int32)
    return boards, plans, length, jnp.bool_(True), solutions


_verify_all = jax.vmap(jaxlake.verify, (0, 0, 0, None, 0))


def _verify(count: int) -> Program:
    return Program(f"verify-{AGENTS}", "plan", count, _verify_all, _plans(count))


def _tabulate(count: int) -> Program:
    arguments = _plans(count)
    outcome = jax.jit(_verify_all)(*arguments)
    boards, solutions = arguments[0], arguments[-1]

    def function(boards: Any, outcome: Any, solutions: Any) -> Any:
        return jaxlake.tabulate(boards, solutions.needs_wait, outcome, None, solutions)

    arguments = (boards, outcome, solutions)
    return Program(f"tabulate-{AGENTS}", "plan", count, function, arguments)


def _roll_out(count: int) -> Program:
    boards, solutions = _solved(count)

    def function(key: jax.Array, boards: Any, solutions: Any) -> Any:
        policy = ShortestPathPolicy()
        return roll_out(key, policy, boards, max_steps=_STEPS, solutions=solutions)

    arguments = (jax.random.key(0), boards, solutions)
    return Program(f"rollout-{AGENTS}", "step", count * _STEPS, function, arguments)


def _environments(count: int) -> tuple[LakeEnvironment, Any, Any]:
    pool = random_boards(AGENTS, min(count, _POOL))
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
        """One step as a learner takes it."""
        *stepped, info = jax.vmap(environment.step, (0, 0, 0, None))(keys, states, actions, params)
        return *stepped, info["failure"]

    arguments = (keys, replace(states, time=times), actions, params)
    return Program(f"step-{AGENTS}", "step", count, step, arguments)


def _scan(count: int) -> Program:
    environment, params, keys = _environments(count)
    step = jax.vmap(environment.step, (0, 0, 0, None))

    def function(keys: Any, params: Any) -> Any:
        """Rewards and ends of random steps inside `lax.scan`, which start new episodes."""

        def advance(states: Any, time: jax.Array) -> Any:
            now = jax.random.fold_in(jax.random.key(1), time)
            actions = jax.random.randint(now, (count, AGENTS), 0, 5).astype(jnp.int8)
            _, states, *ends, info = step(jax.random.split(now, count), states, actions, params)
            return states, (*ends, info["failure"])

        _, states = jax.vmap(environment.reset, (0, None))(keys, params)
        return jax.lax.scan(advance, states, jnp.arange(_STEPS))

    return Program(f"scan-{AGENTS}", "step", count * _STEPS, function, (keys, params))


OF_BOARDS: dict[str, Callable[[int], Program]] = {
    **{f"solve-{agents}": partial(_solve, agents) for agents in HOLES},
    **{f"generate-{agents}": partial(_generate, agents) for agents in HOLES},
    **{
        f"verify-{AGENTS}": _verify,
        f"tabulate-{AGENTS}": _tabulate,
        f"rollout-{AGENTS}": _roll_out,
    },
}
OF_ENVIRONMENTS: dict[str, Callable[[int], Program]] = {
    f"reset-{AGENTS}": _reset,
    f"step-{AGENTS}": _step,
    f"scan-{AGENTS}": _scan,
}
PROGRAMS = OF_BOARDS | OF_ENVIRONMENTS
"""Makers of all programs, by name; each takes the boards, or the environments, of a call."""
