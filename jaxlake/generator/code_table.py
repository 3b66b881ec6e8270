"""Hash table of board codes on the device, with open addressing and double hashing.

The caller stores the codes in an array, and the table holds row indices of this array. The codes of
a call, one per lane, probe at once. If several lanes claim an empty slot, the lowest row wins.
Shapes: B lanes, V words.
"""

import jax
import jax.numpy as jnp

_EMPTY = jnp.iinfo(jnp.int32).max

_Search = tuple[jax.Array, jax.Array, jax.Array]
_Insertion = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def empty_table(capacity: int) -> jax.Array:
    """Return an empty table, int32 (T,), for up to `capacity` codes at a load of at most 1/2."""
    return jnp.full(1 << (2 * max(capacity, 1) - 1).bit_length(), _EMPTY, jnp.int32)


def contains(table: jax.Array, stored: jax.Array, codes: jax.Array, active: jax.Array) -> jax.Array:
    """Return which codes, uint32 (B, V), of `active` lanes are in the table, as bool (B,)."""
    first_slot, step = _hash(codes)

    def probe(state: _Search) -> _Search:
        slot, is_searching, is_member = state
        row = table[slot]
        is_equal = is_searching & (row != _EMPTY) & _match_codes(stored, row, codes)
        is_searching &= (row != _EMPTY) & ~is_equal
        return (slot + step) & (table.size - 1), is_searching, is_member | is_equal

    state = (first_slot & (table.size - 1), active, jnp.zeros_like(active))
    return jax.lax.while_loop(lambda state: jnp.any(state[1]), probe, state)[2]


def insert(
    table: jax.Array, stored: jax.Array, codes: jax.Array, rows: jax.Array, active: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Insert rows where `active`, bool (B,). Among rows with equal codes, the lowest one wins.

    Rows, int32 (B,), are distinct. `stored`, uint32 (C, V), already holds the codes, uint32 (B, V),
    at these rows.

    Returns:
        The table, and int32 (B,), the row that holds each code; its own row where not active.
    """
    first_slot, step = _hash(codes)

    def probe(state: _Insertion) -> _Insertion:
        table, slot, is_searching, owner = state
        is_claim = is_searching & (table[slot] == _EMPTY)
        table = table.at[jnp.where(is_claim, slot, table.size)].min(rows, mode="drop")
        row = table[slot]
        is_equal = is_searching & _match_codes(stored, row, codes)
        owner = jnp.where(is_equal, row, owner)
        return table, (slot + step) & (table.size - 1), is_searching & ~is_equal, owner

    state = (table, first_slot & (table.size - 1), active, rows)
    table, _, _, owner = jax.lax.while_loop(lambda state: jnp.any(state[2]), probe, state)
    return table, owner


def _match_codes(stored: jax.Array, rows: jax.Array, codes: jax.Array) -> jax.Array:
    return jnp.all(stored.at[rows].get(mode="clip") == codes, axis=1)


def _hash(codes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the first slot to probe and the odd probe step, int32 (B,) each."""
    state = jnp.zeros(codes.shape[0], jnp.uint32)
    for v in range(codes.shape[1]):
        state = (state ^ codes[:, v]) * jnp.uint32(0x9E3779B1)
        state ^= state >> 15
        state *= jnp.uint32(0x85EBCA77)
        state ^= state >> 13
    step = (state * jnp.uint32(0xC2B2AE35)) >> 15
    return (state >> 1).astype(jnp.int32), (step | 1).astype(jnp.int32)
