"""Partition of all boards into P parts, so that processes can build one set independently.

On R free cells, agent 0 has R (R - 1) placements, each a start and a goal. Placement t belongs to
part (t + h) mod P, where h is a hash of the other agents' starts and goals. Boards of a part are
drawn directly, without rejection.
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
"""(i, P) is part i, counted from 0, of P parts. (0, 1) contains all boards."""

ALL_BOARDS: Part = (0, 1)
MAX_PARTS = 1 << 16

_PLACEMENT_FOLD = 512  # folded into a candidate's key to place agent 0; see `candidates`


def validate_part(part: Part) -> Part:
    """Return a part as Python integers, after a check of its values.

    Raises:
        TypeError: An entry is not an integer.
        ValueError: The part or the number of parts is out of range.
    """
    part_index, num_parts = part
    if not all(isinstance(value, int | np.integer) for value in part):
        raise TypeError(f"part must be two integers, got {part_index} of {num_parts}")
    if not 1 <= num_parts <= MAX_PARTS:
        raise ValueError(
            f"part must be one of 1 to {MAX_PARTS} parts, got {part_index} of {num_parts}"
        )
    if not 0 <= part_index < num_parts:
        raise ValueError(f"part must be in [0, {num_parts - 1}], got {part_index} of {num_parts}")
    return int(part_index), int(num_parts)


def part_of(instances: Instance, num_parts: int) -> np.ndarray:
    """Return the part, of `num_parts`, that each board of a batch belongs to (on the host).

    Args:
        instances: Leaves (B, ...). Agents are in the first slots, with distinct starts and goals
            on free cells.
        num_parts: Number of parts that all boards are divided into.

    Returns:
        int32 (B,), from 0 to `num_parts` - 1.
    """
    holes = np.asarray(instances.holes)
    starts, goals = (np.asarray(x).astype(int) for x in (instances.starts, instances.goals))
    agent_mask = np.asarray(instances.agent_mask)
    B, K = agent_mask.shape
    rows = np.arange(B)
    free = ~holes
    for cells in (starts, goals):
        for agent in range(1, K):
            free[rows, cells[:, agent, 0], cells[:, agent, 1]] &= ~agent_mask[:, agent]
    free = free.reshape(B, -1)
    start, goal = (cells[:, 0] @ [holes.shape[2], 1] for cells in (starts, goals))
    rank = np.cumsum(free, axis=1) - free  # rank of each cell among the free cells
    num_goals = np.sum(free, axis=1) - 1
    placement = rank[rows, start] * num_goals + rank[rows, goal] - (goal > start)
    endpoints = np.concatenate([starts, goals], axis=-1).astype(np.uint32) << np.array(
        [0, 8, 16, 24], np.uint32
    )
    shift = _hash(np.bitwise_or.reduce(endpoints, axis=-1).T, agent_mask.T) % np.uint32(num_parts)
    return ((placement + shift) % num_parts).astype(np.int32)


def draw_into_part(
    keys: jax.Array,
    indices: jax.Array,
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
    part_index, num_parts = part
    candidate_keys = jax.vmap(jax.random.fold_in)(keys, indices)
    agent_mask = jnp.arange(max_agents)[:, None] < num_agents
    endpoints = codes[:, -max_agents:].T
    free = free_cells(codes[:, :-max_agents].T, size, max_size)
    for agent in range(1, max_agents):
        for shift in (0, 16):
            row, column = endpoints[agent] >> shift & 0xFF, endpoints[agent] >> shift + 8 & 0xFF
            bit = cell_bit((row * max_size + column).astype(jnp.int32), free.shape[0])
            free &= ~jnp.where(agent_mask[agent], bit, 0)

    num_free = jnp.sum(jax.lax.population_count(free), axis=0, dtype=jnp.int32)
    num_goals = jnp.maximum(num_free - 1, 1)
    shift = (_hash(endpoints, agent_mask) % num_parts).astype(jnp.int32)
    offset = (part_index - shift) % num_parts
    num_placements = jnp.maximum(num_free * (num_free - 1) - offset + num_parts - 1, 0) // num_parts
    high, low = random_words(candidate_keys, _PLACEMENT_FOLD, 2)
    placement = offset + num_parts * _scale_two_words(high, low, num_placements)
    start = cell_of_rank(free, placement // num_goals)
    goal = cell_of_rank(free & ~cell_bit(start, free.shape[0]), placement % num_goals)
    start_bytes, goal_bytes = (cell // max_size | (cell % max_size) << 8 for cell in (start, goal))
    in_part = num_placements > 0
    new_codes = codes.at[:, -max_agents].set((start_bytes | goal_bytes << 16).astype(jnp.uint32))
    return jnp.where(in_part[:, None], new_codes, codes), in_part


def _hash(endpoints: Any, agent_mask: Any) -> Any:
    """Return a MurmurHash3 hash of the endpoints of all agents except the first, uint32 (B,)."""
    value = endpoints[0] & np.uint32(0)
    for agent in range(1, len(endpoints)):
        word = endpoints[agent] + np.uint32(agent * 0x9E3779B9 % 2**32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
        value = value ^ (word * agent_mask[agent])
    return value


def _scale_two_words(high: jax.Array, low: jax.Array, count: jax.Array) -> jax.Array:
    """Return floor((2**32 * high + low) * count / 2**64), int32, for 0 <= count < 2**31."""
    count = count.astype(jnp.uint32)
    carry = multiply_high(low, count)
    overflow = high * count + carry < carry
    return (multiply_high(high, count) + overflow).astype(jnp.int32)
