"""Boards that are settled without a search: distances, and plans in which nobody is in the way.

A plan of prioritised planning whose costs are the distances is optimal in both objectives and needs
no wait. Other plans are upper bounds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.instance import Instance
from jaxlake.solver.bitboard import contains, dilate, number, pack, single
from jaxlake.solver.chunks import in_chunks
from jaxlake.solver.prioritised import Plans, plan_in_order
from jaxlake.solver.space_time import NEVER, NOBODY, Scratch, scratch

_CHUNK = 512
"""Boards that are planned at a time."""


class Boards(NamedTuple):
    """A batch in the form that the tiers work on, boards last."""

    free: jax.Array  # words (R, B)
    starts: jax.Array  # int16 (K, B), cells, NOBODY where no agent plays
    goals: jax.Array  # int16 (K, B), likewise
    alone: jax.Array  # int16 (K, B), distances; 0 where no agent plays, NEVER without a path


class Best(NamedTuple):
    """The best plans known."""

    sum_of_costs: jax.Array  # int16 (B,), NEVER if there is none
    makespan: jax.Array  # int16 (B,)
    paths: jax.Array  # int16 (K, T + 1, B), cells, of that sum of costs
    makespan_paths: jax.Array  # int16 (K, T + 1, B), of that makespan


def prepare(batch: Instance) -> Boards:
    """A batch, leaves (B, ...), in the form that the tiers work on."""
    free = pack(~batch.holes)
    nobody = jnp.int16(NOBODY)
    starts = jnp.where(batch.agent_mask, number(batch.starts), nobody).T
    goals = jnp.where(batch.agent_mask, number(batch.goals), nobody).T
    return Boards(free, starts, goals, _distances(free, starts, goals))


def _distances(free: jax.Array, starts: jax.Array, goals: jax.Array) -> jax.Array:
    """int16 (K, B): steps of each agent alone."""
    R = free.shape[0]
    absent = starts == NOBODY

    def spread(
        state: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        t, board, steps, _ = state
        there = contains(board & ending)
        steps = jnp.where(there, jnp.minimum(steps, t), steps)
        wider = board | (dilate(board) & free)
        return t + 1, wider, steps, jnp.any(wider != board) & jnp.any(steps == NEVER)

    board, ending = (jnp.stack([single(cell, R) for cell in ends]) for ends in (starts, goals))
    steps = jnp.where(absent, jnp.int16(0), jnp.int16(NEVER))
    state = (jnp.int16(0), board, steps, jnp.bool_(True))
    _, board, steps, _ = jax.lax.while_loop(lambda state: state[3], spread, state)
    return steps


def prioritise(boards: Boards, wanted: jax.Array, horizon: int) -> Best:
    """Plans in two orders of the agents, for connected boards."""
    B = boards.starts.shape[-1]
    width = min(B, _CHUNK)

    never = jnp.full(B, NEVER, jnp.int16)
    nowhere = jnp.zeros((boards.starts.shape[0], horizon + 1, B), jnp.int16)
    blank = Best(never, never, nowhere, nowhere)
    memory = scratch(horizon, boards.free.shape[0], width, levels=1)
    length = jnp.max(boards.alone, axis=0)
    best, _ = in_chunks(
        lambda chunk, memory: _plan_twice(chunk, horizon, memory),
        boards,
        wanted,
        length,
        blank,
        width,
        memory,
    )
    return best


def undisturbed(pairs: Boards, wanted: jax.Array, horizon: int) -> jax.Array:
    """bool (B,): wanted, and prioritised planning lets both agents go as if they were alone."""
    B = wanted.shape[0]
    width = min(B, _CHUNK)

    def plan(chunk: Boards, memory: Scratch) -> tuple[jax.Array, Scratch]:
        best, memory = _plan_twice(chunk, horizon, memory)
        return best.sum_of_costs == jnp.sum(chunk.alone, axis=0, dtype=jnp.int16), memory

    memory = scratch(horizon, pairs.free.shape[0], width, levels=1)
    length = jnp.max(pairs.alone, axis=0)
    done, _ = in_chunks(plan, pairs, wanted, length, jnp.zeros(B, bool), width, memory)
    return wanted & done


def _plan_twice(chunk: Boards, horizon: int, memory: Scratch) -> tuple[Best, Scratch]:
    connected = jnp.all(chunk.alone < NEVER, axis=0)
    # Generous, but no chunk should wait for one agent that is shut in.
    slack = jnp.max(jnp.where(connected, chunk.alone, 0), axis=0) + 16
    latest = jnp.where(connected, jnp.minimum(slack, horizon), -1).astype(jnp.int16)
    latest = jnp.broadcast_to(latest, chunk.starts.shape)
    forward, memory = plan_in_order(chunk.free, chunk.starts, chunk.goals, latest, memory)
    flipped, memory = plan_in_order(
        chunk.free, chunk.starts[::-1], chunk.goals[::-1], latest, memory, upwards=True
    )
    backward = Plans(flipped.arrival[::-1], flipped.paths[::-1])
    return _better(_best(forward), _best(backward)), memory


def _best(plans: Plans) -> Best:
    complete = jnp.all(plans.arrival < NEVER, axis=0)
    never = jnp.int16(NEVER)
    arrival = jnp.where(complete, plans.arrival, 0)
    return Best(
        sum_of_costs=jnp.where(complete, jnp.sum(arrival, axis=0, dtype=jnp.int16), never),
        makespan=jnp.where(complete, jnp.max(arrival, axis=0), never),
        paths=plans.paths,
        makespan_paths=plans.paths,
    )


def _better(one: Best, other: Best) -> Best:
    cheaper = one.sum_of_costs <= other.sum_of_costs
    shorter = one.makespan <= other.makespan
    return Best(
        sum_of_costs=jnp.minimum(one.sum_of_costs, other.sum_of_costs),
        makespan=jnp.minimum(one.makespan, other.makespan),
        paths=jnp.where(cheaper, one.paths, other.paths),
        makespan_paths=jnp.where(shorter, one.makespan_paths, other.makespan_paths),
    )
