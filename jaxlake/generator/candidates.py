"""Random candidate boards, encoded as bits and drawn in batches.

Holes are a uniform random set of an exact number of cells, by Floyd's algorithm (Bentley and Floyd,
CACM 30(9), 1987). Starts and goals are then drawn from the remaining free cells.
Shapes: B candidates, boards padded to N x N, K agent slots, W 32-bit words of cells, V = W + K.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance

# Data folded into a candidate's key: k for agent k, 1024 + i for step i of the holes, and 512 in
# `board_parts`.
_HOLE_FOLD = 1024
_WORDS_PER_STEP = 4


def code_length(max_size: int, max_agents: int) -> int:
    """Return V, the number of words of a code: one bit per cell, then one word per agent."""
    return -(-(max_size**2) // 32) + max_agents


def draw_codes(
    keys: jax.Array,
    indices: jax.Array,
    size: jax.Array,
    num_holes: jax.Array,
    num_agents: jax.Array,
    *,
    max_size: int,
    max_agents: int,
) -> jax.Array:
    """Return the codes of candidates; each depends only on its own row of the arguments.

    Holes, starts and goals are uniform to within 1e-6.

    Args:
        keys: Typed PRNG keys (B,).
        indices: int32 (B,), indices of the candidates; a key and an index determine a board.
        size: int32 (B,), 2 to `max_size`.
        num_holes: int32 (B,), 0 to size * size - 2 * num_agents.
        num_agents: int32 (B,), 1 to `max_agents`.
        max_size: Padded side of the boards, at most 32 (static).
        max_agents: Number of agent slots (static).

    Returns:
        uint32 (B, V).
    """
    candidate_keys = jax.vmap(jax.random.fold_in)(keys, indices)
    hole_words = _draw_holes(candidate_keys, size, num_holes, max_size)
    free = free_cells(hole_words, size, max_size)
    endpoints = _draw_endpoints(candidate_keys, free, num_agents, max_size, max_agents)
    return jnp.concatenate([hole_words, endpoints]).T


def decode_boards(
    codes: jax.Array, size: jax.Array, num_agents: jax.Array, *, max_size: int, max_agents: int
) -> Instance:
    """Return the boards of uint32 (B, V) codes, with int32 (B,) sizes and numbers of agents."""
    N, K = max_size, max_agents
    W = codes.shape[-1] - K
    bits = (codes[:, :W, None] >> np.arange(32, dtype=np.uint32)) & 1
    holes = bits.reshape(-1, W * 32)[:, : N * N].reshape(-1, N, N) != 0
    on_board = np.arange(N) < size[:, None]
    endpoints = (codes[:, W:, None] >> np.arange(0, 32, 8, dtype=np.uint32)) & 0xFF
    endpoints = endpoints.astype(jnp.int8)
    return Instance(
        holes=holes | ~(on_board[:, :, None] & on_board[:, None, :]),
        size=size,
        starts=endpoints[..., :2],
        goals=endpoints[..., 2:],
        agent_mask=jnp.arange(K) < num_agents[:, None],
    )


def _draw_holes(keys: jax.Array, size: jax.Array, num_holes: jax.Array, N: int) -> jax.Array:
    """Return uint32 (W, B) in which bit row * N + column of each board marks a hole."""
    num_cells = size * size
    # If more than half of the cells are holes, draw the complement, which takes fewer draws.
    num_draws = jnp.minimum(num_holes, num_cells - num_holes)
    inverse_size = jnp.float32(1) / size.astype(jnp.float32)

    def padded_cell_bit(cell: jax.Array) -> jax.Array:
        row = ((cell.astype(jnp.float32) + 0.5) * inverse_size).astype(jnp.int32)
        return cell_bit(cell + row * (N - size), W)

    def add_cells(step: jax.Array, bits: jax.Array) -> jax.Array:
        draws = random_words(keys, _HOLE_FOLD + step, _WORDS_PER_STEP)
        for index in range(_WORDS_PER_STEP):
            i = step * _WORDS_PER_STEP + index
            last_cell = num_cells - num_draws + i
            bit = padded_cell_bit(_scale_word(draws[index], last_cell + 1))
            is_repeated = jnp.any((bits & bit) != 0, axis=0)
            new_bit = jnp.where(is_repeated, padded_cell_bit(last_cell), bit)
            bits |= jnp.where(i < num_draws, new_bit, 0)
        return bits

    W = -(-N * N // 32)
    num_steps = -(-jnp.max(num_draws, initial=0) // _WORDS_PER_STEP)
    bits = jax.lax.fori_loop(0, num_steps, add_cells, jnp.zeros((W, size.shape[0]), jnp.uint32))
    return jnp.where(num_draws < num_holes, _board_cells(size, N) & ~bits, bits)


def _draw_endpoints(
    keys: jax.Array, free: jax.Array, num_agents: jax.Array, N: int, K: int
) -> jax.Array:
    """Return uint32 (K, B) with one byte each for start row and column, goal row and column."""
    draws = jax.vmap(lambda agent: random_words(keys, agent, 2))(jnp.arange(K, dtype=jnp.int32))

    def draw_cell(free: jax.Array, draw: jax.Array) -> tuple[jax.Array, jax.Array]:
        cell = _random_cell(free, draw)
        return free & ~cell_bit(cell, free.shape[0]), cell

    # Agents that do not exist come last, so their cells affect no other agent.
    _, cells = jax.lax.scan(draw_cell, free, draws.reshape(2 * K, -1))
    cell_bytes = (cells // N | (cells % N) << 8).reshape(K, 2, -1)
    endpoints = (cell_bytes[:, 0] | cell_bytes[:, 1] << 16).astype(jnp.uint32)
    return jnp.where(np.arange(K)[:, None] < num_agents, endpoints, 0)


def _random_cell(free: jax.Array, draw: jax.Array) -> jax.Array:
    """Return a random set bit of each column of uint32 (W, B), as int32 (B,)."""
    counts = jax.lax.population_count(free).astype(jnp.int32)
    return cell_of_rank(free, _scale_word(draw, jnp.sum(counts, axis=0)))


def cell_of_rank(free: jax.Array, rank: jax.Array) -> jax.Array:
    """Return the set bit of the given 0-based rank per column of uint32 (W, B), as int32 (B,)."""
    counts = jax.lax.population_count(free).astype(jnp.int32)
    cumulative = jnp.cumsum(counts, axis=0)
    word = jnp.sum(cumulative <= rank, axis=0, dtype=jnp.int32)
    is_word = np.arange(free.shape[0])[:, None] == word
    bits = jnp.sum(jnp.where(is_word, free, 0), axis=0, dtype=jnp.uint32)
    rank -= jnp.sum(jnp.where(is_word, cumulative - counts, 0), axis=0, dtype=jnp.int32)
    # Find the bit of that rank within its word by bisection.
    bit_index = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        low = bits & jnp.uint32((1 << width) - 1)
        num_low = jax.lax.population_count(low).astype(jnp.int32)
        is_high = rank >= num_low
        rank -= jnp.where(is_high, num_low, 0)
        bit_index += jnp.where(is_high, width, 0)
        bits = jnp.where(is_high, bits >> width, low)
    return word * 32 + bit_index


def random_words(keys: jax.Array, data: jax.Array | int, count: int) -> jax.Array:
    """Return random words, uint32 (count, B), of the keys with `data` folded in."""
    return jax.vmap(
        lambda key: jax.random.bits(jax.random.fold_in(key, data), (count,), jnp.uint32),
        out_axes=1,
    )(keys)


def _scale_word(draw: jax.Array, count: jax.Array) -> jax.Array:
    """Return floor(draw * count / 2**32), int32, for 0 <= count < 2**16."""
    count = count.astype(jnp.uint32)
    low = (draw & 0xFFFF) * count >> 16
    return (((draw >> 16) * count + low) >> 16).astype(jnp.int32)


def cell_bit(index: jax.Array, num_words: int) -> jax.Array:
    """Return uint32 (num_words, B) with only bit `index`, int32 (B,), set."""
    bit = jnp.uint32(1) << (index & 31).astype(jnp.uint32)
    return jnp.where(np.arange(num_words)[:, None] == index >> 5, bit, 0)


def multiply_high(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the high word of the product of two uint32 (B,)."""
    low = (first & 0xFFFF) * (second & 0xFFFF) >> 16
    middle = (first >> 16) * (second & 0xFFFF) + low
    cross = (first & 0xFFFF) * (second >> 16) + (middle & 0xFFFF)
    return (first >> 16) * (second >> 16) + (middle >> 16) + (cross >> 16)


def free_cells(hole_words: jax.Array, size: jax.Array, max_size: int) -> jax.Array:
    """Return the hole-free cells of each board, uint32 (W, B)."""
    return _board_cells(size, max_size) & ~hole_words


def _board_cells(size: jax.Array, N: int) -> jax.Array:
    """Return the cells of each board, uint32 (W, B)."""
    rows, columns = np.divmod(np.arange(N * N), N)
    is_inside = np.maximum(rows, columns) < np.arange(N + 1)[:, None]
    bits = np.pad(is_inside, [(0, 0), (0, -(N * N) % 32)]).reshape(N + 1, -1, 32)
    masks = (bits * (np.uint32(1) << np.arange(32, dtype=np.uint32))).sum(axis=2, dtype=np.uint32)
    return jnp.asarray(masks)[jnp.clip(size, 0, N)].T
