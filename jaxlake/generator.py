"""Boards for a request, by rejection on the device.

Candidate i is made from `jax.random.fold_in(key, i)` alone and the slots hold, in the order of i,
the first candidates that fit the quota. The result therefore depends on the key and the request
only, not on how many candidates are tried at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.instance import Instance
from jaxlake.solver import DEFAULT_HORIZON, Solution, Status, solve

NUM_AGENTS = 2
"""Agents of a generated board: what `solve` is exact for."""

_ROUNDING = np.float32(1e-4)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Request:
    """What kind of boards, and how many. Every field is traced: nothing recompiles."""

    size: jax.Array  # int32 (), side of the board, 2 to max_size
    hole_ratio: jax.Array  # float32 (), share of all size * size cells, 0 to 1
    wait_ratio: jax.Array  # float32 (), share of the boards that need a wait, 0 to 1
    count: jax.Array  # int32 (), number of boards, at most the capacity


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Generated:
    """The boards of one request, with C the capacity. Unfilled slots hold zeros."""

    instances: Instance  # leaves (C, ...)
    solutions: Solution  # leaves (C, ...)
    filled: jax.Array  # bool (C,), a prefix
    candidates: jax.Array  # int32 (), boards drawn until the last slot was filled
    solvable: jax.Array  # int32 (), of these
    unsolvable: jax.Array  # int32 (), of these; proved
    unknown: jax.Array  # int32 (), of these; beyond the horizon, so not used
    duplicates: jax.Array  # int32 (), of these; solvable, but already in a slot
    shortfall_wait: jax.Array  # int32 (), boards that need a wait and are missing
    shortfall_no_wait: jax.Array  # int32 (), boards that need no wait and are missing


class _Kept(NamedTuple):
    instances: Instance
    solutions: Solution
    codes: jax.Array  # uint32 (C, V), all of what distinguishes two boards
    drawn: jax.Array  # int32 (), index of the next candidate
    filled: jax.Array  # int32 (2,), kept boards: without, with a need to wait
    seen: jax.Array  # int32 (5,), candidates, then by Status, then duplicates


def hole_count(size: jax.Array | int, hole_ratio: jax.Array | float) -> jax.Array:
    """Holes on a board: floor(hole_ratio * size * size), guarded so that 0.3 of 100 is 30.

    Ratios are read as float32; a product within 1e-4 below an integer counts as that integer.

    Returns:
        int32, of the shape that the arguments broadcast to.
    """
    cells = jnp.asarray(size, jnp.int32) ** 2
    share = jnp.asarray(hole_ratio, jnp.float32) * cells.astype(jnp.float32)
    return jnp.floor(share + _ROUNDING).astype(jnp.int32)


def infeasibility(size: int, hole_ratio: float, num_agents: int) -> str | None:
    """Say why no board of this kind exists, or None if the agents fit (host side, no device).

    Fitting means only that starts and goals are distinct free cells: boards that fit may all be
    unsolvable, or none of them may need a wait. `generate` reports such shortfalls.
    """
    if size < 2:
        return f"size: got {size}, at least 2 is needed"
    if not 0.0 <= hole_ratio <= 1.0:
        return f"hole_ratio: got {hole_ratio}, 0 to 1 are allowed"
    if num_agents < 1:
        return f"num_agents: got {num_agents}, at least 1 is needed"
    share = np.float32(hole_ratio) * np.float32(size * size)
    holes = int(np.floor(share + _ROUNDING))
    free = size * size - holes
    if 2 * num_agents <= free:
        return None
    return (
        f"a {size}x{size} board with hole_ratio {hole_ratio:g} has {holes} holes and {free} free "
        f"cells, but {num_agents} agents need {2 * num_agents} for their starts and goals"
    )


def generate(
    key: jax.Array,
    request: Request,
    *,
    capacity: int,
    max_size: int = 10,
    horizon: int = DEFAULT_HORIZON,
    batch_size: int = 256,
    max_candidates: int = 1 << 18,
) -> Generated:
    """Fill a request with distinct two-agent boards, each with its optimal solution.

    Of `count` boards, wait_ratio * count (rounded, halves up) need a wait and the rest do not.
    Candidates have exactly `hole_count` holes, uniform over all such sets of cells, and starts and
    goals uniform over distinct free cells. Boards that are unsolvable, UNKNOWN or equal to an
    earlier one (compared cell by cell, not by hash) are counted and not used.

    Args:
        key: typed PRNG key.
        request: what to make; an infeasible or out-of-range request is all shortfall.
        capacity: number of slots C (static).
        max_size: N (static).
        horizon: see `solve` (static).
        batch_size: candidates tried at once (static); it does not change the result.
        max_candidates: candidates after which to give up, at most 2**30.

    Returns:
        A `Generated`. Numbers of candidates are counted up to the one that filled the last slot.

    Raises:
        ValueError: `capacity`, `max_size`, `batch_size` or `max_candidates` is out of range.
    """
    for name, value, least, most in (
        ("capacity", capacity, 1, 1 << 24),
        ("max_size", max_size, 2, 127),
        ("batch_size", batch_size, 1, 1 << 20),
        ("max_candidates", max_candidates, 0, 1 << 30),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name}: got {value}, {least} to {most} are allowed")
    count = jnp.maximum(jnp.asarray(request.count, jnp.int32), 0)
    share = jnp.clip(jnp.asarray(request.wait_ratio, jnp.float32), 0, 1) * count.astype(jnp.float32)
    waits = jnp.floor(share + jnp.float32(0.5) + _ROUNDING).astype(jnp.int32)
    quota = jnp.stack([count - waits, waits])
    size = jnp.asarray(request.size, jnp.int32)
    holes = hole_count(size, request.hole_ratio)
    feasible = (size >= 2) & (size <= max_size) & (holes >= 0)
    feasible &= holes + 2 * NUM_AGENTS <= size * size
    places = jnp.minimum(count, capacity)

    def try_batch(kept: _Kept) -> _Kept:
        indices = kept.drawn + jnp.arange(batch_size, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, indices)
        boards = jax.vmap(lambda k: _board(k, size, holes, max_size))(keys)
        solutions = jax.vmap(lambda board: solve(board, horizon=horizon))(boards)
        codes = jax.vmap(_code)(boards)
        solvable = (solutions.status == Status.OPTIMAL) & (indices < max_candidates)
        in_slot = _equal_to_any(codes, kept.codes, jnp.arange(capacity) < jnp.sum(kept.filled))
        earlier = _equal_to_earlier(codes)

        kind = jnp.stack([~solutions.needs_wait, solutions.needs_wait])
        fits = kind & solvable & ~in_slot & ~jnp.any(earlier, axis=1)
        room = (quota - kept.filled)[:, None]
        wanted = jnp.any(fits & (jnp.cumsum(fits, axis=1, dtype=jnp.int32) <= room), axis=0)
        slot = jnp.sum(kept.filled) + jnp.cumsum(wanted, dtype=jnp.int32) - wanted
        taken = wanted & (slot < places)
        counted = (slot < places) & (indices < max_candidates)
        duplicate = in_slot | jnp.any(earlier & taken, axis=1)
        target = jnp.where(taken, slot, capacity)

        def put(buffer: jax.Array, values: jax.Array) -> jax.Array:
            return buffer.at[target].set(values, mode="drop")

        by_status = [solutions.status == status for status in Status]
        return _Kept(
            instances=jax.tree.map(put, kept.instances, boards),
            solutions=jax.tree.map(put, kept.solutions, solutions),
            codes=put(kept.codes, codes),
            drawn=kept.drawn + batch_size,
            filled=kept.filled + jnp.sum(kind & taken, axis=1, dtype=jnp.int32),
            seen=kept.seen
            + jnp.stack(
                [
                    jnp.sum(flags & counted, dtype=jnp.int32)
                    for flags in (counted, *by_status, solvable & duplicate)
                ]
            ),
        )

    def unfinished(kept: _Kept) -> jax.Array:
        return feasible & (jnp.sum(kept.filled) < places) & (kept.drawn < max_candidates)

    blank_board = jax.eval_shape(lambda k: _board(k, size, holes, max_size), key)
    blank_solution = jax.eval_shape(lambda board: solve(board, horizon=horizon), blank_board)
    blank_code = jax.eval_shape(_code, blank_board)

    def slots(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    kept = jax.lax.while_loop(
        unfinished,
        try_batch,
        _Kept(
            instances=jax.tree.map(slots, blank_board),
            solutions=jax.tree.map(slots, blank_solution),
            codes=slots(blank_code),
            drawn=jnp.int32(0),
            filled=jnp.zeros(2, jnp.int32),
            seen=jnp.zeros(5, jnp.int32),
        ),
    )
    shortfall = quota - kept.filled
    return Generated(
        instances=kept.instances,
        solutions=kept.solutions,
        filled=jnp.arange(capacity) < jnp.sum(kept.filled),
        candidates=kept.seen[0],
        solvable=kept.seen[1],
        unsolvable=kept.seen[2],
        unknown=kept.seen[3],
        duplicates=kept.seen[4],
        shortfall_wait=shortfall[1],
        shortfall_no_wait=shortfall[0],
    )


def _board(key: jax.Array, size: jax.Array, holes: jax.Array, max_size: int) -> Instance:
    """One candidate: a random order of the board's cells gives holes first, then starts and goals.

    The order comes from comparing all pairs of random words: for a hundred cells that vectorises
    better than a sort.
    """
    N = max_size
    rows, columns = (grid.reshape(-1) for grid in np.mgrid[0:N, 0:N])
    on_board = (rows < size) & (columns < size)
    words = jax.random.bits(key, (N * N,), jnp.uint32) >> 1
    words = jnp.where(on_board, words, ~jnp.uint32(0))
    cell = np.arange(N * N)
    precedes = (words[None, :] < words[:, None]) | (
        (words[None, :] == words[:, None]) & (cell[None, :] < cell[:, None])
    )
    order = jnp.sum(precedes, axis=1, dtype=jnp.int32)
    drawn = jnp.argmax(order == holes + jnp.arange(2 * NUM_AGENTS)[:, None], axis=1)
    places = jnp.stack([drawn // N, drawn % N], axis=-1).astype(jnp.int8)
    return Instance(
        holes=((order < holes) | ~on_board).reshape(N, N),
        size=size,
        starts=places[:NUM_AGENTS],
        goals=places[NUM_AGENTS:],
        agent_mask=jnp.ones(NUM_AGENTS, bool),
    )


def _code(board: Instance) -> jax.Array:
    """uint32 (V,): equal exactly if holes, starts and goals are (boards of one size)."""
    holes = board.holes.reshape(-1)
    words = -(-holes.size // 32)
    bits = jnp.pad(holes, (0, words * 32 - holes.size)).reshape(words, 32)
    packed = jnp.sum(
        bits * (jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)), axis=1, dtype=jnp.uint32
    )
    corners = jnp.concatenate([board.starts, board.goals], axis=1).astype(jnp.uint32)
    shifts = jnp.arange(0, 32, 8, dtype=jnp.uint32)
    return jnp.concatenate([packed, jnp.sum(corners << shifts, axis=1, dtype=jnp.uint32)])


def _equal_to_any(codes: jax.Array, others: jax.Array, valid: jax.Array) -> jax.Array:
    """bool (B,): which of codes (B, V) are among the valid ones of others (C, V)."""
    equal = jnp.broadcast_to(valid, (codes.shape[0], others.shape[0]))
    for v in range(codes.shape[1]):
        equal &= codes[:, v, None] == others[None, :, v]
    return jnp.any(equal, axis=1)


def _equal_to_earlier(codes: jax.Array) -> jax.Array:
    """bool (B, B): [i, j] says that j is earlier than i in the batch and equal to it."""
    B = codes.shape[0]
    equal = jnp.tril(jnp.ones((B, B), bool), k=-1)
    for v in range(codes.shape[1]):
        equal &= codes[:, v, None] == codes[None, :, v]
    return equal
