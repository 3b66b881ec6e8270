"""One agent's earliest arrival among things that move, for many boards at once.

Time-expanded reachability on bit boards: where the agent can be at time t + 1 is the dilation of
where it can be at time t, less what is closed. A path leads back from the goal through these sets.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action
from jaxlake.solver.bitboard import CELL_DELTAS, Edges, dilate, edge_between, holds, single

NEVER = 1 << 13
"""Time of an arrival that does not happen: above any time, and two add up within int16."""

NOBODY = -1
"""The cell of an agent that does not exist, in a path."""


class Closed(NamedTuple):
    """What an agent can't use at one time t: words (..., R, B) each."""

    cells: jax.Array  # at t
    across: jax.Array  # edges, from t to t + 1
    along: jax.Array  # edges, from t to t + 1

    @property
    def edges(self) -> Edges:
        """The closed edges."""
        return Edges(self.across, self.along)


class Reach(NamedTuple):
    """Where one agent can be, time by time."""

    time: jax.Array  # int32 (), the last time in `layers`
    layers: jax.Array  # words (T + 1, ..., R, B); later layers hold nothing of interest
    arrival: jax.Array  # int16 (B,), when the agent is at its goal to stay, NEVER if it isn't


def reach(
    start: jax.Array,
    goal: jax.Array,
    free: jax.Array,
    closed: Callable[[jax.Array], Closed],
    *,
    waits: jax.Array | bool,
    earliest: jax.Array | int,
    latest: jax.Array,
    quiet: jax.Array | int,
    layers: jax.Array,
) -> Reach:
    """Search forward until every agent has arrived to stay, or can't any more.

    `layers` may have one leading axis of levels, (T + 1, L, R, B): searches with different ideas
    of what is closed, side by side. The first level decides about the arrival.

    Args:
        start: int16 (B,), cell.
        goal: int16 (B,), cell.
        free: words (R, B).
        closed: what is closed at time t, for an int32 scalar t of 0 to T; words ([L,] R, B).
        waits: bool (B,), whether the agent may wait before it has arrived.
        earliest: int16 (B,), arrivals before that do not count.
        latest: int16 (B,), nor do arrivals after that; at most T, negative for idle lanes.
        quiet: int16 (B,), from when on the goal stays open.
        layers: scratch; layers up to `Reach.time` are written.

    Returns:
        The `Reach`.
    """
    rows = free.shape[0]
    levels = layers.shape[1:-2]
    never = jnp.int16(NEVER)
    may_wait = jnp.broadcast_to(jnp.asarray(waits), start.shape)

    def first_level(board: jax.Array) -> jax.Array:
        return board[0] if levels else board

    def settle(t: jax.Array, board: jax.Array, shut: Closed, arrival: jax.Array) -> jax.Array:
        now = t.astype(jnp.int16)
        open_again = jnp.where(holds(first_level(shut.cells), goal), never, arrival)
        there = holds(first_level(board), goal) & (now >= earliest) & (now <= latest)
        return jnp.where(there, jnp.minimum(open_again, now), open_again)

    def advance(state: tuple[Reach, jax.Array, Closed]) -> tuple[Reach, jax.Array, Closed]:
        past, board, shut = state
        t = past.time + 1
        stay = jnp.where(may_wait, board, jnp.zeros_like(board))
        at_next = closed(t)
        board = (stay | dilate(board, shut.edges)) & free & ~at_next.cells
        arrival = settle(t, board, at_next, past.arrival)
        return Reach(t, past.layers.at[t].set(board), arrival), board, at_next

    def unfinished(state: tuple[Reach, jax.Array, Closed]) -> jax.Array:
        now = state[0].time.astype(jnp.int16)
        return jnp.any((now < latest) & ((state[0].arrival == never) | (now < quiet)))

    zero = jnp.int32(0)
    board = jnp.broadcast_to(single(start, rows), (*levels, *free.shape))
    shut = closed(zero)
    arrival = settle(zero, board, shut, jnp.full(start.shape, never))
    begun = Reach(zero, layers.at[0].set(board), arrival)
    return jax.lax.while_loop(unfinished, advance, (begun, board, shut))[0]


def trace(
    goal: jax.Array,
    arrival: jax.Array,
    length: int,
    liking: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    order: tuple[Action, ...],
) -> jax.Array:
    """A path that is at its goal from its arrival on, found backwards.

    Args:
        goal: int16 (B,), cell.
        arrival: int16 (B,); at most T, or NEVER, for which the agent is at its goal at all times.
        length: T (static).
        liking: for a time t, cells here (B,) at t and there (B,) at t + 1: int8 (B,), 0 where that
            step is impossible, else the larger the better.
        order: the actions that may be taken, the liked ones first.

    Returns:
        int16 (T + 1, B) cells.
    """
    arrival = jnp.where(arrival == NEVER, jnp.int16(0), arrival)
    last = jnp.max(arrival).astype(jnp.int32)

    def back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        there, path = state
        t = last - 1 - i
        here, best = there, jnp.zeros(there.shape, jnp.int8)
        for action in order:
            candidate = there - CELL_DELTAS[action]
            score = liking(t, candidate, there)
            here = jnp.where(score > best, candidate, here)
            best = jnp.maximum(best, score)
        here = jnp.where(t.astype(jnp.int16) < arrival, here, there)
        return here, path.at[t].set(here)

    path = jnp.broadcast_to(goal, (length + 1, *goal.shape))
    return jax.lax.fori_loop(0, last, back, (goal, path))[1]


def occupied(paths: jax.Array, t: jax.Array, rows: int) -> Closed:
    """What agents on paths, int16 (K, T + 1, B), leave no room for at time t; NOBODY takes none."""
    following = jnp.minimum(t + 1, paths.shape[1] - 1)
    here, there = paths[:, t], paths[:, following]
    word = single(here[0], rows).dtype
    taken = Closed(*(jnp.zeros((rows, paths.shape[-1]), word) for _ in range(3)))
    for k in range(paths.shape[0]):
        edge = edge_between(here[k], there[k], rows)
        mine = Closed(single(here[k], rows), edge.across, edge.along)
        taken = Closed(*(x | y for x, y in zip(taken, mine, strict=True)))
    return taken


def swaps(paths: jax.Array, t: jax.Array, here: jax.Array, there: jax.Array) -> jax.Array:
    """bool (B,): whether a step from here to there, cells (B,), at t swaps places with a path."""
    met = (paths[:, t] == there) & (paths[:, t + 1] == here)
    return jnp.any(met, axis=0) & (here != there)


def plan_of(path: jax.Array) -> jax.Array:
    """Cells int16 (..., T + 1, B) to actions int8 (..., T, B)."""
    change = path[..., 1:, :] - path[..., :-1, :]
    actions = jnp.zeros(change.shape, jnp.int8)
    for action in Action:
        actions = jnp.where(change == CELL_DELTAS[action], jnp.int8(action), actions)
    return actions
