"""Partition of all boards into P parts, so that processes can build one set independently.

Agent 0 can be placed on R free cells in T = R (R - 1) ways. Way t belongs to part (t + h) mod P,
where h is a hash of the other agents' starts and goals. Boards of a part are drawn directly,
without rejection.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.generator.candidates import (
    cell_bit,
    cell_of_rank,
    free_cells,
    multiply_high,
    random_words,
)

Part = tuple[int, int]
"""(i, P): part i, counted from 0, of P parts; (0, 1) contains all boards."""

ALL_BOARDS: Part = (0, 1)
MAX_PARTS = 1 << 16

_WORDS = 1 << 9  # fold_in number of the random words of agent 0; see `candidates`


def validate_part(part: Part) -> Part:
    """Return a valid part as Python integers.

    Raises:
        TypeError: An entry is not an integer.
        ValueError: The part or the number of parts is out of range.
    """
    index, parts = part
    if not all(isinstance(number, int | np.integer) for number in part):
        raise TypeError(f"part: got {index} of {parts}, whole numbers are needed")
    if not 1 <= parts <= MAX_PARTS:
        raise ValueError(f"part: got {index} of {parts}, 1 to {MAX_PARTS} parts are allowed")
    if not 0 <= index < parts:
        raise ValueError(f"part: got {index} of {parts}, 0 to {parts - 1} are allowed")
    return int(index), int(parts)


def part_of(instances: Instance, parts: int) -> np.ndarray:
    """Return the part, of `parts`, that each board of a batch belongs to (on the host).

    Args:
        instances: Leaves (B, ...). Agents are in the first slots, with distinct starts and goals
            on free cells.
        parts: The number of parts.

    Returns:
        int32 (B,), numbers from 0 to `parts` - 1.
    """
    holes = np.asarray(instances.holes)
    starts, goals = (np.asarray(x).astype(int) for x in (instances.starts, instances.goals))
    plays = np.asarray(instances.agent_mask)
    B, K = plays.shape
    rows = np.arange(B)
    free = ~holes
    for places in (starts, goals):
        for agent in range(1, K):
            free[rows, places[:, agent, 0], places[:, agent, 1]] &= ~plays[:, agent]
    free = free.reshape(B, -1)
    start, goal = (places[:, 0] @ [holes.shape[2], 1] for places in (starts, goals))
    before = np.cumsum(free, axis=1) - free
    rest = np.sum(free, axis=1) - 1
    way = before[rows, start] * rest + before[rows, goal] - (goal > start)
    corners = np.concatenate([starts, goals], axis=-1).astype(np.uint32) << np.array(
        [0, 8, 16, 24], np.uint32
    )
    shift = _hash(np.bitwise_or.reduce(corners, axis=-1).T, plays.T) % np.uint32(parts)
    return ((way + shift) % parts).astype(np.int32)


def draw_into_part(
    keys: jax.Array,
    numbers: jax.Array,
    codes: jax.Array,
    size: jax.Array,
    num_agents: jax.Array,
    part: tuple[jax.Array | int, int],
    *,
    max_size: int,
    max_agents: int,
) -> tuple[jax.Array, jax.Array]:
    """Redraw agent 0 of each candidate, uniformly over its placements in the part.

    Returns:
        The codes, uint32 (B, V), unchanged where agent 0 has no placement in the part; and
        bool (B,), whether each candidate belongs to the part.
    """
    index, parts = part
    candidates = jax.vmap(jax.random.fold_in)(keys, numbers)
    plays = jnp.arange(max_agents)[:, None] < num_agents
    corners = codes[:, -max_agents:].T
    other_corners = jnp.where(plays, corners, 0).at[0].set(0)
    free = free_cells(codes[:, :-max_agents].T, size, max_size)
    for agent in range(1, max_agents):
        for shift in (0, 16):
            row, column = corners[agent] >> shift & 0xFF, corners[agent] >> shift + 8 & 0xFF
            bit = cell_bit((row * max_size + column).astype(jnp.int32), free.shape[0])
            free &= ~jnp.where(plays[agent], bit, 0)

    cells = jnp.sum(jax.lax.population_count(free), axis=0, dtype=jnp.int32)
    rest = jnp.maximum(cells - 1, 1)
    shift = (_hash(other_corners, plays) % parts).astype(jnp.int32)
    first = (index - shift) % parts
    ways = jnp.maximum(cells * (cells - 1) - first + parts - 1, 0) // parts
    high, low = random_words(candidates, _WORDS, 2)
    way = first + parts * _scale(high, low, ways)
    start = cell_of_rank(free, way // rest)
    goal = cell_of_rank(free & ~cell_bit(start, free.shape[0]), way % rest)
    low, high = (cell // max_size | (cell % max_size) << 8 for cell in (start, goal))
    own = ways > 0
    redrawn = codes.at[:, -max_agents].set((low | high << 16).astype(jnp.uint32))
    return jnp.where(own[:, None], redrawn, codes), own


def _hash(corners: Any, plays: Any) -> Any:
    """Return a MurmurHash3 hash of the corners of all agents but the first, uint32 (B,)."""
    value = corners[0] & np.uint32(0)
    for agent in range(1, len(corners)):
        mixed = corners[agent] + np.uint32(agent * 0x9E3779B9 % 2**32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
        value = value ^ (mixed * plays[agent])
    return value


def _scale(high: jax.Array, low: jax.Array, count: jax.Array) -> jax.Array:
    """Return floor(word * count / 2**64), int32, of a 64-bit word, for 0 <= count < 2**31."""
    count = count.astype(jnp.uint32)
    carried = multiply_high(low, count)
    overflow = high * count + carried < carried
    return (multiply_high(high, count) + overflow).astype(jnp.int32)
