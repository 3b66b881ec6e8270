"""Boards that are settled without a search: by distances and by prioritised planning.

A plan of prioritised planning whose costs are the distances is optimal in both objectives and needs
no wait: nobody was in the way. Other plans are upper bounds.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxlake.instance import Instance
from jaxlake.solver.bitboard import cell_numbers, pack_rows
from jaxlake.solver.chunks import in_chunks
from jaxlake.solver.prioritised_paths import PrioritisedPlans, plan_in_order
from jaxlake.solver.space_time import NEVER, NOBODY, SearchBuffers, distances_alone, search_buffers
from jaxlake.solver.widths import PLANNED_BOARDS

T = TypeVar("T")


class PreparedBoards(NamedTuple):
    """A batch in the form that the tiers work on, boards last."""

    free: jax.Array  # words (R, B)
    starts: jax.Array  # int16 (K, B), cells, NOBODY where no agent plays
    goals: jax.Array  # int16 (K, B), likewise
    alone: jax.Array  # int16 (K, B), distances; 0 where no agent plays, NEVER without a path


class BestPlans(NamedTuple):
    """The best plans known."""

    sum_of_costs: jax.Array  # int16 (B,), NEVER if there is none
    makespan: jax.Array  # int16 (B,)
    paths: jax.Array  # int16 (K, T + 1, B), cells, of that sum of costs
    makespan_paths: jax.Array  # int16 (K, T + 1, B), of that makespan


def prepare_boards(batch: Instance) -> PreparedBoards:
    """Bring a batch, leaves (B, ...), into the form that the tiers work on."""
    free = pack_rows(~batch.holes)
    starts, goals = (
        jnp.where(batch.agent_mask, cell_numbers(places), jnp.int16(NOBODY)).T
        for places in (batch.starts, batch.goals)
    )
    return PreparedBoards(free, starts, goals, distances_alone(free, starts, goals))


def prioritise(boards: PreparedBoards, wanted: jax.Array, horizon: int) -> BestPlans:
    """Plan wanted boards, which must be connected, in two orders of the agents."""
    never = jnp.full(wanted.shape, NEVER, jnp.int16)
    nowhere = jnp.zeros((boards.starts.shape[0], horizon + 1, *wanted.shape), jnp.int16)
    blank = BestPlans(never, never, nowhere, nowhere)
    return _plan_in_chunks(boards, wanted, horizon, blank, lambda _, best: best)


def undisturbed(pairs: PreparedBoards, wanted: jax.Array, horizon: int) -> jax.Array:
    """Tell, as bool (B,), which wanted pairs prioritised planning lets go as if alone."""

    def as_if_alone(chunk: PreparedBoards, best: BestPlans) -> jax.Array:
        return best.sum_of_costs == jnp.sum(chunk.alone, axis=0, dtype=jnp.int16)

    nothing = jnp.zeros(wanted.shape, bool)
    return wanted & _plan_in_chunks(pairs, wanted, horizon, nothing, as_if_alone)


def _plan_in_chunks(
    boards: PreparedBoards,
    wanted: jax.Array,
    horizon: int,
    blank: T,
    keep: Callable[[PreparedBoards, BestPlans], T],
) -> T:
    """Plan wanted boards in two orders of the agents, and keep some of what is found."""
    width = min(wanted.shape[0], PLANNED_BOARDS)

    def plan(chunk: PreparedBoards, buffers: SearchBuffers) -> tuple[T, SearchBuffers]:
        connected = jnp.all(chunk.alone < NEVER, axis=0)
        # Generous, but no chunk should wait for one agent that is shut in.
        limit = jnp.max(jnp.where(connected, chunk.alone, 0), axis=0) + 16
        latest = jnp.where(connected, jnp.minimum(limit, horizon), -1).astype(jnp.int16)
        latest = jnp.broadcast_to(latest, chunk.starts.shape)
        forward, buffers = plan_in_order(chunk.free, chunk.starts, chunk.goals, latest, buffers)
        flipped, buffers = plan_in_order(
            chunk.free, chunk.starts[::-1], chunk.goals[::-1], latest, buffers, upwards=True
        )
        backward = PrioritisedPlans(flipped.arrival[::-1], flipped.paths[::-1])
        return keep(chunk, _better(forward, backward)), buffers

    buffers = search_buffers(horizon, boards.free.shape[0], width, levels=1)
    length = jnp.max(boards.alone, axis=0)
    return in_chunks(plan, boards, wanted, length, blank, width, buffers)[0]


def _better(one: PrioritisedPlans, other: PrioritisedPlans) -> BestPlans:
    """Choose the better one of two plans for each objective."""

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
