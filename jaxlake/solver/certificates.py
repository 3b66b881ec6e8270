"""Boards that are settled without a search: by distances and by prioritised planning.

In prioritised planning (Erdmann and Lozano-Perez 1987) every agent takes a path of earliest arrival
among the paths of those before it. The plan is legal whatever the order. If its costs are the
distances, it is optimal in both objectives and needs no wait: nobody was in the way. Other plans
are upper bounds.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxlake.instance import Instance
from jaxlake.solver import space_time
from jaxlake.solver.bitboard import bitboard_of, cell_numbers, pack_rows
from jaxlake.solver.chunks import Widths, in_chunks
from jaxlake.solver.kernels import planning
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import NEVER, NOBODY, Blocked, PathBits, SearchBuffers

T = TypeVar("T")


class PreparedBoards(NamedTuple):
    """A batch in the form that the tiers work on, boards last."""

    free: jax.Array  # words (R, B)
    starts: jax.Array  # int16 (K, B), cells, NOBODY where no agent plays
    goals: jax.Array  # int16 (K, B), likewise
    alone: jax.Array  # int16 (K, B), distances; 0 where no agent plays, NEVER without a path


class PrioritisedPlans(NamedTuple):
    """Plans of many boards, by the rank of the agents in the order in which they were planned."""

    arrival: jax.Array  # int16 (K, B), last arrivals; NEVER from the first that found no path on
    paths: jax.Array  # int16 (K, T + 1, B), cells


class BestPlans(NamedTuple):
    """The best plans known."""

    sum_of_costs: jax.Array  # int16 (B,), NEVER if there is none
    makespan: jax.Array  # int16 (B,)
    paths: jax.Array  # int16 (K, T + 1, B), cells, of that sum of costs
    makespan_paths: jax.Array  # int16 (K, T + 1, B), of that makespan


def distances_alone(
    free: jax.Array, starts: jax.Array, goals: jax.Array, widths: Widths
) -> jax.Array:
    """Do what `space_time.distances_alone` does, by a kernel where there is one."""
    kernels = planning.serves(widths.kernels, len(free), len(starts), horizon=0)
    if kernels is None:
        return space_time.distances_alone(free, starts, goals)
    return planning.distances(free, starts, goals, kernels)


def prepare_boards(batch: Instance, widths: Widths) -> PreparedBoards:
    """Bring a batch, leaves (B, ...), into the form that the tiers work on."""
    free = pack_rows(~batch.holes)
    starts, goals = (
        jnp.where(batch.agent_mask, cell_numbers(places), jnp.int16(NOBODY)).T
        for places in (batch.starts, batch.goals)
    )
    alone = distances_alone(free, starts, goals, widths)
    return PreparedBoards(free, starts, goals, alone)


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    buffers: SearchBuffers,
    *,
    upwards: jax.Array | bool = False,
) -> tuple[PrioritisedPlans, SearchBuffers]:
    """Plan the agents of every board in the order in which they are given.

    Boards are words (R, B); starts and goals int16 (K, B) cells, NOBODY for agents that do not
    exist: they arrive at 0. The `latest` arrival to look for, int16 (K, B), is at most T. The
    buffers, for T steps, are returned for the next call; `upwards` is that of `trace_back`.
    """
    K, B = starts.shape
    rows, T = free.shape[0], buffers.cells.shape[0] - 1
    State = tuple[PrioritisedPlans, Blocked, SearchBuffers, jax.Array]

    def plan_agent(rank: jax.Array, state: State) -> State:
        plans, blocked, buffers, failed = state
        start, goal = bitboard_of(starts[rank], rows), bitboard_of(goals[rank], rows)
        absent = goals[rank] == NOBODY
        last = jnp.where(failed | absent, jnp.int16(-1), latest[rank])
        found = space_time.reach_goal(
            start, goal, (blocked,), waits=True, earliest=0, latest=last, layers=buffers.layers
        )
        traced, cells = space_time.trace_back(
            goal, found, (blocked,), waits=True, buffer=buffers.cells, upwards=upwards
        )
        arrival = jnp.where(absent, jnp.int16(0), found.arrival)
        failed |= arrival == NEVER
        true = rank <= K
        path = materialize(jnp.where(absent, jnp.int16(NOBODY), traced.cells), true)
        bits = materialize(
            PathBits(*(words[None] for words in space_time.path_bits(path, rows))), true
        )
        plans = PrioritisedPlans(
            plans.arrival.at[rank].set(arrival), plans.paths.at[rank].set(path)
        )
        blocked |= space_time.blocked_by(bits, rows, jnp.ones((1, B), bool))
        return plans, blocked, SearchBuffers(found.layers, cells), failed

    unplanned = PrioritisedPlans(
        arrival=jnp.zeros((K, B), jnp.int16), paths=jnp.full((K, T + 1, B), NOBODY, jnp.int16)
    )
    words = jnp.broadcast_to(free, (T + 1, *free.shape))
    holes = Blocked(~words, *(jnp.zeros_like(words),) * 4)
    plans, _, buffers, failed = jax.lax.fori_loop(
        0, K, plan_agent, (unplanned, holes, buffers, jnp.zeros(B, bool))
    )
    return plans._replace(arrival=jnp.where(failed, jnp.int16(NEVER), plans.arrival)), buffers


def prioritise(
    boards: PreparedBoards, wanted: jax.Array, horizon: int, widths: Widths
) -> BestPlans:
    """Plan wanted boards, which must be connected, in two orders of the agents."""
    never = jnp.full(wanted.shape, NEVER, jnp.int16)
    nowhere = jnp.zeros((boards.starts.shape[0], horizon + 1, *wanted.shape), jnp.int16)
    blank = BestPlans(never, never, nowhere, nowhere)
    return _plan_in_chunks(boards, wanted, horizon, widths, blank, lambda _, best: best)


def undisturbed(
    pairs: PreparedBoards, wanted: jax.Array, horizon: int, widths: Widths
) -> jax.Array:
    """Tell, as bool (B,), which wanted pairs prioritised planning lets go as if alone."""

    def as_if_alone(chunk: PreparedBoards, best: BestPlans) -> jax.Array:
        return best.sum_of_costs == jnp.sum(chunk.alone, axis=0, dtype=jnp.int16)

    nothing = jnp.zeros(wanted.shape, bool)
    return wanted & _plan_in_chunks(pairs, wanted, horizon, widths, nothing, as_if_alone)


def _plan_in_chunks(
    boards: PreparedBoards,
    wanted: jax.Array,
    horizon: int,
    widths: Widths,
    blank: T,
    keep: Callable[[PreparedBoards, BestPlans], T],
) -> T:
    """Plan wanted boards in two orders of the agents, and keep some of what is found."""
    # Two buffers, five sets that block, and one more while they are made.
    sets = 8 * (horizon + 1) * boards.free.shape[0] * boards.free.dtype.itemsize
    width = min(wanted.shape[0], widths.fitting(widths.planned_boards, sets))
    kernels = planning.serves(widths.kernels, len(boards.free), len(boards.starts), horizon)

    def plan(chunk: PreparedBoards, buffers: SearchBuffers) -> tuple[T, SearchBuffers]:
        connected = jnp.all(chunk.alone < NEVER, axis=0)
        # Generous, but no chunk should wait for one agent that is shut in.
        limit = jnp.max(jnp.where(connected, chunk.alone, 0), axis=0) + 16
        latest = jnp.where(connected, jnp.minimum(limit, horizon), -1).astype(jnp.int16)
        latest = jnp.broadcast_to(latest, chunk.starts.shape)
        agents = chunk.free, chunk.starts, chunk.goals, latest
        turned = chunk.free, chunk.starts[::-1], chunk.goals[::-1], latest
        if kernels is None:
            forward, flipped, buffers = _plan_in_two_orders(agents, turned, buffers)
        else:
            in_order = partial(planning.plan_in_order, horizon=horizon, machine=kernels)
            forward = PrioritisedPlans(*in_order(*agents))
            flipped = PrioritisedPlans(*in_order(*turned, upwards=True))
        backward = PrioritisedPlans(flipped.arrival[::-1], flipped.paths[::-1])
        return keep(chunk, _better(forward, backward)), buffers

    # A kernel has its own.
    steps = horizon if kernels is None else 0
    buffers = space_time.search_buffers(steps, boards.free.shape[0], width, levels=1)
    length = jnp.max(boards.alone, axis=0)
    return in_chunks(plan, boards, wanted, length, blank, width, buffers)[0]


_Agents = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""The first four arguments of `plan_in_order`."""


def _plan_in_two_orders(
    agents: _Agents, turned: _Agents, buffers: SearchBuffers
) -> tuple[PrioritisedPlans, PrioritisedPlans, SearchBuffers]:
    """Plan boards in both orders, in the second one `upwards`; a loop, so that it compiles once."""
    free = agents[0]

    def plan(
        buffers: SearchBuffers, order: tuple[jax.Array, ...]
    ) -> tuple[SearchBuffers, PrioritisedPlans]:
        starts, goals, latest, upwards = order
        plans, buffers = plan_in_order(free, starts, goals, latest, buffers, upwards=upwards)
        return buffers, plans

    both = [jnp.stack(sides) for sides in zip(agents[1:], turned[1:], strict=True)]
    buffers, plans = jax.lax.scan(plan, buffers, (*both, jnp.array([False, True])))
    forward, flipped = (jax.tree.map(lambda leaf, i=i: leaf[i], plans) for i in (0, 1))
    return forward, flipped, buffers


def _better(one: PrioritisedPlans, other: PrioritisedPlans) -> BestPlans:
    def costs(plans: PrioritisedPlans) -> tuple[jax.Array, jax.Array]:
        complete = jnp.all(plans.arrival < NEVER, axis=0)
        arrival = jnp.where(complete, plans.arrival, 0)
        total = jnp.sum(arrival, axis=0, dtype=jnp.int16)
        return (
            jnp.where(complete, total, jnp.int16(NEVER)),
            jnp.where(complete, jnp.max(arrival, axis=0), jnp.int16(NEVER)),
        )

    (one_cost, one_makespan), (other_cost, other_makespan) = costs(one), costs(other)
    return BestPlans(
        sum_of_costs=jnp.minimum(one_cost, other_cost),
        makespan=jnp.minimum(one_makespan, other_makespan),
        paths=jnp.where(one_cost <= other_cost, one.paths, other.paths),
        makespan_paths=jnp.where(one_makespan <= other_makespan, one.paths, other.paths),
    )
