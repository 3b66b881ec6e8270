"""Entry points of the solver.

The solver is a sequence of tiers, from cheap certificates to exact searches (docs/solver.md).
Boards that a tier solves skip the later tiers.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import (
    Instance,
    are_valid_boards,
    check_board_values,
    check_instance,
    check_unbatched,
)
from jaxlake.board.limits import MAX_AGENTS, MAX_SIZE, MIN_AGENTS
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.cpu_devices import is_eager, jit_search
from jaxlake.runtime.memory import require_memory
from jaxlake.solver.certificates import delay_free_plans, prepare_boards
from jaxlake.solver.chunks import Limits, limits_for
from jaxlake.solver.many_agents import DEFAULT_MAX_EXPANSIONS as DEFAULT_MAX_EXPANSIONS
from jaxlake.solver.many_agents import (
    broadcast_max_expansions,
    solve_by_tiers,
    solve_many_agents,
)
from jaxlake.solver.pairs.two_agents import solve_two
from jaxlake.solver.solution import (
    DEFAULT_HORIZON,
    Solution,
    Status,
    empty_solutions,
    unknown_solution,
)
from jaxlake.solver.space_time import NEVER

MAX_HORIZON = 4096


def solve(
    instance: Instance,
    *,
    horizon: int = DEFAULT_HORIZON,
    max_expansions: int | jax.Array | None = None,
    limits: Limits | None = None,
) -> Solution:
    """Solve one instance of up to five agents exactly; `jax.vmap` solves a batch at full speed.

    The solver is compiled once per N, number of slots and static argument, also outside of jit.

    An instance needs a wait if every plan with the optimal sum of costs makes some agent wait
    before its last arrival at its goal.

    Args:
        instance: The board, with holes bool (N, N), N at most 32, and 1 to 5 agent slots.
        horizon: Longest plan to look for, in steps (static, 1 to 4096).
        max_expansions: int32 (), number of agents that each of up to three searches of the
            constraint tree may replan; applies to three or more slots only. Defaults to
            `DEFAULT_MAX_EXPANSIONS`, 65,536. Smaller values leave more boards UNKNOWN and do not
            change the optima.
        limits: Number of boards to process at once (static); results do not depend on it. Defaults
            to `limits_for()`, which follows the platform.

    Returns:
        The solution. OPTIMAL and UNSOLVABLE are proved. UNKNOWN means that a search reached
        `max_expansions` or that the shortest plans are longer than `horizon`. `expansions` counts
        layers of the joint search for two slots, and otherwise agents replanned in constraint trees
        plus sets computed by `solver/dense`.

    Raises:
        TypeError: `instance` is not an `Instance`, or one of its leaves has the wrong dtype.
        ValueError: `instance` is a batch, the shapes of its leaves do not fit together, `horizon`,
            N or the number of slots is out of range, or `max_expansions` is not a scalar. Outside
            jit and vmap also if the board is invalid, see `Instance`; inside, invalid boards return
            UNKNOWN.
        MemoryError: Outside jit: the boards of a batch would not fit into the free memory.
    """
    check_unbatched(instance, "solve")
    _check_sizes(instance, horizon)
    _check_max_expansions(max_expansions, ())
    require_memory("solve", instance, 1, _bytes_per_board(instance, horizon))
    return _solve(instance, horizon, max_expansions, limits, single=True)


def solve_batch(
    instances: Instance,
    *,
    horizon: int = DEFAULT_HORIZON,
    max_expansions: int | jax.Array | None = None,
    limits: Limits | None = None,
) -> Solution:
    """Solve a batch of instances like `jax.vmap(solve)`, but trace in half the time.

    Args:
        instances: Leaves (B, ...).
        horizon: See `solve`.
        max_expansions: int32 () or (B,), see `solve`.
        limits: See `solve`.

    Returns:
        Solutions with leaves (B, ...).

    Raises:
        TypeError: See `solve`.
        ValueError: See `solve`.
    """
    check_instance(instances)
    if len(shape := np.shape(instances.agent_mask)) != 2:
        raise ValueError(f"agent_mask must have shape (B, K), got {shape}")
    _check_max_expansions(max_expansions, (), shape[:1])
    _check_sizes(instances, horizon)
    require_memory("solve_batch", instances, shape[0], _bytes_per_board(instances, horizon))
    return _solve(instances, horizon, max_expansions, limits, single=False)


def _solve(
    instances: Instance,
    horizon: int,
    max_expansions: int | jax.Array | None,
    limits: Limits | None,
    *,
    single: bool,
) -> Solution:
    # Choose the limits here, because a compiled function would not notice a change of platform.
    limits = limits or limits_for()
    # A fixed dtype avoids recompilation.
    if max_expansions is not None:
        max_expansions = jnp.asarray(max_expansions, jnp.int32)
    eager = is_eager(instances, max_expansions)
    if eager:
        check_board_values(instances)
    return solve_boards(
        instances, max_expansions, horizon, limits, eager=eager, single=single, fast_compile=single
    )


def solve_boards(
    instances: Instance,
    max_expansions: jax.Array | None,
    horizon: int,
    limits: Limits,
    *,
    eager: bool = True,
    single: bool = False,
    fast_compile: bool = False,
) -> Solution:
    """Solve a batch, or a `single` board, without checking the arguments.

    Args:
        instances: Leaves (B, ...), or (...) of a `single` board.
        max_expansions: int32 () or (B,), see `solve`.
        horizon: Longest plan in steps (static).
        limits: Number of boards to process at once (static).
        eager: Whether the call is outside jit and other transformations.
        single: Whether `instances` is one board.
        fast_compile: Compile faster, but search more slowly. This pays off for few boards.
    """
    if eager and _num_slots(instances) > 2:
        return solve_by_tiers(
            instances, max_expansions, horizon, limits, single=single, fast_compile=fast_compile
        )
    program = _run_single if single else _run_batch
    program = program.fast_compile if fast_compile else program
    return program(instances, max_expansions, horizon=horizon, limits=limits)


def _check_sizes(instance: Instance, horizon: int) -> None:
    if not isinstance(horizon, int | np.integer) or not 1 <= horizon <= MAX_HORIZON:
        raise ValueError(f"horizon must be in [1, {MAX_HORIZON}], got {horizon!r}")
    num_slots, size = _num_slots(instance), np.shape(instance.holes)[-1]
    if not MIN_AGENTS <= num_slots <= MAX_AGENTS:
        allowed_range = f"{MIN_AGENTS} to {MAX_AGENTS}"
        raise ValueError(f"agent_mask must have {allowed_range} agent slots, got {num_slots}")
    if size > MAX_SIZE:
        raise ValueError(f"holes must have at most {MAX_SIZE} rows, got {size}")


def _bytes_per_board(instance: Instance, horizon: int) -> int:
    """Return the memory per board, as measured for two agents on a CPU."""
    N, K = np.shape(instance.holes)[-1], _num_slots(instance)
    return 6 * horizon * K + (2 * K + 1) * N**2


def _check_max_expansions(max_expansions: int | jax.Array | None, *shapes: tuple[int, ...]) -> None:
    if max_expansions is not None and (shape := np.shape(max_expansions)) not in shapes:
        allowed_shapes = " or ".join(map(str, shapes))
        raise ValueError(f"max_expansions must have shape {allowed_shapes}, got {shape}")


def _num_slots(instance: Instance) -> int:
    return int(np.shape(instance.agent_mask)[-1])


@partial(jit_search, static_argnames=("horizon", "limits"))
def _run_single(
    instance: Instance, max_expansions: jax.Array | None, *, horizon: int, limits: Limits
) -> Solution:
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instance)
    solutions = _run_batch(batch, max_expansions, horizon=horizon, limits=limits)
    return jax.tree.map(lambda leaf: leaf[0], solutions)


@partial(jit_search, static_argnames=("horizon", "limits"))
def _run_batch(
    batch: Instance, max_expansions: jax.Array | None, *, horizon: int, limits: Limits
) -> Solution:
    max_expansions = broadcast_max_expansions(batch, max_expansions)
    solutions = _make_batch_solver(horizon, limits)(batch, max_expansions)
    unknown_result, is_valid = unknown_solution(horizon, _num_slots(batch)), are_valid_boards(batch)
    return jax.tree.map(
        lambda leaf, default: jnp.where(is_valid.reshape(-1, *[1] * default.ndim), leaf, default),
        solutions,
        unknown_result,
    )


@cache
def _make_batch_solver(horizon: int, limits: Limits) -> Callable[[Instance, jax.Array], Solution]:
    """Return a batch solver whose `jax.vmap` merges both batch axes into one call."""

    def solver(batch: Instance, max_expansions: jax.Array) -> Solution:
        B, num_slots = batch.agent_mask.shape
        if B == 0:
            return empty_solutions(horizon, num_slots)
        if num_slots <= 2:
            return _solve_few_agents(batch, horizon, limits)
        return solve_many_agents(batch, horizon, max_expansions, limits)

    return merge_batch_axes(solver)


def _solve_few_agents(batch: Instance, horizon: int, limits: Limits) -> Solution:
    """Solve boards with one or two slots.

    Plans without delays attain both optima without waits.
    """
    boards = prepare_boards(batch, limits)
    is_connected = jnp.all(boards.solo_distances < NEVER, axis=0)
    is_delay_free, plan = delay_free_plans(boards, is_connected, horizon, limits)
    solo_cost = jnp.sum(jnp.where(is_connected, boards.solo_distances, 0), axis=0, dtype=jnp.int16)
    optimal_status = jnp.full(is_delay_free.shape, Status.OPTIMAL, jnp.int8)
    makespan = jnp.max(boards.solo_distances, axis=0)
    false, zero = jnp.zeros_like(is_delay_free), jnp.zeros(is_delay_free.shape, jnp.int32)
    solutions = Solution(optimal_status, solo_cost, makespan, false, plan, plan, expansions=zero)
    if len(boards.starts) == 1:
        # The shortest paths of the other connected boards are longer than the horizon.
        search_results = jax.tree.map(lambda leaf: leaf[None], unknown_solution(horizon, 1))
        search_results = jax.tree.map(
            lambda x, y: jnp.broadcast_to(x, y.shape), search_results, solutions
        )
    else:
        search_results = solve_two(batch, boards.solo_distances, ~is_delay_free, horizon, limits)
    # This also covers boards with two slots and one agent, which `solve_two` does not search.
    status = jnp.where(is_connected, search_results.status, jnp.int8(Status.UNSOLVABLE))
    search_results = replace(search_results, status=status)
    return jax.tree.map(
        lambda x, y: jnp.where(is_delay_free.reshape(-1, *(1,) * (x.ndim - 1)), x, y),
        solutions,
        search_results,
    )
